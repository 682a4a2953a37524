"""Stability: groups are identified by their members, indices match the literature, stores equal matrices."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.instances import many
from helpers.report_cases import fitted, grouped
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from gdm_dask import GroupDiscoveryMachine, ingest, stability_selection
from gdm_dask.analysis import stability
from gdm_dask.analysis.stability import Stability, kuncheva_index, same_groups, summarise_stability
from gdm_dask.analysis.subsamples import draw_samples
from gdm_dask.engine.data import Data
from gdm_dask.errors import BadInput

member_lists = st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=6), min_size=1, max_size=5)


@many(100)
@given(member_lists, member_lists, st.sampled_from([0.01, 0.3, 0.5, 1.0]))
def test_same_groups_equals_sets(some: list[set[int]], others: list[set[int]], overlap: float) -> None:
    found = same_groups([np.array(sorted(g)) for g in some], [np.array(sorted(g)) for g in others], overlap)
    truth = [[bool(a & b) and len(a & b) >= overlap * min(len(a), len(b)) - 1e-9 for b in others] for a in some]
    assert found.tolist() == truth


@many(50)
@given(st.integers(1, 20), st.integers(0, 20), st.integers(21, 1000))
def test_kuncheva_is_the_published_formula(k: int, common: int, m: int) -> None:
    common = min(common, k)
    assert kuncheva_index(common, k, k, m) == pytest.approx((common * m - k * k) / (k * (m - k)))


def test_a_group_is_found_again_whoever_its_support_is() -> None:
    machine = fitted()
    supports = list(machine.groups_)
    swapped = {int(group[-1]): group for group in machine.groups_.values()}
    found = summarise_stability(machine, [swapped, dict(machine.groups_)], 0.5, 0.5)
    assert found.group_frequency == [1.0] * len(supports)
    assert found.group_jaccard == found.group_kuncheva == 1.0
    assert found.support_jaccard < 1.0
    assert found.others == []


def test_strangers_are_counted_once_for_each_fit() -> None:
    machine = fitted()
    found = summarise_stability(
        machine, [{30: np.array([30, 31])}, {31: np.array([31, 30])}, {33: np.array([33])}], 0.5, 0.5
    )
    assert found.group_frequency == [0.0] * len(machine.groups_)
    assert [(entry["name"], entry["frequency"]) for entry in found.others] == [("30", 2 / 3), ("33", 1 / 3)]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_store_gives_what_its_matrix_gives(sparse: bool, tmp_path: Path) -> None:
    X, y = grouped()
    X = np.where(np.abs(X) > 0.5, X.round(1), 0)
    matrix = sp.csr_array(X) if sparse else X
    store = ingest(matrix, tmp_path / "data.zarr", y, block_bytes="4kB")
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(store)
    found = stability_selection(machine, store, n_repeats=3)
    labels = np.where(y == "yes", 1, -1)
    again = GroupDiscoveryMachine(5, scheduler="synchronous").fit(matrix, labels)
    assert found == stability_selection(again, matrix, labels, n_repeats=3)
    assert found.is_about(machine)
    assert found.n_repeats == 3


def test_labels_that_are_given_take_the_place_of_the_stores(tmp_path: Path) -> None:
    X, y = grouped()
    store = ingest(X, tmp_path / "data.zarr", np.roll(y, 17))
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(store, y)
    found = stability_selection(machine, store, y, n_repeats=3)
    assert found == stability_selection(machine, X, y, n_repeats=3)
    assert found != stability_selection(machine, store, n_repeats=3)


@pytest.mark.parametrize(
    "form", [np.ndarray.tolist, sp.coo_array, pd.DataFrame, da.from_array, partial(dd.from_array, chunksize=100)]
)
def test_every_form_that_can_be_fitted(form) -> None:
    X, y = grouped()
    found = stability_selection(fitted(), form(X), y.tolist(), n_repeats=2)
    np.testing.assert_allclose(found.group_frequency, stability_selection(fitted(), X, y, n_repeats=2).group_frequency)


@pytest.mark.parametrize("form", ["matrix", "store"])
def test_other_numbers_of_labels_are_refused(form: str, tmp_path: Path) -> None:
    X, y = grouped()
    data = ingest(X, tmp_path / "data.zarr", y) if form == "store" else X
    with pytest.raises(BadInput, match="y: 159 labels for 160 samples"):
        stability_selection(fitted(), data, y[:-1])


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers_agree(scheduler: str, tmp_path: Path) -> None:
    store = ingest(grouped()[0], tmp_path / "data.zarr", grouped()[1], block_bytes="16kB")
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(store)
    expected = stability_selection(machine, store, n_repeats=2)
    assert stability_selection(machine.set_params(scheduler=scheduler), store, n_repeats=2) == expected


@pytest.mark.parametrize("form", ["dense", "sparse", "store"])
@pytest.mark.parametrize("k", [None, 4])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_each_fit_is_the_fit_of_its_subsample(monkeypatch, tmp_path: Path, form: str, k, class_weight) -> None:
    X, y = grouped()
    X = np.where(np.abs(X) > 0.5, X.round(1), 0) if form == "sparse" else X
    data = ingest(X, tmp_path / "data.zarr", y, block_bytes="4kB") if form == "store" else X
    data = sp.csr_array(X) if form == "sparse" else data
    machine = GroupDiscoveryMachine(k, C=50.0, max_cuts=3 if k is None else None, class_weight=class_weight).fit(
        data, y
    )
    found: list[dict[int, np.ndarray]] = []
    monkeypatch.setattr(stability, "summarise_stability", lambda model, groups, *rest: found.extend(groups))
    stability_selection(machine, data, y, n_repeats=3, fraction=0.6, seed=5)
    for repeat, groups in enumerate(found):
        samples = draw_samples(np.where(y == "yes", 1, -1), 0.6, 5 + repeat)
        expected = clone(machine).fit(sp.csr_array(X)[samples] if form == "sparse" else X[samples], y[samples])
        assert list(groups) == expected.support_features_.tolist()
        for support, members in expected.groups_.items():
            np.testing.assert_array_equal(groups[support], members)


def test_all_fits_share_every_read(monkeypatch, tmp_path: Path) -> None:
    store = ingest(grouped()[0], tmp_path / "data.zarr", grouped()[1], block_bytes="4kB")
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(store)
    passes: list[str] = []
    run = Data.run
    monkeypatch.setattr(Data, "run", lambda self, pass_: passes.append(pass_.name) or run(self, pass_))
    expected = stability_selection(machine, store, n_repeats=8)
    assert len(passes) <= machine.counts_["passes"] + 1
    assert passes.count("groups") == 1
    monkeypatch.setattr("gdm_dask.cutting_plane.memory.DRIVER_VECTORS", 100_000)  # 128 MB for each problem
    assert stability_selection(machine.set_params(memory_limit="1GB"), store, n_repeats=8) == expected
    assert passes.count("groups") == 3  # they took two turns


def test_result_comes_back_from_its_file(tmp_path: Path) -> None:
    X, y = grouped()
    found = stability_selection(fitted(), X, y, n_repeats=2)
    found.save(tmp_path / "stability.json")
    assert Stability.load(tmp_path / "stability.json") == found
    (tmp_path / "stability.json").write_text("{}")
    with pytest.raises(BadInput, match="damaged"):
        Stability.load(tmp_path / "stability.json")


def test_progress_is_told() -> None:
    told = []
    stability_selection(fitted(), *grouped(), n_repeats=2, callback=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("wrong", [{"n_repeats": 1}, {"fraction": 1.0}, {"fraction": 0}, {"overlap": 0}])
def test_bad_values_are_refused(wrong: dict) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        stability_selection(fitted(), *grouped(), **wrong)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((160, 3)), grouped()[1], "X has 3 features, but the machine was fitted on 40"),
        (grouped()[0], np.arange(160) % 3, "y must hold labels of two classes"),
        (grouped()[0], None, "y must be passed"),
    ],
)
def test_data_of_another_kind_is_refused(X: np.ndarray, y, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        stability_selection(fitted(), X, y)


def test_machine_without_groups_is_refused() -> None:
    with pytest.raises(BadInput, match="groups=True"):
        stability_selection(fitted(groups=False), *grouped())
