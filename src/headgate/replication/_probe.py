"""Headers of single transactions. Commit times distinguish a rewritten history from the one already read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import NamedTuple

from headgate.binlog import GtidEvent, Segment, gtid_events
from headgate.errors import BinlogPurgedError, HeadgateError, HistoryRewrittenError, IncompleteReadError
from headgate.mysql import REWRITTEN
from headgate.offsets import Hint, Last
from headgate.positions import Position, file_number, parse_position
from headgate.replication._dump import open_dump, position_of
from headgate.replication._log_read import LogRead
from headgate.replication._transport import TRANSPORT, Transport

__all__ = ["TransactionHeader", "check_header", "check_history", "last_header", "transaction_headers"]

_LARGE_BYTES = 1 << 20
"""A transaction of which more than this has arrived is skipped by another dump."""


class TransactionHeader(NamedTuple):
    """Begin of a transaction in the log."""

    key: Position
    """The transaction alone; in a log without GTIDs, the bytes from its begin on that were requested."""
    commit_us: int
    """:attr:`headgate.binlog.GtidEvent.commit_us`"""
    is_original: bool
    """Whether this is the time in each server's log."""
    server_uuid: str
    """Server in whose log it is."""
    file: str
    pos: int
    created_s: int
    """When the server created the file, seconds since the Unix epoch."""

    @property
    def hint(self) -> Hint:
        """Return its position."""
        return Hint(self.server_uuid, self.file, self.pos, self.created_s)

    @property
    def last(self) -> Last:
        """Return the form that offsets hold."""
        return Last(str(self.key), self.commit_us)

    @classmethod
    def of(cls, key: Position, event: GtidEvent, hint: Hint) -> TransactionHeader:
        """Return the header of an event.

        :param hint: its position.
        """
        return cls(key, event.commit_us, event.is_original, *astuple(hint))


def check_history(read: LogRead, last: Last, transport: Transport = TRANSPORT, *, hint: Hint | None = None) -> None:
    """Check that the log still has a transaction that was read. Without an error it does, or has purged it.

    :param read: gives the settings, and the server that is known to have executed the transaction.
    :param hint: the transaction's position, if known.
    :raises HistoryRewrittenError: the GTID names another transaction, or the server lost it.
    :raises ServerBehindError: another server lacks it.
    """
    key = parse_position(last.gtid)
    one = LogRead(read.settings, wanted=key, executed=key, had_by=read.had_by, hint=hint)
    try:
        (header,) = transaction_headers(one, transport)
    except BinlogPurgedError:
        return
    check_header(header, last, read.had_by)


def check_header(header: TransactionHeader, last: Last, read_on: str | None) -> None:
    """Check that a header is of the transaction that was read. If the original time is unknown, each server's log has
    another time, so transactions on two servers cannot be compared.

    :param read_on: UUID of the server on which it was read; None: unknown.
    :raises HistoryRewrittenError: it is of another one with the same GTID.
    """
    if header.commit_us != last.ts_us and (header.is_original or header.server_uuid == read_on):
        raise HistoryRewrittenError(
            REWRITTEN.format("a transaction that was read has another commit time"), gtid=last.gtid
        )


def transaction_headers(read: LogRead, transport: Transport = TRANSPORT) -> list[TransactionHeader]:
    """Return the headers of the transactions ``read.wanted``, in log order. If a dump cannot be requested of them
    (``Position.requests_transactions``), the header of the first transaction in each part, if there is one (a new file
    may hold none yet). For a single byte it is that of the first transaction there or behind it.

    A dump is ended as soon as the last one has begun, and when much of another has arrived. A hint that does not lead
    to all of them is dropped.

    :raises BinlogPurgedError: the log no longer holds one of them.
    :raises IncompleteReadError: one did not arrive, or the dump ended before the last position.
    """
    left = read.bounds
    if not left.requests_transactions:
        return [one for part in left.parts() for one in _first_header(replace(read, wanted=part), transport)]
    headers: list[TransactionHeader] = []
    while left:
        count = len(headers)
        try:
            for header in _dumped(replace(read, wanted=left), transport):
                headers.append(header)
                left -= header.key
            if len(headers) > count:
                read = replace(read, hint=headers[-1].hint)  # all others are behind it
        except HeadgateError:
            if read.hint is None:
                raise
            count = len(headers)
        if len(headers) == count:
            if read.hint is None:
                raise IncompleteReadError("transactions did not arrive", missing=str(left))
            read = replace(read, hint=None)
    return sorted(headers, key=lambda header: (file_number(header.file), header.pos))


def last_header(read: LogRead, header: TransactionHeader, transport: Transport = TRANSPORT) -> TransactionHeader:
    """Return the header of the last transaction of ``read.executed`` in the log, at ``header`` or behind it.

    ``read.executed`` must begin the log: the first other transaction ends it.

    :param read: everything outside ``read.executed_before``, which has the transaction of ``header``. At ``until``
        nothing of ``read.executed`` is left.
    :raises IncompleteReadError: the dump ended before ``until``.
    """
    executed, last = read.required, header
    with open_dump(replace(read, hint=header.hint), transport) as dump:
        for item in dump.items():
            for event in gtid_events(item) if isinstance(item, Segment) else ():
                key = executed.key_of(event.gtid, file_number(item.file), event.pos)
                if key not in executed:
                    return last
                last = TransactionHeader.of(executed.only(key), event, dump.hint(item.file, event.pos))
            if read.is_complete(position_of(item)):
                return last
    if read.until is None:  # an archive, whose end is one
        return last
    raise read.incomplete_error()


def _first_header(read: LogRead, transport: Transport) -> list[TransactionHeader]:
    """Return the header of the first transaction in ``read.wanted``, one part of a log that has no GTIDs."""
    part = read.bounds
    (_, _, first, last), is_byte = next(part.intervals()), part.count() == 1
    with open_dump(read, transport) as dump:
        for item in dump.items():
            for event in gtid_events(item) if isinstance(item, Segment) else ():
                key = part.key_of(event.gtid, file_number(item.file), event.pos)
                if key.number < first:  # a request cannot begin behind 4 GiB in a file
                    continue
                if key.number > last and not is_byte:
                    return []
                begin = part.only(key._replace(number=first))
                return [TransactionHeader.of(begin, event, dump.hint(item.file, event.pos))]
            if not is_byte and part.is_complete(0, position_of(item)):
                return []
    raise read.incomplete_error()


def _dumped(read: LogRead, transport: Transport) -> Iterator[TransactionHeader]:
    """Yield headers from one dump until all have come, or the rest of a large transaction is in the way."""
    wanted = read.bounds
    left, size = wanted.count(), 0
    with open_dump(read, transport) as dump:
        for segment in dump.segments():
            size += int(segment.end[-1]) - int(segment.start[0])
            for event in gtid_events(segment):
                key = wanted.key_of(event.gtid, file_number(segment.file), event.pos)
                if key in wanted:
                    yield TransactionHeader.of(wanted.only(key), event, dump.hint(segment.file, event.pos))
                    left, size = left - 1, 0
            if not left or (left < wanted.count() and size > _LARGE_BYTES):
                return
