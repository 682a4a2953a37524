"""Shared by the tests of stores and ingest: real command lines, files and comparisons."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gdm_dask.cli.main import run

GDM = [sys.executable, "-c", "from gdm_dask.cli.main import run; run()"]


def gdm(capsys, *arguments):
    """Run a command line in this process; returns (exit code, standard output, standard error)."""
    capsys.readouterr()
    before = sys.argv
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    sys.argv = ["gdm", *map(str, arguments)]
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def start_gdm(*arguments, **options):
    """Start a command line as a separate process."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen([*GDM, *map(str, arguments)], **options)


def run_gdm(*arguments, **options):
    """Run a command line as a separate process; returns (exit code, standard output, standard error)."""
    process = start_gdm(*arguments, **options)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def on_a_terminal(*arguments):
    """Run a command line with its standard error on a terminal; returns (exit code, standard output, screen)."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"}
    process = start_gdm(*arguments, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # the other end is closed
        while part := screen.read(65536):
            shown += part
    return process.wait(), process.communicate()[0], shown.decode()


_FORK_COMMANDS = """
import json, os, sys, tempfile, traceback
from gdm_dask.cli.main import run
from gdm_dask.ingestion import ingest

with tempfile.TemporaryDirectory() as folder:  # load what every command needs, once
    with open(folder + "/x.svm", "w") as file:
        file.write("1 1:0.5\\n-1 2:3\\n")
    ingest(folder + "/x.svm", folder + "/s", scheduler="synchronous")
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.argv = ["gdm", *json.loads(line)]
        code = 1
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class CommandForks:
    """Starts command lines quickly: their processes need not load Python and the compiled kernels again."""

    def __init__(self):
        self._mother = subprocess.Popen(
            [sys.executable, "-c", _FORK_COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *arguments):
        """Start ``gdm -q ...`` in a fork; returns its process id."""
        self._mother.stdin.write(json.dumps(["-q", *map(str, arguments)]) + "\n")
        self._mother.stdin.flush()
        return int(self._mother.stdout.readline())

    def wait(self):
        """Return the exit code of the last process, or minus the signal number if it was killed."""
        while not (line := self._mother.stdout.readline().strip()).lstrip("-").isdigit():
            assert line, "the mother of the forks has died"
        return int(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._mother.communicate()


def files_below(folder):
    """Read all files of a folder, by relative path."""
    folder = Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def chunks_below(folder):
    """Read all files of a store except its root, which also records how it was made."""
    return {name: data for name, data in files_below(folder).items() if name != "zarr.json"}


def some_labels(n_samples, seed=0):
    """Labels with both classes."""
    labels = np.random.default_rng(seed).choice([-1.0, 1.0], n_samples)
    labels[:2] = [-1, 1]
    return labels


def some_matrix(n_samples=60, n_features=40, density=0.2, seed=0, kind="float"):
    """A sparse matrix, samples x features, with an empty row, an empty column, a full column and equal columns."""
    rng = np.random.default_rng(seed)
    dense = sp.random_array((n_samples, n_features), density=density, rng=rng).toarray()
    dense[3, :] = 0
    dense[:, 5] = 0
    dense[:, 6] = rng.random(n_samples) + 0.5
    dense[:, 8] = dense[:, 7]
    matrix = sp.csr_array(dense)
    if kind == "ones":
        matrix.data[:] = 1.0
    elif kind == "counts":
        matrix.data = np.ceil(matrix.data * 20)
    elif kind == "float32":
        matrix.data = matrix.data.astype(np.float32)
    return matrix


def write_svmlight(path, matrix, labels, zero_based=False):
    """Write samples as svmlight text, with values that read back exactly."""
    rows = sp.csr_array(matrix)
    lines = []
    for label, start, stop in zip(labels, rows.indptr, rows.indptr[1:], strict=False):
        pairs = zip(rows.indices[start:stop] + (not zero_based), rows.data[start:stop].tolist(), strict=True)
        lines.append(" ".join([f"{label:g}", *(f"{index}:{value!r}" for index, value in pairs)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def assert_store_equals(store, matrix, labels=None):
    """Check that every way of reading a store returns exactly `matrix` (samples x features)."""
    expected = sp.csr_array(matrix).T.toarray()
    assert store.shape == expected.shape
    assert store.nnz == np.count_nonzero(expected)
    np.testing.assert_array_equal(store.to_scipy().toarray(), expected)
    blocks = [store.read_block(number).toarray() for number in range(store.n_blocks)]
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
    some = np.random.default_rng(0).integers(0, len(expected), 5)
    np.testing.assert_array_equal(store.read_rows(some).toarray(), expected[some])
    np.testing.assert_array_equal(store.counts, np.count_nonzero(expected, axis=1))
    if labels is not None:
        np.testing.assert_array_equal(store.y, labels)
