"""Features as pixels: mean images of the classes, and pixels that are supports or affiliated (Figures 1 and 6)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gdm_dask.analysis.metrics import Labelled
from gdm_dask.errors import BadInput
from gdm_dask.model import FittedModel

MAX_PIXELS = 1 << 18


def parse_shape(text: str) -> tuple[int, int]:
    """Parse the rows and columns of an image.

    >>> parse_shape("28x28"), parse_shape("112 × 92")
    ((28, 28), (112, 92))
    """
    match = re.fullmatch(r"\s*(\d+)\s*[x\u00d7,]\s*(\d+)\s*", text)
    if match is None or "0" in match.groups():
        raise BadInput(f"the shape of an image must be rows x columns, such as 28x28, got {text!r}")
    return int(match.group(1)), int(match.group(2))


def check_shape(shape: tuple[int, int], n_features: int) -> None:
    """Refuse a shape with fewer pixels than features, or with too many pixels for a page."""
    pixels = shape[0] * shape[1]
    if pixels > MAX_PIXELS:
        raise BadInput(
            f"images of {shape[0]} x {shape[1]} are too large for a report, which holds {MAX_PIXELS:,} pixels"
        )
    if not pixels // 2 < n_features <= pixels:  # trailing pixels that are always zero are often missing
        raise BadInput(
            f"{n_features} features are not an image of {shape[0]} x {shape[1]} = {pixels} pixels. Pass --image-shape "
            "ROWSxCOLUMNS; features are pixels row by row, and only the last ones may be missing."
        )


def class_means(data: Labelled) -> np.ndarray:
    """Return the mean raw value of every feature in each class, (classes, n_features)."""
    member = data.members.astype(np.float64)
    counts = np.maximum(member.sum(axis=1), 1)
    sums = [(block.matrix() @ member.T).T for block in data.blocks()]
    means: np.ndarray = np.concatenate(sums, axis=1) / counts[:, None]
    return means


def gather_images(model: FittedModel, shape: tuple[int, int], data: Labelled | None) -> dict[str, Any]:
    """Return pixels that are supports or affiliated features, and mean images if `data` is given."""
    check_shape(shape, model.n_features_in_)
    affiliated: dict[int, int] = {}
    if model.affiliations_ is not None:
        position = {int(number): k for k, number in enumerate(model.support_features_)}
        table = model.affiliations_[model.affiliations_["owner"]]
        pairs = zip(table["feature"], table["support"], strict=True)
        affiliated = {int(f): position[int(s)] for f, s in pairs if f != s}
    images: dict[str, Any] = {"shape": list(shape), "n_pixels": model.n_features_in_}
    images["affiliated"] = [[feature, support] for feature, support in sorted(affiliated.items())]
    images["means"] = None
    if data is not None:
        means = class_means(data)
        low, high = float(means.min()), float(means.max())
        scale = 255.0 / (high - low) if high > low else 0.0
        images["means"] = np.rint((means - low) * scale).astype(int).tolist()
        images["range"] = [low, high]
    return images
