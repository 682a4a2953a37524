"""Generated, sampled and cached data sets of the paper's comparison, in small sizes."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from pipelines.paper import registry
from pipelines.paper.cell import Cell, failed, write_cell
from pipelines.paper.datasets import kdd2010, webspam
from pipelines.paper.datasets._cache import kept
from pipelines.paper.datasets._lookalike import load_lookalike
from pipelines.paper.datasets._svmlight import read_every
from pipelines.paper.datasets.usps import FRAME, SHIFTS, SIDE, centred_means, shifted
from pipelines.paper.grid import read_cell
from pipelines.paper.problem import Problem
from pipelines.paper.table import title


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GDM_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("GDM_DATA", str(tmp_path))
    return tmp_path


def test_every_data_set_says_what_it_needs() -> None:
    for name in registry.dataset_names():
        module = registry.dataset(name)
        assert module.NAME
        assert isinstance(module.RANDOM, bool)
        if module.FILES:
            assert "is missing; the data is from http" in registry.missing(name)
        else:
            assert registry.missing(name) == ""


def test_problems_are_kept() -> None:
    X = sp.csr_array(np.array([[0, 1.5, 0], [2, 0, 0]], np.float32))
    made = []

    def make() -> Problem:
        made.append(1)
        return Problem(X, np.array([1, -1]), X[:1], np.array([1]), [np.array([0, 2]), np.array([1])])

    for _ in range(2):
        problem = kept("small", make)
        assert isinstance(problem.X, sp.csr_array)
        np.testing.assert_array_equal(problem.X.toarray(), X.toarray())
        np.testing.assert_array_equal(problem.X_test.toarray(), X[:1].toarray())
        assert (problem.y.tolist(), problem.y_test.tolist()) == ([1, -1], [1])
        assert [group.tolist() for group in problem.groups] == [[0, 2], [1]]
    assert len(made) == 1


def test_a_lookalike_takes_the_place_of_missing_files() -> None:
    problem = load_lookalike("webspam", 60, 40, 20_000, seed=1)
    assert problem.X.shape == (60, 20_000)
    assert problem.X_test.shape == (40, 20_000)
    assert set(problem.y) == set(problem.y_test) == {-1, 1}
    np.testing.assert_allclose(problem.X.multiply(problem.X).sum(axis=1), 1, rtol=1e-5)
    first, second = problem.X[:, problem.groups[0][:2]].toarray().T
    assert np.corrcoef(first > 0, second > 0)[0, 1] > 0.5  # members of a planted group come together


def test_results_on_a_lookalike_say_so_and_failures_too(folders: Path, tmp_path: Path) -> None:
    """With the real files they do not, nor do sets without a lookalike."""
    (folders / "webspam").mkdir()
    (folders / webspam.PAGES).touch()
    for name, sample, expected in (
        ("webspam", None, "webspam"),
        ("kdd2010", None, "kdd2010, lookalike"),
        ("kdd2010", 1000, "kdd2010, lookalike, 1,000 samples"),
        ("colon", None, registry.dataset("colon").NAME),
    ):
        cell = Cell(name, 0, "mrmr", (10,), sample)
        path = tmp_path / f"{cell.name}.json"
        write_cell(cell, failed(cell, "time", "stopped after 1 seconds"), path)
        assert [title(row) for row in read_cell(path)] == [expected]


def test_the_real_files_are_taken_where_they_are(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((kdd2010, "STEP", 2), (kdd2010, "N_FEATURES", 5), (webspam, "STEP", 2)):
        monkeypatch.setattr(module, name, value)
    (folders / "kdd2010").mkdir()
    (folders / kdd2010.TRAIN).write_bytes(bz2.compress(b"1 1:1 5:1\n0 2:1\n0 3:1 9:1\n1 4:1\n"))
    (folders / kdd2010.TEST).write_bytes(bz2.compress(b"0 1:1\n1 2:1\n"))
    problem = kdd2010.load(0)
    assert not registry.is_lookalike("kdd2010")
    assert problem.X.toarray().tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 0, 0]]
    assert problem.y.tolist() == [1, -1]
    assert problem.y_test.tolist() == [-1, 1]


def test_samples_of_large_text(tmp_path: Path) -> None:
    path = tmp_path / "some.svm"
    path.write_text("".join(f"{k % 3 - 1} {k + 1}:{k}.5\n" for k in range(9)))
    X, y = read_every(path, 3, 9, first=1)
    assert X.shape == (3, 9)
    assert X.indices.tolist() == [1, 4, 7]
    assert X.data.tolist() == [1.5, 4.5, 7.5]
    assert y.tolist() == [1, 1, 1]


def test_shifted_digits() -> None:
    """Each digit is at every position, and the unshifted mean lies in the middle."""
    milli = np.full((3, SIDE * SIDE), -1000)
    milli[:, 0] = [1000, 0, 500]  # ink in the upper left corner only
    X, y = shifted(milli, np.array([0, 1, 7]))
    assert X.shape == (2 * SHIFTS**2, FRAME**2)
    assert (X.sum(axis=1) == np.tile([200, 100], SHIFTS**2)).all()
    assert y[:2].tolist() == [-1, 1]
    portraits = centred_means(X, y)
    assert np.argwhere(portraits["0"]).tolist() == [[SHIFTS // 2, SHIFTS // 2]]
    assert portraits["1"].max() == 100
