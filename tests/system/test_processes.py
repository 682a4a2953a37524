"""Worker processes: what they have imported, and what they see of their parent."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from gdm_dask.engine.local import LocalEngine
from gdm_dask.system.processes import start_pool


@pytest.fixture
def slow_submit(monkeypatch) -> None:
    """Each task ends before the next one is submitted, as on a busy machine."""
    submit = ProcessPoolExecutor.submit

    def submit_and_wait(pool: ProcessPoolExecutor, *call: Any) -> Future[Any]:
        future = submit(pool, *call)
        future.result()
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit_and_wait)


def test_all_processes_start_while_the_main_module_is_hidden(slow_submit) -> None:
    pool = start_pool(3, [])
    try:
        assert len(pool._processes) == 3
    finally:
        pool.shutdown()


def variable(name: str) -> str | None:
    return os.environ.get(name)


IMPORTED = """
import sys
import s3fs  # as for an open store
from gdm_dask.engine.local import LocalEngine
def modules(_):
    return set(sys.modules)
with LocalEngine("processes", 1) as engine:
    assert {"gdm_dask.engine.data", "gdm_dask.features.ranking", "s3fs"} <= engine.map(modules, [0])[0]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks processes from a server")
def test_processes_have_imported_what_passes_need() -> None:
    """In a program of its own: this one may have started a server for other tests."""
    subprocess.run([sys.executable, "-c", IMPORTED], check=True, timeout=60)


def test_processes_see_variables_set_after_the_first_pool(monkeypatch) -> None:
    with LocalEngine("processes", 1) as engine:
        assert engine.map(variable, ["GDM_TEST_KEY"]) == [None]
    monkeypatch.setenv("GDM_TEST_KEY", "secret")
    with LocalEngine("processes", 1) as engine:
        assert engine.map(variable, ["GDM_TEST_KEY"]) == ["secret"]
    monkeypatch.delenv("GDM_TEST_KEY")
    with LocalEngine("processes", 1) as engine:
        assert engine.map(variable, ["GDM_TEST_KEY"]) == [None]
