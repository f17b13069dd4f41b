"""Copy a server's binlog to a buffer: one thread for each physical source.

Guarantees. Every transaction that changes a followed table is appended to the buffer whole, in binlog order, once; or
the feeder stops and reports why. Its *state* is the set of all transactions up to a position in the log, whatever they
touch, the last of them with its commit time, and the SCN of the last window. All are of one moment, and are saved
together, after the windows they include. After a restart the buffer drops newer windows, and the feeder reads the
binlog from the state's set on: the same transactions come again, with the same SCNs and the same bytes. A set with
holes would do for the followed tables, but not for a binlog archive that begins there, or a table that joins.

:func:`headgate.replication.follow` reconnects. When it gives up, the feeder retries forever, from the state, and passes
over the windows that the buffer has. Meanwhile another server may answer: it must have executed all that the buffer
has, and its log must bring exactly that first. A permanent error (a table that cannot be written, SCNs that cannot
grow) ends the feeder: the buffer still serves its content, and the status reports the error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from headgate.catalog import TableDef, load_tables
from headgate.columns import check_rules, column_rules, target_table
from headgate.errors import ConfigError, HeadgateError, IncompleteReadError, ScnOrderError, ServerBehindError, Transient
from headgate.gtid import GtidSet
from headgate.mysql import Connection, cascades, gtid_executed
from headgate.names import lower_name
from headgate.policies import MASKS
from headgate.relay.databus import EOP_SIZE
from headgate.relay.server._assemble import Assembler, Finished
from headgate.relay.server._buffer import EventBuffer
from headgate.relay.server._counters import Counters
from headgate.relay.server._names import SourceNames
from headgate.relay.server._position import FeederState, StateFile
from headgate.relay.server._scn import Scn
from headgate.relay.server._segments import Windows
from headgate.relay.server._sources import PhysicalSource, RelayConfig
from headgate.relay.server._warm import warm
from headgate.relay.server.events import Registry
from headgate.replication import Ddl, DecodeOptions, Idle, LogBlock, LogItem, Transport, follow
from headgate.retrying import Retrying, RetryPolicy

__all__ = ["Feeder"]

log = logging.getLogger("headgate")

_RETRY: Final = RetryPolicy.every(5.0)
_GATHER_SECONDS: Final = 0.004
"""Shortest time between two blocks' starts. Decoding, numbering and announcing a block takes 1 to 2 ms however small it
is. Under load each takes what has come meanwhile, and half the time is left to serve consumers."""
_NS_PER_US: Final = 1000
_ROWS_CHANGE: Final[Mapping[str, str]] = {
    "alter": "altered in a way that may change rows",
    "drop": "dropped",
    "rename": "renamed",
    "drop_database": "dropped with its database",
}
"""What statements do to rows without row images, by ``Ddl.action``. TRUNCATE comes as an image (``_assemble``)."""


def _behind_message(missing: str) -> str:
    return (
        f"the server has not executed {missing}, which the relay has: wait for it, connect to another one, or, "
        "if its binlog was reset, start the relay with --anew"
    )


class Feeder(Retrying):
    """Reads the binlog of one source into its buffer.

    :param state_file: with the position where to begin, moved as it reads.
    :param start: returns what counts as already read, if the position has not begun.
    """

    def __init__(
        self,
        source: PhysicalSource,
        names: SourceNames,
        registry: Registry,
        buffer: EventBuffer,
        scn: Scn,
        counters: Counters,
        *,
        state_file: StateFile,
        start: Callable[[PhysicalSource], GtidSet],
        config: RelayConfig,
    ) -> None:
        super().__init__(f"headgate-relay-{source.name}", source.name, _RETRY)
        self._source, self._registry, self._buffer, self._scn = source, registry, buffer, scn
        self._source_of = partial(names.find, source.id)
        self._config, self._policies = config, config.policies
        self._transport = Transport().retrying(sleep=self._pause)
        self._start, self._is_postponed, self._counters = start, False, counters
        self._file, self.position = state_file, state_file.position
        self._again = GtidSet()
        """Published transactions that a retry has yet to read again."""

    def prepare(self) -> None:
        """Set where to begin, and give every existing table an id and a schema, so that consumers can register before
        its first change. If the server cannot be reached, the thread does both when it can.

        :raises HeadgateError: another error: a table cannot be followed, or a rule is not for its column.
        """
        try:
            self._prepare()
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            self._is_postponed, self._since = True, time.monotonic()
            self._note_problem(self._describe(error))
            log.warning("%s: %s", self._source.name, self.problem)

    def begin(self) -> None:
        """Set where to begin, if there is no state.

        :raises HeadgateError: the server cannot be queried.
        """
        if not self.position.has_begun:
            self.position.begin(FeederState(self._start(self._source), -1))

    def _prepare(self) -> None:
        self.begin()
        policies = self._policies
        with Connection.open(self._source.settings) as connection:
            tables = load_tables(connection.query, self._source.patterns)
            missing = self.position.now().gtid - gtid_executed(connection)
            self._warn_unlogged(connection, tables)
        for pattern in check_rules(policies, tables):
            log.warning("%s: the rule for %s in [columns] matches no column yet", self._source.name, pattern)
        for table in tables:
            self._check_scn_column(table)
            written = target_table(table, policies)
            self._registry.schema_of(self._source_of(table.db, table.name).name, written)
        warm(tables, policies, self._source_of, self._registry.types, version=self._config.event_version)
        self._is_postponed = False
        self._warn_no_table()
        if missing:  # a lagging replica, which will catch up, or a reset binlog, which will not
            self._note_problem(_behind_message(str(missing)))
            log.warning("%s: %s", self._source.name, self.problem)

    def _warn_unlogged(self, connection: Connection, tables: Sequence[TableDef]) -> None:
        """Log foreign keys that change rows of the tables unseen."""
        for key in cascades(connection, [(table.db, table.name) for table in tables]):
            log.warning(
                "%s: %s change its rows without events (%s), so consumers keep them as they were: use RESTRICT, or "
                "MySQL 9.6+ with innodb_native_foreign_keys=OFF",
                self._source.name,
                key.name,
                key.actual,
            )

    def _warn_no_table(self) -> None:
        """Log missing tables: they may come later, but perhaps the name is wrong."""
        for one in self._source.sources:
            if not one.is_pattern and not self._registry.versions(one.name):
                log.warning(
                    "%s: there is no table %s (source %s) yet: check the spelling (case counts) and the grants",
                    self._source.name,
                    one.table,
                    one.name,
                )

    def _check_scn_column(self, table: TableDef) -> None:
        """:raises ConfigError: a rule hides the column that SCNs are made of: each is one of its values."""
        if self._config.scn_column is None:
            return
        column = lower_name(self._config.scn_column)
        for one, rule in zip(table.columns, column_rules(self._policies, table), strict=True):
            if rule.kind in MASKS and column in map(lower_name, (one.name, f"{table.full_name}.{one.name}")):
                raise ConfigError(
                    f"[columns] hides {one.name} of {table.full_name}, and scn_column shows its values: use another"
                    ' kind of SCN, or give the column the rule "keep"'
                )

    def _describe(self, error: HeadgateError) -> str:
        missing = error.fields.get("missing") if isinstance(error, ServerBehindError) else None
        return super()._describe(error) if missing is None else _behind_message(missing)

    def start(self) -> None:
        """Start reading."""
        self._begin()

    def stop(self) -> None:
        """Stop reading, and save the state."""
        self._stop.set()
        self.position.close()
        self._end()
        self._file.stop()
        self._buffer.close()

    @property
    def problems(self) -> list[str]:
        """Current problems, as text."""
        return [one for one in (self.problem, self._file.problem) if one is not None]

    def _work(self) -> None:
        if self._is_postponed:
            self._prepare()
        # The position is saved before any event comes: a relay that is killed at once and has no state would begin
        # elsewhere, and a consumer's bootstrap that has begun would miss the changes in between.
        self._file.save()
        self._file.start()
        state, now = self.position.prefix(), self.position.now()
        self._scn.last = state.scn  # an error may have come between numbers and buffer
        self._again = now.gtid - state.gtid
        assembler, items, begun_at = self._new_assembler(), self._items(state, now), time.monotonic()
        try:
            for item in items:
                if not isinstance(item, Idle) or item.is_end or item.gtid != state.gtid:  # otherwise nothing has come
                    self._resume()
                self._take(item, assembler)
                if isinstance(item, Idle) and item.is_end:
                    begun_at = self._gather(begun_at)
                if self._stop.is_set():
                    return
        finally:
            items.close()  # type: ignore[attr-defined]

    def _new_assembler(self) -> Assembler:
        config = self._config
        return Assembler(
            self._source_of,
            self._registry,
            self._scn,
            partition=self._source.id,
            version=config.event_version,
            scn_column=config.scn_column,
            before_images=config.before_images,
        )

    def _items(self, state: FeederState, now: FeederState) -> Iterator[LogItem]:
        """Return what follows ``state`` in the log.

        :param now: what the buffer has, so the server must have it, too.
        """
        images = "all" if self._config.before_images else "keys"
        return follow(
            self._source.settings,
            state.gtid,
            DecodeOptions(self._source.patterns, images=images, policies=self._policies),
            self._transport,
            executed=now.gtid,
            last=now.last,
            had_by=now.server_uuid,
        )

    def _take(self, item: LogItem, assembler: Assembler) -> None:
        """Take the next item of the log."""
        finished = None
        if isinstance(item, LogBlock):
            finished = assembler.add(item)
        elif isinstance(item, Idle):
            finished = assembler.flush(item.unfinished)
        elif isinstance(item, Ddl):
            self._warn_without_events(item)
        if finished is not None:
            self._publish(finished)
        if isinstance(item, Idle):
            self.position.reach(item, self._scn.last)

    def _warn_without_events(self, statement: Ddl) -> None:
        """Log a statement that may have changed rows: the log has no row images of that."""
        action = _ROWS_CHANGE.get(statement.action)
        if action is not None and (statement.action != "alter" or statement.changes is None):
            log.warning(
                "%s: %s.%s was %s: Databus has no event for that, so consumers keep its rows as they were; let them "
                "bootstrap",
                self._source.name,
                statement.db,
                statement.table,
                action,
            )

    def _pause(self, seconds: float) -> None:
        """:raises IncompleteReadError: the relay is stopping, so the wait for the server ends."""
        if self._stop.wait(seconds):
            raise IncompleteReadError("the relay is stopping")

    def _gather(self, begun_at: float) -> float:
        """Wait until the next block may begin, if the last one began at ``begun_at``; return that time."""
        left = begun_at + _GATHER_SECONDS - time.monotonic()
        if left > 0:
            time.sleep(left)
        return time.monotonic()

    def _publish(self, finished: Finished) -> None:
        had, count = self._in_buffer(finished.windows), len(finished.gtids)
        self._check_again(finished.gtids, had)
        if had == count:
            return
        new = finished.part(had, count)
        self._warn_too_large(new.windows)
        try:
            self._buffer.append(new.windows)
        finally:  # the position has what consumers may have
            whole = self._in_buffer(new.windows)
            if whole:
                last_us = int(new.windows.stamps[whole - 1]) // _NS_PER_US
                self.position.publish(new.gtids[:whole], int(new.windows.scns[whole - 1]), last_us)
                self._count(new.part(0, whole))

    def _check_again(self, gtids: Sequence[str], had: int) -> None:
        """Check that a retry reads the transactions that the relay has published, and then new ones.

        :param gtids: whole transactions, in log order.
        :param had: how many of them have SCNs that the buffer reached.
        :raises ScnOrderError: the server's log has others, or another order.
        """
        passed = GtidSet.parse(",".join(gtids[:had]))
        other, self._again = passed - self._again, self._again - passed
        if had < len(gtids) and self._again:
            other = GtidSet.parse(gtids[had])
        if other:
            raise ScnOrderError(
                f"the server's log has {other} where the relay has published other transactions, perhaps in another "
                "order after a failover: start the relay with --anew, and let the consumers bootstrap",
                gtid=str(other),
            )

    def _in_buffer(self, windows: Windows) -> int:
        """Return how many of the windows the buffer has, or had."""
        return int(np.searchsorted(windows.scns, self._buffer.reached_scn, "right"))

    def _warn_too_large(self, windows: Windows) -> None:
        sizes, most = np.diff(windows.ends, prepend=0), self._buffer.most_bytes
        for i in np.flatnonzero(sizes > most).tolist():
            log.warning(
                "%s: the transaction with SCN %d takes %d bytes, more than the buffer's limit (%d): it is alone in the "
                "buffer, and consumers that do not have all of it when the next one comes are too far behind: "
                "increase memory_bytes or disk_bytes",
                self._source.name,
                int(windows.scns[i]),
                int(sizes[i]),
                most,
            )

    def _count(self, finished: Finished) -> None:
        windows = finished.windows
        count = len(windows.scns)
        scns = int(windows.scns[0]), int(windows.scns[-1])
        control_size = EOP_SIZE[self._config.event_version] * count
        newest_us = int(windows.stamps[-1]) // _NS_PER_US
        self._counters.receive(self._source.id, finished.counts, (count, control_size, *scns), newest_us)
