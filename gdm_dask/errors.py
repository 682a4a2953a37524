"""What can go wrong, and the exit code the command line gives it."""

from __future__ import annotations


class GdmError(Exception):
    """An error that the user can act on: the message names the place and the remedy."""

    exit_code = 1


class BadInput(GdmError, ValueError):
    """Bad input: the message names the place and the remedy."""

    exit_code = 2


class BadValue(BadInput):
    """A value that a store cannot hold, and its feature, if known; an ingest adds the names of source and feature."""

    def __init__(self, problem: str, feature: int | None = None) -> None:
        super().__init__(problem, feature)
        self.feature = feature

    def __str__(self) -> str:
        """Return the problem."""
        return str(self.args[0])


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


#: Errors of the system about a path that was given, and not about the machine.
_WRONG_PLACES = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


def exit_code_of(error: BaseException) -> int:
    """Exit code of an error.

    >>> exit_code_of(BadInput("tau")), exit_code_of(FileNotFoundError()), exit_code_of(OSError("the disk is full"))
    (2, 2, 1)
    """
    if isinstance(error, GdmError):
        return error.exit_code
    return BadInput.exit_code if isinstance(error, _WRONG_PLACES) else GdmError.exit_code
