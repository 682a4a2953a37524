"""PLINK's ``.bed`` files with their ``.bim`` and ``.fam`` (samples x variants), some variants at a time.

A value is the number of copies of allele A1, usually the rarer one: 0, 1 or 2. A missing genotype gets the mean of its
variant. Needs bed-reader.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.source import (
    IngestOptions,
    OneSlab,
    Source,
    SourceFacts,
    SourcePart,
    as_labels,
    only_file,
    reading,
)
from gdm_dask.store.folder import file_info
from gdm_dask.store.sample_tables import MISSING, Column
from gdm_dask.store.target_files import as_columns

#: A genotype takes as much memory during an ingest as this many bytes of the densest text.
_GENOTYPE_BYTES = 4
_MISSING = -127
#: Of a mean: values with few decimals take less memory.
_DECIMALS = 3
#: An allele that does not occur in a file.
_NO_ALLELE = "0"
#: A phenotype that is not known; 0 as well, beside 1 (control) and 2 (case).
_UNKNOWN = ("-9", *MISSING)


@dataclass
class PlinkGenotypes(Source):
    """A ``.bed`` file; the target is the phenotype of the ``.fam`` file, unless another one is given.

    A variant is named after its id and the allele that is counted, as in PLINK's ``.raw`` files: ``rs4988235_A``.
    """

    suffixes = (".bed",)
    path: str
    shape: tuple[int, int]  # of the file
    variants: list[tuple[str, str, str]]  # id, allele A1, allele A2
    people: np.ndarray | None = None  # that are kept
    swapped: np.ndarray | None = None  # variants of which A2 is counted instead of A1

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
            variants = list(zip(names, bed.allele_1.tolist(), bed.allele_2.tolist(), strict=True))
        ids = people if len(set(people)) == n_samples else [f"{f}_{p}" for f, p in zip(families, people, strict=True)]
        labels = _known(phenotype, ids, f"{stem}.fam") if y is None else y
        facts = SourceFacts(
            "sparse", {"format": "plink", "files": [path]}, {"files": infos}, infos[0]["size"], n_samples=n_samples,
            n_features=n_features, labels=as_labels(labels, n_samples, path, ids),
            feature_names=[f"{name}_{counted}" for name, counted, _ in variants],
            sample_ids=ids, scratch_factor=32, least_run_bytes=_GENOTYPE_BYTES * n_samples,
        )  # fmt: skip
        return cls(facts, lambda max_bytes: [], path, (n_samples, n_features), variants)

    def parts(self, max_bytes: int) -> list[SourcePart]:
        """Cut the variants into parts, of all samples or only some."""
        n_samples, n_features = self.shape
        step = max(1, max_bytes // max(1, _GENOTYPE_BYTES * n_samples))
        n_bytes = -(-n_samples // 4)  # of a variant
        found: list[SourcePart] = []
        for start in range(0, n_features, step):
            stop = min(start + step, n_features)
            swapped = None if self.swapped is None else self.swapped[start:stop]
            load = partial(_variants, self.path, self.shape, self.people, swapped, start, stop)
            found.append(OneSlab((stop - start) * n_bytes, load))
        return found

    def only(self, kept: np.ndarray) -> Source:
        """Return the source with only some of its samples: a missing genotype gets the mean of these."""
        found = self.with_facts(**self.facts.only(kept))
        found.people = np.flatnonzero(kept)
        return found

    def like(self, names: list[str]) -> Source:
        """Return the source with the alleles counted that these names tell; A1 is the rarer one of each file."""
        swapped, own = np.zeros(len(self.variants), bool), [*(self.facts.feature_names or [])]
        for number, ((name, first, second), wanted) in enumerate(zip(self.variants, names, strict=False)):
            head, _, counted = wanted.rpartition("_")
            if head != name or counted == first:
                continue
            swapped[number] = counted == second
            if counted not in (second, _NO_ALLELE) and _NO_ALLELE not in (first, second):
                raise BadInput(
                    f"{self.path}: variant {name} has the alleles {first} and {second}, but the store given as `like` "
                    f"counts {counted}: check the strand, or leave the variant out of both"
                )
            own[number] = wanted
        found = self.with_facts(feature_names=own)
        found.swapped = swapped
        return found


def _variants(
    path: str, shape: tuple[int, int], people: np.ndarray | None, swapped: np.ndarray | None, start: int, stop: int
) -> Slab:
    """Return consecutive variants of some samples."""
    with _opened(path, iid_count=shape[0], sid_count=shape[1], skip_format_check=True) as bed:
        index = (slice(None) if people is None else people, slice(start, stop))
        found = bed.read(index=index, dtype="int8", order="F", num_threads=1).T
    if swapped is not None:
        found[swapped] = np.where(found[swapped] == _MISSING, _MISSING, 2 - found[swapped])
    features, samples = np.nonzero(found)
    values = found[features, samples].astype(np.float64)
    missing = values == _MISSING
    if missing.any():
        known = found != _MISSING
        means = np.where(known, found, 0).sum(axis=1) / np.maximum(1, known.sum(axis=1))
        values[missing] = means.round(_DECIMALS)[features[missing]]
    return sparse_slab(features + start, samples, values)


@contextmanager
def _opened(path: str, **options: Any) -> Iterator[Any]:
    try:
        from bed_reader import open_bed
    except ImportError as error:
        raise BadInput(f"{path}: .bed needs bed-reader: pip install 'gdm_dask[plink]'") from error
    with reading(path, "a complete set of .bed, .bim and .fam files"), open_bed(path, **options) as bed:
        yield bed


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
