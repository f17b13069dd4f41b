"""From what a batch of partial images says of each key to whole rows: what they leave out comes from the table itself.

The values are those that the row had at its origin *before the batch*. So they are read at the Delta version that the
last ledger row names, not from the newest one: a batch that was half written by an earlier try then gives the same
rows, although in the table itself a key may hold another row by now (of two that swapped their keys, say).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.carrier import ABSENT, META, CarriedColumn, Definition
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["complete"]


def complete(
    folded: DataFrame, base: DataFrame | None, definition: Definition, fills: Mapping[str, str], *, small: bool
) -> DataFrame:
    """Whole images, one a key: the canonical columns, the table's own, and ``_absent``, now a struct of two flags.

    ``ignored``: the row that was to be updated is not there, so the updates say nothing (``_op`` is then ``d`` if the
    batch cleared the key, else null: the key stays as it is). ``moved``: the row had another key.

    :param folded: the columns of ``_partial.fold_partial``.
    :param base: the table before the batch; None: it was empty.
    :param fills: values of columns that ``base`` does not have yet; others that it lacks are null.
    :param small: ``folded`` may be sent to every executor.
    """
    from pyspark.sql import functions

    key = definition.key
    absent = functions.col(f"f.{ABSENT}")
    found = folded.alias("f")
    has: set[str] = set()
    missing = functions.lit(True)
    if base is not None:
        has = set(base.columns)
        found = found.join(_there(folded, base, key, small).alias("b"), _at("f", "b", key), "left")
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
            value = functions.when(left_out, _old(column, has, fills)).otherwise(value)
        columns.append(value.alias(column.name))
    instead = functions.when(absent.getField("vanishes"), functions.lit("d"))
    return found.select(
        functions.when(ignored, instead).otherwise(functions.col("f._op")).alias("_op"),
        *[functions.col(f"f.{name}") for name in META[1:]],
        *columns,
        functions.struct(ignored.alias("ignored"), (absent.isNotNull() & ~same).alias("moved")).alias(ABSENT),
    )


def _old(column: CarriedColumn, has: set[str], fills: Mapping[str, str]) -> Column:
    """The value that the row had."""
    from pyspark.sql import functions

    if column.name in has:
        return functions.col("b.row").getField(column.name)
    return functions.lit(fills.get(column.name)).cast(column.spark)


def _at(left: str, right: str, key: tuple[str, ...]) -> Column:
    """The condition that the origin of a line of ``left`` is the key of a row of ``right``."""
    from pyspark.sql import functions

    condition = functions.lit(True)
    for i in range(len(key)):
        condition = condition & (functions.col(f"{left}.{ABSENT}.old.k{i}") == functions.col(f"{right}.at.k{i}"))
    return condition


def _there(folded: DataFrame, base: DataFrame, key: tuple[str, ...], small: bool) -> DataFrame:
    """The rows of ``base`` that are some line's origin: the key as struct ``at``, the row as struct ``row``."""
    from pyspark.sql import functions

    at = functions.struct(*[functions.col(quote_name(name)).alias(f"k{i}") for i, name in enumerate(key)])
    row = functions.struct(*[functions.col(quote_name(name)) for name in base.columns])
    origins = folded.select(ABSENT).where(functions.col(ABSENT).isNotNull())
    if small:
        origins = functions.broadcast(origins)
    return (
        base.select(at.alias("at"), row.alias("row"))
        .alias("t")
        .join(origins.alias("o"), _at("o", "t", key), "left_semi")
    )
