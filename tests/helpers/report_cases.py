"""Models for the tests of reports: a small fitted one, one with hostile names, and a very large made-up one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.cutting_plane.iteration import Iteration
from gdm_dask.model import Profile, set_target
from gdm_dask.store.targets import TwoClasses

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "\"'><b>bold</b>&amp;",
    "long " + "x" * 10_000,
    "\u202eright to left override",
    "\u05e9\u05dc\u05d5\u05dd \u0639\u0631\u0628\u064a",
    "\U0001f469\u200d\U0001f52c emoji \U0001f600",
    "line\nbreak\ttab",
    "separators \u2028 \u2029",
    "%%DATA%% ${window.hacked = 4} {{x}}",
    "\ud800 lone surrogate",
]


def grouped(seed: int = 0, n_samples: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Six informative signals with one, two or three noisy copies each, among noise; 40 features."""
    rng = np.random.default_rng(seed)
    signals = rng.normal(size=(n_samples, 6))
    y = np.where(signals @ [3.0, -2.5, 2.0, -1.5, 1.2, 1.0] + 0.3 * rng.normal(size=n_samples) > 0, "yes", "no")
    X = rng.normal(size=(n_samples, 40))
    for k, copies in enumerate((3, 2, 2, 3, 1, 1)):
        for copy in range(copies):
            X[:, 4 * k + copy] = signals[:, k] * (-1 if copy == 1 else 1) + 0.15 * rng.normal(size=n_samples)
    return X, y


def fitted(names: list[str] | None = None, **parameters: object) -> GroupDiscoveryMachine:
    """Fit a machine on `grouped` data; `names` are for the first features."""
    X, y = grouped()
    machine = GroupDiscoveryMachine(**{"n_features_to_select": 6, "scheduler": "synchronous", **parameters}).fit(X, y)
    if names is not None:
        shown = np.unique(np.concatenate([machine.support_features_, *machine.groups_.values()])).tolist()
        order = [*machine.support_features_.tolist(), *(f for f in shown if f not in machine.support_features_)]
        padded = [*names, *(f"feature {k}" for k in range(len(order)))]
        machine.names_ = dict(zip(order, padded[: len(order)], strict=True))
    return machine


def enormous(n_supports: int = 5000, largest: int = 100_000) -> GroupDiscoveryMachine:
    """Make up a fitted machine with thousands of supports and one huge group."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.2, n_supports), 50)
    sizes[7] = largest
    features = rng.permutation(2_000_000)[: sizes.sum()]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    machine = GroupDiscoveryMachine(n_features_to_select=n_supports)
    machine.n_features_in_ = 2_000_000
    set_target(machine, TwoClasses(("ham", "spam")))
    machine.support_features_ = features[starts]
    machine.included_, machine.variables_ = np.zeros(0, np.int64), {}
    machine.weights_ = np.sort(rng.exponential(size=n_supports))[::-1] * rng.choice([-1, 1], n_supports)
    machine.coef_, machine.intercept_ = machine.weights_[None], np.zeros(1)
    machine.output_weights_ = machine.weights_[None]
    rho = rng.uniform(0.75, 1, len(features)) * rng.choice([-1, 1], len(features))
    rho[starts] = 1.0
    support = np.repeat(machine.support_features_, sizes)
    machine.affiliations_ = pd.DataFrame({"support": support, "feature": features, "correlation": rho, "owner": True})
    parts = np.split(features, starts[1:])
    machine.groups_ = {int(group[0]): np.sort(group) for group in parts}
    machine.names_ = {int(feature): f"w{feature:x}" for feature in features}
    machine.lower_bounds_, machine.upper_bounds_ = np.linspace(0.1, 0.2, 20), np.linspace(0.6, 0.25, 20)
    machine.gap_, machine.converged_, machine.stopped_, machine.n_cuts_ = 0.2, False, "enough supports", 20
    machine.certified_share_ = None
    machine.C_, machine.C_path_ = 50.0, None
    machine.redundancy_rate_, machine.timings_ = 0.01, {"scores": 3.0, "master": 2.0, "total": 8.0}
    machine.counts_ = dict.fromkeys(
        ("passes", "tasks", "blocks_used", "blocks_read", "bytes_read", "rows_scanned", "rows_skipped"), 21
    )
    machine.history_ = [
        Iteration(
            t + 1, cut.tolist(), len(cut), 250 * (t + 1), 0.1, 0.1, 0.2, 0.5, 300, 300, 10**8,
            {"scores": 0.1, "matching": 0.1, "master": 0.1}, rng.normal(size=len(cut)).tolist(),
        )
        for t, cut in enumerate(np.array_split(machine.support_features_, 20))
    ]  # fmt: skip
    correlations = np.corrcoef(rng.normal(size=(500, 80)) + rng.normal(size=(1, 80))).astype(np.float32)
    frequency = rng.integers(0, 40_000, (2, n_supports))
    machine.profile_ = Profile(np.array([40_000, 60_000]), frequency, rng.random((2, n_supports)), correlations)
    return machine
