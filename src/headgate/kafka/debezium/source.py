"""The block ``source`` of messages: the event of the log that a change comes from.

Names and order of the fields are those of Debezium 3, "MySQL connector", "Change event values". What headgate does not
know is 0 or null: docs/reference/kafka.md lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.replication import SNAPSHOT_FILE

__all__ = ["Source", "SourceEvent", "events_of", "log_file"]


@dataclass(frozen=True)
class Source:
    """What all messages of a batch say of their source."""

    server: str  # the prefix of topics
    version: str  # headgate's
    log_base: str  # name of the log files before their number, with the dot

    def block(self, db: str, table: str, event: SourceEvent) -> dict[str, Any]:
        """Return the block: field → value, or the value of each image as an Arrow array."""
        us = event.us
        ms, ns = (us // 1000, us * 1000) if isinstance(us, int) else (pc.divide(us, 1000), pc.multiply(us, 1000))
        return {
            "version": self.version,
            "connector": "mysql",
            "name": self.server,
            "ts_ms": ms,
            "snapshot": event.snapshot,
            "db": db,
            "sequence": None,
            "ts_us": us,
            "ts_ns": ns,
            "table": table,
            "server_id": 0,
            "gtid": event.gtid,
            "file": event.file,
            "pos": event.pos,
            "row": event.row,
            "thread": None,
            "query": None,
        }


class SourceEvent(NamedTuple):
    """An event of the log, or those of images: each field has a value, or an Arrow array of values."""

    us: Any  # commit time, µs since 1970 UTC
    snapshot: Any  # "false", or "incremental": a row that was read from the table
    gtid: Any  # null: none
    file: Any  # name of the log file, "" for a row that was read
    pos: Any  # where the event begins in it, in bytes
    row: Any  # number of the row in its event, from 0


def events_of(images: pa.RecordBatch, log_base: str) -> SourceEvent:
    """Return the events of images. What is the same for all, as most often the file is, is a value."""
    seq = images["_seq"]
    is_read = pc.equal(seq.field("file"), SNAPSHOT_FILE)
    return SourceEvent(
        us=images["_ts"].cast(pa.int64()),
        snapshot=_text_of_numbers(is_read.cast(pa.int32()), lambda number: "incremental" if number else "false"),
        gtid=images["_gtid"].cast(pa.string()),
        file=_text_of_numbers(seq.field("file"), lambda number: log_file(log_base, number)),
        pos=pc.if_else(is_read, 0, seq.field("pos")),
        row=pc.if_else(is_read, 0, seq.field("ordinal")),
    )


def log_file(log_base: str, number: int) -> str:
    """Return the name of a log file; empty for the rows of a snapshot."""
    return "" if number == SNAPSHOT_FILE else f"{log_base}{number:06d}"


def _text_of_numbers(numbers: pa.Array, text: Callable[[int], str]) -> str | pa.Array:
    """Return a text for each number, or the one that all have."""
    values = np.asarray(numbers)
    if len(values) and (values == values[0]).all():
        return text(int(values[0]))
    distinct, places = np.unique(values, return_inverse=True)
    return pa.array([text(number) for number in distinct.tolist()], pa.string()).take(pa.array(places))
