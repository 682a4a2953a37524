"""Correlated blocks with few samples: data like gene expression, with known truth."""

from __future__ import annotations

import numpy as np

from ..problem import Problem

N_TEST = 1000


def make_blocks(
    n_samples: int,
    n_features: int,
    block: int = 20,
    correlation: float = 0.8,
    n_informative: int = 10,
    noise: float = 0.5,
    seed: int = 0,
) -> Problem:
    """Generate features in blocks, some of which decide the label.

    Each block has a latent standard normal variable. Two features of a block have correlation `correlation`, features
    of different blocks none. The label is the sign of noise plus the sum of the informative blocks' latent variables,
    with N(0, 1) weights.

    Parameters
    ----------
    n_samples : int
        Number of training samples; the test set has 1,000.
    n_features : int
        A multiple of `block`.
    block : int
        Features per block.
    correlation : float
    n_informative : int
        Number of blocks that decide the label; they are the true groups.
    noise : float
        Standard deviation of the noise, relative to the sum.
    seed : int

    Returns
    -------
    Problem

    Examples
    --------
    >>> problem = make_blocks(30, 60, block=10, n_informative=2)
    >>> problem.X.shape, problem.X_test.shape, [len(group) for group in problem.groups]
    ((30, 60), (1000, 60), [10, 10])
    """
    rng = np.random.default_rng(seed)
    n_blocks = n_features // block
    informative = rng.permutation(n_blocks)[:n_informative]
    weights = rng.standard_normal(n_informative)
    latent = rng.standard_normal((n_samples + N_TEST, n_blocks))
    signal = latent[:, informative] @ weights
    signal += noise * np.linalg.norm(weights) * rng.standard_normal(len(signal))
    own = rng.standard_normal((len(latent), n_blocks, block))
    X = np.sqrt(correlation) * latent[:, :, None] + np.sqrt(1 - correlation) * own
    X, y = X.reshape(len(latent), -1).astype(np.float32), np.where(signal > 0, 1, -1)
    groups = [np.arange(number * block, (number + 1) * block) for number in informative]
    return Problem(X[:n_samples], y[:n_samples], X[n_samples:], y[n_samples:], groups)
