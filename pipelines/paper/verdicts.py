"""Requirements on the defaults, and whether the results of the wide suite meet them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from .compare import Difference, difference, standard_error
from .table import done

OURS, BEFORE = "gdm_default", "gdm_before"
#: Methods to beat, with their names.
RIVALS = {"l1_svm": "L1-SVM", "l1_logistic": "L1-logistic"}
SIZES = (10, 20, 50, 100)
#: Sizes at which the lead must be at least one standard error.
SURE = (10, 20, 50)
#: Up to this size, redundancy must be below both rivals'; beyond, it may be up to a tenth above L1-logistic's.
LOW_UP_TO, ABOVE = 20, 1.1
#: Parts on which nothing may be lost, the sizes to compare, and the largest growth of redundancy.
KEPT = ("mnist_splits-n2000", "digits_4v7-n2000", "mails-n3000", "spam", "synthetic")
KEPT_SIZES, KEPT_REDUNDANCY = (20, 50, 100), 1.2
DIGITS, MANY = "mnist_splits-n2000", 100
#: Parts with a rare class, and the number of features at which to compare average precision.
RARE, RARE_SIZE = ("digits_8_rare", "crypt_rare-n2000"), 20

#: A sentence, whether it holds (None: not measured), and the figures behind it.
Verdict = tuple[str, bool | None, str]


def verdicts(table: pd.DataFrame) -> Iterator[Verdict]:
    """Yield all verdicts."""
    for reference, name in RIVALS.items():
        for size in SIZES:
            yield _lead(difference(table, OURS, reference, size), name, size)
    for reference, name in RIVALS.items():
        for size in SIZES:
            if size <= LOW_UP_TO or reference == "l1_logistic":
                yield _redundancy(difference(table, OURS, reference, size), name, size)
    for part in KEPT:
        yield from (_kept(table, part, size) for size in KEPT_SIZES)
    yield _digits(table)
    for part in RARE:
        yield from (_rare(table, part, reference) for reference in (BEFORE, *RIVALS))


def _lead(found: Difference, name: str, size: int) -> Verdict:
    margin = found.error if size in SURE else 0.0
    sentence = f"{size} features: ahead of {name}" + (" by a standard error or more" if size in SURE else "")
    figures = f"{found.mean:+.4f} ± {found.error:.4f}, {found.wins} : {found.losses}, {found.n_sets} sets"
    return sentence, _known(found, found.mean > 0 and found.mean >= margin and found.wins > found.losses), figures


def _redundancy(found: Difference, name: str, size: int) -> Verdict:
    is_low = size <= LOW_UP_TO
    sentence = f"{size} features: redundancy rate {'below' if is_low else 'at most a tenth above'} {name}'s"
    limit = found.reference_redundancy if is_low else ABOVE * found.reference_redundancy
    holds = found.redundancy < limit
    return sentence, _known(found, holds), f"{found.redundancy:.4f} against {found.reference_redundancy:.4f}"


def _known(found: Difference, holds: bool) -> bool | None:
    return holds if found.n_sets else None


def seeds_of(table: pd.DataFrame, part: str, method: str, size: int) -> pd.DataFrame:
    """Select the rows of a method on a part, by seed."""
    dataset, _, samples = part.partition("-n")
    rows = done(table[(table["method"] == method) & (table["size"] == size) & (table["dataset"] == dataset)])
    of_part = rows["samples"] == int(samples) if samples else rows["samples"].isna()
    return rows[of_part.fillna(False).astype(bool)].set_index("seed")


def _both(table: pd.DataFrame, part: str, methods: tuple[str, str], size: int) -> list[pd.DataFrame]:
    """Select the rows of two methods on a part, for the seeds with results of both."""
    found = [seeds_of(table, part, method, size) for method in methods]
    common = found[0].index.intersection(found[1].index)
    return [rows.loc[common] for rows in found]


def _kept(table: pd.DataFrame, part: str, size: int) -> Verdict:
    ours, before = _both(table, part, (OURS, BEFORE), size)
    gains = (ours["score"] - before["score"]).to_numpy(float)
    sentence = f"{part}, {size} features: no loss against the defaults of version 0.1"
    if not len(gains):
        return sentence, None, ""
    error = standard_error(gains)
    redundancy = float(ours["redundancy"].mean()), float(before["redundancy"].mean())
    holds = gains.mean() >= -np.nan_to_num(error) and redundancy[0] <= KEPT_REDUNDANCY * redundancy[1]
    figures = f"{gains.mean():+.4f} ± {error:.4f}, redundancy {redundancy[0]:.4f} after {redundancy[1]:.4f}"
    return sentence, bool(holds), figures


def _digits(table: pd.DataFrame) -> Verdict:
    ours, rival = _both(table, DIGITS, (OURS, "l1_svm"), MANY)
    gain = float((ours["score"] - rival["score"]).mean())
    return f"{DIGITS}, {MANY} features: ahead of L1-SVM", gain > 0 if len(ours) else None, f"{gain:+.4f}"


def _rare(table: pd.DataFrame, part: str, reference: str) -> Verdict:
    ours, other = (rows["average_precision"].mean() for rows in _both(table, part, (OURS, reference), RARE_SIZE))
    name = RIVALS.get(reference, "the defaults of version 0.1")
    sentence = f"{part}, {RARE_SIZE} features: average precision above that of {name}"
    return sentence, None if pd.isna(ours) else bool(ours > other), f"{ours:.3f} against {other:.3f}"
