"""Which worker does which task: the same one in every pass, so that it finds the blocks that it kept."""

from __future__ import annotations

import math


class Homes:
    """A worker for each place (the number of a task in a pass), changed as little as workers come and go.

    Examples
    --------
    >>> homes = Homes()
    >>> homes.settle(4, {"a": 1, "b": 1})
    >>> [homes.of(place) for place in range(4)]
    ['a', 'b', 'a', 'b']
    >>> homes.settle(4, {"b": 1, "c": 1})  # "a" has gone, "c" takes what it had
    >>> [homes.of(place) for place in range(4)]
    ['c', 'b', 'c', 'b']
    """

    def __init__(self) -> None:
        self._homes: dict[int, str] = {}
        self._n_places = 0

    def settle(self, n_places: int, threads: dict[str, int]) -> None:
        """Give all places so far a home among these workers (address -> threads), in proportion to their threads.

        A place keeps its home while that worker is there and has no more than its share.
        """
        n_places = self._n_places = max(n_places, self._n_places)
        in_all = sum(threads.values())
        room = {worker: math.ceil(n_places * count / in_all) for worker, count in threads.items()}
        kept: dict[int, str] = {}
        for place in range(n_places):
            home = self._homes.get(place)
            if home in room and room[home] > 0:
                kept[place] = home
                room[home] -= 1
        for place in range(n_places):
            if place not in kept:
                home = max(sorted(room), key=lambda worker: room[worker] / threads[worker])
                kept[place] = home
                room[home] -= 1
        self._homes = kept

    def of(self, place: int) -> str | None:
        """The home of a place, where it has one."""
        return self._homes.get(place)
