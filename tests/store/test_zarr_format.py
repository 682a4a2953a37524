"""The store is real Zarr v3: zarr-python reads every array, equal to what we read."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import zarr
from helpers.store_helpers import some_labels, some_matrix
from numcodecs import blosc

import gdm_dask
from gdm_dask.store.arrays import encode, read_array
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BLOCK

NAMES = [f"wört {number}" for number in range(40)]


def make_store(path, kind, codec):
    """A store with names and ids."""
    matrix = some_matrix(kind="counts" if kind == "sparse counts" else "ones" if kind == "sparse ones" else "float")
    if kind.endswith("decimals"):
        matrix.data = matrix.data.round(3)
    frame = pd.DataFrame(matrix.toarray(), columns=NAMES, index=[f"id {number}" for number in range(60)])
    if kind.startswith("sparse"):
        frame = frame.astype(pd.SparseDtype(float, 0.0))
    return gdm_dask.ingest(frame, path, some_labels(60), codec=codec, block_bytes=700)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize(
    "kind", ["sparse", "sparse counts", "sparse ones", "sparse decimals", "dense", "dense decimals"]
)
def test_zarr_python_reads_every_array(tmp_path, kind, codec):
    store = make_store(tmp_path / "s", kind, codec)
    root = zarr.open_group(tmp_path / "s", mode="r", zarr_format=3)
    arrays = {name: array for name, array in root.members(max_depth=None) if isinstance(array, zarr.Array)}
    manifest = store.manifest
    entries = manifest.arrays | {
        f"{BLOCK.format(number)}/{name}": entry
        for number, block in enumerate(manifest.blocks)
        for name, entry in block.arrays.items()
    }
    assert set(arrays) == set(entries)
    if kind.endswith("decimals"):
        assert any(entry.places == 3 for entry in entries.values())
    assert len(manifest.blocks) > 3
    for name, array in arrays.items():
        ours = read_array(Folder(tmp_path / "s"), name, entries[name])
        places = array.attrs.get("decimal_places")
        np.testing.assert_array_equal(array[:] if places is None else array[:] / 10.0**places, ours)
        assert array.dtype == (ours.dtype if places is None else np.int32)


@pytest.mark.parametrize("kind", ["sparse", "sparse decimals"])
def test_a_reader_needs_only_the_readme(tmp_path, kind):
    """Rebuild the matrix with zarr-python from the documented layout."""
    store = make_store(tmp_path / "s", kind, "lz4")
    root = zarr.open_group(tmp_path / "s", mode="r", zarr_format=3)
    manifest = root.attrs["gdm_dask"]
    dense = np.zeros(manifest["shape"])
    names = []
    for number, entry in enumerate(manifest["blocks"]):
        block = root[f"blocks/{number:05d}"]
        indptr, indices, values = (block[name][:] for name in ("indptr", "indices", "values"))
        if "decimal_places" in block["values"].attrs:
            values = values / 10.0 ** block["values"].attrs["decimal_places"]
        for row in range(entry["stop"] - entry["start"]):
            own = slice(indptr[row], indptr[row + 1])
            dense[entry["start"] + row, indices[own]] = values[own]
        offsets, text = block["names/offsets"][:], block["names/text"][:].tobytes()
        names += [text[a:b].decode() for a, b in itertools.pairwise(offsets)]
    np.testing.assert_array_equal(dense, store.to_scipy().toarray())
    assert names == NAMES == store.feature_names
    assert set(root["targets"][:].tolist()) == {0, 1}


def test_large_arrays_are_cut_into_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("gdm_dask.ingestion.plan.LEAST_BLOCKS", 1)  # as if the set were large
    rng = np.random.default_rng(0)
    matrix = rng.random((20_000, 60))
    store = gdm_dask.ingest(matrix, tmp_path / "s", rng.choice([0, 1], 20_000))
    (block,) = store.manifest.blocks
    assert len(block.arrays["values"].crc) == 2
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "s", mode="r")["blocks/00000/values"][:], matrix.T)
    np.testing.assert_array_equal(store.load_rows(np.array([59])).values, matrix.T[59:])


def test_fingerprint_tells_contents_apart(tmp_path):
    matrix, labels = some_matrix(), some_labels(60)
    one = gdm_dask.ingest(matrix, tmp_path / "1", labels)
    same = gdm_dask.ingest(matrix.tocoo(), tmp_path / "2", labels, run_bytes=500)
    other = gdm_dask.ingest(matrix * 2, tmp_path / "3", labels)
    relabelled = gdm_dask.ingest(matrix, tmp_path / "4", -labels)
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, other.fingerprint, relabelled.fingerprint}) == 3


def test_provenance(tmp_path):
    provenance = make_store(tmp_path / "s", "sparse", "zstd").manifest.provenance
    assert provenance["source"]["format"] == "csr_matrix"
    assert provenance["parameters"]["codec"] == "zstd"
    assert provenance["versions"]["gdm_dask"] == gdm_dask.__version__
    assert provenance["skipped_lines"] == provenance["unseen_nonzeros"] == 0


@pytest.mark.parametrize("told", [None, True, False])
def test_equal_values_give_equal_bytes_in_any_thread(monkeypatch, told):
    """By default, blosc uses threads in the main thread, and orders the parts of a chunk by when they finish."""
    monkeypatch.setattr(blosc, "use_threads", told)
    values = np.random.default_rng(0).integers(0, 10**6, 1 << 20).astype(np.int32)

    def encoded(_=None):
        return encode(values, "lz4")[0].tobytes()

    expected = {encoded() for _ in range(5)}
    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(encoded, range(20))} == expected
    assert len(expected) == 1
    assert blosc.use_threads is told
