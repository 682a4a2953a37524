"""Algorithm 1: add the most violated cut, solve the master problem, repeat; every read gives valid bounds.

With the duals of the master problem over the cuts found so far,

- its optimum is a *lower* bound on (4), because it has fewer constraints;
- its objective at these duals, with a valid bound on (6) in place of the cuts, is an *upper* bound.

Both bounds refer to (4) over the features that no support covers. All cuts lie in this set. As supports are found, the
set shrinks and the optimum of (4) over it can only fall, so earlier upper bounds stay valid. Cuts taken from a working
set between two reads raise the lower bound; the upper bound is updated at the next read, which scores all features.
`constraints` tells what changes if some features must or must not be supports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from gdm_dask.cutting_plane.problem import Problem
from gdm_dask.cutting_plane.working_set import Seen, read
from gdm_dask.engine.data import Data
from gdm_dask.system.blas import single_threaded_blas
from gdm_dask.system.progress import work_clock
from gdm_dask.system.resources import n_cores


@single_threaded_blas()
def solve(problems: Sequence[Problem], data: Data, on_read: Callable[[], None] = lambda: None) -> None:
    """Add cuts to each problem until its bounds meet, its cuts repeat or it has enough. All problems share every read.

    The problems are new or were stopped. `on_cut` is called with a problem after each of its cuts, with several
    problems from any thread; `on_read` after all problems have taken their cuts from a read.
    """
    _include(problems, data)
    for problem in problems:
        problem.advance()  # continue with the working set it was stopped with
    while waiting := [problem for problem in problems if not problem.stopped]:
        clock, bytes_before = work_clock(), data.counts.bytes_read
        seen = read(data, [problem.question() for problem in waiting], [problem.fold for problem in waiting])
        _advance(waiting, seen, (work_clock() - clock, data.counts.bytes_read - bytes_before))
        on_read()
    for problem in problems:
        if problem.settings.n_supports is None and problem.cuts:
            problem.finish()


def _include(problems: Sequence[Problem], data: Data) -> None:
    """Read the features that must be supports, and make them the first cut of each new problem."""
    fresh = [problem for problem in problems if len(problem.include) and not problem.cuts]
    if not fresh:
        return
    rows = data.rows(fresh[0].include)
    for problem in fresh:
        if problem.fold.samples is None and problem.settings.constraints is not None:
            problem.settings.constraints.refuse_constant(problem.fold.of(rows).norms == 0.0)
        problem.begin(rows)


def _advance(problems: Sequence[Problem], seen: Iterable[Seen], cost: tuple[float, int]) -> None:
    """Let each problem take its cuts, one problem after the other or several in parallel; the results are the same.

    The result of a read is assembled for a problem only when a thread is free for it, so few are in memory at a time.
    """

    def take_cuts(problem: Problem, found: Seen) -> None:
        problem.see(found, *cost)
        problem.advance()

    n_threads = min(len(problems), n_cores())
    if n_threads == 1:
        for problem, found in zip(problems, seen, strict=True):
            take_cuts(problem, found)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        running: set[Future[None]] = set()
        for problem, found in zip(problems, seen, strict=True):
            running.add(pool.submit(take_cuts, problem, found))
            del found
            if len(running) == n_threads:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        for future in running:
            future.result()
