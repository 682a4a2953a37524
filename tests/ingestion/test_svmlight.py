"""The svmlight parser against scikit-learn's, against ``float`` and against a slow, literal reference."""

import io
import math
import pickle
import random
import re
import struct
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from gdm_dask.errors import BadInput
from gdm_dask.ingestion.sources import svmlight_parser
from gdm_dask.ingestion.sources.svmlight_parser import MalformedLine, Room, parse

NUMBER = rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def reference_line(line, base=1, n_features=None):
    """Return None for a blank line, (label, {feature: value}, unseen) for a good one; raise ValueError if bad."""
    tokens = line.partition(b"#")[0].split()
    if not tokens:
        return None
    label, *rest = tokens
    if not re.fullmatch(NUMBER, label) or math.isinf(float(label)):
        raise ValueError("label")
    if rest and rest[0].startswith(b"qid:") and not re.fullmatch(NUMBER, rest.pop(0)[4:]):
        raise ValueError("qid")
    entries, unseen, last = {}, 0, -1
    for token in rest:
        index, colon, value = token.partition(b":")
        if not colon or not re.fullmatch(rb"[0-9]+", index) or not re.fullmatch(NUMBER, value):
            raise ValueError("token")
        at, number = int(index), float(value)
        if at < base or at <= last or at >= 2**32 - 1 or math.isinf(number):
            raise ValueError("index or value")
        last = at
        if n_features is not None and at - base >= n_features:
            unseen += number != 0
        elif number != 0:
            entries[at - base] = number
    return float(label), entries, unseen


def reference(text, **options):
    """Return labels, entries and unseen of the good lines, and the numbers of the bad lines."""
    labels, rows, unseen, bad = [], [], 0, []
    for number, line in enumerate(text.split(b"\n")):
        try:
            parsed = reference_line(line, **options)
        except ValueError:
            bad.append(number)
            continue
        if parsed is not None:
            labels.append(parsed[0])
            rows.append(parsed[1])
            unseen += parsed[2]
    return labels, rows, unseen, bad


def bits(numbers):
    return [struct.pack("<d", number) for number in numbers]


def check_against_reference(text, base=1, n_features=None):
    labels, rows, unseen, bad = reference(text, base=base, n_features=n_features)
    options = {"index_base": base, "n_features": n_features}
    lines = parse(text, on_error="skip", **options)
    assert bits(lines.labels) == bits(labels)
    assert lines.indptr.tolist() == np.cumsum([0] + [len(row) for row in rows]).tolist()
    assert lines.features.tolist() == [feature for row in rows for feature in row]
    assert bits(lines.values) == bits(value for row in rows for value in row.values())
    assert (lines.skipped, lines.unseen) == (len(bad), unseen)
    assert lines.n_lines == text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
    assert lines.labels.dtype == lines.values.dtype == np.float64
    assert (lines.indptr.dtype, lines.features.dtype) == (np.int64, np.uint32)
    if bad:
        with pytest.raises(MalformedLine) as caught:
            parse(text, **options)
        assert caught.value.line == bad[0]
        assert caught.value.text.isascii()
        assert caught.value.text.isprintable()
        assert len(caught.value.text) < 75
    else:
        assert parse(text, **options).labels.size == len(labels)


def values_of(texts):
    """Parse each text as the value of one feature; a zero comes out as a missing feature."""
    lines = parse(b"".join(b"1 1:%s 2:1\n" % text.encode() for text in texts))
    dense = np.zeros(len(texts))
    is_first = lines.features == 0
    row = np.repeat(np.arange(len(texts)), np.diff(lines.indptr))
    dense[row[is_first]] = lines.values[is_first]
    return dense


def assert_bit_equal(texts):
    expected = np.array([float(text) for text in texts])
    expected[expected == 0] = 0.0  # a zero is dropped, with its sign
    got = values_of(texts)
    wrong = np.flatnonzero(got.view(np.uint64) != expected.view(np.uint64))
    assert not wrong.size, [(texts[i], got[i], expected[i]) for i in wrong[:5]]


# --- numbers --------------------------------------------------------------------------------------


@st.composite
def decimals(draw):
    """Any finite ordinary decimal."""
    digits = draw(st.text("0123456789", min_size=1, max_size=25))
    dot = draw(st.integers(0, len(digits)))
    text = digits[:dot] + draw(st.sampled_from([".", ""] if dot == len(digits) else ["."])) + digits[dot:]
    exponent = draw(st.one_of(st.just(""), st.integers(-360, 290).map(lambda e: f"e{e}"), st.just("E+05")))
    text = draw(st.sampled_from(["", "-", "+"])) + text + exponent
    return text if math.isfinite(float(text)) else "1"


@settings(max_examples=120)
@given(st.lists(decimals(), min_size=1, max_size=30))
def test_values_equal_float(texts):
    assert_bit_equal(texts)


@settings(max_examples=200)
@given(
    st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=30),
    st.sampled_from(["%r", "%.17g", "%.6g", "%.18e", "%.15g", "%.16e", "%.25e", "%.40f"]),
)
def test_printed_floats_equal_float(numbers, form):
    assert_bit_equal([form % number for number in numbers])


def halfway(number):
    """Return the exact middle between a float and the next one, as decimal text."""
    middle = (Fraction(number) + Fraction(math.nextafter(number, math.inf))) / 2
    power = middle.denominator.bit_length() - 1  # the denominator is a power of two
    return f"{middle.numerator * 5**power}e-{power}"


def test_halfway_cases_and_their_neighbours():
    rng = random.Random(0)
    numbers = [rng.uniform(1, 2) * 2.0 ** rng.randint(-1060, 1000) for _ in range(150)]
    numbers += [rng.randint(2**53, 2**63) * 1.0 for _ in range(100)] + [0.0, 5e-324, 2.2250738585072009e-308]
    texts = []
    for number in numbers:
        mantissa, exponent = halfway(number).split("e")
        texts += [mantissa + "e" + exponent, mantissa + "1e" + str(int(exponent) - 1)]
        texts.append(str(int(mantissa) - 1) + "e" + exponent)
        first, power = int(mantissa[:19]), int(exponent) + len(mantissa) - 19
        texts += [f"{first}e{power}", f"{first + 1}e{power}"]
    assert_bit_equal(texts)


def test_many_random_values():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 0x7FE0_0000_0000_0000, 50_000, dtype=np.uint64).view(np.float64)
    assert_bit_equal([f"{number:.17g}" for number in numbers])
    assert_bit_equal([f"{number:.16e}" for number in rng.random(20_000)])
    assert_bit_equal([f"{number:.22f}" for number in rng.random(20_000)])
    assert_bit_equal([str(number) for number in rng.integers(2**52, 2**63, 20_000)])


def test_values_at_the_edges():
    assert_bit_equal([
        "0", "-0", "0.0", ".5", "5.", "00012", "1e0", "1E+5", "1e-7", "9007199254740993",
        "9007199254740992.5", "1e22", "1e23", "123456789012345678901234567890", "0." + "0" * 400 + "1",
        "0." + "0" * 300 + "123456789012345678912345", "1" + "0" * 308, "0" * 50 + "7",
        "1" + "0" * 400 + "e-400", "0." + "0" * 400 + "1e401", "0e999999999999999999999",
        "1.7976931348623157e308", "1.7976931348623158e308", "179769313486231580" + "0" * 291, "4.9e-324",
        "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "1e-400", "1e-99999999999999999999",
        "2.2250738585072014e-308", "2.2250738585072011e-308", "9" * 19, "9" * 20, "18446744073709551615",
        "18446744073709551616", "1e-22", "1e-23",
    ])  # fmt: skip


# --- files ----------------------------------------------------------------------------------------


def as_csr(lines, n_features):
    return csr_array((lines.values, lines.features, lines.indptr), shape=(lines.labels.size, n_features))


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("query_id", [True, False])
def test_round_trip_of_scikit_learns_files(zero_based, query_id):
    rng = np.random.default_rng(1)
    matrix = random_array((60, 500), density=0.1, format="csr", rng=rng, data_sampler=rng.standard_normal)
    labels = rng.choice([-1.0, 1.0], 60)
    file = io.BytesIO()
    groups = np.arange(60) // 7 if query_id else None
    dump_svmlight_file(matrix, labels, file, zero_based=zero_based, query_id=groups, comment="two\nlines")
    text = file.getvalue()
    lines = parse(text, index_base=0 if zero_based else 1)
    theirs, their_labels = load_svmlight_file(io.BytesIO(text), n_features=500, zero_based=zero_based)
    ours = as_csr(lines, 500)
    np.testing.assert_array_equal(lines.labels, their_labels)
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    np.testing.assert_array_equal(lines.values, theirs.data)
    assert abs(ours - matrix).max() < 1e-15


lines_of_text = st.lists(
    st.tuples(
        st.sampled_from(["+1", "-1", "1", "0", "2.0", "1e0", "-1.5"]),
        st.dictionaries(st.integers(1, 3000), decimals(), max_size=8),
        st.sampled_from([" ", "  ", "\t", " \t "]),
        st.sampled_from(["", " ", " # note 3:4", "#", "\r", " \r"]),
        st.sampled_from(["", "", "qid:7", "qid:12"]),
    ),
    max_size=8,
)


def write(rows, final_newline):
    lines = []
    for label, entries, gap, tail, qid in rows:
        tokens = [label] + [qid] * bool(qid) + [f"{i}:{entries[i]}" for i in sorted(entries)]
        lines.append(gap.join(tokens) + tail + "\n")
    text = "".join(lines).encode()
    return text if final_newline else text[:-1]


@settings(max_examples=60)
@given(lines_of_text, st.booleans())
def test_equal_to_scikit_learn(rows, final_newline):
    text = write(rows, final_newline)
    lines = parse(text)
    theirs, labels = load_svmlight_file(io.BytesIO(text), n_features=3000, zero_based=False)
    theirs.eliminate_zeros()
    np.testing.assert_array_equal(lines.labels, labels)
    np.testing.assert_array_equal(lines.indptr, theirs.indptr)
    np.testing.assert_array_equal(lines.features, theirs.indices)
    np.testing.assert_array_equal(lines.values.view(np.uint64), theirs.data.view(np.uint64))
    check_against_reference(text)


ODD_BYTES = list(b" :\t\r\n#.,-+e019q\0\xff\x0b\x1c")
ODD_LINES = [
    b"1 1:1e999",
    b"1 3:1e-999 4:1",
    b"1 2999:1e-320 3001:2e-320",
    b"1 5:1 3000:1 3001:1e999",
    b"1e400 1:1",
]


@settings(max_examples=150)
@given(
    lines_of_text,
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(ODD_BYTES)), max_size=4),
    st.lists(st.sampled_from(ODD_LINES), max_size=2),
    st.sampled_from([(1, None), (0, None), (1, 2000), (0, 1)]),
)
def test_mutated_text_equals_the_reference(rows, changes, extras, options):
    text = bytearray(write(rows, True) + b"\n".join(extras))
    for place, byte in changes:
        if text:
            text[place % len(text)] = byte
    check_against_reference(bytes(text), *options)


@settings(max_examples=300)
@given(st.binary(max_size=300) | st.text("01.:e+-# \n\r\tqid,", max_size=300).map(str.encode))
@example(b"\x1f\x8b\x08\x00")
@example(b"1 qi")
@example(b"1 1:")
@example(b"1 1:1e")
@example(b"-")
def test_any_bytes_equal_the_reference(text):
    check_against_reference(text)


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\r\n", b"# only a comment", b"  \t\n#\n"])
def test_nothing_in_the_buffer(text):
    lines = parse(text)
    assert lines.labels.size == lines.features.size == lines.values.size == 0
    assert lines.indptr.tolist() == [0]
    check_against_reference(text)


def test_all_kinds_of_lines():
    text = b"# head\r\n+1 1:2 3:0 4:5#c\r\n\r\n  -1\tqid:7  2:.5 \n0\n2.0 0000000000000000009:1"
    lines = parse(text)
    assert lines.labels.tolist() == [1, -1, 0, 2]
    assert lines.indptr.tolist() == [0, 2, 3, 3, 4]
    assert lines.features.tolist() == [0, 3, 1, 8]
    assert lines.values.tolist() == [2, 5, 0.5, 1]
    assert (lines.n_lines, lines.skipped, lines.unseen) == (6, 0, 0)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8),
                                  lambda b: np.repeat(np.frombuffer(b, np.uint8), 2)[::2]])  # fmt: skip
def test_kinds_of_buffers(make):
    assert parse(make(b"1 1:2\n-1 2:3")).values.tolist() == [2, 3]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="int64"):
        parse(np.zeros(3, dtype=np.int64))
    for wrong in ({"index_base": 2}, {"on_error": "ignore"}):
        with pytest.raises(ValueError, match="expected"):
            parse(b"1 1:1\n", **wrong)


# --- errors ---------------------------------------------------------------------------------------

ERRORS = [
    ("x 1:1", "label 'x' is not a number"),
    ("nan 1:1", "label 'nan' is not a finite number"),
    ("-INF 1:1", "label '-INF' is not a finite number"),
    ("1e999 1:1", "'1e999' is not a finite number: too large"),
    ("3:4 5:6", "label is missing: the line begins with '3:4'"),
    ("1,2 3:4", "multi-label files are not supported"),
    ("1 qid:x 3:4", "'qid:x': qid must be a number"),
    ("1 3", "'3' has no colon"),
    ("1 3:1 oops", "'oops' has no colon"),
    ("1 a:1", "index 'a' is not an integer"),
    ("1 1.5:1", "index '1.5' is not an integer"),
    ("1 :1", "index '' is not an integer"),
    ("1 +3:1", "index '+3' is not an integer"),
    ("1 -3:1", "index '-3' is negative"),
    ("1 0:1", "pass --index-base 0 if the file counts from 0"),
    ("1 9:1 7:1", "index 7 after index 9: indices must increase"),
    ("1 9:1 0009:1", "index 9 twice"),
    ("1 4294967295:1", "index '4294967295' is too large: the largest possible is 4294967294"),
    ("1 18446744073709551617:1", "is too large"),
    ("1 " + "9" * 5000 + ":1", "is too large"),
    ("1 3:", "value '' of index '3' is missing"),
    ("1 3: 4", "value '' of index '3' is missing"),
    ("1 3:x", "value 'x' of index '3' is not a number"),
    ("1 3:1e", "value '1e' of index '3' is not a number"),
    ("1 3:1_0", "value '1_0' of index '3' is not a number"),
    ("1 3:0x1", "value '0x1' of index '3' is not a number"),
    ("1 3:4:5", "value '4:5' of index '3' is not a number"),
    ("1 3:.", "value '.' of index '3' is not a number"),
    ("1 3:nan", "value 'nan' of index '3' is not a finite number"),
    ("1 3:-Infinity", "value '-Infinity' of index '3' is not a finite number"),
    ("1 3:1e999", "'1e999' is not a finite number: too large"),
    ("1 3:1.8e308", "'1.8e308' is not a finite number: too large"),
    ("1 3:1.797693134862315808e308", "is not a finite number: too large"),
    ("1 3:" + "9" * 310, "is not a finite number: too large"),
    ("1 3:1\0", "value '1\\x00' of index '3' is not a number; the line holds binary data"),
    ("\x1f\x8b\x08 1", "binary data"),
]


@pytest.mark.parametrize(("line", "reason"), ERRORS, ids=[line[:20] for line, _ in ERRORS])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n-1 8:1\n"])
def test_errors_name_line_and_reason(line, reason, end):
    text = b"# first\n+1 1:1 2:1e-320\n" + line.encode("latin-1") + end
    with pytest.raises(MalformedLine, match=re.escape(reason)) as caught:
        parse(text)
    error = caught.value
    assert isinstance(error, BadInput)
    assert error.line == 2
    assert str(error).startswith("line 3: ")
    assert reason in error.reason
    assert len(error.text) < 75
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.reason) == (str(error), error.line, error.reason)
    lines = parse(text, on_error="skip")
    assert (lines.skipped, lines.n_lines) == (1, 3 + end.count(b"-1"))
    assert lines.values.tolist() == [1, 1e-320] + [1] * end.count(b"-1")
    check_against_reference(text)


def test_the_first_error_is_raised_whoever_finds_it():
    with pytest.raises(MalformedLine, match="1e999") as caught:
        parse(b"1 1:1\n1 2:1e999\n1 x\n")
    assert caught.value.line == 1
    with pytest.raises(MalformedLine, match="1e999") as caught:
        parse(b"1 1:1\n1 2:1e999 3:2e999\n1e400 1:1\n")
    assert caught.value.line == 1


def test_text_shows_the_place_in_a_long_line():
    with pytest.raises(MalformedLine) as caught:
        parse(b"1 " + b" ".join(b"%d:1" % i for i in range(1, 2000)) + b" oops 3000:1\n")
    assert "oops" in caught.value.text


def test_index_base_0():
    assert parse(b"1 0:1 4:2\n", index_base=0).features.tolist() == [0, 4]
    assert parse(b"1 4294967294:2\n", index_base=0).features.tolist() == [2**32 - 2]


def test_unseen_features():
    text = b"1 3:1 10:1\n1 2:5 11:1 12:0 13:1e-320 14:1e-999\n"
    lines = parse(text, n_features=10)
    assert (lines.features.tolist(), lines.unseen) == ([2, 9, 1], 2)
    lines = parse(text + b"1 20:1 1:1e999\n1 20:1 1:x\n", n_features=10, on_error="skip")
    assert (lines.features.tolist(), lines.unseen, lines.skipped) == ([2, 9, 1], 2, 2)


@settings(max_examples=100)
@given(lines_of_text, lines_of_text, st.lists(st.sampled_from(ODD_LINES), max_size=2))
def test_pieces_are_parsed_as_the_whole(one, other, odd):
    pieces = [write(one, True), b"\n".join([*odd, b""]), write(other, True)]
    room, options = Room(sum(map(len, pieces))), {"n_features": 2000, "on_error": "skip"}
    for piece in pieces:
        lines = parse(piece, room=room, **options)
    whole = parse(b"".join(pieces), **options)
    for name, found in vars(whole).items():
        np.testing.assert_array_equal(getattr(lines, name), found)


def test_the_buffer_is_left_alone():
    text = bytearray(b"1 1:1e-999 2:1e999\n1 3:1e-320\n")
    lines = parse(text, on_error="skip")
    assert (lines.values.tolist(), lines.skipped) == ([1e-320], 1)
    assert text == b"1 1:1e-999 2:1e999\n1 3:1e-320\n"


def test_threads_do_not_disturb_each_other():
    texts = [b"".join(b"%d %d:%d.5\n" % (i, i + 1, i + t) for i in range(20_000)) for t in range(4)]
    results = {}
    threads = [threading.Thread(target=lambda t=t: results.update({t: parse(texts[t])})) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for t in range(4):
        assert results[t].values.tolist() == [i + t + 0.5 for i in range(20_000)]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("number", ["1e-3", "0.12345678901234567", "-2.5E+4"])
@pytest.mark.parametrize("line", ["{} 2:1", "1 qid:{} 2:1", "1 1:0.5 2:{}"])
def test_numbers_that_need_the_general_kernel_may_come_late(line, number, on_error, monkeypatch):
    monkeypatch.setattr(svmlight_parser._Numbers, "general", None)
    plain = "-1 1:0.25 3:7\n" * 3
    assert parse(plain.encode(), on_error=on_error).n_lines == 3
    assert svmlight_parser._Numbers.general is None
    lines = parse(f"{plain}{line.format(number)}\n{plain}".encode(), on_error=on_error)
    assert (lines.n_lines, lines.skipped, len(lines.labels)) == (7, 0, 7)
    assert float(number) in (*lines.labels, *lines.values) or "qid" in line
