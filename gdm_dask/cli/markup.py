"""Text from files and clusters, shown on a terminal as what it is."""

from __future__ import annotations

from rich import markup


def plain(text: str) -> str:
    r"""The text with control characters, but for line breaks, written out: none of them reaches a terminal.

    >>> plain("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "replace").decode() for c in text)


def escape(text: str) -> str:
    r"""`plain`, and brackets are no markup.

    >>> escape("[bold]\r")
    '\\[bold]\\r'
    """
    return markup.escape(plain(text))
