"""Row images that leave columns out (``binlog_row_image`` MINIMAL or NOBLOB).

The setting belongs to a session, so whole and partial images alternate in one log. Each event's bitmaps say which
columns it has. By kind of image:

``b``, ``d``
    Hold at least the key: a table without one is logged whole. Missing values are unknown, and ``_absent`` names them.
``u``
    Holds at least what was changed. A missing column was not changed. The walk has filled in what the preceding ``b``
    row has, so at least the key. ``_absent`` names the rest, which keeps its earlier value.
``c``
    Is completed here. MySQL leaves out the columns for which the statement gave no value and whose default is a
    literal. Columns with an expression as default, CURRENT_TIMESTAMP, AUTO_INCREMENT and generated columns are always
    present. So a missing value is the column's literal default, NULL, or, if a session that is not strict omitted a NOT
    NULL column, the type's zero.

The log does not hold the defaults. The server is queried for the current ones, which are used only if the log shows
that they are the row's (:mod:`headgate.replication._defaults`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.binlog import WalkedRows
from headgate.catalog import TableDef
from headgate.columns import TableCodec
from headgate.errors import PartialImageError, UnsupportedError

__all__ = ["REMEDY", "DefaultsOf", "PartialImages", "unknown_defaults"]

REMEDY = "SET GLOBAL binlog_row_image = 'FULL' and let the writers connect again"
"""Remedy for partial images. A session keeps the setting it began with."""

_OP_C = ord("c")


DefaultsOf = Callable[[TableCodec, str, int], Mapping[str, pa.Array]]
"""Defaults at an event (file, position): by column, as it is written, one value in the codec's type. A missing column
has no known default. UnsupportedError: the defaults are unknown."""


class PartialImages:
    """Completer of one dump's partial images. It names what stays absent.

    :param defaults_of: ``None``: no server can be queried, so inserts that leave columns out are refused.
    """

    def __init__(self, defaults_of: DefaultsOf | None) -> None:
        self._defaults_of = defaults_of

    def complete(
        self, table: TableDef, codec: TableCodec, walked: WalkedRows, columns: list[pa.Array], file: str, pos: Any
    ) -> tuple[list[pa.Array], pa.Array | None]:
        """Complete inserts. Return the columns and ``_absent`` (None if every image is now whole).

        :param table: as MySQL has it.
        :param columns: those of the codec's table.
        :param pos: int64[rows]: where in ``file`` each row's event begins.
        :raises UnsupportedError: a default is unknown, or an image has no key.
        :raises PartialImageError: the table has a hook, and an image leaves columns out.
        """
        rows = walked.block.rows
        valid, op = walked.block.valid[:, :rows], walked.op
        self._check_keys(table, valid, op)
        inserts = op == _OP_C
        valid = valid[[*codec.places]]
        if inserts.any():
            columns = self._completed(codec, valid, inserts, columns, file, pos)
        absent = _absent_column(codec.table, valid, op)
        if absent is not None and codec.has_hook:
            raise PartialImageError(f"its hook needs whole row images, and one leaves columns out: {REMEDY}")
        return columns, absent

    @staticmethod
    def _check_keys(table: TableDef, valid: Any, op: Any) -> None:
        for index in table.key:
            if ((valid[index] == 2) & (op != _OP_C)).any():
                raise UnsupportedError(
                    f"a partial row image does not hold the key: {REMEDY}, then read the table again",
                    table=table.full_name,
                    column=table.columns[index].name,
                )

    def _completed(
        self, codec: TableCodec, valid: Any, inserts: Any, columns: list[pa.Array], file: str, pos: Any
    ) -> list[pa.Array]:
        table = codec.table
        missing = (valid[: len(columns)] == 2) & inserts
        incomplete = np.flatnonzero(missing.any(axis=1)).tolist()
        if not incomplete:
            return columns
        if self._defaults_of is None:
            raise unknown_defaults(table.full_name, "no server can be queried")
        first, last = pos[missing.any(axis=0)][[0, -1]].tolist()
        defaults = self._defaults_of(codec, file, first)
        if last != first:
            defaults = self._defaults_of(codec, file, last)
        out = list(columns)
        for index in incomplete:
            name = table.columns[index].name
            value = defaults.get(name)
            if value is None:
                raise unknown_defaults(table.full_name, "the default of this column cannot be queried", column=name)
            if value.null_count == 0:
                out[index] = pc.if_else(pa.array(missing[index]), value[0], columns[index])
        return out


def unknown_defaults(table: str, reason: str, **fields: Any) -> UnsupportedError:
    """Return the error for an incomplete INSERT."""
    return UnsupportedError(
        f"an INSERT was logged without the columns it left to their defaults, and these are not known: {reason}; "
        f"{REMEDY}, then read the table again",
        table=table,
        **fields,
    )


@njit(cache=True, nogil=True)
def _same_columns(valid: Any, columns: int, a: int, b: int) -> bool:
    """Return whether two rows leave the same columns out."""
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
        matching = -1
        for k in range(labels):
            if _same_columns(valid, columns, example[k], row):
                matching = k
                break
        if matching < 0:
            matching = labels
            example[labels] = row
            labels += 1
        label[row] = matching
    return labels


def _absent_column(table: TableDef, valid: Any, op: Any) -> pa.Array | None:
    """Return ``_absent``, or None if no image leaves anything out."""
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
