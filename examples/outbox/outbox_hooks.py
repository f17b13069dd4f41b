"""The hook of an outbox: the JSON of ``payload`` becomes typed columns.

The application writes its events to ``shop.outbox``, in the transaction that changes its own tables, and may delete
them at once: ``skip = ["delete"]`` in ``pipeline.toml`` leaves these deletes out, and the changelog has every event
once.

A change of this file that changes what it returns needs a new version in ``hook`` (``outbox_hooks:outbox@2``).
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

PAYLOAD = pa.schema(
    [("order_id", pa.int64()), ("customer", pa.string()), ("total_cents", pa.int64()), ("tags", pa.list_(pa.string()))]
)
"""What becomes of a payload: keys that are not listed are left out, and missing ones are null."""


def outbox(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Replace ``payload`` by its typed columns; ``id``, ``aggregatetype``, ``aggregateid`` and ``type`` stay."""
    payload = parsed(rows["payload"])
    columns = rows.drop_columns(["payload"])
    for field in PAYLOAD:
        columns = columns.append_column(field.name, payload[field.name])
    return columns


def parsed(texts: pa.Array) -> pa.RecordBatch:
    """Parse JSON objects, without a Python object for any of them."""
    if not len(texts):
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in PAYLOAD], schema=PAYLOAD)
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], pc.fill_null(texts, "{}")), "\n")
    data = lines[0].as_buffer()
    read = json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = json.ParseOptions(explicit_schema=PAYLOAD, unexpected_field_behavior="ignore")
    return json.read_json(pa.BufferReader(data), read, parse).combine_chunks().to_batches()[0]
