"""Keyless tables in ``current``: equal rows are counted, so the target is the same multiset as the source.

An image of such a table gives a row's content, not which of several equal rows it means; the source cannot distinguish
these either. So content identifies a row: ``_row_hash`` is a hash of all its columns, ``_row_copy`` numbers the equal
rows from 0 without gaps. Both are columns of the current table and together its key.

**A batch of changes.** ``c`` and ``u`` images add one row of their content, ``b`` and ``d`` images remove one (an
update always has its ``b`` here). Only the sum over the batch, ``net``, matters, in any order: ``before`` equal rows
become ``after = before + net``. If there are more, copies ``before … after - 1`` are inserted. If there are fewer,
copies ``after … before - 1`` are deleted. Nothing else is written.

**Why a replay is safe.** ``before`` is counted at the Delta version in the last ledger row: the table before the batch,
however much of the batch its first try wrote. The same ``before`` and the same images give the same copies to insert
and to delete. Inserting an existing copy sets it to the same content; deleting a missing one does nothing.

**A chunk** of such a table is the whole table as of the batch's end, so it includes all changes of its batch. The table
is overwritten with it.

**A count below zero** means that the target had lost a row. That is an error while the table counts as equal to the
source. During a re-read (rows may have changed unseen) the count stops at zero: the next chunk brings the whole table.

**The hash** covers the columns that are not NULL: SHA-256, cut to 128 bits, of each one's name and value, each preceded
by its length, in order of the names. So neither a column's position nor a new column that is NULL in all old rows
changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import TargetError
from headgate.lake import DeltaPath
from headgate.names import quote_name
from headgate.sinks._expand import HEADGATE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["ROW", "ROW_DDL", "apply_changes", "overwrite", "plan_copies"]

ROW = ("_row_hash", "_row_copy")
"""The key of a keyless table's current table."""
ROW_DDL = "_row_hash string, _row_copy int"

_HASH_DIGITS = 32
"""128 bits: among 10⁹ different rows the chance of a collision is below 10⁻²⁰; constructing one takes 2⁶⁴ hashes."""


def overwrite(delta: DeltaPath, rows: DataFrame, columns: list[str]) -> None:
    """Replace the table's content with ``rows``.

    :param rows: ``r`` images of the whole table; may be empty.
    :param columns: the table's own columns.
    """
    from pyspark.sql import Window, functions

    hashed = rows.withColumn("_row_hash", _row_hash(rows, columns))
    row_number = functions.row_number().over(Window.partitionBy("_row_hash").orderBy("_seq"))
    numbered = hashed.withColumn("_row_copy", row_number - 1)
    frame = numbered.select(*[quote_name(name) for name in (*columns, *HEADGATE_COLUMNS, *ROW)])
    with delta.committing():
        frame.write.format("delta").mode("overwrite").save(delta.path)


def apply_changes(
    delta: DeltaPath, rows: DataFrame, columns: list[str], *, before: int | None, exact: bool, table: str
) -> None:
    """Apply a batch's log images.

    :param rows: all images to apply: none from before a TRUNCATE.
    :param columns: the table's own columns.
    :param before: the Delta version of the table before the batch; None: it was empty.
    :param exact: whether the table was equal to the source before the batch.
    :raises TargetError: ``exact``, but more equal rows are removed than the table had.
    """
    net = _net(rows, columns)
    existing = None
    if before is not None:
        existing = delta.read(before).select("_row_hash").join(net.select("_row_hash"), "_row_hash", "left_semi")
    copies = plan_copies(net, existing).persist()
    try:
        if exact:
            _check(copies, columns, table)
        _merge(delta, copies, columns)
    finally:
        copies.unpersist()


def _net(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Return ``_row_hash``, ``_net`` and, to write, the last image that set the row, ``_row``."""
    from pyspark.sql import functions

    sets = functions.col("_op").isin("c", "u", "r")
    row = functions.struct(*[functions.col(quote_name(name)) for name in (*columns, *HEADGATE_COLUMNS)])
    hashed = rows.withColumn("_row_hash", _row_hash(rows, columns))
    return hashed.groupBy("_row_hash").agg(
        functions.sum(functions.when(sets, 1).otherwise(-1)).cast("int").alias("_net"),
        functions.max_by(row, functions.struct(sets, functions.col("_seq"))).alias("_row"),
    )


def plan_copies(net: DataFrame, existing: DataFrame | None) -> DataFrame:
    """Return the copies of each content: ``_row_hash``, ``_row``, ``_before`` and ``_after`` (counts; the caller
    handles ``_after`` below 0).

    :param net: ``_row_hash, _net, _row``, one line per content.
    :param existing: ``_row_hash`` of the table's rows, one line per row; at least those of ``net``. None: no rows.
    """
    from pyspark.sql import functions

    if existing is None:
        known = net.withColumn("_before", functions.lit(0))
    else:
        counts = existing.groupBy("_row_hash").agg(functions.count(functions.lit(1)).cast("int").alias("_held"))
        known = net.join(counts, "_row_hash", "left").withColumn(
            "_before", functions.coalesce("_held", functions.lit(0))
        )
    planned = known.withColumn("_after", functions.col("_before") + functions.col("_net"))
    return planned.where("_net <> 0").select("_row_hash", "_row", "_before", "_after")


def _check(copies: DataFrame, columns: list[str], table: str) -> None:
    wrong = copies.where("_after < 0").limit(1).collect()
    if not wrong:
        return
    line = wrong[0]
    row = ", ".join(f"{name}={line['_row'][name]!r}" for name in columns)
    row = row if len(row) <= 300 else f"{row[:297]}..."
    raise TargetError(
        f"the log deletes {line['_before'] - line['_after']} rows ({row}), but the target has {line['_before']}, "
        f"so it is not exact; read the table again with: headgate run --resnapshot '{table}'",
        table=table,
    )


def _merge(delta: DeltaPath, copies: DataFrame, columns: list[str]) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql import functions

    after = functions.greatest("_after", functions.lit(0))
    touched = functions.sequence(functions.least("_before", after), functions.greatest("_before", after) - 1)
    source = copies.where(functions.col("_before") != after).select(
        "_row_hash",
        functions.explode(touched).alias("_row_copy"),
        functions.when(after > functions.col("_before"), "c").otherwise("d").alias("_op"),
        "_row.*",
    )
    values: dict[str, str | Column] = {
        quote_name(name): f"s.{quote_name(name)}" for name in (*columns, *HEADGATE_COLUMNS, *ROW)
    }
    merge = (
        DeltaTable.forPath(delta.spark, delta.path)
        .alias("t")
        .merge(source.alias("s"), "t._row_hash = s._row_hash AND t._row_copy = s._row_copy")
        .whenMatchedDelete("s._op = 'd'")
        .whenMatchedUpdate("s._op = 'c'", set=values)
        .whenNotMatchedInsert("s._op = 'c'", values=values)
    )
    with delta.committing():
        merge.execute()


def _row_hash(rows: DataFrame, columns: list[str]) -> Column:
    """Return the hash of each row's ``columns``; see the module's text."""
    from pyspark.sql import functions

    framed = [_framed(name, functions.col(quote_name(name)), rows.schema[name].dataType) for name in sorted(columns)]
    return functions.substring(functions.sha2(functions.concat(*framed), 256), 1, _HASH_DIGITS)


def _framed(name: str, value: Column, kind: DataType) -> Column:
    """Return name and value as bytes that no other name or value gives; no bytes for NULL."""
    from pyspark.sql import functions

    content = _content(value, kind)
    label = functions.lit(f"{len(name.encode())}:{name}".encode())
    size = functions.concat(functions.octet_length(content).cast("string"), functions.lit(":")).cast("binary")
    return functions.when(value.isNotNull(), functions.concat(label, size, content)).otherwise(functions.lit(b""))


def _content(value: Column, kind: DataType) -> Column:
    """Return a value as bytes: equal for equal values of a type, different for different ones."""
    from pyspark.sql import functions, types

    if isinstance(kind, types.BinaryType):
        return value
    if isinstance(kind, types.VariantType):  # its text is NULL where the document is null
        value = functions.to_json(value)
    elif isinstance(kind, types.TimestampType):  # its text depends on the session's time zone
        value = functions.unix_micros(value)
    elif isinstance(kind, types.StructType):
        fields = [_framed(field.name, value.getField(field.name), field.dataType) for field in kind.fields]
        return functions.concat(*fields)
    return value.cast("string").cast("binary")
