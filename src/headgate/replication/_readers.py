"""Readers of the log: a bounded range, a window behind a snapshot chunk, and the growing log.

Each is a :class:`~headgate.replication.resumable.ResumableDump` of another part of the log, which reconnects and
knows when a read is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from headgate.binlog import Segment, codes
from headgate.catalog import TablePatterns
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.offsets import Hint, Last
from headgate.policies import DEFAULT, Policies
from headgate.positions import Position
from headgate.replication._decoder import LogDecoder
from headgate.replication._dump import first_event, open_dump, position_of
from headgate.replication._log_decoding import LogDecoding
from headgate.replication._log_read import LogRead
from headgate.replication._requests import FIRST_EVENT
from headgate.replication._tables import DecodeOptions
from headgate.replication._transport import TRANSPORT, Transport
from headgate.replication._types import Ddl, LogBlock, LogItem, RangeEnd, Stopped
from headgate.replication.resumable import FollowingDump, ResumableDump

__all__ = ["WindowReader", "cut_in_order", "follow", "previous_gtids", "read_range"]

TransactionItem: TypeAlias = LogBlock | Ddl | Stopped
"""Items from the log's transactions."""

_CUT_BYTES_A_ROW: Final = 32
_SMALLEST_PIECE: Final = 16 << 10
"""A cut reads the log in pieces of so many bytes for each row of its limit, but no smaller than this."""


def read_range(
    read: LogRead, options: DecodeOptions, transport: Transport = TRANSPORT
) -> Iterator[TransactionItem | RangeEnd]:
    """Yield exactly the transactions ``read.wanted``, then a ``RangeEnd``.

    :raises BinlogPurgedError: the log no longer holds it.
    :raises IncompleteReadError: it did not arrive in full, after several tries.
    :raises SchemaAmbiguousError: the log does not name the columns of a table, and they can no longer be known.
    """
    dump = ResumableDump(read, LogDecoding(read.settings, options, transport), transport)
    yield from dump.items()
    end = dump.end or Hint("", "", 0)
    yield RangeEnd(dump.server_uuid, end.file, end.pos, read.required, end.created_s, dump.last, dump.first)


class WindowReader:
    """Reader of everything outside ``executed_before``, in steps: each :meth:`read_to` resumes where the last one
    stopped.

    It yields all images: a rewind also needs the before-images of updates that do not change the key.

    :param executed_before: the GTID set from which the window begins.
    :param hint: position of a reader whose set was ``executed_before`` or less.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        executed_before: Position,
        *,
        server_uuid: str | None,
        tables: TablePatterns,
        hint: Hint | None = None,
        policies: Policies = DEFAULT,
        transport: Transport = TRANSPORT,
    ) -> None:
        self._read = LogRead(
            settings, executed_before=executed_before, server_uuid=server_uuid, hint=hint, subject="the window's end"
        )
        options = DecodeOptions(tables, policies=policies, rows="mark", ambiguous="stop")
        self._decoding, self._transport = LogDecoding(settings, options, transport), transport
        self._reached = (0, 0)
        self.last: Last | None = None
        """The newest transaction read; None: there was none, or the log has no GTIDs."""

    @property
    def gtid(self) -> Position:
        """``executed_before`` and everything read since."""
        return self._read.bounds

    def read_to(self, file: str, pos: int) -> Iterator[TransactionItem]:
        """Yield everything up to at least ``(file, pos)`` (a position from the server's SHOW BINARY LOG STATUS).

        :raises IncompleteReadError: the server did not read its log that far, after several tries.
        """
        read = replace(self._read, until=(file, pos))
        if read.is_complete(self._reached):
            return
        dump = ResumableDump(read, self._decoding, self._transport)
        try:
            yield from dump.items()
        finally:
            self._read, self._reached = dump.read, max(self._reached, dump.reached)
            self.last = dump.last or self.last


def follow(
    settings: ConnectionSettings,
    executed_before: Position,
    options: DecodeOptions,
    transport: Transport = TRANSPORT,
    *,
    executed: Position | None = None,
    last: Last | None = None,
    had_by: str | None = None,
) -> Iterator[LogItem]:
    """Yield everything outside ``executed_before`` as it is committed, endlessly; ``Idle`` at the log's end, and often
    before it.

    Each connection is checked first: after a failover it may lead to a server whose log lacks changes.

    :param executed: what an earlier reader has read, and the server must have executed; None: ``executed_before``.
    :param last: the last transaction of it that was read (``Idle.last``). The server's must have the same commit time.
    :param had_by: a server that is known to have executed all of it (``Idle.server_uuid``).
    :raises ServerBehindError: the server has not executed what it must, after several tries.
    :raises HistoryRewrittenError: ``had_by`` no longer has, or ``last`` is another transaction there.
    :raises BinlogPurgedError: the log no longer holds what comes after ``executed_before``.
    :raises ServerSettingError: the server's log does not have all changes, or not as rows.
    """
    read = replace(LogRead.endless(settings, executed_before), executed=executed, had_by=had_by)
    return FollowingDump[TransactionItem](read, LogDecoding(settings, options, transport), transport, last).items()


def previous_gtids(settings: ConnectionSettings, file: str, transport: Transport = TRANSPORT) -> GtidSet:
    """Return the exact set of transactions in all files before ``file``: the body of its PREVIOUS_GTIDS event.

    :raises DecodeError: the file does not begin with one.
    """
    event = first_event(LogRead(settings, start=(file, FIRST_EVENT)), transport)
    if event is None or event[codes.TYPE_OFFSET] != codes.PREVIOUS_GTIDS:
        raise DecodeError("a binlog file does not begin with its PREVIOUS_GTIDS event", file=file)
    return GtidSet.decode(event[codes.HEADER_SIZE :])


def cut_in_order(
    settings: ConnectionSettings,
    executed_before: Position,
    executed: Position,
    *,
    limit_rows: int,
    hint: Hint | None = None,
    transport: Transport = TRANSPORT,
) -> Position:
    """Return a consistent cut after ``executed_before``: the first transactions in the log that hold ``limit_rows``
    changes.

    Only whole transactions, in log order, at least one, and none that ``executed`` lacks. If there are fewer changes,
    all of ``executed``. The cut may exceed the limit by the changes in one piece of the log, and by those of its first
    transaction.

    :param hint: position of a reader whose set was ``executed_before``; ignored if its file's creation time is unknown.
    :raises IncompleteReadError: no transaction arrived.
    """
    hint = hint if hint is not None and hint.created_s else None  # the first ones to arrive must be the log's first
    read = LogRead(settings, wanted=executed - executed_before, executed=executed, hint=hint)
    received = _first_transactions(read, limit_rows, transport)
    if not received:
        raise read.incomplete_error()
    return executed_before | received


def _first_transactions(read: LogRead, limit_rows: int, transport: Transport) -> Position:
    """Return the first transactions of ``read.wanted`` that hold ``limit_rows`` changes, at least one; or all of it."""
    decoder = LogDecoder(read.bounds, DecodeOptions(TablePatterns([])))
    with open_dump(read, transport) as dump:
        dump.stream.at_once = min(max(_CUT_BYTES_A_ROW * limit_rows, _SMALLEST_PIECE), dump.stream.at_once)
        for item in dump.items():
            if isinstance(item, Segment):
                for _ in decoder.decode(item):
                    pass
                if decoder.received_count and decoder.changes >= limit_rows:
                    break
            if read.is_received(decoder.received_count, position_of(item)):
                return read.bounds
    return decoder.received()
