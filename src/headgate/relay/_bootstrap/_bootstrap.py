"""Bootstrap: a consumer that is new, or too far behind, gets the rows there are, and then what changed meanwhile.

What it guarantees. A consumer that applies what it is given (UPSERT: the key holds this row; DELETE: it holds none)
holds, after the bootstrap, for every key what the server's table held at the *target*, a window of the log; whoever
writes meanwhile, however often consumer or relay are interrupted and go on from a checkpoint.

The protocol is Databus's (``BootstrapCheckpointHandler.java``): ``/startSCN`` gives a start S₀; ``/bootstrap`` the rows
of each source, part by part; ``/targetSCN`` a target T; and what came after S₀ up to T is applied in the order of the
log, from ``/stream``, or source by source from ``/bootstrap``. Three things are seen to:

1. Each part is exact as of a known point: a pair (E, S) of the feeder, where the set E has exactly those followed
   transactions whose windows have SCNs up to S. Its rows are the part as of E (``_bootstrap._suppliers``), and
   their events carry S. S ≥ S₀.
2. A part is given only to a consumer whose stream has not gone beyond S. Its checkpoint says how far it has (X), so a
   part that was read at an S < X is read again, at an S ≥ X.
3. T is not below any S of the session, nor any X.

**Why that is exact.** Take a key, and the consumer's last uninterrupted run, which goes on from a checkpoint at X₀ and
applies every window in (X₀, T] in order.

- *A window in (X₀, T] changes the key.* After the last such window, w, was applied, only a part given later can set
  the key. By 2 it is exact as of an S ≥ w, and S ≤ T by 3; nothing changes the key in (w, T], so the part sets what w
  left, or nothing if w deleted it.
- *None does.* Then the key is the same at every point in [X₀, T]. If the run reads its part, at S ≥ X₀, the part sets
  just that if the row exists. If the part was given before the checkpoint, at S ≤ X₀, the stream up to X₀ has made the
  key what it is at X₀, by the same argument for the runs before; and what an interrupted run did beyond X₀ were rows
  as of points in [X₀, T], which are the same. A row that does not exist at X₀ and that an earlier run had set was
  deleted by a window up to X₀, which was applied after it (2).

What remains is a row that the consumer held *before* the bootstrap and that was deleted since: nobody tells of it. All
events of a bootstrap have SCNs ≥ S₀, so a row last set by an event below S₀ is gone; a consumer may also begin with
empty tables.

**How long the buffer must reach back.** A consumer that reads its rows and the stream by turns, as our client does,
needs what came since its last request. One that reads all rows first, as Databus's does, needs all since S₀; and so
does every consumer where rows come from a reader that has them as of one point. If it is gone, the consumer is told
that it is too far behind, and begins again.

**Restarts.** Starts, parts and their points are on disk before they are given (``_bootstrap._sessions``). After
a kill the feeder may be behind them for a moment; then they are waited for, because the same transactions come again
under the same SCNs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.databus import EOP_SOURCE, FIRST, Place, event_fields, seal
from headgate.errors import BinlogPurgedError, ChunkRetryError, ScnNotFoundError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, gtid_executed
from headgate.relay._bootstrap._sessions import DONE, Reading, Session, Sessions, offset_of, place_in
from headgate.relay._bootstrap._suppliers import ChunkSupplier, PartGoneError, PlanGoneError, Rows, Supplier
from headgate.relay._buffer import Batch, Stretch
from headgate.relay._events._choice import Choice
from headgate.relay._position import State
from headgate.relay._relay import Partition, Relay
from headgate.relay._sources import LogicalSource
from headgate.relay._writers import RowWriters
from headgate.replication import LogHint

__all__ = ["Bootstrap", "Piece"]

log = logging.getLogger("headgate")

_ATTEMPTS: Final = 3
"""Readings of one part, each as of a later point, before the consumer has to ask again."""
_POSITION_SECONDS: Final = 0.25
"""How long the relay's reader of the log is waited for; then the consumer has to ask again."""
_SEARCH_SECONDS: Final = 5.0
"""Parts that hold nothing for a consumer are passed over for so long; then it gets a checkpoint."""
_TOGETHER_SECONDS: Final = 10.0
"""Consumers that begin within so long begin at the same SCN, and are given the same parts."""
_IDLE_SECONDS: Final = 3600.0
"""After so long without a request a bootstrap whose start has left the buffer is forgotten."""
_KEPT_BYTES: Final = 64 << 20
"""Of events of parts: consumers that start together read MySQL once."""


@dataclass(frozen=True)
class Piece:
    """What one request is given."""

    batch: Batch
    offset: int
    """Where it goes on: a ``snapshot_offset``, or the offset in a window."""
    scn: int = -1
    """Where it goes on: the window."""
    done: bool = False
    """Nothing is left of the phase."""


class Bootstrap:
    """The bootstraps of one physical source.

    :param supplier: of the rows.
    :param folder: where sessions are kept; None: in memory.
    """

    def __init__(self, relay: Relay, partition: Partition, supplier: Supplier, folder: Path | None) -> None:
        self._partition, self._supplier = partition, supplier
        self._version = relay.config.event_version
        self._sessions, self._forgets = Sessions(folder), folder is None
        self._writers = RowWriters(relay.names.of(partition.source.id), relay.registry)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str, int], Any] = OrderedDict()

    @classmethod
    def of(cls, relay: Relay, partition: Partition, supplier: Supplier | None = None) -> Bootstrap:
        """By default from MySQL; in the relay's state folder."""
        policies = relay.config.policies
        folder = relay.config.state
        return cls(
            relay,
            partition,
            supplier or ChunkSupplier(partition.source.settings, policies),
            None if folder is None else folder / f"bootstrap-{partition.source.id}",
        )

    # --- the start and the target

    def start(self, since: int) -> int:
        """The SCN that a bootstrap begins at; ``since`` if nothing that came after that window is gone (0: none).

        It may be one that another consumer's began at some seconds before: what it is given is as of points after it.

        :raises HeadgateError: the supplier cannot begin.
        """
        buffer = self._partition.buffer
        if since > 0 and buffer.holds(since):
            return since
        beginning = self._supplier.begin()
        together = self._sessions.newest(_TOGETHER_SECONDS) if beginning.gtid is None else None
        if together is not None and buffer.holds(together.scn):
            return together.scn
        if beginning.gtid is None:
            position = self._partition.feeder.position()
        else:
            found = self._partition.feeder.mark_within(beginning.gtid)
            if found is None or not buffer.holds(max(found.scn, 0)):
                raise ServerBehindError(
                    "the tables that the rows come from are older than what the relay's buffer holds: wait for them, "
                    "or give the buffer more room"
                )
            position = found
        self._sessions.forget([scn for scn in self._sessions.idle(_IDLE_SECONDS) if not buffer.holds(scn)])
        if position.scn < 0 and self._forgets:
            log.warning(
                "%s: a bootstrap begins at SCN 0: there was no transaction since the relay began, and without a state "
                "folder it knows of no older one. Its consumer has to begin with empty tables, and is not told if the "
                "relay is restarted before the first transaction",
                self._partition.source.name,
            )
        gtid = position.gtid if beginning.gtid is None else beginning.gtid
        fixed = beginning.gtid is not None
        return self._sessions.begin(max(position.scn, 0), gtid, beginning.token, fixed=fixed).scn

    def _session(self, scn: int, at_least: int) -> Session:
        """The session of a consumer whose stream is at ``at_least``; from there, or the start, it has to follow."""
        session = self._sessions.find(scn)
        if session is None or not self._partition.buffer.holds(max(scn, at_least)):
            oldest = self._partition.buffer.prev_scn
            raise ScnNotFoundError(
                f"the bootstrap that began at SCN {scn} cannot go on: begin another one", scn=scn, oldest=oldest
            )
        return session

    def target(self, scn: int, at_least: int, *, rows: bool = True) -> int:
        """The SCN up to which a consumer has to follow the log, whose bootstrap began at ``scn`` (-1: unknown).

        :param at_least: the newest SCN that it has had.
        :param rows: whether it was given rows; else changes alone did (:meth:`start`), and nothing is known of it.
        :raises ScnNotFoundError: that bootstrap is unknown.
        :raises ChunkRetryError: the relay is behind what it had.
        """
        if scn < 0:
            return max(self._partition.feeder.position().scn, 0)
        least, wanted = max(scn, at_least), GtidSet()
        if rows:
            session = self._session(scn, at_least)
            least = max(least, session.last_scn)
            wanted = GtidSet.parse(session.gtid) if session.fixed else wanted
        return max(self._position(least, wanted, "the relay has not come as far as what it gave").scn, 0)

    def _position(self, least: int, wanted: GtidSet, otherwise: str) -> State:
        """A position of the feeder that is not before an SCN and a set.

        :raises ChunkRetryError: ``otherwise``, after some seconds.
        """
        found = self._partition.feeder.await_position(
            lambda state: max(state.scn, 0) >= least and state.gtid >= wanted, _POSITION_SECONDS
        )
        if found is None:
            raise ChunkRetryError(f"{otherwise}: {self._partition.feeder.problem or 'it is still reading the log'}")
        return found

    # --- rows

    def rows(
        self, scn: int, source: LogicalSource, offset: int, size: int, *, at_least: int, choice: Choice | None
    ) -> Piece:
        """The next rows of a source.

        :param scn: where the bootstrap began.
        :param offset: its ``snapshot_offset``: 0, or what the piece before said.
        :param size: most bytes of events.
        :param at_least: how far the consumer's stream is.
        :param choice: only these events.
        :raises ScnNotFoundError: the bootstrap has to begin anew.
        :raises HeadgateError: rows cannot be read, now or at all.
        """
        session = self._session(scn, at_least)
        number, events = place_in(offset)
        part = 0
        if offset:
            known = session.reading(source.name, number)
            if known is None:
                raise ScnNotFoundError(
                    f"the bootstrap from SCN {scn} has no place {offset}: begin another one", scn=scn
                )
            part = known.part + (events == DONE)
        end = time.monotonic() + _SEARCH_SECONDS
        before = -1 if events == DONE or not offset else number
        while True:
            found = self._part(session, source, part, at_least)
            if found is None:
                return Piece(Batch([]), -1, done=True)
            number, data = found
            if number != before:
                events = 0
            batch = Batch([])
            whole = batch.add(Stretch(data, 0, len(data), events), size, choice)
            if not whole:
                return Piece(batch, offset_of(number, events + batch.events))
            if batch.size or time.monotonic() > end:
                return Piece(batch, offset_of(number, DONE))
            part, before = part + 1, -1

    def _part(self, session: Session, source: LogicalSource, part: int, at_least: int) -> tuple[int, Any] | None:
        """The number of a reading of a part, and its events; None: there is no such part."""
        with session.lock:
            try:
                return self._read(session, source, part, at_least)
            except PlanGoneError as error:
                self._sessions.forget([session.scn])
                raise ScnNotFoundError(f"{error}: begin another bootstrap", scn=session.scn) from None

    def _read(self, session: Session, source: LogicalSource, part: int, at_least: int) -> tuple[int, Any] | None:
        number = session.newest(source.name, part)
        reading = None if number is None else session.reading(source.name, number)
        detail: Mapping[str, Any] | None = None
        if number is not None and reading is not None:
            detail = reading.detail
            if reading.scn >= at_least:
                data = self._again(session, source, number, reading)
                if data is not None:
                    return number, data
        if detail is None:
            before = session.newest(source.name, part - 1) if part else None
            last = None if before is None else session.reading(source.name, before)
            detail = self._supplier.plan(source, session.token, None if last is None else last.detail)
            if detail is None:
                return None
        return self._anew(session, source, part, detail, at_least)

    def _again(self, session: Session, source: LogicalSource, number: int, reading: Reading) -> Any:
        """The events of a reading that was made before; None: they cannot be read as they were."""
        place = (session.scn, source.name, number)
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        try:
            hint = None if reading.hint is None else LogHint(*reading.hint)
            rows = self._supplier.read(source, session.token, reading.detail, GtidSet.parse(reading.gtid), hint)
        except (PartGoneError, BinlogPurgedError):
            return None
        data = self._encode(rows, reading.scn)
        self._keep(place, data)
        return data

    def _anew(
        self, session: Session, source: LogicalSource, part: int, detail: Mapping[str, Any], at_least: int
    ) -> tuple[int, Any]:
        """A part as of now."""
        least, missing, reason = max(at_least, session.scn), GtidSet(), ""
        for _ in range(_ATTEMPTS):
            if session.fixed:
                state = State(GtidSet.parse(session.gtid), session.scn)
            else:
                state = self._position(least, missing, reason or "the relay has not come as far as its consumer")
            try:
                rows = self._supplier.read(source, session.token, detail, state.gtid, state.hint)
            except PartGoneError as error:
                if session.fixed:
                    raise PlanGoneError(str(error)) from None
                reason, missing = str(error), self._executed()
                continue
            scn = max(state.scn, 0)
            data = self._encode(rows, scn)
            hint = None if state.hint is None else (state.hint.server_uuid, state.hint.file, state.hint.pos)
            number = session.add(source.name, Reading(part, detail, str(state.gtid), scn, hint))
            self._keep((session.scn, source.name, number), data)
            return number, data
        raise ChunkRetryError(f"rows could not be read as of one point: {reason}", table=source.table)

    def _executed(self) -> GtidSet:
        """What the server has by now: a part that was disturbed is read as of that, or later."""
        with Connection.open(self._partition.source.settings) as connection:
            return gtid_executed(connection)

    def _encode(self, rows: Rows | None, scn: int) -> Any:
        if rows is None:
            return np.zeros(0, np.uint8)
        columns = [column.combine_chunks() for column in rows.columns.columns]
        writer = self._writers.of(rows.table, list(rows.columns.schema))
        coded, keys = writer.encoder.encode(columns), writer.keys(columns)
        sizes = writer.sizes(coded, keys, self._version)
        count = len(sizes)
        if count >= DONE:
            raise ChunkRetryError("a part has more rows than a place can count", table=rows.table.full_name)
        out = np.empty(int(sizes.sum()), np.uint8)
        writer.put(
            out,
            np.cumsum(sizes) - sizes,
            sizes,
            keys,
            coded,
            version=self._version,
            deletes=np.zeros(count, np.bool_),
            stamps=np.full(count, time.time_ns(), np.int64),
            scns=np.full(count, scn, np.int64),
            partition=self._partition.source.id,
        )
        seal(out, 0, len(out))
        return out

    def _keep(self, place: tuple[int, str, int], data: Any) -> None:
        with self._lock:
            self._kept[place] = data
            self._kept.move_to_end(place)
            while len(self._kept) > 1 and sum(len(one) for one in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)

    # --- changes

    def changes(self, scn: int, place: Place, target: int, size: int, choice: Choice) -> Piece:
        """Changes after ``scn`` up to ``target``, without control events, as Databus's bootstrap gives them.

        :param place: how far it is; its window and how many chosen events of it were had.
        :raises ScnNotFoundError: something of it is gone.
        """
        if place.scn <= scn:
            place = Place(scn) if scn else FIRST
        read = self._partition.buffer.read(place, size, choice)
        data = np.concatenate([np.zeros(0, np.uint8), *read.parts])
        fields = event_fields(data)
        had = (fields.source >= 0) & (fields.scn <= target)
        part = data[np.repeat(had, fields.size)]
        batch = Batch([part] if len(part) else [], len(part), int(had.sum()), pending=read.pending)
        end = (fields.scn > target) | ((fields.scn == target) & (fields.source == EOP_SOURCE))
        if not len(fields.scn):
            return Piece(batch, max(place.offset, 0), max(place.scn, scn), target <= scn)
        last = int(fields.scn[-1])
        inside = int(((fields.scn == last) & had).sum()) + (max(place.offset, 0) if last == place.scn else 0)
        return Piece(batch, inside, last, target <= scn or bool(end.any()))
