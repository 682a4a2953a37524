"""Questions to a cluster, and runs without anything to do, do not import what only fits need."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "unneeded"), [("jobs", ("numba", "sklearn", "pandas")), ("runner", ("sklearn", "pandas"))]
)
def test_nothing_of_a_fit_is_imported(module, unneeded) -> None:
    program = f"import sys, gdm_dask.pipeline.{module}; print([n for n in {unneeded} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
