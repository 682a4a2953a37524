"""Count what a Dask process sends: a preload for schedulers and workers, and for the driver's own process."""

from __future__ import annotations

from typing import Any

from distributed.comm.tcp import TCP

#: Messages and bytes sent so far.
sent = [0, 0]
_write = TCP.write


async def _counted(self: TCP, *args: Any, **options: Any) -> Any:
    n_bytes = await _write(self, *args, **options)
    sent[0] += 1
    sent[1] += n_bytes
    return n_bytes


def dask_setup(_: Any) -> None:
    """Begin to count."""
    TCP.write = _counted


def read_counts() -> tuple[int, int]:
    """Return messages and bytes of this process; Dask loads a preload under a name of its own."""
    import sys

    counts = [module.sent for name, module in list(sys.modules.items()) if name.split(".")[-1] == "comms"]
    return max((tuple(count) for count in counts), default=(0, 0))
