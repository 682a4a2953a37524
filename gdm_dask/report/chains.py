"""N-grams in context: overlapping n-grams of a group, joined to the longer text that they come from.

Only the names of features are used, never a document: what is shown is what the machine found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: A chain ends after this many steps in either direction: it shows a context, and does not rebuild a document.
MAX_STEPS = 12
#: Longer names are not n-grams.
LONGEST = 64
#: A character, or the escape of a byte that cannot be printed.
_CHARACTER = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\[a-z]|.", re.DOTALL)

Ngram = tuple[str, ...]


def chain(support: str, members: Sequence[str]) -> str | None:
    r"""The longest text around a support that its members spell, or None.

    Members must have as many characters as the support; one follows another where all but its last character overlap.
    Where several do, the first of `members` is taken, so pass the strongest first.

    Examples
    --------
    >>> chain("ttp:", ["http", "tp:/", "p://", "ttp:"])
    'http://'
    >>> print(chain(r"ist\n", ["list"]))
    list\n
    >>> chain("free", ["spam"]) is None
    True
    """
    if len(support) > LONGEST:
        return None
    middle, *others = (tuple(_CHARACTER.findall(name)) for name in (support, *members) if len(name) <= LONGEST)
    n = len(middle)
    if n < 2 or any(len(ngram) != n for ngram in others):
        return None
    others = [ngram for ngram in others if ngram != middle]
    right = {ngram[:-1]: ngram for ngram in reversed(others)}
    left = {ngram[1:]: ngram for ngram in reversed(others)}
    text = _grow(middle, right, n, forward=True)
    text = _grow(text, left, n, forward=False)
    return "".join(text) if len(text) > n else None


def _grow(text: Ngram, by_overlap: dict[Ngram, Ngram], n: int, forward: bool) -> Ngram:
    used = set()
    for _ in range(MAX_STEPS):
        ngram = by_overlap.get(text[1 - n :] if forward else text[: n - 1])
        if ngram is None or ngram in used:
            break
        used.add(ngram)
        text = (*text, ngram[-1]) if forward else (ngram[0], *text)
    return text
