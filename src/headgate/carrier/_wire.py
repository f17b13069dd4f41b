"""Wire format of messages: the one encoder and the one decoder, and the names of columns and keys.

A message is a row of the stream (docs/architecture/carrier.md): a task of the source encodes it. A task of the sinks
*describes* it: images get their summary as a column, and keep only small data. Described rows go to the driver, which
decodes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier._image_files import is_stub
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
    Skipped,
    Stop,
)
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec

__all__ = [
    "CARRIER_DDL",
    "DATA_COLUMN",
    "DESCRIBED_DDL",
    "KIND_COLUMN",
    "SCHEMA_COLUMN",
    "TABLE_COLUMN",
    "Message",
    "decode",
    "describe",
    "encode",
    "open_rows",
]

Message: TypeAlias = Header | Images | DdlRow | Redo | Stop | HighWatermark | Signals | End
_M = TypeVar("_M", Header, HeaderTable, ReadingProgress, DdlRow, Stop, End)

TABLE_COLUMN: Final = "_table"
KIND_COLUMN: Final = "_kind"
SCHEMA_COLUMN: Final = "_schema"
DATA_COLUMN: Final = "_data"
CARRIER_DDL: Final = (
    f"{TABLE_COLUMN} string, {KIND_COLUMN} string, {SCHEMA_COLUMN} string, _count bigint, {DATA_COLUMN} binary"
)
DESCRIBED_DDL: Final = f"{CARRIER_DDL}, _summary string, _stub binary"

_TEXT = pa.string()
_CARRIER: Final = pa.schema(
    {TABLE_COLUMN: _TEXT, KIND_COLUMN: _TEXT, SCHEMA_COLUMN: _TEXT, "_count": pa.int64(), DATA_COLUMN: pa.binary()}
)
_DESCRIBED: Final = _CARRIER.append(pa.field("_summary", _TEXT)).append(pa.field("_stub", pa.binary()))
_KINDS: Final[Mapping[type, str]] = {
    Header: "batch",
    DdlRow: "ddl",
    Redo: "redo",
    Stop: "stop",
    HighWatermark: "watermark",
    Signals: "signal",
    End: "end",
}
_CHANGE_NAMES: Final[Mapping[type, str]] = {AddedColumn: "add", DroppedColumn: "drop", RedefinedColumn: "redefine"}
_CHANGES: Final = {name: kind for kind, name in _CHANGE_NAMES.items()}
_IMAGES: Final = get_args(ImagesKind)
_VERSION: Final = 1
_FULL_RESTART: Final = "anew"
"""The key of :attr:`Header.full_restart` in JSON."""


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
        case GtidSet():
            return str(value)
        case ChunkSpec():
            return value.to_dict()
        case Signals():
            return value.rows
        case AddedColumn():
            return asdict(value)
        case Header():
            values = dict(vars(value))
            values[_FULL_RESTART] = values.pop("full_restart")
            if not value.skips:
                del values["skips"]
            return {**values, "v": _VERSION}
        case HeaderTable():
            optional = ("partial", "filtered", "signals")
            return {name: one for name, one in vars(value).items() if one or name not in optional}
        case DdlRow():
            db, _, name = value.table.partition(".")
            changes = None if value.changes is None else [_plain_change(change) for change in value.changes]
            return {**vars(value), "db": db, "table": name, "adds": value.adds, "changes": changes}
    return {name: one for name, one in vars(value).items() if one is not None and name != "table"}


def _plain_change(change: ColumnChange) -> dict[str, Any]:
    return {"change": _CHANGE_NAMES[type(change)], **asdict(change)}


def describe(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Convert the stream's rows to those for the driver.

    :param most: maximum bytes of images that are sent along; half as many of one table. Of others that are in a file
        their stubs are sent.
    """
    sent_bytes: dict[str, int] = {}
    total = 0
    for batch in batches:
        summaries: list[str | None] = []
        sends: list[bool] = []
        stubs: list[bool] = []
        tables, kinds, _, _, data = batch.columns
        for table, kind, cell in zip(tables.to_pylist(), kinds.to_pylist(), data, strict=True):
            if kind not in _IMAGES:
                summaries.append(None)
                sends.append(True)
                stubs.append(False)
                continue
            images = cell.as_buffer()
            summary = summary_json(images)
            summaries.append(summary)
            size = max(images.size, Summary.from_json(summary).size)  # they may be in a file
            of_table, of_all = sent_bytes.get(table, 0) + size, total + size
            sends.append(of_table <= most // 2 and of_all <= most)
            stubs.append(not sends[-1] and is_stub(images))
            if sends[-1]:
                sent_bytes[table], total = of_table, of_all
        light, stub = (
            pc.if_else(pa.array(mask, pa.bool_()), data, pa.scalar(None, data.type)) for mask in (sends, stubs)
        )
        columns = [*batch.columns[:-1], light, pa.array(summaries, _TEXT), stub]
        yield pa.RecordBatch.from_arrays(columns, schema=_DESCRIBED)


def decode(described: pa.Table) -> Iterator[Message]:
    """Yield the messages in described rows.

    :raises DecodeError: a row is not a message.
    """
    columns = (described[name] for name in _DESCRIBED.names)
    for *plain, data, summary, stub in zip(*columns, strict=True):
        table, kind, schema, count = (cell.as_py() for cell in plain)
        message = _message(table, kind, schema, count, data.as_buffer(), summary.as_py())
        yield replace(message, stub=stub.as_buffer()) if isinstance(message, Images) else message


def open_rows(batch: pa.RecordBatch) -> Iterator[Message]:
    """Yield the messages in the stream's own rows; images have their data.

    :raises DecodeError: a row is not a message.
    """
    for *plain, cell in zip(*(batch[name] for name in _CARRIER.names), strict=True):
        table, kind, schema, count = (one.as_py() for one in plain)
        data = cell.as_buffer()
        yield _message(table, kind, schema, count, data, summary_json(data) if kind in _IMAGES else None)


def _message(table: str, kind: str, schema: str, count: int, data: pa.Buffer, summary: str | None) -> Message:
    if kind in _IMAGES:
        return Images(table, cast("ImagesKind", kind), schema, count, Summary.from_json(summary or "{}"), data)
    if kind in _DECODERS:
        return _DECODERS[kind](table, json.loads(data.to_pybytes()))
    raise DecodeError(f"a carrier row has unknown kind {kind!r}")


def _header(_table: None, value: dict[str, Any]) -> Header:
    if value["v"] != _VERSION:
        raise DecodeError(f"a batch header has version {value['v']!r}; this headgate reads version {_VERSION}")
    tables = {
        name: _known(HeaderTable, table, signals=tuple(table.get("signals", ())))
        for name, table in value["tables"].items()
    }
    readings = {table: _known(ReadingProgress, reading) for table, reading in value["readings"].items()}
    skipped = value["skipped"] and Skipped(value["skipped"]["count"], tuple(value["skipped"]["keys"]))
    decoded = {"actions": tuple(value["actions"]), "tables": tables, "readings": readings, "skipped": skipped}
    return _known(Header, value, **decoded, full_restart=value.get(_FULL_RESTART, False))


def _ddl(table: str, value: dict[str, Any]) -> DdlRow:
    """Decode a statement. Rows of versions that knew only added columns have ``adds`` and no ``changes``."""
    listed = value["changes"] if "changes" in value else value["adds"]
    changes = None if listed is None else tuple(map(_change, listed))
    return _known(DdlRow, value, table=table, seq=tuple(value["seq"]), changes=changes)


def _change(value: Mapping[str, Any]) -> ColumnChange:
    values = dict(value)
    change: ColumnChange = _CHANGES[values.pop("change", "add")](**values)
    return change


def _known(cls: type[_M], value: Mapping[str, Any], **decoded: Any) -> _M:
    """Make a message from the keys it knows; a later headgate may have more."""
    names = {field.name for field in fields(cls)}
    return cls(**{**{name: one for name, one in value.items() if name in names}, **decoded})


_DECODERS: Final[Mapping[str, Callable[[Any, Any], Message]]] = {
    _KINDS[Header]: _header,
    _KINDS[DdlRow]: _ddl,
    _KINDS[Redo]: lambda _, value: Redo(ChunkSpec.from_dict(value["chunk"]), value["reason"], value["whole_table"]),
    _KINDS[Stop]: lambda table, value: _known(Stop, value, table=table),
    _KINDS[HighWatermark]: lambda table, value: HighWatermark(table, GtidSet.parse(value["gtid"])),
    _KINDS[Signals]: Signals,
    _KINDS[End]: lambda _, value: _known(End, value),
}
