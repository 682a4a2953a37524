"""Feature names are untrusted text: make them safe to print."""

from __future__ import annotations


def printable(text: str, limit: int) -> str:
    r"""Return a name with control characters escaped, cut at a length.

    >>> print(printable("a\tb", 10), printable("abcdef", 4))
    a\tb abc…
    """
    shown = text[: limit + 1]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in shown)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
