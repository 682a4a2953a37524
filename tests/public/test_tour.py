"""The tour runs from top to bottom, and is kept without outputs."""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

TOUR = Path(__file__).parents[2] / "pipelines" / "tour.ipynb"


def test_tour_is_kept_without_outputs() -> None:
    cells = nbformat.read(TOUR, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.timeout(600)
def test_tour_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(TOUR, as_version=4)
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the notebook machinery, not ours
        asyncio.run(client.async_execute())
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
    assert any("GroupDiscoveryMachine" in output.get("data", {}).get("text/html", "") for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
