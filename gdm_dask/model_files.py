"""A fitted machine on disk: ``model.json`` for what is read, ``model.npz`` for the arrays. Nothing is pickled."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gdm_dask.errors import BadInput
from gdm_dask.machine_state import Iteration
from gdm_dask.profile import Profile
from gdm_dask.store.folder import write_whole
from gdm_dask.store.layout import pack_text, unpack_text

FORMAT = "gdm_dask model"
FORMAT_VERSION = 1

_ARRAYS = ("support_features_", "weights_", "coef_", "intercept_", "lower_bounds_", "upper_bounds_")
_SCALARS = ("n_features_in_", "gap_", "converged_", "stopped_", "n_cuts_", "redundancy_rate_", "timings_", "counts_")
_TABLE = ("support", "feature", "correlation", "owner")


def save(machine: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted machine; the JSON file comes last and holds the checksum of the arrays."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(machine, name) for name in _ARRAYS}
    if machine.affiliations_ is not None:
        arrays |= {f"affiliations.{name}": machine.affiliations_[name].to_numpy() for name in _TABLE}
    if hasattr(machine, "profile_"):
        arrays |= {f"profile.{name}": getattr(machine.profile_, name) for name in Profile.names()}
    if machine.names_:
        arrays["names.features"] = np.array(list(machine.names_))
        arrays |= {f"names.{key}": value for key, value in pack_text(list(machine.names_.values())).items()}
    if hasattr(machine, "feature_names_in_"):
        arrays |= {f"names_in.{key}": value for key, value in pack_text(list(machine.feature_names_in_)).items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    parameters = {name: plain(value) for name, value in machine.get_params().items()}
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "parameters": {name: value for name, value in parameters.items() if _is_plain(value)},
        "classes": [plain(value) for value in machine.classes_],
        **{name: getattr(machine, name) for name in _SCALARS},
        "history": [asdict(iteration) for iteration in machine.history_],
        "arrays_sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    write_whole(folder / "model.npz", buffer.getvalue())
    write_whole(folder / "model.json", json.dumps(document, indent=1).encode())


def plain(value: Any) -> Any:
    """A NumPy number as Python's own; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a machine; refuses what is damaged or of a newer format version."""
    folder = Path(path)
    try:
        document = json.loads((folder / "model.json").read_bytes())
        data = (folder / "model.npz").read_bytes()
    except OSError as error:
        raise BadInput(
            f"{folder}: there is no fitted model here ({error.strerror}). Make one with 'gdm fit'."
        ) from error
    except ValueError as error:
        raise BadInput(f"{folder / 'model.json'}: the file is damaged. Fit again.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadInput(f"{folder / 'model.json'}: not a model of gdm_dask")
    version = document.get("format_version")
    if not isinstance(version, int) or "arrays_sha256" not in document:
        raise BadInput(f"{folder / 'model.json'}: the file is damaged. Fit again.")
    if version > FORMAT_VERSION:
        raise BadInput(
            f"{folder}: the model has format version {version}, this software reads up to "
            f"{FORMAT_VERSION}. Install a newer gdm_dask."
        )
    if hashlib.sha256(data).hexdigest() != document["arrays_sha256"]:
        raise BadInput(f"{folder / 'model.npz'}: the file is damaged or of another model. Fit again.")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return _restore(cls, document, dict(arrays))


def _restore(cls: type, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    machine = cls(**document["parameters"])
    for name in _ARRAYS:
        setattr(machine, name, arrays[name])
    for name in _SCALARS:
        setattr(machine, name, document[name])
    machine.classes_ = np.array(document["classes"])
    machine.history_ = [Iteration(**iteration) for iteration in document["history"]]
    machine.groups_ = machine.affiliations_ = None
    if "affiliations.support" in arrays:
        table = pd.DataFrame({name: arrays[f"affiliations.{name}"] for name in _TABLE})
        machine.affiliations_ = table
        support, feature = arrays["affiliations.support"], arrays["affiliations.feature"]
        machine.groups_ = {int(k): np.sort(feature[support == k]) for k in machine.support_features_}
    if "profile.class_counts" in arrays:  # models of the first version have none
        machine.profile_ = Profile(**{name: arrays[f"profile.{name}"] for name in Profile.names()})
    machine.names_ = {}
    if "names.text" in arrays:
        texts = unpack_text(arrays["names.offsets"], arrays["names.text"])
        machine.names_ = dict(zip(arrays["names.features"].tolist(), texts, strict=True))
    if "names_in.text" in arrays:
        texts = unpack_text(arrays["names_in.offsets"], arrays["names_in.text"])
        machine.feature_names_in_ = np.array(texts, dtype=object)
    return machine
