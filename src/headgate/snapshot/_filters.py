"""Which rows fulfil a chunk's filter? MySQL decides, also about rows that are no longer there.

A chunk with a filter asks for ``range AND (filter)``. What the SELECT found and the window did not touch fulfilled it
then, as now: nothing changed those rows. A before-image that the rewind puts back is another matter: it is the row at
E, which perhaps nobody can SELECT any more. So MySQL is asked about the image itself, with a derived table that has the
table's name and, of its columns, those that the filter can mean: every column whose name is a word of the filter, with
the column's type and collation. The condition is the very text that the chunk's SELECT has.

Where that would not decide alike, there is no answer (:class:`Undecided`), and the chunk is read again at a later E:

- a column whose value as text, number or bytes a JSON_TABLE does not give in the same way (BIT, ENUM, SET, FLOAT,
  binary types, JSON, geometry, TIME as microseconds; dates that were read as null),
- whatever MySQL refuses (a name with its database, a function that needs a column that was left out).

A filter that depends on the moment (``NOW()``, ``RAND()``, variables) gives what it gives; a batch that is repeated may
then hold other rows of that chunk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate._policies import Policies
from headgate.catalog import INTEGERS, Column, TableDef
from headgate.errors import DefiniteServerError
from headgate.names import quote_name
from headgate.snapshot._keys import TEMPORALS, TEXTS
from headgate.snapshot._ranges import Query, documents, json_values, places
from headgate.snapshot._window import InRange, Mask

__all__ = ["Undecided", "fulfils"]


_TEXT = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)


class Undecided(Exception):
    """MySQL cannot be asked about these rows; says why."""


def fulfils(query: Query, table: TableDef, condition: str, policies: Policies) -> InRange:
    """A function from rows (the table's columns, Arrow) to a mask: which fulfil ``condition``.

    The function raises :class:`Undecided`.
    """
    words = {word.lower() for word in re.findall(r"[\w$]+", _TEXT.sub(" ", condition))}
    columns = [column for column in table.columns if column.name.lower() in words or not _plain(column.name)]

    def decide(rows: pa.Table) -> Mask:
        zero_dates = policies.of(table.full_name).zero_dates
        specs = [_spec(column, f"k{i}", i, zero_dates) for i, column in enumerate(columns)]
        names = ", ".join(f"j.k{i} AS {quote_name(column.name)}" for i, column in enumerate(columns))
        values: list[list[Any]] = [_values(column, rows.column(column.name)) for column in columns]
        if not columns:
            values = [[0] * rows.num_rows]  # a condition without columns
        mask = np.zeros(rows.num_rows, np.bool_)
        for start, document in documents(values):
            found = _ask(query, table, condition, document, specs, names)
            mask[places(found) + start] = True
        return mask

    return decide


def _plain(name: str) -> bool:
    """Whether a name can only be written as one word."""
    return re.fullmatch(r"[\w$]+", name) is not None


def _ask(
    query: Query, table: TableDef, condition: str, document: str, specs: Sequence[str], names: str
) -> list[tuple[Any, ...]]:
    place = "_headgate_place"
    listed = f"j.i AS {place}{', ' if names else ''}{names}"
    columns = ", ".join(["i FOR ORDINALITY", *specs])
    try:
        return query(
            f"SELECT {place} FROM (SELECT {listed} FROM JSON_TABLE(_utf8mb4 X'{document.encode().hex()}', '$[*]'"
            f" COLUMNS ({columns})) AS j) AS {quote_name(table.name)} WHERE ({condition})"
        )
    except DefiniteServerError as error:
        raise Undecided(f"the filter cannot be asked about a row that changed: {error.message}") from None


def _spec(column: Column, name: str, index: int, zero_dates: str) -> str:
    kind = column.type
    if kind in INTEGERS:
        spelled = f"BIGINT{' UNSIGNED' if column.unsigned else ''}"
    elif kind in ("decimal", "double", "year"):
        spelled = {"double": "DOUBLE", "year": "YEAR"}.get(kind, f"DECIMAL({column.precision},{column.scale})")
    elif kind in TEMPORALS and zero_dates != "null":
        digits = f"({column.scale})" if kind != "date" and column.scale else ""
        spelled = f"{'DATETIME' if kind == 'timestamp' else kind.upper()}{digits}"
    elif kind in TEXTS and column.charset is not None and column.collation:
        spelled = f"LONGTEXT CHARACTER SET {column.charset} COLLATE {column.collation}"
    else:
        raise Undecided(f"the filter names column {column.name} ({column.mysql}), and a row changed in the chunk")
    return f"{name} {spelled} PATH '$[{index}]' ERROR ON ERROR"


def _values(column: Column, values: pa.ChunkedArray) -> list[Any]:
    if column.type == "time" and pa.types.is_integer(values.type):
        raise Undecided(
            f"the filter names column {column.name}, a TIME in microseconds, and a row changed in the chunk"
        )
    return json_values(column, values)
