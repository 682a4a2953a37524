"""Untrusted pipeline files are valid, or an error names them; nothing else happens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from helpers.fuzz import FUZZ, changed_bytes
from helpers.soak import TINY
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask.errors import BadInput
from gdm_dask.pipeline import load_pipeline
from gdm_dask.pipeline.schema import key_lines

SEEDS = [TINY.encode(), *(file.read_bytes() for file in sorted(Path(__file__).parents[2].glob("pipelines/*.toml")))]
#: Parts of TOML, so that many changes leave it valid.
PIECES = st.sampled_from([
    '"', "'", '"""', "'''", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", "\r\n", "#", "\\", "\t", "..", "/",
    "name", "folder", "acquire", "fit", "tau", "true", "nan", "-inf", "1e999", "9" * 5000, "1979-05-27", "é", "\0",
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "recursion"),
        ("a = " + "1" * 5000, "digits"),
        ("a" + ".a" * 5000 + " = 1", "a is not a known key"),
        ("a = 1\n" * (1 << 18), "larger than 1048576 bytes"),
    ],
)
def test_texts_that_exhaust_a_parser(tmp_path, text, message) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(BadInput, match=rf"p\.toml.*: .*{message}"):
        load_pipeline(tmp_path / "p.toml")


def test_a_long_list_takes_no_time_without_end() -> None:
    """Parsing once tried each of its lines as the last one."""
    text = "a = [\n" + "1,\n" * 100_000 + "]\nb = 2\n[c]\n"
    began = time.process_time()
    assert key_lines(text) == {"a": 1, "b": 100_003, "c": 100_004}
    assert time.process_time() - began < 5


def check(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        pipeline = load_pipeline(path)
    except BadInput as error:
        assert path.name in str(error)  # noqa: PT017
    else:
        assert pipeline.folder.resolve().is_relative_to(Path("runs").resolve())


@FUZZ
@given(data=st.data())
def test_any_bytes_are_a_pipeline_or_refused(tmp_path, data) -> None:
    check(tmp_path / "p.toml", changed_bytes(data, data.draw(st.sampled_from(SEEDS))))


@FUZZ
@given(data=st.data())
def test_any_pieces_are_a_pipeline_or_refused(tmp_path, data) -> None:
    text = data.draw(st.sampled_from(SEEDS)).decode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(PIECES) + text[start + data.draw(st.sampled_from([0, 0, 1, 5])) :]
    check(tmp_path / "p.toml", text.encode())
