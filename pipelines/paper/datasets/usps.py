"""Extended USPS, 0 against 1: each 16 x 16 digit, shifted by up to 5 pixels in a frame of 26 x 26.

266,079 + 75,383 images of 676 pixels, as in the paper.
"""

from __future__ import annotations

import numpy as np

from ..problem import Problem, data_file

NAME = "USPS 0 v 1"
RANDOM = False
FILES = ("usps/usps.npz",)
PAGE = "https://hastie.su.domains/ElemStatLearn/data.html (ZIP code: grey values times 1,000)"
SIDE, SHIFTS = 16, 11
FRAME = SIDE + SHIFTS - 1


def load(seed: int) -> Problem:
    """Read usps/usps.npz: x_train_milli, x_test_milli (-1000 is background), y_train, y_test (digits)."""
    del seed
    with np.load(data_file(FILES[0], PAGE)) as data:
        parts = [shifted(data[f"x_{part}_milli"], data[f"y_{part}"]) for part in ("train", "test")]
    return Problem(*parts[0], *parts[1], portraits=centred_means(*parts[0]))


def centred_means(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Average the unshifted 0s and the unshifted 1s."""
    n_digits = len(y) // SHIFTS**2
    middle = slice(SHIFTS**2 // 2 * n_digits, (SHIFTS**2 // 2 + 1) * n_digits)
    means = {name: X[middle][y[middle] == label].mean(axis=0) for name, label in (("0", -1), ("1", 1))}
    return {name: mean.reshape(FRAME, FRAME) for name, mean in means.items()}


def shifted(milli: np.ndarray, digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift the digits 0 and 1 to every position, with ink values of 0 to 200."""
    kept = digits <= 1
    ink = np.rint((milli[kept].reshape(-1, SIDE, SIDE).astype(np.float32) + 1000) / 10).astype(np.uint8)
    frames = np.zeros((SHIFTS, SHIFTS, len(ink), FRAME, FRAME), np.uint8)
    for down in range(SHIFTS):
        for right in range(SHIFTS):
            frames[down, right, :, down : down + SIDE, right : right + SIDE] = ink
    labels = np.where(digits[kept] == 1, 1, -1)
    return frames.reshape(-1, FRAME * FRAME), np.tile(labels, SHIFTS * SHIFTS)
