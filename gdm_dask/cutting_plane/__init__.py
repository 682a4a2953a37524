"""The paper: Algorithm 1, Algorithm 2, and the choice of k supports."""
