"""Forecasts: reads, memory, traffic and seconds of a fit that has not been run."""
