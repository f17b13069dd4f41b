"""JSON lines: one object for each change, in log order.

Lines are built column by column with Arrow's string functions, so that a row costs no Python object except its line.
Keys of a line: ``op, db, table, gtid, file, pos, ordinal, ts, before, after``; a DDL line has ``statement`` and no
images. Values: see docs/reference/json-lines.md.

Columns that a partial row image leaves out are missing in ``before`` and ``after`` too.

The batches must have been decoded with ``Policies(temporals="text", ambiguous_keys="spell")`` and ``images="all"``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef
from headgate.columns import HEX_MARK, needs_hex, read_hex_key
from headgate.kernels import json_objects, json_string, json_values
from headgate.replication import ABSENT_FIELD, META_FIELDS, Ddl, ImageBatch, LogBlock

__all__ = ["block_lines", "ddl_line", "snapshot_lines"]


def block_lines(block: LogBlock) -> list[str]:
    """Return the lines of a block, without line ends, in log order."""
    parts = [_lines(image, block.file) for image in block.images]
    if len(parts) == 1:
        return list(parts[0][0].to_pylist())
    if not parts:
        return []
    lines = pa.concat_arrays([part[0] for part in parts])
    pos, ordinal = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return list(lines.take(pa.array(np.lexsort((ordinal, pos)))).to_pylist())


def snapshot_lines(image: ImageBatch) -> list[str]:
    """Return the lines of snapshot rows (``r``), which have no position in the log."""
    batch = image.batch
    table = f'"db":{json_string(image.table.db)},"table":{json_string(image.table.name)}'
    head = f'{{"op":"r",{table},"gtid":null,"file":null,"pos":null,"ordinal":'
    ordinal = batch.column("_seq").field("ordinal").cast(pa.string())
    parts = [head, ordinal, ',"ts":"', _iso(batch.column("_ts")), '","before":null,"after":', _objects(image), "}"]
    return list(pc.binary_join_element_wise(*parts, "").to_pylist())


def ddl_line(ddl: Ddl) -> str:
    """Return the line of a statement that changed a followed table's definition."""
    stamp = _iso(pa.array([ddl.ts_us], pa.timestamp("us", tz="UTC")))[0].as_py()
    line = {
        "op": "ddl",
        "db": ddl.db,
        "table": ddl.table,
        "gtid": ddl.gtid,
        "file": ddl.file,
        "pos": ddl.pos,
        "ordinal": ddl.ordinal,
        "ts": stamp,
        "statement": ddl.statement,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _iso(stamps: pa.Array) -> pa.Array:
    """``2026-01-02T03:04:05.000006Z``"""
    return pc.binary_join_element_wise(
        pc.replace_substring(stamps.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1), "Z", ""
    )


def _lines(image: ImageBatch, file: str) -> tuple[pa.Array, Any, Any]:
    """Return the lines of one table's images, with ``pos`` and ``ordinal`` of each (int64)."""
    batch, table = image.batch, image.table
    op = batch.column("_op")
    letters = (
        np.frombuffer(op.buffers()[2], np.uint8)[op.offset : op.offset + len(op)] if len(op) else np.zeros(0, np.uint8)
    )
    kept = np.flatnonzero(letters != ord("b"))
    kind = letters[kept]
    seq = batch.column("_seq")
    pos, ordinal = (np.asarray(seq.field(name))[kept] for name in ("pos", "ordinal"))
    objects = _objects(image)
    before = _pick(objects, np.where(kind == ord("u"), kept - 1, kept), (kind == ord("u")) | (kind == ord("d")))
    after = _pick(objects, kept, (kind == ord("u")) | (kind == ord("c")))
    where = f'","db":{json_string(table.db)},"table":{json_string(table.name)},"gtid":'
    rows = pa.array(kept)
    gtid = pc.binary_join_element_wise('"', batch.column("_gtid").cast(pa.string()).take(rows), '"', "")
    if gtid.null_count:  # a log without GTIDs
        gtid = gtid.fill_null("null")
    parts = [
        '{"op":"', op.take(rows), where, gtid, f',"file":{json_string(file)},"pos":',
        pa.array(pos).cast(pa.string()), ',"ordinal":', pa.array(ordinal).cast(pa.string()), ',"ts":"',
        _iso(batch.column("_ts").take(rows)), '","before":', before, ',"after":', after, "}",
    ]  # fmt: skip
    return pc.binary_join_element_wise(*parts, ""), pos, ordinal


def _pick(objects: pa.Array, rows: Any, has: Any) -> pa.Array:
    """Return ``objects[rows]`` where ``has``, else ``null``."""
    return objects.take(pa.array(rows, mask=~has)).fill_null("null")


def _objects(image: ImageBatch) -> pa.Array:
    """Return each row's columns as one JSON object, without the columns missing in its image."""
    batch = image.batch
    if batch.num_columns == len(META_FIELDS):
        return pa.array(["null"] * batch.num_rows, pa.string())
    index = batch.schema.get_field_index(ABSENT_FIELD.name)
    absent, first = (None, len(META_FIELDS)) if index < 0 else (batch.column(index), index + 1)
    names = [column.name for column in image.table.columns]
    texts = [_values(image.table, i, array) for i, array in enumerate(batch.columns[first:])]
    return json_objects(names, texts, batch.num_rows, absent)


def _with_spelled(text: pa.Array, array: pa.Array) -> pa.Array:
    """Return ``text`` with values spelled by their bytes as objects, and an ENUM's or SET's value 0 as that number."""
    marked = pc.fill_null(pc.starts_with(array, HEX_MARK), False)
    if not pc.any(marked).as_py():
        return text
    texts = []
    for value in map(read_hex_key, array.filter(marked).to_pylist()):
        assert value is not None
        spelled = None if value.charset is None else {"charset": value.charset, "hex": value.stored.hex()}
        texts.append("0" if spelled is None else json.dumps(spelled, separators=(",", ":")))
    return pc.replace_with_mask(text, marked, pa.array(texts, pa.string()))


def _values(table: TableDef, index: int, array: pa.Array) -> pa.Array:
    """Return one column's values as JSON text, ``null`` for NULL."""
    column = table.columns[index]
    if pa.types.is_decimal(array.type) and column.type != "decimal":  # BIGINT UNSIGNED
        return array.cast(pa.string()).fill_null("null")
    text = json_values(array)
    spelled = pa.types.is_string(array.type) and index in table.key and needs_hex(column)
    return _with_spelled(text, array) if spelled else text
