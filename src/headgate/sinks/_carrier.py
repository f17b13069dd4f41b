"""One batch of the carrier, as the driver sees it: everything but the images themselves.

The images stay in Spark, in the batch's persisted frame. One job makes them persistent and brings back a line for
each record batch: table, kind, definition, count, the key column's range, the newest commit time; for the other kinds
their JSON. From that :class:`Batch` is built, and with it alone the sinks decide what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._changes import count_changes
from headgate.catalog import AddedColumn
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.sinks._images import Seq, is_partial, open_images, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Batch", "Column", "DdlRow", "Definition", "Header", "HeaderTable", "Part", "Redo", "read_batch"]

_SENT_BYTES = 128 << 20
"""Images that the tasks of a batch send along with its description, at most."""
_DATA = 4
"""The place of ``_data`` among the columns that are described."""
_SUMMARY_DDL = (
    "_table string, _kind string, _schema string, _count bigint, _text string, "
    "_low string, _high string, _newest bigint, _truncates boolean, _partial boolean, _changes bigint, _data binary"
)
_SUMMARY = pa.schema(
    [
        ("_table", pa.string()),
        ("_kind", pa.string()),
        ("_schema", pa.string()),
        ("_count", pa.int64()),
        ("_text", pa.string()),
        ("_low", pa.string()),
        ("_high", pa.string()),
        ("_newest", pa.int64()),
        ("_truncates", pa.bool_()),
        ("_partial", pa.bool_()),
        ("_changes", pa.int64()),
        ("_data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Column:
    """A column as the carrier's ``_schema`` describes it; ``spark`` is a Spark type in its short spelling."""

    name: str
    spark: str
    mysql: str = ""
    nullable: bool = True


@dataclass(frozen=True)
class Definition:
    """A table's definition, from the carrier's ``_schema``."""

    table: str
    fingerprint: str  # ``TableDef.common_fingerprint``
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @classmethod
    @lru_cache(maxsize=4096)
    def from_json(cls, text: str) -> Definition:
        """Read ``_schema``."""
        value = json.loads(text)
        columns = tuple(
            Column(c["name"], c["spark"].lower().replace(" ", ""), c.get("mysql", ""), c.get("nullable", True))
            for c in value["columns"]
        )
        return cls(value["table"], value["fingerprint"], tuple(value["key"]), columns)

    @property
    def types(self) -> dict[str, str]:
        """Column name → Spark type."""
        return {column.name: column.spark for column in self.columns}

    def column(self, name: str) -> Column:
        """The column of this name, which must be there."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True)
class HeaderTable:
    """What the planner says of one table in this batch; see the carrier's batch header."""

    state: str = "live"
    since_epoch: int | None = None
    first: bool = False
    last: bool = False
    append: bool = False
    partial: bool = False  # some rows are read: it begins and ends nothing
    filtered: bool = False  # all rows that are wanted of the table are read, which are not all there are
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None


@dataclass(frozen=True)
class Header:
    """The batch's own description: it starts after ``start`` and ends at ``gtid`` (E)."""

    epoch: int
    start: str
    gtid: str
    server_uuid: str
    planned_us: int
    tables: dict[str, HeaderTable] = field(default_factory=dict)
    actions: tuple[Any, ...] = ()
    skipped: dict[str, Any] | None = None  # messages of the topic with signals that were for others
    behind: int = 0  # transactions that the server had executed at planning and that are not in gtid
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)  # how far each table is that is being read
    anew: bool = False  # the stream begins with this batch, and reads all the tables there are


@dataclass(frozen=True)
class DdlRow:
    """One DDL statement, for one table it touches."""

    table: str
    statement: str
    action: str
    seq: Seq
    gtid: str | None
    ts: int | None  # original commit time, µs since 1970 UTC
    new_name: str | None = None  # db.table after a RENAME
    adds: tuple[AddedColumn, ...] | None = None  # of an ALTER that changes nothing else; None: rows may have changed
    schema: str | None = None  # with ``adds``: what the table looked like when the statement was read, perhaps later


@dataclass(frozen=True)
class Redo:
    """A chunk that gave nothing and must be read again."""

    table: str
    chunk: dict[str, Any]
    reason: str
    whole_table: bool = False  # its range means nothing any more: the table is gone or has another key


@dataclass
class Part:
    """All images of one table, kind and definition in a batch."""

    table: str
    kind: str  # "rows" or "chunk"
    schema: str
    blobs: int = 0
    images: int = 0
    changes: int = 0  # an update may have two images
    low: str | None = None  # the first key column's range, as text …
    high: str | None = None
    bounded: int = 0  # … known for so many record batches that hold images
    unbounded: int = 0  # … and unknown for so many
    bounds: list[tuple[str, str]] = field(default_factory=list)  # chunks: the range of each record batch
    newest_us: int | None = None
    truncates: bool = False
    partial: bool = False  # some image leaves columns out
    sent: list[pa.Scalar] = field(default_factory=list, compare=False, repr=False)  # images that are here, as IPC

    @property
    def definition(self) -> Definition:
        """The definition all images of this part have."""
        return Definition.from_json(self.schema)

    def here(self) -> Iterator[pa.RecordBatch] | None:
        """All images of this part, if all of them came along with the description."""
        return open_images(self.sent) if len(self.sent) == self.blobs else None


@dataclass
class Batch:
    """A batch: what it brings, and of parts with few images the images."""

    header: Header
    parts: dict[str, list[Part]]
    ddl: list[DdlRow]
    redo: list[Redo]
    ends: list[dict[str, Any]]
    stops: dict[str, str] = field(default_factory=dict)  # tables with images that nobody can read, and why
    unread: dict[str, str] = field(default_factory=dict)  # tables with rows in chunks that nobody can read, and why
    signals: list[dict[str, Any]] = field(default_factory=list)  # inserts into the signal table
    watermarks: dict[str, GtidSet] = field(default_factory=dict)
    """Tables whose chunks in this batch are exact only once all of a set is applied."""

    def tables(self) -> list[str]:
        """Every table that something is said about, sorted."""
        named = {name for ddl in self.ddl for name in (ddl.table, ddl.new_name) if name is not None}
        redone = {redo.table for redo in self.redo}
        return sorted({*self.parts, *self.header.tables, *named, *redone, *self.stops, *self.unread})

    def name_dropped_tables(self, known: Iterable[str]) -> None:
        """Put a DROP of each table in place of a DROP DATABASE, which does not name them.

        So with a table that a stream which reads everything anew does not find: how it went is in a stretch of the log
        that nobody has read.

        :param known: tables that earlier batches brought.
        """
        if self.header.anew:
            place = (self.header.epoch, 0, 0)
            gone = sorted({*known} - self.header.tables.keys() - self.parts.keys())
            statement = "not there, or not followed, when all tables were read anew"
            self.ddl[:0] = [DdlRow(t, statement, "drop", (*place, n), None, None) for n, t in enumerate(gone)]
        names = sorted({*known, *self.parts, *self.header.tables})
        spelled = []
        for ddl in self.ddl:
            if ddl.action != "drop_database":
                spelled.append(ddl)
                continue
            prefix = ddl.table.removesuffix("*")
            spelled += [replace(ddl, action="drop", table=name) for name in names if name.startswith(prefix)]
        self.ddl = spelled


def read_batch(frame: DataFrame) -> Batch:
    """Run one job over the (persisted) carrier frame and describe the batch."""
    share = _SENT_BYTES // frame.sparkSession.sparkContext.defaultParallelism
    columns = ("_table", "_kind", "_schema", "_count", "_data")
    described = frame.select(*columns).mapInArrow(_describer(share), _SUMMARY_DDL).toArrow()
    rows = described.drop_columns("_data").to_pylist()
    return build_batch([{**row, "_data": data} for row, data in zip(rows, described["_data"], strict=True)])


def _describer(most: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: describe its rows, and send along images of ``most`` bytes, half as many of one table."""

    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent: dict[str, int] = {}  # bytes by table
        total = 0
        for batch in batches:
            rows = [_describe(*cells) for cells in zip(*batch.columns, strict=True)]
            for row, data in zip(rows, batch.column(_DATA), strict=True):
                if row["_kind"] not in ("rows", "chunk"):
                    continue
                size = len(data.as_buffer())
                table = sent.get(row["_table"], 0) + size
                if table <= most // 2 and total + size <= most:
                    sent[row["_table"]], total = table, total + size
                    row["_data"] = data.as_py()
            yield pa.RecordBatch.from_pylist(rows, schema=_SUMMARY)

    return describe


def _describe(table: Any, kind: Any, schema: Any, count: Any, data: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "_table": table.as_py(),
        "_kind": kind.as_py(),
        "_schema": schema.as_py(),
        "_count": count.as_py(),
    }
    if row["_kind"] not in ("rows", "chunk"):
        value = data.as_py()
        row["_text"] = None if value is None else bytes(value).decode()
        return row
    key = Definition.from_json(row["_schema"]).key
    for images in open_images([data]):
        low, high, newest, truncates = summarise(images, key[0] if key else None)
        row.update(_low=low, _high=high, _newest=newest, _truncates=truncates, _partial=is_partial(images))
        row["_changes"] = count_changes(images) if row["_kind"] == "rows" else None
    return row


def build_batch(rows: list[dict[str, Any]]) -> Batch:
    """The batch that these description rows make up; ``DecodeError`` unless there is exactly one header."""
    headers = [row for row in rows if row["_kind"] == "batch"]
    if len(headers) != 1:
        raise DecodeError(f"a batch with {len(headers)} headers")
    parts: dict[tuple[str, str, str], Part] = {}
    batch = Batch(_header(json.loads(headers[0]["_text"])), {}, [], [], [])
    for row in rows:
        kind = row["_kind"]
        if kind in ("rows", "chunk"):
            _add_part(parts, row)
        elif kind == "ddl":
            batch.ddl.append(_ddl(row["_table"], json.loads(row["_text"])))
        elif kind == "redo":
            value = json.loads(row["_text"])
            whole = bool(value.get("whole_table", False))
            batch.redo.append(Redo(row["_table"], value["chunk"], value.get("reason", ""), whole))
        elif kind == "stop":
            value = json.loads(row["_text"])
            (batch.unread if "chunk" in value else batch.stops).setdefault(row["_table"], value["reason"])
        elif kind == "watermark":
            table, gtid = row["_table"], GtidSet.parse(json.loads(row["_text"])["gtid"])
            batch.watermarks[table] = batch.watermarks.get(table, GtidSet()) | gtid
        elif kind == "signal":
            batch.signals += json.loads(row["_text"])
        elif kind == "end":
            batch.ends.append(json.loads(row["_text"]))
        elif kind != "batch":
            raise DecodeError(f"a carrier row of unknown kind {kind!r}")
    batch.ddl.sort(key=lambda ddl: ddl.seq)
    for part in parts.values():
        batch.parts.setdefault(part.table, []).append(part)
    return batch


def _add_part(parts: dict[tuple[str, str, str], Part], row: dict[str, Any]) -> None:
    identity = (row["_table"], row["_kind"], row["_schema"])
    part = parts.setdefault(identity, Part(*identity))
    part.blobs += 1
    part.images += row["_count"] or 0
    part.changes += row["_changes"] or 0
    if row["_data"] is not None and row["_data"].is_valid:
        part.sent.append(row["_data"])
    if row["_low"] is not None:
        part.low = row["_low"] if part.low is None else min(part.low, row["_low"], key=sortable)
        part.high = row["_high"] if part.high is None else max(part.high, row["_high"], key=sortable)
        part.bounded += 1
        if part.kind == "chunk":
            part.bounds.append((row["_low"], row["_high"]))
    elif row["_count"]:
        part.unbounded += 1
    if row["_newest"] is not None:
        part.newest_us = max(row["_newest"], part.newest_us or 0)
    part.truncates |= bool(row["_truncates"])
    part.partial |= bool(row["_partial"])


def sortable(text: str) -> tuple[Decimal, str]:
    """Numbers in order of value; dates and timestamps (fixed width) in order of text."""
    try:
        return Decimal(text), ""
    except InvalidOperation:
        return Decimal(0), text


def _header(value: dict[str, Any]) -> Header:
    if value.get("v") != 1:
        raise DecodeError(f"a batch header of version {value.get('v')!r}; this headgate knows version 1")
    names = HeaderTable.__dataclass_fields__
    tables = {
        table: HeaderTable(**{name: info[name] for name in names if name in info})
        for table, info in value["tables"].items()
    }
    return Header(
        value["epoch"],
        value["start"],
        value["gtid"],
        value["server_uuid"],
        value["planned_us"],
        tables,
        tuple(value.get("actions") or ()),
        value.get("skipped"),
        int(value.get("behind") or 0),
        dict(value.get("readings") or {}),
        bool(value.get("anew")),
    )


def _ddl(table: str, value: dict[str, Any]) -> DdlRow:
    epoch, file, pos, ordinal = value["seq"]
    adds = value.get("adds")
    return DdlRow(
        table,
        value["statement"],
        value["action"],
        (epoch, file, pos, ordinal),
        value.get("gtid"),
        value.get("ts"),
        value.get("new_name"),
        None if adds is None else tuple(AddedColumn(**column) for column in adds),
        value.get("schema"),
    )
