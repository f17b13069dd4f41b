"""From a server's log into a buffer: one thread for each physical source.

What it guarantees. Every transaction that changes a followed table goes into the buffer whole, in the order of the log,
once; or the feeder stands still and says why. Its *state* is the set of all transactions that are in the buffer (or
touch nothing that is followed), and the SCN of the last window; the two are always of one moment, and are written to a
file together after the windows they speak of. After a restart the buffer drops what is newer than the state, and the
log is read from the state's set on: the same transactions come again, with the same SCNs and the same bytes.

A lost connection is made again by :func:`headgate.replication.follow`; when that gives up, this tries on for ever,
from what is in the buffer. What will not go away by itself (a table that cannot be written, SCNs that cannot grow) ends
the feeder: the buffer still serves what it has, and the status says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate._policies import Policies
from headgate.catalog import load_tables
from headgate.errors import ConfigError, HeadgateError, IncompleteReadError, ServerBehindError
from headgate.gtid import Gtid, GtidSet, GtidSetBuilder
from headgate.mysql import Connection, gtid_executed
from headgate.relay._assemble import Assembler, Finished
from headgate.relay._buffer import EventBuffer
from headgate.relay._counters import EventStats
from headgate.relay._events._binary import EOP_SIZE
from headgate.relay._events._schemas import Registry
from headgate.relay._files import read_json, write_json
from headgate.relay._retrying import Retrying
from headgate.relay._scn import Scn
from headgate.relay._segments import Windows
from headgate.relay._sources import PhysicalSource, SourceNames
from headgate.relay._warm import warm
from headgate.replication import Idle, LogBlock, LogHint, follow

__all__ = ["Feeder", "State", "load_state"]

log = logging.getLogger("headgate")

_SAVE_SECONDS: Final = 0.2
"""At most so much has to be read again after a kill."""
_RETRY_SECONDS: Final = 5.0
_GATHER_SECONDS: Final = 0.004
"""A block begins at most so often. Decoding, numbering and announcing one takes a millisecond or two however small it
is; under load each takes what has come meanwhile, and half the time is left to those who serve the consumers."""
_MARK_SECONDS: Final = 1.0
_MARKS: Final = 7200
"""Positions that are remembered, one a second: a reader of copies of the tables may be two hours behind."""
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True)
class State:
    """Where a feeder is."""

    gtid: GtidSet
    scn: int
    hint: LogHint | None = field(default=None, compare=False)
    """Where a reader that has all of ``gtid`` may begin."""


def _behind(missing: str) -> str:
    return (
        f"the server has not executed {missing}, which the relay has: wait for it, connect to another one, or, "
        "if its log began anew, start the relay with --anew"
    )


def load_state(file: Path | None, kind: str) -> State | None:
    """The state that an earlier relay left; None: none.

    :raises ConfigError: it is not readable, or its SCNs are of another kind.
    """
    value = None if file is None else read_json(file)
    if value is None:
        return None
    try:
        state = State(GtidSet.parse(value["gtid"]), int(value["scn"]))
        found = value["kind"]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{file} is not a relay's state") from None
    if found != kind:
        raise ConfigError(f"{file} holds SCNs of kind {found}, not {kind}: consumers' checkpoints would mean nothing")
    return state


class Feeder(Retrying):
    """Reads the log of one source into its buffer.

    :param state: where to begin; ``file``: where to keep it (None: nowhere).
    :param stats: total, and by source id; counted as windows go in.
    """

    def __init__(
        self,
        source: PhysicalSource,
        names: SourceNames,
        registry: Registry,
        buffer: EventBuffer,
        scn: Scn,
        *,
        state: State,
        file: Path | None,
        version: int = 1,
        scn_column: str | None = None,
        befores: bool = False,
        policies: Policies | None = None,
    ) -> None:
        super().__init__(f"headgate-relay-{source.name}", source.name, _RETRY_SECONDS)
        self._source, self._names, self._registry, self._buffer, self._scn = source, names, registry, buffer, scn
        self._had, self._file, self._version, self._scn_column = state.gtid, file, version, scn_column
        self._befores = befores
        self._policies = policies or Policies()
        self._patterns = source.patterns
        self._saver = threading.Thread(target=self._save, name=f"headgate-relay-{source.name}-state", daemon=True)
        self._ended = threading.Event()
        self._saved: State | None = None
        self._unsaved: ConfigError | None = None
        self._scn_saved = state.scn
        self._builder = GtidSetBuilder(state.gtid)
        self._marks = deque([state], maxlen=_MARKS)
        self._marked_at = time.monotonic()
        self._hint: LogHint | None = None
        self._position = threading.Condition()  # what the builder holds and the last SCN are of one moment
        self._sources: dict[str, tuple[bytes, str]] = {}
        self.stats = EventStats(f"{source.name}.inbound", buffer=buffer.info)
        self.source_stats: dict[int, EventStats] = {}

    def prepare(self) -> None:
        """Give every table that is there an id and a schema, so that consumers may register before its first change.

        :raises HeadgateError: the server cannot be asked, or a table cannot be followed.
        """
        with Connection.open(self._source.settings) as connection:
            tables = load_tables(connection.query, self._patterns)
            missing = self._had - gtid_executed(connection)
        for table in tables:
            found = self._names.find(self._source.id, table.db, table.name)
            self._registry.schema_of(found.name, table)
        warm(tables, self._policies, self._names.of(self._source.id), self._registry.types, version=self._version)
        if missing:  # a replica that is behind, which will catch up, or a log that began anew, which will not
            self.problem = _behind(str(missing))
            log.warning("%s: %s", self._source.name, self.problem)

    def _told(self, error: HeadgateError) -> str:
        missing = error.fields.get("missing") if isinstance(error, ServerBehindError) else None
        return super()._told(error) if missing is None else _behind(missing)

    def start(self) -> None:
        """Begin to read. Where it begins is kept before anything is served: a relay that is killed at once and has no
        state would begin at another place, and a consumer's bootstrap that has begun would miss what lies between.
        """
        if self._file is not None:
            self._save_now(self._file)
        self._begin()
        self._saver.start()

    def stop(self) -> None:
        """End reading and keep the state. Whoever waits in a full buffer gives up."""
        self._stop.set()
        with self._position:
            self._position.notify_all()
        self._end()
        self._ended.set()
        if self._saver.is_alive():
            self._saver.join()
        self._buffer.close()

    def position(self) -> State:
        """What is in the buffer now: every transaction of the set that touches a followed table, the last one under
        the SCN (-1: there was none), and no other one before it. From any thread.
        """
        with self._position:
            return self._state()

    def _state(self) -> State:
        """The position; called with its lock."""
        return State(self._builder.build(), self._scn_saved, self._hint)

    def _moved(self) -> None:
        """The position is another one; called with its lock."""
        self._position.notify_all()
        now = time.monotonic()
        if now - self._marked_at >= _MARK_SECONDS:
            self._marks.append(self._state())
            self._marked_at = now

    def mark_within(self, gtid: GtidSet) -> State | None:
        """The newest position of those that are remembered that is not beyond a set; None: all are."""
        with self._position:
            marks = [*self._marks, self._state()]
        return next((mark for mark in reversed(marks) if mark.gtid <= gtid), None)

    def await_position(self, enough: Callable[[State], bool], seconds: float) -> State | None:
        """The first position that is ``enough``; None: there was none within ``seconds``."""
        end = time.monotonic() + seconds
        with self._position:
            while not enough(state := self._state()):
                left = end - time.monotonic()
                if left <= 0 or self._stop.is_set():
                    return None
                self._position.wait(left)
        return state

    def _work(self) -> None:
        assembler = Assembler(
            self._names.of(self._source.id), self._registry, self._scn, partition=self._source.id,
            version=self._version, scn_column=self._scn_column, befores=self._befores,
        )  # fmt: skip
        self._had = self._builder.build()
        items = follow(
            self._source.settings, self._had, tables=self._patterns, images="all" if self._befores else "keys",
            policies=self._policies, sleep=self._pause,
        )  # fmt: skip
        begun = time.monotonic()
        try:
            for item in items:
                self._goes_on()
                finished = None
                if isinstance(item, LogBlock):
                    finished = assembler.add(item)
                elif isinstance(item, Idle):
                    finished = assembler.flush()
                if finished is not None and not self._publish(finished):
                    return
                if isinstance(item, Idle):
                    builder = GtidSetBuilder(item.gtid)
                    with self._position:
                        self._builder = builder
                        self._hint = item.hint or self._hint
                        self._moved()
                if self._unsaved is not None:
                    raise self._unsaved
                if isinstance(item, Idle):
                    begun = self._gather(begun)
                if self._stop.is_set():
                    return
        finally:
            items.close()  # type: ignore[attr-defined]

    def _pause(self, seconds: float) -> None:
        """:raises IncompleteReadError: the relay ends, so nobody waits for the server any more."""
        if self._stop.wait(seconds):
            raise IncompleteReadError("the relay ends")

    def _gather(self, begun: float) -> float:
        """Wait until the next block may begin, if the last one began at ``begun``; when that is."""
        left = begun + _GATHER_SECONDS - time.monotonic()
        if left > 0:
            time.sleep(left)
        return time.monotonic()

    def _publish(self, finished: Finished) -> bool:
        windows = finished.windows
        self._tell_too_large(windows)
        if not self._buffer.append(windows, give_up=self._stop.is_set):
            return False
        with self._position:
            for gtid in finished.gtids:
                source, _, number = gtid.rpartition(":")
                uuid, tag = self._uuid_of(source)
                self._builder.add_interval(uuid, tag, int(number), int(number))
            self._scn_saved = int(windows.scns[-1])
            self._moved()
        self._count(finished)
        return True

    def _tell_too_large(self, windows: Windows) -> None:
        if not self._buffer.overwrites:
            return
        sizes, most = np.diff(windows.ends, prepend=0), self._buffer.most_bytes
        for i in np.flatnonzero(sizes > most).tolist():
            log.warning(
                "%s: the transaction with SCN %d takes %d bytes, more than the buffer is to hold (%d): it is alone "
                "there, and consumers that do not have all of it when the next one comes are told that they are too "
                'far behind: give memory_bytes or disk_bytes more room, or wait for consumers with policy = "block"',
                self._source.name, int(windows.scns[i]), int(sizes[i]), most,
            )  # fmt: skip

    def _uuid_of(self, source: str) -> tuple[bytes, str]:
        """``uuid[:tag]`` as a GTID set has it."""
        found = self._sources.get(source)
        if found is None:
            gtid = Gtid.parse(f"{source}:1")
            found = self._sources[source] = (gtid.uuid, gtid.tag)
        return found

    def _count(self, finished: Finished) -> None:
        windows = finished.windows
        stamp = int(windows.stamps[-1])
        latency = max(0, (time.time_ns() - stamp) // _NS_PER_MS)
        for number, (events, size, payload) in finished.counts.items():
            own = self.source_stats.setdefault(number, EventStats(f"{self._source.name}.inbound.{number}"))
            for one in (self.stats, own):
                one.came(events, size, payload)
        self.stats.came(0, 0, 0, len(windows.scns), EOP_SIZE[self._version] * len(windows.scns))
        for one in (self.stats, *(self.source_stats[number] for number in finished.counts)):
            one.seen(int(windows.scns[0]), int(windows.scns[-1]), stamp, latency)

    def _save(self) -> None:
        """In a thread of its own: until a file is safe the reader could have published many windows."""
        if self._file is None:
            return
        while not self._ended.wait(_SAVE_SECONDS):
            self._save_now(self._file)
        self._save_now(self._file)

    def _save_now(self, file: Path) -> None:
        state = self.position()
        if state == self._saved:
            return
        value: dict[str, Any] = {"v": 1, "kind": self._scn.kind, "gtid": str(state.gtid), "scn": state.scn}
        try:
            write_json(file, value)
        except ConfigError as error:
            log.warning("%s: %s", self._source.name, error)
            self._unsaved = error
            return
        self._saved = state
