"""How well a fitted machine does on a store."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

from gdm_dask.correlation import block_redundancy_rate
from gdm_dask.errors import BadInput
from gdm_dask.estimator import GroupDiscoveryMachine
from gdm_dask.store import FeatureStore


def evaluate(machine: GroupDiscoveryMachine, store: FeatureStore) -> dict[str, Any]:
    """Accuracy, balanced accuracy, AUC and redundancy rate of a machine on a store, with the sizes.

    AUC is None where the store has samples of one class only.
    """
    if [str(value) for value in store.classes] != [str(value) for value in machine.classes_]:
        raise BadInput(
            f"{store.url} has the classes {store.classes}, but the machine was fitted on {machine.classes_.tolist()}: "
            "ingest it with --like the training store"
        )
    decision = machine.decision_function(store)
    truth = store.labels.astype(int)
    predicted = np.where(decision > 0, 1, -1)
    both = len(np.unique(truth)) == 2
    members = 0 if machine.groups_ is None else len(np.unique(np.concatenate(list(machine.groups_.values()))))
    return {
        "accuracy": float(accuracy_score(truth, predicted)),
        "balanced_accuracy": float(balanced_accuracy_score(truth, predicted)) if both else None,
        "auc": float(roc_auc_score(truth, decision)) if both else None,
        "redundancy_rate": block_redundancy_rate(store.load_rows(machine.support_features_)),
        "n_samples": store.shape[1],
        "n_features": store.shape[0],
        "n_supports": len(machine.support_features_),
        "n_affiliated": max(0, members - len(machine.support_features_)),
    }
