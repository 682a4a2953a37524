"""The wide suite: its data, its judge and its texts, on numbers worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gdm_dask.errors import BadInput
from pipelines.paper import registry
from pipelines.paper.__main__ import THREADS, available, main
from pipelines.paper.cell import Cell, write_cell
from pipelines.paper.compare import cliques, critical_difference, difference, ranks
from pipelines.paper.criteria import GRID, STRENGTHS, is_rare, judge_tuned, tuned_decision, tuned_ridge
from pipelines.paper.figures.ranks import draw_ranks
from pipelines.paper.problem import Problem
from pipelines.paper.suites import SUITES, WIDE, part_name
from pipelines.paper.table import COLUMNS
from pipelines.paper.verdicts import OURS, verdicts
from pipelines.paper.wide import fetched, sources
from pipelines.paper.wide.blocks import make_blocks
from pipelines.paper.wide.sets import PARTS, SETS
from pipelines.paper.wide.words import WORDS

SUITE = SUITES[WIDE]


def row(dataset: str, method: str, size: int, score: float, **more: Any) -> dict[str, Any]:
    found = {
        "n_features": size,
        "redundancy": 0.1,
        "average_precision": 0.5,
        "seed": 0,
        "status": "ok",
        "samples": None,
    }
    of = {"suite": WIDE, "dataset": dataset, "data": part_name(dataset, more.get("samples")), "method": method}
    return {**of, "size": size, "score": score, "samples": None, **found, **more}


def table_of(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows).reindex(columns=COLUMNS).astype({"samples": "Int64", "score": float})


class TestBlocks:
    def test_members_correlate_and_others_do_not(self) -> None:
        problem = make_blocks(4000, 12, block=4, correlation=0.7, n_informative=2, noise=0.0)
        rho = np.corrcoef(problem.X.T)
        inside = np.kron(np.eye(3), np.ones((4, 4))) > 0
        np.testing.assert_allclose(rho[inside & (rho < 0.999)], 0.7, atol=0.04)
        np.testing.assert_allclose(rho[~inside], 0, atol=0.06)

    def test_the_informative_blocks_decide_the_label(self) -> None:
        problem = make_blocks(4000, 12, block=4, correlation=0.9, n_informative=1, noise=0.0)
        agreement = np.abs([np.corrcoef(column, problem.y)[0, 1] for column in problem.X.T])
        assert sorted(np.argsort(-agreement)[:4]) == problem.groups[0].tolist()
        assert agreement[problem.groups[0]].min() > 0.7
        noisy = make_blocks(4000, 12, block=4, correlation=0.9, n_informative=1, noise=3.0)
        assert abs(np.corrcoef(noisy.X[:, noisy.groups[0][0]], noisy.y)[0, 1]) < 0.4

    def test_seeds_differ_and_repeat(self) -> None:
        first, again, other = (make_blocks(20, 40, n_informative=1, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.X, again.X)
        assert not np.array_equal(first.X, other.X)


class TestJudge:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.where(X[:, 0] + 0.1 * rng.standard_normal(300) > 0, 1, -1)

    def test_accuracy_of_a_machine_on_the_selection_alone(self) -> None:
        problem = Problem(self.X[:200], self.y[:200], self.X[200:], self.y[200:])
        right, wrong = (judge_tuned(problem, np.array([feature])) for feature in (0, 2))
        assert right["score"] == right["accuracy"] > 0.9
        assert wrong["score"] < 0.65
        assert right["n_features"] == 1

    def test_rare_classes_have_the_auc(self) -> None:
        y = np.where(self.X[:, 0] > 1.3, 1, -1)
        assert is_rare(y)
        assert not is_rare(self.y)
        for sign in (1, -1):  # whichever label is the rare one
            problem = Problem(self.X[:200], sign * y[:200], self.X[200:], sign * y[200:])
            found = judge_tuned(problem, np.array([0]))
            assert found["score"] == pytest.approx(1.0)
            assert found["average_precision"] == pytest.approx(1.0)
            blind = judge_tuned(problem, np.array([2]))
            assert blind["accuracy"] > 0.85 > blind["score"]  # what accuracy would hide

    def test_c_is_a_matter_of_the_training_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Decisions do not depend on other test samples, and C is the best on folds."""
        together = tuned_decision(self.X[:200], self.y[:200], self.X[200:])
        alone = tuned_decision(self.X[:200], self.y[:200], self.X[200:201])
        assert together[0] == pytest.approx(alone[0])
        noise = np.random.default_rng(1).standard_normal((40, 30))
        y = np.where(noise[:, 0] + 2 * np.random.default_rng(2).standard_normal(40) > 0, 1, -1)
        fits = {}
        for C in GRID:
            monkeypatch.setattr("pipelines.paper.criteria.GRID", (C,))
            fits[C] = tuned_decision(noise, y, noise)
        monkeypatch.setattr("pipelines.paper.criteria.GRID", GRID)
        chosen = [C for C, values in fits.items() if np.array_equal(values, tuned_decision(noise, y, noise))]
        assert len(chosen) == 1

    @pytest.mark.parametrize("n_outputs", [None, 2])
    def test_the_strength_of_a_ridge_is_a_matter_of_the_training_part(self, n_outputs: int | None) -> None:
        """It is the choice of scikit-learn's search over the same folds, for one number and for several."""
        rng = np.random.default_rng(0)
        X, X_test = rng.uniform(0.1, 9, 30) * rng.standard_normal((70, 30)), rng.standard_normal((9, 30))
        y = X[:, :3].sum(axis=1) + 5 * rng.standard_normal(70)
        y = y if n_outputs is None else np.column_stack([y, X[:, 1]])
        folds = KFold(5, shuffle=True, random_state=0)
        search = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": STRENGTHS}, cv=folds).fit(X, y)
        np.testing.assert_allclose(tuned_ridge(X, y, X_test), search.predict(X_test))
        np.testing.assert_allclose(tuned_ridge(sp.csr_array(X), y, X_test[:1]), search.predict(X_test[:1]))
        assert STRENGTHS[0] > search.best_params_["ridge__alpha"] > STRENGTHS[-1]


class TestComparison:
    def test_mean_error_wins_and_losses(self) -> None:
        """Gains of .1, .3 and -.1: the seeds of a set count once."""
        table = table_of(
            *(row(data, "l1_svm", 10, 0.5, seed=seed) for data in "abc" for seed in (0, 1)),
            row("a", OURS, 10, 0.5, seed=0), row("a", OURS, 10, 0.7, seed=1),
            row("b", OURS, 10, 0.8, seed=0), row("b", OURS, 10, 0.8, seed=1),
            row("c", OURS, 10, 0.4, seed=0), row("c", OURS, 10, 0.0, seed=1, status="failed"),
            row("d", OURS, 10, 1.0),
        )  # fmt: skip
        found = difference(table, OURS, "l1_svm", 10)
        assert found.mean == pytest.approx(0.1)
        assert found.error == pytest.approx(0.2 / np.sqrt(3))
        assert (found.wins, found.losses, found.n_sets) == (2, 1, 3)

    def test_like_for_like(self) -> None:
        """The peer has 20 features at both sizes: halfway, on a log scale, between our 10 and 40."""
        ours = [row("a", OURS, 10, 0.6, redundancy=0.2), row("a", OURS, 40, 0.8, redundancy=0.1)]
        peer = [row("a", "l1_svm", size, 0.75, n_features=min(size, 20), redundancy=0.1) for size in (10, 40)]
        found = difference(table_of(*ours, *peer), OURS, "l1_svm", 40)
        assert found.mean == pytest.approx(0.7 - 0.75)
        assert found.redundancy == pytest.approx(0.15)
        assert difference(table_of(*ours, *peer), OURS, "l1_svm", 40, like_for_like=False).mean == pytest.approx(0.05)
        turned = difference(table_of(*ours, *peer), "l1_svm", OURS, 40)
        assert turned.mean == pytest.approx(-found.mean)
        assert difference(table_of(*ours, *peer), OURS, "l1_svm", 10).mean == pytest.approx(-0.15)

    def test_nothing_is_said_below_the_smallest_selection(self) -> None:
        few = [row("a", OURS, 10, 0.6), row("a", "skglm_mcp", 10, 0.5, n_features=4)]
        assert difference(table_of(*few), OURS, "skglm_mcp", 10).n_sets == 0

    def test_ranks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ties share a rank; a set on which a method has no result is left out."""
        monkeypatch.setattr("pipelines.paper.compare.COVERED", 0.5)
        scores = {"a": (0.9, 0.8, 0.8), "b": (0.7, 0.9, 0.5), "c": (0.9, 0.5, None)}
        methods = ("gdm_default", "l1_svm", "mrmr")
        rows = [
            row(data, method, 10, score)
            for data, values in scores.items()
            for method, score in zip(methods, values, strict=True)
            if score is not None
        ]
        found = ranks(table_of(*rows), methods, 10)
        assert found.n_sets == 2
        assert found.average.to_dict() == {"gdm_default": 1.5, "l1_svm": 1.75, "mrmr": 2.75}

    def test_a_method_on_few_sets_is_not_ranked(self) -> None:
        rows = [row(data, method, 10, 0.5) for data in "abcde" for method in ("gdm_default", "l1_svm")]
        found = ranks(table_of(*rows, *(row(data, "mrmr", 10, 0.5) for data in "abc")), SUITE.methods, 10)
        assert (found.n_sets, sorted(found.average.index)) == (5, ["gdm_default", "l1_svm"])

    def test_critical_difference(self) -> None:
        """The quantiles of Demsar's table 5: 1.960 for two methods, 2.728 for five, 3.164 for ten."""
        for n_methods, quantile in ((2, 1.960), (5, 2.728), (10, 3.164)):
            expected = quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * 25))
            assert critical_difference(n_methods, 25) == pytest.approx(expected, abs=2e-3)
        assert np.isnan(critical_difference(1, 10))
        assert cliques([1.0, 2.0, 3.0], 5.0) == [(0, 2)]
        assert cliques([1.0, 2.0, 3.0], 0.5) == []

    def test_figure(self, tmp_path: Path) -> None:
        rows = [row(data, method, 10, hash((data, method)) % 7 / 7) for data in "abc" for method in SUITE.methods]
        drawing = draw_ranks(table_of(*rows), SUITE.methods, (10,), tmp_path).read_text()
        assert "critical difference" in drawing
        assert all(f"{registry.method(method).NAME} (" in drawing for method in SUITE.methods)


class TestVerdicts:
    @staticmethod
    def results(ours: float, redundancy: float) -> pd.DataFrame:
        parts = [part for part in PARTS if part[0] not in {name.lower() for name in fetched.NAMES}]
        return table_of(*(
            row(
                dataset, method, size, ours if method == OURS else 0.8, samples=samples, seed=seed,
                redundancy=redundancy if method == OURS else 0.1,
            )
            for dataset, samples in parts for method in SUITE.methods for size in SUITE.sizes for seed in (0, 1)
        ))  # fmt: skip

    def test_they_follow_the_results(self) -> None:
        ahead = {sentence: holds for sentence, holds, _ in verdicts(self.results(0.9, 0.05))}
        precision = {sentence for sentence in ahead if "average precision" in sentence}  # equal, so not above
        assert {holds for sentence, holds in ahead.items() if sentence not in precision} == {True}
        assert {ahead[sentence] for sentence in precision} == {False}
        behind = {sentence: holds for sentence, holds, _ in verdicts(self.results(0.7, 0.5))}
        assert set(behind.values()) == {False}

    def test_what_was_not_run_is_not_judged(self) -> None:
        table = self.results(0.9, 0.05)
        assert {holds for _, holds, _ in verdicts(table[table["method"] != OURS])} == {None}

    def test_words_of_the_findings(self) -> None:
        table = self.results(0.9, 0.05)
        lines = WORDS["differences"](table, "l1_svm").splitlines()
        assert lines[0] == "| features | 10 | 20 | 50 | 100 |"
        assert lines[2].startswith("| GDM, defaults | +0.1000 ± 0.0000, 39 : 0 (39) |")
        assert len(lines) == 2 + len(SUITE.methods) - 1
        assert "| critical difference |" in WORDS["ranks"](table)
        assert WORDS["absent"](table) == ", ".join(name.lower() for name in fetched.NAMES)
        assert WORDS["count"](table, "sets") == "39"
        assert "**holds**" in WORDS["verdicts"](table)
        for name in ("rare", "kept"):
            assert WORDS[name](table).count("\n") > 3
        assert "0.0500 (0.1000)" in WORDS["redundancy"](table, "l1_logistic")


class TestData:
    def test_every_part_is_a_set(self) -> None:
        for name, samples in PARTS:
            assert registry.dataset(name).NAME
            assert samples is None or samples > 0
        assert set(SETS) <= {name for name, _ in PARTS}
        assert len({part_name(*part) for part in PARTS}) == len(PARTS)

    def test_data_that_is_not_there_is_left_out_and_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("GDM_DATA", str(tmp_path))
        found = available(PARTS, None)
        assert [part[0] for part in found] == [
            "synthetic", "blocks_60", "blocks_100", "blocks_200", "classification_100", "classification_1000",
        ]  # fmt: skip
        said = capsys.readouterr().err
        assert "skipping bioresponse: " in said
        assert "python -m pipelines.paper fetch" in said
        assert available(PARTS, ["blocks_60"]) == [("blocks_60", None)]
        with pytest.raises(BadInput, match=r"gravier\.npz is missing"):
            available(PARTS, ["breast-n60"])

    def test_a_download_is_kept(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked = []

        def fetch_openml(name: str, **options: Any) -> tuple[np.ndarray, np.ndarray]:
            asked.append(name)
            return np.eye(6), np.array(["1", "Breast", "0", "0", "0", "0"], dtype=object)

        monkeypatch.setattr(fetched, "fetch_openml", fetch_openml)
        monkeypatch.setenv("GDM_DATA", str(tmp_path))
        fetched.fetch()
        fetched.fetch()
        assert asked == list(fetched.NAMES)
        problem = SETS["ova_breast"].load(0)
        assert problem.X.shape[1] == 6
        assert (np.concatenate([problem.y, problem.y_test]) == 1).sum() == 1
        monkeypatch.delenv("GDM_DATA")
        with pytest.raises(BadInput, match="set GDM_DATA"):
            fetched.fetch()

    def test_rare_classes_are_thinned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "MOST", 100)
        y = np.repeat([1, -1], [50, 200])
        rows = sources.thinned(y, 0.05)
        assert (len(rows), (y[rows] == 1).sum()) == (100, 5)
        against = sources.groups_against("a", "b")
        assert [against(name) for name in "abc"] == [True, False, None]
        assert sources.groups_against("a")("c") is False

    def test_words_are_those_of_the_training_part(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        texts = [b"buy it now %d" % (number % 2) if number < 30 else b"see you soon" for number in range(60)]
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        (tmp_path / "mails").mkdir()
        (tmp_path / "mails" / "text.bin").write_bytes(b"".join(texts))
        np.savez(tmp_path / "mails" / "index.npz", offset=offsets, label=np.repeat([1, -1], 30))
        monkeypatch.setenv("GDM_DATA", str(tmp_path))
        problem = sources.texts("mails", "", 0, lambda label: label == "1", mail=False)
        assert (len(problem.y), len(problem.y_test)) == (40, 20)
        assert problem.X.shape[1] == problem.X_test.shape[1]
        counts = np.asarray((problem.X > 0).sum(axis=0)).ravel()
        assert counts.min() >= sources.MIN_TEXTS


@pytest.mark.slow
def test_a_stopped_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An existing cell is kept, the others are run, and all are compared."""
    for name in THREADS:
        monkeypatch.setenv(name, "1")
    (tmp_path / "cells").mkdir()
    there = Cell("blocks_60", 0, "l1_svm", (10,), suite=WIDE)
    path = tmp_path / "cells" / f"{there.name}.json"
    write_cell(there, [{"size": 10, "status": "ok", "score": 0.25, "n_features": 10, "redundancy": 0.1}], path)
    command = ["run", "--suite", "wide", "--data", "blocks_60", "--methods", "l1_svm", "f_classif", "--sizes", "10"]
    main([*command, "--seeds", "1", "--jobs", "1", "--results", str(tmp_path)])
    found = pd.read_parquet(tmp_path / "results.parquet").set_index("method")["score"]
    assert found["l1_svm"] == 0.25
    assert found["f_classif"] > 0.4
    said = capsys.readouterr().out
    assert f"| F test | {found['f_classif'] - 0.25:+.4f}" in said
    assert "not measured" in said
    assert (tmp_path / "figures" / "figure-8-ranks.svg").exists()
