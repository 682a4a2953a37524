"""Information gain and symmetrical uncertainty against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.instances import many
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from gdm_dask import information_gain, symmetrical_uncertainty
from gdm_dask.errors import BadInput
from gdm_dask.features import information
from gdm_dask.features.information import discretise, encode

# The four cells (a, b) have the counts 3, 1, 1, 3: H(a) = H(b) = 1 bit, and
# H(a, b) = 2 * 3/8 * log2(8/3) + 2 * 1/8 * log2(8) = 0.75 * (3 - log2(3)) + 0.75.
A = np.array([0, 0, 0, 0, 1, 1, 1, 1])
B = np.array([0, 0, 0, 1, 0, 1, 1, 1])
GAIN = 2 - (0.75 * (3 - np.log2(3)) + 0.75)


def test_two_binary_features() -> None:
    assert information_gain(A, B) == pytest.approx(GAIN, abs=1e-12)
    assert symmetrical_uncertainty(A, B) == pytest.approx(GAIN, abs=1e-12)  # 2 * IG / (1 + 1)
    assert pytest.approx(0.1887218755, abs=1e-10) == GAIN


def test_uncertainty_is_relative_to_both_entropies() -> None:
    four = np.array([0, 1, 2, 3] * 2)  # 2 bits, of which `half` tells 1
    half = four // 2
    assert information_gain(four, half) == pytest.approx(1.0)
    assert symmetrical_uncertainty(four, half) == pytest.approx(2 / 3)
    assert symmetrical_uncertainty(half, four) == pytest.approx(2 / 3)


def test_constant_features_tell_nothing() -> None:
    constant = np.zeros(8)
    assert information_gain(constant, A) == 0
    assert symmetrical_uncertainty(constant, A) == 0
    assert symmetrical_uncertainty(constant, constant) == 0


def test_a_matrix_is_measured_column_by_column() -> None:
    X = np.column_stack([A, B, np.zeros(8, int)])
    expected = [information_gain(column, B) for column in X.T]
    np.testing.assert_allclose(information_gain(X, B), expected, rtol=0, atol=0)
    coded = encode(X)
    np.testing.assert_array_equal(symmetrical_uncertainty(coded, coded.column(1)), symmetrical_uncertainty(X, B))


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc")), min_size=1, max_size=60))
def test_agrees_with_the_definition(pairs: list[tuple[int, str]]) -> None:
    x, y = (np.array(values) for values in zip(*pairs, strict=True))
    # scikit-learn uses nats
    assert information_gain(x, y) == pytest.approx(mutual_info_score(x, y) / np.log(2), abs=1e-9)
    assert information_gain(x, y) == pytest.approx(information_gain(y, x), abs=1e-12)
    assert -1e-12 <= symmetrical_uncertainty(x, y) <= 1 + 1e-12


def test_three_states_around_the_mean() -> None:
    # mean 2, deviation sqrt(2): below .59, above 3.41
    assert discretise(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])).ravel().tolist() == [-1, 0, 0, 0, 1]


@pytest.mark.parametrize("y", [np.zeros(7), np.zeros((8, 2))])
def test_a_y_of_the_wrong_shape_is_named(y: np.ndarray) -> None:
    with pytest.raises(BadInput, match="one value for each of the 8 samples"):
        information_gain(A, y)


def test_distinct_values_tell_everything_and_take_no_counter_for_each_pair() -> None:
    n = 200_000
    values = np.random.default_rng(0).permutation(n)
    gain = information_gain(np.column_stack([values, np.arange(n) % 2]), values.astype(float))
    np.testing.assert_allclose(gain, [np.log2(n), 1.0])


@many(20)
@given(st.integers(0, 2**32 - 1))
def test_sorted_pairs_count_as_counters_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 5, (40, 3)), rng.integers(0, 4, 40)
    counted = information_gain(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(information, "MAX_COUNTERS", 0)
        np.testing.assert_allclose(information_gain(X, y), counted, atol=1e-12)
