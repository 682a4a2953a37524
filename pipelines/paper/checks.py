"""Expectations on the small set; `make paper-quick` fails unless the results meet them."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from .suites import PAPER, SUITES
from .table import DONE


def broken(table: pd.DataFrame) -> list[str]:
    """List the expectations that the results do not meet, at the largest number of features."""
    rows = table[table["size"] == table["size"].max()].set_index("method")
    lost = sorted(set(SUITES[PAPER].methods) - set(rows.index[rows["status"].isin(DONE)]))
    if lost:
        return [f"{', '.join(lost)}: no result"]
    return [sentence for sentence, holds in _expected(rows) if not holds]


def _expected(rows: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    gdm, fgm, affiliated = (rows.loc[name] for name in ("gdm", "fgm", "gdm_affiliated"))
    others = rows.drop(["gdm", "gdm_affiliated", "gdm_default"])
    unaware = others.drop("method_a")  # the others do not know the truth
    yield "GDM selects as many features as it should", gdm["n_features"] == gdm["size"]
    yield "GDM and FGM select different features", set(gdm["features"]) != set(fgm["features"])
    yield (
        "GDM finds more true groups than every method that does not know them",
        bool((gdm["recall"] > unaware["recall"]).all()),
    )
    yield "GDM finds as many true groups as MethodA", gdm["recall"] >= others.loc["method_a", "recall"]
    rivals = others.loc[["fgm", "l1_svm"]]
    yield "GDM is more accurate than FGM and L1-SVM", bool((gdm["accuracy"] > rivals["accuracy"]).all())
    yield "GDM is less redundant than FGM and L1-SVM", bool((gdm["redundancy"] < rivals["redundancy"]).all())
    yield "the affiliated features come on top of the supports", set(gdm["features"]) < set(affiliated["features"])
    yield "affiliated features are members of true groups", affiliated["precision"] >= gdm["precision"]
    yield "every method is far better than chance", bool((rows["accuracy"] > 0.7).all())
