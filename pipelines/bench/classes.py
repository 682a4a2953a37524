"""Fits of ten classes against fits of two classes on the same store. See `frame` for the options.

A class is where the sum of twenty features of its own is largest, but for noise. All classes share every read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from datasets import Dataset
from fits import warm_up
from frame import Benchmark, Line, Results, main
from peers import timed

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.store import FeatureStore

K = 100
FEW, MANY = "2 classes", "10 classes"
MOST = 3.0
#: Features that speak for a class, the shares of samples between which they occur, and the noise in their sum.
PER_CLASS, FREQUENCIES, NOISE = 20, (0.005, 0.2), 0.5


def labels(store: FeatureStore, n_classes: int) -> np.ndarray:
    """Return the class of each sample."""
    rng = np.random.default_rng(0)
    low, high = (share * store.shape[1] for share in FREQUENCIES)
    counts = store.counts
    features = rng.choice(np.flatnonzero((counts > low) & (counts < high)), n_classes * PER_CLASS, replace=False)
    rows = store.load_rows(features)
    normalised = sp.diags_array(1.0 / rows.norms) @ rows.to_scipy().astype(np.float64)
    owner = sp.csr_array(np.repeat(np.eye(n_classes), PER_CLASS, axis=1))
    sums = (owner @ normalised).toarray()
    sums = (sums - sums.mean(axis=1, keepdims=True)) / sums.std(axis=1, keepdims=True)
    found: np.ndarray = np.argmax(sums + NOISE * rng.normal(size=sums.shape), axis=0)
    return found


def fit(n_classes: int, data: Dataset) -> dict[str, Any]:
    """Fit the classes out of core."""
    y = labels(data.train, n_classes)
    warm_up(data, y)
    before = time.process_time()
    machine, seconds = timed(lambda: GroupDiscoveryMachine(K, memory_limit="2GB").fit(data.train, y))
    processor = round(time.process_time() - before, 2)
    parts = {name: round(taken, 2) for name, taken in machine.timings_.items() if name != "total"}
    return {"seconds": seconds, "processor": processor, "reads": machine.counts_["passes"], **parts}


def lines(results: Results) -> Iterator[Line]:
    """How much longer many classes take than two, and how much more they read."""
    for dataset in dict.fromkeys(dataset for dataset, _ in results):
        few, many = (results.get((dataset, name), {"status": ""}) for name in (FEW, MANY))
        if few["status"] == many["status"] == "ok":
            text = f"{dataset}: {MANY} {many['seconds']:.2f} s, {FEW} {few['seconds']:.2f} s"
            yield Line(text, many["seconds"] / few["seconds"], at_most=MOST)
            text = f"{dataset}: {MANY} {many['processor']:.2f} s of processor time, {FEW} {few['processor']:.2f} s"
            yield Line(text, many["processor"] / few["processor"], at_most=MOST)
            text = f"{dataset}: {MANY} {many['reads']} reads, {FEW} {few['reads']} reads"
            yield Line(text, many["reads"] / few["reads"], at_most=1.0)


BENCHMARK = Benchmark("classes", ("webspam", "kdd2010"), {FEW: partial(fit, 2), MANY: partial(fit, 10)}, {}, lines)

if __name__ == "__main__":
    main(BENCHMARK)
