"""Sources on URLs: every file format is read in place, by ranges, and gives the store of the local file."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from helpers.store_helpers import assert_store_equals, some_labels, some_matrix, write_svmlight

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.ingestion.sources.documents.corpus import open_corpus
from gdm_dask.store import remote
from gdm_dask.store.folder import open_file

MATRIX = some_matrix()
LABELS = some_labels(60)
SMALL = {"block_bytes": 500, "run_bytes": 400}


def write_sources(folder):
    """Write the matrix in every format."""
    write_svmlight(folder / "x.svm", MATRIX, LABELS)
    scipy.io.mmwrite(folder / "x.mtx", MATRIX)
    for form in ("csr", "csc", "coo"):
        sp.save_npz(folder / f"{form}.npz", MATRIX.asformat(form))
    np.save(folder / "rows.npy", MATRIX.toarray())
    np.save(folder / "columns.npy", np.asfortranarray(MATRIX.toarray()))
    np.save(folder / "labels.npy", LABELS)
    (folder / "labels.txt").write_text("\n".join(f"{label:g}" for label in LABELS))


@pytest.fixture
def memory(tmp_path):
    """The files in the memory of this process."""
    write_sources(tmp_path)
    files = fsspec.filesystem("memory")
    for path in tmp_path.iterdir():
        files.pipe_file(f"/sources/{path.name}", path.read_bytes())
    yield files
    files.rm("/sources", recursive=True)


@pytest.mark.parametrize("name", ["x.svm", "x.mtx", "csr.npz", "csc.npz", "coo.npz", "rows.npy", "columns.npy"])
def test_every_format(tmp_path, memory, name):
    labels = None if name == "x.svm" else f"memory://sources/labels.{'txt' if 'npy' in name else 'npy'}"
    store = gdm_dask.ingest(f"memory://sources/{name}", tmp_path / "s", labels, **SMALL)
    assert_store_equals(store, MATRIX, LABELS)
    assert store.manifest.provenance["files"][0]["size"] == (tmp_path / name).stat().st_size


def test_zarr_and_its_version(tmp_path, memory):
    url = "memory://sources/x.zarr"
    array = zarr.create_array(url, shape=MATRIX.shape, chunks=(7, 9), dtype="float64")
    array[:] = MATRIX.toarray()
    store = gdm_dask.ingest(url, tmp_path / "s", LABELS, **SMALL)
    assert_store_equals(store, MATRIX, LABELS)
    before = store.manifest.provenance["files"][0]
    assert before["size"] == sum(memory.du("/sources/x.zarr", total=False).values())
    array[:] = MATRIX.toarray()
    changed = gdm_dask.ingest(url, tmp_path / "again", LABELS, **SMALL).manifest.provenance["files"][0]
    assert changed["size"] == before["size"]
    assert changed != before


def test_a_file_is_read_by_ranges(tmp_path, memory, monkeypatch):
    """Every array of an archive is read from start to end, once."""
    sp.save_npz(tmp_path / "large.npz", sp.random_array((500, 400), density=0.5, rng=0), compressed=False)
    memory.put(str(tmp_path / "large.npz"), "/sources/large.npz")
    size = memory.size("/sources/large.npz")
    requested = []
    readinto = remote.RemoteFile.readinto

    def counting(self, buffer):
        requested.append(readinto(self, buffer))
        return requested[-1]

    monkeypatch.setattr(remote.RemoteFile, "readinto", counting)
    monkeypatch.setattr("gdm_dask.store.folder.WINDOW", 10_000)
    gdm_dask.ingest("memory://sources/large.npz", tmp_path / "s", run_bytes=100_000)
    assert max(requested) < 0.2 * size
    assert sum(requested) < 1.5 * size


def test_a_file_that_is_missing_or_cut_off(tmp_path, memory):
    with pytest.raises(BadInput, match=r"memory://sources/none\.npz: cannot be read"):
        gdm_dask.ingest("memory://sources/none.npz", tmp_path / "s", LABELS)
    with pytest.raises(BadInput, match=r"memory://sources/none\.npy: cannot be read"):
        gdm_dask.ingest("memory://sources/csr.npz", tmp_path / "s", "memory://sources/none.npy")
    for name in ("rows.npy", "csr.npz"):
        memory.pipe_file(f"/sources/{name}", (tmp_path / name).read_bytes()[:-100])
        with pytest.raises(BadInput, match=rf"memory://sources/{name}: not a complete"):
            gdm_dask.ingest(f"memory://sources/{name}", tmp_path / "s", LABELS)


def test_raw_documents_must_be_local():
    with pytest.raises(BadInput, match="raw documents must be a local folder, got s3://bucket/mails"):
        open_corpus("s3://bucket/mails")


class Files(BaseHTTPRequestHandler):
    """Serves the files of a folder, in ranges or only whole."""

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        data = (self.server.folder / self.path.lstrip("/")).read_bytes()
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        with_ranges = self.server.with_ranges and wanted
        if with_ranges:
            first, last = map(int, wanted.split("-"))
            data = data[first : last + 1]
        self.send_response(206 if with_ranges else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def web(tmp_path):
    """A web server with the files."""
    write_sources(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.folder, server.with_ranges = tmp_path, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["x.svm", "csr.npz", "columns.npy"])
def test_a_web_server(tmp_path, web, name):
    url = f"http://127.0.0.1:{web.server_port}"
    labels = None if name == "x.svm" else f"{url}/labels.npy"
    assert_store_equals(gdm_dask.ingest(f"{url}/{name}", tmp_path / "s", labels, **SMALL), MATRIX, LABELS)


def test_a_web_server_without_ranges_is_named(tmp_path, web):
    web.with_ranges = False
    url = f"http://127.0.0.1:{web.server_port}/rows.npy"
    with open_file(url) as file:
        file.seek(100)
        with pytest.raises(BadInput, match=rf"{url}: expected .* bytes, got .* ignores ranges.*Download"):
            file.read(50)
    with pytest.raises(BadInput, match=f"{url}.*Download"):
        gdm_dask.ingest(url, tmp_path / "s", LABELS, **SMALL)
