"""Tables without a key in ``current``: equal rows are counted, so the copy is the same multiset as the source.

Images of such a table say what a row held, not which of several equal rows they mean; nothing tells these apart at the
source either. So a row is known by its content: ``_row_hash`` is a hash of all its columns, ``_row_copy`` numbers the
equal rows from 0 without gaps. Both are columns of the current table and together its key.

**A batch of changes.** ``c`` and ``u`` images add one row of their content, ``b`` and ``d`` images take one away (an
update always brings its ``b`` here). The sum over the batch, ``net``, is all that matters: from ``before`` equal rows
``before + net`` remain, whatever the order. More: copies ``before … after - 1`` are inserted; fewer: copies
``after … before - 1`` are deleted; as both sides of every other row stay, nothing else is written.

**Why a replay is safe.** ``before`` is counted at the Delta version that the last ledger row names: the table as it was
before the batch, however much of the batch had been written when its first try ended. The same ``before`` and the same
images give the same copies to insert and to delete; inserting sets a copy that is there already to the same content,
and deleting one that is gone does nothing.

**A chunk** of such a table is the whole table as of the batch's end, so all changes of its batch are in it: the table
is overwritten with it.

**When a count would fall below zero** the copy had lost a row before. That is an error while the table counts as equal
to the source. While it is read again (rows may have changed unseen) the count stops at zero: the chunk that follows
brings the whole table.

**The hash** covers the columns that are not NULL: SHA-256, cut to 128 bits, of each one's name and value, each with its
length before it, in order of the names. So neither a column's place nor a new column that is NULL in all old rows
changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import TargetError
from headgate.lake import DeltaPath, commit_errors
from headgate.names import quote_name
from headgate.sinks._expand import OWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["ROW", "ROW_DDL", "apply_changes", "overwrite", "plan_copies"]

ROW = ("_row_hash", "_row_copy")
"""The key of the current table of a table without a key."""
ROW_DDL = "_row_hash string, _row_copy int"

_HASH_DIGITS = 32
"""128 bits: two different rows of 10⁹ meet with a chance below 10⁻²⁰, and nobody can make two that do."""


def overwrite(delta: DeltaPath, rows: DataFrame, columns: list[str]) -> None:
    """Make the table exactly ``rows``.

    :param rows: ``r`` images of the whole table; perhaps none.
    :param columns: the table's own columns.
    """
    from pyspark.sql import Window, functions

    hashed = rows.withColumn("_row_hash", _row_hash(rows, columns))
    place = functions.row_number().over(Window.partitionBy("_row_hash").orderBy("_seq"))
    numbered = hashed.withColumn("_row_copy", place - 1)
    frame = numbered.select(*[quote_name(name) for name in (*columns, *OWN, *ROW)])
    with commit_errors(delta.path):
        frame.write.format("delta").mode("overwrite").save(delta.path)


def apply_changes(
    delta: DeltaPath, rows: DataFrame, columns: list[str], *, before: int | None, exact: bool, table: str
) -> None:
    """Apply a batch's log images.

    :param rows: all of them that count: none from before a TRUNCATE.
    :param columns: the table's own columns.
    :param before: the Delta version that holds the table before the batch; None: it was empty.
    :param exact: whether the table was equal to the source before the batch.
    :raises TargetError: more rows of one content go than there were, although ``exact``.
    """
    net = _net(rows, columns)
    held = None
    if before is not None:
        held = delta.read(before).select("_row_hash").join(net.select("_row_hash"), "_row_hash", "left_semi")
    copies = plan_copies(net, held).persist()
    try:
        if exact:
            _check(copies, columns, table)
        _merge(delta, copies, columns)
    finally:
        copies.unpersist()


def _net(rows: DataFrame, columns: list[str]) -> DataFrame:
    """``_row_hash``, ``_net`` and the image ``_row`` to write, if one is: the last that set the row."""
    from pyspark.sql import functions

    sets = functions.col("_op").isin("c", "u", "r")
    row = functions.struct(*[functions.col(quote_name(name)) for name in (*columns, *OWN)])
    hashed = rows.withColumn("_row_hash", _row_hash(rows, columns))
    return hashed.groupBy("_row_hash").agg(
        functions.sum(functions.when(sets, 1).otherwise(-1)).cast("int").alias("_net"),
        functions.max_by(row, functions.struct(sets, functions.col("_seq"))).alias("_row"),
    )


def plan_copies(net: DataFrame, held: DataFrame | None) -> DataFrame:
    """What becomes of the rows of each content: ``_row_hash``, ``_row``, ``_before`` and ``_after`` (copies, from 0 on;
    ``_after`` below 0 is for the caller to judge).

    :param net: ``_row_hash, _net, _row``, one line a content.
    :param held: ``_row_hash`` of the rows that the table holds, one line a row; at least those of ``net``. None: none.
    """
    from pyspark.sql import functions

    if held is None:
        known = net.withColumn("_before", functions.lit(0))
    else:
        counts = held.groupBy("_row_hash").agg(functions.count(functions.lit(1)).cast("int").alias("_held"))
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
        f"the log takes away {line['_before'] - line['_after']} rows ({row}) and the copy holds {line['_before']} of "
        f"them, so it is not exact; read the table again with: headgate run --resnapshot '{table}'",
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
    values: dict[str, str | Column] = {quote_name(name): f"s.{quote_name(name)}" for name in (*columns, *OWN, *ROW)}
    merge = (
        DeltaTable.forPath(delta.spark, delta.path)
        .alias("t")
        .merge(source.alias("s"), "t._row_hash = s._row_hash AND t._row_copy = s._row_copy")
        .whenMatchedDelete("s._op = 'd'")
        .whenMatchedUpdate("s._op = 'c'", set=values)
        .whenNotMatchedInsert("s._op = 'c'", values=values)
    )
    with commit_errors(delta.path):
        merge.execute()


def _row_hash(rows: DataFrame, columns: list[str]) -> Column:
    """The hash of each row's ``columns``; see the module's text."""
    from pyspark.sql import functions

    framed = [_framed(name, functions.col(quote_name(name)), rows.schema[name].dataType) for name in sorted(columns)]
    return functions.substring(functions.sha2(functions.concat(*framed), 256), 1, _HASH_DIGITS)


def _framed(name: str, value: Column, kind: DataType) -> Column:
    """Name and value as bytes that no other name or value gives; no bytes for NULL."""
    from pyspark.sql import functions

    content = _content(value, kind)
    label = functions.lit(f"{len(name.encode())}:{name}".encode())
    size = functions.concat(functions.octet_length(content).cast("string"), functions.lit(":")).cast("binary")
    return functions.when(value.isNotNull(), functions.concat(label, size, content)).otherwise(functions.lit(b""))


def _content(value: Column, kind: DataType) -> Column:
    """A value as bytes; equal for equal values and different for different ones of a type."""
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
