"""What a report tells of the supports beyond their weights: taken from their rows when a fit ends."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from gdm_dask.store.block import Block

#: Correlations are kept among this many of the strongest supports: a map of more is not readable.
MAX_MAPPED = 500


@dataclass(frozen=True, eq=False)
class Profile:
    """Facts about supports, strongest first, by class (-1 before +1).

    Attributes
    ----------
    class_counts : ndarray of shape (2,), int64
        Samples of each class.
    frequency : ndarray of shape (2, k), int64
        Samples of each class in which a support is not zero.
    class_means : ndarray of shape (2, k)
        Mean raw value of each support in each class.
    correlations : ndarray of shape (q, q), float32
        Among the q strongest supports, at most 500 of them.
    """

    class_counts: np.ndarray
    frequency: np.ndarray
    class_means: np.ndarray
    correlations: np.ndarray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.names())

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def names(cls) -> list[str]:
        """Names of the arrays, as a model file has them."""
        return [field.name for field in fields(cls)]


def profile_of(rows: Block, labels: np.ndarray, rho: np.ndarray) -> Profile:
    """Profile of support rows with these correlations.

    Examples
    --------
    >>> rows = Block(0, 1, 3, np.array([[0.0, 2.0, 4.0]]), np.array([2.0]), np.array([np.sqrt(8)]))
    >>> found = profile_of(rows, np.array([-1, 1, 1]), np.ones((1, 1)))
    >>> found.class_counts.tolist(), found.frequency.tolist(), found.class_means.tolist()
    ([1, 2], [[0], [2]], [[0.0], [3.0]])
    """
    member = np.stack([labels < 0, labels > 0]).astype(np.float64)
    class_counts = member.sum(axis=1)
    matrix = rows.matrix()
    sums = (matrix @ member.T).T
    present = (matrix != 0).astype(np.float64)
    return Profile(
        class_counts.astype(np.int64),
        np.rint((present @ member.T).T).astype(np.int64),
        sums / np.maximum(class_counts, 1)[:, None],
        rho[:MAX_MAPPED, :MAX_MAPPED].astype(np.float32),
    )
