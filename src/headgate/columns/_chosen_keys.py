"""Keys that users choose for tables without one: where they apply, and what their values must be.

MySQL does not enforce such a key, so nothing here relies on it: the table is read as one without a key, in one piece.
What headgate writes by the key is exact only if the key is unique and has no NULL. For a table read this is checked
here, on all of its rows as of E. For changes the sinks prove it by counting (``apply/_proof.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef
from headgate.errors import ChosenKeyError, ConfigError, SchemaChangedError
from headgate.names import with_positional_names
from headgate.policies import Policies

__all__ = ["check_chosen_keys", "check_not_null", "check_unique", "with_chosen_key"]

_NO_KEYS: Final = frozenset({"float", "double", "json", "geometry", "vector"})


def with_chosen_key(table: TableDef, policies: Policies) -> TableDef:
    """Return the table with the key that its policies choose, if it has none.

    :param policies: those of this table.
    :raises ChosenKeyError: it lacks a column of the key.
    """
    if table.key or not policies.key:
        return table
    try:
        return replace(table.with_key(policies.key), has_chosen_key=True)
    except SchemaChangedError as error:
        raise ChosenKeyError(f"key: {error.message}: choose other columns", table=table.full_name) from None


def check_chosen_keys(policies: Policies, tables: Sequence[TableDef]) -> None:
    """Check the chosen keys of these tables.

    :param tables: as MySQL has them.
    :raises ConfigError: a table has a key already, lacks a column, or its type cannot be one of a key.
    """
    for table in tables:
        names = policies.of(table.full_name).key
        if not names:
            continue
        where = f"key of {table.full_name}"
        if table.key:
            raise ConfigError(f"{where}: the table has the key ({', '.join(table.key_names)}): remove `key`")
        try:
            columns = [table.columns[table.index(name)] for name in names]
        except SchemaChangedError as error:
            raise ConfigError(f"{where}: {error.message}") from None
        for column in columns:
            if column.type in _NO_KEYS:
                raise ConfigError(f"{where}: column {column.name} of type {column.mysql} cannot be part of a key")


def check_not_null(table: TableDef, rows: pa.RecordBatch | pa.Table) -> None:
    """Check that no row has NULL in the table's key.

    :raises ChosenKeyError: one has.
    """
    for name in table.key_names:
        if rows.column(name).null_count:
            raise ChosenKeyError(
                f"key ({', '.join(table.key_names)}): a row has NULL in {name}: choose other columns",
                table=table.full_name,
            )


def check_unique(table: TableDef, rows: pa.Table) -> None:
    """Check that these rows have different values of the table's key, and no NULL there.

    :raises ChosenKeyError: two have the same, one of which it names.
    """
    check_not_null(table, rows)
    names = list(table.key_names)
    keys = with_positional_names(rows.select(names))
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted["count_all"], 1))
    if repeated.num_rows:
        first = repeated.slice(0, 1).to_pylist()[0]
        count = first.pop("count_all")
        values = ", ".join(f"{name}={value!r}" for name, value in zip(names, first.values(), strict=True))
        raise ChosenKeyError(
            f"key ({', '.join(names)}) is not unique: {count} rows have {values}: choose other columns",
            table=table.full_name,
        )
