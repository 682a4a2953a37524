"""Data sets of the benchmark of targets: several classes, and numbers to predict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, make_friedman1, make_regression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import PolynomialFeatures

from gdm_dask.ingestion.sources.documents.corpus import open_corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, count_vocabulary

sys.path.insert(0, str(Path(__file__).parents[2]))
from pipelines.paper.columns import Matrix, varying
from pipelines.paper.problem import data_file, is_there

MNIST, USPS, ORL, GENES = "mnist/mnist.npz", "usps/usps.npz", "orl/orl.npz", "genes/{}.npz"
NEWS = "newsgroups20/index.npz"
#: Number of MNIST training samples, and of splits of small sets.
MNIST_SAMPLES, N_SPLITS = 10_000, 3
#: Pixels of the lower quarter of a face, whose mean is to be predicted from the others.
CHIN = 28 * 92


@dataclass(frozen=True)
class Split:
    """Training and test samples; columns that are constant in training are left out."""

    X: Matrix
    y: np.ndarray
    X_test: Matrix
    y_test: np.ndarray


@dataclass(frozen=True)
class TargetSet:
    """A data set: the file below GDM_DATA that it needs, if any, and a function of the split's number."""

    load: Callable[[int], Split]
    file: str | None = None
    n_splits: int = 1

    @property
    def is_available(self) -> bool:
        """Whether its file exists."""
        return self.file is None or is_there(self.file) is not None

    def split(self, seed: int) -> Split:
        """Load a split."""
        found = self.load(seed)
        kept = varying(found.X)
        return Split(found.X[:, kept], found.y, found.X_test[:, kept], found.y_test)


def _arrays(file: str) -> dict[str, np.ndarray]:
    with np.load(data_file(file, "its maker: see SOURCE.txt beside the file")) as arrays:
        return dict(arrays)


def _drawn(X: Matrix, y: np.ndarray, seed: int, share: float = 0.3, of_classes: bool = False) -> Split:
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=share, random_state=seed, stratify=y if of_classes else None
    )
    return Split(X, y, X_test, y_test)


def mnist(seed: int, target: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Split:
    """Draw training images of MNIST; `target` makes features and targets of images and digits."""
    arrays = _arrays(MNIST)
    rows = np.random.default_rng(seed).permutation(len(arrays["y_train"]))[:MNIST_SAMPLES]
    images = arrays["x_train"].reshape(-1, 28, 28)[rows], arrays["x_test"].reshape(-1, 28, 28)
    digits = arrays["y_train"][rows], arrays["y_test"]
    (X, y), (X_test, y_test) = (target(*part) for part in zip(images, digits, strict=True))
    return Split(X, y, X_test, y_test)


def digits(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict the digit from all pixels."""
    return _flat(images), labels


def slant(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict the slant, the ratio of second moments about the centre of the ink, from all pixels."""
    ink = images.astype(np.float64)
    total = ink.sum(axis=(1, 2))
    rows, columns = (np.arange(28.0) - (ink.sum(axis=axis) @ np.arange(28.0) / total)[:, None] for axis in (2, 1))
    across = np.einsum("nij,ni,nj->n", ink, rows, columns)
    return _flat(images), across / np.einsum("nij,ni->n", ink, rows**2)


def halves(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict the ink in 14 boxes of the right half from the pixels of the left half."""
    boxes = images[:, :, 14:].reshape(-1, 7, 4, 2, 7).mean(axis=(2, 4))
    return _flat(images[:, :, :14]), boxes.reshape(len(images), -1)


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32)


def usps(seed: int) -> Split:
    """Read the USPS digits."""
    arrays = _arrays(USPS)
    X, X_test = (arrays[f"x_{part}_milli"].astype(np.float32) for part in ("train", "test"))
    return Split(X, arrays["y_train"], X_test, arrays["y_test"])


def people(seed: int) -> Split:
    """Split the ORL faces of each person: seven to learn from, three to test."""
    arrays = _arrays(ORL)
    return _drawn(_flat(arrays["x"]), arrays["subject"], seed, of_classes=True)


def chins(seed: int) -> Split:
    """Predict the mean brightness of the lower quarter of ORL faces from the pixels above."""
    pixels = _flat(_arrays(ORL)["x"])
    return _drawn(pixels[:, :-CHIN], pixels[:, -CHIN:].mean(axis=1), seed)


def news(seed: int, by_length: bool) -> Split:
    """Read 20 Newsgroups by date: words and pairs of words, and the group, or the logarithm of the length."""
    path = data_file(NEWS, "http://qwone.com/~jason/20Newsgroups")
    corpus = open_corpus(path.parent, label="group", mail=True)
    parts = [np.flatnonzero(_arrays(NEWS)["split"] == part) for part in ("train", "test")]
    texts = [corpus.read(part) for part in parts]
    vocabulary = count_vocabulary(texts[:1], TextSettings("word", (1, 2), min_df=10))
    labels = np.array(corpus.labels)
    X, X_test = (sp.csr_array(vocabulary.rows(text)) for text in texts)
    if by_length:
        y, y_test = (np.log([1 + len(text) for text in part]) for part in texts)
    else:
        y, y_test = (labels[part] for part in parts)
    return Split(X, y, X_test, y_test)


def genes(seed: int, name: str) -> Split:
    """Predict the column of largest variance from all others."""
    X = _arrays(GENES.format(name))["x"].astype(np.float32)
    target = int(np.argmax(X.var(axis=0)))
    return _drawn(np.delete(X, target, axis=1), X[:, target].astype(np.float64), seed, 0.25)


def diabetes(seed: int) -> Split:
    """Predict the progress of diabetes from ten variables and their products of up to three."""
    X, y = load_diabetes(return_X_y=True)
    return _drawn(PolynomialFeatures(3, include_bias=False).fit_transform(20 * X), y, seed, 0.25)


def friedman(seed: int) -> Split:
    """Friedman's first function of 20 variables, from the variables and their products."""
    X, y = make_friedman1(3000, 20, noise=1.0, random_state=seed)
    return _drawn(PolynomialFeatures(2, include_bias=False).fit_transform(X), y, seed, 1 / 3)


def low_rank(seed: int) -> Split:
    """Sum 100 of 2,000 features of effective rank 50."""
    X, y = make_regression(3000, 2000, n_informative=100, effective_rank=50, noise=0.5, random_state=seed)
    return _drawn(X, y, seed, 1 / 3)


def planted(seed: int, n_outputs: int) -> Split:
    """Plant 60 informative blocks among 500 of ten features that correlate, with weights that fall."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(3000, 500))
    X = np.sqrt(0.8) * np.repeat(causes, 10, axis=1) + np.sqrt(0.2) * rng.normal(size=(3000, 5000))
    weights = rng.normal(size=(60, n_outputs)) * (0.97 ** np.arange(60))[:, None]
    y = causes[:, :60] @ weights
    y += 0.5 * y.std(axis=0) * rng.normal(size=y.shape)
    return _drawn(X, y if n_outputs > 1 else y[:, 0], seed, 1 / 3)


CLASSES = {
    "mnist": TargetSet(partial(mnist, target=digits), MNIST),
    "usps": TargetSet(usps, USPS),
    "orl": TargetSet(people, ORL, N_SPLITS),
    "newsgroups": TargetSet(partial(news, by_length=False), NEWS),
}
NUMBERS = {
    "slant": TargetSet(partial(mnist, target=slant), MNIST),
    "halves": TargetSet(partial(mnist, target=halves), MNIST),
    "length": TargetSet(partial(news, by_length=True), NEWS),
    "chins": TargetSet(chins, ORL, N_SPLITS),
    "gravier": TargetSet(partial(genes, name="gravier"), GENES.format("gravier"), N_SPLITS),
    "arcene": TargetSet(partial(genes, name="arcene"), GENES.format("arcene"), N_SPLITS),
    "diabetes": TargetSet(diabetes, None, N_SPLITS),
    "friedman": TargetSet(friedman),
    "low rank": TargetSet(low_rank),
    "planted": TargetSet(partial(planted, n_outputs=1)),
    "planted, 3": TargetSet(partial(planted, n_outputs=3)),
}
