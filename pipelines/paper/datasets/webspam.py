"""webspam (trigrams), spam pages or not, at a tenth of the paper's size: 8,000 + 7,000 pages, 835,510 features.

The training set is every 43rd page of LIBSVM's file, the test set the pages halfway between, with the first 835,510
features. Without the file, a generated lookalike of the same size takes its place.
"""

from __future__ import annotations

from ..problem import Problem, is_there
from ._cache import kept
from ._lookalike import load_lookalike
from ._svmlight import read_every

NAME = "webspam"
RANDOM = False
FILES = ()
PAGES = "webspam/webspam_wc_normalized_trigram.svm.xz"
REAL_FILES = (PAGES,)
N_TRAIN, N_TEST, N_FEATURES = 8_000, 7_000, 835_510
STEP = 43  # of 350,000


def load(seed: int) -> Problem:
    """Read LIBSVM's file webspam/webspam_wc_normalized_trigram.svm.xz."""
    pages = is_there(PAGES)
    if pages is None:
        return load_lookalike("webspam", N_TRAIN, N_TEST, N_FEATURES, seed)

    def make() -> Problem:
        (X, y), (X_test, y_test) = (read_every(pages, STEP, N_FEATURES, first) for first in (0, STEP // 2))
        return Problem(X[:N_TRAIN], y[:N_TRAIN], X_test[:N_TEST], y_test[:N_TEST])

    return kept(f"webspam-{pages.stat().st_size}", make)
