"""Runs and stores hold short decimals as integers, and return the original bits."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers.instances import many
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import gdm_dask
from gdm_dask.errors import BadInput
from gdm_dask.features.block import stack
from gdm_dask.features.correlation import correlations
from gdm_dask.features.groups import find_pairs, prepare
from gdm_dask.features.moments import with_samples
from gdm_dask.features.scores import scores
from gdm_dask.features.values import MOST_DECIMALS, fewest_decimals, from_whole, try_whole
from gdm_dask.ingestion.runs import write_run
from gdm_dask.ingestion.slab import Slab
from gdm_dask.store import FeatureStore

places = st.integers(0, MOST_DECIMALS + 3)
whole_numbers = st.integers(-(2**33), 2**33).filter(bool)
decimals = st.tuples(whole_numbers, places).map(lambda pair: pair[0] / 10 ** pair[1])
nonzeros = st.floats(allow_nan=False, allow_infinity=False).filter(bool)
hard_values = st.sampled_from([0.1 + 0.2, 1 / 3, 5e-324, -1.7e308, 2.0**31, -(2.0**31), 0.1 * 3, 1e-9, 2.0**53])

#: Samples of a run: values with equal decimals, with any decimals, any values, ones.
runs = st.one_of(
    places.flatmap(lambda n: st.lists(whole_numbers.map(lambda whole: whole / 10**n), min_size=1, max_size=4)),
    st.lists(decimals, min_size=1, max_size=4),
    st.lists(decimals | nonzeros | hard_values, min_size=1, max_size=4),
    st.lists(st.just(1.0), min_size=1, max_size=4),
)


def as_whole(values: list[float] | np.ndarray) -> tuple[np.ndarray, int] | None:
    """Convert to integers and the number of decimals, or None."""
    values = np.array(values)
    out = np.empty(len(values), np.int32)
    n_places = try_whole(values, out)
    assert n_places == fewest_decimals(values)
    return None if n_places is None else (out, n_places)


def bits(values: np.ndarray) -> list[int]:
    return values.view(np.uint64).tolist()


@many(300)
@given(runs)
@example([0.1 + 0.2])
@example([2147483647.0, -2147483647.0])
@example([2147483648.0])
def test_quotients_are_the_values_or_there_are_none(run: list[float]) -> None:
    found = as_whole(run)
    if found is not None:
        whole, n_places = found
        back = np.empty(len(whole))
        from_whole(whole, 10.0**n_places, back)
        assert bits(back) == bits(whole / 10.0**n_places) == bits(np.array(run))


@many(200)
@given(st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=1), st.integers(0, MOST_DECIMALS))
def test_short_decimals_are_found_with_the_fewest_places(whole: list[int], n_places: int) -> None:
    found = as_whole([float(f"{number}e-{n_places}") for number in whole])
    assert found is not None
    fewer = next(places for places in range(n_places + 1) if all(k % 10 ** (n_places - places) == 0 for k in whole))
    assert found[1] == fewer
    assert found[0].tolist() == [k // 10 ** (n_places - fewer) for k in whole]


@pytest.mark.parametrize("n_places", range(MOST_DECIMALS + 1))
def test_products_give_the_quotients_to_the_last_bit(n_places: int) -> None:
    largest = 2**31 - 1
    some = np.random.default_rng(n_places).integers(-largest, largest, 10**6, endpoint=True)
    edges = np.concatenate([np.arange(1, 10**5), largest - np.arange(10**5), 10 ** np.arange(10)])
    whole = np.concatenate([some, edges, -edges, [0]]).astype(np.int32)
    back = np.empty(len(whole))
    from_whole(whole, 10.0**n_places, back)
    assert back.tobytes() == (whole / 10.0**n_places).tobytes()


@pytest.mark.parametrize("place", [0, 511, 512, 1999])
@pytest.mark.parametrize("value", [1 / 3, -0.0, 1e10, np.nextafter(0.7, 1)])
def test_one_value_that_is_none_is_found_anywhere(place: int, value: float) -> None:
    values = np.full(2000, 0.7)
    assert as_whole(values) is not None
    values[place] = value
    assert as_whole(values) is None


@pytest.mark.slow
@many(100)
@given(
    st.lists(runs, min_size=2, max_size=5), st.integers(1, 3), st.sampled_from([8, 60])
)  # no line has fewer than 8 bytes: one run each
@example([[0.1, -0.25], [1 / 3], [1.0, 1.0], [3.0, 200.0], [0.5, 1e10]], 2, 8)
@example([[0.5, 0.25], [0.123], [7.0]], 1, 8)
@example([[1.5, 20.5], [300.5]], 1, 8)
def test_any_mixture_of_runs_comes_back_from_a_store(parts: list[list[float]], n_features: int, run_bytes: int) -> None:
    # no line has fewer than 8 bytes, so each becomes its own run
    values = [value for part in parts for value in part if abs(value) < 1e150]  # the norm of larger ones is refused
    values += [0.5, -0.1]
    features = np.arange(len(values)) % n_features
    lines = [f"{1 - 2 * (k % 2)} {feature + 1}:{values[k]!r}\n" for k, feature in enumerate(features)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.svm"
        source.write_text("".join(lines))
        options = {"block_bytes": 1, "scheduler": "synchronous"}
        store = gdm_dask.ingest(source, Path(folder) / "s", run_bytes=run_bytes, **options)
        assert store.fingerprint == gdm_dask.ingest(source, Path(folder) / "one run", **options).fingerprint
        rows = store.read_rows(np.arange(n_features)).toarray()
        assert bits(rows[features, np.arange(len(values))].astype(np.float64)) == bits(np.array(values))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([0.123456, 7.5], "int32"), ([-0.1, 0.2], "int32"), ([0.1, 1 / 3], "float64"), ([0.5, 2.0], "float32")],
)
def test_a_run_takes_the_fewest_bytes(tmp_path: Path, values: list[float], dtype: str) -> None:
    numbers = np.arange(2, dtype=np.uint32)
    run = write_run(tmp_path / "run", Slab(2, None, numbers, numbers, np.array(values)), None)
    assert run.arrays["values"].dtype == dtype
    assert run.value_type == ("float32" if dtype == "float32" else "float64")


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_a_store_keeps_whole_numbers_for_decimals_alone(tmp_path: Path, kind: type, codec: str) -> None:
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((400, 30)) < 0.3, rng.integers(-(10**6), 10**6, (400, 30)) / 1e6, 0.0)
    matrix[7, 29] = 1 / 3
    store = gdm_dask.ingest(kind(matrix), tmp_path / "s", rng.choice([0, 1], 400), codec=codec, block_bytes=20_000)
    places = [block.arrays["values"].places for block in store.manifest.blocks]
    assert len(places) > 1
    assert places == [6] * (len(places) - 1) + [None]
    assert bits(store.to_scipy().toarray()) == bits(np.ascontiguousarray(matrix.T))
    assert np.array_equal(store.read_rows(np.array([3, 29])).toarray(), matrix.T[[3, 29]])


@pytest.fixture
def decimal_store(tmp_path: Path) -> FeatureStore:
    """Sparse values with few decimals in several blocks; some features are copies, some have large means."""
    rng = np.random.default_rng(1)
    matrix = np.where(rng.random((300, 40)) < 0.3, rng.integers(-(10**4), 10**4, (300, 40)) / 1e4, 0.0)
    matrix[:, 5] = matrix[:, 3] + (rng.random(300) < 0.02)
    matrix[:, 6] = 1000 + np.round(matrix[:, 3], 4)
    matrix[:, 7] = 1000 + np.round(matrix[:, 3], 4) + np.round(0.01 * rng.random(300), 4)
    matrix = np.round(matrix, 4)
    return gdm_dask.ingest(csr_array(matrix), tmp_path / "s", np.arange(300) % 2, block_bytes=15_000)


def test_passes_over_whole_numbers_and_over_numbers_agree_to_the_bit(decimal_store: FeatureStore) -> None:
    vectors = np.random.default_rng(2).normal(size=(2, 300))
    stored = [decimal_store.load_block(number) for number in range(decimal_store.n_blocks)]
    numbers = [block.as_numbers() for block in stored]
    assert len(stored) > 2
    assert {block.decimals for block in stored} == {4}
    assert {block.decimals for block in numbers} == {None}
    supports = prepare(decimal_store.load_rows(np.array([3, 6, 11])), 0.7)
    n_pairs = 0
    for whole, block in zip(stored, numbers, strict=True):
        assert whole.values.dtype == np.int32
        assert scores(whole, vectors).tobytes() == scores(block, vectors).tobytes()
        found, expected = find_pairs(whole, supports), find_pairs(block, supports)
        assert found.feature.tolist() == expected.feature.tolist()
        assert found.rho.tobytes() == expected.rho.tobytes()
        assert correlations(whole, whole).tobytes() == correlations(block, block).tobytes()
        n_pairs += len(found.rho)
    assert n_pairs >= 6  # 3 with 5, 6 with 7, and each with itself


def test_blocks_of_whole_numbers_become_rows_and_matrices_of_numbers(decimal_store: FeatureStore) -> None:
    expected = decimal_store.to_scipy().toarray()
    blocks = [decimal_store.load_block(number) for number in range(decimal_store.n_blocks)]
    assert [block.nbytes for block in blocks] == [entry.nbytes for entry in decimal_store.manifest.blocks]
    assert np.array_equal(stack(blocks).to_scipy().toarray(), expected)
    first = blocks[0]
    assert np.array_equal(first.to_scipy().toarray(), expected[: first.stop])
    rows = first.rows(np.array([3, 0]))
    assert (rows.decimals, rows.values.dtype) == (None, np.float64)
    assert np.array_equal(rows.to_scipy().toarray(), expected[[3, 0]])


def test_some_samples_of_a_store_of_whole_numbers(decimal_store: FeatureStore) -> None:
    samples = np.arange(0, 300, 3)
    direct = gdm_dask.ingest(
        csr_array(decimal_store.to_scipy().toarray()[:, samples].T), f"{decimal_store.url}-direct",
        decimal_store.y[samples], block_bytes=10**6,
    ).load_block(0)  # fmt: skip
    blocks = [with_samples(decimal_store.load_block(number), samples) for number in range(decimal_store.n_blocks)]
    assert {block.decimals for block in blocks} == {4}
    together = stack(blocks)
    assert np.array_equal(together.to_scipy().toarray(), direct.to_scipy().toarray())
    assert together.norms.tobytes() == direct.norms.tobytes()


def test_the_whole_matrix_is_refused_by_the_bytes_of_its_numbers(decimal_store: FeatureStore) -> None:
    needed = 2 * (decimal_store.nbytes + 4 * decimal_store.nnz)
    decimal_store.to_scipy(needed)
    with pytest.raises(BadInput, match="the whole matrix needs"):
        decimal_store.to_scipy(needed - 1)
