"""Stores on a real S3-compatible server."""

import signal
import subprocess
import sys
from urllib.request import urlopen

import fsspec
import pytest
from helpers.clusters import held_gdm
from helpers.store_helpers import (
    assert_store_equals,
    chunks_below,
    gdm,
    some_labels,
    some_matrix,
    write_svmlight,
)

import gdm_dask
from gdm_dask.errors import BadInput, DamagedStore, GdmError
from gdm_dask.ingestion import run_ingest

MATRIX = some_matrix(80, 60)
LABELS = some_labels(80)
OPTIONS = {"block_bytes": 3000, "run_bytes": 5000}

_SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
"""


@pytest.fixture(scope="module")
def server():
    """The address of an S3 server in a separate process."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with urlopen(f"{address}/moto-api/data.json") as answer:
            assert answer.status == 200
        yield address
        process.kill()


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    """A bucket, configured by the environment, as users do. Yields its file system."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TMPDIR": str(tmp_path / "temporary"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    files = fsspec.filesystem("s3")
    files.mkdir("bucket")
    yield files
    files.rm("bucket", recursive=True)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def objects(files, url):
    """Read all objects below a URL except the root."""
    files.invalidate_cache()
    root = url.removeprefix("s3://")
    found = files.cat(files.find(root))
    return {name.removeprefix(root + "/"): data for name, data in found.items() if name != f"{root}/zarr.json"}


def no_scratch_left(folder):
    return not list((folder / "cache/gdm_dask/ingest").iterdir()) and not list((folder / "temporary").iterdir())


@pytest.fixture
def source(tmp_path):
    return write_svmlight(tmp_path / "x.svm", MATRIX, LABELS)


def test_ingest_open_read_and_verify(s3, tmp_path, source, capsys):
    store = gdm_dask.ingest(source, "s3://bucket/deep/s", **OPTIONS)
    assert_store_equals(store, MATRIX, LABELS)
    gdm_dask.ingest(source, tmp_path / "local", **OPTIONS)
    assert objects(s3, "s3://bucket/deep/s") == chunks_below(tmp_path / "local")
    assert store.fingerprint == gdm_dask.open_store(tmp_path / "local").fingerprint
    code, out, _ = gdm(capsys, "info", "s3://bucket/deep/s")
    assert (code, "60 features x 80 samples" in out) == (0, True)
    assert gdm(capsys, "verify", "s3://bucket/deep/s")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "local", "temporary", "x.svm"]
    assert no_scratch_left(tmp_path)


def test_a_source_on_s3(s3, source):
    s3.put(str(source), "bucket/x.svm")
    for run_bytes in (5000, 1 << 20):
        store = gdm_dask.ingest("s3://bucket/x.svm", f"s3://bucket/{run_bytes}", run_bytes=run_bytes)
        assert_store_equals(store, MATRIX, LABELS)


def test_options_instead_of_the_environment(s3, server, source, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    options = {"endpoint_url": server, "key": "test", "secret": "test"}
    gdm_dask.ingest(source, "s3://bucket/s", storage_options=options, scheduler="processes", **OPTIONS)
    gdm_dask.open_store("s3://bucket/s", storage_options=options).verify()


def test_damage(s3, source, capsys):
    gdm_dask.ingest(source, "s3://bucket/s", **OPTIONS)
    chunk = "bucket/s/blocks/00001/indices/c/0"
    data = s3.cat(chunk)
    s3.pipe(chunk, data[:10] + bytes([data[10] ^ 1]) + data[11:])
    store = gdm_dask.open_store("s3://bucket/s")
    with pytest.raises(DamagedStore, match="array 'blocks/00001/indices' is damaged"):
        store.read_block(1)
    s3.rm(chunk)
    with pytest.raises(DamagedStore, match=r"blocks/00001/indices.*missing"):
        store.verify()
    s3.rm("bucket/s/zarr.json")
    code, _, err = gdm(capsys, "info", "s3://bucket/s")
    assert code == 2
    assert "there is no feature store here" in " ".join(err.split())


def test_overwrite(s3, source):
    gdm_dask.ingest(source, "s3://bucket/s", block_bytes=2000)
    with pytest.raises(BadInput, match="exists"):
        gdm_dask.ingest(source, "s3://bucket/s", **OPTIONS)
    gdm_dask.ingest(source, "s3://bucket/s", overwrite=True, **OPTIONS).verify()
    whole = gdm_dask.ingest(source, "s3://bucket/whole", **OPTIONS)
    assert objects(s3, "s3://bucket/s") == objects(s3, "s3://bucket/whole")  # the old store is gone
    assert whole.n_blocks > 3
    s3.pipe("bucket/mine/letter.txt", b"precious")
    with pytest.raises(BadInput, match=r"holds 'letter\.txt'"):
        gdm_dask.ingest(source, "s3://bucket/mine", overwrite=True)
    assert s3.cat("bucket/mine/letter.txt") == b"precious"


def test_a_killed_ingest_leaves_no_store_and_goes_on(s3, source, tmp_path):
    gdm_dask.ingest(source, "s3://bucket/s", block_bytes=2000)
    flags = ["--block-size", "3kB", "--run-size", "5kB", "--overwrite"]
    with held_gdm("merge", 2, "ingest", source, "s3://bucket/s", *flags, log=tmp_path / "log") as ingest:
        ingest.signal(signal.SIGKILL)
        assert ingest.wait() == -signal.SIGKILL
    with pytest.raises(DamagedStore, match="no feature store"):
        gdm_dask.open_store("s3://bucket/s")
    done = run_ingest(source, "s3://bucket/s", overwrite=True, **OPTIONS)
    assert done.runs_written == 0
    assert done.blocks_kept >= 2
    assert_store_equals(done.store, MATRIX, LABELS)
    assert no_scratch_left(tmp_path)


def test_errors_of_the_service_are_one_line(s3, monkeypatch, source, capsys):
    code, _, err = gdm(capsys, "ingest", source, "s3://nobucket/s")
    assert code != 0
    assert "error:" in err
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises((GdmError, OSError)):
        gdm_dask.open_store("s3://bucket/s", {"config_kwargs": {"retries": {"max_attempts": 0}}})
