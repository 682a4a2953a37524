"""N-grams in context: overlapping n-grams of a group, joined to the longer text that they come from.

Only the names of features are used, never a document: what is shown is what the machine found.
"""

from __future__ import annotations

#: A chain ends here in either direction.
MAX_STEPS = 60


def chain(support: str, members: list[str]) -> str | None:
    """The longest text around a support that its members spell, or None.

    Members must be as long as the support; one follows another where all but its last character overlap. Where several
    do, the first of `members` is taken, so pass the strongest first.

    Examples
    --------
    >>> chain("ttp:", ["http", "tp:/", "p://", "ttp:"])
    'http://'
    >>> chain("free", ["spam"]) is None
    True
    """
    n = len(support)
    if n < 2 or not members or any(len(name) != n for name in members):
        return None
    left: dict[str, str] = {}
    right: dict[str, str] = {}
    for name in members:
        if name != support:
            left.setdefault(name[1:], name)
            right.setdefault(name[:-1], name)
    text = _grow(support, right, n, forward=True)
    text = _grow(text, left, n, forward=False)
    return text if len(text) > n else None


def _grow(text: str, by_overlap: dict[str, str], n: int, forward: bool) -> str:
    used = set()
    for _ in range(MAX_STEPS):
        overlap = text[1 - n :] if forward else text[: n - 1]
        name = by_overlap.get(overlap)
        if name is None or name in used:
            break
        used.add(name)
        text = text + name[-1] if forward else name[0] + text
    return text
