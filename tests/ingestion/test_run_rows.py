"""Row pointers of runs, stored as steps from feature to feature, against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.instances import many
from hypothesis import example, given
from hypothesis import strategies as st

from gdm_dask.ingestion.runs import add_counts, find_bounds, make_rows

#: Nonzeros per feature; some numbers take more than 16 bits.
counted = st.dictionaries(
    st.integers(0, 300) | st.integers(0, 200_000),
    st.integers(1, 5) | st.integers(2**16 - 2, 2**16 + 2),
    min_size=1,
    max_size=30,
)


def rows_of(counts: dict[int, int]) -> np.ndarray:
    features = sorted(counts)
    pointers = np.cumsum([0, *(counts[feature] for feature in features)])
    return make_rows(np.array(features, np.uint32), pointers.astype(np.uint32))


@many(200)
@given(counted, st.lists(st.integers(0, 200_001), min_size=1, max_size=5).map(sorted))
@example({0: 1}, [0, 1])
@example({5: 2, 7: 1}, [5, 5, 6, 8])
def test_counts_and_bounds_of_steps(counts: dict[int, int], bounds: list[int]) -> None:
    rows = rows_of(counts)
    added = np.ones(200_001, np.uint32)
    add_counts(rows, added)
    expected = np.ones(200_001, np.uint32)
    expected[list(counts)] += np.array(list(counts.values()), np.uint32)
    np.testing.assert_array_equal(added, expected)
    found = np.empty((len(bounds), 3), np.int64)
    find_bounds(rows, np.array(bounds, np.uint64), found)
    for bound, place in zip(bounds, found.tolist(), strict=True):
        before = [feature for feature in sorted(counts) if feature < bound]
        assert place == [len(before), sum(counts[feature] for feature in before), before[-1] if before else 0]


@pytest.mark.parametrize(
    ("counts", "dtype"),
    [
        ({2**16 - 1: 2**16 - 1}, np.uint16),
        ({2**16: 1}, np.uint32),
        ({3: 2**16}, np.uint32),
        ({2**32 - 2: 1}, np.uint32),
    ],
)
def test_rows_take_no_more_bytes_than_they_need(counts: dict[int, int], dtype: type) -> None:
    assert rows_of(counts).dtype == dtype
