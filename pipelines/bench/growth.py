"""Time per nonzero from 10^7 to 10^9 nonzeros, and the master problem from 10^5 to 10^7 samples. See `frame`.

- *features*: 20,000 samples, rows of 60 nonzeros, a growing number of features;
- *samples*: rows with nonzeros in a twentieth of the samples, about 100,000 features, a growing number of samples;
- *master*: 20 cuts of 5 features that occur in a twentieth of the samples.

The stores link a few distinct blocks many times, so 10^9 nonzeros need little disk space; every pass reads and decodes
all blocks. Times are the best of three passes that hold nothing in memory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from frame import Benchmark, Line, Results, main
from passes import data_of, top, weights_of

from gdm_dask.features.moments import sparse_moments
from gdm_dask.master.problem import Master

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.large_stores import large_store

#: Nonzeros of a store; the number of blocks grows with them, or the number of samples and so the length of the rows.
BLOCK_BYTES = 16 << 20
SIZES = {"1e7": 10**7, "1e8": 10**8, "1e9": 10**9}
SAMPLES = {"1e5": 10**5, "1e6": 10**6, "1e7": 10**7}
N_CUTS, CUT_SIZE, DENSITY = 20, 5, 0.05


def one_pass(n_blocks: int, n_samples: int, per_row: int) -> dict[str, Any]:
    """Time a score pass out of core, per nonzero."""
    with tempfile.TemporaryDirectory(prefix="gdm-bench-") as folder:
        store = large_store(Path(folder) / "x.zarr", n_blocks, BLOCK_BYTES, n_samples, per_row)
        taken = []
        with data_of(store) as data:
            for _ in range(3):
                began = time.perf_counter()
                top(data, weights_of(store))
                taken.append(time.perf_counter() - began)
    return {"seconds": min(taken), "unit_ns": 1e9 * min(taken) / store.nnz, "of": f"{store.nnz:.2e} nonzeros"}


def features(nonzeros: int, _: Any) -> dict[str, Any]:
    """Time a pass while the number of features grows."""
    return one_pass(nonzeros * 8 // BLOCK_BYTES, 20_000, 60)


def samples(nonzeros: int, _: Any) -> dict[str, Any]:
    """Time a pass while the number of samples grows."""
    return one_pass(max(4, nonzeros * 8 // BLOCK_BYTES), nonzeros // 5_000, nonzeros // 100_000)


def master(n_samples: int, _: Any) -> dict[str, Any]:
    """Time all master problems of a run; kernels are loaded before the clock starts."""
    seconds_of_masters(10_000)
    seconds = seconds_of_masters(n_samples)
    return {"seconds": seconds, "unit_ns": 1e9 * seconds / n_samples, "of": f"{n_samples:.0e} samples"}


def seconds_of_masters(n_samples: int) -> float:
    """Solve the master problem again after each new cut, and return the seconds."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n_samples) < 0.5, 1.0, -1.0)
    solver = Master(y, C=50.0)
    seconds = 0.0
    for cut in range(N_CUTS):
        rows = some_rows(rng, y)
        means, norms = sparse_moments(rows.indptr.astype(np.uint32), rows.data, n_samples)
        began = time.perf_counter()
        solver.add_cut(np.arange(cut * CUT_SIZE, (cut + 1) * CUT_SIZE), rows, means, norms)
        solver.solve(1e-4)
        seconds += time.perf_counter() - began
    return seconds


def some_rows(rng: np.random.Generator, y: np.ndarray) -> sp.csr_array:
    """Generate a cut of features that occur more often in one class."""
    rows = []
    for _ in range(CUT_SIZE):
        rate = DENSITY * (1 + rng.uniform(-0.3, 0.3) * y)
        rows.append(np.flatnonzero(rng.random(len(y), np.float32) < rate))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return sp.csr_array((np.ones(indptr[-1]), np.concatenate(rows), indptr), shape=(CUT_SIZE, len(y)))


def lines(results: Results) -> Iterator[Line]:
    """Compare the time per unit of each size with the next smaller size."""
    for name, sizes in (("features", SIZES), ("samples", SIZES), ("master", SAMPLES)):
        cells = [results.get(("generated", f"{name} {size}"), {}) for size in sizes]
        for smaller, larger in pairwise(cells):
            if smaller.get("status") == larger.get("status") == "ok":
                text = (
                    f"{name}: {larger['of']} {larger['unit_ns']:.2f} ns each, {smaller['of']} {smaller['unit_ns']:.2f}"
                )
                yield Line(text, larger["unit_ns"] / smaller["unit_ns"], at_most=1.15)


CELLS = {
    f"{function.__name__} {name}": partial(function, size)
    for function, sizes in ((features, SIZES), (samples, SIZES), (master, SAMPLES))
    for name, size in sizes.items()
}
BENCHMARK = Benchmark("growth", ("generated",), CELLS, {}, lines, stored=False)

if __name__ == "__main__":
    main(BENCHMARK)
