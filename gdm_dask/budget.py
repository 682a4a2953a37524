"""How much of long lists fits on a page: everything is cut at one level, and what is cut is said."""

from __future__ import annotations

import numpy as np

#: Pairs of support and member on a page.
MEMBER_BUDGET = 130_000
#: Characters of all names of supports, and of all other names.
SUPPORT_NAME_BUDGET = 1_000_000
MEMBER_NAME_BUDGET = 2_000_000


def level(sizes: np.ndarray, budget: int) -> int:
    """The largest limit at which lists of these sizes, each cut at it, fit into a budget; at least 1.

    Examples
    --------
    >>> level(np.array([2, 3, 100]), 25), level(np.array([2, 3]), 25)
    (20, 3)
    """
    order = np.sort(np.asarray(sizes, np.int64))
    if len(order) == 0 or order.sum() <= budget:
        return int(order.max(initial=1))
    before = np.concatenate([[0], np.cumsum(order)[:-1]])
    room = (budget - before) // np.arange(len(order), 0, -1)  # for each of the lists from here on
    return max(1, int(room[np.argmax(room < order)]))


def shorten(names: list[str], budget: int) -> list[str]:
    """Names that fit into a budget of characters; the end of a long one is replaced by its length.

    Examples
    --------
    >>> shorten(["ab", "c" * 50], 30)
    ['ab', 'cccccccccccccccccccccccccccc… (50 characters)']
    """
    limit = max(16, level(np.array([len(name) for name in names]), budget))
    return [name if len(name) <= limit else f"{name[:limit]}… ({len(name):,} characters)" for name in names]
