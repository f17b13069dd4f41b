"""Wire format of messages: the one encoder and the one decoder, and the names of columns and keys.

A message is a row of the stream (docs/architecture/carrier.md): a task of the source encodes it, the sinks' driver
decodes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args

import numpy as np
import pyarrow as pa

from headgate.carrier._images import Images, ImagesKind, Summary, summary_json
from headgate.carrier._messages import (
    DdlRow,
    End,
    Header,
    HeaderTable,
    HighWatermark,
    ReadingProgress,
    Redo,
    Signals,
    UnreadableRows,
)
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.errors import DecodeError
from headgate.offsets import ChunkSpec, Last, ReadState
from headgate.positions import Position, parse_position

__all__ = [
    "CARRIER_DDL",
    "DATA_COLUMN",
    "KIND_COLUMN",
    "SCHEMA_COLUMN",
    "SUMMARY_DDL",
    "TABLE_COLUMN",
    "Message",
    "decode",
    "encode",
    "summarise",
]

Message: TypeAlias = Header | Images | DdlRow | Redo | UnreadableRows | HighWatermark | Signals | End
_M = TypeVar("_M", Header, HeaderTable, ReadingProgress, DdlRow, UnreadableRows, End)

TABLE_COLUMN: Final = "_table"
KIND_COLUMN: Final = "_kind"
SCHEMA_COLUMN: Final = "_schema"
DATA_COLUMN: Final = "_data"
CARRIER_DDL: Final = (
    f"{TABLE_COLUMN} string, {KIND_COLUMN} string, {SCHEMA_COLUMN} string, _count bigint, {DATA_COLUMN} binary"
)
SUMMARY_DDL: Final = f"{SCHEMA_COLUMN} string, _summary string"

_TEXT = pa.string()
_CARRIER: Final = pa.schema(
    {TABLE_COLUMN: _TEXT, KIND_COLUMN: _TEXT, SCHEMA_COLUMN: _TEXT, "_count": pa.int64(), DATA_COLUMN: pa.binary()}
)
_KINDS: Final[Mapping[type, str]] = {
    Header: "batch",
    DdlRow: "ddl",
    Redo: "redo",
    UnreadableRows: "stop",
    HighWatermark: "watermark",
    Signals: "signal",
    End: "end",
}
_CHANGE_NAMES: Final[Mapping[type, str]] = {AddedColumn: "add", DroppedColumn: "drop", RedefinedColumn: "redefine"}
_CHANGES: Final = {name: kind for kind, name in _CHANGE_NAMES.items()}
_IMAGES: Final = get_args(ImagesKind)
_VERSION: Final = 1


def encode(message: Message) -> pa.RecordBatch:
    """Encode a message as a row of the stream."""
    if isinstance(message, Images):
        return _row(message.table, message.kind, message.schema, message.count, message.data)
    table: str | None = getattr(message, "table", None)
    count = len(message.rows) if isinstance(message, Signals) else int(isinstance(message, DdlRow))
    text = json.dumps(message, default=_plain, sort_keys=True)
    return _row(table, _KINDS[type(message)], None, count, pa.py_buffer(text.encode()))


def _row(table: str | None, kind: str, schema: str | None, count: int, data: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, data.size], np.int32))
    texts = [pa.array([text], _TEXT) for text in (table, kind, schema)]
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.RecordBatch.from_arrays([*texts, pa.array([count], pa.int64()), binary], schema=_CARRIER)


def _plain(value: Any) -> Any:
    """Convert a message, or a part of one, to its JSON form. Its fields with a value are keys, unless it is listed; the
    table is a column of the row.
    """
    match value:
        case Position():
            return str(value)
        case ChunkSpec():
            return value.to_dict()
        case Last():
            return asdict(value)
        case Signals():
            return value.rows
        case Header():
            return {**vars(value), "v": _VERSION}
        case HeaderTable():
            optional = ("partial", "filtered", "surrogate", "signals")
            return {name: one for name, one in vars(value).items() if one or name not in optional}
        case DdlRow():
            db, _, name = value.table.partition(".")
            changes = None if value.changes is None else [_plain_change(change) for change in value.changes]
            return {**vars(value), "db": db, "table": name, "changes": changes}
    return {name: one for name, one in vars(value).items() if one is not None and name != "table"}


def _plain_change(change: ColumnChange) -> dict[str, Any]:
    return {"change": _CHANGE_NAMES[type(change)], **asdict(change)}


def summarise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of images to their definitions and summaries, both as JSON, without opening the images."""
    for batch in batches:
        summaries = [summary_json(cell.as_buffer()) for cell in batch[DATA_COLUMN]]
        columns = [batch[SCHEMA_COLUMN], pa.array(summaries, _TEXT)]
        yield pa.RecordBatch.from_arrays(columns, [SCHEMA_COLUMN, "_summary"])


def decode(rows: pa.RecordBatch | pa.Table) -> Iterator[Message]:
    """Yield the messages in rows of the stream.

    :raises DecodeError: a row is not a message.
    """
    for *plain, cell in zip(*(rows[name] for name in _CARRIER.names), strict=True):
        table, kind, schema, count = (one.as_py() for one in plain)
        yield _message(table, kind, schema, count, cell.as_buffer())


def _message(table: str, kind: str, schema: str, count: int, data: pa.Buffer) -> Message:
    if kind in _IMAGES:
        summary = Summary.from_json(summary_json(data))
        return Images(table, cast("ImagesKind", kind), schema, count, summary, data)
    if kind in _DECODERS:
        return _DECODERS[kind](table, json.loads(data.to_pybytes()))
    raise DecodeError(f"a carrier row has unknown kind {kind!r}")


def _header(_table: None, value: dict[str, Any]) -> Header:
    if value["v"] != _VERSION:
        raise DecodeError(f"a batch header has version {value['v']!r}; this headgate reads version {_VERSION}")
    tables = {
        name: _known(HeaderTable, table, state=ReadState(table["state"]), signals=tuple(table.get("signals", ())))
        for name, table in value["tables"].items()
    }
    readings = {table: _known(ReadingProgress, reading) for table, reading in value["readings"].items()}
    texts = {name: tuple(value[name]) for name in ("actions", "patterns")}
    decoded = {**texts, "tables": tables, "readings": readings}
    return _known(Header, value, **decoded)


def _ddl(table: str, value: dict[str, Any]) -> DdlRow:
    changes = None if value["changes"] is None else tuple(map(_change, value["changes"]))
    tuples = {name: tuple(value[name]) for name in ("seq", "unmasks")}
    return _known(DdlRow, value, table=table, changes=changes, **tuples)


def _change(value: Mapping[str, Any]) -> ColumnChange:
    values = dict(value)
    change: ColumnChange = _CHANGES[values.pop("change")](**values)
    return change


def _known(cls: type[_M], value: Mapping[str, Any], **decoded: Any) -> _M:
    """Make a message from the keys it knows; a later headgate may have more."""
    names = {field.name for field in fields(cls)}
    return cls(**{**{name: one for name, one in value.items() if name in names}, **decoded})


def _watermark(table: str, value: Mapping[str, Any]) -> HighWatermark:
    last = value.get("last")
    return HighWatermark(table, parse_position(value["gtid"]), None if last is None else Last.from_dict(last))


_DECODERS: Final[Mapping[str, Callable[[Any, Any], Message]]] = {
    _KINDS[Header]: _header,
    _KINDS[DdlRow]: _ddl,
    _KINDS[Redo]: lambda _, value: Redo(ChunkSpec.from_dict(value["chunk"]), value["reason"], value["whole_table"]),
    _KINDS[UnreadableRows]: lambda table, value: _known(UnreadableRows, value, table=table),
    _KINDS[HighWatermark]: _watermark,
    _KINDS[Signals]: Signals,
    _KINDS[End]: lambda _, value: _known(End, value),
}
