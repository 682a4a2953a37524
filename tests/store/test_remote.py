"""Object stores from near by: how many requests are under way, patience with faults, and options that stay secret."""

import asyncio
import gc
import json
import logging
import os
import pickle
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dask
import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem, sync
from helpers.clusters import small_data, small_store
from helpers.store_helpers import files_below, gdm

import gdm_dask
from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cli.options import storage
from gdm_dask.cutting_plane import fit as fitting
from gdm_dask.errors import BadInput, EngineError, GdmError
from gdm_dask.store import remote
from gdm_dask.store.blocks import write_block
from gdm_dask.store.folder import READ_AHEAD, Folder, Url

#: Requests for blocks that must be under way before the first of them is answered.
AT_ONCE = 12


class GatedFiles(AsyncFileSystem):
    """Local files as an object store whose first answers wait until so many requests are under way."""

    protocol = "gated"
    cachable = False
    gate = 0
    begun: list[str] = []  # noqa: RUF012 (shared by all instances, and cleared by the fixture)

    async def _cat_file(self, path, start=None, end=None, **_):
        self.begun.append(path)
        for _ in range(2000):
            if "/blocks/" not in path or sum("/blocks/" in one for one in self.begun) >= self.gate:
                return Path("/", path).read_bytes()[start:end]
            await asyncio.sleep(0.01)
        raise TimeoutError(f"fewer than {self.gate} requests are under way")

    async def _pipe_file(self, path, value, mode="overwrite", **_):
        self.begun.append(f"write {path}")
        for _ in range(2000):
            if sum(one.startswith("write") for one in self.begun) >= self.gate:
                Path("/", path).parent.mkdir(parents=True, exist_ok=True)
                Path("/", path).write_bytes(value)
                return
            await asyncio.sleep(0.01)
        raise TimeoutError(f"fewer than {self.gate} requests are under way")


@pytest.fixture
def gated(monkeypatch):
    fsspec.register_implementation("gated", GatedFiles, clobber=True)
    monkeypatch.setattr(GatedFiles, "begun", [])
    monkeypatch.setattr(GatedFiles, "gate", 0)
    return GatedFiles


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path)


def remote_url(store):
    return f"gated://{Path(store.url).as_posix().lstrip('/')}"


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_many_chunks_are_under_way_during_a_fit(store, gated, scheduler, tmp_path) -> None:
    wanted = GroupDiscoveryMachine(5, scheduler="synchronous").fit(store)
    opened = gdm_dask.open_store(remote_url(store))
    assert opened.feature_names == store.feature_names
    assert opened.n_blocks * 5 / 4 > AT_ONCE  # one task has enough of them
    gated.begun.clear()
    gated.gate = AT_ONCE
    with dask.config.set({"gdm_dask.scratch": str(tmp_path)}):
        found = GroupDiscoveryMachine(5, scheduler=scheduler).fit(opened)
    assert found.support_features_.tolist() == wanted.support_features_.tolist()
    assert found.weights_.tobytes() == wanted.weights_.tobytes()
    chunks = [path for path in gated.begun if "/blocks/" in path]
    assert len(chunks) == len(set(chunks))  # each is requested once: later passes read copies


def test_a_fit_reads_the_manifest_once(store, gated) -> None:
    remote = gdm_dask.open_store(remote_url(store))
    GroupDiscoveryMachine(4, scheduler="synchronous").fit(remote)
    assert sum(path.endswith(f"{Path(store.url).name}/zarr.json") for path in gated.begun) == 1


def test_requests_are_bounded_by_bytes_and_number(store, gated, monkeypatch) -> None:
    folder = Folder(remote_url(store))
    files = [("zarr.json", 10)] * 3 + [(f"blocks/0000{block}/means/c/0", 10) for block in range(8)]

    def begun(**bounds: int) -> int:
        gated.begun.clear()
        for name, value in bounds.items():
            monkeypatch.setattr(*((folder, name) if name == "bytes_ahead" else (remote, name)), value)
        with remote.ReadAhead(folder, files[3:]) as ahead:
            sync(ahead._fs.loop, asyncio.sleep, 0)
            n_begun = len(gated.begun)
            assert ahead.read_chunk(files[3][0]) == folder.read(files[3][0])
            sync(ahead._fs.loop, asyncio.sleep, 0)
            assert len(gated.begun) == n_begun + 2  # one moved up, and the comparison
        return n_begun

    assert begun(bytes_ahead=45) == 4
    assert begun(bytes_ahead=1) == 1  # a chunk larger than the bound is read all the same
    assert begun(bytes_ahead=1000, REQUESTS_AHEAD=3) == 3


def test_the_plan_counts_what_is_under_way(store, gated, monkeypatch) -> None:
    tasks = []

    class Planned(fitting.Data):
        @classmethod
        def stored(cls, store, engine, plan):
            tasks.append(plan.task_bytes)
            return super().stored(store, engine, plan)

    monkeypatch.setattr(fitting, "Data", Planned)
    opened = gdm_dask.open_store(remote_url(store))
    for data in (store, opened):
        GroupDiscoveryMachine(3, scheduler="synchronous").fit(data)
    assert tasks[1] - tasks[0] == opened.bytes_ahead == opened.nbytes
    monkeypatch.setattr(type(store), "nbytes", 2 * READ_AHEAD)
    assert (store.bytes_ahead, opened.bytes_ahead) == (0, READ_AHEAD)


def test_a_failed_request_is_sent_again(store, gated, monkeypatch) -> None:
    failures = []
    cat_file = GatedFiles._cat_file

    async def failing(self, path, *args, **kwargs):
        if path.endswith("indices/c/0") and path not in failures:
            failures.append(path)
            raise ConnectionResetError("the peer hung up")
        return await cat_file(self, path, *args, **kwargs)

    monkeypatch.setattr(GatedFiles, "_cat_file", failing)
    found = GroupDiscoveryMachine(3, scheduler="threads").fit(gdm_dask.open_store(remote_url(store)))
    assert len(failures) == store.n_blocks
    assert found.support_features_.tolist() == GroupDiscoveryMachine(3).fit(store).support_features_.tolist()


def test_an_abandoned_request_leaves_no_message(store, gated, caplog) -> None:
    async def fail() -> None:
        raise OSError("nobody waits for this")

    with caplog.at_level(logging.DEBUG):
        loop = Folder(remote_url(store))._fs.loop

        async def abandon() -> None:
            loop.create_task(fail())

        sync(loop, abandon)
        sync(loop, asyncio.sleep, 0.01)
        gc.collect()
    assert [record.levelno for record in caplog.records if "never retrieved" in record.message] == [logging.DEBUG]


def test_the_files_of_a_block_are_written_at_once(store, gated, tmp_path) -> None:
    names = [f"feature {number}" for number in range(store.manifest.blocks[0].stop)]
    folder = Folder(remote_url(store).replace("data.zarr", "copy.zarr"))
    wanted = write_block(Folder(tmp_path / "local"), 0, store.load_block(0), "lz4", names)
    gated.gate = AT_ONCE
    with folder.behind() as writing:
        assert write_block(writing, 0, store.load_block(0), "lz4", names) == wanted
    assert files_below(tmp_path / "copy.zarr") == files_below(tmp_path / "local")
    read_back = {path for path in gated.begun if "/c/" in path and not path.startswith("write")}
    assert len(read_back) == sum(len(entry.crc) for entry in wanted.arrays.values())


@pytest.mark.parametrize(("most_bytes", "most_requests"), [(3, 9), (99, 1)])
def test_writes_are_bounded_by_bytes_and_number(store, gated, monkeypatch, most_bytes, most_requests) -> None:
    monkeypatch.setattr(remote, "WRITE_BEHIND", most_bytes)
    monkeypatch.setattr(remote, "REQUESTS_AHEAD", most_requests)
    target = Path(store.url).parent / "copy.zarr"
    with Folder(remote_url(store).replace("data.zarr", "copy.zarr")).behind() as writing:
        writing.write("a", b"123")
        writing.write("b", b"4")  # waits for the first
        assert (target / "a").read_bytes() == b"123"
    assert (target / "b").read_bytes() == b"4"


def test_a_failed_write_is_repeated_and_then_named(store, gated, monkeypatch) -> None:
    url = remote_url(store).replace("data.zarr", "copy.zarr")
    target = Path(store.url).parent / "copy.zarr"
    pipe_file, failures = GatedFiles._pipe_file, []

    async def failing(self, path, value, **options):
        if len(failures) < most:
            failures.append(path)
            raise ConnectionResetError("the peer hung up")
        await pipe_file(self, path, value, **options)

    monkeypatch.setattr(GatedFiles, "_pipe_file", failing)
    most = 1
    with Folder(url, {"patience": 0}).behind() as writing:
        writing.write_and_compare("a", np.arange(9, dtype=np.uint8))
        writing.write("b", b"2")
    assert (target / "a").read_bytes() == bytes(range(9))
    assert (target / "b").read_bytes() == b"2"
    most = 10**6
    writing = Folder(url, {"patience": 0}).behind()
    with pytest.raises(EngineError, match=f"{url}: cannot be reached: the peer hung up"), writing as folder:
        folder.write("c", b"3")


def test_a_write_that_reads_back_differently_is_named(store, gated, monkeypatch) -> None:
    async def other(self, path, start=None, end=None, **_):
        return b"other"

    monkeypatch.setattr(GatedFiles, "_cat_file", other)
    url = remote_url(store).replace("data.zarr", "copy.zarr")
    with pytest.raises(GdmError, match=f"{url}: a reads back differently"), Folder(url).behind() as writing:
        writing.write_and_compare("a", np.arange(9, dtype=np.uint8))


class Answers(BaseHTTPRequestHandler):
    """Answers GET requests below /bucket with files of a folder, or always with one status."""

    folder: Path
    status: int | None = None

    def do_GET(self) -> None:
        body = b"" if self.status else (self.folder / self.path.removeprefix("/bucket/")).read_bytes()
        self.send_response(self.status or 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def s3_options(port: int, patience: float) -> dict:
    return {
        "endpoint_url": f"http://127.0.0.1:{port}", "key": "us", "secret": "hush", "patience": patience,
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }  # fmt: skip


def serve(port: int, **facts: object) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Mine", (Answers,), facts))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_a_refused_connection_is_tried_again(store, tmp_path) -> None:
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        servers = []

        class OnWarning(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if not servers:
                    assert "s3://bucket/data.zarr: cannot be reached: Could not connect" in record.getMessage()
                    taken.close()
                    servers.append(serve(port, folder=tmp_path))

        handler = OnWarning(logging.WARNING)
        logging.getLogger(remote.__name__).addHandler(handler)
        try:
            found = gdm_dask.open_store("s3://bucket/data.zarr", s3_options(port, patience=60))
            assert found.fingerprint == store.fingerprint
            assert (found.means == store.means).all()
        finally:
            logging.getLogger(remote.__name__).removeHandler(handler)
            for server in servers:
                server.shutdown()
                server.server_close()
    assert servers


def test_errors_name_the_url(capsys) -> None:
    server = serve(0, status=503)
    try:
        flags = [f"{key}={value}" for key, value in s3_options(server.server_port, 0).items() if "kwargs" not in key]
        flags += ["config_kwargs.retries.max_attempts=0"]
        given = [word for flag in flags for word in ("--storage-option", flag)]
        code, _, err = gdm(capsys, "info", "s3://bucket/data.zarr", *given)
    finally:
        server.shutdown()
        server.server_close()
    assert code == EngineError.exit_code
    assert err.startswith("error: s3://bucket/data.zarr: cannot be reached: ")
    assert "503" in err or "Service Unavailable" in err
    assert "hush" not in err


class Answered(Exception):
    """The error of a client about an answer, as in the Azure SDK, gcsfs and aiohttp."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__("Not now.\nRequestId: 7")
        setattr(self, name, status)


@pytest.mark.parametrize("name", ["status_code", "code", "status"])
def test_only_answers_that_may_change_are_asked_for_again(name) -> None:
    def answer(status: int) -> None:
        asked.append(status)
        raise Answered(name, status)

    kinds = {
        400: GdmError, 401: BadInput, 403: BadInput, 404: FileNotFoundError, 408: EngineError, 429: EngineError,
        500: EngineError, 503: EngineError,
    }  # fmt: skip
    for status, kind in kinds.items():
        asked: list[int] = []
        with pytest.raises(kind, match=r"Not now") as caught:
            remote.call("az://box/x", 0.3, answer, status)
        assert (len(asked) == 2) == (kind is EngineError), status
        assert "az://box/x" in str(caught.value)
        assert "RequestId" not in str(caught.value)


@pytest.mark.parametrize("error", [PermissionError("no signature"), OSError("Forbidden: box/x\nno")])
def test_denied_access_is_named(error, store, gated, monkeypatch) -> None:
    async def deny(self, path, start=None, end=None, **_):
        raise error

    monkeypatch.setattr(GatedFiles, "_cat_file", deny)
    with pytest.raises(
        BadInput, match=r"gated://.*: access denied \((no signature|Forbidden: box/x)\)\. Check the cred"
    ):
        gdm_dask.open_store(remote_url(store))


@pytest.mark.parametrize("profile", [None, "nobody"])
def test_missing_credentials_are_denied_access(profile, tmp_path, monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # no look at the network for a role
    options = {"endpoint_url": "http://127.0.0.1:9", "skip_instance_cache": True, "profile": profile}
    with pytest.raises(BadInput, match=r"s3://bucket/x: access denied \(.*(credentials|nobody).*\)\. Check the cred"):
        gdm_dask.open_store("s3://bucket/x", options)


def test_a_wrong_option_is_bad_input() -> None:
    options = s3_options(9, 0) | {"config_kwargs": {"attempts": 3}}
    with pytest.raises(BadInput, match=r"s3://bucket/x: a storage option is wrong: .*attempts"):
        gdm_dask.open_store("s3://bucket/x", options)


def test_storage_options_of_the_command_line(capsys) -> None:
    pairs = ["anon=true", "secret=123", "patience=2.5", "config_kwargs.retries.max_attempts=9", "profile=a=b"]
    assert storage(pairs) == {
        "anon": True, "secret": "123", "patience": 2.5, "config_kwargs": {"retries": {"max_attempts": 9}},
        "profile": "a=b",
    }  # fmt: skip
    assert storage([]) is None
    for wrong in ("hush", "=hush", "a..b=hush"):
        code, _, err = gdm(capsys, "info", "s3://bucket/x", "--storage-option", wrong)
        assert (code, "must be KEY=VALUE" in err, "hush" in err) == (2, True, False)


def test_options_travel_with_a_url_and_are_not_saved() -> None:
    url = Url("s3://bucket/x.svm", {"secret": "hush"})
    assert "hush" not in f"{url} {url!r} {json.dumps(url)}"
    assert pickle.loads(pickle.dumps(url)).storage_options == {"secret": "hush"}
    assert Folder(url).storage_options == {"secret": "hush"}


def test_no_secret_is_written(tmp_path, gated, monkeypatch, capsys, caplog) -> None:
    """An ingest from a URL and a fit with options leave none of their values in any file or log."""
    X, y = small_data()
    local = gdm_dask.ingest(X, tmp_path / "made.zarr", y, block_bytes=20_000)
    run = tmp_path / "run"
    flags = ["--storage-option", "secret=hush", "--storage-option", "key=hushhush"]
    with caplog.at_level(logging.DEBUG):
        fit = ["fit", remote_url(local), "--run", run, "-k", 3, *flags]
        assert gdm(capsys, "-vv", *fit, "--scheduler", "processes", "--workers", 1)[0] == 3  # do not know gated://
        assert gdm(capsys, "-vv", *fit, "--scheduler", "threads", "--overwrite")[0] == 0
    out, err = capsys.readouterr()
    assert "hush" not in out + err + caplog.text
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run / "model.json" in written
    assert not [path for path in written if b"hush" in path.read_bytes()]
