"""Data of many kinds for the tests, and ways to pass it to the library. Features are rows, (m, n)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.engine import open_engine
from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block, stack
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.groups import GroupPass, Pairs
from gdm_dask.features.measures import MEASURES
from gdm_dask.features.ranking import ALL_SAMPLES, Fold
from gdm_dask.settings.settings import Settings
from gdm_dask.store.memory import MemoryStore

#: The kinds cover ties and value types, correlated groups, and cancellation.
KINDS = ["noise", "groups", "binary", "counts", "signs", "float32", "far from zero", "duplicates", "with constants"]

kinds, seeds = st.sampled_from(KINDS), st.integers(0, 9999)
measures = st.sampled_from(sorted(MEASURES))


def many(examples: int) -> hypothesis_settings:
    """Return Hypothesis settings for this many cases, the same in every run."""
    return hypothesis_settings(max_examples=examples, suppress_health_check=list(HealthCheck))


def make(kind: str, m: int, n: int, seed: int) -> np.ndarray:
    """Make raw feature rows of some kind, float64."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    if kind == "groups":
        X = X[rng.integers(0, max(1, m // 3), m)] * rng.choice([-2.0, 0.5, 1.0], (m, 1)) + 0.4 * X
    elif kind == "binary":
        X = (rng.random((m, n)) < rng.uniform(0.05, 0.9, (m, 1))).astype(np.float64)
    elif kind == "counts":
        X = rng.poisson(rng.uniform(0.1, 3.0, (m, 1)), (m, n)).astype(np.float64)
    elif kind == "signs":
        X = rng.choice([-1.5, 0.0, 0.0, 2.0], (m, n))
    elif kind == "float32":
        X = (X * (rng.random((m, n)) < 0.5)).astype(np.float32).astype(np.float64)
    elif kind == "far from zero":
        X += 1e6
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, m // 2), m)]
    elif kind == "with constants":
        X[rng.random(m) < 0.5] = 0.1
        X[rng.random(m) < 0.3] = 0.0
    return X


def suited(X: np.ndarray, measure: str) -> np.ndarray:
    """Return the rows, with few distinct values if the measure is for discrete features."""
    return X if MEASURES[measure].check is None else np.round(X - X.mean())


def labels(n: int, seed: int) -> np.ndarray:
    """Draw labels -1 and +1 at random, both present."""
    rng = np.random.default_rng(seed + 1)
    return rng.permutation(np.where(np.arange(n) < rng.integers(1, n), 1.0, -1.0))


def informative(m: int, n: int, seed: int, kind: str = "groups") -> tuple[np.ndarray, np.ndarray]:
    """Make rows, and labels that some of them predict."""
    X = make(kind, m, n, seed)
    rng = np.random.default_rng(seed + 2)
    margin = normal_rows(X[: max(1, m // 2)]).sum(axis=0) + 0.3 * rng.normal(size=n) / np.sqrt(n)
    return X, np.where(margin > np.median(margin), 1.0, -1.0)


def normal_rows(X: np.ndarray) -> np.ndarray:
    centred = X - X.mean(axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)


def memory(X: np.ndarray, sparse: bool = False, block_bytes: int = 1 << 20) -> MemoryStore:
    """Cut feature rows into blocks, in the narrowest type that holds them."""
    return MemoryStore(sp.csc_array(X.T) if sparse else X.T, block_bytes)


def blocks_of(store: MemoryStore) -> list[Block]:
    return [*store.blocks(range(len(store.sizes)))]


def whole(X: np.ndarray, sparse: bool = False) -> Block:
    """Return all rows as one block."""
    return stack(blocks_of(memory(X, sparse)))


@contextmanager
def data_of(store: MemoryStore) -> Iterator[Data]:
    with open_engine("synchronous") as engine:
        yield Data.in_memory(store, engine)


def supports_of(X: np.ndarray, count: int, seed: int) -> list[int]:
    """List some features that are not constant; only they can become supports."""
    return np.random.default_rng(seed).permutation(np.flatnonzero(np.ptp(X, axis=1) > 0))[:count].tolist()


def pairs_of(
    X: np.ndarray, supports: Sequence[int], tau: float, sparse: bool, size: int = 1 << 20, fold: Fold = ALL_SAMPLES,
    measure: str = "pearson",
) -> Pairs:  # fmt: skip
    """Search for the features that correlate with supports."""
    store = memory(X, sparse, size)
    search = MEASURES[measure].search(fold.of(store.rows(np.array(supports))), correlation_limit(tau))
    with data_of(store) as data:
        return data.run(GroupPass(search, fold))


def solved(
    X: np.ndarray, y: np.ndarray, settings: Settings, sparse: bool = False, block_bytes: int = 1 << 20
) -> tuple[Problem, list[np.ndarray]]:
    """Solve a problem on all samples; return it, and its duals (K, n) before each cut and at the end."""
    problem = Problem(y, settings)
    duals = [problem.master.duals]
    problem.on_cut = lambda _: duals.append(problem.master.duals)
    with data_of(memory(X, sparse, block_bytes)) as data:
        solve([problem], data)
    return problem, duals
