"""A table that consists of the files of other tables, its parts, in folders below its own: no row is written twice.

The union's log names the files of its parts (``_nested_files``), with the deletion vectors that they have there, and
gives each part's files one value of a partition column. A commit makes the union equal to given versions of its parts,
whatever it was before; therefore it may be repeated, and another program's commits to the union last until the next
one.

**Who removes files.** Only the part whose file it is. It may do so when neither it nor the union needs a version with
the file.

Source: Delta Transaction Log Protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.delta._clustering import CLUSTERING_FEATURES
from headgate.delta._definition import protocol_of
from headgate.delta._log import DataFile, Snapshot, read_commit
from headgate.delta._mapping import is_mapped
from headgate.delta._nested_files import add_below, exchange

__all__ = ["DifferentColumnsError", "UnionLayout", "UnionPart", "changed_files", "union_actions"]


class DifferentColumnsError(ValueError):
    """The parts have no columns in common form; the text says which."""


@dataclass(frozen=True)
class UnionLayout:
    """What a union has besides its parts.

    :param column: the partition column.
    :param before: the first of the columns that come last. Columns that only some parts have come before it, and so
        does the partition column; they are null in the other parts.
    :param properties: of the table.
    """

    column: str
    before: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class UnionPart:
    """A part.

    :param value: of the partition column in all its rows.
    :param folder: its folder, relative to the union's, without characters that are percent-encoded in the log.
    :param table: its version to show.
    :param changed: of :func:`changed_files`. The rows of other files count as new, or as deleted.
    """

    value: str
    folder: str
    table: Snapshot
    changed: Mapping[str, bool] = field(default_factory=dict)


def changed_files(folder: str, after: int, upto: int) -> dict[str, bool]:
    """Return by path whether the commits after one version, up to another, added or removed its *rows*.

    :returns: false for files that were folded, whose rows are in other files now. Empty if a commit is missing.
    """
    changed: dict[str, bool] = {}
    for version in range(after + 1, upto + 1):
        actions = read_commit(folder, version)
        if actions is None:
            return {}
        for action in actions:
            file = action.get("add") or action.get("remove")
            if file is not None:
                path = str(file["path"])
                changed[path] = changed.get(path, False) or bool(file.get("dataChange", True))
    return changed


def union_actions(
    union: Snapshot,
    layout: UnionLayout,
    parts: Sequence[UnionPart],
    gone: Collection[str] = (),
    same: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the actions by which the union shows these versions of its parts; empty if it does.

    Files with other values of the partition column stay: they belong to other writers of the union.

    :param union: its newest version, with files.
    :param gone: values of parts that the union had, and has no longer.
    :param same: values of parts whose files the union has; they are not compared.
    :raises DifferentColumnsError: a column has different types or letter case, or the union's own name; a part has
        column mapping; the union has another partition column.
    """
    column, values = layout.column, {*gone, *(part.value for part in parts)}
    if union.version >= 0 and union.metadata.get("partitionColumns") != [column]:
        raise DifferentColumnsError(f"it has another shard column than {column}: set the column back in [routes]")
    others = [file for file in union.files.values() if _value(file, column) not in values]
    schema = _columns(union if others else None, layout, parts)
    compared = values - {*same}
    had = [file for file in union.files.values() if _value(file, column) in compared]
    adds = [add for part in parts if part.value in compared for add in _adds(part, column)]
    folders = {part.folder: part.changed for part in parts}
    definition = _definition(union, schema, layout, parts)
    return [*definition, *exchange(had, adds, lambda path: _loses_rows(path, folders))]


def _adds(part: UnionPart, column: str) -> Iterator[dict[str, Any]]:
    for file in part.table.files.values():
        has_new_rows = part.changed.get(file.path, True)
        yield add_below(part.folder, file, partitionValues={column: part.value}, dataChange=has_new_rows)


def _loses_rows(path: str, folders: Mapping[str, Mapping[str, bool]]) -> bool:
    """Return whether rows go with a file of the union."""
    for folder, changed in folders.items():
        start = f"{folder}/"
        if path.startswith(start):
            return changed.get(path.removeprefix(start), True)
    return True


def _definition(
    union: Snapshot, schema: str, layout: UnionLayout, parts: Iterable[UnionPart]
) -> Iterator[dict[str, Any]]:
    """Yield the union's protocol and metadata, where they differ."""
    existing = frozenset() if union.version < 0 else union.features or frozenset()
    needed = existing.union(*((part.table.features or frozenset()) - CLUSTERING_FEATURES for part in parts))
    if union.version < 0 or needed != existing:
        yield protocol_of(needed)
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "createdTime": time.time_ns() // 1_000_000,
        **union.metadata,
        "schemaString": schema,
        "partitionColumns": [layout.column],
        "configuration": {**union.properties, **layout.properties},
    }
    if metadata != dict(union.metadata):
        yield {"metaData": metadata}


def _columns(shared: Snapshot | None, layout: UnionLayout, parts: Sequence[UnionPart]) -> str:
    """Return the union's columns as JSON.

    :param shared: the union, if it has parts of other writers, too.
    """
    columns = _UnionColumns(layout)
    if shared is not None:
        columns.take("the merged table", [one for one in _fields(shared) if one["name"] != layout.column])
    for part in parts:
        if is_mapped(part.table.properties):
            raise DifferentColumnsError(f"{part.value} has column mapping, as a name is not one that Parquet can have")
        columns.take(part.value, _fields(part.table))
    return columns.to_json()


class _UnionColumns:
    """The columns of some tables, each once."""

    def __init__(self, layout: UnionLayout) -> None:
        self._column, self._before = layout.column, layout.before
        self._first: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []
        self._known: dict[str, dict[str, Any]] = {}

    def take(self, where: str, fields: Iterable[dict[str, Any]]) -> None:
        """Take a table's columns.

        :raises DifferentColumnsError: one has another type.
        """
        target = self._first
        for one in fields:
            name = one["name"].lower()
            if one["name"] == self._before:
                target = self._last
            if name == self._column.lower():
                raise DifferentColumnsError(
                    f"{where} has a column {one['name']} itself: set another column in [routes]"
                )
            if name in self._known:
                _check_spelling(self._known[name]["name"], one["name"], where)
                self._known[name]["type"] = _common_type(self._known[name]["type"], one["type"], one["name"], where)
            else:
                self._known[name] = {**one, "nullable": True}
                target.append(self._known[name])

    def to_json(self) -> str:
        shard = {"name": self._column, "type": "string", "nullable": True, "metadata": {}}
        return json.dumps({"type": "struct", "fields": [*self._first, shard, *self._last]})


def _fields(table: Snapshot) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(table.metadata["schemaString"])["fields"]
    return fields


def _value(file: DataFile, column: str) -> str | None:
    value: str | None = (file.action.get("partitionValues") or {}).get(column)
    return value


def _common_type(known: Any, kind: Any, column: str, where: str) -> Any:
    """Return the type that has the values of both: a struct has the fields of both.

    :raises DifferentColumnsError: there is none.
    """
    if known == kind:
        return known
    if not (_is_struct(known) and _is_struct(kind)):
        raise DifferentColumnsError(f"{column} is {_text(kind)} in {where} and {_text(known)} in another")
    fields = {one["name"].lower(): dict(one) for one in known["fields"]}
    for one in kind["fields"]:
        name = one["name"].lower()
        if name in fields:
            _check_spelling(f"{column}.{fields[name]['name']}", f"{column}.{one['name']}", where)
            fields[name]["type"] = _common_type(fields[name]["type"], one["type"], f"{column}.{one['name']}", where)
        else:
            fields[name] = {**one, "nullable": True}
    return {**known, "fields": [*fields.values()]}


def _check_spelling(known: str, name: str, where: str) -> None:
    """Raise if a column has other letter case in a part: not every reader would find it in the files of both."""
    if known != name:
        raise DifferentColumnsError(
            f"{name} in {where} is {known} in another: rename one, at the source or by [columns]"
        )


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
