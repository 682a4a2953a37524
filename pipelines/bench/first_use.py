"""Compile time of a first ingest and fit, for each kind of data.

Run with ``make bench-first_use``; ``--signatures`` lists every compiled signature with its seconds. Each kind of data
runs in two processes: the first starts with an empty kernel cache, the second with the cache that the first filled.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import machine, measure

KINDS = ("demo", "decimals", "ones")
N_SAMPLES, N_FEATURES, IN_A_LINE = 2000, 20_000, 60

JOB = """
import sys, time
began = time.perf_counter()
from numba.core import event

class Recorder(event.Listener):
    '''Records the compiled kernels, and the seconds of each without the kernels that it calls.'''

    def __init__(self):
        self.open, self.seconds = [], 0.0

    def on_start(self, event):
        self.open.append([time.thread_time(), time.perf_counter(), 0.0])

    def on_end(self, event):
        start, wall, inner = self.open.pop()
        taken = time.thread_time() - start
        if self.open:
            self.open[-1][2] += taken
        else:
            self.seconds += time.perf_counter() - wall
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('gdm_dask.')}.{function.__name__}"
        print("compiled", f"{taken - inner:.3f}", name, *map(str, event.data["args"]), sep="\\t")

recorder = Recorder()
event.register("numba:compile", recorder)
from gdm_dask import GroupDiscoveryMachine, ingest
kind, source, folder = sys.argv[1:]
if kind == "demo":
    from gdm_dask.ingestion.sources.lookalikes.paper_data import make_paper_data
    data = make_paper_data(seed=0)
    given = data.X, f"{folder}/store.zarr", data.y
else:
    given = source, f"{folder}/store.zarr"
imported = time.perf_counter()
store = ingest(*given)
ingested = time.perf_counter()
GroupDiscoveryMachine(100).fit(store)
print("seconds", imported - began, ingested - imported, time.perf_counter() - ingested, recorder.seconds)
"""


def write_text(path: Path, kind: str) -> None:
    """Write svmlight text with two classes; values have six decimals, or are all 1."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for _ in range(N_SAMPLES):
            label = int(rng.integers(2))
            features = np.unique((N_FEATURES ** rng.random(IN_A_LINE)).astype(int) + label * rng.integers(2))
            values = 1 - rng.random(len(features))
            entries = (f"{j}:1" if kind == "ones" else f"{j}:{v:.6f}" for j, v in zip(features, values, strict=True))
            file.write(f"{2 * label - 1:+d} {' '.join(entries)}\n")


def main() -> None:
    """Print the seconds of the first and the second use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="kinds of data")
    parser.add_argument("--signatures", action="store_true", help="list every compiled signature")
    options = parser.parse_args()
    print(machine())
    for kind in options.only:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "data.svm"
            if kind != "demo":
                write_text(source, kind)
            env = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/cache"}
            for use in ("first", "second"):
                place = Path(folder) / use
                place.mkdir()
                measured = measure([sys.executable, "-c", JOB, kind, str(source), str(place)], env)
                *compiled, last = measured.output.splitlines()
                compiled = [line for line in compiled if line.startswith("compiled")]
                imports, ingest, fit, total = map(float, last.split()[1:])
                cpu = sum(float(line.split("\t")[1]) for line in compiled)
                print(
                    f"{kind}, {use} use: {len(compiled)} kernels compiled in {total:.2f} s ({cpu:.2f} s CPU); "
                    f"imports and data {imports:.2f} s, ingest {ingest:.2f} s, fit {fit:.2f} s; total {measured}",
                    flush=True,
                )
                if options.signatures:
                    for line in sorted(compiled, key=lambda line: -float(line.split("\t")[1])):
                        print("  " + "  ".join(line.split("\t")[1:]))


if __name__ == "__main__":
    main()
