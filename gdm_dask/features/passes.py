"""A pass visits every block of the data once: a reduction that knows neither Dask nor Zarr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gdm_dask.features.block import Block

Part = TypeVar("Part")
Result = TypeVar("Result", covariant=True)


class Pass(Protocol[Part, Result]):
    """A reduction over blocks. It is sent to the workers, and partial results are sent back.

    The result must not depend on how the blocks are shared out, nor on the order of the parts.
    """

    @property
    def name(self) -> str:
        """Name under which its time is counted."""

    def begin(self) -> Part:
        """Return the part before any block was seen."""

    def see(self, part: Part, block: Block) -> None:
        """Add a block to a part. The block is valid until the next call."""

    def merge(self, parts: Sequence[Part]) -> Part:
        """Merge several parts into one."""

    def finish(self, part: Part) -> Result:
        """Turn the merged part into the result, on the driver."""


@dataclass(frozen=True)
class Together:
    """Several passes in one read of the data; the result is the list of their results."""

    passes: Sequence[Pass[Any, Any]]
    name: str

    def begin(self) -> list[Any]:
        """Return the initial part of each pass."""
        return [one.begin() for one in self.passes]

    def see(self, part: list[Any], block: Block) -> None:
        """Show a block to each pass."""
        for one, its_part in zip(self.passes, part, strict=True):
            one.see(its_part, block)

    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        """Merge the parts of each pass."""
        return [one.merge(its_parts) for one, its_parts in zip(self.passes, zip(*parts, strict=True), strict=True)]

    def finish(self, part: list[Any]) -> list[Any]:
        """Return the result of each pass."""
        return [one.finish(its_part) for one, its_part in zip(self.passes, part, strict=True)]
