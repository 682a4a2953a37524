"""Analyses of a fitted model: metrics, importance, stability and cross-validation."""
