"""Sample weights at ingest: columns, files, and their use by everything that fits a store."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.store_helpers import gdm

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, open_store
from gdm_dask.analysis.cross_validation import tune
from gdm_dask.analysis.stability import stability_selection
from gdm_dask.errors import BadInput

N = 80


@pytest.fixture
def table() -> pd.DataFrame:
    """A label that `true` explains; samples of weight 0 make `decoy` look better, and `true` worse."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    is_bad = np.arange(N) >= N // 2
    frame = pd.DataFrame(rng.normal(size=(N, 4)), columns=["a", "true", "decoy", "b"])
    frame["true"] += np.where(is_bad, 0.0, 2.0 * y)
    frame["decoy"] += np.where(is_bad, 9.0 * y, 0.0)
    return frame.assign(weight=np.where(is_bad, 0.0, 1.0 + np.arange(N) % 3), bought=np.array(["no", "yes"])[y])


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_column_of_a_data_frame_weighs_the_samples(tmp_path, table, partitions):
    source = dd.from_pandas(table, npartitions=partitions) if partitions else table
    store = ingest(source, tmp_path / "s.zarr", "bought", sample_weight="weight")
    X, y = table[["a", "true", "decoy", "b"]], table["bought"]
    assert store.feature_names == [*X.columns]
    assert store.sample_weight.tolist() == table["weight"].tolist()
    machine = GroupDiscoveryMachine(1, scheduler="synchronous").fit(store)
    given = GroupDiscoveryMachine(1, scheduler="synchronous").fit(X, y, sample_weight=table["weight"])
    assert machine.support_features_.tolist() == given.support_features_.tolist() == [1]
    assert machine.coef_.tolist() == given.coef_.tolist()
    replaced = GroupDiscoveryMachine(1, scheduler="synchronous").fit(store, sample_weight=np.ones(N))
    assert replaced.support_features_.tolist() == [2]
    open_store(store.url).verify()


def test_tuning_and_stability_use_the_weights_of_the_store(tmp_path, table):
    store = ingest(table, tmp_path / "s.zarr", "bought", sample_weight="weight")
    machine = GroupDiscoveryMachine(1, scheduler="synchronous", C=1.0).fit(store)
    assert stability_selection(machine, store, n_repeats=4).support_frequency == [1.0]
    unweighted = ingest(table.drop(columns="weight"), tmp_path / "u.zarr", "bought")
    tables = []
    for one in (store, unweighted):
        tune(one, machine, {"tau": [0.25], "folds": 2}, tmp_path / "tuning.json")
        tables.append((tmp_path / "tuning.json").read_text())
    assert tables[0] != tables[1]


def test_numbers_take_weights_from_the_store(tmp_path, table):
    y = table["true"] + np.where(table["weight"] == 0, 50.0 * table["decoy"], 0.0)
    frame = table.drop(columns="bought").assign(y=y)
    store = ingest(frame, tmp_path / "s.zarr", "y", sample_weight="weight")
    regressor = GroupDiscoveryRegressor(1, scheduler="synchronous").fit(store)
    assert regressor.support_features_.tolist() == [1]
    assert stability_selection(regressor, store, n_repeats=4).support_frequency == [1.0]


def test_command_line(tmp_path, table, capsys):
    X, y, w = table[["a", "true", "decoy", "b"]].to_numpy(), table["bought"], table["weight"]
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(X))
    table[["weight", "bought"]].to_csv(tmp_path / "y.csv", index=False)
    y.to_csv(tmp_path / "labels.txt", index=False, header=False)
    np.save(tmp_path / "w.npy", w)
    given = {"column": ("y.csv", "weight"), "file": ("labels.txt", str(tmp_path / "w.npy"))}
    stores = []
    for name, (target, weights) in given.items():
        path = tmp_path / f"{name}.zarr"
        gdm(capsys, "ingest", tmp_path / "x.npz", path, "--target", tmp_path / target, "--sample-weight", weights)
        stores.append(open_store(path))
    assert stores[0].fingerprint == stores[1].fingerprint
    assert stores[0].sample_weight.tolist() == w.tolist()
    assert "with sample weights" in str(gdm(capsys, "info", tmp_path / "file.zarr"))


def test_documents_have_a_weight(tmp_path, capsys):
    lines = [f'{{"text": "word{n % 2} word{n % 3}", "label": "{n % 3}", "weight": {n}}}' for n in range(9)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    gdm(capsys, "ingest", "--text", tmp_path / "docs.jsonl", tmp_path / "d.zarr", "--sample-weight", "weight")
    assert open_store(tmp_path / "d.zarr").sample_weight.tolist() == [*range(9)]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * (N - 1), rf"`sample_weight` must have shape \({N},\)"),
        ([-1.0] * N, "`sample_weight` must be finite and >= 0, got -1.0 for sample 0"),
        ([np.nan] * N, "`sample_weight` must be finite and >= 0, got nan"),
        ([0.0] * N, "`sample_weight` must be positive for at least one sample, got zeros only"),
        (["heavy"] * N, "`sample_weight` must hold numbers"),
        ("missing", "missing: "),
    ],
)
def test_bad_weights_are_refused(tmp_path, table, weights, message):
    with pytest.raises(BadInput, match=message):
        ingest(table[["a", "b"]], tmp_path / "s.zarr", table["bought"], sample_weight=weights)
    assert not (tmp_path / "s.zarr").exists()
