"""Acquiring files: local files, and downloads from a server that breaks off, redirects and lies."""

import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gdm_dask.errors import BadInput
from gdm_dask.pipeline import acquire as module
from gdm_dask.pipeline.acquire import DownloadFailed, NotOnServer, acquire, content_hash

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; each number in `breaks` makes it break off once, after that many bytes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.breaks, self.requests = CONTENT, '"one"', [], []
        self.ranges = True

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append((self.path, wanted))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file.bin")
            self.end_headers()
            return
        if self.path != "/file.bin":
            self.send_error(404)
            return
        first = 0
        if wanted and server.ranges and self.headers.get("If-Range") == server.etag:
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(server.content) - first))
        self.send_header("ETag", server.etag)
        self.end_headers()
        body = server.content[first:]
        if server.breaks:
            body = body[: server.breaks.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch(server, folder, path="/file.bin", sha256=SHA256):
    return acquire("data", {"url": server.url + path, "sha256": sha256}, folder, {})


def test_a_file_is_fetched_once(server, tmp_path):
    found = fetch(server, tmp_path)
    assert (found.path.name, found.sha256) == ("data-file.bin", SHA256)
    assert found.path.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["data-file.bin"]
    fetch(server, tmp_path)
    assert len(server.requests) == 1


def test_a_redirect_is_followed(server, tmp_path):
    assert fetch(server, tmp_path, "/moved").path.read_bytes() == CONTENT


def test_a_broken_connection_goes_on_where_it_stopped(server, tmp_path):
    server.breaks = [300_000, 0, 200_000]
    assert fetch(server, tmp_path).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]


def test_what_an_earlier_process_left_is_used(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    server.breaks = [300_000]
    with pytest.raises(DownloadFailed, match=r"300,000 bytes are kept"):
        fetch(server, tmp_path)
    assert not (tmp_path / "data-file.bin").exists()
    assert fetch(server, tmp_path).path.read_bytes() == CONTENT
    assert server.requests[-1][1] == "bytes=300000-"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changed_meanwhile_is_fetched_anew(server, tmp_path, monkeypatch, ranges):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    server.breaks = [300_000]
    with pytest.raises(DownloadFailed):
        fetch(server, tmp_path)
    server.ranges = ranges
    server.content, server.etag = CONTENT[::-1], '"two"'
    found = fetch(server, tmp_path, sha256=hashlib.sha256(server.content).hexdigest())
    assert found.path.read_bytes() == server.content


def test_a_part_that_is_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "data-file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(server, tmp_path).path.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(BadInput, match=f"SHA-256 is {SHA256}, but {'0' * 64} was expected"):
        fetch(server, tmp_path, sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_one_of_several_checksums_is_enough(server, tmp_path):
    assert fetch(server, tmp_path, sha256=["0" * 64, SHA256]).sha256 == SHA256


def test_a_file_that_was_changed_on_disk_is_not_used(server, tmp_path):
    fetch(server, tmp_path).path.write_bytes(b"something else")
    with pytest.raises(BadInput, match="Remove the file to fetch it again"):
        fetch(server, tmp_path)


def test_a_missing_file_is_not_tried_again(server, tmp_path):
    with pytest.raises(BadInput, match="404"):
        fetch(server, tmp_path, "/nothing")
    assert len(server.requests) == 1


def test_the_query_of_a_url_is_not_told(server, tmp_path, caplog):
    caplog.set_level("INFO", "gdm_dask")
    with pytest.raises(NotOnServer, match=r"/gone: the server answered 404") as caught:
        fetch(server, tmp_path, "/gone?token=secret")
    assert server.requests[0][0] == "/gone?token=secret"
    assert "/gone" in caplog.text
    assert "secret" not in f"{caplog.text}{caught.value}"


def test_a_server_that_is_not_there_can_be_tried_later(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    with pytest.raises(DownloadFailed, match="the same command resumes"):
        acquire("data", {"url": "http://127.0.0.1:1/file.bin", "sha256": SHA256}, tmp_path, {})


@pytest.mark.parametrize("path", ["/nothing", None])
def test_what_cannot_be_fetched_may_be_brought_by_hand(server, tmp_path, monkeypatch, path):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    url = "http://127.0.0.1:1/file.bin" if path is None else f"{server.url}{path}"
    settings = {"url": url, "sha256": SHA256, "path": "sets/file.bin", "page": "https://example.org/sets"}
    with pytest.raises(BadInput if path else DownloadFailed) as caught:
        acquire("data", settings, tmp_path, {})
    told = "Or fetch it by hand from https://example.org/sets and put it at $GDM_DATA/sets/file.bin"
    assert told in str(caught.value)


def test_a_checksum_on_first_use_is_told(server, tmp_path, caplog):
    found = fetch(server, tmp_path, sha256="on first use")
    assert found.sha256 == SHA256
    assert SHA256 in caplog.text


def test_paths_are_looked_for_in_the_data_folder_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "a.svm").write_text(folder)
    monkeypatch.setenv("GDM_DATA", str(tmp_path / "data"))
    assert acquire("a", {"path": "a.svm"}, tmp_path, {}).path.read_text() == "data"
    monkeypatch.delenv("GDM_DATA")
    assert acquire("a", {"path": "a.svm"}, tmp_path, {}).path.read_text() == "."


def test_what_must_be_fetched_by_hand_says_from_where_and_to_where(tmp_path, monkeypatch):
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    settings = {"path": "usps/usps.npz", "page": "https://example.org/usps", "note": "Save it as .npz."}
    with pytest.raises(BadInput) as caught:
        acquire("digits", settings, tmp_path, {})
    text = str(caught.value)
    for part in ("acquire.digits", "https://example.org/usps", "$GDM_DATA/usps/usps.npz", "Save it as .npz."):
        assert part in text


@pytest.mark.parametrize("path", ["~nobody-of-this-name/rows.svm", "rows.svm"])
def test_a_file_that_is_nowhere_is_named(tmp_path, monkeypatch, path):
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=rf"acquire\.rows: .*{path} does not exist"):
        acquire("rows", {"path": path}, tmp_path, {})


def test_a_pipe_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "rows.svm")
    with pytest.raises(BadInput, match=r"acquire\.rows: .*rows\.svm must be a file or a folder"):
        acquire("rows", {"path": str(tmp_path / "rows.svm")}, tmp_path, {})


def test_checksums_of_unchanged_files_are_not_computed_again(tmp_path, monkeypatch):
    file = tmp_path / "corpus" / "a.txt"
    file.parent.mkdir()
    file.write_text("one")
    os.utime(file, (1e9, 1e9))
    known: dict = {}
    first = content_hash(file.parent, known)
    monkeypatch.setattr(module.hashlib, "file_digest", None)  # a second read would fail
    assert content_hash(file.parent, known) == first
    monkeypatch.undo()
    file.write_text("two")
    os.utime(file, (1e9 + 1, 1e9 + 1))
    changed = content_hash(file.parent, known)
    assert changed != first
    file.rename(tmp_path / "corpus" / "b.txt")
    assert content_hash(file.parent, known) not in (first, changed)
