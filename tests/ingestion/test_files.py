"""Files are read by byte ranges and in pieces: every line once and complete, wherever the cuts fall."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from helpers.instances import many
from hypothesis import example, given
from hypothesis import strategies as st

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.plan import byte_ranges
from gdm_dask.ingestion.sources import lines as files
from gdm_dask.ingestion.sources.lines import line_range, read_lines

texts = st.lists(st.sampled_from([b"\n", b"a\n", b"bcd\n", b"e" * 20 + b"\n"]), max_size=20).map(b"".join)


@many(200)
@given(texts, st.sampled_from([b"", b"last"]), st.integers(1, 30), st.integers(1, 12))
@example(b"a\n", b"", 2, 1)
def test_every_line_comes_once_and_whole(text: bytes, end: bytes, target: int, piece: int) -> None:
    text += end
    with tempfile.TemporaryDirectory() as folder, patch.multiple(files, _PIECE=piece):
        path = Path(folder) / "x"
        path.write_bytes(text)
        found = []
        for start, stop in byte_ranges(len(text), target) if text else []:
            bounds = line_range(str(path), start, stop, 100)
            for place, lines in read_lines(str(path), *bounds):
                assert len(lines) > 0
                found.append((place, lines.tobytes()))
    assert b"".join(lines for _, lines in found) == text
    places = list(itertools.accumulate((len(lines) for _, lines in found), initial=0))
    assert [place for place, _ in found] == places[:-1]
    assert all(lines.endswith(b"\n") for _, lines in found[:-1])


def test_a_last_line_may_be_as_long_as_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"first\n" + b"x" * 99 + b"\nthird\n")
    assert line_range(str(path), 0, 6, 0) == (0, 6)
    assert line_range(str(path), 0, 7, 99) == (0, 106)
    assert line_range(str(path), 7, 20, 0) == (20, 20)  # no line begins there
    with pytest.raises(BadInput, match="line 2: the line is longer than 98 B"):
        line_range(str(path), 0, 7, 98)


def test_a_file_that_became_shorter_is_not_taken_for_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1 1:1\n" * 10)
    with pytest.raises(BadInput, match="changed while it was read"):
        list(read_lines(str(path), 0, 61))
