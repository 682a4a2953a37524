"""Write FINDINGS.md from its templates: every figure comes from the results, none is typed.

Templates have placeholders: ``{{mean synthetic gdm 50 accuracy}}`` is a mean over the seeds, ``{{table synthetic
accuracy 10 50}}`` a table of all methods, ``{{best synthetic 50 accuracy}}`` the method with the largest mean,
``{{measured CLAIM DATASET NAME}}`` a value from `measures`, ``{{none DATASET METHOD}}`` the reason why there is no
result, and ``{{wide WORD ...}}`` a text from `wide.words`. Shares are shown in percent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from gdm_dask.errors import BadInput

from . import registry
from .compare import TIE
from .figures.style import order_of
from .table import DONE, summary
from .wide import words as wide

FOLDER = Path(__file__).parent
COMMITTED = FOLDER / "results"
_PLACE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_PERCENT = ("accuracy", "accuracy_spread", "precision", "recall", "part", "share", "gap")
_DIGITS = {"redundancy": 4, "seconds": 2}


def write_findings(results: Path) -> None:
    """Rewrite FINDINGS.md."""
    (FOLDER / "FINDINGS.md").write_text(fill(template(), Findings.read(results)))


def template(parts: Sequence[str] = ("FINDINGS", "WIDE")) -> str:
    """Read the templates on the paper's claims and on the wide suite."""
    return "\n".join((FOLDER / f"{part}.template.md").read_text() for part in parts)


def fill(text: str, findings: Findings) -> str:
    """Fill the placeholders of a text."""

    def one(place: re.Match[str]) -> str:
        word, *arguments = shlex.split(place[1])
        if word not in WORDS:
            raise BadInput(f"placeholder must begin with one of {', '.join(WORDS)}, got {place[0]}")
        return WORDS[word](findings, *arguments)

    return _PLACE.sub(one, text)


@dataclass(frozen=True)
class Findings:
    """Results and measures, and the texts that placeholders stand for."""

    results: pd.DataFrame
    measures: pd.DataFrame
    wide: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Findings:
        """Read the results in a folder."""
        files = ("results.parquet", "measures.parquet", "wide/results.parquet")
        return cls(*(pd.read_parquet(folder / file) for file in files))

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean of every criterion by data set (or part, such as mnist-n1000), method and number of features."""
        names = self.results["dataset"].where(
            self.results["samples"].isna(), self.results["dataset"] + "-n" + self.results["samples"].astype("string")
        )
        return summary(self.results.assign(dataset=names)).set_index(["dataset", "method", "size"])

    def mean(self, dataset: str, method: str, size: str, criterion: str) -> str:
        """Show one mean over the seeds."""
        return show(float(self.means.loc[(dataset, method, int(size)), criterion]), criterion)  # type: ignore[index]

    def ratio(self, dataset: str, first: str, second: str, size: str, criterion: str) -> str:
        """Divide the first method's mean by the second's."""
        values = [float(self.means.loc[(dataset, name, int(size)), criterion]) for name in (first, second)]  # type: ignore[index]
        return f"{values[0] / values[1]:.2g}"

    def best(self, dataset: str, size: str, criterion: str) -> str:
        """Name the method with the largest mean, or all if several share it."""
        part = self.means.loc[dataset].xs(int(size), level="size")[criterion]
        best = part.index[part > part.max() - TIE]
        return " and ".join(registry.method(name).NAME for name in sorted(best, key=order_of))

    def table(self, dataset: str, criterion: str, *sizes: str) -> str:
        """Tabulate all methods with a result, with a note on those that ran on fewer sets."""
        part = self.means.loc[dataset][criterion].unstack("size")
        runs = self.means.loc[dataset]["runs"].groupby("method").min()
        lines = [f"| {' | '.join(['features', *sizes])} |", "|---" * (1 + len(sizes)) + "|"]
        for method in sorted(part.index, key=order_of):
            name = registry.method(method).NAME
            if runs[method] < runs.max():
                name += f" ({runs[method]} of {runs.max()} sets)"
            values = [part.loc[method].get(int(size), float("nan")) for size in sizes]
            cells = ["" if pd.isna(value) else show(float(value), criterion) for value in values]
            lines.append(f"| {' | '.join([name, *cells])} |")
        return "\n".join(lines)

    def measured(self, claim: str, dataset: str, name: str) -> str:
        """Show one measure."""
        rows = self.measures.set_index(["claim", "dataset", "name"])["value"]
        return show(float(rows.loc[(claim, dataset, name)]), name)  # type: ignore[index]

    def none(self, dataset: str, method: str) -> str:
        """Tell why a method has no result on a set."""
        rows = self.results[(self.results["dataset"] == dataset) & (self.results["method"] == method)]
        rows = rows[~rows["status"].isin(DONE)]
        return f"{rows['status'].iloc[0]}: {rows['message'].iloc[0]}"

    def of_wide(self, word: str, *arguments: str) -> str:
        """Fill a placeholder of the wide suite."""
        return wide.WORDS[word](self.wide, *arguments)


def show(value: float, name: str) -> str:
    """Format a number by its name.

    >>> show(0.79863, "accuracy"), show(0.00883, "redundancy"), show(12.0, "cuts, C = 1"), show(3.14159, "seconds")
    ('79.9 %', '0.0088', '12', '3.14')
    """
    words = re.split(r"[ ,]", name)
    if any(word in _PERCENT for word in words):
        return f"{100 * value:.1f} %" if 100 * value >= 0.1 or value == 0 else f"{100 * value:.1g} %"
    if value == round(value) and "seconds" not in words:
        return f"{value:,.0f}"
    return f"{value:.{_DIGITS.get(words[0], 2)}f}"


WORDS = {
    "mean": Findings.mean, "ratio": Findings.ratio, "best": Findings.best, "table": Findings.table,
    "measured": Findings.measured, "none": Findings.none, "wide": Findings.of_wide,
}  # fmt: skip
