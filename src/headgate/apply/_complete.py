"""Complete folded partial images to whole rows: values that they leave out come from the table.

These are the values that the row had at its origin *before the batch*. So they are read at the Delta version in the
last ledger row, not at the newest one. A batch that an earlier try wrote in part then gives the same rows, although a
key may hold another row by now.

While a table is read again whose changes were left out before, its rows of earlier epochs are outdated: they count as
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, META
from headgate.decide.actions import TableContent
from headgate.delta import keys_of
from headgate.lake import DELETED, Form

__all__ = ["Completed", "FindRows", "complete"]

FindRows: TypeAlias = Callable[[pa.Table], tuple[pa.Table, Any]]
"""Returns the rows of the table before the batch that have some keys, each once, and the number of each row's key
(int64[rows]): its row in the argument. A marked table returns deleted rows, too."""


@dataclass(frozen=True)
class Completed:
    """Images of whole rows.

    :param images: at most one per key: the canonical columns and the table's own; of a marked table ``_deleted``, too.
    :param ignored: updates of rows that the table does not have: they have no effect.
    :param moved: how many of these had changed their key.
    """

    images: pa.Table
    ignored: int
    moved: int

    def reread_reason(self, content: TableContent) -> str | None:
        """Return why the table must be read again; None: no ignored update proves that it lacks a row for good. While a
        table is read in ranges of its key, a row that keeps its key is in a range that is read later.

        :param content: the table's, before the batch.
        """
        if content is TableContent.UNKNOWN or not (self.moved if content is TableContent.SOME else self.ignored):
            return None
        return "a partial row image changed a row that the lake does not have, or not exactly"


def complete(
    lines: pa.Table,
    find: FindRows,
    key: Sequence[str],
    fills: Mapping[str, str],
    form: Form = Form.PLAIN,
    *,
    since: int = 0,
) -> Completed:
    """Return whole images, one per key.

    An ignored update deletes the row at its key if the batch cleared the key. Else that key does not change.

    :param lines: the columns of ``_partial.fold_partial``.
    :param fills: values of columns that the table before the batch does not have; other missing columns are null.
    :param form: of the table. In a marked one a deletion becomes a row, with its last values.
    :param since: first epoch of rows that complete images; 0: all rows do.
    """
    absent = lines[ABSENT].combine_chunks()
    is_partial = np.asarray(absent.is_valid())
    origins = [pc.struct_field(absent, ["old", f"k{number}"]) for number in range(len(key))]
    origin = _Rows(find, pa.table(origins, names=list(key)), is_partial, live=form, since=since)
    is_ignored = is_partial & (origin.index < 0)
    values = origin.merged(lines.drop_columns([ABSENT]), _left_out(absent, lines.column_names), fills)
    vanishes = np.asarray(pc.fill_null(pc.struct_field(absent, "vanishes"), False))
    is_same = np.ones(len(lines), np.bool_)
    for name, old in zip(key, origins, strict=True):
        is_same &= np.asarray(pc.fill_null(pc.equal(lines[name].combine_chunks(), old), False))
    op = pc.if_else(pa.array(is_ignored), "d", values["_op"].combine_chunks())
    values, has_effect = _with(values, "_op", op), ~is_ignored | vanishes
    if form is Form.MARKED:
        values, has_effect = _marked(values, find, key, is_ignored, has_effect)
    images = values.filter(pa.array(has_effect))
    return Completed(images, int(is_ignored.sum()), int((is_ignored & ~is_same).sum()))


def _marked(
    values: pa.Table, find: FindRows, key: Sequence[str], is_ignored: Any, has_effect: Any
) -> tuple[pa.Table, Any]:
    """Return images with ``_deleted``, and which of them have an effect. A deletion becomes an update with the row's
    last values. If they are not known (the table does not have the origin), they are those that the table has at the
    key; without such a row the deletion has no effect.
    """
    is_deleted = np.asarray(pc.equal(values["_op"], "d").combine_chunks())
    unknown = is_ignored & has_effect
    stored = _Rows(find, values.select(list(key)), unknown)
    names = [name for name in values.column_names if name not in (*META, *key)]
    values = stored.merged(values, dict.fromkeys(names, unknown), {})
    values = _with(values, "_op", pc.if_else(pa.array(is_deleted), "u", values["_op"].combine_chunks()))
    return values.append_column(DELETED, pa.array(is_deleted)), has_effect & ~(unknown & (stored.index < 0))


class _Rows:
    """Rows of the table before the batch, for some lines.

    :param keys: the keys of the rows, one for each line.
    :param wanted: bool[lines]: the lines that need a row.
    :param live: the table's form, if only rows that the source has count.
    :param since: first epoch of the rows that count.
    """

    def __init__(self, find: FindRows, keys: pa.Table, wanted: Any, live: Form | None = None, since: int = 0) -> None:
        self.index = np.full(len(wanted), -1, np.int64)
        """int64[lines]: index in :attr:`rows`; -1: there is no such row, or it is not needed."""
        numbers = keys_of(keys.filter(pa.array(wanted)).columns).numbers
        _, firsts = np.unique(numbers, return_index=True)
        self.rows, key_numbers = find(keys.filter(pa.array(wanted)).take(pa.array(firsts)))
        if live is Form.MARKED and len(self.rows):
            is_live = np.asarray(pc.invert(self.rows[DELETED]).combine_chunks())
            self.rows, key_numbers = self.rows.filter(pa.array(is_live)), key_numbers[is_live]
        if since and len(self.rows):
            counts = np.asarray(pc.struct_field(self.rows["_seq"].combine_chunks(), "epoch")) >= since
            self.rows, key_numbers = self.rows.filter(pa.array(counts)), key_numbers[counts]
        at = np.full(len(firsts), -1, np.int64)
        at[key_numbers] = np.arange(len(key_numbers))
        self.index[wanted] = at[numbers]

    def merged(self, lines: pa.Table, taken: Mapping[str, Any], fills: Mapping[str, str]) -> pa.Table:
        """Return lines with values of these rows in some columns.

        :param taken: bool[lines] by column: lines that get the row's value, if they have one.
        :param fills: values of columns that the rows do not have; other missing columns are null.
        """
        for name, chosen in taken.items():
            kind, count = lines.schema.field(name).type, len(self.rows)
            if name in self.rows.column_names:
                old = self.rows[name].combine_chunks()
            elif name in fills:
                old = pa.repeat(pa.scalar(fills[name]).cast(kind), count)
            else:
                old = pa.nulls(count, kind)
            both = pa.chunked_array([*lines[name].chunks, *(old.chunks if isinstance(old, pa.ChunkedArray) else [old])])
            at = np.where(chosen & (self.index >= 0), len(lines) + self.index, np.arange(len(lines)))
            lines = _with(lines, name, both.take(pa.array(at)))
        return lines


def _left_out(absent: pa.StructArray, names: Collection[str]) -> dict[str, Any]:
    """Return bool[lines] by column: lines without a value for it."""
    lists = pc.struct_field(absent, "columns")
    encoded = lists.flatten().dictionary_encode()
    masks = np.zeros((len(encoded.dictionary), len(absent)), np.bool_)
    masks[np.asarray(encoded.indices), np.asarray(pc.list_parent_indices(lists))] = True
    return {name: mask for name, mask in zip(encoded.dictionary.to_pylist(), masks, strict=True) if name in names}


def _with(rows: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), column)
