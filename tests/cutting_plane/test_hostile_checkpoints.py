"""Untrusted checkpoints: a fit resumes from them, or an error names the file and the remedy."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from helpers.clusters import Stop, stop_after
from helpers.fuzz import FUZZ, change_somewhere, changed_bytes
from helpers.store_helpers import some_labels, some_matrix
from hypothesis import given
from hypothesis import strategies as st

import gdm_dask
from gdm_dask import FeatureStore, GroupDiscoveryMachine
from gdm_dask.cutting_plane.checkpoint import UnusableCheckpoint
from gdm_dask.pipeline.run_directory import RunDirectory


def machine() -> GroupDiscoveryMachine:
    return GroupDiscoveryMachine(C=1.0, cut_size=3, max_cuts=4, scheduler="synchronous")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> FeatureStore:
    folder = tmp_path_factory.mktemp("data")
    return gdm_dask.ingest(some_matrix(), folder / "s.zarr", some_labels(60), block_bytes=1000)


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("state") / "checkpoint.npz"
    with pytest.raises(Stop):
        machine().fit(data, checkpoint=path, callback=stop_after(2))
    with np.load(path) as arrays:
        return dict(arrays)


def packed(saved: dict[str, np.ndarray], document: object = None, save=np.savez, **changes: np.ndarray) -> bytes:
    arrays = saved | changes
    if document is not None:
        arrays["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def document_of(saved: dict[str, np.ndarray]) -> dict:
    return json.loads(saved["document"].tobytes())


def go_on(data: FeatureStore, path: Path, content: bytes) -> str:
    """Return the refusal of the file, or its path if a fit would accept it; from such numbers it may never end."""
    path.write_bytes(content)
    with mock.patch("gdm_dask.cutting_plane.fit.solve", side_effect=Stop):
        try:
            machine().fit(data, checkpoint=path)
        except UnusableCheckpoint as error:
            return str(error)
        except Stop:
            return str(path)
    raise AssertionError


def test_the_state_is_whole(data, saved, tmp_path) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(packed(saved, document_of(saved)))
    numbers = []
    machine().fit(data, checkpoint=path, callback=lambda iteration: numbers.append(iteration.number))
    assert numbers == [3, 4]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("0.duals", np.zeros((1, 59)), "duals must be finite"),
        ("0.duals", np.full((1, 60), np.nan), "duals must be finite"),
        ("0.weights", np.zeros((1, 2)), "scores must be finite"),
        ("0.gram_0", np.zeros((2, 2)), "gram must be finite"),
        ("0.active_0", np.zeros(2, np.uint8), "active must be finite"),
        ("0.scores", np.zeros((9, 9)), "scores must be finite"),
        ("0.covered", np.array([10**18]), r"features must be integers in \[0, 40\)"),
        ("0.working", np.array([-1]), r"features must be integers in \[0, 40\)"),
        ("0.bounds", np.zeros(2), "unpack"),
    ],
)
def test_arrays_that_do_not_fit(data, saved, tmp_path, name, array, message) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(packed(saved, **{name: array}))
    with pytest.raises(UnusableCheckpoint, match=rf"checkpoint\.npz: .*cannot be read \(.*{message}.*--overwrite"):
        machine().fit(data, checkpoint=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"supports": [10**18]}, "features must be integers"),
        ({"supports": [0.5]}, "features must be integers"),
        ({"cuts": [[39], [38]]}, "cuts must consist of supports"),
        ({"cuts": []}, "cuts must consist of supports"),
        ({"lower_bounds": ["a", "b"]}, ""),
        ({"upper_bounds": [1.0]}, "a pair for each cut"),
        ({"iterations": [{"number": 1}]}, "missing"),
    ],
)
def test_documents_that_do_not_fit(data, saved, tmp_path, change, message) -> None:
    document = document_of(saved)
    document["problems"]["0"] |= change
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(packed(saved, document))
    with pytest.raises(UnusableCheckpoint, match=rf"checkpoint\.npz: .*cannot be read \(.*{message}.*--overwrite"):
        machine().fit(data, checkpoint=path)


def test_a_small_file_of_large_arrays(data, saved, tmp_path) -> None:
    """In a file, zeros take a thousandth of their memory."""
    content = packed(saved, save=np.savez_compressed, zeros=np.zeros(1 << 22))
    assert "its arrays take 33.6 MB" in go_on(data, tmp_path / "checkpoint.npz", content)


def test_a_shape_that_is_not_there(data, saved, tmp_path) -> None:
    buffer = io.BytesIO(packed(saved))
    with zipfile.ZipFile(buffer, "a") as archive, archive.open("more.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**18,)})
    assert "not an array of shape (1000000000000000000,)" in go_on(data, tmp_path / "c.npz", buffer.getvalue())


def test_a_folder_in_its_place_can_be_overwritten(data, tmp_path, caplog) -> None:
    run = RunDirectory(tmp_path / "run")
    (run.checkpoint / "more").mkdir(parents=True)
    with pytest.raises(UnusableCheckpoint, match=r"checkpoint\.npz: .* \(it is a folder\).*--overwrite"):
        run.fit(machine(), data, resume=True)
    assert "continue with --resume" not in caplog.text
    assert run.fit(machine(), data, overwrite=True).n_cuts_ == 4
    assert not run.checkpoint.exists()


@FUZZ
@given(draw=st.data())
def test_any_document_is_gone_on_from_or_refused(data, saved, tmp_path, draw) -> None:
    document = document_of(saved)
    change_somewhere(draw, document)
    path = tmp_path / "checkpoint.npz"
    assert str(path) in go_on(data, path, packed(saved, document))


@FUZZ
@given(draw=st.data())
def test_any_bytes_are_gone_on_from_or_refused(data, saved, tmp_path, draw) -> None:
    path = tmp_path / "checkpoint.npz"
    assert str(path) in go_on(data, path, changed_bytes(draw, packed(saved)))


@FUZZ
@given(draw=st.data())
def test_any_arrays_are_gone_on_from_or_refused(data, saved, tmp_path, draw) -> None:
    name = draw.draw(st.sampled_from(sorted(set(saved) - {"document"})))
    array = saved[name]
    content = changed_bytes(draw, array.tobytes())
    other = np.frombuffer(content[: len(content) // array.itemsize * array.itemsize], array.dtype)
    if draw.draw(st.booleans()) and other.size >= array.size:
        other = other[: array.size].reshape(array.shape)
    path = tmp_path / "checkpoint.npz"
    assert str(path) in go_on(data, path, packed(saved, **{name: other}))
