"""Quality of selections for several classes and for numbers, against other selectors. See `frame` for the options.

One judge for all: a model on the selected features of the training set, and its accuracy or R2 on the test set. For
classes it is the package's refit, an SVM for each class with a fixed C. For numbers it is a ridge regression whose
strength five folds of the training set choose, as they choose the C of the judge in the wide suite: a fixed strength
overfits where there are few samples, so that the judge's noise hides the selections.

Methods with a penalty instead of a number of features take the k largest weights of a model with at least k features;
of five such models, the one that is best *on the test set* counts, which favours the peer. For lasso, the first model
with k features is compared, too. GDM runs with its defaults.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from frame import Benchmark, Line, Results, main
from sklearn.linear_model import Lasso, MultiTaskLasso
from sklearn.metrics import r2_score
from sklearn.svm import LinearSVC, l1_min_c
from target_sets import CLASSES, NUMBERS, Split

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor
from gdm_dask.cutting_plane.svm import refit
from gdm_dask.features.correlation import as_rows, block_redundancy_rate
from gdm_dask.settings.tasks import task_of
from gdm_dask.store.targets import infer_target
from pipelines.paper.columns import best_first, standardised
from pipelines.paper.criteria import tuned_ridge
from pipelines.paper.methods import f_classif, mrmr

SETS = CLASSES | NUMBERS
CLASS_SIZES, NUMBER_SIZES = (50, 100), (20, 50, 100)
GDM, L1, LASSO, MRMR, F_TEST = "gdm", "L1 one-vs-rest", "lasso", "mRMR", "f_classif"
#: Smallest test accuracy with 50 and with 100 features.
WANTED = {"mnist": (0.880, 0.898), "usps": (0.898, 0.910), "orl": (0.915, 0.945), "newsgroups": (0.510, 0.605)}
#: Smallest share of the sets with numbers and numbers of features for which GDM is ahead of lasso.
AHEAD = 2 / 3
#: Models of a path: the first with this many times k features; and the factor from one strength to the next.
REACHES, GROWTH, MAX_STEPS = (1, 2, 4, 8, 16), 1.25, 60
#: Columns of sparse data that mRMR, which needs dense ones, chooses from: the best by the F test.
MRMR_COLUMNS = 5000

#: Yields, for each number of features, selections to judge; the best counts.
Select = Callable[[Split, Iterable[int]], Iterator[tuple[int, np.ndarray]]]


def judge(split: Split, features: np.ndarray, task: str) -> tuple[float, float]:
    """Return the test score of a selection, and its redundancy rate."""
    rows = as_rows(split.X[:, features])
    if task == "regression":
        predicted = tuned_ridge(split.X[:, features], split.y, split.X_test[:, features])
        return r2_score(split.y_test, predicted), block_redundancy_rate(rows)
    target = infer_target(split.y, task)
    coef, intercept = refit(rows, target.encode(split.y), task_of(target.kind).refit)
    values = (split.X_test[:, features].astype(np.float64) @ coef.T).T + intercept[:, None]
    return target.score(target.encode(split.y_test), np.ascontiguousarray(values)), block_redundancy_rate(rows)


def cell(select: Select, data: Any) -> dict[str, Any]:
    """Select and judge on all splits of a set; returns means by number of features, also of the first selections."""
    task, sizes = ("classification", CLASS_SIZES) if data.name in CLASSES else ("regression", NUMBER_SIZES)
    found: dict[str, list[tuple[float, float]]] = {}
    began = time.perf_counter()
    for seed in range(SETS[data.name].n_splits):
        split = SETS[data.name].split(seed)
        judged: dict[int, list[tuple[float, float]]] = {k: [] for k in sizes}
        for k, features in select(split, sizes):
            judged[k].append(judge(split, features, task))
        for k, results in judged.items():
            found.setdefault(str(k), []).append(max(results))
            found.setdefault(f"{k} first", []).append(results[0])
    means = {name: np.mean(results, axis=0).round(4).tolist() for name, results in found.items()}
    return {"seconds": time.perf_counter() - began} | means


def gdm(split: Split, sizes: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Select with the defaults."""
    estimator = GroupDiscoveryMachine if infer_target(split.y).kind == "classes" else GroupDiscoveryRegressor
    for k in sizes:
        yield k, estimator(k, groups=False).fit(split.X, split.y).support_features_


def nested(select: Callable[..., np.ndarray], split: Split, sizes: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Take the first features of a ranking."""
    kept = np.arange(split.X.shape[1])
    if select is mrmr.select and sp.issparse(split.X):
        kept = f_classif.select(split.X, split.y, MRMR_COLUMNS)
    order = kept[select(split.X[:, kept], np.unique(split.y, return_inverse=True)[1], max(sizes))]
    yield from ((k, order[:k]) for k in sizes)


def along(models: Iterable[np.ndarray], split: Split, sizes: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield selections of each size from weights, (features, outputs), with more and more features."""
    most = min(split.X.shape) // 2
    waiting = sorted({(max(k, min(reach * k, most)), k) for k in sizes for reach in REACHES})
    for weights in models:
        strengths = np.linalg.norm(weights, axis=1)
        order = best_first(strengths)[: np.count_nonzero(strengths)]
        while waiting and len(order) >= waiting[0][0]:
            yield (k := waiting.pop(0)[1]), order[:k]
        if not waiting:
            return
    yield from ((k, order[:k]) for _, k in waiting)  # the path ended before: with all the features that it has


def l1_one_vs_rest(split: Split, sizes: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Rank features by the norm of their weights over the classes of an L1-SVM."""
    X = standardised(split.X)
    strengths = l1_min_c(X, split.y, loss="squared_hinge") * GROWTH ** np.arange(1, MAX_STEPS)
    machines = (LinearSVC(penalty="l1", dual=False, C=C, tol=1e-2, random_state=0) for C in strengths)
    yield from along((machine.fit(X, split.y).coef_.T for machine in machines), split, sizes)


def lasso(split: Split, sizes: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Rank features by their weights in a lasso, or by the norm over the outputs of a multi-task lasso."""
    X = standardised(split.X)
    X = sp.csc_array(X) if sp.issparse(X) else np.asfortranarray(X)
    y = (split.y - split.y.mean(axis=0)) / split.y.std(axis=0)
    largest = np.linalg.norm((X.T @ y).reshape(X.shape[1], -1), axis=1).max() / len(y)
    machine = (Lasso if y.ndim == 1 else MultiTaskLasso)(warm_start=True, max_iter=3000, tol=1e-3)

    def models() -> Iterator[np.ndarray]:
        for alpha in largest * GROWTH ** -np.arange(1.0, MAX_STEPS):
            yield machine.set_params(alpha=alpha).fit(X, y).coef_.reshape(-1, X.shape[1]).T.copy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that end before the last digits are settled
        yield from along(models(), split, sizes)


def lines(results: Results) -> Iterator[Line]:
    """Compare accuracies with those wanted and with each peer's; count the sets with numbers ahead of lasso."""
    figures = {cell: result for cell, result in results.items() if result["status"] == "ok"}
    for name, wanted in WANTED.items():
        for k, least in zip(map(str, CLASS_SIZES), wanted, strict=True):
            if (name, GDM) not in figures:
                continue
            mine = figures[name, GDM][k][0]
            yield Line(f"{name}, {k} features", mine, least, measure="accuracy", digits=4)
            for peer in (L1, MRMR, F_TEST):
                if (name, peer) in figures:
                    lead = mine - figures[name, peer][k][0]
                    yield Line(f"{name}, {k} features, minus {peer}", lead, 0.0, measure="accuracy", digits=4)
    names = [name for name in NUMBERS if (name, GDM) in figures and (name, LASSO) in figures]
    for which, key in (("with k features", "{} first"), ("at its best on the test set", "{}")) if names else ():
        mine, other = (
            np.array([[figures[name, one][key.format(k)] for k in NUMBER_SIZES] for name in names])
            for one in (GDM, LASSO)
        )  # (sets, numbers of features, R2 and redundancy rate)
        ahead = mine[:, :, 0] > other[:, :, 0]
        counts = " / ".join(map(str, ahead.sum(axis=0)))
        text = f"R2 ahead of lasso {which} on {counts} of {len(names)} sets with {NUMBER_SIZES} features"
        yield Line(text, ahead.mean(), AHEAD, measure="share", digits=3)
        rates = [found[:, :, 1].mean() for found in (mine, other)]
        text = f"mean redundancy rate {rates[0]:.3f}, of lasso {which} {rates[1]:.3f}"
        yield Line(text, rates[0] / rates[1], at_most=1.0)


def peers_of(name: str) -> tuple[str, ...]:
    """Return the methods that compete on a set."""
    return (L1, MRMR, F_TEST) if name in CLASSES else (LASSO,)


METHODS: dict[str, Select] = {
    L1: l1_one_vs_rest,
    LASSO: lasso,
    MRMR: partial(nested, mrmr.select),
    F_TEST: partial(nested, f_classif.select),
}
BENCHMARK = Benchmark(
    "targets",
    [name for name, one in SETS.items() if one.is_available],
    {GDM: partial(cell, gdm)},
    {name: partial(cell, select) for name, select in METHODS.items()},
    lines,
    stored=False,
    competes=lambda name, method: method == GDM or method in peers_of(name),
)

if __name__ == "__main__":
    for missing in SETS.keys() - set(BENCHMARK.datasets):
        print(f"skipping {missing}: set GDM_DATA to the folder that holds {SETS[missing].file}")
    main(BENCHMARK)
