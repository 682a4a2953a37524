"""Files written and read around the page cache hold the same bytes, wherever they begin and end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.system.scratch import LARGE, PAGE, page_aligned, work_space
from gdm_dask.system.uncached import read_file, write_file

sizes = st.one_of(st.integers(0, 3 * PAGE), st.sampled_from([PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 70 * PAGE + 5]))


def random_bytes(nbytes: int, shift: int) -> np.ndarray:
    """Return bytes that begin `shift` bytes after a page boundary."""
    data = page_aligned(nbytes + shift)[shift:]
    data[:] = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    return data


@given(size=sizes, shift=st.sampled_from([0, 0, 1, 512]), part=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_part_of_a_file_reads_back(
    tmp_path_factory: pytest.TempPathFactory, size: int, shift: int, part: tuple[float, float]
) -> None:
    path = tmp_path_factory.mktemp("uncached") / "file"
    data = random_bytes(size, shift)
    write_file(path, data)
    assert path.read_bytes() == data.tobytes()
    start, stop = sorted(int(size * share) for share in part)
    assert read_file(path, start, stop - start).tobytes() == data[start:stop].tobytes()


def test_memory_that_is_not_aligned_is_read_into_through_the_cache(tmp_path: Path) -> None:
    data = random_bytes(5 * PAGE, 0)
    write_file(tmp_path / "file", data)
    got = read_file(tmp_path / "file", 10, 2 * PAGE, lambda nbytes: page_aligned(nbytes + 3)[3:])
    assert got.tobytes() == data[10 : 10 + 2 * PAGE].tobytes()


def test_a_file_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    write_file(tmp_path / "file", random_bytes(PAGE + 10, 0))
    with pytest.raises(EOFError, match="too early"):
        read_file(tmp_path / "file", PAGE, 11)


def test_work_space_is_kept_and_begins_at_a_page() -> None:
    first = work_space("some", 1000, np.float64)
    assert first.ctypes.data % PAGE == 0
    assert np.shares_memory(first, work_space("some", 10, np.uint8))
    assert not np.shares_memory(first, work_space("other", 10, np.uint8))


@pytest.mark.parametrize("nbytes", [1, LARGE - 1, LARGE, 3 * LARGE + 1])
def test_fresh_memory_begins_at_a_page_and_is_ours_alone(nbytes: int) -> None:
    one, other = page_aligned(nbytes), page_aligned(nbytes)
    assert len(one) == nbytes
    assert one.ctypes.data % PAGE == 0
    one[:], other[:] = 1, 2
    assert (one == 1).all()
    assert (other == 2).all()


def test_fresh_memory_goes_back_when_nobody_holds_it() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    for _ in range(8):
        page_aligned(64 * LARGE)[:] = 1
    assert process.memory_info().rss < before + 70 * LARGE
