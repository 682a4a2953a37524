"""Targets for regression: one or several numbers per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.store.targets import Target, as_values, refuse_text


@dataclass(frozen=True)
class Numbers(Target):
    """Numbers to predict, one or several per sample. Each output is scaled to mean 0 and standard deviation 1.

    Examples
    --------
    >>> target = Numbers.of([1.0, 3.0])
    >>> target.encode([1.0, 3.0, 4.0]).tolist(), target.decode(np.array([[-1.0, 0.5]])).tolist()
    ([[-1.0, 1.0, 2.0]], [1.0, 2.5])
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def of(cls, y: Any, where: str = "y") -> Numbers:
        """Build the target from the means and standard deviations of numbers; refuse a constant output."""
        values = _columns(y, where, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            means, scales = values.mean(axis=0), values.std(axis=0)
        for output, scale in enumerate(scales):
            column = f" in column {output}" if len(scales) > 1 else ""
            if not np.isfinite(scale):
                raise BadInput(f"{where}: the numbers{column} are too large: divide them first")
            if (values[:, output] == values[0, output]).all():
                raise BadInput(f"{where}: every sample has the number {float(values[0, output])!r}{column}")
            if scale < np.finfo(float).tiny:
                raise BadInput(f"{where}: the numbers{column} differ too little: multiply them first")
        return cls(tuple(means.tolist()), tuple(scales.tolist()))

    kind: ClassVar[str] = "numbers"

    @property
    def n_outputs(self) -> int:
        """One output per number of a sample."""
        return len(self.means)

    def outputs(self, packed: np.ndarray) -> np.ndarray:
        """Return standardised numbers, one row per output."""
        return np.ascontiguousarray(((packed - np.array(self.means)) / np.array(self.scales)).T)

    def decode(self, F: np.ndarray) -> np.ndarray:
        """Return numbers in their original units: (n,) for one output, (n, K) for several."""
        return self.unpack((F * np.array(self.scales)[:, None] + np.array(self.means)[:, None]).T)

    def measures(self, y: Any, F: np.ndarray) -> dict[str, float | None]:
        """Return R2 and root mean squared error, averaged over the outputs; R2 only if every output varies."""
        truth = self.pack(y)
        errors = np.mean((truth - self.decode(F).reshape(truth.shape)) ** 2, axis=0)
        variances = truth.var(axis=0)
        r2 = float(np.mean(1 - errors / variances)) if (variances > 0).all() else None
        return {"r2": r2, "rmse": float(np.mean(np.sqrt(errors)))}

    def weighed(self, Y: np.ndarray, weights: np.ndarray) -> tuple[Target, np.ndarray]:
        """Standardise with sample weights: a sample of weight 2 counts as two.

        >>> target, Y = Numbers((0.0,), (1.0,)).weighed(np.array([[1.0, 3.0, 9.0]]), np.array([2.0, 2.0, 0.0]))
        >>> target, Y.tolist()
        (Numbers(means=(2.0,), scales=(1.0,)), [[-1.0, 1.0, 7.0]])
        """
        means = Y @ weights / weights.sum()
        deviations = np.sqrt((Y - means[:, None]) ** 2 @ weights / weights.sum())
        if not (deviations > np.finfo(float).tiny).all():
            raise BadInput("y: all samples with a positive weight have the same number")
        own, scales = np.array(self.means), np.array(self.scales)
        same = Numbers(tuple((own + scales * means).tolist()), tuple((scales * deviations).tolist()))
        return same, (Y - means[:, None]) / deviations[:, None]

    def in_units(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[Target, np.ndarray, np.ndarray]:
        """Convert a model of standardised numbers to their original units.

        >>> target, coef, intercept = Numbers((5.0,), (2.0,)).in_units(np.array([[3.0]]), np.array([1.0]))
        >>> target, coef.tolist(), intercept.tolist()
        (Numbers(means=(0.0,), scales=(1.0,)), [[6.0]], [7.0])
        """
        means, scales = np.array(self.means), np.array(self.scales)
        same = Numbers((0.0,) * len(means), (1.0,) * len(means))
        return same, coef * scales[:, None], intercept * scales + means

    def score(self, Y: np.ndarray, F: np.ndarray) -> float:
        """Return R2, averaged over the outputs.

        >>> Numbers((0.0,), (1.0,)).score(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 2.0, 4.0]]))
        0.5
        """
        variances = np.maximum(Y.var(axis=1), np.finfo(float).tiny)
        return float(np.mean(1.0 - np.mean((Y - F) ** 2, axis=1) / variances))

    def sides(self, weights: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return small and large numbers as sides; with several outputs, the output with the largest weight."""
        if len(weights) == 1:
            return ["small", "large"], (weights[0] > 0).astype(np.int64)
        return [f"output {number}" for number in range(len(weights))], np.argmax(np.abs(weights), axis=0)

    def members(self, Y: np.ndarray) -> np.ndarray:
        """Return all samples, as one class."""
        return np.ones((1, Y.shape[1]), bool)

    def pack(self, y: Any, where: str = "y", first_sample: int = 0) -> np.ndarray:
        """Return numbers as float64 of shape (n, K)."""
        values = _columns(y, where, first_sample)
        if values.shape[1] != len(self.means):
            raise BadInput(f"{where}: expected {len(self.means)} numbers per sample, got {values.shape[1]}")
        return values

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Return numbers of shape (n,) for one output, (n, K) for several."""
        return packed[:, 0] if len(self.means) == 1 else packed

    def problem_of(self, packed: np.ndarray, n_samples: int) -> str | None:
        """Require finite numbers, one per output and sample."""
        if packed.shape != (n_samples, len(self.means)) or packed.dtype != np.float64:
            return "there are not as many numbers per sample as outputs"
        return None if np.isfinite(packed).all() else "a number is not finite"

    def to_json(self) -> dict[str, Any]:
        """Return kind, means and scales."""
        return {"kind": "numbers", "means": list(self.means), "scales": list(self.scales)}


def _columns(y: Any, where: str, first_sample: int) -> np.ndarray:
    """Return numbers as float64 of shape (n, K)."""
    values = as_values(y, where, first_sample)
    refuse_text(values, where)
    return np.ascontiguousarray(values.astype(np.float64).reshape(len(values), -1))
