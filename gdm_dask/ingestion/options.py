"""What a user can choose about an ingest, checked."""

from __future__ import annotations

from dataclasses import dataclass

from gdm_dask.errors import BadInput
from gdm_dask.resources import format_bytes
from gdm_dask.store.chunks import check_codec
from gdm_dask.store.layout import MAX_BLOCK_BYTES

#: Features and samples are numbered in 32 bits.
MAX_COUNT = 2**32 - 1


@dataclass(frozen=True)
class IngestOptions:
    """Options that decide what is stored; see `gdm_dask.ingest`."""

    n_features: int | None
    index_base: int
    on_error: str
    dtype: str
    codec: str
    block_bytes: int

    def __post_init__(self) -> None:
        if self.index_base not in (0, 1):
            raise BadInput(f"index_base is 0 or 1, not {self.index_base!r}")
        if self.on_error not in ("raise", "skip"):
            raise BadInput(f"on_error is 'raise' or 'skip', not {self.on_error!r}")
        if self.dtype not in ("auto", "float32", "float64"):
            raise BadInput(f"dtype is auto, float32 or float64, not {self.dtype!r}")
        if self.n_features is not None and not 1 <= self.n_features <= MAX_COUNT:
            raise BadInput(f"n_features is a number from 1 to {MAX_COUNT}, not {self.n_features!r}")
        if self.block_bytes > MAX_BLOCK_BYTES:
            raise BadInput(f"a block holds at most {format_bytes(MAX_BLOCK_BYTES)}: choose a smaller block size")
        check_codec(self.codec)

    @property
    def value_limit(self) -> str | None:
        """The type that values are rounded to where it is narrower than they are; None keeps all exactly."""
        return None if self.dtype == "auto" else self.dtype
