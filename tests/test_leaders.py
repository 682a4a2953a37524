"""Leaders: the best rows of the blocks that a task has seen, whatever their order, within rows and bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gdm_dask.correlation import as_rows
from gdm_dask.leaders import Leaders, Wanted
from gdm_dask.ranking import top
from gdm_dask.store.block import Block


def blocks_of(X: np.ndarray, size: int) -> list[Block]:
    """Dense rows in blocks of so many."""
    rows = as_rows(X.T)
    assert rows.values is not None
    return [
        Block(start, min(start + size, len(X)), X.shape[1], *(part[start : start + size] for part in whole))
        for whole in [(rows.values, rows.means, rows.norms)]
        for start in range(0, len(X), size)
    ]


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 7),
    n_rows=st.integers(1, 12),
    spoken=st.sets(st.integers(0, 29), max_size=20),
    seed=st.integers(0, 999),
)
def test_the_best_that_nobody_speaks_for(size: int, n_rows: int, spoken: set[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, scores = rng.integers(0, 5, (30, 6)).astype(np.float64), rng.normal(size=30).round(1)
    leaders = Leaders(Wanted(np.array(sorted(spoken), np.int64), n_rows, 1 << 20))
    for block in blocks_of(X, size):
        features = np.arange(block.start, block.stop)
        leaders.see(block, top(features, scores[features], 30))
    features, rows = leaders.found()
    asked = np.array([feature for feature in range(30) if feature not in spoken and scores[feature] != 0], np.int64)
    best = top(asked, scores[asked], n_rows).features
    assert len(features) == len(best)
    np.testing.assert_array_equal(np.sort(np.abs(scores[features])), np.sort(np.abs(scores[best])))
    assert rows is not None or not len(best)
    if rows is not None:
        np.testing.assert_array_equal(rows.matrix(), X[features])


def test_no_more_bytes_than_wanted() -> None:
    X = np.arange(40.0).reshape(10, 4)
    block, *_ = blocks_of(X, 10)
    leaders = Leaders(Wanted(np.zeros(0, np.int64), 10, 3 * X[0].nbytes + 1))
    leaders.see(block, top(np.arange(10), np.arange(10.0), 10))
    assert sorted(leaders.found()[0].tolist()) == [7, 8, 9]
