"""Delta tables as a pipeline leaves them, made without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import Schema

from headgate.delta import files_of, write_files
from headgate.lake import PIPELINE, TABLE, Lake, LedgerRow, TableState

__all__ = ["make_ledger", "make_table"]

_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "timestampNtz"],
    "writerFeatures": ["deletionVectors", "timestampNtz"],
}


_KINDS = {"int": pa.int64(), "int | None": pa.int64(), "str": pa.string(), "str | None": pa.string()}
_STATE = pa.struct([(one.name, _KINDS[str(one.type)]) for one in fields(TableState) if str(one.type) in _KINDS])
_LEDGER = pa.schema(
    [
        ("batch_id", pa.int64()), ("epoch", pa.int64()), ("gtid", pa.string()),
        ("committed_at", pa.timestamp("us", "UTC")), ("tables", pa.list_(_STATE)), ("snapshots", pa.string()),
        ("notifications", pa.string()),
    ]
)  # fmt: skip


def make_ledger(
    lake: Lake, *files: Sequence[int], gtid: str = "", states: Sequence[TableState] = (), pipeline: str = "shop"
) -> None:
    """A pipeline's ledger with a row for each epoch in these files, without columns that have their defaults in it."""

    def line(epoch: int) -> dict[str, object]:
        return LedgerRow(epoch, epoch, gtid, datetime.now(UTC), {state.table: state for state in states}).columns()

    rows = [pa.Table.from_pylist(list(map(line, epochs)), _LEDGER) for epochs in files]
    make_table(lake.ledger, rows, _LEDGER, {PIPELINE: pipeline, TABLE: "_headgate.ledger"})


def make_table(
    path: str, files: Sequence[pa.Table], schema: pa.Schema | Schema, properties: Mapping[str, str], **protocol: object
) -> None:
    """A table at version 0.

    :param files: the rows of each file, which may lack columns.
    :param protocol: what is different in it.
    """
    described = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)
    actions = [
        json.dumps({"protocol": {**_PROTOCOL, **protocol}}),
        json.dumps({
            "metaData": {
                "id": "0b0c5b8e-5a55-4d0c-9d0e-6a1f5d1e5c11", "format": {"provider": "parquet", "options": {}},
                "schemaString": described.to_json(), "partitionColumns": [],
                "configuration": dict(properties), "createdTime": 0,
            }
        }),
    ]  # fmt: skip
    for rows in files:
        actions += write_files(rows.to_batches(), path, rows.schema, "snappy")
    files_of(path).put(f"_delta_log/{0:020}.json", ("\n".join(actions) + "\n").encode())
