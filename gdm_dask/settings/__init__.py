"""Settings of a fit, derived from the parameters of an estimator and the size of the data."""
