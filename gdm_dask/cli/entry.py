"""``gdm`` as a process of its own: quick to start and quick to end."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

#: Objects that are made before the collector looks for garbage. Those of a start are modules and classes, which stay;
#: with Python's own 700 it looks through all of them again and again, for a sixth of a second.
_COLLECTED_AFTER = 100_000


def gdm() -> NoReturn:
    """Run the command line and end at once: to take the interpreter apart would take a third of a second."""
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    from gdm_dask.cli.main import run

    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    atexit._run_exitfuncs()  # the last step of an ordinary end that is of use
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # `run` has said so, if there was anybody to tell
            stream.flush()
    os._exit(code)
