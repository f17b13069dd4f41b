"""Give a lake's table other columns: its own rows, read and written again in one commit.

**Why nothing gets lost.** The rows are read at one version. If another commit came since, the copy is made again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headgate.lake import ColumnsAfter, DeltaPath, reshape_files, schema_of, spark_schema
from headgate.names import quote_name

__all__ = ["reshape", "retype"]


def reshape(
    delta: DeltaPath,
    types: Mapping[str, str],
    dropped: Collection[str],
    emptied: Collection[str],
    renamed: Mapping[str, str],
) -> None:
    """Drop and rename columns, and give them new types.

    A table with column mapping keeps its files, unless a type changes. All others are rewritten: engines that read no
    mapping (DuckDB, Polars and others) must go on.

    :param types: column → type of the table's own columns afterwards.
    :param emptied: columns that become null in all rows.
    :param renamed: new name → name before.
    """
    if delta.rename_columns(dropped, renamed):
        dropped, renamed = (), {}
    new_names = {old: new for new, old in renamed.items()}
    kinds: dict[tuple[str, ...], Any] = {}
    wanted = {field.name: field.dataType for field in spark_schema(_ddl(types)).fields}
    fields = schema_of(delta.snapshot()).fields
    for field in fields:
        name = new_names.get(field.name, field.name)
        if field.name not in dropped and wanted.get(name, field.dataType) != field.dataType:
            kinds[(field.name,)] = wanted[name].jsonValue()
    present = {field.name for field in fields}
    if kinds or present & {*dropped, *emptied, *new_names}:
        reshape_files(delta, ColumnsAfter({*dropped} & present, new_names, kinds, emptied))


def retype(delta: DeltaPath, types: Mapping[str, str], *, inside: str) -> None:
    """Give columns new types, and the fields of these names in a column of structs.

    :param types: column → new type.
    :param inside: the column of structs.
    """
    new = {field.name: field.dataType.jsonValue() for field in spark_schema(_ddl(types)).fields}
    kinds: dict[tuple[str, ...], Any] = {(name,): kind for name, kind in new.items()}
    kinds |= {(inside, name): kind for name, kind in new.items()}
    reshape_files(delta, ColumnsAfter(kinds=kinds))


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_name(name)} {kind}" for name, kind in types.items())
