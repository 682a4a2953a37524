"""What can go wrong, and the exit code the command line gives it."""

from __future__ import annotations


class GdmError(Exception):
    """An error that the user can act on: the message names the place and the remedy."""

    exit_code = 1


class BadInput(GdmError, ValueError):
    """Bad input: the message names the place and the remedy."""

    exit_code = 2


class DamagedStore(BadInput):
    """A store that is missing, incomplete, damaged or of another format version."""


class Locked(GdmError):
    """Another process is writing to the same place."""

    exit_code = 4


class EngineError(GdmError):
    """The Dask engine could not do the work."""

    exit_code = 3


class MemoryLimitTooLow(BadInput):
    """The memory limit cannot be kept: the message says how much is needed."""
