"""Compiled kernels are cached even if neither the package nor the home folder is writable."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import gdm_dask
from gdm_dask.system import jit

PACKAGE = Path(gdm_dask.__file__).parent
NOWHERE = "/dev/null"


@pytest.fixture
def sealed(tmp_path):
    """A copy of the package that cannot cache kernels, not even as root: a file blocks the folder."""
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
        "import numpy as np; from gdm_dask.features import scores; from gdm_dask.master import losses; "
        "print(scores.__file__, losses.fill_hinge(np.ones(2), np.ones(2), 0.0, None, 1.0, 1.0, np.zeros(2)))"
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
    monkeypatch.setattr(jit, "_usual_places", list)
    monkeypatch.setattr(jit.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", NOWHERE)
    ours = tmp_path / f"gdm_dask-{os.getuid()}"
    for _ in range(2):
        jit.ensure_kernel_cache()
        assert numba.config.CACHE_DIR == os.environ["NUMBA_CACHE_DIR"] == str(ours / "kernels")
    shutil.rmtree(ours)
    for hostile in (lambda: ours.mkdir() or ours.chmod(0o777), lambda: ours.symlink_to(tmp_path), ours.touch):
        hostile()
        jit.ensure_kernel_cache()
        found = Path(os.environ["NUMBA_CACHE_DIR"])
        assert ours not in (found, *found.parents)
        assert found.stat().st_mode & 0o077 == 0
        shutil.rmtree(ours) if ours.is_dir() and not ours.is_symlink() else ours.unlink()


def test_the_usual_places_are_left_to_numba(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    jit.ensure_kernel_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_who_waits_for_kernels_is_told_once_and_only_then(tmp_path):
    code = (
        "import logging, sys; logging.basicConfig(level='INFO', format='%(message)s', stream=sys.stdout); "
        "import numpy as np; from gdm_dask.master.losses import fill_hinge; "
        "fill_hinge(np.ones(2), np.ones(2), 0.0, None, 1.0, 1.0, np.zeros(2)); "
        "fill_hinge(np.ones(2, np.float32), np.ones(2), 0.0, None, 1.0, 1.0, np.zeros(2))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["compiling kernels: up to ten seconds, once on this machine for each kind of data\n", ""]


#: End of a program: prints the kernels that it used, compiled or cached, and their argument types.
TELL = """
from numba.core.dispatcher import Dispatcher
modules = [module for name, module in sys.modules.items() if name.startswith("gdm_dask.")]
kernels = {kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)}
for kernel in kernels:
    for signature in kernel.signatures:
        print(kernel.py_func.__module__, kernel.__name__, signature)
"""
WARM = f"""
import sys
from gdm_dask.cli import warm_commands
from gdm_dask.cli.main import _run
warm_commands.SIZES = [size for size in warm_commands.SIZES if size[0] < 1000]  # more samples take seconds
sys.argv[1:] = ["--quiet", "warm", "decimals"]
try:
    _run()
except SystemExit as ended:
    assert not ended.code
{TELL}
"""
FIT = f"""
import sys
import numpy as np
from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor
from gdm_dask.ingestion import run_ingest
done = run_ingest(sys.argv[1], sys.argv[2])
seconds = GroupDiscoveryMachine(3).fit(done.store).timings_
total = seconds.pop("total")
assert sum(seconds.values()) <= total
print(done.compiling, seconds["compiling"], seconds["scores"] + seconds["matching"] + seconds["master"])
numbers = np.arange(done.store.shape[1])
for weights in (None, 1.0 + numbers % 3):
    GroupDiscoveryMachine(3, measure="spearman").fit(done.store, sample_weight=weights)
    GroupDiscoveryMachine(3, measure="cosine").fit(done.store, numbers % 4, weights)
    GroupDiscoveryRegressor(3).fit(done.store, numbers**2.0, weights)
{TELL}
"""
#: Kernels of the ingest and of the fit that take a moment to compile.
FORGOTTEN = ("moments._sum_sparse", "correlation.add_products", "sparse_kernels._gram_span")


def told(program: str, *arguments: Path, package: Path = PACKAGE) -> list[str]:
    """Return the output of a new process that caches its kernels beside a package."""
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True,
        cwd=package.parent, env=environment | {"PYTHONPATH": str(package.parent)},
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.slow
def test_after_a_warm_up_a_new_process_compiles_nothing(tmp_path):
    """Checked by the kernels that it loads: other tests may have left theirs."""
    rng = np.random.default_rng(1)
    with (tmp_path / "text.svm").open("w") as file:
        for sample in range(300):
            features = np.unique(rng.integers(1, 150, 20) + sample % 2)
            file.write(f"{sample % 2} " + " ".join(f"{j}:{1 - rng.random():.6f}" for j in features) + "\n")
    ready = told(WARM)
    seconds, *taken = told(FIT, tmp_path / "text.svm", tmp_path / "warm")
    assert seconds.split()[:2] == ["0.0", "0.0"]
    assert len(taken) > 20
    assert set(taken) <= set(ready)
    copy = tmp_path / "place" / "gdm_dask"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.tmp.*"))  # unfinished files of other processes
    for forgotten in FORGOTTEN:
        indexes = list(copy.rglob(f"{forgotten}-*.nbi"))  # of earlier states of the code, too
        assert indexes
        for index in indexes:
            index.unlink()
    seconds, *_ = told(FIT, tmp_path / "text.svm", tmp_path / "cold", package=copy)
    cold = [float(word) for word in seconds.split()]
    assert min(cold) > 0
    assert cold[1] > cold[2], "the parts of a fit are charged with the compilation"
