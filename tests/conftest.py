"""Shared fixtures: a small store, an undisturbed fit of it, and a cluster of real processes."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import bytecode  # noqa: F401 (imported to keep bytecode)
from helpers.clusters import Cluster, small_store, undisturbed
from hypothesis import settings

from gdm_dask import FeatureStore

#: Slow files. They start first, so that parallel test workers end at about the same time.
LONG = (
    "test_chaos.py", "test_memory_plan.py", "test_multihost.py", "test_submit.py", "test_faults.py", "test_engine.py",
    "test_deploy.py", "test_object_store.py", "test_pages.py", "test_interrupted.py", "test_history.py",
    "test_elastic.py", "test_constraints.py", "test_schedulers.py", "test_jit.py", "test_same_bits.py",
    "test_signals.py", "test_security.py", "test_folds.py", "test_memory.py", "test_pipeline.py", "test_checkpoint.py",
    "test_cutting_plane.py", "test_certificate.py", "test_selection.py", "test_live.py", "test_ingest_schedulers.py",
)  # fmt: skip

# The same cases in every run, and no case too slow for a busy machine.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

#: Fixtures that start a cluster: tests that use one are marked.
CLUSTERS = {"cluster", "lasting", "fresh", "tls_cluster"}


#: A file system in memory, and the free bytes that it must have: far more than parallel tests take.
MEMORY, ENOUGH = Path("/dev/shm"), 6 << 30


def pytest_configure() -> None:
    """Put temporary files into memory if there is enough: the tests would mostly wait for a slow disk."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not CLUSTERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Remove the log handlers that a command line left: they write to a captured stream, which is closed later."""
    yield
    package = logging.getLogger("gdm_dask")
    package.handlers.clear()
    package.setLevel(logging.NOTSET)
    package.propagate = True


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> FeatureStore:
    return small_store(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def expected(request, store, tmp_path_factory) -> Path:
    """The run directory of an undisturbed fit with the SETTINGS of the test module."""
    return undisturbed(store, request.module.SETTINGS, tmp_path_factory.mktemp("expected"))


@pytest.fixture(scope="module")
def read_for_each_cut() -> Iterator[None]:
    """One read per cut, here and on workers that run `fault_preload`, so that faults can strike in any cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gdm_dask.settings.settings.CUTS_PER_READ", 1)
        yield


@pytest.fixture(scope="module")
def lasting(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("lasting") / "cluster")
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(lasting) -> Cluster:
    """Two healthy workers."""
    lasting.refresh(2)
    return lasting


@pytest.fixture
def fresh(tmp_path) -> Iterator[Cluster]:
    """A separate scheduler without workers."""
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.end()
