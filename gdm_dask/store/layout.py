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
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.store.arrays import MAX_LENGTH, REMEDY, ArrayEntry
from gdm_dask.store.folder import PARTIAL, Folder
from gdm_dask.store.sample_tables import Covariate

FORMAT = "gdm_dask feature store"
FORMAT_VERSION = 2
ROOT = "zarr.json"
LOCK = "ingest.lock"  # in an object store, names the ingest that writes it
#: All names allowed in a store's folder.
ROOT_NAMES = frozenset({ROOT, LOCK, "labels", "targets", "sample_weight", "sample_ids", "vocabulary", "blocks"})
_VALUES = "uint8 float32 float64 int32"
_CODES = "uint8 uint16 uint32"
#: Decoded bytes of a block: at most a quarter of a second of work, and a small part of any worker's memory.
BLOCK_BYTES = 64 << 20
#: Pointers within a block are uint32, and blosc accepts chunks below 2 GiB (a dense row is never cut).
MAX_BLOCK_BYTES = 2**31 - 64

#: Folder of a block within the store, by its number.
BLOCK = "blocks/{:05d}"


@dataclass(frozen=True)
class BlockEntry:
    """Manifest entry of one block: its features, its nonzeros, its arrays."""

    start: int
    stop: int
    nnz: int
    arrays: dict[str, ArrayEntry]

    @property
    def nbytes(self) -> int:
        """Bytes in memory of the arrays that a pass reads; integers stay integers only in sparse rows."""
        return self.nbytes_of(as_stored="indptr" in self.arrays)

    def nbytes_of(self, as_stored: bool) -> int:
        """Return the decoded bytes of these arrays: stored integers, or the numbers they stand for."""
        return sum(entry.nbytes_of(as_stored) for name, entry in self.arrays.items() if not name.startswith("names/"))

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

    @cached_property
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
