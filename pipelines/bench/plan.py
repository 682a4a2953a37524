"""``gdm plan`` against the fits that it forecasts, in processor and wall-clock seconds, from 10^6 to 10^8 nonzeros.

Lookalikes at several scales are generated once, as stores below runs/bench. Each cell forecasts a fit of 100 supports
with groups three times, then runs it three times, in one process; the medians count. Processor seconds hardly depend on
other work on the computer; wall-clock seconds are comparable only on a quiet one. The last cell measures the time and
memory that a task costs a Dask scheduler and its client, which forecasts for clusters assume. See `frame` for the
options.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from frame import HERE, Benchmark, Line, Results, main

from gdm_dask import GroupDiscoveryMachine, open_store
from gdm_dask.engine import open_engine
from gdm_dask.growth.forecast import SCHEDULED_BYTES, SCHEDULED_SECONDS, Cluster, plan_store
from gdm_dask.ingestion.sources.lookalikes.files import synthesise
from gdm_dask.system.resources import n_cores

K, MEMORY, N_FITS, N_TASKS = 100, 8 * 10**9, 3, 5_000
#: Bounds on forecast over measured processor seconds.
LEAST, MOST = 0.75, 1.25
#: Lookalikes and their scales: 1.7e6 to 1.3e8 nonzeros.
SIZES = (
    ("kdd2010", 0.003), ("webspam", 0.003), ("news20", 1.0), ("kdd2010", 0.02), ("webspam", 0.01), ("url", 0.1),
    ("webspam", 0.03), ("kdd2010", 0.1), ("webspam", 0.1),
)  # fmt: skip


def forecast_and_fit(like: str, scale: float, _: Any) -> dict[str, Any]:
    """Forecast a fit, then measure it."""
    path = Path(HERE / "runs" / "bench" / f"{like}-{scale:g}.zarr")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        synthesise(like, path, scale)
    store = open_store(path)
    GroupDiscoveryMachine(K, memory_limit=MEMORY).fit(store)  # loads the kernels
    plans = [plan_store(store, K, Cluster(0, n_cores(), MEMORY), start=0.0) for _ in range(N_FITS)]
    fits = [_fit(store) for _ in range(N_FITS)]
    return {
        "nonzeros": f"{store.nnz:.1e}",
        "forecast": median(plan.total_seconds for plan in plans),
        "seconds": median(seconds for seconds, _ in fits),
        "forecast_processor": median(plan.processor_seconds for plan in plans),
        "processor": median(used for _, used in fits),
    }


def _fit(store: Any) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    GroupDiscoveryMachine(K, memory_limit=MEMORY).fit(store)
    return time.perf_counter() - began, time.process_time() - used


def scheduler(_: Any) -> dict[str, Any]:
    """Measure processor seconds and memory of tasks without work; scheduler and client are threads of this process."""
    with open_engine("local", 1) as engine:
        engine.reduce(int, sum, range(1000))
        process = psutil.Process(os.getpid())
        began, used, before = time.perf_counter(), time.process_time(), process.memory_info().rss
        engine.reduce(int, sum, range(N_TASKS))
        used, grown = time.process_time() - used, process.memory_info().rss - before
    return {"seconds": time.perf_counter() - began, "each": used / N_TASKS, "bytes": grown / N_TASKS}


def lines(results: Results) -> Iterator[Line]:
    """Compute the ratios of forecast to measurement."""
    for (_, name), found in results.items():
        if found["status"] == "ok" and name == "scheduler":
            yield Line(f"scheduler: {1000 * found['each']:.2f} ms a task", found["each"] / SCHEDULED_SECONDS)
            yield Line(f"scheduler: {found['bytes']:.0f} bytes a task", found["bytes"] / SCHEDULED_BYTES)
        elif found["status"] == "ok":
            for kind, forecast in (("processor", "forecast_processor"), ("seconds", "forecast")):
                text = f"{name}, {found['nonzeros']} nonzeros: {kind} forecast {found[forecast]:.2f}, "
                ratio = found[forecast] / found[kind]
                bounds = {"at_least": LEAST, "at_most": MOST} if kind == "processor" else {}
                yield Line(f"{text}measured {found[kind]:.2f}", ratio, **bounds)


CELLS: dict[str, Any] = {f"{like} {scale:g}": partial(forecast_and_fit, like, scale) for like, scale in SIZES}
CELLS["scheduler"] = scheduler
BENCHMARK = Benchmark("plan", ("generated",), CELLS, {}, lines, stored=False)

if __name__ == "__main__":
    main(BENCHMARK)
