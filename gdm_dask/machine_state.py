"""The state of the cutting plane: what it is to do, how far it is, and what each iteration found."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdm_dask.master import Master, MasterSolution
from gdm_dask.matching import Spoken
from gdm_dask.pool import Pool


@dataclass(frozen=True)
class Iteration:
    """What one iteration found and took; a callback gets it.

    Attributes
    ----------
    number : int
        From 1.
    cut : list of int
        Features of the cut, by rank.
    n_new : int
        Those that became supports with it.
    n_supports : int
        Supports so far.
    best_score : float
        Largest ``|c_j|``.
    lower, upper, gap : float
        Bounds on (4) and ``(upper - lower) / upper``.
    n_ranked, n_examined : int
        Features that came back from the ranking, and those whose rows were compared.
    bytes_read : int
        Decoded bytes that the score pass had to read.
    seconds : dict
        Time for ``scores``, ``matching`` and ``master``.
    scores : list of float
        Score of each feature of the cut, in the same order.
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

    def __str__(self) -> str:
        parts = " ".join(f"{name} {seconds:.2f}s" for name, seconds in self.seconds.items())
        return (
            f"cut {self.number}: best score {self.best_score:.4g}, {self.n_supports} supports (+{self.n_new}), "
            f"bounds [{self.lower:.6g}, {self.upper:.6g}], gap {self.gap:.2%}, "
            f"{self.bytes_read / 1e6:.0f} MB read, {parts}"
        )


@dataclass
class Machine:
    """State of the cutting plane: all that is needed to go on from here.

    Attributes
    ----------
    spoken : Spoken
        Supports in the order of their entry, their rows, and whom they speak for.
    cuts : list of list of int
        Features of each cut.
    solution : MasterSolution or None
        Of the last master problem.
    lower_bounds, upper_bounds : list of float
        After each cut.
    stopped : str
        Why it stopped: ``"tolerance"``, ``"max_cuts"``, ``"repeated cut"``, ``"nothing left"``, ``"enough supports"``.
    pool : Pool
        Other features that were compared.
    """

    spoken: Spoken
    master: Master
    cuts: list[list[int]] = field(default_factory=list)
    solution: MasterSolution | None = None
    lower_bounds: list[float] = field(default_factory=list)
    upper_bounds: list[float] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    stopped: str = ""
    pool: Pool = field(default_factory=Pool)

    @property
    def gap(self) -> float:
        """Relative gap between the bounds; 1 before the first cut."""
        if not self.lower_bounds:
            return 1.0
        upper = self.upper_bounds[-1]
        return max(0.0, (upper - self.lower_bounds[-1]) / upper) if upper > 0 else 0.0


@dataclass(frozen=True)
class Settings:
    """What the cutting plane is to do.

    Attributes
    ----------
    C, tau : float
        The paper's parameters; tau = 0 switches the correlation constraint off (FGM).
    cut_size : int
        B, the most features of a cut.
    max_cuts : int
        T.
    tol : float
        Relative gap at which to stop.
    matching : {"greedy", "exact"}
    n_supports : int or None
        Stop when this many supports have entered. Then cuts hold new features only: the most violated cut would often
        hold the same supports again, and the search would stall before there are enough.
    pool_per_cut : int
        Features that each cut leaves in the pool.
    """

    C: float
    tau: float
    cut_size: int
    max_cuts: int
    tol: float
    matching: str = "greedy"
    n_supports: int | None = None
    pool_per_cut: int = 0
