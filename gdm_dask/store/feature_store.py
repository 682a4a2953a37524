"""The feature store opened by users: features are rows, cut into blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.features.block import check_features, stack
from gdm_dask.features.values import dtype_of
from gdm_dask.store.arrays import REMEDY, ArrayEntry, check_metadata, read_array
from gdm_dask.store.blocks import check_block
from gdm_dask.store.folder import Folder
from gdm_dask.store.layout import BLOCK, BlockEntry
from gdm_dask.store.reader import StoredBlocks, block_files
from gdm_dask.store.targets import Target, target_from_json
from gdm_dask.store.texts import unpack_text
from gdm_dask.system.resources import default_memory_limit, format_bytes, n_cores

if TYPE_CHECKING:
    import scipy.sparse as sp


class FeatureStore(StoredBlocks):
    """A feature-row-chunked Zarr store, opened for reading.

    Use `open_store`. Every chunk is checked against the manifest when it is read; a missing, truncated, swapped or
    flipped chunk raises `DamagedStore`.

    Its `shape` is (features, samples). The `manifest` holds all facts known without reading the arrays.
    """

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.nnz = self.manifest.nnz
        try:
            self.target = None if self.manifest.target is None else target_from_json(self.manifest.target)
        except BadInput as error:
            raise DamagedStore(f"{self.url}: the manifest is damaged: {error}. {REMEDY}") from error

    def __repr__(self) -> str:
        features, samples = self.shape
        return f"<FeatureStore {self.url}: {features:,} features x {samples:,} samples, {self.nnz:,} nonzeros>"

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, self.place

    @property
    def covariates(self) -> dict[str, list[int]]:
        """Features of each covariate, which fits include by default."""
        return {one.name: one.features for one in self.manifest.covariates}

    @property
    def classes(self) -> list[Any]:
        """The classes, sorted; empty for a store of numbers or without targets."""
        return list(getattr(self.target, "classes", ()))

    @property
    def y(self) -> np.ndarray:
        """Targets in ingested form: labels (n,), or numbers (n,) or (n, K)."""
        return self.own_target().unpack(self.packed_targets)

    @property
    def codes(self) -> np.ndarray:
        """Position of each sample's class in `classes`."""
        if not self.classes:
            raise BadInput(f"{self.url}: the samples have no classes. Pass labels: y=..., or --target FILE.")
        return self.packed_targets

    def outputs(self) -> np.ndarray:
        """Targets as outputs of the machine, (K, n) float64; see `Target.encode`."""
        return self.own_target().outputs(self.packed_targets)

    def own_target(self) -> Target:
        """Return the target; raise `BadInput` if there is none."""
        if self.target is None:
            raise BadInput(
                f"{self.url}: the store has no targets. Ingest it with --target, or pass them to the fit: y=..., or "
                "gdm fit --target FILE."
            )
        return self.target

    @cached_property
    def packed_targets(self) -> np.ndarray:
        """Return the checked targets in stored form; see `Target.pack`."""
        target = self.own_target()
        if "labels" in self.manifest.arrays:  # format 1
            labels = self._root_array("labels")
            packed, wrong = (labels > 0).astype(np.uint8), not np.isin(labels, (-1, 1)).all()
        else:
            packed, wrong = self._root_array("targets"), False
        problem = "the labels are not -1 or +1" if wrong else target.problem_of(packed, self.manifest.shape[1])
        if problem is not None:
            raise DamagedStore(f"{self.url}: the targets are damaged: {problem}. {REMEDY}")
        return packed

    @cached_property
    def sample_weight(self) -> np.ndarray | None:
        """Weights of the samples, which a fit uses unless it is given others; or None."""
        weights = self._root_array("sample_weight") if "sample_weight" in self.manifest.arrays else None
        if weights is not None and not (weights.min() >= 0 and 0 < weights.sum() < np.inf):
            raise DamagedStore(f"{self.url}: the sample weights are damaged. {REMEDY}")
        return weights

    @cached_property
    def sample_ids(self) -> list[str] | None:
        """Names of the samples, or None."""
        if "sample_ids/text" not in self.manifest.arrays:
            return None
        return unpack_text(self._root_array("sample_ids/offsets"), self._root_array("sample_ids/text"), self.url)

    @property
    def packed_vocabulary(self) -> np.ndarray | None:
        """Bytes of the vocabulary of a store of documents (for `Vocabulary.load`), or None."""
        return self._root_array("vocabulary") if "vocabulary" in self.manifest.arrays else None

    @property
    def has_names(self) -> bool:
        """Whether the features have names."""
        return bool(self.manifest.blocks) and "names/text" in self.manifest.blocks[0].arrays

    @property
    def feature_names(self) -> list[str] | None:
        """Names of all features, or None; `names_of` is cheaper for a few."""
        return [*self.iter_names()] if self.has_names else None

    def iter_names(self) -> Iterator[str]:
        """Yield the names of all features, in order; the store must have names."""
        for offsets, text in self._each(self._packed_names, enumerate(self.manifest.blocks)):
            yield from unpack_text(offsets, text, self.url)

    def names_of(self, features: np.ndarray) -> list[str]:
        """Return the names of some features (their numbers as text if the store has no names)."""
        features = check_features(features, self.shape[0])
        if not self.has_names:
            return [str(feature) for feature in features]
        names, owned = [""] * len(features), self._by_block(features)
        for (number, positions), (offsets, text) in zip(owned, self._each(self._packed_names, owned), strict=True):
            for position in positions:
                local = features[position] - self.block_starts[number]
                start, stop = offsets[local], offsets[local + 1]
                names[position] = unpack_text(np.array([0, stop - start]), text[start:stop], self.url)[0]
        return names

    def _packed_names(self, number: int, _: Any) -> list[np.ndarray]:
        entry = self.manifest.blocks[number]
        return [self._block_array(number, entry, f"names/{part}") for part in ("offsets", "text")]

    @property
    def means(self) -> np.ndarray:
        """Mean of each feature, float64."""
        return self._per_feature(partial(self._block_array, name="means"))

    @property
    def norms(self) -> np.ndarray:
        """Norm of each centred feature, float64; 0 for constant features."""
        return self._per_feature(partial(self._block_array, name="norms"))

    @property
    def counts(self) -> np.ndarray:
        """Nonzeros of each feature, int64."""
        if self.is_sparse:
            pointers = partial(self._block_array, name="indptr")
            return self._per_feature(lambda number, entry: np.diff(pointers(number, entry))).astype(np.int64)
        return self._per_feature(partial(self._block_array, name="counts")).astype(np.int64)

    @property
    def value_bytes(self) -> int:
        """Bytes of a value in memory, with its index in a sparse store."""
        kind = self.manifest.value_type
        return 4 + (0 if kind == "one" else dtype_of(kind).itemsize) if self.is_sparse else 8

    def largest_rows(self, n_rows: int) -> int:
        """Return the decoded bytes of the `n_rows` features with the most nonzeros; float64 values in a dense store."""
        if not self.is_sparse:
            return min(n_rows, self.shape[0]) * self.shape[1] * self.value_bytes
        largest = np.zeros(0, np.uint32)
        for indptr in self._each(partial(self._block_array, name="indptr"), enumerate(self.manifest.blocks)):
            counts = np.concatenate([largest, np.diff(indptr)])
            largest = np.partition(counts, -n_rows)[-n_rows:] if len(counts) > n_rows else counts
        return int(largest.sum(dtype=np.int64)) * self.value_bytes

    def read_block(self, i: int) -> sp.csr_array:
        """Return block `i` as a CSR matrix of raw values (features x samples)."""
        return self.load_block(i).to_scipy()

    def read_rows(self, indices: np.ndarray) -> sp.csr_array:
        """Return the features `indices` as a CSR matrix of raw values (features x samples), in the given order."""
        return self.load_rows(np.asarray(indices)).to_scipy()

    def to_scipy(self, memory_limit: int | None = None) -> sp.csr_array:
        """Return the whole matrix (features x samples), for small stores.

        Refuses a matrix that needs more than `memory_limit` bytes; by default a quarter of the machine's memory.
        """
        limit = default_memory_limit() if memory_limit is None else memory_limit
        needed = 2 * sum(entry.nbytes_of(as_stored=False) for entry in self.manifest.blocks)
        if needed > limit:
            raise BadInput(
                f"{self.url}: the whole matrix needs {format_bytes(needed)} to be put together, more than the "
                f"limit of {format_bytes(limit)}. Read it block by block (read_block), or raise memory_limit."
            )
        return stack([self.load_block(number).as_numbers() for number in range(self.n_blocks)]).to_scipy()

    def size_on_disk(self) -> int:
        """Return the bytes of all files."""
        return self._folder.size()

    def verify(self, progress: Callable[[int], None] | None = None) -> None:
        """Read every array and check its content; raise `DamagedStore` at the first fault.

        `progress` is called with the decoded bytes of each checked block.
        """
        for name, entry in self.manifest.arrays.items():
            check_metadata(self._folder, name, entry)
            self._root_array(name)
        if self.target is not None:
            self.outputs()
        _ = self.sample_weight
        with ThreadPoolExecutor(n_cores()) as pool:
            for size in pool.map(self._verify_block, range(self.n_blocks)):
                if progress is not None:
                    progress(size)

    def _verify_block(self, number: int) -> int:
        entry = self.manifest.blocks[number]
        with self._reading(), self._folder.ahead(block_files(number, entry)) as folder:
            check_block(folder, number, entry, self.shape[1])
        return entry.nbytes

    def _per_feature(self, of_block: Callable[[int, BlockEntry], np.ndarray]) -> np.ndarray:
        parts = list(self._each(of_block, enumerate(self.manifest.blocks)))
        return np.concatenate(parts) if parts else np.zeros(0)

    def _block_array(self, number: int, entry: BlockEntry, name: str) -> np.ndarray:
        return self._array(f"{BLOCK.format(number)}/{name}", entry.arrays[name])

    def _root_array(self, name: str) -> np.ndarray:
        return self._array(name, self.manifest.arrays[name])

    def _array(self, path: str, entry: ArrayEntry) -> np.ndarray:
        with self._reading():
            return read_array(self._folder, path, entry)


def open_store(path: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> FeatureStore:
    """Open a feature store.

    Parameters
    ----------
    path : str or path
        A local folder, or a URL supported by fsspec (``s3://bucket/name``).
    storage_options : dict, optional
        Options of fsspec's file system for the URL: endpoint, credentials, time-outs; and ``patience``, the seconds to
        go on with a service that cannot be reached (30). They are never written to a file or a log.

    Returns
    -------
    FeatureStore

    Raises
    ------
    DamagedStore
        If the path holds no complete store of a known format version.

    Examples
    --------
    >>> import tempfile
    >>> from gdm_dask import ingest
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X, y = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]]), ["ham", "spam"]
    ...     made = ingest(X, f"{folder}/small.zarr", y, scheduler="synchronous")
    ...     store = open_store(f"{folder}/small.zarr")
    ...     store.shape, store.classes, store.read_rows([2, 0]).toarray().tolist()
    ((3, 2), ['ham', 'spam'], [[3, 3], [1, 0]])
    """
    return FeatureStore(Folder(path, storage_options))


def is_store(X: Any) -> bool:
    """Return whether `X` is a store, or the path or URL of one."""
    return isinstance(X, (FeatureStore, str, os.PathLike))


def as_store(X: FeatureStore | str | os.PathLike[str]) -> FeatureStore:
    """Return `X` itself, or open the store at this path."""
    return X if isinstance(X, FeatureStore) else open_store(X)
