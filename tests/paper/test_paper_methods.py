"""Each method of the paper's comparison, on examples worked by hand from its definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from skrebate import ReliefF

from gdm_dask.errors import BadInput
from gdm_dask.features.correlation import feature_correlations
from pipelines.paper import registry
from pipelines.paper.cell import choose
from pipelines.paper.columns import standardised, varying
from pipelines.paper.criteria import judge
from pipelines.paper.methods import _path, gdm_rule, l1_svm, relieff
from pipelines.paper.methods.rcfs import clusters, laplacian_scores
from pipelines.paper.problem import Problem, data_file, split
from pipelines.paper.suites import PAPER, SUITES

PEERS = ["f_classif", "l1_logistic"]
MACHINES = ["gdm_before", "gdm_default", "gdm_merged", "gdm_one_cut", "gdm_rule", "gdm_tau_0"]
TEN = ["fcbf", "fgm", "gdm", "gdm_affiliated", "l1_svm", "method_a", "mrmr", "rcfs", "relieff", "svm_rfe"]

# Features of +1 and -1 over 32 samples, each row once with NOISE = +1 and once with -1: whatever depends on the rows
# alone gives NOISE the weight 0. BETTER is wrong once in 8, GOOD is wrong twice in 8, in other rows.
Y = np.tile(np.repeat([1, -1], 8), 2)
BETTER = Y * np.tile([-1, 1, 1, 1, 1, 1, 1, 1], 4)  # correlation with y 3/4
GOOD = Y * np.tile([1, -1, -1, 1, 1, 1, 1, 1], 4)  # 1/2
NOISE = np.repeat([1, -1], 16)  # 0


def select(method: str, columns: list[np.ndarray], k: int, *truth: list[int], y: np.ndarray = Y) -> list[int]:
    X = np.column_stack(columns).astype(np.float64)
    return registry.method(method).select(X, y, k, *(np.array(features) for features in truth)).tolist()


def test_all_methods_are_there() -> None:
    assert registry.method_names() == sorted([*TEN, *PEERS, *MACHINES, "skglm_mcp"])
    assert sorted(SUITES[PAPER].methods) == TEN
    assert set(registry.method_names()) == {
        name for suite in SUITES.values() for name in suite.methods + suite.ablations
    }
    with pytest.raises(BadInput, match="choose from f_classif, fcbf, fgm"):
        registry.method("lasso")


class TestInformation:
    """Three states over 8 samples; every feature but the last has IG 1/2 with y, H = 3/2 and so SU = 1 / (1 + 3/2)."""

    y = np.repeat([1, -1], 4)
    first = np.array([1, 1, 0, 0, -1, -1, 0, 0])
    between = np.array([0, 0, 1, 1, 0, 0, -1, -1])  # IG 1 with first: tells when it is 0
    apart = np.array([1, 0, 1, 0, -1, 0, -1, 0])  # IG 1/4 with first and with between
    nothing = np.array([1, -1, 0, 0, 1, -1, 0, 0])  # IG 0 with y
    columns = (first, -first, between, apart, nothing)

    def test_mrmr(self) -> None:
        # After first: 1/2 - 3/2 for its copy, 1/2 - 1 for between, 1/2 - 1/4 for apart.
        # After apart: 1/2 - (3/2 + 1/4) / 2 for the copy, 1/2 - (1 + 1/4) / 2 for between.
        assert select("mrmr", list(self.columns[:4]), 4, y=self.y) == [0, 3, 2, 1]
        assert select("mrmr", list(self.columns[:4]), 2, y=self.y) == [0, 3]

    def test_fcbf(self) -> None:
        # SU with first: 1 for the copy and 2/3 for between, more than their 2/5 with y; 1/6 for apart, less than it.
        assert select("fcbf", list(self.columns), 5, y=self.y) == [0, 3]
        assert select("fcbf", list(self.columns), 1, y=self.y) == [0]


def test_relieff() -> None:
    # With fewer than 10 samples in a class all are neighbours. y itself: misses differ 1, hits 0. `agrees` (6 of 8):
    # 3/4 - 1/3 for three of four samples, 1/4 - 1 for the fourth, 1/8 in the mean. `nothing`: 1/2 - 2/3.
    y = np.repeat([1, -1], 4)
    agrees = np.array([1, 1, 1, -1, -1, -1, -1, 1])
    nothing = np.array([1, -1, 1, -1, 1, -1, 1, -1])
    assert select("relieff", [nothing, agrees, y], 3, y=y) == [2, 1, 0]


def test_relieff_has_the_scores_of_skrebate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12)) * rng.uniform(0.1, 9, 12)
    y = np.where(X[:, 3] / X[:, 3].std() + X[:, 7] / X[:, 7].std() + rng.standard_normal(60) > 0, 1, -1)
    monkeypatch.setattr(relieff, "CHUNK", 500)  # several pieces
    expected = ReliefF(n_features_to_select=2, n_neighbors=relieff.N_NEIGHBORS).fit(X, y).feature_importances_
    np.testing.assert_allclose(relieff.relieff_scores(X, y), expected, rtol=1e-9, atol=1e-12)


def test_rcfs() -> None:
    # Laplacian scores are 1 - rho^2 with y: 1, 7/16, 7/16, 3/4. The second and third are one cluster, the first of them
    # stands for it; GOOD and BETTER correlate with 1/4.
    columns = [NOISE, BETTER, -2 * BETTER, GOOD]
    X = np.column_stack(columns).astype(float)
    np.testing.assert_allclose(laplacian_scores(X, Y), [1, 7 / 16, 7 / 16, 3 / 4])
    numbers = clusters(X)
    assert numbers[1] == numbers[2]
    assert len(set(numbers)) == 3
    assert select("rcfs", columns, 4) == [1, 3, 0]


def test_rcfs_takes_copies_for_one_feature_however_they_are_rounded() -> None:
    features = np.random.default_rng(0).integers(0, 256, (50, 8)).astype(np.float32)
    X = np.hstack([features, features, features])
    assert np.abs(feature_correlations(X)).max() > 1  # by rounding; a distance must not become negative
    assert len(set(clusters(X))) == 8


def test_svm_rfe() -> None:
    # With losses l_i, w_j = 2 C sum of l_i y_i x_ij: largest for y itself, whose y_i x_i is never below 1; 0 for NOISE.
    assert select("svm_rfe", [GOOD, NOISE, Y], 3) == [2, 0, 1]
    assert select("svm_rfe", [GOOD, NOISE, Y], 1) == [2]


@pytest.mark.parametrize("name", ["l1_svm", "l1_logistic"])
def test_l1(name: str) -> None:
    # The first to get a weight is the one with the largest |sum of y_i x_ij|; NOISE never gets one.
    columns = [NOISE, GOOD, BETTER]
    assert select(name, columns, 1) == [2]
    assert select(name, columns, 2) == [2, 1]
    assert select(name, columns, 3) == [2, 1]


def test_f_classif() -> None:
    # F grows with |rho|, which is 0, 1/2 and 3/4; a copy of y is constant within each class.
    assert select("f_classif", [NOISE, GOOD, BETTER], 3) == [2, 1, 0]
    assert select("f_classif", [GOOD, Y], 1) == [1]


def test_c_by_rule() -> None:
    assert gdm_rule.rule(np.repeat([-1, 1], 500), 20) == pytest.approx(0.06 * 1000 / 20)
    assert gdm_rule.rule(np.repeat([-1, 1], [990, 10]), 20) == pytest.approx(0.06 * 4 * 9.9 / 20)  # a rare class counts
    assert (gdm_rule.rule(Y, 1000), gdm_rule.rule(np.repeat([-1, 1], 10**5), 1)) == (0.01, 30.0)


def test_l1_svm_leaves_out_what_corrects_nothing() -> None:
    # All losses stay equal with y alone, so the slope of GOOD stays half of it, below the penalty.
    assert select("l1_svm", [GOOD, Y], 2) == [1]


def test_the_path_of_l1_svm() -> None:
    """One path equals separate runs for each number of features; only training data chooses the reach."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 40))
    y = np.where(X[:, :6] @ [3, 2.5, 2, 1.5, 1, 0.5] > 0, 1, -1)
    steps = {size: features.tolist() for size, features in l1_svm.path(X, y, [4, 1, 2])}
    assert list(steps) == [1, 2, 4]
    assert steps == {size: l1_svm.select(X, y, size).tolist() for size in (1, 2, 4)}
    assert set(steps[2]) == {0, 1}
    further = dict(l1_svm.path(X, y, [2, 4], reaches={2: 4, 4: 1}))
    assert list(further) == [4, 2]  # 2 features of a machine with 8
    assert further[4].tolist() == steps[4]
    assert further[2].tolist() == l1_svm.select(X, y, 8)[:2].tolist()


def test_the_reach_of_l1_svm_is_the_best_on_held_out_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this path only the model with 80 features is right; all others are noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 1000))
    y = np.where(X[:, 0] > 0, 1, -1)

    def rankings(X: np.ndarray, y: np.ndarray, wanted: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        yield from ((number, np.arange(0 if number == 80 else 5, 1000)) for number in wanted)

    monkeypatch.setattr(_path, "JUDGED", (20, 50))
    assert _path.Along(rankings).tune(X, y) == {"reaches": {20: 4, 50: 1}}


def test_fgm_and_method_a() -> None:
    # The first cut takes the largest |correlation| with y; of equal ones the first.
    columns = [NOISE, BETTER, -BETTER, GOOD]
    assert select("fgm", columns, 1) == [1]
    assert select("method_a", columns, 1, [2]) == [1]
    assert select("method_a", columns, 1, [1]) == [2]
    assert sorted(select("method_a", columns, 2, [1])) == [2, 3]


def test_gdm_and_its_affiliated_features() -> None:
    # BETTER speaks for its copy, and NOISE has the score 0: two supports.
    columns = [NOISE, BETTER, -BETTER, GOOD]
    supports = select("gdm", columns, 2)
    assert sorted(supports) == [1, 3]
    assert select("gdm_affiliated", columns, 2) == [*supports, 2]
    assert select("gdm_affiliated", columns, 1) == [1, 2]


@pytest.mark.parametrize("name", [*TEN, *PEERS, *MACHINES])
def test_constant_and_sparse_columns(name: str) -> None:
    """Methods never see constant columns, and treat sparse and dense matrices alike."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((32, 5)) * (rng.random((32, 5)) < 0.8)
    X[:, 0], X[:, 3] = 0, Y * (1 + rng.random(32))
    for matrix in (X, sp.csr_array(X)):
        problem = Problem(matrix, Y, matrix, Y, [np.array([3])])
        ((_, chosen),) = choose(registry.method(name), problem.training, [2])
        assert chosen[0] == 3
        assert 0 not in chosen


def test_columns() -> None:
    X = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0], [1.0, 2.0, 5.0], [3.0, 2.0, 5.0]])
    for matrix in (X, sp.csr_array(X)):
        assert varying(matrix).tolist() == [0, 2]
    np.testing.assert_allclose(standardised(X), [[-1, 0, -1], [1, 0, -1], [-1, 0, 1], [1, 0, 1]])
    np.testing.assert_allclose(standardised(sp.csr_array(X)).toarray()[:, [0, 2]], [[1, 0], [3, 0], [1, 2], [3, 2]])


def test_criteria() -> None:
    """Two of three features in true groups, one of two groups found; RED is half the mean |rho|."""
    X = np.column_stack([BETTER, -BETTER, NOISE]).astype(float)
    truth = [np.array([0, 1]), np.array([7])]
    found = judge(Problem(X, Y, X, Y, truth), np.arange(3))
    assert found["n_features"] == 3
    assert found["accuracy"] == 7 / 8
    assert found["redundancy"] == pytest.approx(1 / 6)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == 1 / 2


def test_samples_and_splits() -> None:
    X = np.arange(32)[:, None]
    problem = split(X, Y, 0.25, seed=1)
    assert sorted(np.concatenate([problem.X, problem.X_test]).ravel().tolist()) == list(range(32))
    assert (problem.y_test == 1).sum() == (problem.y_test == -1).sum() == 4
    assert problem.sample(10, 0).X.shape == (10, 1)
    assert problem.sample(None, 0) is problem
    groups = [np.array([4, 6]), np.array([1]), np.array([2, 3, 9])]
    assert Problem(X, Y, X, Y, groups).redundant.tolist() == [6, 3, 9]
    assert Problem(X, Y, X, Y).redundant.tolist() == []


def test_missing_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GDM_DATA", raising=False)
    with pytest.raises(BadInput, match=r"set GDM_DATA to the folder that holds mnist/mnist_3v8\.npz"):
        registry.dataset("mnist").load(0)
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=r"a/b\.npz is missing; the data is from there"):
        data_file("a/b.npz", "there")
