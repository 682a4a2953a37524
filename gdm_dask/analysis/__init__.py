"""Analyses of a fitted model: metrics, importance, stability, cross-validation."""
