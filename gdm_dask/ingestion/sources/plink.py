"""PLINK's ``.bed`` files with their ``.bim`` and ``.fam`` (samples x variants), some variants at a time.

A value is the number of copies of allele A1, usually the rarer one: 0, 1 or 2. A missing genotype gets the mean of its
variant. Needs bed-reader.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.source import IngestOptions, OneSlab, Source, SourceFacts, as_labels, only_file
from gdm_dask.store.folder import file_info
from gdm_dask.store.sample_tables import MISSING, Column
from gdm_dask.store.target_files import as_columns

#: A genotype takes as much memory during an ingest as this many bytes of the densest text.
_GENOTYPE_BYTES = 4
_MISSING = -127
#: A phenotype that is not known; 0 as well, beside 1 (control) and 2 (case).
_UNKNOWN = ("-9", *MISSING)


class PlinkGenotypes(Source):
    """A ``.bed`` file; the target is the phenotype of the ``.fam`` file, unless another one is given."""

    suffixes = (".bed",)

    @classmethod
    def open(cls, paths: list[str], y: Any, options: IngestOptions) -> PlinkGenotypes:
        """Open a file; `y` is an array or the path of a file."""
        path = os.fspath(only_file(paths))
        if "://" in path:
            raise BadInput(f"{path}: .bed files are read from local disks only: copy it, with its .bim and .fam")
        stem = path[: -len(".bed")]
        infos = [file_info(name) for name in (path, f"{stem}.bim", f"{stem}.fam")]
        with _opened(path) as bed:
            n_samples, n_features = bed.shape
            families, people, phenotype = bed.fid.tolist(), bed.iid.tolist(), bed.pheno
            names = [
                name if name != "." else f"{chromosome}:{position}"
                for name, chromosome, position in zip(bed.sid, bed.chromosome, bed.bp_position, strict=True)
            ]
        ids = people if len(set(people)) == n_samples else [f"{f}_{p}" for f, p in zip(families, people, strict=True)]
        labels = _known(phenotype, ids, f"{stem}.fam") if y is None else y
        facts = SourceFacts(
            "sparse", {"format": "plink", "files": [path]}, {"files": infos}, infos[0]["size"], n_samples=n_samples,
            n_features=n_features, labels=as_labels(labels, n_samples, path, ids), feature_names=names,
            sample_ids=ids, scratch_factor=32, least_run_bytes=_GENOTYPE_BYTES * n_samples,
        )  # fmt: skip
        return cls(facts, partial(_cut, path, (n_samples, n_features), None))

    def only(self, kept: np.ndarray) -> Source:
        """Return the source with only some of its samples: a missing genotype gets the mean of these."""
        [path] = self.facts.description["files"]
        shape = len(kept), int(self.facts.n_features or 0)
        return Source(replace(self.facts, **self.facts.only(kept)), partial(_cut, path, shape, np.flatnonzero(kept)))


def _cut(path: str, shape: tuple[int, int], people: np.ndarray | None, max_bytes: int) -> list[OneSlab]:
    """Cut the variants into parts, of all samples or only some."""
    n_samples, n_features = shape
    step = max(1, max_bytes // max(1, _GENOTYPE_BYTES * n_samples))
    ranges = [(start, min(start + step, n_features)) for start in range(0, n_features, step)]
    n_bytes = -(-n_samples // 4)  # of a variant
    read = partial(_variants, path, shape, people)
    return [OneSlab((stop - start) * n_bytes, partial(read, start, stop)) for start, stop in ranges]


def _variants(path: str, shape: tuple[int, int], people: np.ndarray | None, start: int, stop: int) -> Slab:
    """Return consecutive variants of some samples."""
    with _opened(path, iid_count=shape[0], sid_count=shape[1], skip_format_check=True) as bed:
        index = (slice(None) if people is None else people, slice(start, stop))
        found = bed.read(index=index, dtype="int8", order="F", num_threads=1).T
    features, samples = np.nonzero(found)
    values = found[features, samples].astype(np.float64)
    missing = values == _MISSING
    if missing.any():
        known = found != _MISSING
        means = np.where(known, found, 0).sum(axis=1) / np.maximum(1, known.sum(axis=1))
        values[missing] = means[features[missing]]
    return sparse_slab(features + start, samples, values)


@contextmanager
def _opened(path: str, **options: Any) -> Iterator[Any]:
    try:
        from bed_reader import open_bed
    except ImportError as error:
        raise BadInput(f"{path}: .bed needs bed-reader: pip install 'gdm_dask[plink]'") from error
    try:
        with open_bed(path, **options) as bed:
            yield bed
    except (ValueError, OSError, IndexError) as error:
        raise BadInput(f"{path}: not a complete set of .bed, .bim and .fam files: {error}") from error


def _known(phenotype: np.ndarray, ids: list[str], where: str) -> Column | None:
    """Return the phenotypes; None if none is known."""
    unknown = np.isin(phenotype, _UNKNOWN)
    if set(phenotype[~unknown].tolist()) in ({"0"}, {"0", "2"}, {"0", "1", "2"}):
        unknown |= phenotype == "0"
    if unknown.all():
        return None

    def place(sample: int) -> str:
        return f"{where}, line {sample + 1}: the phenotype is unknown ({phenotype[sample]}) for sample {ids[sample]!r}"

    return Column(as_columns(phenotype[~unknown]), unknown, place)
