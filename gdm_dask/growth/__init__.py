"""Growth on paper: the reads, memory, traffic and seconds of a fit that nobody has run."""
