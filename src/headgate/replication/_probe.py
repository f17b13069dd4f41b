"""Commit time of one transaction, which distinguishes a rewritten history from the one already read."""

from __future__ import annotations

from typing import Final

from headgate.binlog import Segment, codes, parse_tagged_gtid
from headgate.binlog_positions import TAG
from headgate.errors import ConfigError, IncompleteReadError
from headgate.gtid import Gtid, GtidSet
from headgate.mysql import ConnectionSettings
from headgate.replication._dump import open_dump
from headgate.replication._log_read import LogRead
from headgate.replication._types import LogHint

__all__ = ["commit_time", "original_commit_us"]

_IMMEDIATE: Final = 42
"""Offset of the immediate commit time in a GTID event's body, behind flags (1), UUID (16), number (8), clock type (1),
two logical clocks (8 each) (MySQL source libs/mysql/binlog/event/control_events.h, ``Gtid_event``)."""
_TIME_SIZE: Final = 7
_ORIGINAL_FOLLOWS: Final = 1 << 55
"""Set in the immediate time if the original time differs and follows."""


def commit_time(settings: ConnectionSettings, gtid: GtidSet, *, hint: LogHint | None = None) -> int:
    """Return the original commit time of a transaction, in microseconds since 1970-01-01 UTC; 0 if it carries none.

    :param gtid: exactly one transaction.
    :param hint: position of a reader before the transaction.
    :raises BinlogPurgedError: the log no longer holds it.
    :raises IncompleteReadError: it did not arrive.
    """
    if gtid.count() != 1:
        raise ConfigError(f"expected exactly one transaction, not {gtid}")
    one = next(iter(gtid))
    with open_dump(LogRead(settings, wanted=gtid, hint=hint)) as dump:
        for item in dump.items():
            if isinstance(item, Segment):
                time_us = _find(item, one)
                if time_us is not None:
                    return time_us
    raise IncompleteReadError("a transaction did not arrive", gtid=str(gtid))


def _find(segment: Segment, wanted: Gtid) -> int | None:
    for start, end in zip(segment.start.tolist(), segment.end.tolist(), strict=True):
        kind = int(segment.buf[start + codes.TYPE_OFFSET])
        body = segment.buf[start + codes.HEADER_SIZE : end]
        if kind == codes.ANONYMOUS_GTID and wanted.tag == TAG:
            return original_commit_us(body.tobytes())  # the dump began at its position
        if kind == codes.GTID and not wanted.tag:
            data = body.tobytes()
            if data[1:17] == wanted.uuid and int.from_bytes(data[17:25], "little") == wanted.number:
                return original_commit_us(data)
        elif kind == codes.GTID_TAGGED and wanted.tag:
            tagged = parse_tagged_gtid(body.tobytes())
            if (tagged.sid, tagged.tag, tagged.number) == (wanted.uuid, wanted.tag, wanted.number):
                return int(tagged.original_commit_us)
    return None


def original_commit_us(data: bytes) -> int:
    """Return the original commit time in the body of a (possibly anonymous) GTID event, in µs since 1970-01-01 UTC."""
    immediate = int.from_bytes(data[_IMMEDIATE : _IMMEDIATE + _TIME_SIZE], "little")
    if not immediate & _ORIGINAL_FOLLOWS:
        return immediate
    return int.from_bytes(data[_IMMEDIATE + _TIME_SIZE : _IMMEDIATE + 2 * _TIME_SIZE], "little")
