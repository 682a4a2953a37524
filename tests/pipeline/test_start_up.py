"""Questions to a cluster do not import what only fits need."""

import subprocess
import sys


def test_the_status_of_jobs_imports_nothing_of_a_fit() -> None:
    program = (
        "import sys, gdm_dask.pipeline.jobs; print([n for n in ('numba', 'sklearn', 'pandas') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
