"""The reads of tables: one record a table, and the events that change its state. Pure: no server, no clock.

============ =========================================================== ====================================
state        the table                                                   leaves it by
============ =========================================================== ====================================
queued       waits for its first chunk, and was never read               BEGIN, READ_AGAIN, STOP_UNNAMED, END
queued again waits for its first chunk; what the sinks have stays valid  BEGIN, READ_AGAIN, STOP, END
begun        as reading; was never read, and no chunk is handed out yet  HAND_OUT, ANNOUNCE, STOP_UNNAMED, END, …
reading      a range, or a chunk to retry, is not handed out yet         HAND_OUT_LAST, READ_AGAIN, STOP, END
read         every chunk was handed out; the sinks must confirm that     END, RETRY, READ_AGAIN, STOP
deferred     was never read, and this batch's header says so             ANNOUNCE, READ_AGAIN, RETRY
followed     its changes are followed; it is read when a signal names it READ_AGAIN, RETRY
no record    is complete in the sinks, or was never seen                 ADD, DEFER, READ_AGAIN, RETRY
============ =========================================================== ====================================

From every state EXCLUDE, when the patterns no longer match the table, removes the record. So does END, when the sinks
have the table, or the server does not. A table stays *read* until the sinks confirm it (``finished.json``), because
only they see a chunk without a result. Without sinks nobody confirms, and it is *followed*.

A *partial* read, of rows that fulfil a signal's filter, ends with its last chunk: the sinks keep or reject the table as
they did before it. If they do not have it, it is *followed*. Chunks of it that gave nothing are retried alone.

The header names tables that are *queued* or *deferred* as not complete yet: otherwise the sinks would take their first
change for the beginning of a complete table. So a table that was never named is *queued* when it is requested, and
*deferred* when its read is stopped, also if that is while its first chunk is planned (*begun*).

**Paused** is a state of the stream (``Notes.paused``): no chunks are handed out, but each event happens as it comes.

**Append.** A table that was not read yet and whose key is one integer needs no upsert for its chunks, if the stream
leaves out changes in ranges that are still unread (their chunk, read later, has them). MySQL and the reader of the log
must decide alike whether a key is in such a range, hence integers only. As soon as a range has to be read twice, the
table leaves this mode. So do all tables if the sinks need every change from then on (a changelog or messages).

**Order.** A record that begins to wait, or whose chunk is retried, goes behind all others, except a read that was asked
for with ``first``.

**Restart.** The offset has the records (``SnapshotState.tables``), and nothing else of this module exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from headgate.offsets import ChunkSpec, ReadState, SnapshotProgress, SnapshotRequest, TableRead

__all__ = ["TRANSITIONS", "ReadEvent", "TableReads", "next_state"]


class ReadEvent(Enum):
    """What happens to a table's read."""

    ADD = auto()  # a table appears that was never read
    DEFER = auto()  # ... and is read when a signal names it
    ANNOUNCE = auto()  # the batch whose header names a deferred table, or one that was begun, is over
    READ_AGAIN = auto()  # all of it, or the rows of a filter, are requested; or its ranges are no longer valid
    BEGIN = auto()  # its greatest key was frozen: its first chunk is next
    HAND_OUT = auto()  # a chunk is read in this batch, and others are left
    HAND_OUT_LAST = auto()  # ... and none is left
    RETRY = auto()  # a chunk gave no result
    STOP = auto()  # its read ends, and the sinks do not have it
    STOP_UNNAMED = auto()  # ... before the header of any batch named it
    END = auto()  # its read ends: the sinks have it, or it was dropped at the server
    EXCLUDE = auto()  # the patterns no longer match it


_QUEUED: Final = (ReadState.QUEUED, ReadState.QUEUED_AGAIN)
_READING: Final = (ReadState.BEGUN, ReadState.READING)
_RUNNING: Final = (*_QUEUED, *_READING, ReadState.READ)
_UNNAMED: Final = (ReadState.QUEUED, ReadState.BEGUN)

TRANSITIONS: Final[Mapping[ReadEvent, Mapping[ReadState | None, ReadState | None]]] = {
    ReadEvent.ADD: {None: ReadState.QUEUED},
    ReadEvent.DEFER: {None: ReadState.DEFERRED},
    ReadEvent.ANNOUNCE: {ReadState.DEFERRED: ReadState.FOLLOWED, ReadState.BEGUN: ReadState.READING},
    ReadEvent.READ_AGAIN: {
        **dict.fromkeys((None, *ReadState), ReadState.QUEUED_AGAIN),
        **dict.fromkeys((*_UNNAMED, ReadState.DEFERRED), ReadState.QUEUED),
    },
    ReadEvent.BEGIN: {ReadState.QUEUED: ReadState.BEGUN, ReadState.QUEUED_AGAIN: ReadState.READING},
    ReadEvent.HAND_OUT: dict.fromkeys(_READING, ReadState.READING),
    ReadEvent.HAND_OUT_LAST: dict.fromkeys(_READING, ReadState.READ),
    ReadEvent.RETRY: dict.fromkeys(
        (None, ReadState.READING, ReadState.READ, ReadState.DEFERRED, ReadState.FOLLOWED), ReadState.READING
    ),
    ReadEvent.STOP: dict.fromkeys((ReadState.QUEUED_AGAIN, ReadState.READING, ReadState.READ), ReadState.FOLLOWED),
    ReadEvent.STOP_UNNAMED: dict.fromkeys(_UNNAMED, ReadState.DEFERRED),
    ReadEvent.END: dict.fromkeys(_RUNNING, None),
    ReadEvent.EXCLUDE: dict.fromkeys(ReadState, None),
}
"""Event → state before → state after; None: no record. A missing pair cannot happen."""

_IN_PLACE: Final = (ReadEvent.ANNOUNCE, ReadEvent.HAND_OUT, ReadEvent.RETRY)
_CLEARED: Final[Mapping[str, Any]] = {"progress": None, "request": SnapshotRequest(), "append": False, "retries": ()}


def next_state(state: ReadState | None, event: ReadEvent) -> ReadState | None:
    """Return the state after an event.

    :raises RuntimeError: this event cannot happen in this state.
    """
    if state not in TRANSITIONS[event]:
        raise RuntimeError(f"event {event.name} came to a table whose read is {state or 'not recorded'}")
    return TRANSITIONS[event][state]


class TableReads:
    """The records of a stream, in the order of work. Each method is something that happens to one table.

    :param reads: those of the previous offset.
    """

    def __init__(self, reads: Iterable[TableRead] = ()) -> None:
        self._reads = {read.table: read for read in reads}

    def __iter__(self) -> Iterator[TableRead]:
        """Iterate over the records as they are now."""
        return iter(tuple(self._reads.values()))

    def get(self, table: str) -> TableRead | None:
        return self._reads.get(table)

    def request(self, table: str) -> SnapshotRequest:
        """Return how the table is read."""
        read = self._reads.get(table)
        return SnapshotRequest() if read is None else read.request

    def progress(self, table: str) -> SnapshotProgress | None:
        read = self._reads.get(table)
        return None if read is None else read.progress

    def pending(self) -> list[TableRead]:
        """Return the records with chunks to hand out: first those that are being read."""
        reads = [read for read in self if read.is_pending]
        return sorted(reads, key=lambda read: read.is_queued)

    @property
    def has_retries(self) -> bool:
        return any(read.retries for read in self)

    # --- events

    def next_batch(self) -> None:
        """Begin another batch: the one that announced tables, or handed out last chunks, is over."""
        for read in self:
            if read.state in TRANSITIONS[ReadEvent.ANNOUNCE]:
                self._change(read.table, ReadEvent.ANNOUNCE)
            elif read.state is ReadState.READ:
                self._reads[read.table] = replace(read, append=False)

    def confirm(self, finished: frozenset[str] | None) -> None:
        """End the reads of tables that the sinks hold completely, and partial reads.

        :param finished: those tables. None: there are no sinks.
        """
        for read in self:
            is_complete = finished is not None and read.table in finished
            if read.state is ReadState.READ and (is_complete or read.request.partial or finished is None):
                self.end(read.table, is_complete=is_complete)

    def add(self, table: str, request: SnapshotRequest, *, append: bool = False) -> None:
        """Queue a table that was never read."""
        self._change(table, ReadEvent.ADD, request=request, append=append)

    def defer(self, table: str) -> None:
        """Record a table that was never read, to be read when a signal names it."""
        self._change(table, ReadEvent.DEFER)

    def read_again(self, table: str, request: SnapshotRequest, *, first: bool = True) -> None:
        """Queue a read instead of any other of this table.

        :param first: before the tables that are already queued.
        """
        read = self.get(table)
        if read is not None and read.state is ReadState.QUEUED and read.append:
            return
        self._change(table, ReadEvent.READ_AGAIN, **{**_CLEARED, "request": request})
        if first:
            self._reads = {table: self._reads.pop(table), **self._reads}

    def join(self, table: str, request: SnapshotRequest) -> None:
        """Replace the request of a pending read."""
        self._reads[table] = replace(self._reads[table], request=request)

    def leave_append(self, table: str) -> None:
        """Yield the changes of the table's unread ranges, too."""
        self._reads[table] = replace(self._reads[table], append=False)

    def leave_append_mode(self) -> None:
        """Yield the changes of all unread ranges."""
        for read in self:
            self.leave_append(read.table)

    def begin(self, table: str, progress: SnapshotProgress, *, append: bool) -> None:
        """Begin with a queued table."""
        self._change(table, ReadEvent.BEGIN, progress=progress, append=append)

    def hand_out(self, table: str, progress: SnapshotProgress) -> None:
        """Record that a range was handed out.

        :param progress: after it.
        """
        is_last = progress.finished and not self._reads[table].retries
        self._change(table, ReadEvent.HAND_OUT_LAST if is_last else ReadEvent.HAND_OUT, progress=progress)

    def take_retries(self, count: int) -> list[ChunkSpec]:
        """Hand out up to ``count`` chunks to retry, and return them."""
        chunks: list[ChunkSpec] = []
        for read in self:
            taken, left = read.retries[: count - len(chunks)], read.retries[count - len(chunks) :]
            if taken:
                chunks += taken
                is_last = not (left or read.has_ranges)
                self._change(read.table, ReadEvent.HAND_OUT_LAST if is_last else ReadEvent.HAND_OUT, retries=left)
                self._reads[read.table] = self._reads.pop(read.table)  # behind tables whose chunks may succeed
        return chunks

    def retry(self, chunk: ChunkSpec, request: SnapshotRequest | None = None) -> None:
        """Hand out a chunk again: once, also if several attempts to write its batch have requested that. The rows of a
        table without a key would be there twice.

        :param request: of its read, if that is over.
        """
        read = self.get(chunk.table)
        retries = tuple(dict.fromkeys((*(read.retries if read else ()), chunk)))
        fields = {"request": request} if request else {}
        self._change(chunk.table, ReadEvent.RETRY, retries=retries, append=False, **fields)

    def end(self, table: str, *, is_complete: bool) -> None:
        """End a read.

        :param is_complete: whether the sinks have the table.
        """
        event = ReadEvent.STOP_UNNAMED if self._reads[table].state in _UNNAMED else ReadEvent.STOP
        event = ReadEvent.END if is_complete else event
        self._change(table, event, **_CLEARED)

    def drop(self, table: str) -> None:
        """End the read of a table that the server does not have any more."""
        self._change(table, ReadEvent.END)

    def exclude(self, table: str) -> None:
        """Remove the record of a table that the patterns no longer match."""
        self._change(table, ReadEvent.EXCLUDE)

    def _change(self, table: str, event: ReadEvent, **fields: Any) -> None:
        """Change a table's state and fields. No state changes anywhere else."""
        read = self._reads.get(table)
        state = next_state(None if read is None else read.state, event)
        if read is None or event not in _IN_PLACE:
            self._reads.pop(table, None)
        if state is not None:
            self._reads[table] = replace(read or TableRead(table, ReadState.FOLLOWED), state=state, **fields)
