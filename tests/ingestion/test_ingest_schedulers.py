"""The store is the same, to the bit, on every scheduler and for every memory limit."""

from types import SimpleNamespace

import distributed
import numpy as np
import pytest
from helpers.store_helpers import chunks_below, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.ingestion import driver, plan, run_ingest
from gdm_dask.system.resources import n_cores

MATRIX = some_matrix(300, 200)
LABELS = some_labels(300)
OPTIONS = {"block_bytes": 8000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the sources, and the chunks of their simplest ingest."""
    folder = tmp_path_factory.mktemp("sources")
    write_svmlight(folder / "x.svm", MATRIX, LABELS)
    np.save(folder / "x.npy", MATRIX.toarray())
    np.save(folder / "y.npy", LABELS)
    for kind, y in (("svm", None), ("npy", folder / "y.npy")):
        gdm_dask.ingest(folder / f"x.{kind}", folder / f"{kind}.zarr", y, scheduler="synchronous", **OPTIONS)
    return folder


@pytest.fixture
def client(cluster):
    """The address of a scheduler with two worker processes."""
    with distributed.Client(cluster.address, set_as_default=False) as client:
        yield client


def assert_same(folder, tmp_path, kind, **options):
    y = None if kind == "svm" else folder / "y.npy"
    done = run_ingest(folder / f"x.{kind}", tmp_path / "s", y, **OPTIONS, **options)
    assert chunks_below(tmp_path / "s") == chunks_below(folder / f"{kind}.zarr")
    assert done.store.fingerprint == gdm_dask.open_store(folder / f"{kind}.zarr").fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    return done


@pytest.mark.parametrize("kind", ["svm", "npy"])
@pytest.mark.parametrize(("scheduler", "n_workers"), [("threads", 1), ("threads", 2), ("threads", 5), ("processes", 2)])
def test_local_schedulers(folder, tmp_path, kind, scheduler, n_workers):
    done = assert_same(folder, tmp_path, kind, scheduler=scheduler, n_workers=n_workers, run_bytes=5000)
    assert done.runs_written > 5
    assert done.blocks_written > 5


@pytest.mark.parametrize("kind", ["svm", "npy"])
def test_distributed(folder, tmp_path, kind, client):
    done = assert_same(folder, tmp_path, kind, scheduler=client, run_bytes=5000)
    assert done.runs_written > 5


def test_objects_on_a_cluster(folder, tmp_path, client):
    gdm_dask.ingest(MATRIX, tmp_path / "s", LABELS, scheduler=client, run_bytes=5000, **OPTIONS)
    assert chunks_below(tmp_path / "s") == chunks_below(folder / "svm.zarr")


@pytest.mark.parametrize("memory_limit", ["450MB", "1GB", "100GB"])
def test_memory_limits(folder, tmp_path, memory_limit):
    assert_same(folder, tmp_path, "svm", memory_limit=memory_limit)


def test_one_thread_more_than_cores_where_the_memory_suffices():
    source = SimpleNamespace(nbytes=10**9, least_run_bytes=100 << 20)
    enough = [plan.BASE_BYTES + n * plan.PARSE_FACTOR * source.least_run_bytes for n in (n_cores(), n_cores() + 1)]
    assert [driver._n_workers("threads", limit, source) for limit in enough] == [None, n_cores() + 1]
    assert driver._n_workers("processes", enough[1], source) is None
