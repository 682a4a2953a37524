"""Sets of the wide suite that have no file in `datasets`, and the sizes in which each set is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.datasets import make_classification

from ..datasets import enron, mnist, rcv1, usps
from ..datasets._cache import kept
from ..datasets._tables import GENES, load_table
from ..problem import Problem, split
from .blocks import make_blocks
from .fetched import NAMES, PAGE, file_of, load_fetched
from .sources import NEWS, SPAM, Pool, digits, groups_against, small_digits, stories, texts


@dataclass(frozen=True)
class WideSet:
    """A data set of the wide suite, with the attributes of a file in `datasets`."""

    NAME: str
    load: Callable[[int], Problem]
    FILES: tuple[str, ...] = ()
    PAGE: str = ""
    RANDOM: bool = True


def _genes(name: str, file: str) -> WideSet:
    path = f"genes/{file}.npz"
    return WideSet(f"genes, {name}", lambda seed: load_table(path, GENES, seed), (path,), GENES)


def _pool(name: str, read: Callable[[], Pool], file: str, page: str) -> WideSet:
    """Split off a third of each class as the test set."""
    return WideSet(name, lambda seed: split(*read(), 1 / 3, seed), (file,), page)


def _kept(key: str, load: Callable[[int], Problem]) -> Callable[[int], Problem]:
    """Cache each split."""
    return lambda seed: kept(f"wide-{key}-s{seed}", lambda: load(seed))


def _digits(key: str, positive: int, negative: Sequence[int], share: float | None = None) -> WideSet:
    name = f"{negative[0]}" if len(negative) == 1 else f"rest, {share:.0%}"
    load = _kept(f"digits-{key}", lambda seed: split(*digits(positive, negative, share), 1 / 3, seed))
    return WideSet(f"MNIST {positive} v {name}", load, ("mnist/mnist.npz",), mnist.PAGE)


def _texts(key: str, name: str, folder: str, page: str, read: Callable[[int], Problem]) -> WideSet:
    files = tuple(f"{folder}/{file}" for file in ("index.npz", "text.bin.xz"))
    return WideSet(name, _kept(key, read), files, page)


def _news(key: str, name: str, positive: str, negative: str | None = None) -> WideSet:
    def read(seed: int) -> Problem:
        return texts("newsgroups20", NEWS, seed, groups_against(positive, negative), label="group")

    return _texts(key, name, "newsgroups20", NEWS, read)


def _mails(key: str, name: str, folder: str, page: str, mail: bool) -> WideSet:
    def read(seed: int) -> Problem:
        return texts(folder, page, seed, lambda label: label == "1", mail=mail)

    return _texts(key, name, folder, page, read)


def _classification(seed: int, n_samples: int, n_features: int, n_informative: int, n_redundant: int) -> Problem:
    """Generate data with scikit-learn; a twentieth of the labels is random."""
    X, y = make_classification(
        3 * n_samples, n_features, n_informative=n_informative, n_redundant=n_redundant, n_clusters_per_class=1,
        flip_y=0.05, class_sep=0.7, random_state=seed,
    )  # fmt: skip
    return split(X.astype(np.float32), np.where(y > 0, 1, -1), 2 / 3, seed)


def _blocks(**options: float) -> Callable[[int], Problem]:
    return lambda seed: make_blocks(seed=seed, **options)  # type: ignore[arg-type]


NOT_8 = [0, 1, 2, 3, 4, 5, 6, 7, 9]
SETS: dict[str, WideSet] = {
    "breast": _genes("breast", "gravier"),
    "colon_breast": _genes("colon or breast", "chowdary"),
    "lymphoma": _genes("lymphoma", "shipp"),
    "arcene": _genes("mass spectra", "arcene"),
    "digits_4v7": _digits("4v7", 4, [7]),
    "digits_4v9": _digits("4v9", 4, [9]),
    "digits_8_rare": _digits("8-rare", 8, NOT_8, 0.01),
    "digits_8_few": _digits("8-few", 8, NOT_8, 0.05),
    "usps_3v5": _pool("USPS 3 v 5", partial(small_digits, 3, 5), "usps/usps.npz", usps.PAGE),
    "stories": _pool("RCV1 stories", stories, rcv1.FILES[0], rcv1.PAGE),
    "hockey": _news("hockey", "news, hockey v baseball", "rec.sport.hockey", "rec.sport.baseball"),
    "christian": _news("christian", "news, christian v atheism", "soc.religion.christian", "alt.atheism"),
    "space": _news("space", "news, space v medicine", "sci.space", "sci.med"),
    "mac": _news("mac", "news, Mac v PC", "comp.sys.mac.hardware", "comp.sys.ibm.pc.hardware"),
    "crypt_rare": _news("crypt-rare", "news, crypt v rest", "sci.crypt"),
    "spam": _mails("spam", "SpamAssassin mails", "spamassassin", SPAM, mail=True),
    "mails": _mails("mails", "Enron mails, words", "enron_spam", enron.PAGE, mail=False),
    "blocks_60": WideSet("blocks, 60 samples", _blocks(n_samples=60, n_features=2000)),
    "blocks_100": WideSet(
        "blocks, 100 samples", _blocks(n_samples=100, n_features=5000, block=50, correlation=0.6, n_informative=20)
    ),
    "blocks_200": WideSet(
        "blocks, 200 samples", _blocks(n_samples=200, n_features=5000, block=10, correlation=0.9, n_informative=40)
    ),
    "classification_100": WideSet(
        "make_classification, 100",
        partial(_classification, n_samples=100, n_features=3000, n_informative=15, n_redundant=30),
    ),
    "classification_1000": WideSet(
        "make_classification, 1,000",
        partial(_classification, n_samples=1000, n_features=1500, n_informative=30, n_redundant=60),
    ),
    **{
        name.lower(): WideSet(name, partial(load_fetched, name), (file_of(name),), PAGE)
        for name in NAMES
    },
}  # fmt: skip

#: Parts to run: a set, and the number of training samples (None: all).
PARTS: tuple[tuple[str, int | None], ...] = (
    ("colon", None), ("leukaemia", None), ("prostate", None), ("prostate", 40), ("breast", None), ("breast", 60),
    ("colon_breast", None), ("colon_breast", 35), ("lymphoma", None), ("arcene", None), ("arcene", 60),
    ("madelon", 1000), ("faces", None),
    ("mnist_splits", 100), ("mnist_splits", 500), ("mnist_splits", 2000), ("digits_4v7", 2000), ("digits_4v9", 300),
    ("usps_3v5", 200), ("digits_8_rare", None), ("digits_8_few", 1000),
    ("hockey", 200), ("hockey", None), ("christian", 300), ("space", 200), ("mac", None), ("crypt_rare", 2000),
    ("spam", 200), ("spam", None), ("mails", 300), ("mails", 3000), ("stories", 200), ("stories", None),
    ("synthetic", None), ("blocks_60", None), ("blocks_100", None), ("blocks_200", None),
    ("classification_100", None), ("classification_1000", None),
    *((name.lower(), None) for name in NAMES),
)  # fmt: skip
