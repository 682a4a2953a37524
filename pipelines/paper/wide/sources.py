"""Read tables, images and documents of the wide suite, as samples with labels of -1 and +1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from gdm_dask.ingestion.sources.documents.corpus import open_corpus
from gdm_dask.ingestion.sources.documents.vocabulary import TextSettings, count_vocabulary

from ..columns import Matrix
from ..datasets import mnist, newsgroups, rcv1, usps
from ..problem import Problem, data_file, split

#: Most samples of a set, training and test together.
MOST = 6000
#: Number of training texts that must contain a word or a pair of words.
MIN_TEXTS = 10
WORDS = TextSettings("word", (1, 2), min_df=MIN_TEXTS)

Pool = tuple[Matrix, np.ndarray]


def at_most(y: np.ndarray, most: int = MOST) -> np.ndarray:
    """Choose the samples to keep, the same for every split, so that all splits are of one set."""
    return np.sort(np.random.default_rng(0).permutation(len(y))[:most])


def digits(positive: int, negative: Sequence[int], share: float | None = None) -> Pool:
    """Read MNIST, one digit against others; `share` thins the one digit to this share of the samples."""
    with np.load(data_file("mnist/mnist.npz", mnist.PAGE)) as data:
        X, labels = (np.concatenate([data[f"{name}_train"], data[f"{name}_test"]]) for name in "xy")
    kept = np.isin(labels, [positive, *negative])
    X, y = X[kept], np.where(labels[kept] == positive, 1, -1)
    rows = at_most(y) if share is None else thinned(y, share)
    return X[rows], y[rows]


def thinned(y: np.ndarray, share: float) -> np.ndarray:
    """Choose samples such that a given share is positive."""
    order = np.random.default_rng(0).permutation(len(y))
    n_positive = round(share * MOST)
    positive, negative = (order[y[order] == label] for label in (1, -1))
    return np.sort(np.concatenate([positive[:n_positive], negative[: MOST - n_positive]]))


def small_digits(positive: int, negative: int) -> Pool:
    """Read USPS with its 16 x 16 pixels, one digit against another."""
    with np.load(data_file("usps/usps.npz", usps.PAGE)) as data:
        X = np.concatenate([data["x_train_milli"], data["x_test_milli"]])
        labels = np.concatenate([data["y_train"], data["y_test"]])
    kept = np.isin(labels, [positive, negative])
    return X[kept].astype(np.float32), np.where(labels[kept] == positive, 1, -1)


def stories() -> Pool:
    """Join both parts of the RCV1 sample."""
    whole = rcv1.load(0)
    return sp.csr_array(sp.vstack([whole.X, whole.X_test])), np.concatenate([whole.y, whole.y_test])


def texts(
    folder: str,
    page: str,
    seed: int,
    is_positive: Callable[[str], bool | None],
    label: str = "label",
    mail: bool = True,
) -> Problem:
    """Read the texts of a packed corpus; the vocabulary comes from the training texts.

    `is_positive` tells the class of a label, or returns None to leave its texts out.
    """
    corpus = open_corpus(data_file(f"{folder}/index.npz", page).parent, label=label, mail=mail)
    classes = [is_positive(name) for name in corpus.labels]
    kept = np.flatnonzero([known is not None for known in classes])
    y = np.where([classes[number] for number in kept], 1, -1)
    rows = at_most(y)
    parts = split(kept[rows], y[rows], 1 / 3, seed)  # splits indices; they become rows of words below
    train, test = (corpus.read(np.asarray(numbers)) for numbers in (parts.X, parts.X_test))
    vocabulary = count_vocabulary([train], WORDS)
    return Problem(vocabulary.rows(train), parts.y, vocabulary.rows(test), parts.y_test)


def groups_against(positive: str, negative: str | None = None) -> Callable[[str], bool | None]:
    """Compare a newsgroup with another one, or with all others."""
    return lambda name: name == positive if negative is None or name in (positive, negative) else None


NEWS = newsgroups.PAGE
SPAM = "https://spamassassin.apache.org/old/publiccorpus (packed: one file of text, and where each mail begins)"
