"""Offsets: JSON round trips, and refusal of what is not an offset of this version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import OffsetFormatError
from headgate.gtid import GtidSet
from headgate.offsets import (
    VERSION,
    ChunkSpec,
    Hint,
    Last,
    ReadState,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    SourceOffset,
    TableRead,
)

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
texts = st.text(max_size=8)
numbers = st.integers(0, 2**63 - 1)
bounds = st.none() | st.lists(texts, min_size=1, max_size=3).map(tuple)
tuples = st.lists(texts, max_size=3).map(tuple)
chunks = st.builds(ChunkSpec, texts, numbers, bounds, bounds)
flags = st.booleans()
requests = st.builds(SnapshotRequest, tuples, st.none() | texts, flags, st.none() | texts, flags)


def progress(finished: bool) -> st.SearchStrategy[SnapshotProgress]:
    return st.builds(SnapshotProgress, numbers, bounds, bounds, numbers, st.just(finished), numbers, numbers)


READING = (ReadState.BEGUN, ReadState.READING)
no_read = st.builds(TableRead, texts, st.sampled_from([one for one in ReadState if one not in READING]))
ranges = st.builds(TableRead, texts, st.sampled_from(READING), progress(False), requests, flags)
retries = st.lists(chunks, min_size=1, max_size=2).map(tuple)
retried = st.builds(
    TableRead, texts, st.just(ReadState.READING), st.none() | progress(True), requests, st.just(False), retries
)
read = st.builds(TableRead, texts, st.just(ReadState.READ), progress(True), requests, flags)
reads = st.lists(no_read | ranges | retried | read, max_size=3).map(tuple)
states = st.builds(SnapshotState, reads, st.lists(chunks, max_size=3).map(tuple))
offsets = st.builds(
    SourceOffset,
    gtid=st.sampled_from(["", f"{A}:1-5", f"{A}:1-5:7:tag:3"]),
    epoch=numbers,
    tables=tuples,
    snapshot=states,
    signals=st.dictionaries(texts, texts | st.integers() | st.lists(st.booleans()), max_size=3),
    last=st.none() | st.builds(Last, texts, numbers),
    hint=st.none() | st.builds(Hint, texts, texts, numbers),
    planned_us=numbers,
)


@given(offsets)
def test_json_round_trip(offset: SourceOffset) -> None:
    text = offset.to_json()
    assert SourceOffset.from_json(text) == offset
    assert SourceOffset.from_json(json.loads(text)) == offset
    assert SourceOffset.from_json(text).to_json() == text
    assert "\n" not in text


@given(chunks)
def test_chunk_round_trip(chunk: ChunkSpec) -> None:
    assert ChunkSpec.from_json(chunk.to_json()) == chunk


def test_gtid_is_normalised_and_parsed() -> None:
    fields = SourceOffset(gtid="", epoch=1).to_dict() | {"gtid": f"{A.upper()}:3:1-2"}
    offset = SourceOffset.from_json(fields)
    assert offset.gtid == f"{A}:1-3"
    assert offset.position == GtidSet.parse(f"{A}:1-3")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"offset": 3}', '{"v": "1"}', '{"v": true}', '{"v": 0}'])
def test_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(OffsetFormatError):
        SourceOffset.from_json(text)


def test_a_newer_version_says_what_to_do() -> None:
    with pytest.raises(OffsetFormatError, match="upgrade headgate"):
        SourceOffset.from_json({"v": VERSION + 1, "anything": 1})


def mended(path: list[str | int], value: Any) -> dict[str, Any]:
    chunk = ChunkSpec("d.t", 0, ("1",), ("2",))
    read = TableRead("d.t", ReadState.READING, SnapshotProgress(1), SnapshotRequest(("s",)), True, (chunk,))
    state = SnapshotState((read,), (chunk,))
    whole: dict[str, Any] = SourceOffset(f"{A}:1", 1, ("*",), state, {}, Last("g", 1), Hint("u", "f", 4), 5).to_dict()
    at: Any = whole
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["gtid"], "x"),
        (["gtid"], 5),
        (["epoch"], True),
        (["epoch"], "1"),
        (["epoch"], None),
        (["extra"], 1),
        (["tables"], "x"),
        (["tables"], [1]),
        (["last", "ts_us"], 1.5),
        (["last"], [1]),
        (["hint", "pos"], None),
        (["snapshot"], 1),
        (["snapshot", "chunks", 0, "lo"], [1]),
        (["snapshot", "chunks", 0, "hi"], "1"),
        (["snapshot", "tables", 0, "new"], 0),
        (["snapshot", "tables", 0, "state"], "resting"),
        (["snapshot", "tables", 0, "state"], "read"),
        (["snapshot", "tables", 0, "state"], "followed"),
        (["snapshot", "tables", 0, "append"], 1),
        (["snapshot", "tables", 0, "retries", 0, "number"], "1"),
        (["snapshot", "tables", 0, "request", "filter"], 1),
        (["snapshot", "tables", 0, "request", "new"], 1),
        (["snapshot", "tables", 0, "progress", "finished"], 0),
        (["snapshot", "tables", 0, "progress", "new"], 0),
    ],
)
def test_damage_is_named(path: list[str | int], value: Any) -> None:
    SourceOffset.from_json(mended(["epoch"], 2))
    with pytest.raises(OffsetFormatError, match="damaged offset"):
        SourceOffset.from_json(mended(path, value))
