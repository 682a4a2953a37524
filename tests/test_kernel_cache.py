"""Compiled kernels find a place also where neither the package nor a home can be written to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gdm_dask
from gdm_dask import kernel_cache

PACKAGE = Path(gdm_dask.__file__).parent
NOWHERE = "/dev/null"


@pytest.fixture
def sealed(tmp_path):
    """A copy of the package beside which nothing can be kept, not even by root: a file is where the folder would be."""
    copy = tmp_path / "place" / "gdm_dask"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(item for item in copy.rglob("*") if item.is_dir())]:
        (folder / "__pycache__").touch()
    return copy


@pytest.mark.parametrize("given", [{}, {"NUMBA_CACHE_DIR": f"{NOWHERE}/numba"}])
def test_a_service_without_a_home_can_compile(sealed, tmp_path, given):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")},
        "HOME": NOWHERE, "TMPDIR": str(temporary), "PYTHONPATH": str(sealed.parent), **given,
    }  # fmt: skip
    code = (
        "import numpy as np; from gdm_dask import kernels, simplex; "
        "print(kernels.__file__, simplex.fill_alpha(np.ones(2), 3.0, 1.0, np.ones(2), np.zeros(2)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(sealed) in done.stdout
    (folder,) = temporary.iterdir()
    assert folder.name == f"gdm_dask-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_another_user_may_have_filled_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache.tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / "ours"
    assert kernel_cache._private_folder(ours) == ours
    assert kernel_cache._private_folder(ours) == ours
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(ours)
    (tmp_path / "file").touch()
    for name in ("open", "link", "file"):
        found = kernel_cache._private_folder(tmp_path / name)
        assert found != tmp_path / name
        assert found.stat().st_mode & 0o077 == 0


def test_the_usual_places_are_left_to_numba(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    kernel_cache.ensure_kernel_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_who_waits_for_kernels_is_told_once_and_only_then(tmp_path):
    code = (
        "import logging, sys; logging.basicConfig(level='INFO', format='%(message)s', stream=sys.stdout); "
        "import numpy as np; from gdm_dask.simplex import fill_alpha; "
        "fill_alpha(np.ones(2), 3.0, 1.0, np.ones(2), np.zeros(2)); "
        "fill_alpha(np.ones(2, np.float32), 3.0, 1.0, np.ones(2), np.zeros(2))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["compiling kernels: up to half a minute, once on this machine for each kind of data\n", ""]
