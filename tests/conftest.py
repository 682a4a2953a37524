"""What several files of tests begin with: a small store, an undisturbed fit of it, and a cluster of real processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster, small_store, undisturbed

from gdm_dask import FeatureStore

#: Files that take long. They begin first, so that those who run tests side by side end at about the same time.
LONG = (
    "test_chaos.py", "test_memory_plan.py", "test_multihost.py", "test_interrupted.py", "test_engine.py",
    "test_faults.py", "test_checkpoint.py", "test_submit.py", "test_memory.py", "test_history.py", "test_deploy.py",
    "test_object_store.py", "test_security.py", "test_schedulers.py", "test_ingest_schedulers.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command line that ran in a test leaves no handler behind: it writes to what is captured, and closed later."""
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
    """The run directory of a fit with the SETTINGS of the tests' file that nothing happens to."""
    return undisturbed(store, request.module.SETTINGS, tmp_path_factory.mktemp("expected"))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("lasting") / "cluster")
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(lasting) -> Cluster:
    """Two workers, none of them struck yet."""
    lasting.refresh(2)
    return lasting
