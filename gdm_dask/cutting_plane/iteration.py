"""Result and cost of one iteration of the cutting plane: what callbacks, logs and models record of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdm_dask.system.resources import format_bytes


@dataclass(frozen=True)
class Iteration:
    """Result and cost of one iteration, passed to callbacks.

    Attributes
    ----------
    number : int
        From 1.
    cut : list of int
        Features of the cut, by rank; included features, which all cuts hold, in the first cut only.
    n_new : int
        Features of the cut that became supports; features that enter together count as one.
    n_supports : int
        Supports so far, counted in the same way.
    best_score : float
        Largest ``|c_j|`` of the cut over the norm of the duals; 1 if a feature explains all that is left to explain.
    lower, upper, gap : float
        Bounds on (4) and ``(upper - lower) / upper``.
    n_ranked, n_examined : int
        Features of the working set, and how many of them have been compared so far.
    bytes_read : int
        Decoded bytes read for this iteration; 0 if the working set of the previous cut was used.
    seconds : dict
        Time spent on ``scores``, ``matching`` and ``master``.
    scores : list of float
        |Score| of each feature of the cut, or of its variable, in the units of `best_score` and the order of `cut`.
    n_reads : int
        Reads of the data so far.
    n_entering : int or None
        Supports that are to enter; None if the gap decides when to stop.
    """

    number: int
    cut: list[int]
    n_new: int
    n_supports: int
    best_score: float
    lower: float
    upper: float
    gap: float
    n_ranked: int
    n_examined: int
    bytes_read: int
    seconds: dict[str, float]
    scores: list[float] = field(default_factory=list)
    n_reads: int = 0
    n_entering: int | None = None

    def __str__(self) -> str:
        goal = f" of {self.n_entering:,}" if self.n_entering is not None else ""
        gap = f"gap {self.gap:.2%}, " if self.n_entering is None else ""
        read = f"read {format_bytes(self.bytes_read)}, " if self.bytes_read else ""
        return (
            f"cut {self.number}: {self.n_supports:,}{goal} supports (+{self.n_new}), best score {self.best_score:.4g}, "
            f"{gap}{read}{sum(self.seconds.values()):.2f} s"
        )
