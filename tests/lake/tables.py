"""Delta tables as a pipeline leaves them, made without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import Schema

from headgate.delta import files_of, write_files

__all__ = ["ledger_line", "make_table"]

_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "timestampNtz"],
    "writerFeatures": ["deletionVectors", "timestampNtz"],
}


def ledger_line(epoch: int, *tables: Mapping[str, object]) -> dict[str, object]:
    """The values of a ledger row."""
    return {"batch_id": epoch, "epoch": epoch, "gtid": "", "committed_at": datetime.now(UTC), "tables": list(tables)}


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
