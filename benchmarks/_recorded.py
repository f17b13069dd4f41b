"""Batches of one keyed table as the source gives them to the sinks, recorded in a file: the same ones each time.

The first batch brings the table's rows, as a snapshot does. Each other one updates, inserts and deletes random rows.
What the table then holds is known after each batch, so a benchmark that replays the recording can check the lake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headgate.carrier import CarriedColumn, Definition, End, Header, HeaderTable, Images, Message, encode
from headgate.offsets import ReadState
from headgate.replication import META_FIELDS, SEQ_TYPE, SNAPSHOT_FILE, SNAPSHOT_POS

__all__ = ["TABLE", "Recording"]

TABLE = "bench.orders"
UPDATED, INSERTED, DELETED = 160, 20, 20
"""Rows of each batch; no row comes twice in one."""
_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_BEGIN_US = 1_700_000_000_000_000
_CHUNK_ROWS = 100_000
_ENTRY_BYTES = 300
"""Of a change in the log that there might have been."""
_COLUMNS = {
    "id": ("bigint", pa.int64()), "customer_id": ("int", pa.int32()), "status": ("string", pa.string()),
    "amount": ("decimal(12,2)", pa.decimal128(12, 2)), "note": ("string", pa.string()),
    "created_at": ("timestamp_ntz", pa.timestamp("us")), "mark": ("bigint", pa.int64()),
}  # fmt: skip
_DEFINITION = Definition(TABLE, ("id",), tuple(CarriedColumn(name, one[0]) for name, one in _COLUMNS.items()))
_SCHEMA = pa.schema([*META_FIELDS, *(pa.field(name, one[1]) for name, one in _COLUMNS.items())])


@dataclass
class Recording:
    """Recorded batches; their epochs are 1, 2, …

    :param ids: int64[batches]: the sum of the table's keys after each batch; ``marks``: of its column ``mark``. The
        number of its rows is always ``rows``.
    """

    rows: int
    ids: Any
    marks: Any
    _reader: Any

    @classmethod
    def make(cls, file: Path, rows: int, batches: int) -> Self:
        """Record so many batches behind the first one."""
        made = _Maker(rows)
        ids, marks = [], []
        first = made.first()
        with pa.ipc.new_file(str(file), first.schema) as writer:
            for number in range(batches + 1):
                writer.write_batch(made.next() if number else first)
                ids.append(made.ids.sum())
                marks.append(made.marks.sum())
        return cls(rows, np.array(ids), np.array(marks), pa.ipc.open_file(pa.memory_map(str(file))))

    def batch(self, epoch: int) -> pa.Table:
        """The rows of the stream in a batch."""
        return pa.Table.from_batches([self._reader.get_batch(epoch - 1)])


class _Maker:
    """The table at the source: ``ids`` and ``marks`` of its rows, in any order."""

    def __init__(self, rows: int) -> None:
        self._choice = np.random.default_rng(4)
        self._notes = pa.array(["note " + "x" * int(size) for size in self._choice.integers(5, 40, 1000)])
        self._statuses = pa.array(["new", "paid", "shipped", "done"])
        self._epoch, self._next, self._pos = 1, rows, 4
        self.ids = np.arange(rows)
        self.marks = np.zeros(rows, np.int64)

    def first(self) -> pa.RecordBatch:
        """All rows, in chunks."""
        images = []
        for low in range(0, len(self.ids), _CHUNK_ROWS):
            ids = self.ids[low : low + _CHUNK_ROWS]
            seqs = (SNAPSHOT_FILE, np.full(len(ids), SNAPSHOT_POS), ids)
            rows = self._images(pa.array(["r"] * len(ids)), seqs, ids, self.marks[ids])
            images.append(Images.of("chunk", _DEFINITION, rows))
        return self._rows(images, HeaderTable(ReadState.READ, since_epoch=1, first=True, last=True, append=True))

    def next(self) -> pa.RecordBatch:
        """A batch of changes, in random order."""
        self._epoch += 1
        count = UPDATED + INSERTED + DELETED
        places = self._choice.choice(len(self.ids), UPDATED + DELETED, replace=False)
        new = np.arange(self._next, self._next + INSERTED)
        self._next += INSERTED
        ids = np.concatenate([self.ids[places], new])
        marks = self._epoch * 1000 + np.arange(count)
        self.marks[places[:UPDATED]] = marks[:UPDATED]
        self.ids[places[UPDATED:]], self.marks[places[UPDATED:]] = new, marks[-INSERTED:]
        ops = pa.array(["u"] * UPDATED + ["d"] * DELETED + ["c"] * INSERTED)
        order = self._choice.permutation(count)
        at = self._pos + _ENTRY_BYTES * np.arange(count)
        self._pos = int(at[-1]) + _ENTRY_BYTES
        rows = self._images(ops.take(pa.array(order)), (1, at, np.zeros(count, np.int64)), ids[order], marks[order])
        images = Images.of("rows", _DEFINITION, rows)
        return self._rows([images, End(self._gtid(), _UUID, "binlog.000001", self._pos)])

    def _gtid(self) -> str:
        return f"{_UUID}:1-{self._epoch}"

    def _images(self, ops: pa.Array, seqs: tuple[Any, Any, Any], ids: Any, marks: Any) -> pa.RecordBatch:
        """:param seqs: file, position and ordinal of each."""
        count, choice = len(ids), self._choice
        parts = [np.full(count, self._epoch), np.full(count, seqs[0], np.int32), *seqs[1:]]
        gtids = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [f"{_UUID}:{self._epoch}"])
        moments = np.full(count, _BEGIN_US + self._epoch)
        cents = pa.array(choice.integers(0, 1_000_000, count)).cast(pa.decimal128(19)).cast(pa.decimal128(21, 2))
        columns = [
            ops,
            pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=list(SEQ_TYPE)),
            gtids,
            pa.array(moments).cast(pa.timestamp("us", tz="UTC")),
            pa.array(ids),
            pa.array(choice.integers(0, 100_000, count).astype(np.int32)),
            self._statuses.take(pa.array(choice.integers(0, len(self._statuses), count))),
            cents.cast(pa.decimal128(12, 2)),
            self._notes.take(pa.array(choice.integers(0, len(self._notes), count))),
            pa.array(_BEGIN_US + choice.integers(0, 10**13, count)).cast(pa.timestamp("us")),
            pa.array(marks),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    def _rows(self, messages: Iterable[Message], table: HeaderTable | None = None) -> pa.RecordBatch:
        """Messages and the header, as rows of the stream."""
        about = self._gtid(), _UUID, _BEGIN_US + self._epoch, {} if table is None else {TABLE: table}
        header = Header(self._epoch, "", *about, start_epoch=self._epoch - 1)
        rows = pa.Table.from_batches([encode(message) for message in (*messages, header)])
        (batch,) = rows.combine_chunks().to_batches()
        return batch
