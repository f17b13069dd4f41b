"""JSON lines: one change, one object, in log order.

The lines are put together column by column with Arrow's string functions, so that printing costs no Python object per
row or value. Keys of a line: ``op, db, table, gtid, file, pos, ordinal, ts, before, after``; a DDL line has
``statement`` and no images. Values: see docs/json-lines.md.

Columns that a partial row image leaves out are left out of ``before`` and ``after`` too.

The batches must have been decoded with ``Policies(temporals="text")`` and ``images="all"``.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.catalog import TableDef
from headgate.replication import ABSENT_FIELD, META_FIELDS, Ddl, ImageBatch, LogBlock

__all__ = ["block_lines", "ddl_line", "snapshot_lines"]

_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NEEDS_ESCAPE: Final = r'["\\\x00-\x1f]'
_CONTROL: Final = r"[\x00-\x1f]"
_BASE64: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


def block_lines(block: LogBlock) -> list[str]:
    """The lines of a block, without line ends, in log order."""
    parts = [_lines(image, block.file) for image in block.images]
    if len(parts) == 1:
        return list(parts[0][0].to_pylist())
    if not parts:
        return []
    lines = pa.concat_arrays([part[0] for part in parts])
    pos, ordinal = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return list(lines.take(pa.array(np.lexsort((ordinal, pos)))).to_pylist())


def snapshot_lines(image: ImageBatch) -> list[str]:
    """The lines of snapshot rows (``r``), which have no place in the log."""
    batch = image.batch
    table = f'"db":{_string(image.table.db)},"table":{_string(image.table.name)}'
    head = f'{{"op":"r",{table},"gtid":null,"file":null,"pos":null,"ordinal":'
    ordinal = batch.column("_seq").field("ordinal").cast(pa.string())
    parts = [head, ordinal, ',"ts":"', _iso(batch.column("_ts")), '","before":null,"after":', _objects(image), "}"]
    return list(pc.binary_join_element_wise(*parts, "").to_pylist())


def ddl_line(ddl: Ddl) -> str:
    """The line of a statement that changed a followed table's definition."""
    stamp = _iso(pa.array([ddl.ts_us], pa.timestamp("us", tz="UTC")))[0].as_py()
    line = {
        "op": "ddl", "db": ddl.db, "table": ddl.table, "gtid": ddl.gtid, "file": ddl.file, "pos": ddl.pos,
        "ordinal": ddl.ordinal, "ts": stamp, "statement": ddl.statement,
    }  # fmt: skip
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _iso(stamps: pa.Array) -> pa.Array:
    """``2026-01-02T03:04:05.000006Z``"""
    return pc.binary_join_element_wise(
        pc.replace_substring(stamps.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1), "Z", ""
    )


def _lines(image: ImageBatch, file: str) -> tuple[pa.Array, Any, Any]:
    """The lines of one table's images, with ``pos`` and ``ordinal`` of each (int64)."""
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
    where = f'","db":{_string(table.db)},"table":{_string(table.name)},"gtid":"'
    rows = pa.array(kept)
    gtid = batch.column("_gtid").cast(pa.string()).take(rows)
    parts = [
        '{"op":"', op.take(rows), where, gtid, f'","file":{_string(file)},"pos":',
        pa.array(pos).cast(pa.string()), ',"ordinal":', pa.array(ordinal).cast(pa.string()), ',"ts":"',
        _iso(batch.column("_ts").take(rows)), '","before":', before, ',"after":', after, "}",
    ]  # fmt: skip
    return pc.binary_join_element_wise(*parts, ""), pos, ordinal


def _pick(objects: pa.Array, rows: Any, has: Any) -> pa.Array:
    """``objects[rows]`` where ``has``, else ``null``."""
    return objects.take(pa.array(rows, mask=~has)).fill_null("null")


def _objects(image: ImageBatch) -> pa.Array:
    """Each row's columns as one JSON object; without the columns that its image leaves out."""
    batch = image.batch
    if batch.num_columns == len(META_FIELDS):
        return pa.array(["null"] * batch.num_rows, pa.string())
    index = batch.schema.get_field_index(ABSENT_FIELD.name)
    if index < 0:
        return _whole_objects(image.table, batch.columns[len(META_FIELDS) :], set())
    absent, columns = batch.column(index), batch.columns[index + 1 :]
    code = np.asarray(absent.indices.fill_null(-1))
    places, parts = [], []
    for k in np.unique(code).tolist():
        rows = np.flatnonzero(code == k)
        names = set() if k < 0 else set(json.loads(absent.dictionary[k].as_py()))
        places.append(rows)
        parts.append(_whole_objects(image.table, [column.take(pa.array(rows)) for column in columns], names))
    order = np.argsort(np.concatenate(places))
    return pa.concat_arrays(parts).take(pa.array(order))


def _whole_objects(table: TableDef, columns: list[pa.Array], absent: set[str]) -> pa.Array:
    """Rows as JSON objects of the columns that are not ``absent``; at least one is there."""
    parts: list[Any] = []
    for i, (column, array) in enumerate(zip(table.columns, columns, strict=True)):
        if column.name not in absent:
            parts += [f"{',' if parts else '{'}{_string(column.name)}:", _values(table, i, array)]
    return pc.binary_join_element_wise(*parts, "}", "")


def _values(table: TableDef, index: int, array: pa.Array) -> pa.Array:
    """One column's values as JSON text, ``null`` for NULL."""
    column, kind = table.columns[index], array.type
    if pa.types.is_string(kind):
        text = _quoted(_escaped(array))
    elif pa.types.is_decimal(kind):
        text = _quoted(_fixed_point(array)) if column.type == "decimal" else array.cast(pa.string())
    elif pa.types.is_binary(kind):
        text = _quoted(_base64(array))
    elif pa.types.is_struct(kind):
        srid, wkb = array.field("srid").cast(pa.string()), _base64(array.field("wkb"))
        text = pc.if_else(
            array.is_valid(), pc.binary_join_element_wise('{"srid":', srid, ',"wkb":"', wkb, '"}', ""), None
        )
    elif pa.types.is_list(kind):
        numbers = pa.ListArray.from_arrays(array.offsets, array.values.cast(pa.string()))
        text = pc.binary_join_element_wise("[", pc.binary_join(numbers, ","), "]", "")
        text = pc.if_else(array.is_valid(), text, None)
    else:
        text = array.cast(pa.string())
    return text.fill_null("null")


def _fixed_point(array: pa.Array) -> pa.Array:
    """Decimals as MySQL writes them. Arrow's own text turns to exponents where a value is small (``1E-7``)."""
    scale = array.type.scale
    if not scale:
        return array.cast(pa.string())
    whole = pa.Array.from_buffers(
        pa.decimal128(array.type.precision, 0), len(array), array.buffers(), array.null_count, array.offset
    ).cast(pa.string())
    minus = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    parts = (minus, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale))
    return pc.binary_join_element_wise(*parts, "")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _escaped(text: pa.Array) -> pa.Array:
    """JSON's escapes inside strings; the rare control characters are escaped one value at a time."""
    if not pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPE)).as_py():
        return text
    for plain, escape in _ESCAPES:
        text = pc.replace_substring(text, plain, escape)
    rest = pc.fill_null(pc.match_substring_regex(text, _CONTROL), False)
    if pc.any(rest).as_py():
        fixed = [
            "".join(f"\\u{ord(ch):04x}" if ch < " " else ch for ch in value) for value in text.filter(rest).to_pylist()
        ]
        text = pc.replace_with_mask(text, rest, pa.array(fixed, pa.string()))
    return text


@njit(cache=True, nogil=True)
def _encode_base64(data: Any, offsets: Any, letters: Any, out_offsets: Any, out: Any) -> None:
    q = 0
    for i in range(offsets.shape[0] - 1):
        out_offsets[i] = q
        p = offsets[i]
        end = offsets[i + 1]
        while p < end:
            left = end - p
            word = np.int64(data[p]) << 16
            if left > 1:
                word |= np.int64(data[p + 1]) << 8
            if left > 2:
                word |= np.int64(data[p + 2])
            out[q] = letters[word >> 18]
            out[q + 1] = letters[(word >> 12) & 63]
            out[q + 2] = letters[(word >> 6) & 63] if left > 1 else 61
            out[q + 3] = letters[word & 63] if left > 2 else 61
            q += 4
            p += 3
    out_offsets[offsets.shape[0] - 1] = q


def _base64(array: pa.Array) -> pa.Array:
    """Base64 (RFC 4648, with padding) of a binary array."""
    if array.offset or not len(array):
        array = pa.concat_arrays([array, pa.array([], array.type)])
    valid, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(array) + 1] if offsets is not None else np.zeros(1, np.int32)
    source = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    size = int(((np.diff(starts) + 2) // 3 * 4).sum())
    out_offsets, out = np.zeros(len(array) + 1, np.int32), np.empty(size, np.uint8)
    _encode_base64(source, starts, _BASE64, out_offsets, out)
    buffers = [valid, pa.py_buffer(out_offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.string(), len(array), buffers, null_count=array.null_count)
