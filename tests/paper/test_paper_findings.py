"""FINDINGS.md says only what the committed results contain, and required claims hold."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from gdm_dask.errors import BadInput
from pipelines.paper import registry
from pipelines.paper.findings import COMMITTED, FOLDER, Findings, fill, template
from pipelines.paper.measures import MEASURES, counterexample
from pipelines.paper.suites import PAPER, SUITES
from pipelines.paper.table import COLUMNS, DONE, summary


@pytest.fixture(scope="module")
def findings() -> Findings:
    return Findings.read(COMMITTED)


def test_findings_are_those_of_the_results(findings: Findings) -> None:
    assert (FOLDER / "FINDINGS.md").read_text() == fill(template(), findings), "python -m pipelines.paper findings"


def test_no_result_is_typed_into_the_template() -> None:
    """Outside placeholders, the text has only integers, the paper's tau = 0.25, sections and version numbers."""
    text = re.sub(r"\{\{.+?\}\}", "", template(), flags=re.DOTALL)
    assert set(re.findall(r"\d+\.\d+", text)) <= {"0.25", "4.1", "0.1", "0.2"}


def test_places_are_filled(findings: Findings) -> None:
    means = summary(findings.results).set_index(["dataset", "method", "size"])
    expected = means.loc[("synthetic", "gdm", 50), "accuracy"]
    assert fill("{{mean synthetic gdm 50 accuracy}}", findings) == f"{100 * expected:.1f} %"
    table = fill("{{table synthetic redundancy 50 100}}", findings).splitlines()
    assert table[0] == "| features | 50 | 100 |"
    assert len(table) == 2 + len(means.loc["synthetic"].index.unique("method"))
    with pytest.raises(BadInput, match="one of mean, "):
        fill("{{sum synthetic}}", findings)


def test_all_methods_have_their_cells(findings: Findings) -> None:
    rows = findings.results.set_index(["dataset", "method"])
    for dataset in ("synthetic", "mnist"):
        statuses = rows.loc[dataset]["status"].groupby("method").unique()
        assert sorted(statuses.index) == sorted(SUITES[PAPER].methods + SUITES[PAPER].ablations)
        without = {method for method, found in statuses.items() if not set(found) <= set(DONE)}
        assert without == (set() if dataset == "synthetic" else {"method_a"})  # which needs the true groups
    assert set(findings.measures["claim"]) == set(MEASURES)


def test_parts_of_a_set_have_means_of_their_own() -> None:
    table = pd.DataFrame({"samples": [None, 1000], "accuracy": [0.9, 0.8]}, dtype=object).reindex(columns=COLUMNS)
    table = table.assign(dataset="usps", data="", method="gdm", size=50, status="ok")
    table = table.astype({"samples": "Int64", "accuracy": "float64"})
    places = "{{mean usps gdm 50 accuracy}}, {{mean usps-n1000 gdm 50 accuracy}}"
    assert fill(places, Findings(table, pd.DataFrame(), pd.DataFrame())) == "90.0 %, 80.0 %"


def test_gdm_is_ahead_on_the_synthetic_set(findings: Findings) -> None:
    """Means over five seeds; MethodA is compared, too, although it knows the truth."""
    means = summary(findings.results.query("dataset == 'synthetic'")).set_index(["size", "method"])
    for size in (50, 100):
        part = means.loc[size]
        assert part.loc["gdm", "runs"] == 5
        assert part["accuracy"].idxmax() == "gdm"
        assert (part.loc["gdm", "redundancy"] < part.loc[["fgm", "l1_svm"], "redundancy"]).all()


@pytest.mark.parametrize("claim", sorted(MEASURES))
def test_measures_can_be_taken(claim: str) -> None:
    function, names = MEASURES[claim]
    values = dict(function(registry.dataset("quick").load(0).training))
    assert values
    assert all(0 < value < 1000 for value in values.values()), values
    assert set(names) <= set(registry.dataset_names())


def test_the_counterexample_to_proposition_2() -> None:
    values = dict(counterexample(None))  # type: ignore[arg-type]
    assert pd.Series(values).round(2).to_dict() == {"greedy": 1.0, "optimum": 1.17}
