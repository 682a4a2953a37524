"""The paper's method: Algorithm 1, Algorithm 2 and the choice of k supports."""
