"""What a pass costs driver and scheduler of a real cluster as workers, blocks and samples grow.

Run it with ``make bench-cluster``; it takes about five minutes, and up to 14 GB of memory. A scheduler and workers run
as processes of this computer, with one thread each. The passes are without work: tasks read nothing and look at
nothing, so that only the cost of the pass itself is measured. Processor seconds hardly depend on other work on the
computer. Bytes and messages are counted where they are sent, in all processes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import comms
import distributed
import numpy as np
import psutil
from measure import machine

from gdm_dask.cutting_plane.memory import PROCESS_BYTES
from gdm_dask.engine.cluster import ClusterEngine
from gdm_dask.engine.data import Data
from gdm_dask.features.block import Block
from gdm_dask.features.passes import share_out
from gdm_dask.features.ranking import Question, Ranked, ScorePass
from gdm_dask.growth.forecast import SCHEDULED_SECONDS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from helpers.clusters import Cluster

WORKERS = (2, 4, 8, 16, 32, 64)
BLOCKS = (10, 100, 1_000, 10_000, 100_000)
SAMPLES = (10**5, 10**6, 10**7, 10**8)
N_PASSES, BLOCK_BYTES = 5, 1 << 20
#: Copies of the vectors that all processes together may hold at once, beyond one for each worker.
COPIES = 6


class Nothing(ScorePass):
    """A pass without work."""

    def see(self, part: Ranked, block: Block) -> None:
        """Look away."""


class Unread:
    """A reader of blocks that does not read."""

    def blocks(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield nothing."""
        return iter(())


class Bench:
    """A cluster, and what its processes have done so far."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, options=("--preload", str(Path(comms.__file__))))
        comms.dask_setup(None)
        self.client = distributed.Client(self.cluster.address, set_as_default=False)
        self._scheduler = psutil.Process(self.cluster.scheduler.pid)

    def grow(self, n_workers: int) -> None:
        """Have so many workers, which have run a task."""
        self.cluster.refresh(n_workers)
        while len(self.client.scheduler_info(n_workers=-1)["workers"]) != n_workers:
            time.sleep(0.1)
        self.client.run(__import__, "gdm_dask.features.ranking")

    def measure(self, n_blocks: int, n_samples: int, n_passes: int = N_PASSES) -> dict[str, float]:
        """Return the cost of a pass: medians of seconds, means of all others."""
        data = Data(
            ClusterEngine(self.client, []), (n_blocks, n_samples), np.arange(n_blocks + 1), Unread(),  # type: ignore[arg-type]
            [BLOCK_BYTES] * n_blocks,
        )  # fmt: skip
        question = [Question(np.random.default_rng(0).normal(size=(1, n_samples)), 1)]
        data.run(Nothing(question))
        Path(f"/proc/{self._scheduler.pid}/clear_refs").write_text("5")  # the highest memory counts from here
        before, seconds, used = self._sent(), [], self._used()
        for _ in range(n_passes):
            began = time.perf_counter()
            data.run(Nothing(question))
            seconds.append(time.perf_counter() - began)
        used_then, after = self._used(), self._sent()
        found = {"seconds": statistics.median(seconds), "tasks": data.n_parts, "peak": self._peak()}
        found |= {f"{who} processor": (used_then[who] - used[who]) / n_passes for who in used}
        for who, (messages, n_bytes) in after.items():
            found[f"{who} messages"] = (messages - before[who][0]) / n_passes
            found[f"{who} bytes"] = (n_bytes - before[who][1]) / n_passes
        return found

    def _used(self) -> dict[str, float]:
        times = self._scheduler.cpu_times()
        return {"driver": time.process_time(), "scheduler": times.user + times.system}

    def _sent(self) -> dict[str, tuple[int, int]]:
        workers = list(self.client.run(comms.read_counts).values())
        return {
            "driver": comms.read_counts(),
            "scheduler": self.client.run_on_scheduler(comms.read_counts),
            "workers": (sum(count[0] for count in workers), sum(count[1] for count in workers)),
        }

    def _peak(self) -> int:
        lines = Path(f"/proc/{self._scheduler.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@contextmanager
def bench() -> Iterator[Bench]:
    """Start a cluster without workers."""
    with tempfile.TemporaryDirectory(prefix="gdm-bench-") as folder:
        started = Bench(Path(folder) / "cluster")
        try:
            yield started
        finally:
            started.client.close()
            started.cluster.end()


HEAD = (
    "| {} | tasks | pass, ms | processor ms: driver, scheduler; `gdm plan` | messages: driver, scheduler, workers "
    "| sent, MB: driver, scheduler, workers | scheduler, MB |\n|---|---|---|---|---|---|---|"
)


def line(what: str, found: dict[str, float]) -> str:
    """Return the row of a table."""
    who = ("driver", "scheduler", "workers")
    cells = (
        what, f"{found['tasks']:,}", f"{1000 * found['seconds']:,.0f}",
        ", ".join(f"{1000 * found[f'{name} processor']:,.0f}" for name in who[:2])
        + f"; {1000 * SCHEDULED_SECONDS * found['tasks']:,.0f}",
        ", ".join(f"{found[f'{name} messages']:,.0f}" for name in who),
        ", ".join(f"{found[f'{name} bytes'] / 1e6:,.1f}" for name in who),
        f"{found['peak'] / 1e6:,.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table for each of workers, blocks and samples, and the forecast for a thousand workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64, help="most workers")
    parser.add_argument("--samples", type=float, default=1e8, help="most samples")
    given = parser.parse_args()
    print(machine(), flush=True)
    with bench() as started:
        print(HEAD.format("workers"))
        for n_workers in [number for number in WORKERS if number <= given.workers]:
            started.grow(n_workers)
            print(line(f"{n_workers}", started.measure(10_000, 10**5)), flush=True)
        n_tasks = len(share_out([BLOCK_BYTES] * 10_000, 1_000))
        print(f"| 1,000 | {n_tasks:,} | | ; {1000 * SCHEDULED_SECONDS * n_tasks:,.0f} | | | |")
        started.grow(4)
        print("\n" + HEAD.format("blocks, 4 workers"))
        for n_blocks in BLOCKS:
            print(line(f"{n_blocks:,}", started.measure(n_blocks, 10**5)), flush=True)
        started.grow(8)
        print("\n" + HEAD.format("samples, 8 workers"))
        for n_samples in [number for number in SAMPLES if number <= given.samples]:
            needed = (8 + COPIES) * 8 * n_samples + PROCESS_BYTES
            if needed > psutil.virtual_memory().available:
                print(f"{n_samples:,} samples are left out: they take {needed / 1e9:.0f} GB of memory")
                continue
            print(line(f"{n_samples:,}", started.measure(1_000, n_samples, n_passes=2)), flush=True)


if __name__ == "__main__":
    main()
