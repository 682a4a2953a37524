"""A saved machine loads unchanged; damaged, missing or too new files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.instances import informative

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, load_model
from gdm_dask.errors import BadInput

X, Y = informative(30, 80, 2)
FRAME = pd.DataFrame(X.T, columns=[f"größe {j}" for j in range(30)])

MACHINES = {
    "plain": lambda: GroupDiscoveryMachine(tau=0.4, cut_size=3).fit(X.T, Y),
    "names": lambda: GroupDiscoveryMachine(n_features_to_select=4).fit(FRAME, np.where(Y > 0, "ja", "nein")),
    "certified": lambda: GroupDiscoveryMachine(n_features_to_select=4, certify=True).fit(X.T, Y),
    "three classes": lambda: GroupDiscoveryMachine(n_features_to_select=4).fit(X.T, np.arange(80) % 3),
    "numbers": lambda: GroupDiscoveryRegressor(n_features_to_select=4, epsilon=0.1).fit(X.T, X[:2].T + Y[:, None]),
    "no groups": lambda: GroupDiscoveryMachine(groups=False, max_cuts=2, matching="exact").fit(X.T, Y > 0),
    "numpy numbers": lambda: GroupDiscoveryMachine(
        n_features_to_select=np.int64(3), tau=np.float32(0.25), C=np.float64(10), cut_size=np.int32(2), tol=np.int8(0)
    ).fit(X.T, (Y > 0).astype(np.int8)),
}


@pytest.fixture(params=MACHINES)
def machine(request) -> GroupDiscoveryMachine:
    return MACHINES[request.param]()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    MACHINES["plain"]().save(tmp_path / "model")
    return tmp_path / "model"


def test_all_comes_back(machine: GroupDiscoveryMachine, tmp_path: Path) -> None:
    machine.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is type(machine)
    fitted = {name for name in vars(machine) if name.endswith("_")}
    assert {name for name in vars(loaded) if name.endswith("_")} == fitted
    for name in fitted - {"groups_", "affiliations_"}:
        one, other = getattr(machine, name), getattr(loaded, name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=name)
            assert (one.shape, one.dtype.kind) == (other.shape, other.dtype.kind)
        else:
            assert one == other, name
    assert loaded.get_params() == machine.get_params()
    if machine.groups_ is None:
        assert loaded.groups_ is None
        assert loaded.affiliations_ is None
    else:
        pd.testing.assert_frame_equal(loaded.affiliations_, machine.affiliations_, check_exact=True)
        assert {s: g.tolist() for s, g in loaded.groups_.items()} == {s: g.tolist() for s, g in machine.groups_.items()}
        assert list(loaded.groups_) == list(machine.groups_)
    given = FRAME if hasattr(machine, "feature_names_in_") else X.T
    np.testing.assert_array_equal(loaded.predict(given), machine.predict(given))
    np.testing.assert_array_equal(loaded.decision_values(given), machine.decision_values(given))
    np.testing.assert_array_equal(loaded.transform(given), machine.transform(given))


def test_files_hold_no_pickles(machine: GroupDiscoveryMachine, tmp_path: Path) -> None:
    machine.save(tmp_path / "model")
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["model.json", "model.npz"]

    def no_constants(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    document = json.loads((tmp_path / "model" / "model.json").read_text(), parse_constant=no_constants)
    assert document["format_version"] == 2
    with np.load(tmp_path / "model" / "model.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays)


def test_saving_again_replaces(saved: Path) -> None:
    machine = MACHINES["names"]()
    machine.save(saved)
    loaded = GroupDiscoveryMachine.load(saved)
    np.testing.assert_array_equal(loaded.support_features_, machine.support_features_)
    assert loaded.feature_names_in_.tolist() == list(FRAME.columns)


def test_a_file_in_place_of_the_folder_is_refused(saved: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.json is a file: choose a folder for the model"):
        GroupDiscoveryMachine.load(saved).save(saved / "model.json")


def test_only_a_fitted_machine_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        GroupDiscoveryMachine().save(tmp_path / "model")


def rewrite(path: Path, **changes) -> None:
    document = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(document | changes))


CHANGES = [
    (
        lambda path: rewrite(path, format_version=3),
        r"version 3, this software reads up to 2\. Install a newer",
    ),
    (lambda path: rewrite(path, format="something else"), "not a model of gdm_dask"),
    *(
        (lambda path, content=content: (path / "model.json").write_bytes(content), "model.json")
        for content in (b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"format": "gdm_dask model"}')
    ),
    *(
        (lambda path, damage=damage: replace(path / "model.npz", damage), "model.npz: the file is damaged")
        for damage in (lambda b: b[:-9], lambda b: b"", lambda b: b[:99] + bytes([b[99] ^ 1]) + b[100:])
    ),
    *((lambda path, name=name: (path / name).unlink(), "no fitted model here") for name in ("model.json", "model.npz")),
]


def replace(file: Path, change) -> None:
    file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_changed_files_are_refused(saved: Path, change, message: str) -> None:
    change(saved)
    with pytest.raises(BadInput, match=message):
        GroupDiscoveryMachine.load(saved)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: there is no fitted model here .* Make one with 'gdm fit'"):
        GroupDiscoveryMachine.load(tmp_path / "nowhere")


def test_a_model_of_the_other_class_is_refused(tmp_path: Path) -> None:
    MACHINES["numbers"]().save(tmp_path)
    with pytest.raises(BadInput, match="not a model of GroupDiscoveryMachine"):
        GroupDiscoveryMachine.load(tmp_path)
    MACHINES["plain"]().save(tmp_path)
    with pytest.raises(BadInput, match="not a model of GroupDiscoveryRegressor"):
        GroupDiscoveryRegressor.load(tmp_path)
