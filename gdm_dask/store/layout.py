"""The layout of a feature store: which array lies where, and the manifest that describes them all.

::

    STORE/zarr.json                  root group; its attribute "gdm_dask" is the manifest
    STORE/targets                    optional: (n,) class codes, or (n, K) float64 (format 1: labels, -1 or +1)
    STORE/sample_ids/{offsets,text}  optional
    STORE/vocabulary                 (bytes,) uint8: of a store of documents, what makes rows of further ones
    STORE/blocks/00000/indptr        (rows + 1,) uint32: where each feature's nonzeros begin   (sparse stores)
    STORE/blocks/00000/indices       (nonzeros,) uint32: their samples                         (sparse stores)
    STORE/blocks/00000/values        (nonzeros,), left out where all are 1; dense: (rows, n). Float64 values
                                     that are int32 over a power of ten are stored so
    STORE/blocks/00000/means         (rows,) float64: mean of each feature
    STORE/blocks/00000/norms         (rows,) float64: norm of each feature less its mean
    STORE/blocks/00000/counts        (rows,) uint32: nonzeros of each feature                  (dense stores)
    STORE/blocks/00000/names/...     optional: feature names, as offsets and UTF-8 text

A block is a Zarr group of its own, so its chunks belong to it alone, its size can follow the nonzeros, and a worker
needs nothing but the block's folder and its manifest entry.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gdm_dask.errors import DamagedStore
from gdm_dask.features.block import Block
from gdm_dask.features.whole_numbers import fewest_decimals, shorten
from gdm_dask.store.arrays import ArrayEntry, check_metadata, read_array, read_ranges, write_array
from gdm_dask.store.folder import PARTIAL, Folder
from gdm_dask.system.scratch import Buffers

FORMAT = "gdm_dask feature store"
FORMAT_VERSION = 2
ROOT = "zarr.json"
#: All that can lie in a store's folder.
ROOT_NAMES = frozenset({ROOT, "labels", "targets", "sample_ids", "vocabulary", "blocks"})

ROOT_ARRAYS = frozenset({"labels", "targets", "sample_ids/offsets", "sample_ids/text", "vocabulary"})
BLOCK_ARRAYS = frozenset({"values", "means", "norms", "indptr", "indices", "counts", "names/offsets", "names/text"})

#: Decoded bytes of a block: a quarter of a second of work or less, and a small part of any worker's memory.
BLOCK_BYTES = 64 << 20

#: Pointers within a block are uint32, and blosc takes chunks below 2 GiB (a dense row is never cut).
MAX_BLOCK_BYTES = 2**31 - 64


@dataclass(frozen=True)
class BlockEntry:
    """What the manifest knows of one block: its features, its nonzeros, its arrays."""

    start: int
    stop: int
    nnz: int
    arrays: dict[str, ArrayEntry]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that a pass reads, in memory."""
        return self.nbytes_of(as_stored=self.is_sparse)

    def nbytes_of(self, as_stored: bool) -> int:
        """Decoded bytes of these arrays, as they are stored or as numbers."""
        return sum(entry.nbytes_of(as_stored) for name, entry in self.arrays.items() if not name.startswith("names/"))

    @property
    def is_sparse(self) -> bool:
        """Whether its rows are compressed; then whole numbers that stand for others stay so in memory, too."""
        return "indptr" in self.arrays

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> BlockEntry:
        """Read what ``asdict`` wrote."""
        arrays = {name: ArrayEntry(**entry) for name, entry in document["arrays"].items()}
        return cls(document["start"], document["stop"], document["nnz"], arrays)


@dataclass(frozen=True)
class Manifest:
    """All that is known of a store without reading its arrays; `fingerprint` identifies the content."""

    kind: str
    shape: tuple[int, int]
    nnz: int
    value_type: str
    codec: str
    target: dict[str, Any] | None
    blocks: list[BlockEntry]
    arrays: dict[str, ArrayEntry]
    provenance: dict[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def fingerprint(self) -> str:
        """SHA-256 over shape, target and the checksums of all chunks: equal for equal content."""
        content = {key: value for key, value in asdict(self).items() if key not in ("provenance", "format_version")}
        if self.format_version == 1:
            content["classes"] = content.pop("target")["classes"]
        return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Write the root group. It comes last: a store without it is no store."""
    body = {"format": FORMAT, **asdict(manifest)}
    body["sha256"] = hashlib.sha256(_canonical(body)).hexdigest()
    root = {"zarr_format": 3, "node_type": "group", "attributes": {"gdm_dask": body}}
    folder.write(ROOT, json.dumps(root).encode())


def read_manifest(folder: Folder) -> Manifest:
    """Read the root group; refuse what is not a whole store of a version that this software knows."""
    try:
        root = json.loads(folder.read(ROOT))
        body = root["attributes"]["gdm_dask"]
        version = body["format_version"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise DamagedStore(f"{folder.url}: there is no feature store here{_why_not(folder, error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStore(
            f"{folder.url}: {ROOT} is not that of a feature store, or it is damaged. Make one with 'gdm ingest'."
        ) from error
    if version not in (1, FORMAT_VERSION):
        raise DamagedStore(
            f"{folder.url}: the store has format version {version}, this software reads up to {FORMAT_VERSION}. "
            "Install a matching gdm_dask, or ingest the source again."
        )
    digest = body.pop("sha256", None)
    if digest != hashlib.sha256(_canonical(body)).hexdigest():
        raise DamagedStore(f"{folder.url}: the manifest in {ROOT} is damaged. Ingest the source again.")
    del body["format"]
    if version == 1:
        body["target"] = {"kind": "classes", "classes": body.pop("classes")}
    body["shape"] = tuple(body["shape"])
    body["blocks"] = [BlockEntry.from_json(entry) for entry in body["blocks"]]
    body["arrays"] = {name: ArrayEntry(**entry) for name, entry in body["arrays"].items()}
    manifest = Manifest(**body)
    _check_names(folder, manifest)
    return manifest


def _why_not(folder: Folder, error: OSError) -> str:
    if folder.is_local and os.path.exists(f"{folder.path}{PARTIAL}"):
        return " yet: its ingest has not ended. Wait for it; if it was stopped, give the same command again."
    return f" ({type(error).__name__}). Make one with 'gdm ingest'."


def _check_names(folder: Folder, manifest: Manifest) -> None:
    """Names of arrays become paths: only those that are written here may be read."""
    unknown = set(manifest.arrays) - ROOT_ARRAYS
    for entry in manifest.blocks:
        unknown |= set(entry.arrays) - BLOCK_ARRAYS
    if unknown:
        raise DamagedStore(f"{folder.url}: the manifest names unknown arrays: {sorted(unknown)}. Ingest again.")


def block_path(number: int) -> str:
    """Folder of a block within the store.

    >>> block_path(12)
    'blocks/00012'
    """
    return f"blocks/{number:05d}"


def write_group(folder: Folder, path: str) -> None:
    """Write the ``zarr.json`` that makes a folder a Zarr group."""
    document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    folder.write(f"{path}/{ROOT}", json.dumps(document).encode())


def write_text(folder: Folder, path: str, texts: list[str], codec: str) -> dict[str, ArrayEntry]:
    """Write strings as a group of two arrays; returns their manifest entries, by name below `path`."""
    write_group(folder, path)
    return {key: write_array(folder, f"{path}/{key}", array, codec) for key, array in pack_text(texts).items()}


def write_block(folder: Folder, number: int, block: Block, codec: str, names: list[str] | None = None) -> BlockEntry:
    """Write a block's arrays, each read back and compared, and return its manifest entry.

    Whole numbers over a power of ten are made smaller where they can be, in place: the block is of no use afterwards.
    """
    path = block_path(number)
    write_group(folder, path)
    parts = {"means": block.means, "norms": block.norms}
    if block.indptr is not None and block.indices is not None:
        parts |= {"indptr": block.indptr, "indices": block.indices}
    else:
        parts["counts"] = block.counts().astype(np.uint32)
    decimals = None
    if block.values is not None:
        parts["values"] = block.values
        if block.decimals is not None:
            decimals = shorten(block.values, block.decimals)
        elif block.values.dtype == np.float64:
            decimals = fewest_decimals(block.values)
    arrays = {
        name: write_array(folder, f"{path}/{name}", array, codec, decimals if name == "values" else None)
        for name, array in sorted(parts.items())
    }
    if names is not None:
        text = write_text(folder, f"{path}/names", names, codec)
        arrays |= {f"names/{key}": entry for key, entry in text.items()}
    return BlockEntry(block.start, block.stop, int(block.counts().sum()), arrays)


def read_block(folder: Folder, number: int, entry: BlockEntry, n_samples: int, buffers: Buffers | None = None) -> Block:
    """Read and check a whole block, into `buffers` where they are given.

    Without them it has memory of its own, to be kept there: a copy in the page cache would be of no use.
    """
    once = buffers is None
    buffers = buffers or Buffers()  # what is kept lies in memory of its own
    sparse = entry.is_sparse
    found = {
        name: read_array(
            folder, f"{block_path(number)}/{name}", entry.arrays[name], buffers=buffers, once=once, as_stored=sparse
        )
        for name in ("values", "means", "norms", "indptr", "indices", "counts")
        if name in entry.arrays
    }
    decimals = entry.arrays["values"].places if sparse and "values" in found else None
    return Block(
        entry.start, entry.stop, n_samples, found.get("values"), found["means"], found["norms"],
        found.get("indptr"), found.get("indices"), found.get("counts"), decimals,
    )  # fmt: skip


def check_block(folder: Folder, number: int, entry: BlockEntry, n_samples: int) -> Block:
    """Read all that belongs to a block, names and metadata too; raises `DamagedStore` at the first fault."""
    for name, array in entry.arrays.items():
        path = f"{block_path(number)}/{name}"
        check_metadata(folder, path, array)
        if name.startswith("names/"):
            read_array(folder, path, array)
    return read_block(folder, number, entry, n_samples)


def pack_text(texts: list[str]) -> dict[str, np.ndarray]:
    """Strings as two arrays: ``text`` (UTF-8 bytes) and ``offsets`` (where each begins, and the end).

    >>> pack_text(["ab", "", "c"])["offsets"].tolist()
    [0, 2, 2, 3]
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)]).astype(np.int64)
    return {"offsets": offsets, "text": np.frombuffer(b"".join(encoded), np.uint8)}


def unpack_text(offsets: np.ndarray, text: np.ndarray) -> list[str]:
    """Undo `pack_text`.

    >>> unpack_text(**pack_text(["ab", "", "c"]))
    ['ab', '', 'c']
    """
    data = text.tobytes()
    bounds = offsets.tolist()
    return [data[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]


def read_block_rows(folder: Folder, number: int, entry: BlockEntry, n_samples: int, local: np.ndarray) -> Block:
    """Read some rows of a block (positions within it, increasing); decodes only the chunks that hold them."""
    path = block_path(number)

    def whole(name: str) -> np.ndarray:
        return read_array(folder, f"{path}/{name}", entry.arrays[name])

    def ranges(name: str, starts: np.ndarray, stops: np.ndarray) -> np.ndarray | None:
        if name not in entry.arrays:
            return None
        return read_ranges(folder, f"{path}/{name}", entry.arrays[name], starts, stops)

    means, norms = whole("means")[local], whole("norms")[local]
    if not entry.is_sparse:
        counts = whole("counts")[local]
        return Block(0, len(local), n_samples, ranges("values", local, local + 1), means, norms, nonzeros=counts)
    pointers = whole("indptr").astype(np.int64)
    starts, stops = pointers[local], pointers[local + 1]
    indptr = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.uint32)
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    indices = ranges("indices", starts, stops)
    return Block(0, len(local), n_samples, ranges("values", starts, stops), means, norms, indptr, indices)
