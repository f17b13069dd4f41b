"""Bootstrap: a consumer that is new, or too far behind, gets the existing rows, then the changes made meanwhile.

The guarantee. A consumer that applies what it receives (UPSERT: the key holds this row; DELETE: it holds none) holds,
after the bootstrap, for every key what the server's table held at the *target*, a window of the log; whatever is
written meanwhile, and however often consumer or relay are interrupted and resume from a checkpoint.

The protocol is Databus's (``BootstrapCheckpointHandler.java``). ``/startSCN`` returns a start S₀, ``/bootstrap`` the
rows of each source, part by part, and ``/targetSCN`` a target T. The changes after S₀ up to T are applied in the order
of the log, from ``/stream``, or source by source from ``/bootstrap``. The relay ensures three conditions:

1. Each part is exact as of a known point: a pair (E, S) of the feeder. The set E has exactly those followed
   transactions whose windows have SCNs up to S. The part's rows are as of E (``bootstrap._suppliers``), and their
   events carry S. S ≥ S₀.
2. A part is sent only to a consumer whose stream has not passed S. The consumer's checkpoint holds its stream's SCN X,
   so a part that was read at an S < X is read again, at an S ≥ X.
3. T is not below any S of the session, nor any X.

**Why that is exact.** Take a key, and the consumer's last uninterrupted run, which resumes from a checkpoint at X₀ and
applies every window in (X₀, T] in order.

- *A window in (X₀, T] changes the key.* After the last such window, w, was applied, only a part sent later can set
  the key. By 2 it is exact as of an S ≥ w, and S ≤ T by 3. Nothing changes the key in (w, T], so the part sets what w
  left, or nothing if w deleted it.
- *None does.* Then the key is the same at every point in [X₀, T]. If the run reads its part, at S ≥ X₀, the part sets
  exactly that if the row exists. If the part was sent before the checkpoint, at S ≤ X₀, the stream up to X₀ has made
  the key what it is at X₀, by the same argument for the runs before. An interrupted run can only have applied rows
  beyond X₀ as of points in [X₀, T], which are the same. A row that does not exist at X₀ and that an earlier run had
  set was deleted by a window up to X₀, which was applied after it (2).

One case remains: a row that the consumer held *before* the bootstrap and that was deleted since. No event reports it.
All events of a bootstrap have SCNs ≥ S₀, so a row last set by an event below S₀ no longer exists. A consumer may also
begin with empty tables.

**How long the buffer must reach back.** A consumer that reads rows and stream in turn, as headgate's client does,
needs the changes since its last request. One that reads all rows first, as Databus's does, needs all since S₀. If the
buffer no longer has them, the consumer gets the error that it is too far behind, and begins again.

**Restarts.** Starts, parts and their points are on disk before they are sent (``bootstrap._sessions``). After a kill
the feeder may be behind them briefly. The relay waits for it, because the same transactions get the same SCNs again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from headgate.errors import BinlogPurgedError, ChunkRetryError, ScnNotFoundError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, gtid_executed
from headgate.offsets import Hint
from headgate.relay.databus import EOP_SOURCE, FIRST, BootstrapPoint, StreamPosition, event_fields, seal
from headgate.relay.server._cursor import EventBatch, SegmentCursor
from headgate.relay.server._position import FeederState
from headgate.relay.server._recent import Recent
from headgate.relay.server._relay import Partition, Relay
from headgate.relay.server._sources import LogicalSource
from headgate.relay.server._writers import RowWriters
from headgate.relay.server.bootstrap._sessions import DONE, PartRead, Session, Sessions, offset_of, split_offset
from headgate.relay.server.bootstrap._suppliers import ChunkSupplier, PartGoneError, PlanGoneError, Rows, Supplier
from headgate.relay.server.events import Choice

__all__ = ["Bootstrap", "Piece"]

log = logging.getLogger("headgate")

_ATTEMPTS: Final = 3
"""Attempts to read one part, each as of a later point, before the consumer has to retry."""
_SEARCH_SECONDS: Final = 5.0
"""How long to skip parts without events for a consumer; then it gets a checkpoint."""
_CACHE_BYTES: Final = 64 << 20
"""Cache of parts' events: consumers that start together read MySQL once."""


@dataclass(frozen=True)
class Piece:
    """The answer to one request."""

    batch: EventBatch
    after: BootstrapPoint
    """Where to continue."""
    is_last: bool = False
    """Whether the phase is complete."""


def _has_rows(point: BootstrapPoint) -> bool:
    """Return whether the bootstrap reads rows; if not, changes are enough (:meth:`Bootstrap.start`)."""
    return point.since <= 0 or point.start > point.since


class Bootstrap:
    """The bootstraps of one physical source, with sessions in the state folder, or in memory if there is none.

    :param supplier: supplies the rows; None: MySQL.
    """

    def __init__(self, relay: Relay, partition: Partition, supplier: Supplier | None = None) -> None:
        config, source = relay.config, partition.source
        self._relay, self._partition, self._version = relay, partition, config.event_version
        self._supplier = supplier or ChunkSupplier(source.settings, config.policies)
        self._forgets = config.state is None
        self._sessions = Sessions(None if config.state is None else config.state / f"bootstrap-{source.id}")
        self._writers = RowWriters(partial(relay.names.find, source.id), relay.registry)
        self._cache = Recent[tuple[int, str, int], Any](_CACHE_BYTES, len)

    # --- the start and the target

    def start(self, since: int) -> int:
        """Return the SCN at which a bootstrap starts; ``since`` if the buffer has all after that window (0: no window).

        It may be the start of another consumer's bootstrap some seconds before: parts are read as of points after it.

        :raises HeadgateError: the relay has not begun, or the session cannot be stored.
        """
        buffer = self._partition.buffer
        if since > 0 and buffer.holds(since):
            return since
        together = self._sessions.newest(self._relay.times.bootstrap_together)
        if together is not None and buffer.holds(together.scn):
            return together.scn
        position = self._partition.feeder.position.now()
        self._sessions.forget_idle(self._relay.times.bootstrap_idle, buffer.holds)
        if position.scn < 0 and self._forgets:
            log.warning(
                "%s: a bootstrap begins at SCN 0: no transaction has come since the relay started, and without a state "
                "folder the relay knows no older one. Its consumer has to begin with empty tables, and gets no error "
                "if the relay restarts before the first transaction",
                self._partition.source.name,
            )
        return self._sessions.begin(max(position.scn, 0)).scn

    def _session(self, point: BootstrapPoint) -> Session:
        """Return the session, if the buffer has all changes since the start and the consumer's stream position."""
        scn = point.start
        session = self._sessions.find(scn)
        if session is None or not self._partition.buffer.holds(max(scn, point.window)):
            oldest = self._partition.buffer.oldest_resumable_scn
            raise ScnNotFoundError(
                f"the bootstrap that began at SCN {scn} cannot continue: begin another one", scn=scn, oldest=oldest
            )
        return session

    def target(self, point: BootstrapPoint) -> int:
        """Return the SCN up to which a consumer has to follow the log.

        :raises ScnNotFoundError: the bootstrap cannot continue.
        :raises ChunkRetryError: the relay is behind what the consumer has.
        """
        if point.start < 0:
            return max(self._partition.feeder.position.now().scn, 0)
        least = max(point.start, point.window)
        if _has_rows(point):
            least = max(least, self._session(point).last_scn)
        return max(self._position(least, GtidSet(), "the relay is behind the rows that it sent").scn, 0)

    def _position(self, least: int, wanted: GtidSet, otherwise: str) -> FeederState:
        """Wait for a position of the feeder that includes an SCN and a GTID set, and return it.

        :raises ChunkRetryError: ``otherwise``, after 0.25 s.
        """
        position = self._partition.feeder.position.wait(
            lambda state: max(state.scn, 0) >= least and state.gtid >= wanted, self._relay.times.bootstrap_position
        )
        if position is None:
            raise ChunkRetryError(f"{otherwise}: {self._partition.feeder.problem or 'it is still reading the log'}")
        return position

    # --- rows

    def rows(self, point: BootstrapPoint, source: LogicalSource, size: int, choice: Callable[[], Choice]) -> Piece:
        """Return the next rows of a source.

        :param size: most bytes of events.
        :param choice: returns a choice of the events. It is called after they are read, because its filters are
            compiled for the schemas that are known, and reading may make one.
        :raises ScnNotFoundError: the consumer has to start another bootstrap.
        :raises HeadgateError: rows cannot be read, temporarily or permanently.
        """
        if not _has_rows(point):
            return Piece(EventBatch([]), replace(point, offset=-1), is_last=True)
        session, scn, offset = self._session(point), point.start, point.offset
        number, events = split_offset(offset)
        part = 0
        if offset:
            known = session.part_read(source.name, number)
            if known is None:
                raise ScnNotFoundError(
                    f"the bootstrap from SCN {scn} has no offset {offset}: begin another one", scn=scn
                )
            part = known.part + (events == DONE)
        end = time.monotonic() + _SEARCH_SECONDS
        before = -1 if events == DONE or not offset else number
        while True:
            numbered_events = self._part(session, source, part, point.window)
            if numbered_events is None:
                return Piece(EventBatch([]), replace(point, offset=-1), is_last=True)
            number, data = numbered_events
            if number != before:
                events = 0
            batch = EventBatch([])
            whole = SegmentCursor(data, 0, len(data), events).take(batch, size, choice())
            if not whole:
                return Piece(batch, replace(point, offset=offset_of(number, events + batch.events)))
            if batch.size or time.monotonic() > end:
                return Piece(batch, replace(point, offset=offset_of(number, DONE)))
            part, before = part + 1, -1

    def _part(self, session: Session, source: LogicalSource, part: int, at_least: int) -> tuple[int, Any] | None:
        """Return the number of a reading of a part, and its events; None: the part does not exist."""
        with session.lock:
            try:
                return self._read(session, source, part, at_least)
            except PlanGoneError as error:
                self._sessions.forget(session.scn)
                raise ScnNotFoundError(f"{error}: begin another bootstrap", scn=session.scn) from None

    def _read(self, session: Session, source: LogicalSource, part: int, at_least: int) -> tuple[int, Any] | None:
        newest = session.newest(source.name, part)
        detail: Mapping[str, Any] | None
        if newest is not None:
            number, part_read = newest
            data = self._read_as_before(session, source, number, part_read) if part_read.scn >= at_least else None
            if data is not None:
                return number, data
            detail = part_read.detail
        else:
            before = session.newest(source.name, part - 1) if part else None
            detail = self._supplier.plan(source, None if before is None else before[1].detail)
            if detail is None:
                return None
        return self._read_new(session, source, part, detail, at_least)

    def _read_as_before(self, session: Session, source: LogicalSource, number: int, part_read: PartRead) -> Any:
        """Return the events of an earlier reading; None: it cannot be read as of its GTID set any more."""
        key = (session.scn, source.name, number)
        data = self._cache.find(key)
        if data is not None:
            return data
        try:
            hint = None if part_read.hint is None else Hint(*part_read.hint)
            rows = self._supplier.read(source, part_read.detail, GtidSet.parse(part_read.gtid), hint)
        except (PartGoneError, BinlogPurgedError):
            return None
        return self._cache.keep(key, self._encode(rows, part_read.scn))

    def _read_new(
        self, session: Session, source: LogicalSource, part: int, detail: Mapping[str, Any], at_least: int
    ) -> tuple[int, Any]:
        """Read a part as of the feeder's position."""
        least, missing, reason = max(at_least, session.scn), GtidSet(), ""
        for _ in range(_ATTEMPTS):
            state = self._position(least, missing, reason or "the relay is behind its consumer")
            try:
                rows = self._supplier.read(source, detail, state.gtid, state.hint)
            except PartGoneError as error:
                reason, missing = str(error), self._executed()
                continue
            scn = max(state.scn, 0)
            data = self._encode(rows, scn)
            hint = None if state.hint is None else astuple(state.hint)
            number = session.add(source.name, PartRead(part, detail, str(state.gtid), scn, hint))
            return number, self._cache.keep((session.scn, source.name, number), data)
        raise ChunkRetryError(f"rows could not be read as of one point: {reason}", table=source.table)

    def _executed(self) -> GtidSet:
        """Return the server's executed GTIDs: a disturbed part is read again as of these, or later."""
        with Connection.open(self._partition.source.settings) as connection:
            return gtid_executed(connection)

    def _encode(self, rows: Rows | None, scn: int) -> Any:
        if rows is None:
            return np.zeros(0, np.uint8)
        columns = [column.combine_chunks() for column in rows.columns.columns]
        writer = self._writers.of(rows.table, rows.columns.schema)
        count = rows.columns.num_rows
        if count >= DONE:
            raise ChunkRetryError("a part has more rows than a snapshot_offset can count", table=rows.table.full_name)
        stamps = np.full(count, time.time_ns(), np.int64)
        events = writer.encode(columns, self._version, deletes=np.zeros(count, np.bool_), stamps=stamps)
        out = np.empty(int(events.sizes.sum()), np.uint8)
        offsets = np.cumsum(events.sizes) - events.sizes
        events.put(out, offsets, np.full(count, scn, np.int64), self._partition.source.id)
        seal(out, 0, len(out))
        return out

    # --- changes

    def changes(self, point: BootstrapPoint, size: int, choice: Callable[[], Choice]) -> Piece:
        """Return changes after the start up to the target, without control events, as in Databus's bootstrap.

        :param choice: as of :meth:`rows`.
        :raises ScnNotFoundError: some of them left the buffer.
        """
        scn, target, position = point.start, point.target, StreamPosition(point.window, point.window_offset)
        if position.scn <= scn:
            position = StreamPosition(scn) if scn else FIRST
        read = EventBatch([])
        for cursor in self._partition.buffer.cursors(position):
            if not cursor.take(read, size, choice()):
                break
        data = read.joined()
        fields = event_fields(data)
        is_change = (fields.source >= 0) & (fields.scn <= target)
        part = data[np.repeat(is_change, fields.size)]
        end = (fields.scn > target) | ((fields.scn == target) & (fields.source == EOP_SOURCE))
        last, inside = max(position.scn, scn), max(position.offset, 0)
        if len(fields.scn):
            last = int(fields.scn[-1])
            inside = int(((fields.scn == last) & is_change).sum()) + (inside if last == position.scn else 0)
        is_last, pending = target <= scn or bool(end.any()), read.pending
        if read.size and not len(part) and not is_last and last == position.scn:
            # Only the end of the open window fits, which the checkpoint does not count: both have to fit.
            following = self._partition.buffer.read(StreamPosition(last), 0, choice()).pending
            pending = read.size + following if following else 0
        batch = EventBatch([part] if len(part) else [], len(part), int(is_change.sum()), pending=pending)
        return Piece(batch, replace(point, window=last, window_offset=inside), is_last)
