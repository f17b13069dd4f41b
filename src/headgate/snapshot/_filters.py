"""Which rows fulfil a chunk's filter: MySQL decides, also for rows as they were at E.

A chunk with a filter selects ``range AND (filter)``. A row that the SELECT returned and the window did not touch
fulfilled the filter at E too, because nothing changed it. A before-image that the rewind restores is the row at E,
which may no longer be selectable. So MySQL evaluates the chunk's filter, word for word, on the image, in a derived
table with the table's name and the columns that the filter can mean: those whose name is a word of the filter, or not a
single word, with their type and collation.

If this could decide differently, the answer is :class:`Undecided`, and the chunk is retried at a later E:

- a column whose value JSON_TABLE may not return unchanged (BIT, ENUM, SET, FLOAT, binary types, JSON, geometry, TIME as
  microseconds; dates that were read as null),
- a column with a rule, which may have hidden its value,
- a statement that MySQL refuses (a name with its database, a function of a column that was left out).

A filter that depends on the moment (``NOW()``, ``RAND()``, variables) may select other rows in a repeated batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog import INTEGERS, TEMPORALS, TEXTS, Column, TableDef
from headgate.columns import TableCodec
from headgate.errors import DefiniteServerError
from headgate.names import lower_name, quote_name
from headgate.policies import Policies
from headgate.snapshot._window import InRange, Mask
from headgate.snapshot.ranges import Query, documents, json_values, row_indexes

__all__ = ["Undecided", "fulfils"]


_TEXT = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)


class Undecided(Exception):
    """MySQL cannot evaluate the filter on these rows; the message has the reason."""


def fulfils(query: Query, codec: TableCodec, condition: str, policies: Policies) -> InRange:
    """Return a function from rows (as the codec writes them, Arrow) to a mask: which rows fulfil ``condition``.

    The function raises :class:`Undecided`.
    """
    table = codec.original
    words = {lower_name(word) for word in re.findall(r"[\w$]+", _TEXT.sub(" ", condition))}
    used = [i for i, one in enumerate(table.columns) if lower_name(one.name) in words or not _plain(one.name)]
    written = dict(zip(codec.places, codec.table.columns, strict=True))
    columns = [written[index] for index in used if index in written]
    ruled = next((table.columns[i].name for i in used if i not in written or written[i].rule), None)

    def decide(rows: pa.Table) -> Mask:
        if ruled is not None:
            raise Undecided(f"the filter uses column {ruled}, whose values a rule of [columns] changes")
        zero_dates = policies.of(table.full_name).zero_dates
        specs = [_spec(column, f"k{i}", i, zero_dates) for i, column in enumerate(columns)]
        names = ", ".join(f"j.k{i} AS {quote_name(column.mysql_name)}" for i, column in enumerate(columns))
        values: list[list[Any]] = [_values(column, rows.column(column.name)) for column in columns]
        if not columns:
            values = [[0] * rows.num_rows]  # a condition without columns
        mask = np.zeros(rows.num_rows, np.bool_)
        for start, document in documents(values):
            matches = _evaluate_in_mysql(query, table, condition, document, specs, names)
            mask[row_indexes(matches) + start] = True
        return mask

    return decide


def _plain(name: str) -> bool:
    """Whether a name is a single word."""
    return re.fullmatch(r"[\w$]+", name) is not None


def _evaluate_in_mysql(
    query: Query, table: TableDef, condition: str, document: str, specs: Sequence[str], names: str
) -> list[tuple[Any, ...]]:
    index_name = "_headgate_place"
    selected = f"j.i AS {index_name}{', ' if names else ''}{names}"
    columns = ", ".join(["i FOR ORDINALITY", *specs])
    try:
        return query(
            f"SELECT {index_name} FROM (SELECT {selected} FROM JSON_TABLE(_utf8mb4 X'{document.encode().hex()}', '$[*]'"
            f" COLUMNS ({columns})) AS j) AS {quote_name(table.name)} WHERE ({condition})"
        )
    except DefiniteServerError as error:
        raise Undecided(f"MySQL cannot evaluate the filter on a row that changed: {error.message}") from None


def _spec(column: Column, name: str, index: int, zero_dates: str) -> str:
    kind = column.type
    if kind in INTEGERS:
        sql_type = f"BIGINT{' UNSIGNED' if column.unsigned else ''}"
    elif kind in ("decimal", "double", "year"):
        sql_type = {"double": "DOUBLE", "year": "YEAR"}.get(kind, f"DECIMAL({column.precision},{column.scale})")
    elif kind in TEMPORALS and zero_dates != "null":
        digits = f"({column.scale})" if kind != "date" and column.scale else ""
        sql_type = f"{'DATETIME' if kind == 'timestamp' else kind.upper()}{digits}"
    elif kind in TEXTS and column.charset is not None and column.collation:
        sql_type = f"LONGTEXT CHARACTER SET {column.charset} COLLATE {column.collation}"
    else:
        raise Undecided(f"the filter uses column {column.name} ({column.mysql}), unsupported for a row that changed")
    return f"{name} {sql_type} PATH '$[{index}]' ERROR ON ERROR"


def _values(column: Column, values: pa.ChunkedArray) -> list[Any]:
    if column.type == "time" and pa.types.is_integer(values.type):
        raise Undecided(
            f"the filter uses column {column.name}, a TIME in microseconds, unsupported for a row that changed"
        )
    if column.type == "decimal" and pa.types.is_floating(values.type):
        raise Undecided(
            f"the filter uses column {column.name}, a DECIMAL as double, unsupported for a row that changed"
        )
    return json_values(column, values)
