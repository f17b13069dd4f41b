"""Carrier batches made by hand: what the Spark source would give, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

from headgate.carrier import (
    CARRIER_DDL,
    Batch,
    CarriedColumn,
    DdlRow,
    Definition,
    End,
    Header,
    HeaderTable,
    HighWatermark,
    Images,
    Message,
    ReadingProgress,
    Redo,
    Signals,
    UnreadableRows,
    decode,
    encode,
)
from headgate.catalog import ColumnChange
from headgate.gtid import GtidSet
from headgate.lake import Target, columns_of
from headgate.offsets import ChunkSpec, ReadState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.sinks import BatchWriter

SEQ = pa.struct([("epoch", pa.int64()), ("file", pa.int32()), ("pos", pa.int64()), ("ordinal", pa.int64())])
META = [
    pa.field("_op", pa.string()),
    pa.field("_seq", SEQ, nullable=False),
    pa.field("_gtid", pa.dictionary(pa.int32(), pa.string())),
    pa.field("_ts", pa.timestamp("us", "UTC")),
]
SNAPSHOT_PLACE = (2**31 - 1, 2**63 - 1)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

_ARROW = {
    "bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64(), "date": pa.date32(),
    "variant": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "timestamp_ntz": pa.timestamp("us"),
    "decimal(20,0)": pa.decimal128(20), "decimal(12,3)": pa.decimal128(12, 3),
}  # fmt: skip


@dataclass(frozen=True)
class FakeTable:
    """A source table: ``columns`` are ``(name, Spark type)``."""

    name: str = "shop.orders"
    columns: tuple[tuple[str, str], ...] = (("id", "bigint"), ("item", "string"))
    key: tuple[str, ...] = ("id",)

    mysql: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Types at the source; by default Spark's."""
    collations: Mapping[str, str] = field(default_factory=dict, hash=False)
    names: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Column → its name at the source, of renamed ones."""
    rules: Mapping[str, str] = field(default_factory=dict, hash=False)

    rows: str = ""
    chosen_key: bool = False
    hook: str = ""
    hook_gets: tuple[tuple[str, str, str], ...] = ()
    comment: str | None = None
    """None: unknown, as those of columns are then."""
    comments: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def carried(self) -> Definition:
        columns = tuple(
            CarriedColumn(
                name,
                kind,
                self.mysql.get(name, kind),
                rule=self.rules.get(name, ""),
                collation=self.collations.get(name, ""),
                source_name=self.names.get(name, ""),
                comment=self.comments.get(name, ""),
            )
            for name, kind in self.columns
        )
        rest = self.rows, self.chosen_key, self.hook, self.hook_gets, self.comment
        return Definition(self.name, self.key, columns, *rest)

    def target(self, **more: Any) -> Target:
        """The current table with these columns."""
        known = {"rows": self.rows, "hook": self.hook, "hook_gets": self.carried.source_types if self.hook else {}}
        return Target(columns_of(self.carried), self.key, **{**known, **more})

    def batch(self, epoch: int, images: Sequence[tuple[Any, ...]], file: int = 1) -> pa.RecordBatch:
        """``images`` are ``(op, pos, *values)``, or ``(op, (pos, ordinal), *values)``; ``r`` rows give their number.

        The value ``...`` is a column that the image leaves out.
        """
        seqs, rows = [], []
        for op, place, *values in images:
            pos, ordinal = place if isinstance(place, tuple) else (place, 0)
            if op == "r":
                seqs.append((epoch, *SNAPSHOT_PLACE, place))
            else:
                seqs.append((epoch, file, pos, ordinal))
            rows.append(values or [None] * len(self.columns))
        names = ("epoch", "file", "pos", "ordinal")
        arrays = [
            pa.array([image[0] for image in images], pa.string()),
            pa.array([dict(zip(names, seq, strict=True)) for seq in seqs], SEQ),
            pa.array([None if i[0] == "r" else f"{UUID}:1" for i in images], pa.string()).dictionary_encode(),
            pa.array([1_700_000_000_000_000] * len(images), pa.timestamp("us", "UTC")),
        ]
        fields = list(META)
        absent = [[name for (name, _), value in zip(self.columns, row, strict=True) if value is ...] for row in rows]
        if any(absent):
            texts = [json.dumps(names) if names else None for names in absent]
            arrays.append(pa.array(texts, pa.string()).dictionary_encode())
            fields.append(pa.field("_absent", pa.dictionary(pa.int32(), pa.string())))
        for index, (name, kind) in enumerate(self.columns):
            arrays.append(pa.array([None if row[index] is ... else row[index] for row in rows], _ARROW[kind]))
            fields.append(pa.field(name, _ARROW[kind]))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@dataclass
class FakeBatch:
    """One batch; rows are collected and become a carrier frame."""

    epoch: int
    gtid: str = ""
    header: dict[str, dict[str, Any]] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)
    full_restart: bool = False
    start_epoch: int | None = None
    """Of the batch before; default: one less."""
    patterns: tuple[str, ...] = ("*.*",)
    last: tuple[str, int] = ("", 0)
    """The newest transaction, and its commit time, µs since 1970 UTC."""
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gtid = self.gtid or f"{UUID}:1-{self.epoch}"

    def images(self, table: FakeTable, images: Sequence[tuple[Any, ...]], *, file: int = 1) -> FakeBatch:
        return self._data("rows", table, images, file)

    def chunk(self, table: FakeTable, rows: Sequence[tuple[Any, ...]], *, start: int = 0) -> FakeBatch:
        numbered = [("r", start + number, *row) for number, row in enumerate(rows)]
        return self._data("chunk", table, numbered, 0)

    def create(self, table: str) -> FakeBatch:
        """The batch creates the table, so a new one is live without a reading."""
        return self.ddl(table, f"CREATE TABLE {table} ...", "create", 1)

    def ddl(
        self,
        table: str,
        statement: str,
        action: str,
        pos: int,
        *,
        file: int = 1,
        adds: Sequence[ColumnChange] | None = None,
        new_name: str | None = None,
        schema: FakeTable | None = None,
        unmasks: Sequence[str] = (),
    ) -> FakeBatch:
        text = None if schema is None else schema.carried.to_json()
        seq, added = (self.epoch, file, pos, 0), None if adds is None else tuple(adds)
        more = new_name, added, text, tuple(unmasks)
        ddl = DdlRow(table, statement, action, seq, f"{UUID}:1", 1_700_000_000_000_000, *more)
        return self._with(ddl)

    def redo(self, table: str, number: int = 0, *, whole_table: bool = False) -> FakeBatch:
        return self._with(Redo(ChunkSpec(table, number), "altered", whole_table))

    def watermark(self, table: str, gtid: str) -> FakeBatch:
        return self._with(HighWatermark(table, GtidSet.parse(gtid)))

    def stop(self, table: str, reason: str, unknown: str | None = None) -> FakeBatch:
        return self._with(UnreadableRows(table, reason, gtid=f"{UUID}:1", unknown=unknown))

    def unread(self, table: str, reason: str) -> FakeBatch:
        """A chunk that gave nothing."""
        return self._with(UnreadableRows(table, reason, chunk=3))

    def signal(self, table: str, *rows: dict[str, Any]) -> FakeBatch:
        places = [{"gtid": f"{UUID}:{self.epoch}", "seq": [1, 4, n], "ts_us": n} for n in range(len(rows))]
        return self._with(Signals(table, [{**place, **row} for place, row in zip(places, rows, strict=True)]))

    def end(self, gtid: str) -> FakeBatch:
        return self._with(End(gtid, UUID, "binlog.000001", 4))

    def about(self, table: str, **info: Any) -> FakeBatch:
        self.header[table] = info
        return self

    def snapshot(self, table: str, since: int, *, append: bool, first: bool = False, last: bool = False) -> FakeBatch:
        return self.about(table, state="reading", since_epoch=since, first=first, last=last, append=append)

    def rows(self) -> list[pa.RecordBatch]:
        """The rows of the stream."""
        tables = {
            name: HeaderTable(**{**info, "state": ReadState(info["state"])}) for name, info in self.header.items()
        }
        header = Header(
            self.epoch, "", self.gtid, UUID, 1_700_000_000_000_000, tables, tuple(self.actions),
            readings={table: ReadingProgress(**one) for table, one in self.readings.items()},
            full_restart=self.full_restart,
            start_epoch=self.epoch - 1 if self.start_epoch is None else self.start_epoch,
            patterns=self.patterns,
            last_gtid=self.last[0],
            last_us=self.last[1],
        )  # fmt: skip
        return [encode(message) for message in (*self.messages, header)]

    def described(self) -> Batch:
        """The batch as the driver has it, without Spark."""
        return Batch.of(decode(pa.Table.from_batches(self.rows())))

    def frame(self, spark: SparkSession) -> DataFrame:
        rows = [tuple(row.values()) for batch in self.rows() for row in batch.to_pylist()]
        return spark.createDataFrame(rows, CARRIER_DDL)

    def _data(
        self, kind: Literal["rows", "chunk"], table: FakeTable, images: Sequence[tuple[Any, ...]], file: int
    ) -> FakeBatch:
        return self._with(Images.of(kind, table.carried, table.batch(self.epoch, images, file)))

    def _with(self, message: Message) -> FakeBatch:
        self.messages.append(message)
        return self


class Crash(Exception):
    """Stands for a driver that dies."""


def crash_before_ledger(writer: BatchWriter, write: Callable[[], object]) -> None:
    """Write a batch's tables, as a driver that dies before the batch's ledger row."""

    def crash(_: Batch) -> None:
        raise Crash

    writer.after_tables = crash
    with pytest.raises(Crash):
        write()
