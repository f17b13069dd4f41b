"""JSON differences, which a log with ``binlog_row_value_options=PARTIAL_JSON`` holds instead of an updated document.

An update that uses JSON_SET, JSON_REPLACE or JSON_REMOVE on the column itself may be logged as a list of operations on
the document before it. Each is (MySQL source ``sql-common/json_diff.cc``, ``Json_diff_vector::read_binary``):

| bytes | |
|---|---|
| operation | 1: 0 replaces the value at a path, 1 inserts one, 2 removes one |
| path | length-encoded size, then the path as text in utf8mb4 |
| value | not for removal: length-encoded size, then a type byte and binary JSON |

The result is the same document as MySQL's, again in binary form, so that one codec makes the text of all documents.
Only the containers on the path to a change are parsed. The rest of a document keeps its bytes, because offsets in a
container count from its own first byte. Rewritten containers have the large form (4-byte offsets), which does not show
in the text.

Paths are those of ``Json_path::to_string``: ``$``, then ``.name``, ``."name"`` in JSON's quotes, ``[3]``, ``[last]`` or
``[last-3]``. If a path's index meets a value that is not an array, the value counts as an array of one element.

These cells are rare, so this is plain Python, one call per cell.
"""

from __future__ import annotations

import bisect
import json
import re
import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["apply_json_differences"]

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _STRING, _OPAQUE = 4, 5, 6, 7, 8, 12, 15
_SIZES: Final = {_LITERAL: 1, _INT16: 2, _UINT16: 2, _INT32: 4, _UINT32: 4, 9: 8, 10: 8, 11: 8}
"""Bytes of values with a fixed size."""
_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_MAX_DEPTH: Final = 100
"""``JSON_DOCUMENT_MAX_DEPTH`` of MySQL, which cannot store deeper documents. Values are encoded recursively."""
_LEG = re.compile(
    r'\.(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<name>[^."\[]+))|\[(?P<last>last)?(?:-?(?P<index>[0-9]{1,10}))?\]',
    re.DOTALL,
)


class _Value:
    """A JSON value: its bytes, or, after parsing, the values in it."""

    __slots__ = ("data", "items", "keys", "kind")

    def __init__(self, kind: int, data: bytes) -> None:
        self.kind = kind
        self.data = data
        self.items: list[_Value] | None = None
        self.keys: list[bytes] = []
        """Keys of an object, in MySQL's order: by length, then by bytes."""

    @property
    def is_array(self) -> bool:
        return self.kind in (_SMALL_ARRAY, _LARGE_ARRAY)

    @property
    def is_object(self) -> bool:
        return self.kind in (_SMALL_OBJECT, _LARGE_OBJECT)

    def open(self) -> list[_Value]:
        """Return the values in this object or array, for changes in place."""
        if self.items is None:
            self._parse()
        assert self.items is not None
        return self.items

    def _parse(self) -> None:
        large, data = self.kind in (_LARGE_OBJECT, _LARGE_ARRAY), self.data
        width, form = (4, "<I") if large else (2, "<H")
        count = struct.unpack_from(form, data)[0]
        at = 2 * width
        if self.is_object:
            for _ in range(count):
                start, size = struct.unpack_from(form + "H", data, at)
                if start + size > len(data):
                    raise ValueError("a key lies outside its object")
                self.keys.append(data[start : start + size])
                at += width + 2
        self.items = []
        for _ in range(count):
            kind = data[at]
            inline = kind in (_LITERAL, _INT16, _UINT16) or (large and kind in (_INT32, _UINT32))
            offset = at + 1 if inline else struct.unpack_from(form, data, at + 1)[0]
            self.items.append(_Value(kind, _extent(kind, data, offset)))
            at += 1 + width

    def encode(self) -> tuple[int, bytes]:
        """Return ``(type, bytes)``."""
        if self.items is None:
            return self.kind, self.data
        is_object = self.is_object
        at = 8 + 6 * len(self.keys) + 5 * len(self.items)
        entries, body = bytearray(), bytearray()
        for key in self.keys:
            entries += struct.pack("<IH", at + len(body), len(key))
            body += key
        for item in self.items:
            kind, data = item.encode()
            if _LITERAL <= kind <= _UINT32:
                entries += bytes([kind]) + data.ljust(4, b"\0")
            else:
                entries += struct.pack("<BI", kind, at + len(body))
                body += data
        head = struct.pack("<II", len(self.items), at + len(body))
        return _LARGE_OBJECT if is_object else _LARGE_ARRAY, bytes(head + entries + body)


def _extent(kind: int, data: bytes, offset: int) -> bytes:
    """Return the bytes of the value at ``offset``."""
    if kind <= _LARGE_ARRAY:
        form = "<I" if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else "<H"
        size = struct.unpack_from(form, data, offset + struct.calcsize(form))[0]
    elif kind in _SIZES:
        size = _SIZES[kind]
    elif kind in (_STRING, _OPAQUE):
        start = offset + (kind == _OPAQUE)
        length, behind = _varlen(data, start)
        size = behind + length - offset
    else:
        raise ValueError(f"{kind} is not a type of a JSON value")
    if offset + size > len(data):
        raise ValueError("a JSON value lies outside its document")
    return data[offset : offset + size]


def _varlen(data: bytes, at: int) -> tuple[int, int]:
    """Parse ``(number, index behind it)``: 7 bits a byte."""
    number = 0
    for shift in range(0, 35, 7):
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise ValueError("a length in a JSON document is too long")


@dataclass(frozen=True)
class _Leg:
    """One step of a path."""

    key: bytes | None = None
    index: int = 0
    from_end: bool = False

    def index_in(self, size: int) -> int | None:
        """Return the index in an array of ``size``; None if out of range."""
        index = size - 1 - self.index if self.from_end else self.index
        return index if 0 <= index < size else None


def _legs(path: str) -> list[_Leg]:
    if not path.startswith("$"):
        raise ValueError("a path is not a JSON path")
    at, legs = 1, []
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            raise ValueError("a path is not a JSON path")
        at = leg.end()
        if leg["quoted"] is not None:
            legs.append(_Leg(str(json.loads(f'"{leg["quoted"]}"', strict=False)).encode("utf-8", "surrogatepass")))
        elif leg["name"] is not None:
            legs.append(_Leg(leg["name"].encode()))
        else:
            legs.append(_Leg(index=int(leg["index"] or 0), from_end=leg["last"] is not None))
    return legs


class _Document:
    """Document that successive operations change."""

    def __init__(self, data: bytes) -> None:
        self.root = _Value(data[0], data[1:]) if data else _Value(_LITERAL, b"\0")

    def apply(self, operation: int, path: str, value: _Value | None) -> None:
        legs = _legs(path)
        if operation == _REPLACE and value is not None:
            self._replace(legs, value)
        elif operation == _INSERT and value is not None and legs:
            self._insert(self._find(legs[:-1])[-1], legs[-1], value)
        elif operation == _REMOVE and legs:
            self._remove(self._find(legs[:-1])[-1], legs[-1])
        else:
            raise ValueError(f"operation {operation} cannot be applied at its path")

    def _find(self, legs: list[_Leg]) -> list[_Value]:
        """Return the values on the path, the root first. A value that counts as an array of one appears once."""
        path = [self.root]
        for leg in legs:
            value = path[-1]
            if len(path) > _MAX_DEPTH:
                raise ValueError(f"a path leads deeper than {_MAX_DEPTH} levels")
            if leg.key is not None:
                if not value.is_object:
                    raise ValueError("a path names a member of a value that is not an object")
                items = value.open()
                if leg.key not in value.keys:
                    raise ValueError("a path names a member that does not exist")
                path.append(items[value.keys.index(leg.key)])
            elif value.is_array:
                items = value.open()
                index = leg.index_in(len(items))
                if index is None:
                    raise ValueError("a path names an element that does not exist")
                path.append(items[index])
            elif leg.index_in(1) is None:
                raise ValueError("a path names an element of a value that is not an array")
        return path

    def _replace(self, legs: list[_Leg], value: _Value) -> None:
        path = self._find(legs)
        if len(path) == 1:
            self.root = value
            return
        items = path[-2].open()
        items[next(i for i, item in enumerate(items) if item is path[-1])] = value

    @staticmethod
    def _insert(parent: _Value, leg: _Leg, value: _Value) -> None:
        if leg.key is not None and parent.is_object:
            items = parent.open()
            index = bisect.bisect_left(parent.keys, (len(leg.key), leg.key), key=lambda key: (len(key), key))
            if parent.keys[index : index + 1] == [leg.key]:
                items[index] = value
            else:
                parent.keys.insert(index, leg.key)
                items.insert(index, value)
        elif leg.key is None and parent.is_array:
            items = parent.open()
            items.insert(max(0, len(items) - 1 - leg.index) if leg.from_end else leg.index, value)
        else:
            raise ValueError("a JSON insert needs an object for a member, an array for an element")

    @staticmethod
    def _remove(parent: _Value, leg: _Leg) -> None:
        index: int | None = None
        if leg.key is not None and parent.is_object:
            items = parent.open()
            if leg.key in parent.keys:
                index = parent.keys.index(leg.key)
                del parent.keys[index]
        elif leg.key is None and parent.is_array:
            items = parent.open()
            index = leg.index_in(len(items))
        if index is None:
            raise ValueError("the value to remove does not exist")
        del items[index]


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """Parse ``(number, index behind it)``: a length-encoded integer of the client/server protocol."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or at + 1 + size > len(data):
        raise ValueError("a length in JSON differences is malformed")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def apply_json_differences(document: bytes, differences: bytes) -> bytes:
    """Return the document after the differences. Both are in MySQL's binary form (no bytes at all: ``null``).

    :raises ValueError: the differences are malformed, or do not fit the document.
    """
    try:
        return _apply(document, differences)
    except (IndexError, struct.error, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError("a JSON document or its differences are truncated or malformed") from None


def _apply(document: bytes, differences: bytes) -> bytes:
    changed, at = _Document(document), 0
    while at < len(differences):
        operation = differences[at]
        size, at = _packed(differences, at + 1)
        path = _part(differences, at, size).decode("utf-8")
        at += size
        value = None
        if operation != _REMOVE:
            size, at = _packed(differences, at)
            data = _part(differences, at, size)
            value = _Value(data[0], data[1:])
            at += size
        changed.apply(operation, path, value)
    kind, data = changed.root.encode()
    return bytes([kind]) + data


def _part(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("JSON differences are truncated")
    return data[at : at + size]
