"""Row images that leave columns out (``binlog_row_image`` MINIMAL or NOBLOB).

The setting belongs to a session, so whole and partial images alternate in one log; each event's bitmaps say what it
has. By kind of image:

``b``, ``d``
    Hold at least the key: a table without one is logged whole. What is missing is not known, and ``_absent`` names it.
``u``
    Holds at least what was changed. What it leaves out was not changed; the walk has filled in what the ``b`` row in
    front of it has, so at least the key. The rest is named by ``_absent`` and keeps the value it had.
``c``
    Is completed here. MySQL leaves out the columns for which the statement gave no value and whose default is a
    literal; columns with an expression as default, CURRENT_TIMESTAMP, AUTO_INCREMENT and generated columns are always
    there. So what is missing is the column's literal default, NULL, or, where a session that is not strict let a NOT
    NULL column go without, the type's zero.

The log does not hold the defaults. They are asked of the server (:mod:`headgate.replication._defaults`), which knows
those of *now*. They are used only if the table was not altered since the row was committed, in two steps:

1. A definition that was created after the second in which the row was committed is refused. MySQL sets a table's
   creation time to the start of the ALTER that made it.
2. Should an ALTER turn up later in the same stretch of the log that began before that creation time, then what was
   filled in before it came from a definition that is not the row's: refused.

What is left: an ALTER that changes a default while its online form lets others write, if it ends after the last
transaction of the batch and the batch is read only then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.binlog import WalkedRows
from headgate.catalog import TableDef
from headgate.columns import TableCodec
from headgate.errors import UnsupportedError

__all__ = ["REMEDY", "ColumnDefaults", "DefaultsOf", "PartialImages"]

REMEDY = "SET GLOBAL binlog_row_image = 'FULL' and let the writers connect again"
"""What ends partial images. A session keeps the setting it began with."""

_OP_C = ord("c")


@dataclass(frozen=True)
class ColumnDefaults:
    """What a column of a table holds if an INSERT gives no value, as the server knows it now."""

    created_s: int
    """When the definition was made, seconds since the Unix epoch."""
    values: dict[str, pa.Array]
    """By column name: one value in the codec's type. A column that is not here has none that can be known."""


DefaultsOf = Callable[[TableDef, TableCodec], ColumnDefaults]
"""Asks the server. UnsupportedError: the table has another definition by now."""


class PartialImages:
    """Completes the partial images of one dump and names what stays absent.

    :param defaults_of: ``None``: nobody can be asked, so inserts that leave columns out are refused.
    """

    def __init__(self, defaults_of: DefaultsOf | None) -> None:
        self._defaults_of = defaults_of
        self._known: dict[str, tuple[str, ColumnDefaults]] = {}

    def complete(
        self, table: TableDef, codec: TableCodec, walked: WalkedRows, columns: list[pa.Array], commit_us: Any
    ) -> tuple[list[pa.Array], pa.Array | None]:
        """The columns with inserts completed, and ``_absent`` (None if every image is whole now).

        :param commit_us: int64[rows]: when each row was committed.
        :raises UnsupportedError: a default cannot be known, or an image has no key.
        """
        rows = walked.block.rows
        valid, op = walked.block.valid[:, :rows], walked.op
        self._check_keys(table, valid, op)
        inserts = op == _OP_C
        if inserts.any():
            columns = self._completed(table, codec, valid, inserts, columns, commit_us)
        return columns, _absent_column(table, valid, op)

    def altered(self, db: str, table: str, started_s: int) -> None:
        """A statement that may have changed the defaults of a table stands here in the log.

        :param started_s: when it began, seconds since the Unix epoch (the event's own time).
        :raises UnsupportedError: defaults were used that are younger than this statement.
        """
        name = f"{db}.{table}"
        known = self._known.pop(name, None)
        if known is not None and known[1].created_s >= started_s:
            raise _unknown(name, "it was altered after the row was written, before its defaults could be asked for")

    @staticmethod
    def _check_keys(table: TableDef, valid: Any, op: Any) -> None:
        for index in table.key:
            if ((valid[index] == 2) & (op != _OP_C)).any():
                raise UnsupportedError(
                    f"a partial row image does not hold the key: {REMEDY}, then read the table again",
                    table=table.full_name, column=table.columns[index].name,
                )  # fmt: skip

    def _completed(
        self, table: TableDef, codec: TableCodec, valid: Any, inserts: Any, columns: list[pa.Array], commit_us: Any
    ) -> list[pa.Array]:
        missing = (valid[: len(columns)] == 2) & inserts
        incomplete = np.flatnonzero(missing.any(axis=1)).tolist()
        if not incomplete:
            return columns
        defaults = self._ask(table, codec)
        oldest = int(commit_us[missing.any(axis=0)].min()) // 1_000_000
        if defaults.created_s > oldest:
            raise _unknown(table.full_name, "it was altered after the row was written")
        out = list(columns)
        for index in incomplete:
            name = table.columns[index].name
            value = defaults.values.get(name)
            if value is None:
                raise _unknown(table.full_name, "that of this column cannot be asked for", column=name)
            if value.null_count == 0:
                out[index] = pc.if_else(pa.array(missing[index]), value[0], columns[index])
        return out

    def _ask(self, table: TableDef, codec: TableCodec) -> ColumnDefaults:
        known = self._known.get(table.full_name)
        if known is None or known[0] != table.fingerprint:
            if self._defaults_of is None:
                raise _unknown(table.full_name, "there is no server to ask")
            known = self._known[table.full_name] = table.fingerprint, self._defaults_of(table, codec)
        return known[1]


def _unknown(table: str, reason: str, **fields: Any) -> UnsupportedError:
    return UnsupportedError(
        f"an INSERT was logged without the columns it left to their defaults, and these are not known: {reason}; "
        f"{REMEDY}, then read the table again",
        table=table, **fields,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _same_columns(valid: Any, columns: int, a: int, b: int) -> bool:
    """Whether two rows leave the same columns out."""
    same = True
    for c in range(columns):
        same = same and (valid[c, a] == 2) == (valid[c, b] == 2)
    return same


@njit(cache=True, nogil=True)
def _number_sets(valid: Any, columns: int, op: Any, kind_c: int, label: Any, example: Any) -> int:
    """Number the distinct sets of absent columns: ``label[row]`` (-1: whole), ``example[label]`` a row that has it."""
    labels = 0
    for row in range(op.shape[0]):
        label[row] = -1
        if op[row] == kind_c:
            continue
        some = False
        for c in range(columns):
            some = some or valid[c, row] == 2
        if not some:
            continue
        last = label[row - 1] if row > 0 else -1
        if last >= 0 and _same_columns(valid, columns, example[last], row):
            label[row] = last
            continue
        found = -1
        for k in range(labels):
            if _same_columns(valid, columns, example[k], row):
                found = k
                break
        if found < 0:
            found = labels
            example[labels] = row
            labels += 1
        label[row] = found
    return labels


def _absent_column(table: TableDef, valid: Any, op: Any) -> pa.Array | None:
    """``_absent``, or None if no image leaves anything out."""
    names = [column.name for column in table.columns]
    label, example = np.empty(len(op), np.int32), np.empty(len(op), np.int64)
    labels = int(_number_sets(valid, len(names), op, _OP_C, label, example))
    if not labels:
        return None
    texts = [
        json.dumps([names[c] for c in np.flatnonzero(valid[: len(names), row] == 2).tolist()], ensure_ascii=False)
        for row in example[:labels].tolist()
    ]
    return pa.DictionaryArray.from_arrays(pa.array(label, mask=label < 0), pa.array(texts, pa.string()))
