"""Several problems on some of the samples each: every one equals a fit of its samples, and all share the reads."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.instances import data_of, informative, kinds, many, memory, seeds
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from gdm_dask import GroupDiscoveryMachine, ingest, inputs
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cutting_plane.algorithm import solve
from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput
from gdm_dask.features.correlation import as_rows
from gdm_dask.features.moments import with_samples
from gdm_dask.settings.settings import choose_settings


@many(60)
@given(kinds, st.integers(1, 30), st.integers(2, 40), st.booleans(), seeds)
def test_a_block_with_some_samples_is_the_block_of_these_samples(kind, m, n, sparse, seed) -> None:
    X, _ = informative(m, n, seed, kind)
    rng = np.random.default_rng(seed)
    samples = np.flatnonzero(rng.random(n) < 0.6)
    samples = samples if len(samples) else np.array([0])
    matrix = sp.csr_array(X.T) if sparse else X.T
    found, expected = with_samples(as_rows(matrix), samples), as_rows(matrix[samples])
    assert found.n_samples == len(samples)
    np.testing.assert_array_equal(found.to_scipy().toarray(), X[:, samples])
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.norms, expected.norms)


@many(25)
@given(kinds, st.integers(5, 40), st.integers(30, 60), st.booleans(), st.sampled_from([None, 3]), st.booleans(), seeds)
def test_each_problem_equals_the_fit_of_its_own_samples(kind, m, n, sparse, k, intercept, seed) -> None:
    X, y = informative(m, n, seed, kind)
    folds = [train for train, _ in StratifiedKFold(3, shuffle=True, random_state=0).split(X.T, y)]
    grid = [choose_settings(m, n, k=k, tau=tau, C=C, max_cuts=8, intercept=intercept)
            for tau, C in itertools.product((0.25, 0.5), (1.0, 50.0))]  # fmt: skip
    problems = [Problem(y[fold], settings, fold) for settings in grid for fold in folds]
    with data_of(memory(X, sparse, 700)) as data:
        solve(problems, data)
        assert data.counts.passes == max(problem.n_reads for problem in problems)
    for problem in problems:
        samples = problem.fold.samples
        alone = Problem(y[samples], problem.settings)
        with data_of(memory(X[:, samples], sparse)) as data:
            solve([alone], data)
        assert problem.cuts == alone.cuts
        assert problem.stopped == alone.stopped
        np.testing.assert_array_equal(problem.lower_bounds, alone.lower_bounds)
        np.testing.assert_array_equal(problem.upper_bounds, alone.upper_bounds)
        np.testing.assert_array_equal(problem.master.duals, alone.master.duals)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_grid_reads_the_store_as_often_as_one_fit(tmp_path: Path, monkeypatch, form) -> None:
    """45 problems: the search and fits of the folds agree on each."""
    X, y = informative(300, 200, 2, "counts")
    store = ingest(form(X.T), tmp_path / "data.zarr", y, block_bytes=20_000)
    passes: list[str] = []
    run = Data.run
    monkeypatch.setattr(Data, "run", lambda self, pass_: passes.append(pass_.name) or run(self, pass_))
    machine = GroupDiscoveryMachine(4, scheduler="threads", groups=False)
    n_alone = machine.fit(store).counts_["passes"]
    passes.clear()
    grid = {"tau": [0.2, 0.3, 0.5], "C": [1.0, 10.0, 50.0], "folds": 5}
    best = tune(store, machine, grid, tmp_path / "tuning.json")
    assert len(passes) <= 1.5 * n_alone
    table = json.loads((tmp_path / "tuning.json").read_text())["table"]
    assert len(table) == 9
    row = next(row for row in table if (row["tau"], row["C"]) == (best["tau"], best["C"]))
    splitter = StratifiedKFold(5, shuffle=True, random_state=0)
    fits = [
        GroupDiscoveryMachine(4, **best, groups=False).fit(form(X.T)[train], y[train]).score(form(X.T)[test], y[test])
        for train, test in splitter.split(X.T, y)
    ]
    assert row["accuracy"] == pytest.approx(np.mean(fits), abs=1e-6)


def test_problems_that_do_not_fit_into_memory_at_once_take_turns(tmp_path: Path, monkeypatch) -> None:
    X, y = informative(60, 60, 0, "noise")
    store = ingest(X.T, tmp_path / "data.zarr", y)
    grid = {"tau": [0.25, 0.5], "C": [1.0, 50.0], "folds": 3}
    at_once: list[int] = []
    monkeypatch.setattr(inputs, "solve", lambda some, *rest: at_once.append(len(some)) or solve(some, *rest))
    expected = tune(store, GroupDiscoveryMachine(4), grid, tmp_path / "one.json")
    assert at_once == [12]
    monkeypatch.setattr("gdm_dask.cutting_plane.memory.DRIVER_VECTORS", 200_000)  # 100 MB for each problem
    limit = {"memory_limit": "1GB"}
    assert tune(store, GroupDiscoveryMachine(4, **limit), grid, tmp_path / "other.json") == expected
    assert at_once[1:] == [6, 6]
    assert (tmp_path / "other.json").read_text() == (tmp_path / "one.json").read_text()


def test_a_value_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    X, y = informative(20, 60, 0, "noise")
    store = ingest(X.T, tmp_path / "data.zarr", y)
    with pytest.raises(BadInput, match=r"`tau` must be in \[0, 1\), got 3"):
        tune(store, GroupDiscoveryMachine(4), {"tau": [0.25, 3]})
