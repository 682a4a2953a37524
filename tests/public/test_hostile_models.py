"""Untrusted models with valid checksums load, or an error names them."""

import hashlib
import io
import json
import shutil
import zipfile

import numpy as np
import pytest
from helpers.fuzz import FUZZ, change_somewhere, changed_bytes
from helpers.instances import informative
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.errors import BadInput

X, Y = informative(12, 40, 2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    GroupDiscoveryMachine(3, scheduler="synchronous").fit(X.T, Y).save(path)
    return path


def rewritten(saved, target, document=None, arrays=None, content=None):
    """Write a model with other files and a matching checksum."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if arrays is not None:
        with np.load(saved / "model.npz") as there:
            kept = {name: array for name, array in {**there, **arrays}.items() if array is not None}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **kept)
        content = buffer.getvalue()
    content = (saved / "model.npz").read_bytes() if content is None else content
    there = json.loads((saved / "model.json").read_bytes()) | (document or {})
    there["arrays_sha256"] = hashlib.sha256(content).hexdigest()
    (target / "model.npz").write_bytes(content)
    (target / "model.json").write_text(json.dumps(there))
    return target


def use(path):
    """Load a model and use it; returns the refusal, or else the path."""
    try:
        model = GroupDiscoveryMachine.load(path)
    except BadInput as error:
        return str(error)
    if model.n_features_in_ == X.shape[0]:
        model.predict(X.T)
        model.transform(X.T)
    model.name_of(0)
    return str(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"document": {"parameters": {"unknown": 1}}}, "unexpected keyword"),
        ({"document": {"parameters": 3}}, "mapping"),
        ({"document": {"target": None}}, "not a target"),
        ({"document": {"format_version": 1}}, "classes"),
        (
            {"document": {"target": {"kind": "classes", "classes": [1, 2, 3]}}},
            "'output_weights_' is float64",
        ),
        ({"document": {"n_features_in_": "12"}}, "str"),
        ({"document": {"n_features_in_": 1}}, "has features that are not among 1"),
        ({"document": {"timings_": []}}, r"timings_ is \[\]"),
        ({"document": {"history": [{"number": 1}]}}, "missing"),
        ({"arrays": {"weights_": np.zeros(2)}}, r"'weights_' is float64 of shape \(2,\)"),
        ({"arrays": {"coef_": np.zeros((1, 3), complex)}}, "'coef_' is complex128"),
        ({"arrays": {"support_features_": np.array([0, 1, 10**18])}}, "has features that are not among 12"),
        ({"arrays": {"coef_": None}}, "coef_"),
        ({"arrays": {"more": np.zeros(2)}}, "more"),
        ({"content": b"PK\x05\x06" + bytes(18)}, "weights_"),
        ({"content": b"rubbish"}, "it is not a complete .npz file"),
    ],
)
def test_malformed_models_are_named(saved, tmp_path, changes, message):
    path = rewritten(saved, tmp_path / "model", **changes)
    with pytest.raises(BadInput, match=rf"model: the model is malformed: .*{message}"):
        GroupDiscoveryMachine.load(path)


def test_a_small_file_of_large_arrays(saved, tmp_path):
    """In a file, zeros take a thousandth of their memory."""
    buffer = io.BytesIO((saved / "model.npz").read_bytes())
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as packed, packed.open("names.text.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (1 << 27,)})
        for _ in range(1 << 7):
            member.write(bytes(1 << 20))
    path = rewritten(saved, tmp_path / "model", content=buffer.getvalue())
    with pytest.raises(BadInput, match=r"malformed: its arrays take 134 MB, more than 67\.1 MB"):
        GroupDiscoveryMachine.load(path)


def test_a_shape_that_is_not_there(saved, tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**18,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("weights_.npy", header.getvalue())
    path = rewritten(saved, tmp_path / "model", content=buffer.getvalue())
    with pytest.raises(BadInput, match=r"weights_\.npy is not an array of shape \(1000000000000000000,\)"):
        GroupDiscoveryMachine.load(path)


def test_a_model_names_no_scheduler(saved, tmp_path):
    assert "scheduler" not in json.loads((saved / "model.json").read_bytes())["parameters"]
    path = rewritten(saved, tmp_path / "model", {"parameters": {"tau": 0.3, "scheduler": "tcp://203.0.113.1:8786"}})
    model = GroupDiscoveryMachine.load(path)
    assert (model.scheduler, model.tau) == (None, 0.3)


def test_a_url_is_no_place_for_a_model(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="must be a local folder, got s3://bucket/model"):
        GroupDiscoveryMachine.load(saved).save("s3://bucket/model")
    assert list(tmp_path.iterdir()) == []


@FUZZ
@given(data=st.data())
def test_any_document_is_loaded_or_refused(saved, tmp_path, data):
    document = json.loads((saved / "model.json").read_bytes())
    change_somewhere(data, document)
    assert str(tmp_path) in use(rewritten(saved, tmp_path / "model", document))


@FUZZ
@given(data=st.data())
def test_any_arrays_are_loaded_or_refused(saved, tmp_path, data):
    content = changed_bytes(data, (saved / "model.npz").read_bytes())
    assert str(tmp_path) in use(rewritten(saved, tmp_path / "model", content=content))
