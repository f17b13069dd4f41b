"""Data files of tables whose folders are below a table's, as that table's log names them: no row is copied.

A data file does not know its table. The log names it by a path relative to the table's folder, and a deletion vector's
file by the folder before its UUID (Delta Transaction Log Protocol, "Add File and Remove File", "Deletion Vectors"). So
a file of a table below becomes the table's with the folder in front of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headgate.delta._log import DataFile
from headgate.delta.vectors import vector_below

__all__ = ["add_below", "exchange"]


def add_below(folder: str, file: DataFile, **others: Any) -> dict[str, Any]:
    """Return the ``add`` by which a table above has a file.

    :param folder: the path from the table's folder to that of the file's table, without percent-encoded characters.
    :param others: other fields of it.
    """
    add = {**file.action, "path": f"{folder}/{file.path}", **others}
    if file.vector is not None:
        add["deletionVector"] = vector_below(folder, file.vector)
    return add


def exchange(
    had: Iterable[DataFile], adds: Iterable[dict[str, Any]], loses_rows: Callable[[str], bool] = lambda _path: True
) -> Iterator[dict[str, Any]]:
    """Yield the actions that remove some files of a table and add others, except those that are the same.

    :param loses_rows: whether the table loses rows with the file at a path.
    """
    before, after = {file.path: file for file in had}, {str(add["path"]): add for add in adds}
    for path, file in before.items():
        if path not in after or _vector(file.action) != _vector(after[path]):
            yield file.removal(data_change=loses_rows(path))
    for path, add in after.items():
        if path not in before or _vector(before[path].action) != _vector(add):
            yield {"add": add}


def _vector(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies the vector of a file, as in the log."""
    vector = action.get("deletionVector") or {}
    return tuple(vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))
