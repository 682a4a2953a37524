"""The memory limit holds for all processes together, whatever the size of the source."""

import time

import numpy as np
import psutil
import pytest
from helpers.clusters import family
from helpers.store_helpers import start_gdm

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.ingestion import plan, run_ingest

LIMIT = 450_000_000


def peak_of(*arguments):
    """Run a command line, which must succeed; returns the peak memory of it and its children in bytes."""
    process = start_gdm(*arguments)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, sum(psutil.Process(pid).memory_info().rss for pid in family(process.pid)))
        except psutil.NoSuchProcess:
            continue
        time.sleep(0.005)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return peak


def write_lines(path, lines, n_bytes):
    """Write the same lines to a file many times."""
    block = "".join(lines).encode()
    with open(path, "wb") as file:
        for _ in range(n_bytes // len(block)):
            file.write(block)


def ordinary_lines():
    rng = np.random.default_rng(0)
    for number in range(500):
        features = np.unique(rng.integers(1, 300_000, 200))
        pairs = " ".join(f"{feature}:{value:.6f}" for feature, value in zip(features, rng.random(200), strict=False))
        yield f"{number % 2} {pairs}\n"


def dense_lines():
    """The shortest text for a value, and values that take eight bytes."""
    for number in range(500):
        yield f"{number % 2} " + " ".join(f"{k}:.{(k * number) % 9 + 1}" for k in range(1, 10)) + "\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> None:
    """Compile the kernels first: compiling takes memory, too, but the limit is about the work."""
    folder = tmp_path_factory.mktemp("compiled")
    rng = np.random.default_rng(0)
    (folder / "x.svm").write_text("".join(ordinary_lines()))
    (folder / "z.svm").write_text("".join(dense_lines()))
    write_lines(folder / "long.svm", dense_lines(), 4_000_000)  # more samples in a run than 16 bits can count
    np.save(folder / "x.npy", rng.random((20, 5)))
    np.save(folder / "y.npy", np.arange(20) % 2)
    for name, labels in (("x.svm", None), ("z.svm", None), ("long.svm", None), ("x.npy", folder / "y.npy")):
        gdm_dask.ingest(folder / name, folder / f"{name}.zarr", labels)


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "n_bytes"), [(ordinary_lines, 160_000_000), (dense_lines, 80_000_000)])
@pytest.mark.usefixtures("compiled")
def test_text(tmp_path, lines, n_bytes):
    write_lines(tmp_path / "x.svm", lines(), n_bytes)
    assert peak_of("ingest", tmp_path / "x.svm", tmp_path / "s", "--memory-limit", LIMIT) < LIMIT


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_dense_matrix(tmp_path):
    matrix = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (40_000, 1000))
    rng = np.random.default_rng(0)
    for start in range(0, len(matrix), 4000):
        matrix[start : start + 4000] = rng.random((4000, 1000))
    del matrix
    np.save(tmp_path / "y.npy", np.arange(40_000) % 2)
    arguments = ("ingest", tmp_path / "x.npy", tmp_path / "s", "--labels", tmp_path / "y.npy")
    assert peak_of(*arguments, "--memory-limit", LIMIT) < LIMIT


def test_impossible_limits_are_refused_with_numbers(tmp_path):
    (tmp_path / "x.svm").write_text("1 1:1\n-1 2:1\n")
    for options, message in (
        ({"memory_limit": "200MB", "block_bytes": "1MB"}, r"limit of 200 MB is too low.*at least 3\d\d MB is needed"),
        ({"memory_limit": "340MB"}, r"making a block of 67.1 MB needs 4\d\d MB.*limit of 340 MB.*--block-size"),
        ({"memory_limit": "600MB", "n_workers": 300}, r"300 workers: at least .*fewer --workers"),
        ({"memory_limit": "500MB", "scheduler": "processes", "n_workers": 2}, "MB is needed|needs .*MB"),
    ):
        with pytest.raises(BadInput, match=message):
            gdm_dask.ingest(tmp_path / "x.svm", tmp_path / "s", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["x.svm"]


def test_a_row_that_does_not_fit_is_refused_before_the_work(tmp_path):
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (2, 20_000_000)).flush()
    with pytest.raises(BadInput, match=r"too low for this source and 2 workers: at least 1.* GB is needed"):
        gdm_dask.ingest(tmp_path / "x.npy", tmp_path / "s", [0, 1], memory_limit="500MB", n_workers=2)


def test_a_feature_that_does_not_fit_can_go_on_with_more_memory(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((3000, 5)))
    y = rng.choice([0, 1], 3000)
    options = {"block_bytes": 1000, "n_workers": 2, "run_bytes": 10_000}
    monkeypatch.setattr(plan, "CHUNKS_BYTES", 0)
    limit = plan.BASE_BYTES + 2 * plan.PARSE_FACTOR * plan.MIN_RUN_BYTES
    monkeypatch.setattr(plan, "BASE_BYTES", limit - 20_000)
    monkeypatch.setattr(plan, "MIN_RUN_BYTES", 100)
    with pytest.raises(BadInput, match=r"makes a block of .*kB.*it resumes where it stopped"):
        run_ingest(tmp_path / "x.npy", tmp_path / "s", y, memory_limit=limit, **options)
    done = run_ingest(tmp_path / "x.npy", tmp_path / "s", y, **options)
    assert done.runs_written == 0
    assert done.runs_kept > 0


def test_fewer_blocks_are_made_at_a_time_under_a_low_limit():
    room = plan.BASE_BYTES + 4000 + 3 * (plan.CHUNKS_BYTES + 64_000_000)
    assert plan.merge_plan(room, 8, False, 1000, 64_000_000)[0] == 3
    assert plan.merge_plan(10 * room, 8, False, 1000, 64_000_000)[0] == 8
    assert plan.merge_plan(3 * room, 8, True, 1000, 64_000_000)[0] == 4
