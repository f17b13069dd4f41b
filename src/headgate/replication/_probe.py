"""Commit time of one transaction, which distinguishes a rewritten history from the one already read."""

from __future__ import annotations

from headgate.binlog import Segment, codes, parse_gtid
from headgate.binlog_positions import TAG
from headgate.errors import ConfigError, IncompleteReadError
from headgate.gtid import Gtid, GtidSet
from headgate.mysql import ConnectionSettings
from headgate.offsets import Hint
from headgate.replication._dump import open_dump
from headgate.replication._log_read import LogRead

__all__ = ["commit_time"]


def commit_time(settings: ConnectionSettings, gtid: GtidSet, *, hint: Hint | None = None) -> int:
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
        if kind not in (codes.GTID, codes.GTID_TAGGED, codes.ANONYMOUS_GTID):
            continue
        event = parse_gtid(kind, segment.buf[start + codes.HEADER_SIZE : end].tobytes())
        # If positions count as GTIDs, the dump began at the transaction's position.
        if wanted.tag == TAG if kind == codes.ANONYMOUS_GTID else Gtid(*event[:3]) == wanted:
            return event.original_commit_us
    return None
