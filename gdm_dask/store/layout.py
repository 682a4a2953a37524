"""The layout of a feature store: the place of each array, and the manifest that describes all of them.

::

    STORE/zarr.json                  root group; its attribute "gdm_dask" is the manifest
    STORE/targets                    optional: (n,) class codes, or (n, K) float64 (format 1: labels, -1 or +1)
    STORE/sample_weight              (n,) float64, optional: weight of each sample
    STORE/sample_ids/{offsets,text}  optional
    STORE/vocabulary                 (bytes,) uint8, optional: vocabulary that turns further documents into rows
    STORE/blocks/00000/indptr        (rows + 1,) uint32: where each feature's nonzeros begin   (sparse stores)
    STORE/blocks/00000/indices       (nonzeros,) uint32: their samples                         (sparse stores)
    STORE/blocks/00000/values        (nonzeros,), absent if all are 1; dense: (rows, n). Float64 values that are
                                     int32 over a power of ten are stored as int32
    STORE/blocks/00000/means         (rows,) float64: mean of each feature
    STORE/blocks/00000/norms         (rows,) float64: norm of each centred feature
    STORE/blocks/00000/counts        (rows,) uint32: nonzeros of each feature                  (dense stores)
    STORE/blocks/00000/names/...     optional: feature names, as offsets and UTF-8 text

A block is a Zarr group of its own: its chunks belong to it alone, its size can follow the nonzeros, and a worker
needs only the block's folder and its manifest entry.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.features.block import Block
from gdm_dask.features.moments import dense_moments, sparse_moments
from gdm_dask.features.whole_numbers import fewest_decimals, shorten
from gdm_dask.store.arrays import (
    MAX_LENGTH,
    REMEDY,
    ArrayEntry,
    check_metadata,
    chunk_files,
    read_array,
    read_ranges,
    write_array,
    write_group,
    write_text,
)
from gdm_dask.store.folder import PARTIAL, Folder
from gdm_dask.store.sample_tables import Covariate
from gdm_dask.system.jit import kernel
from gdm_dask.system.scratch import Buffers

FORMAT = "gdm_dask feature store"
FORMAT_VERSION = 2
ROOT = "zarr.json"
LOCK = "ingest.lock"  # in an object store, names the ingest that writes it
#: All names allowed in a store's folder.
ROOT_NAMES = frozenset({ROOT, LOCK, "labels", "targets", "sample_weight", "sample_ids", "vocabulary", "blocks"})
_VALUES = "uint8 float32 float64 int32"
_CODES = "uint8 uint16 uint32"
#: Arrays of a block that a pass reads, in this order.
_PASS_ARRAYS = ("values", "means", "norms", "indptr", "indices", "counts")

#: Decoded bytes of a block: at most a quarter of a second of work, and a small part of any worker's memory.
BLOCK_BYTES = 64 << 20
#: Pointers within a block are uint32, and blosc accepts chunks below 2 GiB (a dense row is never cut).
MAX_BLOCK_BYTES = 2**31 - 64


@dataclass(frozen=True)
class BlockEntry:
    """Manifest entry of one block: its features, its nonzeros, its arrays."""

    start: int
    stop: int
    nnz: int
    arrays: dict[str, ArrayEntry]

    @property
    def nbytes(self) -> int:
        """Bytes in memory of the arrays that a pass reads."""
        return self.nbytes_of(as_stored=self.is_sparse)

    def nbytes_of(self, as_stored: bool) -> int:
        """Return the decoded bytes of these arrays: stored integers, or the numbers they stand for."""
        return sum(entry.nbytes_of(as_stored) for name, entry in self.arrays.items() if not name.startswith("names/"))

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are compressed; only then do integers over a power of ten stay integers in memory."""
        return "indptr" in self.arrays

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> BlockEntry:
        """Build an entry from the output of ``asdict``."""
        arrays = {name: ArrayEntry(**entry) for name, entry in document["arrays"].items()}
        return cls(document["start"], document["stop"], document["nnz"], arrays)


@dataclass(frozen=True)
class Manifest:
    """All facts about a store that are known without reading its arrays; `fingerprint` identifies the content."""

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
    covariates: list[Covariate] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; covariates only if there are any, as older versions do not know the key."""
        return {key: value for key, value in asdict(self).items() if value or key != "covariates"}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over shape, target and the checksums of all chunks: equal for equal content."""
        content = {key: value for key, value in self.to_json().items() if key not in ("provenance", "format_version")}
        if self.format_version == 1:
            content["classes"] = content.pop("target")["classes"]
        return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Write the root group. It is written last: a folder without it is not a store."""
    body = {"format": FORMAT, **manifest.to_json()}
    body["sha256"] = hashlib.sha256(_canonical(body)).hexdigest()
    root = {"zarr_format": 3, "node_type": "group", "attributes": {"gdm_dask": body}}
    folder.write(ROOT, json.dumps(root).encode())


def read_manifest(folder: Folder) -> Manifest:
    """Read the root group; refuse anything but a complete store of a known version."""
    try:
        root = json.loads(folder.read(ROOT))
        body = root["attributes"]["gdm_dask"]
        version = body["format_version"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise DamagedStore(f"{folder.url}: there is no feature store here{_why_not(folder, error)}") from error
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStore(
            f"{folder.url}: {ROOT} does not belong to a feature store, or is damaged. Make one with 'gdm ingest'."
        ) from error
    if version not in (1, FORMAT_VERSION):
        raise DamagedStore(
            f"{folder.url}: the store has format version {version}, this software reads up to {FORMAT_VERSION}. "
            "Install a matching gdm_dask, or ingest the source again."
        )
    digest = body.pop("sha256", None)
    if digest != hashlib.sha256(_canonical(body)).hexdigest():
        raise DamagedStore(f"{folder.url}: the manifest in {ROOT} is damaged. Ingest the source again.")
    try:
        return _manifest_of(body, version)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedStore(f"{folder.url}: the manifest in {ROOT} is malformed: {error}. {REMEDY}") from error


def _manifest_of(body: dict[str, Any], version: int) -> Manifest:
    """Return a manifest with consistent entries; raise ValueError or a similar error for any other."""
    del body["format"]
    if version == 1:
        body["target"] = {"kind": "classes", "classes": body.pop("classes")}
    body["shape"] = n_features, n_samples = tuple(body["shape"])
    if not all(type(size) is int and 0 < size < MAX_LENGTH for size in body["shape"]):
        raise ValueError(f"its shape is {body['shape']}")
    body["blocks"] = [BlockEntry.from_json(entry) for entry in body["blocks"]]
    body["arrays"] = {name: ArrayEntry(**entry) for name, entry in body["arrays"].items()}
    body["covariates"] = [Covariate(**entry).within(n_features) for entry in body.get("covariates", [])]
    manifest = Manifest(**body)
    if manifest.kind not in ("sparse", "dense") or manifest.value_type not in ("one", "uint8", "float32", "float64"):
        raise ValueError(f"a {manifest.kind} store of {manifest.value_type} values is not known")
    _check_arrays("the store", manifest.arrays, _root_arrays(manifest))
    position = nnz = 0
    for number, entry in enumerate(manifest.blocks):
        if entry.start != position or not position < entry.stop <= n_features or not 0 <= entry.nnz < MAX_LENGTH:
            raise ValueError(f"block {number} does not begin where the last one ends")
        named = "names/text" in manifest.blocks[0].arrays
        _check_arrays(f"block {number}", entry.arrays, _block_arrays(entry, manifest, n_samples, named))
        position, nnz = entry.stop, nnz + entry.nnz
    if (position, nnz) != (n_features, manifest.nnz):
        raise ValueError("its blocks do not hold all features and nonzeros")
    return manifest


def _root_arrays(manifest: Manifest) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the types and shapes required of the root arrays."""
    n_samples, there = manifest.shape[1], manifest.arrays
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
    if manifest.format_version == 1:
        wanted["labels"] = "int8", (n_samples,)
    elif manifest.target is not None:
        is_numbers = manifest.target["kind"] == "numbers"
        wanted["targets"] = ("float64", (n_samples, -1)) if is_numbers else (_CODES, (n_samples,))
    if "sample_ids/text" in there:
        wanted |= {"sample_ids/offsets": ("int64", (n_samples + 1,)), "sample_ids/text": ("uint8", (-1,))}
    optional = {"vocabulary": ("uint8", (-1,)), "sample_weight": ("float64", (n_samples,))}
    return wanted | {name: form for name, form in optional.items() if name in there}


def _block_arrays(
    entry: BlockEntry, manifest: Manifest, n_samples: int, named: bool
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the types and shapes required of the arrays of a block."""
    n_rows = entry.stop - entry.start
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {"means": ("float64", (n_rows,)), "norms": ("float64", (n_rows,))}
    if manifest.kind == "dense":
        wanted |= {"counts": ("uint32", (n_rows,)), "values": (_VALUES, (n_rows, n_samples))}
    else:
        wanted |= {"indptr": ("uint32", (n_rows + 1,)), "indices": ("uint32", (entry.nnz,))}
        if manifest.value_type != "one":
            wanted["values"] = _VALUES, (entry.nnz,)
    if named:
        wanted |= {"names/offsets": ("int64", (n_rows + 1,)), "names/text": ("uint8", (-1,))}
    return wanted


def _check_arrays(where: str, arrays: dict[str, ArrayEntry], wanted: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Raise ValueError unless exactly these arrays exist: names become paths, and sizes become memory."""
    if arrays.keys() != wanted.keys():
        raise ValueError(f"{where} has the arrays {sorted(arrays)}, not {sorted(wanted)}")
    for name, (types, shape) in wanted.items():
        if not arrays[name].fits(types, *shape):
            raise ValueError(f"array {name!r} of {where} has a wrong type, shape or number of chunks")


def _why_not(folder: Folder, error: OSError) -> str:
    if folder.is_local and os.path.exists(f"{folder.path}{PARTIAL}"):
        return " yet: its ingest has not finished. Wait for it; if it was stopped, run the same command again."
    return f" ({error.strerror or 'no such folder'}). Make one with 'gdm ingest'."


def block_path(number: int) -> str:
    """Return the folder of a block within the store.

    >>> block_path(12)
    'blocks/00012'
    """
    return f"blocks/{number:05d}"


def write_block(folder: Folder, number: int, block: Block, codec: str, names: list[str] | None = None) -> BlockEntry:
    """Write the arrays of a block, compare each with its bytes on disk, and return the manifest entry.

    Integers over a power of ten are shortened in place if possible: do not use the block afterwards.
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


def block_files(number: int, entry: BlockEntry) -> Iterator[tuple[str, int]]:
    """Yield the key of each file that `read_block` reads, in that order, and its decoded bytes."""
    for name in _PASS_ARRAYS:
        if name in entry.arrays:
            yield from chunk_files(f"{block_path(number)}/{name}", entry.arrays[name])


def read_block(
    folder: Folder,
    number: int,
    entry: BlockEntry,
    n_samples: int,
    buffers: Buffers | None = None,
    below: int | None = None,
    once: bool = False,
) -> Block:
    """Read and check a whole block, into `buffers` if given; refuse samples that are not `below`.

    With `once`, the read bypasses the page cache.
    """
    buffers = buffers or Buffers()  # a block that is kept needs memory of its own
    sparse = entry.is_sparse
    found = {
        name: read_array(
            folder,
            f"{block_path(number)}/{name}",
            entry.arrays[name],
            buffers=buffers,
            once=once,
            as_stored=sparse,
            below=below if name == "indices" else None,
        )
        for name in _PASS_ARRAYS
        if name in entry.arrays
    }
    _check_rows(folder, number, entry, found["means"], found["norms"], found.get("indptr"))
    decimals = entry.arrays["values"].places if sparse and "values" in found else None
    return Block(
        entry.start, entry.stop, n_samples, found.get("values"), found["means"], found["norms"],
        found.get("indptr"), found.get("indices"), found.get("counts"), decimals,
    )  # fmt: skip


@kernel
def rows_increase(indptr, indices):  # type: ignore[no-untyped-def]
    """Return whether the samples of every row increase."""
    for row in range(len(indptr) - 1):
        for position in range(np.uint64(indptr[row]) + np.uint64(1), np.uint64(indptr[row + 1])):
            if indices[position] <= indices[position - np.uint64(1)]:
                return False
    return True


def _check_rows(
    folder: Folder, number: int, entry: BlockEntry, means: np.ndarray, norms: np.ndarray, indptr: np.ndarray | None
) -> None:
    """Refuse moments that would turn scores into NaN, and pointers beyond the nonzeros, whatever the checksums say."""
    if not (np.isfinite(means).all() and np.isfinite(norms).all()):
        raise DamagedStore(f"{folder.url}: block {number}: a moment is not finite. {REMEDY}")
    if indptr is not None and (indptr[0] != 0 or indptr[-1] != entry.nnz or (indptr[1:] < indptr[:-1]).any()):
        raise DamagedStore(f"{folder.url}: block {number}: its pointers do not fit its indices. {REMEDY}")


def check_block(folder: Folder, number: int, entry: BlockEntry, n_samples: int) -> None:
    """Read everything that belongs to a block, including names and metadata; raise `DamagedStore` at the first fault.

    This also finds faults that pass the checksums and the checks of ordinary reads.
    """
    for name, array in entry.arrays.items():
        path = f"{block_path(number)}/{name}"
        check_metadata(folder, path, array)
        if name.startswith("names/"):
            read_array(folder, path, array)
    block = read_block(folder, number, entry, n_samples, below=n_samples, once=True)
    problem = None
    if block.counts().sum() != entry.nnz:
        problem = "it does not hold as many nonzeros as were written"
    elif block.values is not None and not np.isfinite(block.values).all():
        problem = "a value is not finite"
    elif block.indices is not None and not rows_increase(block.indptr, block.indices):
        problem = "the sample indices of a row do not increase"
    else:
        values = block.as_numbers().values
        is_dense = block.indptr is None
        moments = dense_moments(values) if is_dense else sparse_moments(block.indptr, values, n_samples)  # type: ignore[arg-type]
        if not np.allclose(moments, [block.means, block.norms], rtol=1e-6, atol=1e-12):
            problem = "its moments do not match its values"
    if problem is not None:
        raise DamagedStore(f"{folder.url}: block {number}: {problem}. {REMEDY}")


def read_block_rows(folder: Folder, number: int, entry: BlockEntry, n_samples: int, local: np.ndarray) -> Block:
    """Read some rows of a block (positions within it, increasing); decode only the chunks that hold them."""
    path = block_path(number)

    def whole(name: str) -> np.ndarray:
        return read_array(folder, f"{path}/{name}", entry.arrays[name])

    def ranges(name: str, starts: np.ndarray, stops: np.ndarray) -> np.ndarray | None:
        if name not in entry.arrays:
            return None
        below = n_samples if name == "indices" else None
        return read_ranges(folder, f"{path}/{name}", entry.arrays[name], starts, stops, below)

    means, norms = whole("means")[local], whole("norms")[local]
    pointers = whole("indptr").astype(np.int64) if entry.is_sparse else None
    _check_rows(folder, number, entry, means, norms, pointers)
    if pointers is None:
        counts = whole("counts")[local]
        return Block(0, len(local), n_samples, ranges("values", local, local + 1), means, norms, nonzeros=counts)
    starts, stops = pointers[local], pointers[local + 1]
    indptr = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.uint32)
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    indices = ranges("indices", starts, stops)
    return Block(0, len(local), n_samples, ranges("values", starts, stops), means, norms, indptr, indices)
