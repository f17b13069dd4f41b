"""Give a lake's table other columns: its own rows, read and written again in one commit.

**Why nothing gets lost.** The rows are read at one version. If another commit came since, the copy is made again.
(Where Spark has to write, its commit replaces whatever the table has. Between its version and the commit only upkeep
may commit, which moves rows to other files and changes none: a pipeline's rows are written by nobody else, and not at
the same time.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.lake import ColumnsAfter, DeltaPath, reshape_files, schema_of, spark_schema
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

__all__ = ["reshape", "retype"]


def reshape(
    delta: DeltaPath,
    types: Mapping[str, str],
    dropped: Collection[str],
    emptied: Collection[str],
    renamed: Mapping[str, str],
    key: Sequence[str],
) -> int:
    """Drop and rename columns, and give them new types. Return the most commits made.

    A table with column mapping keeps its files, unless a type changes. All others are rewritten: engines that read no
    mapping (DuckDB, Polars and others) must go on.

    :param types: column → type of the table's own columns afterwards.
    :param emptied: columns that become null in all rows.
    :param renamed: new name → name before.
    """
    if delta.rename_columns(dropped, renamed):
        dropped, renamed = (), {}
    new_names = {old: new for new, old in renamed.items()}
    kinds: dict[tuple[str, ...], DataType] = {}
    wanted = {field.name: field.dataType for field in spark_schema(_ddl(types)).fields}
    fields = schema_of(delta.snapshot()).fields
    for field in fields:
        name = new_names.get(field.name, field.name)
        if field.name not in dropped and wanted.get(name, field.dataType) != field.dataType:
            kinds[(field.name,)] = wanted[name]
    present = {field.name for field in fields}
    if kinds or present & {*dropped, *emptied, *new_names}:
        after = ColumnsAfter({*dropped} & present, new_names, _json_names(kinds), emptied)
        _rewrite(delta, after, kinds, (*key, "_seq"))
    return 2


def retype(delta: DeltaPath, types: Mapping[str, str], *, inside: str) -> None:
    """Give columns new types, and the fields of these names in a column of structs.

    :param types: column → new type.
    :param inside: the column of structs.
    """
    new = {field.name: field.dataType for field in spark_schema(_ddl(types)).fields}
    kinds: dict[tuple[str, ...], DataType] = {(name,): kind for name, kind in new.items()}
    kinds |= {(inside, name): kind for name, kind in new.items()}
    _rewrite(delta, ColumnsAfter(kinds=_json_names(kinds)), kinds, ("_seq",))


def _json_names(kinds: Mapping[tuple[str, ...], DataType]) -> dict[tuple[str, ...], Any]:
    return {path: kind.jsonValue() for path, kind in kinds.items()}


def _rewrite(
    delta: DeltaPath, after: ColumnsAfter, kinds: Mapping[tuple[str, ...], DataType], always: Sequence[str]
) -> None:
    """Rewrite all rows in one commit.

    :param kinds: new types, under the names before.
    :param always: columns that get statistics at any position.
    """
    if reshape_files(delta, after, always):
        return
    from pyspark.sql import functions
    from pyspark.sql.types import StructField, StructType

    columns: list[Column] = []
    for field in schema_of(delta.snapshot()).fields:
        if field.name in after.dropped:
            continue
        kind = kinds.get((field.name,), field.dataType)
        if isinstance(kind, StructType):
            fields = [StructField(one.name, kinds.get((field.name, one.name), one.dataType)) for one in kind]
            kind = StructType(fields)
        value = functions.lit(None) if field.name in after.emptied else functions.col(quote_name(field.name))
        value = value.cast(kind) if kind != field.dataType or field.name in after.emptied else value
        columns.append(value.alias(after.renamed.get(field.name, field.name)))
    with delta.committing():
        writer = delta.read(delta.version()).select(*columns).write.format("delta").mode("overwrite")
        writer.option("overwriteSchema", "true").save(delta.path)


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_name(name)} {kind}" for name, kind in types.items())
