"""Information measures of discrete features (section 2.1 of the paper): IG and SU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.features.values import as_array
from gdm_dask.system.jit import allocating

#: Pairs of states that get a counter each; beyond that, as for continuous values, the pairs that occur are sorted.
MAX_COUNTERS = 1 << 24


@dataclass(frozen=True)
class Coded:
    """Columns whose values are numbered from 0, for measures that use the same columns many times."""

    codes: np.ndarray  # (m, n_samples)
    n_states: int  # greater than the largest code
    entropies: np.ndarray  # of each column, in bits, (m,)
    single: bool = False  # the columns were made from a vector

    def column(self, j: int) -> Coded:
        """Return one of the columns, as a vector."""
        return Coded(self.codes[j : j + 1], self.n_states, self.entropies[j : j + 1], True)


def encode(X: Any) -> Coded:
    """Number the values of each column; the values may be of any sortable type.

    Parameters
    ----------
    X : array of shape (n_samples,) or (n_samples, m), or Coded
    """
    if isinstance(X, Coded):
        return X
    columns = as_array(X, "the input")
    if columns.ndim not in (1, 2) or 0 in columns.shape:
        raise BadInput(f"expected a vector or a matrix of samples x features, got an array of shape {columns.shape}")
    single = columns.ndim == 1
    if single:
        columns = columns[:, None]
    try:
        numbered = [np.unique(column, return_inverse=True)[1] for column in columns.T]
    except TypeError as error:
        raise BadInput(f"the values of a feature must have one type, without None: {error}") from error
    n_states = int(max(codes.max() for codes in numbered)) + 1
    codes = np.empty((len(numbered), len(columns)), np.min_scalar_type(n_states))
    for row, column in zip(codes, numbered, strict=True):
        row[:] = column
    entropies = np.array([_entropy(np.bincount(row)) for row in codes])
    return Coded(codes, n_states, entropies, single)


def information_gain(X: Any, y: Any) -> Any:
    """Compute the information gain IG(X | y) = H(X) - H(X | y) in bits: the information about each column in y.

    It is symmetrical, and also called mutual information. Values are treated as discrete: `discretise` continuous ones
    first.

    Parameters
    ----------
    X : array of shape (n_samples,) or (n_samples, m), or Coded
    y : array of shape (n_samples,), or Coded

    Returns
    -------
    float or ndarray of shape (m,)

    Examples
    --------
    >>> information_gain([0, 0, 1, 1], ["no", "no", "yes", "yes"])
    1.0
    >>> information_gain([[0, 1], [1, 1], [0, 1], [1, 1]], [0, 0, 1, 1]).tolist()
    [0.0, 0.0]
    """
    columns, other = encode(X), encode(y)
    gains = _gains(columns, other)
    return float(gains[0]) if columns.single else gains


def symmetrical_uncertainty(X: Any, y: Any) -> Any:
    """Compute SU(X, y) = 2 IG(X | y) / (H(X) + H(y)): 0 if independent, 1 if each determines the other.

    Parameters
    ----------
    X : array of shape (n_samples,) or (n_samples, m), or Coded
    y : array of shape (n_samples,), or Coded

    Returns
    -------
    float or ndarray of shape (m,)
        0 if both are constant.

    Examples
    --------
    >>> symmetrical_uncertainty([0, 1, 2, 3], [0, 0, 1, 1]).__round__(12)
    0.666666666667
    """
    columns, other = encode(X), encode(y)
    total = columns.entropies + other.entropies[0]
    uncertainty = 2 * _gains(columns, other) / np.where(total > 0, total, 1.0)
    return float(uncertainty[0]) if columns.single else uncertainty


def discretise(X: Any) -> np.ndarray:
    """Map each column to three states: below mean - deviation, in between, above mean + deviation.

    This is how the authors of mRMR treat continuous features.

    Parameters
    ----------
    X : array of shape (n_samples, m)

    Returns
    -------
    ndarray of shape (n_samples, m), int8
        -1, 0 or 1.

    Examples
    --------
    >>> discretise([[0.0], [5.0], [5.0], [5.0], [10.0]]).ravel().tolist()
    [-1, 0, 0, 0, 1]
    """
    X = np.asarray(X)
    means, deviations = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    states: np.ndarray = (means + deviations < X).astype(np.int8) - (means - deviations > X).astype(np.int8)
    return states


def _gains(columns: Coded, other: Coded) -> np.ndarray:
    if len(other.codes) != 1 or columns.codes.shape[1] != other.codes.shape[1]:
        shape = other.codes.shape[::-1]
        raise BadInput(f"y must have one value for each of the {columns.codes.shape[1]} samples, got shape {shape}")
    n_pairs = columns.n_states * other.n_states
    if n_pairs <= MAX_COUNTERS:
        joint = _joint_entropies(columns.codes, columns.n_states, other.codes[0], other.n_states)
    else:
        pairs = (row.astype(np.int64) * other.n_states + other.codes[0] for row in columns.codes)
        joint = np.array([_entropy(np.unique(row, return_counts=True)[1]) for row in pairs])
    gains: np.ndarray = np.maximum(columns.entropies + other.entropies[0] - joint, 0.0)
    return gains


def _entropy(counts: np.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(max(0.0, -(shares * np.log2(shares)).sum()))


@allocating
def _joint_entropies(codes, n_states, other, n_other):  # type: ignore[no-untyped-def]
    """Compute H(column, other) for every row of codes."""
    m, n = codes.shape
    out = np.empty(m)
    counts = np.empty(n_states * n_other, np.int64)
    for j in range(m):
        counts[:] = 0
        for i in range(n):
            counts[np.int64(codes[j, i]) * n_other + np.int64(other[i])] += 1
        total = 0.0
        for count in counts:
            if count > 0:
                total -= count / n * np.log2(count / n)
        out[j] = total
    return out
