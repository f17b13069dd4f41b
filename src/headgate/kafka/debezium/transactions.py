"""Numbers of changes in their transaction, and the messages at its begin and end.

As Debezium with ``provide.transaction.metadata``: each message except tombstones counts, in the order of the log, from
1: over all tables (``total_order``) and in its table (``data_collection_order``). A transaction is never divided
between batches, and its messages are contiguous. It may be divided between the record batches of one, so the counts of
the last transaction are kept between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import TargetError
from headgate.kafka.debezium.envelope import MessageNumbers

__all__ = ["TransactionEnd", "TransactionNumbers"]


class TransactionEnd(NamedTuple):
    """A transaction whose messages are all known."""

    gtid: str
    ts_ms: int  # its commit time
    counts: dict[str, int]  # messages of each table

    def values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of the messages BEGIN and END."""
        collections = [{"data_collection": name, "event_count": n} for name, n in sorted(self.counts.items())]
        about: dict[str, Any] = {"status": "BEGIN", "id": self.gtid, "event_count": None, "data_collections": None}
        end = {"status": "END", "event_count": sum(self.counts.values()), "data_collections": collections}
        return {**about, "ts_ms": self.ts_ms}, {**about, **end, "ts_ms": self.ts_ms}

    def key(self) -> dict[str, str]:
        """Return the key of both messages."""
        return {"id": self.gtid}


class TransactionNumbers:
    """Numbers the messages of a batch, in the order of the log."""

    def __init__(self) -> None:
        self._gtid: str | None = None
        self._ts_us = 0
        self._counts: Counter[str] = Counter()

    def number(self, records: pa.RecordBatch) -> tuple[MessageNumbers, list[TransactionEnd]]:
        """Return the numbers of each message, and the transactions that ended before the last.

        :raises TargetError: a transaction has no GTID.
        """
        gtids = records["gtid"]
        if gtids.null_count:
            raise TargetError(
                "target.kafka.transactions needs GTIDs, and the log has a transaction without one: set gtid_mode=ON at"
                " the server, or transactions = false"
            )
        first = np.ones(len(gtids), bool)
        first[1:] = np.asarray(pc.not_equal(gtids[1:], gtids[:-1]))
        starts, transaction = np.flatnonzero(first), np.cumsum(first) - 1
        tables = records["table"].dictionary_encode()
        names, code = tables.dictionary.to_pylist(), np.asarray(tables.indices)
        counted = np.asarray(records["value"].is_valid()).astype(np.int64)
        group = transaction * len(names) + code
        total = _running(transaction, counted)
        in_table = _running(group, counted)
        is_continued = gtids[0].as_py() == self._gtid
        if is_continued:
            carried = np.array([self._counts[name] for name in names])
            total += np.where(transaction == 0, sum(self._counts.values()), 0)
            in_table += np.where(transaction == 0, carried[code], 0)
        ends = [] if is_continued else [*self.rest()]
        sums = np.zeros((len(starts), len(names)), np.int64)
        np.add.at(sums, (transaction, code), counted)
        stamps = np.asarray(records["ts_us"])[starts].tolist()
        for number, (gtid, ts_us) in enumerate(zip(gtids.take(pa.array(starts)).to_pylist(), stamps, strict=True)):
            if number:
                ends += self.rest()
            if number or not is_continued:
                self._gtid, self._ts_us = gtid, ts_us
            changed = np.flatnonzero(sums[number])
            self._counts.update({names[i]: int(sums[number, i]) for i in changed.tolist()})
        return MessageNumbers(gtids, total, in_table), ends

    def rest(self) -> Iterator[TransactionEnd]:
        """Yield the last transaction, once, if there is one."""
        if self._gtid is not None:
            yield TransactionEnd(self._gtid, self._ts_us // 1000, dict(self._counts))
        self._gtid, self._counts = None, Counter()


def _running(group: Any, counted: Any) -> Any:
    """Return the running sum of ``counted`` in each group, in the order of rows."""
    order = np.argsort(group, kind="stable")
    in_order, sums = group[order], np.cumsum(counted[order])
    out = np.empty(len(group), np.int64)
    out[order] = sums - (sums - counted[order])[np.searchsorted(in_order, in_order)]
    return out
