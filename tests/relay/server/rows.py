"""Row images for the relay's tests, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec
from headgate.replication import ImageBatch, LogBlock, canonical_schema, op_array, seq_array

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

PERSON = TableDef(
    "or_test",
    "person",
    (
        Column("id", "bigint", nullable=False),
        Column("first_name", "varchar", length=480, charset="utf8mb4"),
        Column("last_name", "varchar", length=480, charset="utf8mb4"),
        Column("birth_date", "date"),
        Column("deleted", "varchar", length=20, charset="utf8mb4"),
    ),
    (0,),
)


def image(
    table: TableDef,
    columns: Mapping[str, Sequence[Any]],
    *,
    ops: str,
    gtids: Sequence[str],
    pos: Sequence[int],
    ordinals: Sequence[int] | None = None,
    file: int = 1,
    ts_us: int = 1_700_000_000_000_000,
) -> ImageBatch:
    """A batch of row images; ``gtids``, ``pos`` and ``ops`` are per row."""
    fields = TableCodec(table).fields
    arrays = [pa.array(columns[field.name], field.type) for field in fields]
    names = list(dict.fromkeys(gtids))
    codes = pa.array([names.index(gtid) for gtid in gtids], pa.int32())
    meta = [
        op_array(np.frombuffer(ops.encode(), np.uint8)),
        seq_array(0, file, np.array(pos, np.int64), np.array(ordinals or range(len(pos)), np.int64)),
        pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
        pa.array([ts_us] * len(pos), pa.timestamp("us", tz="UTC")),
    ]
    schema = canonical_schema(table, fields)
    return ImageBatch(table, pa.RecordBatch.from_arrays([*meta, *arrays], schema=schema))


def block(*images: ImageBatch) -> LogBlock:
    return LogBlock(list(images), "binlog.000001")


def people(ids: Sequence[int], **more: Any) -> ImageBatch:
    """Inserted persons, all in one transaction unless ``gtids`` says otherwise."""
    rows = len(ids)
    columns = {
        "id": ids,
        "first_name": [f"first{i}" for i in ids],
        "last_name": [f"last{i}" for i in ids],
        "birth_date": [i % 30_000 for i in ids],
        "deleted": ["false"] * rows,
    }
    columns |= more.pop("columns", {})
    arguments = {"ops": "c" * rows, "gtids": [f"{UUID}:1"] * rows, "pos": [200] * rows, **more}
    return image(PERSON, columns, **arguments)
