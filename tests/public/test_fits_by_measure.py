"""Fits with every measure: uncorrelated supports, groups, the same bits everywhere, and files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reference
from helpers.instances import suited
from helpers.misaligned import MisalignedEngine

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, load_model, stability_selection
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.cli import options
from gdm_dask.cli.main import run
from gdm_dask.features.measures import MEASURES
from gdm_dask.pipeline.steps import Fit
from gdm_dask.report import make_report

FITTED = (
    "support_features_",
    "weights_",
    "coef_",
    "intercept_",
    "lower_bounds_",
    "upper_bounds_",
    "redundancy_rate_",
)


def test_all_measures_are_named_wherever_one_is_chosen() -> None:
    help_ = options.Measure.__metadata__[0].help
    page = (Path(__file__).parents[2] / "docs/fit.md").read_text()
    assert Fit.table.keys["measure"].choices == tuple(MEASURES)
    assert re.findall(r"\w+", help_.partition(":")[2].replace(" or ", " ")) == list(MEASURES)
    assert re.findall(r"^\| `\"(\w+)\"`", page.partition("## Correlation measures")[2].partition("\n## ")[0], re.M) == [
        *MEASURES
    ]
    assert f"measure : {{{', '.join(json.dumps(name) for name in MEASURES)}}}" in GroupDiscoveryMachine.__doc__


def signals(measure: str, n: int = 400, sparse: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Features (samples x features) in four groups: copies, and nonlinear copies."""
    rng = np.random.default_rng(4)
    sources = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < (0.6 if sparse else 1.0))
    y = np.where(sources @ [2.0, -1.5, 1.0, 0.7] + 0.4 * rng.normal(size=n) > 0, 1, -1)
    bent = [sources, np.sinh(2 * sources), sources**3, -sources + 0.2 * rng.normal(size=(n, 4)) * (sources != 0)]
    noise = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.3)
    return suited(np.hstack([*bent, noise]), measure), y


def bits(machine: GroupDiscoveryMachine) -> dict[str, bytes]:
    found = {name: np.asarray(getattr(machine, name)).tobytes() for name in FITTED}
    return found | {"rho": machine.affiliations_.correlation.to_numpy().tobytes()}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("k", [3, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_supports_are_kept_apart_and_groups_are_whole(measure, k, weighted) -> None:
    X, y = signals(measure)
    times = np.random.default_rng(0).integers(0, 3, len(y)) if weighted else np.ones(len(y), int)
    machine = GroupDiscoveryMachine(k, measure=measure, certify=k is not None)
    machine.fit(sp.csr_array(X), y, sample_weight=times if weighted else None)
    rows, supports = np.repeat(X, times, axis=0).T, machine.support_features_.tolist()
    assert not reference.correlated(rows, 0.25, measure)[np.ix_(supports, supports)].any()
    found = {support: members.tolist() for support, members in machine.groups_.items()}
    assert found == reference.groups(rows, supports, 0.25, measure)
    values = reference.measured(rows, measure)
    np.testing.assert_allclose(machine.profile_.correlations, values[np.ix_(supports, supports)], atol=1e-6)
    table = machine.affiliations_
    np.testing.assert_allclose(table.correlation, values[table.support, table.feature], atol=1e-9)
    assert machine.redundancy_rate_ == pytest.approx(reference.redundancy_rate(rows[supports]))
    assert k is None or 0 < machine.certified_share_ <= 1


def test_ranks_put_monotone_copies_into_one_group() -> None:
    X, y = signals("spearman")
    groups = {m: GroupDiscoveryMachine(4, measure=m).fit(X, y).groups_ for m in ("pearson", "spearman")}
    assert all(
        {support % 4 + 4 * copy for copy in range(4)} == {*members} for support, members in groups["spearman"].items()
    )
    assert not all(len(members) == 4 for members in groups["pearson"].values())


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("sparse", [False, True])
def test_bits_are_the_same_for_all_blocks_and_schedulers(tmp_path, measure, sparse) -> None:
    X, y = signals(measure, sparse=sparse)
    matrix = sp.csr_array(X) if sparse else X
    expected = bits(GroupDiscoveryMachine(3, measure=measure, scheduler="synchronous").fit(matrix, y))
    store = ingest(matrix, tmp_path / "x.zarr", y, block_bytes=4096)
    assert len(store.manifest.blocks) > 3
    for scheduler in ("synchronous", "threads"):
        assert bits(GroupDiscoveryMachine(3, measure=measure, scheduler=scheduler).fit(store)) == expected


@pytest.mark.parametrize("measure", MEASURES)
def test_searches_travel_to_other_processes(monkeypatch, measure) -> None:
    X, y = signals(measure)
    expected = bits(GroupDiscoveryMachine(3, measure=measure).fit(sp.csr_array(X), y))
    monkeypatch.setattr("gdm_dask.inputs.open_engine", lambda *_: MisalignedEngine())
    assert bits(GroupDiscoveryMachine(3, measure=measure).fit(sp.csr_array(X), y)) == expected


@pytest.mark.parametrize("measure", MEASURES)
def test_regression_stability_and_tuning_use_the_measure(tmp_path, measure) -> None:
    X, _ = signals(measure)
    y = X[:, 0] - X[:, 1] + 0.1 * np.random.default_rng(0).normal(size=len(X))
    machine = GroupDiscoveryRegressor(2, measure=measure).fit(X, y)
    supports = machine.support_features_.tolist()
    groups = {support: members.tolist() for support, members in machine.groups_.items()}
    assert groups == reference.groups(X.T, supports, 0.25, measure)
    assert stability_selection(machine, X, y, n_repeats=3).group_frequency[0] > 0.5
    store = ingest(X, tmp_path / "x.zarr", y)
    assert tune(store, machine, {"tau": [0.25, 0.5], "folds": 2})["tau"] in (0.25, 0.5)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_command_line_the_model_and_the_report_name_the_measure(tmp_path, measure, monkeypatch) -> None:
    X, y = signals(measure)
    ingest(X, tmp_path / "x.zarr", y)
    monkeypatch.setattr(
        "sys.argv", ["gdm", "fit", f"{tmp_path}/x.zarr", "--run", f"{tmp_path}/run", "-k", "3", "--measure", measure]
    )
    with pytest.raises(SystemExit) as end:
        run()
    assert not end.value.code
    assert json.loads((tmp_path / "run" / "model.json").read_bytes())["parameters"]["measure"] == measure
    model = load_model(tmp_path / "run")
    assert model.measure == measure
    assert bits(model) == bits(GroupDiscoveryMachine(3, measure=measure).fit(X, y))
    for form in ("html", "md", "json"):
        assert MEASURES[measure].title in make_report(model, tmp_path / f"report.{form}")
