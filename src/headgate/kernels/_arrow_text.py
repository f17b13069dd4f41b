"""Conversion of columns to text where Arrow's own casts use another form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.kernels._memory import u8

__all__ = [
    "base64_text",
    "escaped",
    "fixed_point",
    "json_objects",
    "json_string",
    "json_values",
    "put_base64",
    "quoted",
    "text_bytes",
]

_BASE64: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NEEDS_ESCAPE: Final = r'["\\\x00-\x1f]'
_CONTROL: Final = r"[\x00-\x1f]"


def fixed_point(array: pa.Array) -> pa.Array:
    """Convert decimals to text as MySQL does. Arrow's own text has exponents for small values (``1E-7``)."""
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


@njit(cache=True, nogil=True)
def put_base64(data: Any, start: int, end: int, out: Any, at: int) -> int:
    """Write ``data[start:end]`` in Base64. Return the index of the next byte."""
    rest = (end - start) % 3
    for k in range(start, end - rest, 3):
        three = u8(data, k) << 16 | u8(data, k + 1) << 8 | u8(data, k + 2)
        out[at] = _BASE64[three >> 18]
        out[at + 1] = _BASE64[three >> 12 & 63]
        out[at + 2] = _BASE64[three >> 6 & 63]
        out[at + 3] = _BASE64[three & 63]
        at += 4
    if rest:
        two = u8(data, end - rest) << 8 | (u8(data, end - 1) if rest == 2 else 0)
        out[at] = _BASE64[two >> 10]
        out[at + 1] = _BASE64[two >> 4 & 63]
        out[at + 2] = _BASE64[two << 2 & 63] if rest == 2 else 61
        out[at + 3] = 61
        at += 4
    return at


@njit(cache=True, nogil=True)
def _encode_base64(data: Any, offsets: Any, out_offsets: Any, out: Any) -> None:
    for i in range(offsets.shape[0] - 1):
        out_offsets[i + 1] = put_base64(data, offsets[i], offsets[i + 1], out, out_offsets[i])


def base64_text(array: pa.Array) -> pa.Array:
    """Encode a binary array as Base64 (RFC 4648, with padding)."""
    if array.offset or not len(array):
        array = pa.concat_arrays([array, pa.array([], array.type)])
    valid, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(array) + 1] if offsets is not None else np.zeros(1, np.int32)
    source = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    size = int(((np.diff(starts) + 2) // 3 * 4).sum())
    out_offsets, out = np.zeros(len(array) + 1, np.int32), np.empty(size, np.uint8)
    _encode_base64(source, starts, out_offsets, out)
    buffers = [valid, pa.py_buffer(out_offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.string(), len(array), buffers, null_count=array.null_count)


def quoted(text: pa.Array) -> pa.Array:
    """Put texts between double quotes."""
    return pc.binary_join_element_wise('"', text, '"', "")


def escaped(text: pa.Array) -> pa.Array:
    """Escape texts for JSON strings; the rare control characters are escaped one value at a time."""
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


def json_string(text: str) -> str:
    """Return a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def json_objects(
    names: Sequence[str], texts: Sequence[pa.Array], rows: int, absent: pa.Array | None = None
) -> pa.Array:
    """Return each row as a JSON object.

    :param names: the columns.
    :param texts: their values as JSON, without nulls.
    :param rows: the number of rows.
    :param absent: dictionary-encoded; the columns that a row leaves out, as a JSON list of names, null for none.
    """
    if absent is None:
        return _whole_objects(names, texts, rows)
    code = np.asarray(absent.indices.fill_null(-1))
    row_groups, parts = [np.zeros(0, np.int64)], [pa.array([], pa.string())]
    for k in np.unique(code).tolist():
        group = np.flatnonzero(code == k)
        left_out = set() if k < 0 else set(json.loads(absent.dictionary[k].as_py()))
        kept = [i for i, name in enumerate(names) if name not in left_out]
        row_groups.append(group)
        parts.append(
            _whole_objects([names[i] for i in kept], [texts[i].take(pa.array(group)) for i in kept], len(group))
        )
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(row_groups))))


def _whole_objects(names: Sequence[str], texts: Sequence[pa.Array], rows: int) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar("{}"), rows)
    parts: list[Any] = []
    for name, text in zip(names, texts, strict=True):
        parts += [f"{',' if parts else '{'}{json_string(name)}:", text]
    return pc.binary_join_element_wise(*parts, "}", "")


def json_values(array: pa.Array) -> pa.Array:
    """Return a column's values as JSON, ``null`` for NULL; what JSON lacks as in docs/reference/json-lines.md."""
    kind = array.type
    if pa.types.is_string(kind):
        text = quoted(escaped(array))
    elif pa.types.is_decimal(kind):
        text = quoted(fixed_point(array))
    elif pa.types.is_binary(kind):
        text = quoted(base64_text(array))
    elif pa.types.is_timestamp(kind):
        text = quoted(array.cast(pa.timestamp("us")).cast(pa.string()))
    elif pa.types.is_date(kind):
        text = quoted(array.cast(pa.string()))
    elif pa.types.is_struct(kind):
        names, fields = [field.name for field in kind], [array.field(order) for order in range(len(kind))]
        objects = json_objects(names, [json_values(one) for one in fields], len(array))
        text = pc.if_else(array.is_valid(), objects, None)
    elif pa.types.is_list(kind):
        numbers = pa.ListArray.from_arrays(array.offsets, json_values(array.values))
        lists = pc.binary_join_element_wise("[", pc.binary_join(numbers, ","), "]", "")
        text = pc.if_else(array.is_valid(), lists, None)
    elif pa.types.is_floating(kind):
        text = pc.if_else(pc.is_finite(array), array, None).cast(pa.string())
    else:
        text = array.cast(pa.string())
    return text.fill_null("null")


def text_bytes(texts: pa.Array) -> bytes:
    """Concatenate texts, none of them null, as UTF-8."""
    if not len(texts):
        return b""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset :]
    first, last = int(bounds[0]), int(bounds[len(texts)])
    return bytes(memoryview(data)[first:last]) if last > first else b""
