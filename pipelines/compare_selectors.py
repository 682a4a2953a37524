"""Compare GDM with FGM and L1-SVM at the same numbers of features: accuracy, redundancy rate, true groups found.

    python pipelines/compare_selectors.py synthetic [--seeds 10]
    GDM_DATA=/path/to/data python pipelines/compare_selectors.py mnist enron

Every method selects k features on the training part and is judged by the same linear SVM, refitted on those features
with standardised columns. L1-SVM gets the best of a grid of C *chosen on the test part*, which favours it; GDM and FGM
run with their defaults. FGM is the machine as published, without the correlation constraint (tau = 0).

`mnist` reads GDM_DATA/mnist/mnist_3v8.npz; `enron` reads GDM_DATA/enron_spam (text.bin.xz, index.npz) and uses byte
5-grams in rows of unit length.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.correlation import as_rows, block_redundancy_rate
from gdm_dask.refit import refit
from gdm_dask.synthetic import make_paper_data
from gdm_dask.text import byte_ngrams

L1_GRID = np.geomspace(1e-3, 30, 15)


@dataclass
class Problem:
    """A data set, split."""

    name: str
    X: np.ndarray | sp.csr_array
    y: np.ndarray
    X_test: np.ndarray | sp.csr_array
    y_test: np.ndarray
    sizes: tuple[int, ...]
    groups: list[np.ndarray] = field(default_factory=list)


def synthetic(seeds: int) -> Iterator[Problem]:
    """The paper's synthetic data."""
    for seed in range(seeds):
        data = make_paper_data(seed=seed)
        yield Problem("synthetic", data.X, data.y, data.X_test, data.y_test, (10, 50, 100), data.groups)


def data_folder(name: str) -> Path:
    """A folder below GDM_DATA."""
    folder = Path(os.environ.get("GDM_DATA", "")) / name
    if "GDM_DATA" not in os.environ or not folder.is_dir():
        sys.exit(f"set GDM_DATA to a folder that holds {name}/")
    return folder


def mnist(seeds: int) -> Iterator[Problem]:
    """MNIST, 3 against 8."""
    del seeds
    data = np.load(data_folder("mnist") / "mnist_3v8.npz")
    yield Problem("mnist 3 v 8", data["x_train"], data["y_train"], data["x_test"], data["y_test"], (50, 100))


def enron(seeds: int) -> Iterator[Problem]:
    """Enron mails, spam or not: byte 5-grams, 25,000 mails to train on."""
    del seeds
    folder = data_folder("enron_spam")
    index = np.load(folder / "index.npz")
    with lzma.open(folder / "text.bin.xz") as file:
        text = file.read()
    bounds = index["offset"].tolist()
    X, _ = byte_ngrams([text[a:b] for a, b in itertools.pairwise(bounds)], 5)
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = order[:25_000], order[25_000:]
    y = index["label"]
    yield Problem("enron 5-grams", X[train], y[train], X[test], y[test], (50, 100))


def judge(problem: Problem, features: np.ndarray) -> tuple[float, float]:
    """Test accuracy of the refitted SVM, and redundancy rate of the features."""
    rows = as_rows(problem.X[:, features])
    coef, intercept = refit(rows, np.where(problem.y > 0, 1.0, -1.0))
    decision = np.asarray(problem.X_test[:, features] @ coef).ravel() + intercept
    return float(np.mean((decision > 0) == (problem.y_test > 0))), block_redundancy_rate(rows)


def machine(problem: Problem, k: int, tau: float) -> np.ndarray:
    """Features that GDM (or FGM, with tau = 0) selects."""
    return GroupDiscoveryMachine(k, tau=tau, groups=False).fit(problem.X, problem.y).support_features_


def l1_path(problem: Problem) -> list[np.ndarray]:
    """Features of L1-SVM by decreasing |weight|, for every C of the grid; dense columns are standardised."""
    X = problem.X
    if not sp.issparse(X):
        deviation = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    ranked = []
    for C in L1_GRID if not sp.issparse(X) else L1_GRID * 10:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            weights = np.abs(
                LinearSVC(penalty="l1", dual=False, C=C, max_iter=300, tol=1e-3, random_state=0)
                .fit(X, problem.y)
                .coef_[0]
            )
        order = np.argsort(-weights, kind="stable")
        ranked.append(order[weights[order] > 0])
        if len(ranked[-1]) > 10 * max(problem.sizes):
            break
    return ranked


def n_groups(problem: Problem, features: np.ndarray) -> float:
    """True groups with a selected member."""
    return float(sum(np.isin(group, features).any() for group in problem.groups))


def compare(problem: Problem) -> dict[tuple[int, str], list[float]]:
    """(features, method) -> accuracy, redundancy rate, true groups, seconds."""
    table = {}
    path = l1_path(problem)
    for k in problem.sizes:
        for name, tau in (("GDM", 0.25), ("FGM", 0.0)):
            clock = time.perf_counter()
            features = machine(problem, k, tau)
            seconds = time.perf_counter() - clock
            table[k, name] = [*judge(problem, features), n_groups(problem, features), seconds]
        found = [ranked[:k] for ranked in path if len(ranked) >= k]
        best = max([*judge(problem, features), n_groups(problem, features), np.nan] for features in found)
        table[k, "L1-SVM, best C"] = best
    return table


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", choices=["synthetic", "mnist", "enron"])
    parser.add_argument("--seeds", type=int, default=10, help="generated sets of the synthetic data")
    options = parser.parse_args()
    for name in options.data:
        tables = []
        for problem in globals()[name](options.seeds):
            tables.append(compare(problem))
        print(f"\n{problem.name}, {len(tables)} set(s): {problem.X.shape[0]:,} x {problem.X.shape[1]:,}")
        print(f"{'features':>8}  {'method':<16}{'accuracy':>9}{'redundancy':>12}{'groups':>8}{'seconds':>9}")
        for k, method in tables[0]:
            accuracy, redundancy, groups, seconds = np.mean([table[k, method] for table in tables], axis=0)
            print(f"{k:>8}  {method:<16}{accuracy:>9.4f}{redundancy:>12.4f}{groups:>8.1f}{seconds:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
