"""A store, a model and a checkpoint that version 0.1.0 wrote stay readable, with the same results."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gdm_dask import GroupDiscoveryMachine, open_store
from gdm_dask.errors import BadInput

OLD = Path(__file__).parents[1] / "data" / "version_0_1"


def assert_same(values, expected):
    """Compare up to the rounding of another machine's linear algebra."""
    np.testing.assert_allclose(values, [float.fromhex(value) for value in expected], rtol=1e-7, atol=1e-12)


@pytest.fixture(scope="module")
def expected():
    return json.loads((OLD / "expected.json").read_text())


def test_the_store_opens_and_verifies(expected):
    store = open_store(OLD / "store")
    assert store.fingerprint == expected["fingerprint"]
    assert store.shape == (40, 80)
    store.verify()
    assert store.outputs().shape == (1, 80)
    assert store.y.tolist() == [store.classes[int(label > 0)] for label in store.outputs()[0]]


def test_the_model_predicts_the_same(expected):
    machine = GroupDiscoveryMachine.load(OLD / "model")
    assert machine.support_features_.tolist() == expected["support_features"]
    assert_same(machine.weights_, expected["weights"])
    assert_same(machine.decision_function(OLD / "store"), expected["decision"])
    assert machine.certified_share_ is None


def test_the_checkpoint_is_refused_by_name(tmp_path):
    """Version 0.1 took one cut per read; the present search cannot resume its checkpoints."""
    shutil.copy(OLD / "checkpoint.npz", tmp_path / "checkpoint.npz")
    with pytest.raises(BadInput, match=r"checkpoint was written by gdm_dask 0\.1.*--overwrite"):
        GroupDiscoveryMachine(4).fit(OLD / "store", checkpoint=tmp_path / "checkpoint.npz")
