"""All benchmarks can be loaded: nothing that they use has moved."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "pipelines" / "bench"


def test_all_benchmarks_can_be_loaded() -> None:
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    assert "passes" in names
    program = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
