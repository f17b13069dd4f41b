"""The states of a table's read: every transition, and what holds after any sequence of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import OffsetFormatError
from headgate.offsets import ChunkSpec, ReadState, SnapshotProgress, SnapshotRequest, TableRead
from headgate.spark.table_reads import TRANSITIONS, ReadEvent, TableReads, next_state

T = "d.t"
LEGAL = """
ADD            no record    → queued
ANNOUNCE       begun        → reading
ANNOUNCE       deferred     → followed
BEGIN          queued       → begun
BEGIN          queued again → reading
DEFER          no record    → deferred
END            begun        → no record
END            queued       → no record
END            queued again → no record
END            read         → no record
END            reading      → no record
EXCLUDE        begun        → no record
EXCLUDE        deferred     → no record
EXCLUDE        followed     → no record
EXCLUDE        queued       → no record
EXCLUDE        queued again → no record
EXCLUDE        read         → no record
EXCLUDE        reading      → no record
HAND_OUT       begun        → reading
HAND_OUT       reading      → reading
HAND_OUT_LAST  begun        → read
HAND_OUT_LAST  reading      → read
READ_AGAIN     begun        → queued
READ_AGAIN     deferred     → queued
READ_AGAIN     followed     → queued again
READ_AGAIN     no record    → queued again
READ_AGAIN     queued       → queued
READ_AGAIN     queued again → queued again
READ_AGAIN     read         → queued again
READ_AGAIN     reading      → queued again
RETRY          deferred     → reading
RETRY          followed     → reading
RETRY          no record    → reading
RETRY          read         → reading
RETRY          reading      → reading
STOP           queued again → followed
STOP           read         → followed
STOP           reading      → followed
STOP_UNNAMED   begun        → deferred
STOP_UNNAMED   queued       → deferred
"""
PARTIAL = SnapshotRequest(("s",), "v = 1", partial=True)
BEGUN = SnapshotProgress(7, ("9",))
AFTER_ONE = replace(BEGUN, hi=("4",), chunks_done=1)
FINISHED = replace(AFTER_ONE, hi=("9",), chunks_done=2, finished=True)
CHUNK = ChunkSpec(T, 1)

RECORDS: dict[ReadState | None, TableRead | None] = {
    None: None,
    ReadState.QUEUED: TableRead(T, ReadState.QUEUED, append=True),
    ReadState.QUEUED_AGAIN: TableRead(T, ReadState.QUEUED_AGAIN),
    ReadState.BEGUN: TableRead(T, ReadState.BEGUN, BEGUN, append=True),
    ReadState.READING: TableRead(T, ReadState.READING, BEGUN, append=True),
    ReadState.READ: TableRead(T, ReadState.READ, FINISHED, append=True),
    ReadState.DEFERRED: TableRead(T, ReadState.DEFERRED),
    ReadState.FOLLOWED: TableRead(T, ReadState.FOLLOWED),
}
HAPPENS: dict[ReadEvent, Callable[[TableReads], Any]] = {
    ReadEvent.ADD: lambda reads: reads.add(T, SnapshotRequest()),
    ReadEvent.DEFER: lambda reads: reads.defer(T),
    ReadEvent.READ_AGAIN: lambda reads: reads.read_again(T, PARTIAL),
    ReadEvent.BEGIN: lambda reads: reads.begin(T, BEGUN, append=False),
    ReadEvent.HAND_OUT: lambda reads: reads.hand_out(T, AFTER_ONE),
    ReadEvent.HAND_OUT_LAST: lambda reads: reads.hand_out(T, FINISHED),
    ReadEvent.RETRY: lambda reads: reads.retry(CHUNK, PARTIAL),
    ReadEvent.STOP: lambda reads: reads.end(T, is_complete=False),
    ReadEvent.STOP_UNNAMED: lambda reads: reads.end(T, is_complete=False),
    ReadEvent.END: lambda reads: reads.end(T, is_complete=True),
    ReadEvent.EXCLUDE: lambda reads: reads.exclude(T),
}


def of(*reads: TableRead | None) -> TableReads:
    return TableReads(read for read in reads if read is not None)


def test_the_table_of_transitions() -> None:
    """Read this list after a change: a pair that is not here cannot happen."""
    lines = sorted(
        f"{event.name:14} {before or 'no record':12} → {after or 'no record'}"
        for event, pairs in TRANSITIONS.items()
        for before, after in pairs.items()
    )
    assert lines == LEGAL.strip().splitlines()


@pytest.mark.parametrize("event", ReadEvent)
@pytest.mark.parametrize("before", [None, *ReadState])
def test_each_event_in_each_state(before: ReadState | None, event: ReadEvent) -> None:
    if before not in TRANSITIONS[event]:
        with pytest.raises(RuntimeError, match=f"event {event.name} came to a table whose read is"):
            next_state(before, event)
        return
    reads = of(RECORDS[before])
    if event is ReadEvent.ANNOUNCE:
        reads.next_batch()
    else:
        HAPPENS[event](reads)
    read = reads.get(T)
    assert (read and read.state) == TRANSITIONS[event][before]


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (ReadState.READING, {}),
        (ReadState.READING, {"progress": FINISHED}),
        (ReadState.READ, {"progress": AFTER_ONE}),
        (ReadState.READ, {"progress": FINISHED, "retries": (CHUNK,)}),
        (ReadState.QUEUED, {"progress": FINISHED}),
        (ReadState.FOLLOWED, {"retries": (CHUNK,)}),
    ],
)
def test_records_whose_fields_contradict_their_state(state: ReadState, fields: dict[str, Any]) -> None:
    with pytest.raises(OffsetFormatError, match=f"{T} is {state}"):
        TableRead(T, state, **fields)


def test_what_the_sinks_confirm() -> None:
    def after(read: TableRead, finished: frozenset[str] | None) -> ReadState | None:
        reads = of(read)
        reads.confirm(finished)
        left = reads.get(T)
        return None if left is None else left.state

    whole, partial = RECORDS[ReadState.READ], TableRead(T, ReadState.READ, FINISHED, PARTIAL)
    assert whole is not None
    assert after(whole, frozenset({T})) is None
    assert after(whole, frozenset()) is ReadState.READ, "a chunk of it may have given nothing"
    assert after(whole, None) is ReadState.FOLLOWED, "without sinks nobody confirms"
    assert after(partial, frozenset({T})) is None
    assert after(partial, frozenset()) is ReadState.FOLLOWED, "known, although not all of it was read"
    reading = RECORDS[ReadState.READING]
    assert reading is not None
    assert after(reading, frozenset({T})) is ReadState.READING


def test_a_retried_chunk_ends_append_mode_and_is_handed_out_first_come_first_served() -> None:
    other, third = ChunkSpec("d.u", 0), ChunkSpec(T, 2)
    reads = of(RECORDS[ReadState.READING], TableRead("d.u", ReadState.READ, FINISHED))
    for chunk in (CHUNK, third, other):
        reads.retry(chunk)
    assert [read.append for read in reads] == [False, False]
    assert reads.take_retries(1) == [CHUNK]
    assert reads.take_retries(1) == [other], "a table whose chunk was handed out goes behind the others"
    assert [(read.table, read.state) for read in reads] == [(T, ReadState.READING), ("d.u", ReadState.READ)]
    assert reads.take_retries(5) == [third]
    assert not reads.has_retries


def test_a_read_asked_for_first_goes_before_all_others() -> None:
    reads = of(*(TableRead(f"d.{name}", ReadState.QUEUED) for name in "abc"))
    reads.read_again("d.c", PARTIAL)
    reads.read_again("d.a", PARTIAL, first=False)
    assert [read.table for read in reads] == ["d.c", "d.b", "d.a"]


TABLES = ("d.a", "d.b", "d.c")
EVENTS = ("add", "defer", "again", "part", "first", "begin", "range", "last", "retry", "take", "stop", "drop", "next")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(TABLES)), max_size=60))
def test_a_table_that_was_asked_for_is_read_or_refused_whatever_happens(steps: list[tuple[str, str]]) -> None:
    """A record keeps one state, whose fields agree with it (or it raises), and work left to do leads to its end."""
    reads, finished = TableReads(), set[str]()
    for what, table in steps:
        happen(reads, finished, what, table)
        reads = TableReads([TableRead.from_dict(read.to_dict()) for read in reads])  # a restart
        names = [read.table for read in reads]
        assert len(names) == len(set(names))
    requested = {read.table for read in reads.pending()}
    for _ in range(100):
        for read in reads.pending():
            if read.is_queued:
                reads.begin(read.table, BEGUN, append=read.append)
            elif read.has_ranges:
                reads.hand_out(read.table, FINISHED)
        reads.take_retries(1)
        if not reads.pending():
            break
    assert {read.table for read in reads if read.state is ReadState.READ} >= requested
    reads.confirm(frozenset(TABLES))
    assert {read.state for read in reads} <= {ReadState.DEFERRED, ReadState.FOLLOWED}


def happen(reads: TableReads, finished: set[str], what: str, table: str) -> None:
    """One event, if the planner could bring it now."""
    read = reads.get(table)
    if what == "next":
        reads.next_batch()
        reads.confirm(frozenset(finished))
    elif what == "take":
        reads.take_retries(2)
    elif what == "add" and read is None:
        reads.add(table, SnapshotRequest(), append=True)
    elif what == "defer" and read is None:
        reads.defer(table)
    elif what in ("again", "part", "first"):
        reads.read_again(table, PARTIAL if what == "part" else SnapshotRequest(), first=what == "first")
    elif what == "begin" and read is not None and read.is_queued:
        reads.begin(table, BEGUN, append=read.append)
    elif what in ("range", "last") and read is not None and read.has_ranges:
        reads.hand_out(table, FINISHED if what == "last" else AFTER_ONE)
        finished |= {table} if what == "last" else set()
    elif what == "retry" and (read is None or not (read.is_queued or read.state is ReadState.BEGUN)):
        reads.retry(ChunkSpec(table, 3), PARTIAL if read is None or read.is_idle else None)
    elif what in ("stop", "drop") and read is not None and not read.is_idle:
        reads.end(table, is_complete=what == "drop")


def test_a_chunk_that_is_requested_twice_is_read_once() -> None:
    """Two drivers have sent the request. The rows of a table without a key would be there twice."""
    reads, third = of(RECORDS[ReadState.READING]), ChunkSpec(T, 2)
    for chunk in (CHUNK, third, CHUNK):
        reads.retry(chunk)
    assert reads.take_retries(9) == [CHUNK, third]
