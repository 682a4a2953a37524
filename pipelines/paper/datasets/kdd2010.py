"""kdd2010 (kddb), right at the first try or not, in the paper's size: 100,000 + 748,401 steps, 2,990,384 features.

The training set is every 192nd step of kddb with the first tenth of its features, which matches the paper's number.
Without the files, a generated lookalike of the same size takes its place.
"""

from __future__ import annotations

from ..problem import Problem, is_there
from ._cache import kept
from ._lookalike import load_lookalike
from ._svmlight import read_every

NAME = "kdd2010"
RANDOM = False
FILES = ()
TRAIN, TEST = "kdd2010/kddb.bz2", "kdd2010/kddb.t.bz2"
REAL_FILES = (TRAIN, TEST)
N_TRAIN, N_TEST, N_FEATURES = 100_000, 748_401, 2_990_384
STEP = 192  # of 19,264,097


def load(seed: int) -> Problem:
    """Read LIBSVM's files kdd2010/kddb.bz2 and kddb.t.bz2."""
    train, test = is_there(TRAIN), is_there(TEST)
    if train is None or test is None:
        return load_lookalike("kdd2010", N_TRAIN, N_TEST, N_FEATURES, seed)

    def make() -> Problem:
        X, y = read_every(train, STEP, N_FEATURES)
        return Problem(X[:N_TRAIN], y[:N_TRAIN], *read_every(test, 1, N_FEATURES))

    return kept(f"kdd2010-{train.stat().st_size}", make)
