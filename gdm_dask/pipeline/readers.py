"""Readers: turn the files of a pipeline into a source for `ingest`, one function per reader."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.objects import from_object
from gdm_dask.ingestion.slab import Slab, sparse_slab
from gdm_dask.ingestion.source import IngestOptions, OneSlab, Source, SourceFacts
from gdm_dask.ingestion.sources import open_source
from gdm_dask.ingestion.sources.documents import document_source, further_documents
from gdm_dask.ingestion.sources.documents.corpus import Corpus, open_corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings
from gdm_dask.ingestion.sources.lookalikes import lookalike_source, scaled_lookalike
from gdm_dask.ingestion.sources.lookalikes.files import TEST_SHARE, scaled_paper_data
from gdm_dask.ingestion.splitting import split_source
from gdm_dask.store import layout
from gdm_dask.system.resources import BAD_ARRAYS


@dataclass(frozen=True)
class Part:
    """A set to read: its settings, its files, and the part to use."""

    settings: Mapping[str, Any]  # table ``[ingest.train]`` or ``[ingest.test]``
    files: list[Path]
    name: str  # "train" or "test"
    split: Mapping[str, Any] | None  # ``test_fraction`` and ``seed`` if one set is split in two
    train_store: Path | str  # may not exist yet
    tables: Mapping[str, str] = field(default_factory=dict)  # files of labels and covariates, with names of columns

    @property
    def fraction(self) -> float:
        """Share of the samples for testing, if one set is split in two."""
        return float((self.split or {}).get("test_fraction", 0.25))

    @property
    def seed(self) -> int:
        """Seed of the split."""
        return int((self.split or {}).get("seed", 0))


@dataclass(frozen=True)
class Input:
    """A source with its labels, and the options of `run_ingest` that belong to it."""

    source: Any
    labels: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def read_part(part: Part) -> Input:
    """Open a set for ingest."""
    reader = part.settings["reader"]
    if "sample_weight" in part.settings and reader not in _WEIGHED:
        raise BadInput(f"ingest.{part.name}.sample_weight: only the readers {', '.join(_WEIGHED)} read weights")
    return _READERS[reader](part)


def _svmlight(part: Part) -> Input:
    options = {key: part.settings[key] for key in ("index_base", "on_error") if key in part.settings}
    paths = [str(path) for path in part.files]
    if part.split is None:
        return Input(paths, options=options)
    parsed = IngestOptions(
        None, options.get("index_base", 1), options.get("on_error", "raise"), "auto", "lz4", layout.BLOCK_BYTES
    )
    return Input(_split(open_source(paths, None, parsed), part), options=options)


def _split(source: Source, part: Part) -> Source:
    return source if part.split is None else split_source(source, part.fraction, part.seed, part.name)


def _matrix(part: Part) -> Input:
    if part.split is not None:
        raise BadInput("ingest.split: a matrix file cannot be split: add [ingest.test], or use the arrays reader")
    given = {**part.settings, **part.tables}
    keys = ("sample_weight", "covariates", "on_missing", "drop")
    options: dict[str, Any] = {key: given[key] for key in keys if key in given}
    labels = str(part.files[1]) if len(part.files) > 1 else given.get("labels", given.get("target"))
    return Input(str(part.files[0]), labels, options)


def _weighed(weights: Any) -> dict[str, Any]:
    """Return the option of `run_ingest` for sample weights, if there are any."""
    return {} if weights is None else {"sample_weight": weights}


def _arrays(part: Part) -> Input:
    """Read arrays from an ``.npz`` file and keep some classes; images may be shifted in a frame."""
    settings, path = part.settings, part.files[0]
    names = [settings[name] for name in ("sample_weight",) if name in settings]
    x, y, *weights = _load_arrays(path, settings.get("x", "x"), settings.get("y", "y"), *names)
    if y.dtype == bool:
        y = y.astype(np.int64)
    kept = np.arange(len(y))
    if "classes" in settings:
        kept = kept[np.isin(y, settings["classes"])]
    if not len(kept):
        raise BadInput(
            f"{path}: there are no samples" + (f" of {settings['classes']}" if "classes" in settings else "")
        )
    if part.split is not None:
        kept = kept[split_numbers(len(kept), part.fraction, part.seed)[part.name == "test"]]
    if len(kept) < len(y):
        x, y, *weights = (array[kept] for array in (x, y, *weights))
    if "add" in settings or "divide" in settings:
        x = x + settings.get("add", 0)
        x = x / settings["divide"] if "divide" in settings else x
    if not settings.get("shift"):
        return Input(x.reshape(len(x), -1), y, _weighed(weights[0] if weights else None))
    shape = tuple(settings.get("image", x.shape[1:]))
    if len(shape) != 2 or len(x) * shape[0] * shape[1] != x.size:
        raise BadInput(f"{path}: samples of shape {x.shape[1:]} cannot be shifted: set image to their rows and columns")
    shifted = shifted_source(x.reshape(len(x), *shape), y, settings["shift"])
    repeats = (2 * settings["shift"] + 1) ** 2
    return Input(shifted, options=_weighed(np.tile(weights[0], repeats) if weights else None))


def _load_arrays(path: Path, *names: str) -> list[np.ndarray]:
    """Load arrays of equal length from an ``.npz`` file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in names:
                if name not in arrays.files:
                    raise BadInput(f"{path}: there is no array {name!r}; there are {', '.join(arrays.files)}")
            found = [arrays[name] for name in names]
    except (ValueError, AttributeError, *BAD_ARRAYS) as error:  # pickled, truncated, a .npy
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} must be a complete .npz file of plain arrays ({error})") from error
    if found[0].dtype.kind not in "biuf":
        raise BadInput(f"{path}: the array {names[0]!r} must hold numbers, got {found[0].dtype}")
    lengths = {array.shape[:1] for array in found}
    if len(lengths) > 1 or () in lengths:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(names, found, strict=True))
        raise BadInput(f"{path}: the arrays have different numbers of samples: {shapes}")
    return found


def split_numbers(n_samples: int, test_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sample numbers for training and for testing, in increasing order, from dask-ml's split.

    >>> train, test = split_numbers(10, 0.3, 0)
    >>> len(train), len(test), sorted([*train.tolist(), *test.tolist()]) == list(range(10))
    (7, 3, True)
    """
    import dask.array as da
    from dask_ml.model_selection import train_test_split

    numbers = da.arange(n_samples, chunks=max(1, n_samples))
    try:
        parts = train_test_split(numbers, test_size=test_fraction, random_state=seed, shuffle=True)
    except ValueError as error:
        raise BadInput(
            f"{n_samples} samples cannot be split with test_fraction = {test_fraction:g}: {error}"
        ) from error
    return tuple(np.sort(part.compute(scheduler="synchronous")) for part in parts)  # type: ignore[return-value]


def _documents(part: Part) -> Input:
    """Read raw documents; a test set uses the vocabulary that the training store keeps."""
    given = part.settings

    def opened(label: str) -> Corpus:
        corpus = open_corpus(part.files[0], given.get("text", "text"), label, given.get("strip_headers", False))
        return corpus if part.split is None else corpus.split(part.fraction, part.seed)[part.name == "test"]

    corpus = opened(given.get("label", "label"))
    weights = _weighed(opened(given["sample_weight"]).labels if "sample_weight" in given else None)
    if part.name == "test":
        return Input(further_documents(corpus, part.train_store), options=weights)
    source = document_source(corpus, text_settings(given), named=given.get("hashed_names", False))
    return Input(source, options=weights)


def text_settings(given: Mapping[str, Any]) -> TextSettings:
    """Return the settings of the documents reader; a single n-gram length means only that length."""
    chosen = {key: given[key] for key in ("analyzer", "min_df", "unit_rows", "hashed") if key in given}
    if "ngrams" in given:
        lengths = given["ngrams"] if isinstance(given["ngrams"], list) else [given["ngrams"]]
        chosen["ngrams"] = (lengths[0], lengths[-1])
    return TextSettings(**chosen)


def _twin(part: Part) -> Input:
    """Generate data; the test part has the samples after the training part."""
    given = part.settings
    scale, seed = given.get("scale", 1.0), given.get("seed", 0)
    is_test = given.get("part", part.name) == "test"
    if given["like"] == "paper":
        data = scaled_paper_data(scale, seed)
        return Input(data.X_test, data.y_test) if is_test else Input(data.X, data.y)
    lookalike = scaled_lookalike(given["like"], scale)
    bounds = (
        (lookalike.n_samples, round((1 + TEST_SHARE) * lookalike.n_samples)) if is_test else (0, lookalike.n_samples)
    )
    return Input(lookalike_source(given["like"], lookalike, seed, *bounds))


def shifted_source(images: np.ndarray, labels: np.ndarray, shift: int) -> Source:
    """Place images in larger frames, each at all (2 * shift + 1)^2 positions, as in the paper's extended USPS.

    `images` have the shape (n, rows, columns) and background 0; `shift` is the width of the frame around an image.
    """
    n, rows, columns = images.shape
    shifts = list(itertools.product(range(2 * shift + 1), repeat=2))
    flat = from_object(images.reshape(n, -1), labels)  # checks, and the checksum
    n_features = (rows + 2 * shift) * (columns + 2 * shift)

    parts = [
        OneSlab(images.nbytes, partial(_shifted, images, shift, down, right, k * n))
        for k, (down, right) in enumerate(shifts)
    ]
    facts = SourceFacts(
        "sparse", {"format": "shifted images", "shift": shift}, flat.facts.identity, images.nbytes * len(shifts),
        in_memory=True, n_samples=n * len(shifts), n_features=n_features, labels=np.tile(labels, len(shifts)),
    )  # fmt: skip
    return Source(facts, lambda max_bytes: parts)


def _shifted(images: np.ndarray, shift: int, down: int, right: int, first_sample: int) -> Slab:
    """Return all images, moved by the same number of pixels within their frame."""
    samples, rows, columns = np.nonzero(images)
    features = (rows + down) * (images.shape[2] + 2 * shift) + columns + right
    return sparse_slab(features, samples, images[samples, rows, columns], len(images), first_sample)


_WEIGHED = ("matrix", "arrays", "documents")
_READERS = {"svmlight": _svmlight, "matrix": _matrix, "arrays": _arrays, "documents": _documents, "twin": _twin}
