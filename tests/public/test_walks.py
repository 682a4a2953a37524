"""Walks through the code stay short: ceilings on the number of files, which only fall."""

import subprocess
import sys
from pathlib import Path

import pytest

#: A line of svmlight text to report.html; a cut of a fit on a cluster with a read; a cut from a working set.
CEILINGS = {"report": 77, "iteration": 23, "cut": 14}


@pytest.mark.parametrize("walk", CEILINGS)
def test_a_walk_passes_through_few_files(tmp_path, walk):
    program = Path(__file__).parents[1] / "helpers" / "walks.py"
    for name in ("compiling", "walking"):  # the first run may compile kernels, which passes through further files
        (tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, program, walk, tmp_path / name], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
    files = [line for line in done.stdout.splitlines() if line.endswith(".py")]
    assert 10 < len(files) <= CEILINGS[walk], "\n".join(files)
