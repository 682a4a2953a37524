"""Stores on a real S3-compatible server."""

import signal
import subprocess
import sys
from multiprocessing.util import get_temp_dir
from urllib.request import urlopen

import dask
import fsspec
import numpy as np
import pytest
import scipy.sparse as sp
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
from gdm_dask.errors import BadInput, DamagedStore, Locked
from gdm_dask.ingestion import run_ingest
from gdm_dask.pipeline.acquire import DownloadFailed, NotOnServer, acquire
from gdm_dask.store.folder import Folder

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
    get_temp_dir()  # of the server that forks processes: it outlives this test
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


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_arrays_on_s3(s3, scheduler, tmp_path):
    sp.save_npz(tmp_path / "x.npz", MATRIX)
    np.save(tmp_path / "x.npy", MATRIX.toarray())
    np.save(tmp_path / "y.npy", LABELS)
    for name in ("x.npz", "x.npy", "y.npy"):
        s3.put(str(tmp_path / name), f"bucket/{name}")
    for name in ("x.npz", "x.npy"):
        url = f"s3://bucket/{name}"
        store = gdm_dask.ingest(
            url, tmp_path / name[2:], "s3://bucket/y.npy", scheduler=scheduler, n_workers=1, **OPTIONS
        )
        assert_store_equals(store, MATRIX, LABELS)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_later_passes_read_copies(s3, source, tmp_path, scheduler):
    store = gdm_dask.ingest(source, "s3://bucket/s", **OPTIONS)
    machine = gdm_dask.GroupDiscoveryMachine(3, scheduler=scheduler, n_workers=2)
    wanted = machine.fit(gdm_dask.ingest(source, tmp_path / "local", **OPTIONS)).affiliations_
    with dask.config.set({"gdm_dask.scratch": str(tmp_path / "temporary")}):
        machine.fit(store, callback=lambda cut: cut.number > 1 or s3.rm("bucket/s/blocks", recursive=True))
    assert machine.counts_["passes"] > 1
    assert machine.affiliations_.equals(wanted)
    assert not list((tmp_path / "temporary").glob("gdm-copies-*"))


def test_options_instead_of_the_environment(s3, server, source, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    options = {"endpoint_url": server, "key": "test", "secret": "test"}
    s3.put(str(source), "bucket/x.svm")
    gdm_dask.ingest("s3://bucket/x.svm", "s3://bucket/s", storage_options=options, scheduler="processes", **OPTIONS)
    gdm_dask.open_store("s3://bucket/s", storage_options=options).verify()


def test_options_of_the_command_line(s3, server, source, monkeypatch, tmp_path, capsys):
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    s3.put(str(source), "bucket/x.svm")
    given = ["endpoint_url=" + server, "key=test", "secret=hush", "client_kwargs.region_name=us-east-1"]
    flags = [word for pair in given for word in ("--storage-option", pair)]
    store, run = "s3://bucket/s", tmp_path / "run"
    for command in (
        ["ingest", "s3://bucket/x.svm", store, "--block-size", "3kB", *flags],
        ["info", store, *flags],
        ["verify", store, *flags],
        ["ingest", "s3://bucket/x.svm", "s3://bucket/test", "--like", store, *flags],
        ["plan", store, "-k", 3, *flags],
        ["tune", store, "-k", 3, "--tau", 0.5, *flags],
        ["fit", store, "--run", run, "-k", 3, *flags],
        ["predict", run, "s3://bucket/test", "-o", tmp_path / "predicted.txt", *flags],
        ["evaluate", run, "s3://bucket/test", *flags],
        ["stability", run, store, "--repeats", 2, *flags],
        ["report", run, "-o", tmp_path / "report.html", "--store", store, "--test", "s3://bucket/test", *flags],
    ):
        code, out, err = gdm(capsys, "-vv", *command)
        assert (code, "hush" in out + err) == (0, False), (command, err)
    monkeypatch.setenv("GDM_STORAGE_OPTIONS", " ".join(given))
    assert gdm(capsys, "info", store)[0] == 0
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written |= s3.cat(s3.find("bucket"))
    assert not [name for name, data in written.items() if b"hush" in data]


def test_two_computers_do_not_write_one_store(s3, source, tmp_path, monkeypatch, capsys):
    """Computers do not share a cache folder, and so no lock but the one in the store."""
    flags = ["--block-size", "3kB", "--run-size", "5kB"]
    with held_gdm("merge", 2, "ingest", source, "s3://bucket/s", *flags, log=tmp_path / "log") as first:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        for more in ([], ["--overwrite"]):
            code, _, err = gdm(capsys, "ingest", source, "s3://bucket/s", *more)
            assert (code, f"s3://bucket/s is being written by process {first.process.pid} on" in err) == (4, True)
        assert s3.exists("bucket/s/ingest.lock")
    assert first.wait() == 0
    s3.invalidate_cache()
    assert not s3.exists("bucket/s/ingest.lock")
    assert_store_equals(gdm_dask.open_store("s3://bucket/s"), MATRIX, LABELS)
    assert gdm(capsys, "ingest", source, "s3://bucket/s", *flags)[0] == 2  # it exists
    assert gdm(capsys, "ingest", source, "s3://bucket/s", "--overwrite", *flags)[0] == 0
    assert not list((tmp_path / "other/gdm_dask/ingest").iterdir())


def test_blocks_are_not_kept_when_the_claim_is_lost(s3, source, tmp_path, monkeypatch):
    """Somebody removed the lock of a killed ingest, and another computer has written to the store since."""
    flags = ["--block-size", "3kB", "--run-size", "5kB"]
    with held_gdm("merge", 2, "ingest", source, "s3://bucket/s", *flags, log=tmp_path / "log") as ingest:
        ingest.signal(signal.SIGKILL)
        assert ingest.wait() == -signal.SIGKILL
    with monkeypatch.context() as other:
        other.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        with pytest.raises(Locked, match=r"or remove s3://bucket/s/ingest\.lock"):
            gdm_dask.ingest(source, "s3://bucket/s", **OPTIONS)
        s3.rm("bucket/s/ingest.lock")
        gdm_dask.ingest(source, "s3://bucket/s", codec="zstd", **OPTIONS)
    done = run_ingest(source, "s3://bucket/s", overwrite=True, **OPTIONS)
    assert done.blocks_kept == 0
    done.store.verify()


def test_a_missing_bucket_is_found_before_the_work(s3, source, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gdm_dask.ingestion.driver.make_runs", lambda *_: pytest.fail("the source was partitioned"))
    code, _, err = gdm(capsys, "ingest", source, "s3://nobucket/s")
    assert code == 2
    assert "s3://nobucket/s: cannot be written to: The specified bucket does not exist" in " ".join(err.split())
    assert no_scratch_left(tmp_path)


def test_a_pipeline_fetches_an_object(s3, server, source, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    s3.put(str(source), "bucket/x.svm")
    options = {"endpoint_url": server, "key": "test", "secret": "hush"}
    settings = {"url": "s3://bucket/x.svm", "sha256": "on first use", "storage_options": options}
    found = acquire("train", settings, tmp_path / "downloads", {})
    assert found.path == tmp_path / "downloads" / "train-x.svm"
    assert found.path.read_bytes() == source.read_bytes()
    assert list(found.path.parent.iterdir()) == [found.path]
    with pytest.raises(NotOnServer, match=r"s3://bucket/y\.svm"):
        acquire("test", settings | {"url": "s3://bucket/y.svm"}, tmp_path / "downloads", {})


def test_a_broken_download_of_an_object_goes_on(s3, source, tmp_path, monkeypatch):
    s3.put(str(source), "bucket/x.svm")
    settings = {"url": "s3://bucket/x.svm", "sha256": "on first use"}
    monkeypatch.setattr("gdm_dask.pipeline.acquire._OBJECT_PIECE", 1000)
    places = []
    read = Folder.read

    def failing(folder, key, start=None, stop=None):
        places.append(start)
        if len(places) == 3:
            raise DownloadFailed("the line is dead")
        return read(folder, key, start, stop)

    monkeypatch.setattr(Folder, "read", failing)
    with pytest.raises(DownloadFailed):
        acquire("train", settings, tmp_path, {})
    acquire("train", settings, tmp_path, {})
    assert places[:4] == [0, 1000, 2000, 2000]
    assert (tmp_path / "train-x.svm").read_bytes() == source.read_bytes()


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
