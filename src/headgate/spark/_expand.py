"""The many-table stream as typed rows of one table: ``headgate.expand``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, cast

from headgate.carrier import (
    ABSENT,
    CARRIER_DDL,
    KIND_COLUMN,
    META,
    META_DDL,
    SUMMARY_DDL,
    TABLE_COLUMN,
    Definition,
    Summary,
    check_names,
    summarise,
    typed_images,
)
from headgate.errors import ConfigError, SchemaChangedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["expand"]

_MOST_DIGITS = 38
"""Most digits of a decimal in Spark."""


def expand(frame: DataFrame, table: str, schema: StructType | str | None = None) -> DataFrame:
    """Return the rows of one table out of the many-table stream, with typed columns.

    Rows and columns are those of the source with the options ``table`` and ``images=all``: ``_op``, ``_seq``,
    ``_gtid``, ``_ts``, ``_table``, then the table's columns. Each update is a ``b`` row (before) and a ``u`` row
    (after) with the same ``_seq``. Columns are matched by name, so rows from before and after an ALTER TABLE share
    their columns. A column that a row's table did not have at that time is null.

    :param frame: a DataFrame of the source ``mysql-cdc`` with option ``tables``: a batch of ``foreachBatch``, or a
        stream.
    :param table: ``db.table``
    :param schema: the table's columns, as a schema or as DDL. headgate's columns in it are ignored, except ``_absent``.
        Default: all columns in the frame's images, those of the newest definition first, each with a type that holds
        all its values; without images of the table, only headgate's columns. The default takes a Spark job, so persist
        the frame or give the schema. A stream needs the schema.
    :return: with partial row images (``binlog_row_image`` MINIMAL, NOBLOB) also a column ``_absent``, as with
        ``partial_rows=tell``: the names of a row's unknown columns, as a JSON list. A given schema has to name it.
    :raises ConfigError: not a frame of the many-table stream, not ``db.table``, or a stream without a schema.
    :raises SchemaChangedError: a column has had two types of which neither holds the other's values. While the rows are
        computed: an image has a column that the schema lacks, or another type.
    :raises ChunkRetryError: while the rows are computed: a chunk of the table could not be read and is requested again.
    :raises UnsupportedError: while the rows are computed: the stream left out rows of the table that cannot be read.

    >>> options = {"url": "mysql://headgate@db:3306", "tables": "shop.*"}
    >>> changes = spark.read.format("mysql-cdc").options(**options).option("start", "earliest").load()
    >>> orders = headgate.expand(changes, "shop.orders")
    >>> orders.columns
    ['_op', '_seq', '_gtid', '_ts', '_table', 'id', 'customer', 'total']
    >>> orders.where("_op = 'c'").count()
    3

    In a stream, several tables from one read of the log:

    >>> def apply(frame, batch_id):
    ...     frame.persist()
    ...     for table in ("shop.orders", "shop.items"):
    ...         headgate.expand(frame, table).write.mode("append").parquet(f"/data/{table}/{batch_id}")
    ...     frame.unpersist()
    >>> stream = spark.readStream.format("mysql-cdc").options(**options).load()
    >>> query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", "/data/checkpoint")
    >>> query.trigger(availableNow=True).start().awaitTermination(300)
    True
    >>> spark.read.parquet("/data/shop.items/*").count()
    2
    """
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = _struct(CARRIER_DDL).names
    if frame.columns != expected:
        raise ConfigError(
            f"expand takes the many-table stream of the source mysql-cdc, columns {', '.join(expected)}; this frame has"
            f" {', '.join(frame.columns)}"
        )
    if "." not in table:
        raise ConfigError(f"{table!r} is not a table name of the form db.table")
    table_rows = frame.where(functions.col(TABLE_COLUMN) == table)
    table_schema = (
        _inferred_schema(table_rows, table)
        if schema is None
        else _struct(schema)
        if isinstance(schema, str)
        else schema
    )
    typed = _canonical(table_schema)
    return table_rows.mapInArrow(
        partial(typed_images, table=table, schema=to_arrow_schema(typed, timezone="UTC")), typed
    )


def _struct(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    return cast("StructType", StructType.fromDDL(ddl))


def _canonical(schema: StructType) -> StructType:
    """Return headgate's columns, then the table's, ``_absent`` last; all nullable."""
    from pyspark.sql.types import StructField, StructType

    meta = _struct(f"{META_DDL}, {TABLE_COLUMN} string")
    columns = [field for field in schema.fields if field.name not in {*META, TABLE_COLUMN}]
    columns.sort(key=lambda field: field.name == ABSENT)
    return StructType([*meta.fields, *(StructField(field.name, field.dataType) for field in columns)])


def _inferred_schema(frame: DataFrame, table: str) -> StructType:
    """Return the columns of the images in a frame.

    :raises ConfigError: the frame is a stream.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    if frame.isStreaming:
        raise ConfigError(
            "a stream's columns must be known before it starts: give expand a schema, such as that of "
            f'spark.read.format("mysql-cdc").options(…).option("table", "{table}").load()'
        )
    rows = frame.where(functions.col(KIND_COLUMN).isin("rows", "chunk")).mapInArrow(summarise, SUMMARY_DDL).toArrow()
    pairs = zip(*rows.to_pydict().values(), strict=True)
    images = [(Definition.from_json(schema), Summary.from_json(summary)) for schema, summary in pairs]
    images.sort(key=lambda one: one[1].newest_seq or (0, 0, 0, 0), reverse=True)
    definitions = dict.fromkeys(definition for definition, _ in images)
    for definition in definitions:
        check_names(table, definition.types)
    if not definitions:
        return StructType()
    schema = _joined(table, [_struct(definition.text_ddl) for definition in definitions])
    return schema.add(ABSENT, "string") if any(summary.partial for _, summary in images) else schema


def _joined(table: str, definitions: Iterable[StructType]) -> StructType:
    """Return every column of these definitions, those of the first one first.

    :raises SchemaChangedError: no type holds the values of both types of a column.
    """
    from pyspark.sql.types import StructType

    types: dict[str, DataType] = {}
    for definition in definitions:
        for field in definition.fields:
            known = types.get(field.name, field.dataType)
            wider = _wider(known, field.dataType)
            if wider is None:
                raise SchemaChangedError(
                    f"column {field.name} was {field.dataType.simpleString()} and became {known.simpleString()}: give"
                    " expand a schema with a type that holds both",
                    table=table,
                    column=field.name,
                )
            types[field.name] = wider
    joined = StructType()
    for name, kind in types.items():
        joined.add(name, kind)
    return joined


def _wider(one: DataType, other: DataType) -> DataType | None:
    """Return the type that holds the values of both, unchanged; None if there is none."""
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegralType

    if one == other:
        return one
    if {type(one), type(other)} == {FloatType, DoubleType}:
        return DoubleType()
    sizes = [_digits(one), _digits(other)]
    if sizes[0] is None or sizes[1] is None:
        return None
    if isinstance(one, IntegralType) and isinstance(other, IntegralType):
        return one if sizes[0] > sizes[1] else other
    scale = max(sizes[0][1], sizes[1][1])
    digits = max(sizes[0][0], sizes[1][0]) + scale
    return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None


def _digits(kind: DataType) -> tuple[int, int] | None:
    """Return the decimal digits before and after the point; None if the type is not an exact number."""
    from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType

    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    sizes: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
    whole = sizes.get(type(kind))
    return None if whole is None else (whole, 0)
