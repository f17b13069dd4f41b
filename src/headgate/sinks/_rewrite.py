"""Rewrite a lake's table with other columns, in one commit: its own rows, read and written by Spark.

**Why nothing gets lost.** The rows are read at one version, and the commit replaces whatever the table has. Between the
two only upkeep may commit, which moves rows to other files and changes none. A pipeline's rows are written by nobody
else (the fence of its ledger), and not at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from headgate.lake import DeltaPath, commit_errors, schema_of, spark_schema
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["reshape", "retype"]


def reshape(delta: DeltaPath, types: Mapping[str, str], dropped: Collection[str], renamed: Mapping[str, str]) -> int:
    """Drop and rename columns, and give them new types. Return the commits made.

    A table with column mapping keeps its files, unless a type changes. All others are rewritten: engines that read no
    mapping (DuckDB, Polars and others) must go on.

    :param types: column → type of the table's own columns afterwards.
    :param renamed: new name → name before.
    """
    from pyspark.sql import functions

    commits = int(delta.rename_columns(dropped, renamed))
    new_names, columns = {old: new for new, old in renamed.items()}, []
    is_same = True
    for field in schema_of(delta.snapshot()).fields:
        name = new_names.get(field.name, field.name)
        value = functions.col(quote_name(field.name))
        retypes = types.get(name, kind := field.dataType.simpleString()) != kind
        is_same &= not retypes and name == field.name and name not in dropped
        if name not in dropped:
            columns.append((value.cast(types[name]) if retypes else value).alias(name))
    if is_same:
        return commits
    _overwrite(delta, delta.read(delta.version()).select(*columns))
    return commits + 1


def retype(delta: DeltaPath, types: Mapping[str, str], *, inside: str) -> None:
    """Rewrite all rows with new types of some columns, and of the fields of that name in a column of structs.

    :param types: column → new type.
    :param inside: the column of structs.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import StructField, StructType

    new = {field.name: field.dataType for field in spark_schema(_ddl(types)).fields}

    def retyped(fields: StructType) -> StructType:
        return StructType([StructField(one.name, new.get(one.name, one.dataType)) for one in fields])

    columns: list[Column] = []
    for field in schema_of(delta.snapshot()).fields:
        kind = new.get(field.name, field.dataType)
        if field.name == inside and isinstance(field.dataType, StructType):
            kind = retyped(field.dataType)
        columns.append(functions.col(quote_name(field.name)).cast(kind).alias(field.name))
    _overwrite(delta, delta.read(delta.version()).select(*columns))


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_name(name)} {kind}" for name, kind in types.items())


def _overwrite(delta: DeltaPath, rows: DataFrame) -> None:
    with commit_errors(delta.path):
        writer = rows.write.format("delta").mode("overwrite")
        writer.option("overwriteSchema", "true").save(delta.path)
