"""Any damage to any array of a store raises an error that names the place; it never reads as zeros."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from helpers.store_helpers import gdm, some_labels, some_matrix

import gdm_dask
from gdm_dask.errors import DamagedStore

LABELS = some_labels(60)
KINDS = ("sparse", "dense")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Intact stores of both kinds with names and ids, each with a sister store whose chunks differ."""
    folder = tmp_path_factory.mktemp("whole")
    for seed, name in enumerate(("", "sister ")):
        matrix = some_matrix(seed=seed)
        frame = pd.DataFrame(matrix.toarray(), columns=[f"{name}{k}" for k in range(40)])
        frame.index = [f"{name}sample {k}" for k in range(60)]
        gdm_dask.ingest(frame, folder / f"{name}dense", LABELS if not name else -LABELS, block_bytes=3000)
        frame = frame.astype(pd.SparseDtype(float, 0.0))
        gdm_dask.ingest(frame, folder / f"{name}sparse", LABELS if not name else -LABELS, block_bytes=1000)
    return folder


def first_chunk(folder, array):
    """Return the only chunk file of an array."""
    return next(path for path in sorted((folder / array / "c").rglob("*")) if path.is_file())


def arrays_of(kind):
    per_block = {"sparse": ("indptr", "indices"), "dense": ("counts",)}[kind]
    per_block += ("values", "means", "norms", "names/offsets", "names/text")
    return ["targets", "sample_ids/offsets", "sample_ids/text", *(f"blocks/00001/{name}" for name in per_block)]


def damage(how, path, array, other, sister):
    """Damage one chunk of the store at `path`."""
    chunk = first_chunk(path, array)
    data = bytearray(chunk.read_bytes())
    if how == "missing":
        chunk.unlink()
    elif how == "truncated":
        chunk.write_bytes(data[:-1])
    elif how == "empty":
        chunk.write_bytes(b"")
    elif how == "longer":
        chunk.write_bytes(data + b"\0")
    elif how == "swapped":
        second = first_chunk(path, other)
        chunk.write_bytes(second.read_bytes())
        second.write_bytes(data)
    elif how == "of another store":
        shutil.copy(first_chunk(sister, array), chunk)
    else:
        data[len(data) * int(how.split()[1]) // 100] ^= 1 << 3
        chunk.write_bytes(data)


FLIPPED = ["flipped 0", "flipped 50", "flipped 99"]
HOW = ["missing", "truncated", "empty", "longer", "swapped", "of another store", *FLIPPED]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("kind", "array"), [(kind, array) for kind in KINDS for array in arrays_of(kind)])
def test_damaged_chunks_are_found(tmp_path, whole, kind, array, how):
    shutil.copytree(whole / kind, tmp_path / "s")
    other = array.replace("00001", "00002") if "blocks" in array else "blocks/00002/means"
    damage(how, tmp_path / "s", array, other, whole / f"sister {kind}")
    store = gdm_dask.open_store(tmp_path / "s")
    with pytest.raises(DamagedStore, match=f"array '{array}' is damaged.*overwrite"):
        store.verify()
    with pytest.raises(DamagedStore, match=array):
        read_through(store, array)


def read_through(store, array):
    """Read like a user, so that the array is needed."""
    if array == "targets":
        return store.y
    if array.startswith("sample_ids"):
        return store.sample_ids
    if "names" in array:
        return store.feature_names
    if array.endswith("counts"):
        return store.counts
    with pytest.raises(DamagedStore, match=array):
        store.read_rows(np.arange(store.shape[0]))
    return store.read_block(1)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_of_an_array_is_found(tmp_path, whole, kind):
    for number, name in enumerate(arrays_of(kind)):
        path = tmp_path / str(number)
        shutil.copytree(whole / kind, path)
        metadata = path / name / "zarr.json"
        if number % 2:
            metadata.unlink()
        else:
            metadata.write_text(metadata.read_text().replace('"shape"', '"shapes"'))
        with pytest.raises(DamagedStore, match=f"zarr.json of array '{name}'"):
            gdm_dask.open_store(path).verify()


def edit(path, change):
    document = json.loads(path.read_text())
    change(document["attributes"]["gdm_dask"])
    path.write_text(json.dumps(document))


ROOTS = {
    "missing": (lambda root: root.unlink(), "there is no feature store here"),
    "no folder": (lambda root: shutil.rmtree(root.parent), "there is no feature store here"),
    "empty": (lambda root: root.write_bytes(b""), "damaged"),
    "garbled": (lambda root: root.write_bytes(b"\x00\xff{"), "damaged"),
    "not ours": (
        lambda root: root.write_text('{"zarr_format": 3, "node_type": "group"}'),
        "does not belong to a feature",
    ),
    "edited": (lambda root: edit(root, lambda body: body.update(nnz=1)), "manifest in zarr.json is damaged"),
    "edited block": (lambda root: edit(root, lambda body: body["blocks"].pop()), "manifest in zarr.json is damaged"),
    "newer": (lambda root: edit(root, lambda body: body.update(format_version=99)), "version 99.*reads up to 2"),
}


@pytest.mark.parametrize("how", ROOTS)
def test_damaged_roots_are_not_opened(tmp_path, whole, how, capsys):
    shutil.copytree(whole / "sparse", tmp_path / "s")
    change, message = ROOTS[how]
    change(tmp_path / "s" / "zarr.json")
    with pytest.raises(DamagedStore, match=message):
        gdm_dask.open_store(tmp_path / "s")
    for command in ("info", "verify"):
        code, _, err = gdm(capsys, command, tmp_path / "s")
        assert code == 2
        assert str(tmp_path / "s") in err.replace("\n", "")


def test_commands_tell_of_damage(tmp_path, whole, capsys):
    shutil.copytree(whole / "sparse", tmp_path / "s")
    assert gdm(capsys, "verify", tmp_path / "s")[0] == 0
    damage("flipped 50", tmp_path / "s", "blocks/00001/indices", None, None)
    code, out, err = gdm(capsys, "verify", tmp_path / "s")
    assert (code, out) == (2, "")
    assert "chunk 0 of array 'blocks/00001/indices' is damaged" in err
    damage("missing", tmp_path / "s", "targets", None, None)
    code, _, err = gdm(capsys, "info", tmp_path / "s")
    assert code == 2
    assert "array 'targets' is damaged: it is missing" in err
