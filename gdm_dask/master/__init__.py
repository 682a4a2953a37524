"""Master problem (5), solved on the driver."""
