"""The command line around stores: help, info, verify, progress and logs."""

import json
import re
import subprocess

import pytest
from helpers.store_helpers import GDM, gdm, on_a_terminal, run_gdm, some_labels, some_matrix, write_svmlight

import gdm_dask


@pytest.fixture
def source(tmp_path):
    return write_svmlight(tmp_path / "x.svm", some_matrix(), some_labels(60))


def test_version_and_help(capsys):
    assert gdm(capsys, "--version") == (0, f"gdm {gdm_dask.__version__}\n", "")
    code, out, _ = gdm(capsys, "--help")
    assert code == 0
    for command in ("ingest", "info", "verify"):
        assert re.search(rf"^. {command} ", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ingest", ["SOURCE... STORE", "gdm ingest test.svm test.zarr --like train.zarr", "--memory-limit", "resume"]),
        ("info", ["STORE", "--json"]),
        ("verify", ["STORE", "checksums"]),
    ],
)
def test_help_teaches(capsys, command, words):
    code, out, _ = gdm(capsys, command, "--help")
    assert code == 0
    for word in words:
        assert word in out


def test_wrong_use_is_told(capsys, source):
    assert gdm(capsys, "ingest", source)[0] == 2
    assert gdm(capsys, "ingest", source, "s", "--no-such-option")[0] == 2
    assert gdm(capsys, "no-such-command")[0] == 2


def test_info_and_verify(tmp_path, source, capsys):
    code, out, err = gdm(capsys, "ingest", source, tmp_path / "s", "--block-size", "1kB")
    assert code == 0
    assert "40 features x 60 samples, 511 nonzeros" in out
    for stage in ("scratch files", "partition", "merge"):
        assert stage in err
    code, out, err = gdm(capsys, "info", tmp_path / "s")
    assert (code, err) == (0, "")
    for words in ("40 features x 60 samples", "511 (density 0.213)", "-1 (", "sparse, values: float64", "lz4", "ratio"):
        assert words in out
    code, out, _ = gdm(capsys, "info", tmp_path / "s", "--json")
    facts = json.loads(out)
    labels = some_labels(60)
    assert (facts["features"], facts["samples"]) == (40, 60)
    assert facts["nonzeros"] == 511
    assert facts["classes"] == {"-1": int((labels < 0).sum()), "1": int((labels > 0).sum())}
    assert facts["blocks"] > 3
    assert facts["bytes_on_disk"] == sum(path.stat().st_size for path in (tmp_path / "s").rglob("*") if path.is_file())
    assert facts["compression_ratio"] == facts["bytes_decoded"] / facts["bytes_on_disk"]
    assert facts["provenance"]["source"]["files"] == [str(source)]
    code, out, err = gdm(capsys, "verify", tmp_path / "s")
    assert code == 0
    assert f"{facts['blocks']} blocks, all intact" in out


def test_quiet_and_verbose(tmp_path, source, capsys):
    code, out, err = gdm(capsys, "-q", "ingest", source, tmp_path / "quiet")
    assert (code, err) == (0, "")
    assert "40 features" in out
    code, _, err = gdm(capsys, "-v", "ingest", source, tmp_path / "verbose")
    assert re.search(r"^\d{4}-\d\d-\d\d .* INFO gdm_dask\.system\.progress: partition", err, re.MULTILINE)


def test_a_bar_on_a_terminal_and_lines_elsewhere(tmp_path, source):
    code, _, shown = on_a_terminal("ingest", source, tmp_path / "s")
    assert code == 0
    assert "\x1b[" in shown
    assert "━" in shown
    assert "partition" in shown
    code, out, err = run_gdm("ingest", source, tmp_path / "t")
    assert code == 0
    assert "\x1b[" not in out + err
    assert re.search(r"^partition: .*kB in .* s \(.*B/s\)$", err, re.MULTILINE)


def test_the_package_runs_as_the_command():
    done = subprocess.run([GDM[0], "-m", "gdm_dask", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"gdm {gdm_dask.__version__}\n"


def test_version_needs_no_heavy_import():
    code = (
        "import sys; from gdm_dask.cli import main; sys.argv = ['gdm', '--version']\n"
        "try:\n    main.run()\n"
        "finally:\n    print(sorted({'numba', 'dask', 'scipy', 'zarr', 'pandas'} & set(sys.modules)))"
    )
    out = subprocess.run([*GDM[:2], code], capture_output=True, text=True, check=True).stdout
    assert out == f"gdm {gdm_dask.__version__}\n[]\n"
