"""The same bits of bounds, weights and coefficients wherever arrays lie, from any threads of BLAS, on any engine."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.misaligned import MisalignedEngine
from threadpoolctl import threadpool_limits

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cutting_plane import svm as refit
from gdm_dask.features.correlation import as_rows

N = 100_000
FITTED = (
    "support_features_",
    "weights_",
    "coef_",
    "intercept_",
    "lower_bounds_",
    "upper_bounds_",
    "redundancy_rate_",
)


def samples(sparse: bool) -> tuple[np.ndarray | sp.csc_array, np.ndarray]:
    """A few features that predict the labels of many samples."""
    rng = np.random.default_rng(6)
    y = np.where(rng.random(N) < 0.2, 1.0, -1.0)  # rarely +1: the sum of a vector is large, and so its last bits
    if not sparse:
        return rng.normal(size=(N, 8)) + np.linspace(0.0, 0.5, 8) * y[:, None], y
    chance = 0.15 + np.linspace(0.0, 0.08, 16) * (y > 0)[:, None]
    return sp.csc_array((rng.random((N, 16)) < chance).astype(float)), y


def fitted(sparse: bool, **options: object) -> dict[str, bytes]:
    """The bits of a fit."""
    X, y = samples(sparse)
    machine = GroupDiscoveryMachine(4, cut_size=2, **options).fit(X, y)
    assert machine.n_cuts_ > 1
    bits = {name: np.asarray(getattr(machine, name)).tobytes() for name in FITTED}
    bits["scores"] = np.concatenate([iteration.scores for iteration in machine.history_]).tobytes()
    bits["class_means"] = machine.profile_.class_means.tobytes()
    bits["rho"] = machine.affiliations_.correlation.to_numpy().tobytes()
    return bits


@pytest.mark.parametrize("sparse", [False, True])
def test_messages_that_leave_arrays_at_any_byte(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    expected = fitted(sparse)
    monkeypatch.setattr("gdm_dask.inputs.open_engine", lambda *_: MisalignedEngine())
    assert fitted(sparse) == expected


@pytest.mark.cluster
@pytest.mark.parametrize("sparse", [False, True])
def test_a_cluster(sparse: bool) -> None:
    assert fitted(sparse, scheduler="local", n_workers=2) == fitted(sparse, scheduler="threads")


def print_bits() -> None:
    for sparse in (False, True):
        for name, bits in fitted(sparse).items():
            print(name, bits.hex())


def test_threads_of_blas_that_the_environment_asks_for() -> None:
    command = [sys.executable, "-c", "import test_same_bits; test_same_bits.print_bits()"]
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    start = partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)
    processes = [
        start(env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": str(n_threads)}) for n_threads in (1, 2)
    ]
    one, two = (process.communicate()[0].splitlines() for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert len(one) == 2 * (len(FITTED) + 3)
    assert one == two


def test_threads_of_blas_in_an_iterative_refit() -> None:
    """BLAS splits vectors of more than 10,000 elements among threads."""
    rng = np.random.default_rng(7)
    X = sp.random_array((200, 12_000), density=0.02, format="csc", rng=rng)
    X.data -= 0.5
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    rows = as_rows(X)
    rows = rows.rows(np.flatnonzero(rows.norms))
    assert rows.n_rows > max(10_000, refit.MAX_DIRECT)
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            found.append(refit.refit(rows, y[None]))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
