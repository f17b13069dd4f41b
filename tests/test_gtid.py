"""GTID sets against plain Python sets of (uuid, tag, number)."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError, DecodeError
from headgate.gtid import MAX_NUMBER, Gtid, GtidSet, GtidSetBuilder

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
UUIDS = [bytes([n]) * 16 for n in (1, 2, 250)]

gtids = st.builds(Gtid, st.sampled_from(UUIDS), st.sampled_from(["", "a", "tag_2"]), st.integers(1, 14))
models = st.frozensets(gtids, max_size=40)


def built(model: frozenset[Gtid]) -> GtidSet:
    builder = GtidSetBuilder()
    for gtid in model:
        builder.add(gtid)
    return builder.build()


@given(models, models)
def test_algebra_is_that_of_sets(left: frozenset[Gtid], right: frozenset[Gtid]) -> None:
    a, b = built(left), built(right)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert (a <= b, a < b, a >= b, a > b) == (left <= right, left < right, left >= right, left > right)
    assert (a == b) == (left == right)
    assert a.count() == len(left)
    assert bool(a) == bool(left)


@given(models, gtids)
def test_membership(model: frozenset[Gtid], gtid: Gtid) -> None:
    assert (gtid in built(model)) == (gtid in model)


@given(models)
def test_equal_sets_are_equal_in_every_form(model: frozenset[Gtid]) -> None:
    value = built(model)
    assert GtidSet.parse(str(value)) == value
    assert GtidSet.parse(str(value).upper().replace(",", " ,\n ").replace(":", " : ")) == value
    assert GtidSet.decode(value.encode()) == value
    copied = pickle.loads(pickle.dumps(value))
    assert copied == value
    assert hash(copied) == hash(value)
    assert str(value | value) == str(value)


@given(models)
def test_normal_form(model: frozenset[Gtid]) -> None:
    intervals = list(built(model).intervals())
    assert intervals == sorted(intervals)
    for (uuid, tag, _, last), (uuid2, tag2, first, _) in itertools.pairwise(intervals):
        assert (uuid, tag) != (uuid2, tag2) or first > last + 1


@given(st.lists(st.lists(st.integers(1, 60), max_size=30), max_size=4), st.sampled_from(["", "t"]))
def test_builder_from_arrays(parts: list[list[int]], tag: str) -> None:
    builder = GtidSetBuilder(GtidSet({(UUIDS[0], tag): [(5, 9)]}))
    expected = set(range(5, 10))
    for part in parts:
        builder.add_arrays(UUIDS[0], tag, np.array(part, dtype=np.uint64))
        expected |= set(part)
        if len(part) % 2:  # it may be asked at any time
            assert {gtid.number for gtid in builder.build()} == expected
    assert {gtid.number for gtid in builder.build()} == expected


def test_builder_keeps_what_goes_on_short() -> None:
    builder = GtidSetBuilder()
    for first in range(1, 100_000, 10):
        builder.add_arrays(UUIDS[0], "", np.arange(first, first + 10))
    assert len(pickle.dumps(builder)) < 1000
    builder.add_arrays(UUIDS[0], "", np.array([200_001, 100_003, 100_001]))
    gaps = [(1, 100_000), (100_001, 100_001)]
    assert str(builder.build()) == str(GtidSet({(UUIDS[0], ""): [*gaps, (100_003, 100_003), (200_001, 200_001)]}))
    assert len(pickle.dumps(builder)) < 1000


@given(models)
def test_arrays_hold_the_untagged_intervals(model: frozenset[Gtid]) -> None:
    sid, first, last = built(model).as_arrays()
    assert sid.shape == (len(first), 16)
    members = {
        Gtid(sid[row].tobytes(), "", number) for row in range(len(first)) for number in range(first[row], last[row] + 1)
    }
    assert members == {gtid for gtid in model if not gtid.tag}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \n", ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A}:1-1", f"{A}:1"),
        (f"{A}:5:1-3:4", f"{A}:1-5"),
        (f"{A}:5-3", ""),
        (f"{B}:1,\n{A}:2-3", f"{A}:2-3,{B}:1"),
        (f"{A}:Tag:1-3:5, {A}:1-5:tag2:7", f"{A}:1-5:tag:1-3:5:tag2:7"),
        (f"{A}:b:1:a:2:3", f"{A}:a:2-3:b:1"),
        (f"{A.replace('-', '').upper()}:1", f"{A}:1"),
        (f"{{{A}}}:1", f"{A}:1"),
        (f"{A}:{MAX_NUMBER}", f"{A}:{MAX_NUMBER}"),
        (f",{A}:1,,", f"{A}:1"),
    ],
)
def test_text(text: str, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        *("x", "1-5", A, f"{A}:", f"{A}:0", f"{A}:1-", f"{A}:-1", f"{A}:1:tag", f"{A}:9tag:1", f"{A}:{MAX_NUMBER + 1}"),
        *(f"{A}:{'t' * 33}:1", f"{A[:-1]}:1", f"{{{A}:1", f"{A}:1;{B}:1", f"{A}:ä:1", f"{A[:8]}{A[9:]}:1"),
    ],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        GtidSet.parse(text)


def test_one_gtid() -> None:
    assert str(Gtid.parse(f"{A}:x:7")) == f"{A}:x:7"
    assert str(Gtid.parse(f"{A}:7")) == f"{A}:7"
    with pytest.raises(ConfigError):
        Gtid.parse(f"{A}:7-8")


def test_layouts_byte_by_byte() -> None:
    uuid = bytes(range(16))
    untagged = GtidSet({(uuid, ""): [(1, 5), (7, 7)]})

    def interval(first: int, end: int) -> bytes:
        return first.to_bytes(8, "little") + end.to_bytes(8, "little")

    plain = uuid + (2).to_bytes(8, "little") + interval(1, 6) + interval(7, 8)
    assert untagged.encode() == (1).to_bytes(8, "little") + plain
    tagged = untagged | GtidSet({(uuid, "ab"): [(3, 3)]})
    assert tagged.encode() == (
        b"\x01\x02\0\0\0\0\0\x01"
        + (uuid + b"\0" + (2).to_bytes(8, "little") + interval(1, 6) + interval(7, 8))
        + (uuid + b"\x04ab" + (1).to_bytes(8, "little") + interval(3, 4))
    )


@given(models, st.data())
def test_damaged_bytes_are_a_set_or_a_decode_error(model: frozenset[Gtid], data: st.DataObject) -> None:
    encoded = bytearray(built(model).encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    try:
        decoded = GtidSet.decode(encoded)
    except DecodeError:
        return
    assert GtidSet.decode(decoded.encode()) == decoded


@given(models, st.data())
def test_cut_or_longer_bytes_are_refused(model: frozenset[Gtid], data: st.DataObject) -> None:
    encoded = built(model).encode()
    with pytest.raises(DecodeError):
        GtidSet.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(DecodeError):
        GtidSet.decode(encoded + b"\0")
