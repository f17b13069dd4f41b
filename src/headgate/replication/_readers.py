"""The readers: a bounded range, a window behind a snapshot chunk, and the log as it grows.

Completeness. A dump's clean end proves nothing (``KILL QUERY`` on the dump thread ends it with a clean EOF). So

- :func:`read_range` is done when the transactions received are exactly those asked for, and fails otherwise;
- :class:`WindowReader` is done when the server has read its log at least to the position that the caller noted;
- :func:`follow` never ends by itself.

Reconnects happen inside. A transaction that was cut off is asked for again whole, and the changes of it that were
handed out before are left out of the second reading (a server sends the same events in the same order; should it be
another server, the check of its UUID fails).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final

from headgate._places import LogPlace, end_of
from headgate._policies import DEFAULT, Policies
from headgate.binlog import LogPosition, Segment, codes
from headgate.catalog import TablePatterns, load_table
from headgate.errors import DecodeError, HeadgateError, IncompleteReadError, Transient
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, read_facts
from headgate.replication._decoder import LogDecoder
from headgate.replication._defaults import Defaults
from headgate.replication._definitions import Definitions
from headgate.replication._dump import Dump, open_dump, open_file_dump
from headgate.replication._settings import check_settings
from headgate.replication._tables import DecodeOptions
from headgate.replication._types import Ddl, Idle, LogBlock, LogHint, LogItem, RangeEnd, Stopped, file_number
from headgate.replication._xa import PreparedTransactions

__all__ = ["WindowReader", "cut_in_order", "follow", "previous_gtids", "read_range"]

_ATTEMPTS: Final = 8
"""Tries without progress before a reader gives up: with the back-off below, about 10 seconds."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 1.0
_CUT_BYTES_A_ROW: Final = 32
_SMALLEST_PIECE: Final = 16 << 10
"""A cut looks at pieces of the log: of so many bytes for each row that it may have, and no smaller than this."""


class _BackOff:
    """Pauses between attempts: doubling, with jitter, until ``attempts`` in a row brought nothing."""

    def __init__(self, attempts: int | None = _ATTEMPTS, sleep: Callable[[float], object] = time.sleep) -> None:
        self._limit, self._sleep = attempts, sleep
        self._failed = 0

    def progress(self) -> None:
        self._failed = 0

    def pause(self, error: HeadgateError) -> None:
        """Sleep before the next attempt, or raise ``error`` if there were enough."""
        self._failed += 1
        if self._limit is not None and self._failed >= self._limit:
            raise error
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (self._failed - 1))
        self._sleep(pause * random.uniform(0.5, 1.0))


def _key_lookup(settings: ConnectionSettings) -> Callable[[str, str], Sequence[str]]:
    """Key columns of tables that have no primary key; asked of information_schema when such a table turns up."""

    def key_of(db: str, table: str) -> Sequence[str]:
        with Connection.open(settings) as connection:
            found = load_table(connection.query, db, table)
        return () if found is None else found.table.key_names

    return key_of


def _case_lookup(settings: ConnectionSettings) -> Callable[[], bool]:
    """Whether the server stores names in lower case; asked once."""

    @cache
    def lower_case() -> bool:
        with Connection.open(settings) as connection:
            return read_facts(connection).lower_case_table_names == 1

    return lower_case


class _Log:
    """What a reader's dumps, one after another, share: all that is asked of the server beside them."""

    def __init__(self, settings: ConnectionSettings, options: DecodeOptions) -> None:
        self._settings = settings
        self._options = options
        self.definitions = Definitions(settings)
        self._prepared = PreparedTransactions(settings, self._decoder)

    def decoder(self, wanted: GtidSet, *, inside: bool = True, skip: tuple[str, int] | None = None) -> LogDecoder:
        """For a dump; XA transactions come out where they are committed."""
        return self._decoder(wanted, inside=inside, skip=skip, prepared=self._prepared)

    def begin(self, server_uuid: str) -> None:
        """A dump of this server has begun."""
        self.definitions.server_uuid = server_uuid
        self._prepared.begin(server_uuid)

    def _decoder(
        self,
        wanted: GtidSet,
        *,
        inside: bool = True,
        skip: tuple[str, int] | None = None,
        prepared: PreparedTransactions | None = None,
    ) -> LogDecoder:
        settings, definitions = self._settings, self.definitions
        return LogDecoder(
            wanted, self._options, _key_lookup(settings), inside=inside, skip=skip, definition_of=definitions.at,
            defaults_of=Defaults(settings, definitions).at, lower_case=_case_lookup(settings), prepared=prepared,
        )  # fmt: skip


def read_range(
    settings: ConnectionSettings,
    wanted: GtidSet,
    *,
    executed: GtidSet,
    server_uuid: str | None,
    tables: TablePatterns,
    epoch: int,
    hint: LogHint | None = None,
    images: str = "all",
    policies: Policies = DEFAULT,
    ambiguous: str = "raise",
) -> Iterator[LogBlock | Ddl | Stopped | RangeEnd]:
    """Exactly the transactions ``wanted``, then a ``RangeEnd``.

    :param executed: what the server had executed when the range was planned (contains ``wanted``).
    :param server_uuid: the server it was planned on; ``None``: any that has executed it.
    :param hint: where a reader stood when everything before ``wanted`` was read.
    :param ambiguous: tables whose columns nobody knows: ``raise``, or ``stop``: a ``Stopped`` in place of their images.
    :raises BinlogPurgedError: the log no longer holds it.
    :raises IncompleteReadError: it did not arrive in full, after several tries.
    :raises SchemaAmbiguousError: the log does not name the columns of a table, and nobody knows them any more.
    """
    options = DecodeOptions(tables, epoch, images, policies, ambiguous)
    remaining, skip, back_off = wanted, None, _BackOff()
    log = _Log(settings, options)
    end: tuple[str, int] | None = None
    uuid = server_uuid or ""
    while remaining:
        decoder = log.decoder(remaining, skip=skip)
        try:
            with (
                log.definitions,
                open_dump(settings, wanted=remaining, executed=executed, server_uuid=server_uuid, hint=hint) as dump,
            ):
                uuid = uuid or dump.server_uuid
                log.begin(dump.server_uuid)
                yield from _decode(dump, decoder, remaining)
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            failure: HeadgateError = error
        else:
            failure = IncompleteReadError("the log ended before all of a range had arrived")
        received = decoder.received()
        end = decoder.end or end
        skip = decoder.unfinished() or skip
        remaining -= received
        if remaining:
            if received:
                back_off.progress()
            failure.fields.setdefault("missing", str(remaining))
            back_off.pause(failure)
    file, pos = end or ("", 0)
    yield RangeEnd(uuid, file, pos, executed)


def _decode(dump: Dump, decoder: LogDecoder, wanted: GtidSet | None) -> Iterator[LogBlock | Ddl | Stopped]:
    """Decode until ``wanted`` has been received, or the dump ends."""
    until = end_of(wanted) if wanted is not None else None
    count = wanted.count() if wanted is not None else None
    for item in dump.items():
        if isinstance(item, Segment):
            yield from decoder.decode(item)
            if count is not None and decoder.received_count >= count:
                return
        else:
            decoder.passed(item.file, item.pos)
        if until is not None and _is_past(item, until):
            return


def _is_past(item: Segment | LogPosition, place: LogPlace) -> bool:
    """Whether the dump has come to a place, or beyond."""
    pos = int(item.next_pos[-1]) if isinstance(item, Segment) else item.pos
    return (file_number(item.file), pos) >= (place.file, place.pos)


class WindowReader:
    """Everything outside ``had``, in steps: each :meth:`read_to` goes on where the last one stopped.

    :param had: the GTID set from which the window begins.
    :param hint: where a reader stood when its set was ``had`` or less.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        had: GtidSet,
        *,
        server_uuid: str | None,
        tables: TablePatterns,
        hint: LogHint | None = None,
        images: str = "all",
        policies: Policies = DEFAULT,
    ) -> None:
        self._settings = settings
        self._had = had
        self._server_uuid = server_uuid
        self._log = _Log(settings, DecodeOptions(tables, 0, images, policies, "stop"))
        self._hint = hint
        self._reached = ("", 0)

    @property
    def gtid(self) -> GtidSet:
        """``had`` and everything read since."""
        return self._had

    def read_to(self, file: str, pos: int) -> Iterator[LogBlock | Ddl | Stopped]:
        """Everything up to at least ``(file, pos)`` (a position of the server's own SHOW BINARY LOG STATUS).

        :raises IncompleteReadError: the server did not read its log that far, after several tries.
        """
        target = (file_number(file), pos)
        back_off, skip = _BackOff(), None
        while (file_number(self._reached[0]), self._reached[1]) < target:
            decoder = self._log.decoder(self._had, inside=False, skip=skip)
            failure: HeadgateError = IncompleteReadError("the log ended before the window's end", file=file, pos=pos)
            try:
                with (
                    self._log.definitions,
                    open_dump(
                        self._settings, had=self._had, executed=self._had, server_uuid=self._server_uuid,
                        hint=self._hint, until=(file, pos),
                    ) as dump,
                ):  # fmt: skip
                    self._log.begin(dump.server_uuid)
                    yield from _decode(dump, decoder, None)
                    if decoder.unfinished() is None:
                        self._reached = (dump.file, dump.pos)
            except HeadgateError as error:
                if not isinstance(error, Transient):
                    raise
                failure = error
            received = decoder.received()
            self._had |= received
            if decoder.end is not None and self._server_uuid is not None:
                self._hint = LogHint(self._server_uuid, *decoder.end)
            skip = decoder.unfinished() or skip
            if (file_number(self._reached[0]), self._reached[1]) < target:
                if received:
                    back_off.progress()
                back_off.pause(failure)


def follow(
    settings: ConnectionSettings,
    had: GtidSet,
    *,
    tables: TablePatterns,
    epoch: int = 0,
    images: str = "all",
    policies: Policies = DEFAULT,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[LogItem]:
    """Everything outside ``had`` as it is committed, for ever; ``Idle`` whenever the log's end was reached.

    Each connection is checked first: after a failover it may lead to a server whose log lacks changes. The dump has a
    random server id above 2³¹, where nobody's servers are.

    :param sleep: how to wait, so many seconds, before a lost connection is made again; an error that it raises ends the
        reading, which is how to end it at once.
    :raises BinlogPurgedError: the log no longer holds what comes after ``had``.
    :raises ServerSettingError: the server's log does not have all changes of the tables, or not as rows.
    """
    options = DecodeOptions(tables, epoch, images, policies)
    identity = random.randrange(1 << 31, (1 << 32) - 1)
    back_off, skip = _BackOff(sleep=sleep), None
    log = _Log(settings, options)
    while True:
        decoder = log.decoder(had, inside=False, skip=skip)
        failure: HeadgateError = IncompleteReadError("the server ended the dump")
        try:
            with (
                log.definitions,
                open_dump(
                    settings,
                    had=had,
                    executed=had,
                    server_id=identity,
                    heartbeat_seconds=_HEARTBEAT_SECONDS,
                    check=partial(check_settings, tables=tables, gtids=end_of(had) is None, ordered=False),
                ) as dump,
            ):
                log.begin(dump.server_uuid)
                for item in _follow_items(dump, decoder, had):
                    back_off.progress()
                    yield item
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            failure = error
        had |= decoder.received()
        skip = decoder.unfinished() or skip
        back_off.pause(failure)


def _follow_items(dump: Dump, decoder: LogDecoder, had: GtidSet) -> Iterator[LogItem]:
    for item in dump.items():
        if isinstance(item, Segment):
            yield from decoder.decode(item)
        else:
            decoder.passed(item.file, item.pos)
        if not dump.stream.end > dump.stream.start and decoder.unfinished() is None:
            hint = None if decoder.end is None else LogHint(dump.server_uuid, *decoder.end)
            yield Idle(had | decoder.received(), hint)


def previous_gtids(settings: ConnectionSettings, file: str) -> GtidSet:
    """The exact set of transactions in all files before ``file``: the body of its PREVIOUS_GTIDS event.

    :raises DecodeError: the file does not begin with one.
    """
    with Connection.open(settings) as connection, open_file_dump(connection, file) as dump:
        for item in dump.items():
            if not isinstance(item, Segment):
                continue
            start, end = int(item.start[0]), int(item.end[0])
            if item.buf[start + codes.TYPE_OFFSET] == codes.PREVIOUS_GTIDS:
                return GtidSet.decode(item.buf[start + codes.HEADER_SIZE : end].tobytes())
            break
    raise DecodeError("a binlog file does not begin with its PREVIOUS_GTIDS event", file=file)


def cut_in_order(
    settings: ConnectionSettings, had: GtidSet, executed: GtidSet, *, limit_rows: int, hint: LogHint | None = None
) -> GtidSet:
    """A consistent cut after ``had``: the transactions met first in the log, until they hold ``limit_rows`` changes.

    Only whole transactions, in log order, and none that ``executed`` lacks; all of it if it holds fewer changes. It may
    go beyond the limit by what one piece of the log holds.
    """
    wanted = executed - had
    until = end_of(wanted)
    decoder = LogDecoder(wanted, DecodeOptions(TablePatterns([])), lambda _db, _table: ())
    with open_dump(settings, wanted=wanted, executed=executed, hint=hint) as dump:
        dump.stream.at_once = min(max(_CUT_BYTES_A_ROW * limit_rows, _SMALLEST_PIECE), dump.stream.at_once)
        for item in dump.items():
            if isinstance(item, Segment):
                for _ in decoder.decode(item):
                    pass
                if decoder.changes >= limit_rows or decoder.received_count >= wanted.count():
                    break
            if until is not None and _is_past(item, until):
                return executed
    return had | decoder.received()
