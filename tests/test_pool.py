"""The pool keeps what was compared, within its limit, and is as full after it was restored as before."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gdm_dask import pool
from gdm_dask.pool import Pool
from gdm_dask.store.memory import MemoryStore

X = np.where(np.random.default_rng(0).random((50, 12)) < 0.4, 1.5, 0.0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_restored_pool_takes_what_the_first_one_takes(monkeypatch, form) -> None:
    fetch = MemoryStore(form(X)).rows
    first = Pool(per_cut=3)
    for cut in ([0, 1, 2, 3], [4, 5], [1, 6]):
        first.recording(fetch)(np.array(cut))
    assert first.features == [0, 1, 2, 4, 5, 6]
    restored = Pool(per_cut=3)
    restored.restore(first.features, fetch)
    for limit in range(first._nbytes, first._nbytes + 3 * fetch(np.array([7])).nbytes):
        monkeypatch.setattr(pool, "MAX_BYTES", limit)
        grown = []
        for one in (first, restored):
            copy = Pool(3, list(one.features), list(one._rows), one._nbytes)
            copy.recording(fetch)(np.array([7, 8]))
            grown.append(copy.features)
        assert grown[0] == grown[1]
    others, rows = restored.without([0, 4])
    assert others == [1, 2, 5, 6]
    np.testing.assert_array_equal(rows.to_scipy().toarray(), X.T[others])
