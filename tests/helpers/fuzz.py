"""Shared by the fuzz tests. ``GDM_FUZZ=5000`` runs 5,000 examples of each; by default there are a few.

    python -m helpers.fuzz --minutes 60

repeats all of them with new examples until one fails or the time is over.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

FUZZ = settings(
    max_examples=int(os.environ.get("GDM_FUZZ", "30")),
    deadline=None,
    derandomize="GDM_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
JSON = SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(st.text(max_size=5), SCALAR, max_size=3)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the paths of all values of a JSON document."""
    if isinstance(document, dict):
        items = list(document.items())
    else:
        items = list(enumerate(document)) if isinstance(document, list) else []
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def change_somewhere(data: st.DataObject, document: Any) -> None:
    """Replace one to three values of a JSON document."""
    found = places(document)[1:]
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(found))
        inner = document
        try:
            for key in path:
                inner = inner[key]
            inner[last] = data.draw(JSON | st.just(inner[last]))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this path


def changed_bytes(data: st.DataObject, content: bytes) -> bytes:
    """Replace, remove, insert or cut off some bytes."""
    body = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        stop = min(len(body), start + data.draw(st.sampled_from([0, 1, 1, 4, 40])))
        body[start:stop] = data.draw(st.binary(max_size=8))
    return bytes(body[: data.draw(st.sampled_from([len(body), len(body), len(body), len(body) // 2]))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--examples", type=int, default=500, help="of each test in a round")
    parser.add_argument("--memory", type=float, default=8.0, help="GB of address space that a test may take")
    given = parser.parse_args()
    tests = Path(__file__).parents[1]
    files = [str(path) for path in sorted(tests.rglob("test_*.py")) if "helpers.fuzz import" in path.read_text()]
    timeout = ["--timeout", "1800"]  # of a test: its examples take minutes on a busy machine
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", *timeout, "-k", "test_any_", *files]
    resource.setrlimit(resource.RLIMIT_AS, (int(given.memory * 1e9),) * 2)
    began, n_rounds = time.monotonic(), 0
    while time.monotonic() - began < 60 * given.minutes:
        code = subprocess.run(command, env=os.environ | {"GDM_FUZZ": str(given.examples)}, check=False).returncode
        n_rounds += 1
        if code:
            sys.exit(f"round {n_rounds} found something: pytest ended with {code}")
    print(f"{n_rounds} rounds of {given.examples} examples of each test in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
