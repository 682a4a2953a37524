"""What the README shows does what it says: its Python blocks and the commands of its quick start, as they stand."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
from instances import informative
from store_helpers import gdm, write_svmlight

import gdm_dask

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"(?<=\n\n)(?:    .+\n|\n(?=    ))+", README)]
PYTHON = [block for block in BLOCKS if re.match(r"(from|import) gdm_dask", block)]
QUICK_START = next(block for block in BLOCKS if block.startswith("pip install ."))


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rows, y = informative(5000, 300, 0)
    return np.where(np.abs(rows.T) > 1.5, rows.T, 0.0), y


def test_python_blocks(data, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"X": data[0], "y": data[1], "X_test": data[0]}
    assert len(PYTHON) == 3
    for block in PYTHON:
        exec(block, names)
    assert len(names["machine"].support_features_) == 100
    np.testing.assert_array_equal(
        gdm_dask.GroupDiscoveryMachine.load("runs/second").weights_, names["machine"].weights_
    )
    assert names["store"].shape == (5000, 300)


def test_commands_of_the_quick_start(data, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = data
    write_svmlight(tmp_path / "train.svm", X, y)
    write_svmlight(tmp_path / "test.svm", X[:100], y[:100])
    commands = [line.partition("#")[0].split()[1:] for line in QUICK_START.splitlines() if line.startswith("gdm ")]
    assert [command[0] for command in commands] == [
        "ingest", "ingest", "fit", "evaluate", "predict", "groups", "report"
    ]  # fmt: skip
    for command in commands:
        code, out, err = gdm(capsys, *command)
        assert code == 0, (command, out, err)
    assert len(Path("labels.txt").read_text().split()) == 100
    assert "100 are supports" in Path("report.html").read_text()
