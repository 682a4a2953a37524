"""Untrusted stores with valid checksums: an error that names them, never a crash."""

import hashlib
import json
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
from crc32c import crc32c
from helpers.fuzz import FUZZ, change_somewhere, changed_bytes
from helpers.store_helpers import some_labels, some_matrix
from hypothesis import given
from hypothesis import strategies as st

import gdm_dask
from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.store import layout
from gdm_dask.store.arrays import encode
from gdm_dask.store.blocks import write_block


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    gdm_dask.ingest(some_matrix(), folder / "sparse", some_labels(60), block_bytes=1000)
    gdm_dask.ingest(some_matrix().toarray(), folder / "dense", some_labels(60), block_bytes=3000, codec="none")
    return folder


def use(path, verified=False):
    """Use everything that reads a store, except its names."""
    store = gdm_dask.open_store(path)
    if verified:
        store.verify()
    for number in range(store.n_blocks):
        store.read_block(number)
    store.read_rows(np.arange(store.shape[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # finite numbers, but of no real data
        gdm_dask.GroupDiscoveryMachine(3, scheduler="synchronous").fit(store)


def refusal(path, verified=False):
    """Use a store; returns the refusal, or else the path."""
    try:
        use(path, verified)
    except BadInput as error:
        return str(error)
    return str(path)


def rewritten(whole, target, change):
    """Make a sparse store whose block 1 has other arrays, with a matching manifest."""
    shutil.copytree(whole / "sparse", target)
    store = gdm_dask.open_store(target)
    block = store.load_block(1)
    change(block)
    entry = write_block(store._folder, 1, block, "lz4")
    entry = replace(entry, nnz=store.manifest.blocks[1].nnz)
    blocks = [entry if number == 1 else other for number, other in enumerate(store.manifest.blocks)]
    layout.write_manifest(store._folder, replace(store.manifest, blocks=blocks))
    return target


def set_pointers(start, *values):
    def change(block):
        block.indptr[start : start + len(values) or None] = values

    return change


def set_index(block):
    block.indices[3] = 60


def set_last_index(block):
    block.indices[-1] = 2**32 - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_pointers(1, 10**9), "its pointers do not fit its indices"),
        (set_pointers(0, 3), "its pointers do not fit its indices"),
        (set_pointers(1, 9, 4), "its pointers do not fit its indices"),
        (set_pointers(-1, 7), "its pointers do not fit its indices"),
        (lambda block: block.norms.__setitem__(0, np.inf), "a moment is not finite"),
        (set_index, "indices' is damaged: a number in it is not below 60"),
        (set_last_index, "indices' is damaged: a number in it is not below 60"),
    ],
)
def test_rows_that_leave_their_arrays(whole, tmp_path, change, message):
    path = rewritten(whole, tmp_path / "s", change)
    store = gdm_dask.open_store(path)
    features = np.arange(store.block_starts[1], store.block_starts[2])
    for read in (lambda: store.load_block(1), lambda: store.load_rows(features), store.verify, lambda: use(path)):
        with pytest.raises(DamagedStore, match=rf"s: .*block.*1.*{message}\. Restore the store"):
            read()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: block.means.__setitem__(0, 1e30), "its moments do not match its values"),
        (lambda block: block.norms.__setitem__(0, 2.5), "its moments do not match its values"),
        (lambda block: block.values.__setitem__(0, np.inf), "a value is not finite"),
        (lambda block: block.indices.__setitem__(slice(2), block.indices[[1, 0]]), "of a row do not increase"),
    ],
)
def test_faults_that_only_verify_finds(whole, tmp_path, change, message):
    with pytest.raises(DamagedStore, match=f"block 1: .*{message}"):
        gdm_dask.open_store(rewritten(whole, tmp_path / "s", change)).verify()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("length", [0, 1, -1])
def test_chunks_of_another_length(whole, tmp_path, kind, length):
    """A short chunk would leave stale memory behind it."""
    shutil.copytree(whole / kind, tmp_path / "s")
    store = gdm_dask.open_store(tmp_path / "s")
    codec = store.manifest.codec
    data, crc = encode(store.load_block(0).as_numbers().values.ravel()[:length], codec)
    chunk = tmp_path / "s" / "blocks" / "00000" / "values" / "c" / ("0" if kind == "sparse" else "0/0")
    chunk.write_bytes(data.tobytes())
    arrays = store.manifest.blocks[0].arrays
    entry = replace(store.manifest.blocks[0], arrays=arrays | {"values": replace(arrays["values"], crc=[crc])})
    layout.write_manifest(store._folder, replace(store.manifest, blocks=[entry, *store.manifest.blocks[1:]]))
    with pytest.raises(DamagedStore, match=r"chunk 0 of array 'blocks/00000/values' is damaged: it (holds|is t)"):
        gdm_dask.open_store(tmp_path / "s").load_block(0)


def test_a_replaced_store_is_called_replaced(tmp_path):
    store = gdm_dask.ingest(some_matrix(), tmp_path / "s", some_labels(60))
    gdm_dask.ingest(some_matrix(seed=1), tmp_path / "s", some_labels(60), overwrite=True)
    for read in (lambda: store.load_block(0), lambda: store.load_rows(np.array([1])), lambda: store.means):
        with pytest.raises(DamagedStore, match=r"s: the store was replaced while it was in use\. Start again\."):
            read()


def edited(whole, target, change):
    """Make a store with a changed manifest and a valid checksum."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(whole, target)
    root = json.loads((target / "zarr.json").read_bytes())
    body = root["attributes"]["gdm_dask"]
    del body["sha256"]
    change(body)
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (target / "zarr.json").write_text(json.dumps(root))
    return target


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(shape=[10**18, 60]),
        lambda body: body.update(shape=[40, 10**18]),
        lambda body: body.update(shape=[40]),
        lambda body: body.update(shape=[40.0, 60]),
        lambda body: body.update(kind="dense"),
        lambda body: body.update(blocks=[]),
        lambda body: body.update(nnz=0),
        lambda body: body.update(target={"kind": "numbers", "means": [0], "scales": [1]}),
        lambda body: body.update(target={"kind": "classes", "classes": [1]}),
        lambda body: body.pop("arrays"),
        lambda body: body.update(more=1),
        lambda body: body["blocks"][0].update(stop=10**18),
        lambda body: body["blocks"][0]["arrays"]["means"].update(shape=[10**18]),
        lambda body: body["blocks"][0]["arrays"]["means"].update(dtype="object"),
        lambda body: body["blocks"][0]["arrays"]["means"].update(chunk=0),
        lambda body: body["blocks"][0]["arrays"]["means"].update(crc=[]),
        lambda body: body["blocks"][0]["arrays"]["means"].update(crc={"": 0}),
        lambda body: body["blocks"][0]["arrays"]["values"].update(places=400),
    ],
)
def test_malformed_manifests(whole, tmp_path, change):
    with pytest.raises(DamagedStore, match=r"s: the manifest .*(malformed|damaged): .* Restore the store"):
        gdm_dask.open_store(edited(whole / "sparse", tmp_path / "s", change))


@FUZZ
@given(data=st.data(), kind=st.sampled_from(["sparse", "dense"]))
def test_any_manifest_opens_or_is_refused(whole, tmp_path, data, kind):
    path = edited(whole / kind, tmp_path / "s", lambda body: change_somewhere(data, body))
    assert str(tmp_path) in refusal(path)


@FUZZ
@given(data=st.data())
def test_any_bytes_of_a_chunk_are_read_or_refused(whole, tmp_path, data):
    """Checksums are valid, so that the bytes reach the decoder and the code after it."""
    target = tmp_path / "s"
    name = data.draw(st.sampled_from(["indptr", "indices", "values", "means"]))
    key = f"blocks/00001/{name}/c/0"
    body = changed_bytes(data, (whole / "sparse" / key).read_bytes()[:-4])
    crc = crc32c(body)

    def change(manifest):
        manifest["blocks"][1]["arrays"][name]["crc"] = [crc]

    edited(whole / "sparse", target, change)
    (target / key).write_bytes(body + crc.to_bytes(4, "little"))
    # made-up numbers can make a fit stop with any error
    assert str(tmp_path) in refusal(target, verified=name in ("values", "means"))
