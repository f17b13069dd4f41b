"""Complete folded partial images to whole rows: values that they leave out come from the table.

These are the values that the row had at its origin *before the batch*. So they are read at the Delta version in the
last ledger row, not at the newest one. A batch that an earlier try wrote in part then gives the same rows, although a
key may hold another row by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.carrier import ABSENT, META, CarriedColumn, Definition
from headgate.lake import DELETED
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["complete", "marked"]


def complete(
    folded: DataFrame, base: DataFrame | None, definition: Definition, fills: Mapping[str, str], *, small: bool
) -> DataFrame:
    """Return whole images, one per key: canonical columns, the table's own, and ``_absent``, now a struct of two flags.

    ``ignored``: the row to update does not exist, so its updates have no effect (``_op`` is then ``d`` if the batch
    cleared the key, else null: the key does not change). ``moved``: the row had another key.

    :param folded: the columns of ``_partial.fold_partial``.
    :param base: the table before the batch; None: it was empty.
    :param fills: values of columns that ``base`` does not have yet; other missing columns are null.
    :param small: ``folded`` may be broadcast to every executor.
    """
    from pyspark.sql import functions

    key = definition.key
    absent = functions.col(f"f.{ABSENT}")
    joined = folded.alias("f")
    base_columns: set[str] = set()
    missing = functions.lit(True)
    if base is not None:
        base_columns = set(base.columns)
        joined = joined.join(
            _origin_rows(folded, base, key, small).alias("b"), _origin_condition("f", "b", key), "left"
        )
        missing = functions.col("b.row").isNull()
    ignored = absent.isNotNull() & missing
    same = functions.lit(True)
    columns: list[Column] = []
    for column in definition.columns:
        value = functions.col(f"f.{quote_name(column.name)}")
        if column.name in key:
            same = same & (value == absent.getField("old").getField(f"k{key.index(column.name)}"))
        else:
            left_out = functions.array_contains(absent.getField("columns"), column.name)
            value = functions.when(left_out, _old(column, base_columns, fills)).otherwise(value)
        columns.append(value.alias(column.name))
    op_if_ignored = functions.when(absent.getField("vanishes"), functions.lit("d"))
    return joined.select(
        functions.when(ignored, op_if_ignored).otherwise(functions.col("f._op")).alias("_op"),
        *[functions.col(f"f.{name}") for name in META[1:]],
        *columns,
        functions.struct(ignored.alias("ignored"), (absent.isNotNull() & ~same).alias("moved")).alias(ABSENT),
    )


def marked(rows: DataFrame) -> DataFrame:
    """Return completed images with ``_deleted``: a deletion whose row is known becomes an update, with its last values.
    Other deletions (the table does not have the origin) have to leave the values that the table has at their key.
    """
    from pyspark.sql import functions

    op = functions.expr(f"IF(_op = 'd' AND NOT {ABSENT}.ignored, 'u', _op)")
    return rows.withColumns({"_op": op, DELETED: functions.expr("_op = 'd'")})


def _old(column: CarriedColumn, base_columns: set[str], fills: Mapping[str, str]) -> Column:
    """Return the value that the row had."""
    from pyspark.sql import functions

    if column.name in base_columns:
        return functions.col("b.row").getField(column.name)
    return functions.lit(fills.get(column.name)).cast(column.spark)


def _origin_condition(left: str, right: str, key: tuple[str, ...]) -> Column:
    """Return the condition that the origin of a line of ``left`` is the key of a row of ``right``."""
    from pyspark.sql import functions

    condition = functions.lit(True)
    for i in range(len(key)):
        condition = condition & (functions.col(f"{left}.{ABSENT}.old.k{i}") == functions.col(f"{right}.at.k{i}"))
    return condition


def _origin_rows(folded: DataFrame, base: DataFrame, key: tuple[str, ...], small: bool) -> DataFrame:
    """Return the rows of ``base`` that are a line's origin: the key as struct ``at``, the row as struct ``row``."""
    from pyspark.sql import functions

    key_struct = functions.struct(*[functions.col(quote_name(name)).alias(f"k{i}") for i, name in enumerate(key)])
    row_struct = functions.struct(*[functions.col(quote_name(name)) for name in base.columns])
    origins = folded.select(ABSENT).where(functions.col(ABSENT).isNotNull())
    if small:
        origins = functions.broadcast(origins)
    return (
        base.select(key_struct.alias("at"), row_struct.alias("row"))
        .alias("t")
        .join(origins.alias("o"), _origin_condition("o", "t", key), "left_semi")
    )
