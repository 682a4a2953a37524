"""A pass looks at every block of the data once: a reduction that knows neither Dask nor Zarr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gdm_dask.features.block import Block

Part = TypeVar("Part")
Result = TypeVar("Result", covariant=True)


class Pass(Protocol[Part, Result]):
    """What to do with the blocks; it travels to the workers, and parts of the answer travel back.

    The result must not depend on how the blocks are shared out, nor on the order of the parts.
    """

    @property
    def name(self) -> str:
        """Its time is counted under this name."""

    def begin(self) -> Part:
        """The answer before any block was seen."""

    def see(self, part: Part, block: Block) -> None:
        """Take a block into a part of the answer. The block lasts until the next call."""

    def merge(self, parts: Sequence[Part]) -> Part:
        """One part from several."""

    def finish(self, part: Part) -> Result:
        """The answer, on the driver."""


@dataclass(frozen=True)
class Together:
    """Several passes in one read of the data; its result is the list of theirs.

    Attributes
    ----------
    passes : list of Pass
    name : str
    """

    passes: Sequence[Pass[Any, Any]]
    name: str

    def begin(self) -> list[Any]:
        """The answer of each before any block was seen."""
        return [one.begin() for one in self.passes]

    def see(self, part: list[Any], block: Block) -> None:
        """Show a block to each."""
        for one, its_part in zip(self.passes, part, strict=True):
            one.see(its_part, block)

    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        """One part for each."""
        return [one.merge(its_parts) for one, its_parts in zip(self.passes, zip(*parts, strict=True), strict=True)]

    def finish(self, part: list[Any]) -> list[Any]:
        """The answer of each."""
        return [one.finish(its_part) for one, its_part in zip(self.passes, part, strict=True)]
