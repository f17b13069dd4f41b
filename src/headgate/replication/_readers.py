"""The readers: a bounded range, a window behind a snapshot chunk, and the log as it grows.

All of them are a :class:`~headgate.replication._resumable.ResumableDump` of another part of the log, which reconnects
inside and says when a read is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from headgate._policies import DEFAULT, Policies
from headgate.binlog import Segment, codes
from headgate.catalog import TablePatterns
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.replication._decoder import LogDecoder
from headgate.replication._dump import first_event, open_dump, place_of
from headgate.replication._log_decoding import LogDecoding
from headgate.replication._log_read import LogRead
from headgate.replication._requests import FIRST_EVENT
from headgate.replication._resumable import FollowingDump, ResumableDump
from headgate.replication._tables import DecodeOptions
from headgate.replication._transport import TRANSPORT, Pacing, Transport
from headgate.replication._types import Ddl, LogBlock, LogHint, LogItem, RangeEnd, Stopped

__all__ = ["WindowReader", "cut_in_order", "follow", "following_items", "previous_gtids", "range_items", "read_range"]

Found: TypeAlias = LogBlock | Ddl | Stopped
"""What the log's transactions give."""

_CUT_BYTES_A_ROW: Final = 32
_SMALLEST_PIECE: Final = 16 << 10
"""A cut looks at pieces of the log: of so many bytes for each row that it may have, and no smaller than this."""


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
) -> Iterator[Found | RangeEnd]:
    """Exactly the transactions ``wanted``, then a ``RangeEnd``.

    :param executed: what the server had executed when the range was planned (contains ``wanted``).
    :param server_uuid: the server it was planned on; ``None``: any that has executed it.
    :param hint: where a reader stood when everything before ``wanted`` was read.
    :param ambiguous: tables whose columns nobody knows: ``raise``, or ``stop``: a ``Stopped`` in place of their images.
    :raises BinlogPurgedError: the log no longer holds it.
    :raises IncompleteReadError: it did not arrive in full, after several tries.
    :raises SchemaAmbiguousError: the log does not name the columns of a table, and nobody knows them any more.
    """
    read = LogRead(settings, wanted=wanted, executed=executed, server_uuid=server_uuid, hint=hint)
    return range_items(read, DecodeOptions(tables, epoch, images, policies, ambiguous))


def range_items(read: LogRead, options: DecodeOptions, transport: Transport = TRANSPORT) -> Iterator[Found | RangeEnd]:
    """As :func:`read_range`."""
    dump = ResumableDump(read, LogDecoding(read.settings, options, transport), transport)
    yield from dump.items()
    file, pos = dump.end or ("", 0)
    yield RangeEnd(dump.server_uuid, file, pos, read.executed or GtidSet())


class WindowReader:
    """Everything outside ``had``, in steps: each :meth:`read_to` goes on where the last one stopped.

    All images come: a rewind needs the before-images of updates that leave the key alone, too.

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
        policies: Policies = DEFAULT,
        transport: Transport = TRANSPORT,
    ) -> None:
        self._read = LogRead(settings, had=had, server_uuid=server_uuid, hint=hint, subject="the window's end")
        options = DecodeOptions(tables, policies=policies, ambiguous="stop")
        self._decoding, self._transport = LogDecoding(settings, options, transport), transport
        self._reached = (0, 0)

    @property
    def gtid(self) -> GtidSet:
        """``had`` and everything read since."""
        return self._read.had or GtidSet()

    def read_to(self, file: str, pos: int) -> Iterator[Found]:
        """Everything up to at least ``(file, pos)`` (a position of the server's own SHOW BINARY LOG STATUS).

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

    Each connection is checked first: after a failover it may lead to a server whose log lacks changes.

    :param sleep: how to wait, so many seconds, before a lost connection is made again; an error that it raises ends the
        reading, which is how to end it at once.
    :raises BinlogPurgedError: the log no longer holds what comes after ``had``.
    :raises ServerSettingError: the server's log does not have all changes of the tables, or not as rows.
    """
    read, options = LogRead.endless(settings, had, tables), DecodeOptions(tables, epoch, images, policies)
    return following_items(read, options, Transport(pacing=Pacing(sleep=sleep)))


def following_items(read: LogRead, options: DecodeOptions, transport: Transport = TRANSPORT) -> Iterator[LogItem]:
    """As :func:`follow`."""
    decoding = LogDecoding(read.settings, options, transport)
    return FollowingDump[Found](read, decoding, transport).items()


def previous_gtids(settings: ConnectionSettings, file: str, transport: Transport = TRANSPORT) -> GtidSet:
    """The exact set of transactions in all files before ``file``: the body of its PREVIOUS_GTIDS event.

    :raises DecodeError: the file does not begin with one.
    """
    event = first_event(LogRead(settings, start=(file, FIRST_EVENT)), transport)
    if event is None or event[codes.TYPE_OFFSET] != codes.PREVIOUS_GTIDS:
        raise DecodeError("a binlog file does not begin with its PREVIOUS_GTIDS event", file=file)
    return GtidSet.decode(event[codes.HEADER_SIZE :])


def cut_in_order(
    settings: ConnectionSettings, had: GtidSet, executed: GtidSet, *, limit_rows: int, hint: LogHint | None = None
) -> GtidSet:
    """A consistent cut after ``had``: the transactions met first in the log, until they hold ``limit_rows`` changes.

    Only whole transactions, in log order, and none that ``executed`` lacks; all of it if it holds fewer changes. It may
    go beyond the limit by what one piece of the log holds.
    """
    read = LogRead(settings, wanted=executed - had, executed=executed, hint=hint)
    decoder = LogDecoder(executed - had, DecodeOptions(TablePatterns([])), lambda _db, _table: ())
    with open_dump(read) as dump:
        dump.stream.at_once = min(max(_CUT_BYTES_A_ROW * limit_rows, _SMALLEST_PIECE), dump.stream.at_once)
        for item in dump.items():
            if isinstance(item, Segment):
                for _ in decoder.decode(item):
                    pass
                if decoder.changes >= limit_rows or decoder.received_count >= (read.count or 0):
                    break
            if read.stop is not None and place_of(item) >= read.stop:
                return executed
    return had | decoder.received()
