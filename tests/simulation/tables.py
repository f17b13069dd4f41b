"""The simulated tables: their columns and keys, how their rows change, and what the log has of a change.

========= ========== ==================================================
d.a to c  id, v      key ``id``; whole images
d.k       id, v      no key: few different rows, of which there are several copies
d.p       id, v, w   key ``id``; sessions log whole images, MINIMAL ones, or NOBLOB ones (``w`` is the blob)
========= ========== ==================================================

A row is a tuple of its values. The rows of a table with a key are a mapping key → row, of one without a key row →
number of copies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.carrier import Definition
from headgate.catalog import Column, TableDef
from headgate.replication import ABSENT_FIELD, META_FIELDS, canonical_schema
from tests.simulation.choices import Chooser
from tests.simulation.rooms import definition_of

__all__ = ["SHAPES", "TABLE_SETS", "Image", "Row", "Rows", "Shape", "State"]

Row: TypeAlias = tuple[Any, ...]
"""Values of a row; those that an image leaves out are None."""
Rows: TypeAlias = Mapping[Any, Any]
State: TypeAlias = Mapping[str, Rows]
"""The rows of each table that exists."""
Image: TypeAlias = tuple[str, str, Row, str | None]
"""Table, operation (c, b, u, d, t), values, and the columns that it leaves out, as JSON (None: it is whole)."""

_KEYS: Final = 24
_CONTENTS: Final = (4, 3)
"""Number of values of each column of the table without a key."""
_IMAGES: Final = ("FULL", "MINIMAL", "NOBLOB")


class Shape:
    """A table's shape.

    :param columns: all of type bigint.
    """

    def __init__(self, table: str, columns: tuple[str, ...], *, has_key: bool = True, logs_parts: bool = False) -> None:
        self.table, self.columns, self.has_key, self.logs_parts = table, columns, has_key, logs_parts
        db, _, name = table.partition(".")
        self.definition = TableDef(db, name, tuple(Column(one, "bigint") for one in columns), (0,) if has_key else ())
        self.fields = tuple(pa.field(one, pa.int64()) for one in columns)
        self.rows = pa.schema(self.fields)
        self.schema = canonical_schema(self.definition, self.fields)
        self.partial_schema = self.schema.insert(len(META_FIELDS), ABSENT_FIELD)
        self.types = dict.fromkeys(columns, "bigint")
        self.nothing: Row = (None,) * len(columns)

    @cached_property
    def carried(self) -> Definition:
        """The definition that images are carried with."""
        return definition_of(self.definition, self.schema)

    @cached_property
    def carried_json(self) -> str:
        return self.carried.to_json()

    # --- rows

    def first_rows(self, choose: Chooser) -> dict[Any, Any]:
        """Return the rows of a table that was there before the log."""
        if self.has_key:
            return {key: (key, *(0 for _ in self.columns[1:])) for key in range(choose.below(_KEYS))}
        return {(number, 0): 1 + choose.below(3) for number in range(choose.below(_CONTENTS[0] + 1))}

    def altered(self, rows: Rows) -> Rows:
        """Return rows after an ALTER that changes values, of which the log has nothing."""
        if self.has_key:
            return {key: (row[0], row[1] + 1, *row[2:]) for key, row in rows.items()}
        return {(row[0], (row[1] + 1) % _CONTENTS[1]): copies for row, copies in rows.items()}

    def count(self, rows: Rows) -> int:
        return len(rows) if self.has_key else sum(rows.values())

    def select(self, rows: Rows, low: int, high: int) -> list[Row]:
        """Return the rows of a range of keys, ``low`` not included; without a key, all rows."""
        if self.has_key:
            return [rows[key] for key in sorted(rows) if low < key <= high]
        return [row for row, copies in sorted(rows.items()) for _ in range(copies)]

    def change(self, rows: dict[Any, Any], choose: Chooser) -> list[Image]:
        """Change rows; return the images of the change."""
        return self._change_keyed(rows, choose) if self.has_key else self._change_keyless(rows, choose)

    def _change_keyless(self, rows: dict[Any, Any], choose: Chooser) -> list[Image]:
        old, op = self._content(choose), choose.below(8)
        if old not in rows or op < 2:
            rows[old] = rows.get(old, 0) + 1
            return [(self.table, "c", old, None)]
        rows[old] -= 1
        if not rows[old]:
            del rows[old]
        if op < 5:
            return [(self.table, "d", old, None)]
        new = self._content(choose)
        rows[new] = rows.get(new, 0) + 1
        return [(self.table, "b", old, None), (self.table, "u", new, None)]

    @staticmethod
    def _content(choose: Chooser) -> Row:
        return tuple(map(choose.below, _CONTENTS))

    def _change_keyed(self, rows: dict[Any, Any], choose: Chooser) -> list[Image]:
        key, value, op = choose.below(_KEYS), choose.below(1 << 20), choose.below(8)
        kind = choose.pick(_IMAGES) if self.logs_parts else _IMAGES[0]
        old = rows.get(key)
        if old is None:
            rows[key] = new = (key, *(value + number for number in range(len(self.columns) - 1)))
            return [(self.table, "c", new, None)]
        if op < 2:
            del rows[key]
            return [self._image("d", old, kind)]
        new = (key, value, *old[2:])
        if self.logs_parts and op == 3:
            new = (*old[:-1], value)
        if op == 2:
            other = choose.below(_KEYS)
            if other in rows:
                return []
            # Half of them change the key alone: of a MINIMAL image that is all.
            new = (other, *(old if self.logs_parts and value % 2 else new)[1:])
            del rows[key]
        rows[new[0]] = new
        changed: set[str] = set()
        if kind != "FULL":
            changed = {name for name, one, other in zip(self.columns, old, new, strict=True) if one != other}
        return [self._image("b", old, kind), self._image("u", new, kind, changed)]

    def _image(self, op: str, row: Row, kind: str, changed: Collection[str] = ()) -> Image:
        """Return an image as a session with this ``binlog_row_image`` logs it (MySQL manual, "Binary Logging Options").

        :param changed: columns that the statement changed. The walk fills in the key of an update.
        """
        if kind == "FULL":
            return self.table, op, row, None
        logged = {"id", *changed} if kind == "MINIMAL" else {*self.columns[:-1], *changed}
        absent = [name for name in self.columns if name not in logged]
        if not absent:
            return self.table, op, row, None
        values = tuple(value if name in logged else None for name, value in zip(self.columns, row, strict=True))
        return self.table, op, values, json.dumps(absent)

    def present(self, image: Image) -> Iterator[tuple[str, Any]]:
        """Yield the columns that an image has, with their values."""
        absent = json.loads(image[3]) if image[3] is not None else ()
        for name, value in zip(self.columns, image[2], strict=True):
            if name not in absent:
                yield name, value


SHAPES: Final = {
    one.table: one
    for one in (
        *(Shape(table, ("id", "v")) for table in ("d.a", "d.b", "d.c")),
        Shape("d.k", ("id", "v"), has_key=False),
        Shape("d.p", ("id", "v", "w"), logs_parts=True),
    )
}
TABLE_SETS: Final = (("d.a", "d.b", "d.c"), ("d.a", "d.k", "d.c"), ("d.a", "d.p", "d.b"), ("d.p", "d.k", "d.a"))
"""The tables of a source. The third does not exist at first."""
