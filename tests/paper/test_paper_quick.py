"""The paper's comparison on a small set, as `make paper-quick` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from pipelines.paper import registry
from pipelines.paper.__main__ import THREADS, main
from pipelines.paper.cell import Cell
from pipelines.paper.checks import broken
from pipelines.paper.grid import plan, run
from pipelines.paper.suites import PAPER, SUITES
from pipelines.paper.table import collect, summary

pytestmark = pytest.mark.slow

METHODS = (*SUITES[PAPER].methods, *SUITES[PAPER].ablations)
SIZE = 12  # as many as there are true groups


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")  # restores the original at the end
        main(["quick", "--sizes", str(SIZE), "--results", str(folder)])
        yield folder


@pytest.fixture(scope="module")
def table(results: Path) -> pd.DataFrame:
    return pd.read_parquet(results / "results.parquet").set_index("method")


def test_every_method_has_a_cell(table: pd.DataFrame) -> None:
    assert sorted(table.index) == sorted(METHODS)
    assert set(table["status"]) <= {"ok", "fewer"}, table[["status", "message"]].to_string()
    assert (table["accuracy"] > 0.75).all()
    assert (table["seconds"] > 0).all()
    assert (table["peak_memory"] > 1e7).all()
    for name, row in table.iterrows():
        assert len(set(row["features"])) == row["n_features"], name
        assert row["n_features"] >= SIZE if name == "gdm_affiliated" else row["n_features"] <= SIZE


def test_what_is_expected_of_the_small_set(table: pd.DataFrame) -> None:
    """The expectations hold, and `make paper-quick` fails if they do not."""
    rows = table.reset_index()
    assert broken(rows) == []
    assert broken(rows[rows["method"] != "rcfs"]) == ["rcfs: no result"]
    for criterion, sentence in (
        ("features", "GDM and FGM select different features"),
        ("recall", "GDM finds more true groups than every method that does not know them"),
        ("accuracy", "GDM is more accurate than FGM and L1-SVM"),
        ("redundancy", "GDM is less redundant than FGM and L1-SVM"),
    ):
        worse = table.copy()
        worse.at["gdm", criterion] = worse.at["fgm", criterion]
        assert sentence in broken(worse.reset_index())


def test_affiliated_features_are_members_of_the_groups(table: pd.DataFrame) -> None:
    groups = registry.dataset("quick").load(0).groups
    affiliated, supports = (set(table.loc[name, "features"]) for name in ("gdm_affiliated", "gdm"))
    assert supports < affiliated
    expected = {int(feature) for group in groups if supports & set(group.tolist()) for feature in group}
    assert affiliated == supports | expected


def test_figures_and_page(results: Path) -> None:
    page = (results / "index.html").read_text()
    assert 'src="figures/figure-2-quick.svg"' in page
    assert f"python -m pipelines.paper quick --sizes {SIZE}" in page
    drawing = (results / "figures" / "figure-2-quick.svg").read_text()
    for name in METHODS:
        assert registry.method(name).NAME in drawing


def test_a_second_run_takes_what_is_there(results: Path) -> None:
    cells = sorted((results / "cells").glob("*.json"))
    times = [path.stat().st_mtime_ns for path in cells]
    cells[0].unlink()
    main(["quick", "--sizes", str(SIZE), "--results", str(results)])
    assert [path.stat().st_mtime_ns for path in cells[1:]] == times[1:]
    assert cells[0].exists()
    assert cells[0].stat().st_mtime_ns > times[0]
    assert not list((results / "cells").glob("*.part"))


def test_a_run_adds_to_the_table_that_is_there(results: Path, tmp_path: Path) -> None:
    """Without the files of earlier cells, whose rows stay; the rows of a cell that runs again are replaced."""
    before = pd.read_parquet(results / "results.parquet")
    before.loc[before["method"] == "gdm", "accuracy"] = 0.0
    before.to_parquet(tmp_path / "results.parquet")
    main(["quick", "--sizes", str(SIZE), "--methods", "gdm", "f_classif", "--results", str(tmp_path)])
    after = pd.read_parquet(tmp_path / "results.parquet").set_index("method")
    assert sorted(after.index) == sorted([*before["method"], "f_classif"])
    assert after.loc["gdm", "accuracy"] > 0.75
    pd.testing.assert_series_equal(after.loc["mrmr"], before.set_index("method").loc["mrmr"])


def test_data_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GDM_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"^set GDM_DATA to the folder that holds mnist/mnist_3v8\.npz"):
        main(["run", "--data", "mnist"])


def test_cells_without_a_result_say_why(tmp_path: Path) -> None:
    late = Cell("quick", 0, "gdm", (6,))
    broken, empty = (Cell("quick", 0, method, (6, 12), samples=1) for method in ("l1_svm", "svm_rfe"))
    seen = {}
    run([late], tmp_path, 1, time_limit=0.01, report=lambda cell, status: seen.update({cell.method: status}))
    run([broken, empty], tmp_path, 1, time_limit=60, report=lambda cell, status: seen.update({cell.method: status}))
    assert seen == {"gdm": "time", "l1_svm": "failed", "svm_rfe": "failed"}
    rows = collect(tmp_path).set_index("method")
    assert rows.loc["gdm", "message"] == "stopped after 0.01 seconds"
    assert rows.loc["l1_svm", "message"].str.startswith("ValueError: ").all()
    assert set(rows.loc["svm_rfe", "message"]) == {"no feature was selected"}
    assert summary(rows.reset_index()).empty
    run([late], tmp_path, 1, time_limit=60)
    assert collect(tmp_path).query("method == 'gdm'")["status"].tolist() == ["time"]
    run([late], tmp_path, 1, time_limit=60, retry=True)
    assert collect(tmp_path).query("method == 'gdm'")["status"].tolist() == ["ok"]


def test_plan() -> None:
    cells = list(plan(["quick", "mnist"], ["gdm", "mrmr"], (10, 20), seeds=2))
    assert len(cells) == 2 * 3 + 3  # one for each size, and one for both; mnist once
    assert cells[-1] == Cell("mnist", 0, "mrmr", (10, 20))
    assert len({cell.name for cell in cells}) == len(cells)
    assert cells[0].name == "quick-s0-gdm-k10"
