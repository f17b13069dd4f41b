"""Complete folded partial images to whole rows: values that they leave out come from the table.

These are the values that the row had at its origin *before the batch*. So they are read at the Delta version in the
last ledger row, not at the newest one. A batch that an earlier try wrote in part then gives the same rows, although a
key may hold another row by now.

While a table is read again whose changes were left out before, its rows of earlier epochs are outdated: they count as
missing.

**Memory.** Rows may be a thousand times as long as the images that change them. So they are read in parts, and written
before the next part is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, META
from headgate.decide.actions import TableContent
from headgate.delta import keys_of
from headgate.lake import DELETED, Form, with_columns

__all__ = ["Completed", "FindRows", "complete"]

FindRows: TypeAlias = Callable[[pa.Table], Iterable[tuple[pa.Table, Any]]]
"""Returns the rows of the table before the batch that have some keys, each once, in parts that memory can hold; for
each part also the number of each row's key (int64[rows]): its row in the argument. A marked table returns deleted rows,
too."""


@dataclass(frozen=True)
class Completed:
    """Images of whole rows.

    :param images: the canonical columns and the table's own; of a marked table ``_deleted``, too.
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
) -> Iterator[Completed]:
    """Yield whole images, in all at most one per key, in parts that memory can hold.

    An ignored update deletes the row at its key if the batch cleared the key. Else that key does not change.

    :param lines: the columns of ``_partial.fold_partial``.
    :param fills: values of columns that the table before the batch does not have; other missing columns are null.
    :param form: of the table. In a marked one a deletion becomes a row, with its last values.
    :param since: first epoch of rows that complete images; 0: all rows do.
    """
    absent = lines[ABSENT].combine_chunks()
    is_partial = np.asarray(absent.is_valid())
    origins = [pc.struct_field(absent, ["old", f"k{number}"]) for number in range(len(key))]
    vanishes = np.asarray(pc.fill_null(pc.struct_field(absent, "vanishes"), False))
    is_same = np.ones(len(lines), np.bool_)
    for name, old in zip(key, origins, strict=True):
        is_same &= np.asarray(pc.fill_null(pc.equal(lines[name].combine_chunks(), old), False))
    left_out, lines = _left_out(absent, lines.column_names), lines.drop_columns([ABSENT])
    for part in _joined(find, pa.table(origins, names=list(key)), is_partial, live=form, since=since):
        values, is_ignored = part.merged(lines, left_out, fills), is_partial[part.lines] & (part.rows is None)
        counts = int(is_ignored.sum()), int((is_ignored & ~is_same[part.lines]).sum())
        values = with_columns(values, {"_op": pc.if_else(pa.array(is_ignored), "d", values["_op"])})
        has_effect = ~is_ignored | vanishes[part.lines]
        values, is_unknown = values.filter(pa.array(has_effect)), is_ignored[has_effect]
        for images in _marked(values, find, key, is_unknown) if form is Form.MARKED else [values]:
            yield Completed(images, *counts)
            counts = 0, 0


def _marked(values: pa.Table, find: FindRows, key: Sequence[str], is_unknown: Any) -> Iterator[pa.Table]:
    """Yield images with ``_deleted``. A deletion becomes an update with the row's last values. If they are not known
    (the table does not have the origin), they are those that the table has at the key; without such a row the deletion
    has no effect.

    :param is_unknown: bool[values]: whether an image is a deletion of unknown values.
    """
    names = [name for name in values.column_names if name not in (*META, *key)]
    for part in _joined(find, values.select(list(key)), is_unknown):
        images = part.merged(values, dict.fromkeys(names, is_unknown), {})
        if part.rows is None:
            images = images.filter(pa.array(~is_unknown[part.lines]))
        is_deleted = pc.equal(images["_op"], "d")
        images = with_columns(images, {"_op": pc.if_else(is_deleted, "u", images["_op"])})
        yield images.append_column(DELETED, is_deleted)


@dataclass(frozen=True)
class _Joined:
    """Some lines, and the rows that they need of the table before the batch.

    :param lines: int64[n]: their numbers.
    :param rows: None: the table does not have them, or they are not needed.
    :param index: int64[n]: index of each line's row.
    """

    lines: Any
    rows: pa.Table | None = None
    index: Any = None

    def merged(self, lines: pa.Table, taken: Mapping[str, Any], fills: Mapping[str, str]) -> pa.Table:
        """Return these lines, with values of the rows in some columns.

        :param lines: all lines.
        :param taken: bool[all lines] by column: lines that get the row's value.
        :param fills: values of columns that the rows do not have; other missing columns are null.
        """
        lines = lines.take(pa.array(self.lines))
        if self.rows is None:
            return lines
        for name, chosen in taken.items():
            kind, count = lines.schema.field(name).type, len(self.rows)
            if name in self.rows.column_names:
                old = self.rows[name].combine_chunks()
            elif name in fills:
                old = pa.repeat(pa.scalar(fills[name]).cast(kind), count)
            else:
                old = pa.nulls(count, kind)
            both = pa.chunked_array([*lines[name].chunks, old])
            at = np.where(chosen[self.lines], len(lines) + self.index, np.arange(len(lines)))
            lines = with_columns(lines, {name: both.take(pa.array(at))})
        return lines


def _joined(
    find: FindRows, keys: pa.Table, wanted: Any, *, live: Form | None = None, since: int = 0
) -> Iterator[_Joined]:
    """Yield lines with their rows, part by part, then the lines without one, perhaps none.

    :param keys: the keys of the rows, one for each line.
    :param wanted: bool[lines]: the lines that need a row.
    :param live: the table's form, if only rows that the source has count.
    :param since: first epoch of the rows that count.
    """
    numbers = keys_of(keys.filter(pa.array(wanted)).columns).numbers
    _, firsts = np.unique(numbers, return_index=True)
    wanting, lacks = np.flatnonzero(wanted), np.ones(len(wanted), np.bool_)
    for rows, key_numbers in find(keys.take(pa.array(wanting[firsts]))) if len(firsts) else ():
        counts = np.ones(len(rows), np.bool_)
        if live is Form.MARKED:
            counts &= np.asarray(pc.invert(rows[DELETED]).combine_chunks())
        if since:
            counts &= np.asarray(pc.struct_field(rows["_seq"].combine_chunks(), "epoch")) >= since
        at = np.full(len(firsts), -1, np.int64)
        at[key_numbers[counts]] = np.flatnonzero(counts)
        has_row = at[numbers] >= 0
        lacks[wanting[has_row]] = False
        yield _Joined(wanting[has_row], rows, at[numbers[has_row]])
    yield _Joined(np.flatnonzero(lacks))


def _left_out(absent: pa.StructArray, names: Collection[str]) -> dict[str, Any]:
    """Return bool[lines] by column: lines without a value for it."""
    lists = pc.struct_field(absent, "columns")
    encoded = lists.flatten().dictionary_encode()
    masks = np.zeros((len(encoded.dictionary), len(absent)), np.bool_)
    masks[np.asarray(encoded.indices), np.asarray(pc.list_parent_indices(lists))] = True
    return {name: mask for name, mask in zip(encoded.dictionary.to_pylist(), masks, strict=True) if name in names}
