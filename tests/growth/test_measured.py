"""Measured rates, and forecasts against fits: everything except the seconds is equal."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.store_helpers import gdm

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, open_store
from gdm_dask.cutting_plane import problem
from gdm_dask.growth import forecast, size
from gdm_dask.growth.forecast import Cluster
from gdm_dask.growth.rates import measure, some_samples
from gdm_dask.ingestion.sources.lookalikes import scaled_lookalike
from gdm_dask.ingestion.sources.lookalikes.files import synthesise
from gdm_dask.settings.settings import choose_settings

SCALE = 0.002


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("growth") / "kdd2010.zarr"
    synthesise("kdd2010", path, SCALE)
    return open_store(path)


@pytest.fixture
def small(monkeypatch):
    """Small lookalikes."""
    monkeypatch.setattr(size, "SMALL_NONZEROS", 400_000)
    monkeypatch.setattr(size, "LEAST_SAMPLES", 2_000)


def test_a_forecast_counts_as_the_fit_does(store):
    memory = 2 * 10**9
    found = forecast.plan_store(store, 30, Cluster(0, 2, memory), start=0.0)
    counts = GroupDiscoveryMachine(30, memory_limit=memory, n_workers=2).fit(store).counts_
    assert found.reads == counts["passes"]
    assert found.reads * found.tasks == counts["tasks"]
    assert found.decoded_bytes == counts["bytes_read"] == found.reads * store.nbytes
    assert set(found.seconds) == {"start", "scores", "matching", "master", "polish", "groups", "refit"}
    assert all(seconds >= 0 for seconds in found.seconds.values())
    assert 0 < found.total_seconds <= found.processor_seconds < 60


@pytest.mark.parametrize("kind", ["two classes", "classes", "numbers"])
def test_folds_of_any_target_are_counted(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = sp.random_array((240, 1500), density=0.2, rng=rng, format="csr")
    code = np.argmax(X[:, :3].toarray() + 0.1 * rng.random((240, 3)), axis=1)
    y = {"two classes": code > 0, "classes": code, "numbers": X[:, :2].sum(axis=1) + rng.random(240)}[kind]
    store = ingest(X, tmp_path / "x.zarr", y=y, scheduler="synchronous")
    found = forecast.plan_store(store, 10, Cluster(0, 2, 2 * 10**9), start=0.0)
    machine = GroupDiscoveryRegressor if kind == "numbers" else GroupDiscoveryMachine
    fitted = machine(10, memory_limit=2 * 10**9, n_workers=2).fit(store)
    assert found.problems == len(fitted.C_path_["candidates"]) * (1 + fitted.C_path_["n_folds"]) > 1
    assert found.reads == fitted.counts_["passes"]
    assert found.reads * found.tasks == fitted.counts_["tasks"]
    assert found.seconds["folds"] > 0


def test_a_lookalike_has_the_size_of_the_store_that_would_be_made(store, small):
    with size.small_lookalike("kdd2010", SCALE) as (sample, wanted):
        assert sample.nnz < store.nnz / 2
    made = size.size_of(store)
    assert (wanted.n_features, wanted.n_samples) == store.shape
    assert wanted.nnz == pytest.approx(made.nnz, rel=0.02)
    assert wanted.decoded_bytes == pytest.approx(made.decoded_bytes, rel=0.02)
    assert wanted.stored_bytes == pytest.approx(made.stored_bytes, rel=0.2)


@pytest.mark.parametrize("name", ["webspam", "kdd2010"])
def test_a_thinned_lookalike_has_features_of_the_same_length(name):
    whole = scaled_lookalike(name, 10)
    small = size.thinned(whole)
    assert small.n_samples * small.row_length <= 1.01 * size.SMALL_NONZEROS
    per_feature = [one.n_samples * one.row_length / one.n_features for one in (whole, small)]
    assert per_feature[1] == pytest.approx(per_feature[0], rel=0.01)


def test_the_drivers_work_grows_with_the_samples_beyond_those_measured(store):
    n_samples = store.shape[1]
    settings = choose_settings(*store.shape, k=20)
    same, more = (measure(store, settings, 20, samples) for samples in (n_samples, 100 * n_samples))
    assert not any(same.per_sample.values())
    assert sum(more.driver(100 * n_samples).values()) > 2 * sum(more.driver(n_samples).values())


def test_some_samples_keep_the_classes():
    labels = np.where(np.arange(1000) < 100, 1.0, -1.0)
    chosen = some_samples(labels, 50)
    assert len(np.unique(chosen)) == 50
    assert abs(int((labels[chosen] > 0).sum()) - 5) <= 1


def test_command_for_a_store_and_for_a_lookalike(store, small, capsys):
    code, out, _ = gdm(capsys, "plan", store.url, "-k", "20", "--memory", "2GB")
    assert code == 0
    for word in ("reads", "memory", "seconds", "bottleneck", "features"):
        assert word in out
    where = ("--workers", "8", "--memory", "4GB", "--bandwidth", "1GB/s")
    code, out, err = gdm(capsys, "plan", "--like", "kdd2010", "--scale", "1", "-k", "20", *where, "--json")
    assert code == 0
    assert not {"scratch", "partition", "merge"} & {word.strip(":") for word in err.split()}  # lines of an ingest
    found = json.loads(out)
    assert found["data"]["n_samples"] == 19_264_097
    assert found["cluster"]["bandwidth"] == 10**9
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))


@pytest.mark.parametrize("arguments", [(), ("x.zarr", "--like", "webspam")])
def test_command_wants_a_store_or_a_lookalike(arguments, capsys):
    code, _, err = gdm(capsys, "plan", *arguments)
    assert code == 2
    assert "either a store or --like" in err


def test_reads_of_small_working_sets(store, monkeypatch):
    settings = choose_settings(*store.shape, counts=size.size_of(store).class_counts, k=100, C="auto")
    rates = measure(store, settings, 100, store.shape[1])
    most = 30_000  # values: the rows of 2,048 features have several times as many
    monkeypatch.setattr(problem, "WORKING_VALUES", most)
    monkeypatch.setattr(forecast, "WORKING_VALUES", most)
    reads, _ = forecast.working_rows(rates.densities * store.shape[1], settings, rates.examined, store.shape[0])
    counts = GroupDiscoveryMachine(100, groups=False, memory_limit=2 * 10**9, n_workers=2).fit(store).counts_
    assert counts["passes"] > 2
    assert abs(reads - counts["passes"]) <= 2
