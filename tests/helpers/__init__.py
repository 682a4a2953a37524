"""Shared by the tests: instances, references, real processes, faults."""
