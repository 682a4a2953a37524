"""Settings of a fit: what is wanted, derived from the parameters of an estimator and the size of the data."""
