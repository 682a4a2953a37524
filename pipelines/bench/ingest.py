"""Complete ingest of a large svmlight text, against scikit-learn merely loading it.

Run with ``make bench-ingest``; ``--gigabytes`` sets the size. The text is generated: each line has about 750 of a
million features, and features with small numbers are more frequent. Values have six decimals, as in webspam, or are all
1, as in kdd2010.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import machine, measure
from numba import njit

#: Measurements of each side, taken in turns; the best counts, because other processes can only slow a run down.
TURNS = 2
N_FEATURES = 1_000_000
PIECE = 64 << 20

GDM = [sys.executable, "-c", "from gdm_dask.cli.main import run; run()", "-q"]
LOAD = """
import sys, time
from sklearn.datasets import load_svmlight_file
began = time.perf_counter()
matrix, labels = load_svmlight_file(sys.argv[1])
print(time.perf_counter() - began, matrix.nnz)
"""


@njit
def write_number(number, digits, out, place):
    """Write a number with at least `digits` digits; returns the position behind it."""
    width, power = 1, 10
    while width < digits or number >= power:
        width, power = width + 1, power * 10
    for position in range(place + width - 1, place - 1, -1):
        out[position] = 48 + number % 10
        number //= 10
    return place + width


@njit
def next_random(state):
    """Return the next state of a 32-bit xorshift generator."""
    state ^= (state << 13) & 0xFFFFFFFF
    state ^= state >> 17
    return state ^ ((state << 5) & 0xFFFFFFFF)


@njit
def write_lines(state, decimals, out):
    """Fill the buffer with whole lines; returns the number of bytes written and the generator's next state."""
    place = 0
    while place < len(out) - 50_000:
        state = next_random(state)
        out[place] = 45 if state & 1 else 43
        out[place + 1] = 49
        place += 2
        feature = 1
        while feature <= N_FEATURES:
            state = next_random(state)
            out[place] = 32
            place = write_number(feature, 1, out, place + 1)
            out[place] = 58
            if decimals:
                out[place + 1], out[place + 2] = 48, 46
                place = write_number(state % 1_000_000, 6, out, place + 3)
            else:
                out[place + 1] = 49
                place += 2
            feature += 1 + (feature * (state >> 22)) // 27_000
        out[place] = 10
        place += 1
    return place, state


def generate(path: Path, n_bytes: int, decimals: bool) -> None:
    """Write about `n_bytes` of text."""
    buffer, state, written = np.empty(PIECE, np.uint8), 88172645, 0
    with open(path, "wb", buffering=0) as file:
        while written < n_bytes:
            filled, state = write_lines(state, decimals, buffer[: max(n_bytes - written, 100_000)])
            written += file.write(buffer[:filled].data)
        os.fsync(file.fileno())  # else the disk would still be writing it while it is read


def compare(folder: Path, n_bytes: int, decimals: bool) -> float:
    """Print the figures of both sides for one kind of text, and return their ratio."""
    text, store = folder / "x.svm", folder / "store.zarr"
    generate(text, 200_000, decimals)
    small = measure([*GDM, "ingest", str(text), str(store), "--overwrite"])
    print(f"gdm ingest of {text.stat().st_size:,} bytes (compiles its kernels on first use): {small}")
    generate(text, n_bytes, decimals)
    size = text.stat().st_size
    best, their_best = float("inf"), float("inf")
    for _ in range(TURNS):
        ours = measure([*GDM, "ingest", str(text), str(store), "--overwrite"])
        print(f"gdm ingest of {size / 1e9:.2f} GB: {ours}, {size / ours.seconds / 1e6:.0f} MB/s")
        theirs = measure([sys.executable, "-c", LOAD, str(text)])
        seconds, nnz = theirs.output.split()
        print(
            f"sklearn.datasets.load_svmlight_file: {float(seconds):.2f} s, {size / float(seconds) / 1e6:.0f} MB/s, "
            f"peak memory {theirs.peak_bytes / 1e6:.0f} MB, {int(nnz):,} nonzeros",
            flush=True,
        )
        best, their_best = min(best, ours.seconds), min(their_best, float(seconds))
    print(f"gdm verify: {measure([*GDM, 'verify', str(store)])}")
    return their_best / best


def main() -> None:
    """Print a ratio for each kind of text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--least-ratio", type=float, default=0.0, help="fail if a ratio is below this")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for kind, decimals in (("values of six decimals", True), ("values of 1", False)):
            print(f"{kind}:")
            ratio = compare(Path(folder), int(arguments.gigabytes * 1e9), decimals)
            print(f"ratio: {ratio:.1f} times faster", flush=True)
            if ratio < arguments.least_ratio:
                raise SystemExit(f"the ratio must be at least {arguments.least_ratio}, got {ratio:.1f}")


if __name__ == "__main__":
    main()
