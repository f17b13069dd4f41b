"""Delta's own commands on a current table with a key: MERGE, UPDATE and DELETE, through Spark.

Each function that writes returns the most commits it may have made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.carrier import Seq, sortable
from headgate.lake import DELETED, DeltaPath, Form
from headgate.names import quote_name
from headgate.sinks._actions import RowAction
from headgate.sinks._expand import HEADGATE_COLUMNS, row_columns

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import Column, DataFrame

    from headgate.lake import Marking

__all__ = ["delete_rows", "fill_columns", "in_range", "mark_rows", "merge_images", "seq_literal"]


def merge_images(delta: DeltaPath, rows: DataFrame, images: RowAction, form: Form = Form.PLAIN) -> int:
    """Write rows over existing ones whose ``_seq`` is below theirs.

    :param rows: whole images, at most one per key, made of ``images``.
    :param form: of the table; in a marked one a deletion leaves its row, marked.
    """
    names = [quote_name(name) for name in row_columns(images.definition, form)]
    values: dict[str, str | Column] = {name: f"s.{name}" for name in names}
    mark: dict[str, str | Column] = {name: f"s.{name}" for name in (*HEADGATE_COLUMNS, DELETED)}
    keys = [quote_name(name) for name in images.definition.key]
    condition = " AND ".join([*(f"t.{name} = s.{name}" for name in keys), _range(images)])
    merge = _table(delta).alias("t").merge(rows.alias("s"), condition)
    deletes = "s._op IN ('b', 'd') AND t._seq < s._seq"
    merge = (
        (merge.whenMatchedUpdate(deletes, set=mark) if form is Form.MARKED else merge.whenMatchedDelete(deletes))
        .whenMatchedUpdate("s._op NOT IN ('b', 'd') AND t._seq < s._seq", set=values)
        .whenNotMatchedInsert("s._op NOT IN ('b', 'd')", values=values)
    )
    with delta.committing():
        merge.execute()
    return 1


def fill_columns(
    delta: DeltaPath, values: Mapping[str, str], types: Mapping[str, str], epoch: int, condition: str = "true"
) -> int:
    """Set columns to values, given as text, in the rows of earlier epochs that fulfil a condition."""
    casts: dict[str, str | Column] = {
        quote_name(name): f"CAST('{text}' AS {types[name]})" for name, text in values.items()
    }
    with delta.committing():
        _table(delta).update(f"_seq.epoch < {epoch} AND {condition}", casts)
    return 1


def delete_rows(delta: DeltaPath, condition: str) -> int:
    """Delete the rows that fulfil a condition."""
    with delta.committing():
        _table(delta).delete(condition)
    return 1


def mark_rows(delta: DeltaPath, marking: Marking) -> int:
    """Mark rows as deleted, without known GTID and time."""
    mark: dict[str, str | Column] = {DELETED: "true", "_seq": seq_literal(marking.seq), "_gtid": "NULL", "_ts": "NULL"}
    with delta.committing():
        _table(delta).update(marking.condition, mark)
    return 1


def in_range(table: DataFrame, images: RowAction) -> DataFrame:
    """Return the rows of a table that may have a key of these images."""
    return table.alias("t").where(_range(images))


def seq_literal(seq: Seq) -> str:
    """Return a ``_seq`` in SQL."""
    epoch, file, pos, ordinal = seq
    return f"named_struct('epoch', {epoch}L, 'file', {file}, 'pos', {pos}L, 'ordinal', {ordinal}L)"


def _table(delta: DeltaPath) -> DeltaTable:
    from delta.tables import DeltaTable

    return DeltaTable.forPath(delta.spark, delta.path)


def _range(images: RowAction) -> str:
    """Return a condition that holds for every matching row of the target and lets Delta skip files by statistics."""
    definition, parts = images.definition, images.parts
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    if not lows or any(part.unbounded for part in parts):
        return "true"
    kind = definition.types[definition.key[0]]
    zone = "Z" if kind == "timestamp" else ""
    low, high = min(lows, key=sortable), max(highs, key=sortable)
    name = f"t.{quote_name(definition.key[0])}"
    return f"{name} >= CAST('{low}{zone}' AS {kind}) AND {name} <= CAST('{high}{zone}' AS {kind})"
