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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate._policies import Policies
from headgate.catalog import TablePatterns, load_tables
from headgate.errors import ConfigError, HeadgateError, Transient
from headgate.gtid import Gtid, GtidSet, GtidSetBuilder
from headgate.mysql import Connection, gtid_executed
from headgate.relay._assemble import Assembler, Finished
from headgate.relay._buffer import EventBuffer
from headgate.relay._events import EOP_SIZE
from headgate.relay._files import read_json, write_json
from headgate.relay._schemas import Registry
from headgate.relay._scn import Scn
from headgate.relay._sources import PhysicalSource, SourceNames
from headgate.relay._stats import EventStats
from headgate.replication import Idle, LogBlock, follow

__all__ = ["Feeder", "State", "load_state"]

log = logging.getLogger("headgate")

_SAVE_SECONDS: Final = 0.2
"""At most so much has to be read again after a kill."""
_RETRY_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 5.0
"""The log's reader hears of the stop with its next heartbeat, each second."""
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True)
class State:
    """Where a feeder is."""

    gtid: GtidSet
    scn: int


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


class Feeder:
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
        policies: Policies | None = None,
    ) -> None:
        self._source, self._names, self._registry, self._buffer, self._scn = source, names, registry, buffer, scn
        self._had, self._file, self._version, self._scn_column = state.gtid, file, version, scn_column
        self._policies = policies or Policies()
        self._patterns = TablePatterns([one.table for one in source.sources])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headgate-relay-{source.name}", daemon=True)
        self._saved, self._saved_at = state, 0.0
        self._scn_saved = state.scn
        self._builder = GtidSetBuilder(state.gtid)
        self._sources: dict[str, tuple[bytes, str]] = {}
        self.stats = EventStats(f"{source.name}.inbound")
        self.source_stats: dict[int, EventStats] = {}
        self.problem: str | None = None
        """Why it stands still; None: it runs."""
        self.failed = False
        """Whether that will not go away by itself."""

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
        if missing:  # a replica that is behind, which will catch up, or a log that began anew, which will not
            self.problem = (
                f"the server has not executed {missing}, which the relay has: wait for it, connect to another one, or, "
                "if its log began anew, start the relay with --anew"
            )
            log.warning("%s: %s", self._source.name, self.problem)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End reading and keep the state. Whoever waits in a full buffer gives up."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._buffer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except HeadgateError as error:
                if self._stop.is_set():  # a server that is away while the relay ends is no news
                    return
                self.problem = str(error)
                self.failed = not isinstance(error, Transient)
                log.warning("%s: %s", self._source.name, error)
                if self.failed:
                    return
                self._stop.wait(_RETRY_SECONDS)
            except Exception as error:
                self.problem, self.failed = f"unexpected {type(error).__name__}: {error}", True
                log.exception("%s: the relay's reader ended", self._source.name)
                return

    def _follow(self) -> None:
        assembler = Assembler(
            self._names.of(self._source.id), self._registry, self._scn, partition=self._source.id,
            version=self._version, scn_column=self._scn_column,
        )  # fmt: skip
        self._had = self._builder.build()
        items = follow(self._source.settings, self._had, tables=self._patterns, images="keys", policies=self._policies)
        try:
            for item in items:
                self.problem = None
                finished = None
                if isinstance(item, LogBlock):
                    finished = assembler.add(item)
                elif isinstance(item, Idle):
                    finished = assembler.flush()
                if finished is not None and not self._publish(finished):
                    return
                if isinstance(item, Idle):
                    self._builder = GtidSetBuilder(item.gtid)
                self._save()
                if self._stop.is_set():
                    return
        finally:
            items.close()  # type: ignore[attr-defined]
            self._save(at_once=True)

    def _publish(self, finished: Finished) -> bool:
        windows = finished.windows
        if not self._buffer.append(windows, give_up=self._stop.is_set):
            return False
        for gtid in finished.gtids:
            source, _, number = gtid.rpartition(":")
            uuid, tag = self._uuid_of(source)
            self._builder.add_interval(uuid, tag, int(number), int(number))
        self._scn_saved = int(windows.scns[-1])
        self._count(finished)
        return True

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
                one.events += events
                one.bytes += size
                one.payload += payload
        self.stats.control += len(windows.scns)
        self.stats.control_bytes += EOP_SIZE[self._version] * len(windows.scns)
        for one in (self.stats, *(self.source_stats[number] for number in finished.counts)):
            one.seen(int(windows.scns[0]), int(windows.scns[-1]))
            one.last_stamp, one.latency_ms = stamp, latency

    def _save(self, *, at_once: bool = False) -> None:
        if self._file is None or (not at_once and time.monotonic() - self._saved_at < _SAVE_SECONDS):
            return
        state = State(self._builder.build(), self._scn_saved)
        if state != self._saved:
            value: dict[str, Any] = {"v": 1, "kind": self._scn.kind, "gtid": str(state.gtid), "scn": state.scn}
            write_json(self._file, value)
            self._saved = state
        self._saved_at = time.monotonic()
