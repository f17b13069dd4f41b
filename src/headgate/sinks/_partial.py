"""Fold row images that leave columns out (``binlog_row_image`` MINIMAL or NOBLOB) to their effect on each key.

The canonical column ``_absent`` lists the columns that an image lacks: null for a whole image, else a JSON list of
names. An update (``u``) without a column keeps the value that the row had *at its old key*. An update of a missing row
is ignored.

**Chains.** In log order, every key holds one of: what the target had before the batch, nothing, or a row made by an
image. A whole image makes a complete row. A partial one makes a row that takes its absent columns from the row that its
update found at the old key. So every row is a chain of images. The chain ends in a whole image, or in the target's row
at some key, the *origin*, which differs from the row's key if the key changed on the way. At most one update continues
a row, so chains do not branch, and together they are no longer than the batch.

Folding gives one line per key: the row's value if some image of its chain has the column, and ``_absent``, which is
null or describes what depends on the target. ``columns`` are to be taken from its row at the origin, ``old``. If it has
no row there, the updates are ignored, and ``vanishes`` gives the effect on the key (true: the batch removed its
row; false: it does not change). Unlike whole images, parts of a batch cannot be folded separately: a chain may go
through all of them.

**Origins are as of before the batch**, so they must be looked up in that version of the table; see ``_current``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.carrier import ABSENT, META, Seq
from headgate.errors import DecodeError
from headgate.sinks._images import drop_before, rank_images

__all__ = ["fold_partial"]

_WHOLE = -1  # link: the row has all its columns
_KEPT, _GONE = -1, -2  # key: the target's row, nothing; else the number of the image that made its row
_OP_B, _OP_U, _OP_D = 0, 1, 2


def fold_partial(table: pa.Table, key: Sequence[str], truncated: Seq | None = None) -> pa.Table:
    """Return the batch's effect on each key that it touches.

    :param table: all images of the batch, canonical, with ``_absent`` (string) as the last column, in any order.
    :param key: the key's columns.
    :param truncated: the ``_seq`` of the batch's last TRUNCATE.
    :returns: ``table``'s columns; ``_op`` is ``d`` where the key holds nothing; ``_absent`` is struct<columns:
        list<string>, vanishes: bool, old: struct<k0, …>>, null where nothing depends on the target.
    :raises DecodeError: a before-image without its after-image.
    """
    table = drop_before(table, truncated)
    table = table.take(pc.sort_indices(rank_images(table))).combine_chunks()
    names = [name for name in table.column_names if name not in (*META, ABSENT)]
    keys, count = _number_keys(table, key)
    absent = _chunk(table[ABSENT]).dictionary_encode()
    code = np.asarray(absent.indices.fill_null(len(absent.dictionary)))
    has = _present(absent.dictionary.to_pylist(), names)
    op = np.asarray(pc.index_in(_chunk(table["_op"]), pa.array(["b", "u", "d"])).fill_null(-1)).astype(np.int8)
    pair = _pairs(table)
    held, last, link, vanishes = _chain(op, keys, pair, code < len(has) - 1, count)
    if held is None:
        raise DecodeError("a before-image that no after-image follows")
    touched = np.nonzero((last >= 0) & (held != _KEPT))[0]
    gone = held[touched] == _GONE
    line = np.where(gone, last[touched], held[touched])
    source, origin = _resolve(line, gone, code, has, link)
    return _lines(table, key, names, keys, line, gone, source, origin, vanishes)


def _lines(
    table: pa.Table,
    key: Sequence[str],
    names: list[str],
    keys: Any,
    line: Any,
    gone: Any,
    source: Any,
    origin: Any,
    vanishes: Any,
) -> pa.Table:
    op = pc.if_else(pa.array(gone), "d", _chunk(table["_op"]).take(pa.array(line)))
    columns = [op, *(_chunk(table[name]).take(pa.array(line)) for name in META[1:])]
    for index, name in enumerate(names):
        columns.append(_chunk(table[name]).take(pa.array(source[index], mask=source[index] < 0)))
    partial = origin >= 0
    sets, which = np.unique((source < 0).T & partial[:, None], axis=0, return_inverse=True)
    lists = pa.array(
        [[name for name, out in zip(names, row, strict=True) if out] for row in sets.tolist()], pa.list_(pa.string())
    )
    first = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    old = pa.array(first[np.maximum(origin, 0)] if len(first) else origin)
    origins = [_chunk(table[name]).take(old) for name in key]
    parts = [
        lists.take(pa.array(which.reshape(-1))),
        pa.array(vanishes[line]),
        pa.StructArray.from_arrays(origins, [f"k{i}" for i in range(len(key))]),
    ]
    columns.append(pa.StructArray.from_arrays(parts, ["columns", "vanishes", "old"], mask=pa.array(~partial)))
    return pa.table(columns, names=[*META, *names, ABSENT])


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _number_keys(table: pa.Table, key: Sequence[str]) -> tuple[Any, int]:
    """Return ``(int64[rows]: equal for equal keys, numbered from 0; the number of keys)``."""
    number = np.zeros(table.num_rows, np.int64)
    count = 1
    for name in key:
        column = _chunk(table[name])
        if pa.types.is_floating(column.type):  # as in fold: -0.0 and 0.0 are one key
            column = pc.add(column, pa.scalar(0.0, column.type))
        encoded = column.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(len(encoded.dictionary))).astype(np.int64)
        distinct, number = np.unique(number * (len(encoded.dictionary) + 1) + codes, return_inverse=True)
        number, count = number.reshape(-1), len(distinct)
    return number, count


def _present(absent: list[str], names: list[str]) -> Any:
    """Return bool[sets of absent columns + 1, columns]: what an image has; the last set is that of whole images."""
    column_index = {name: index for index, name in enumerate(names)}
    has = np.ones((len(absent) + 1, len(names)), np.bool_)
    for row, text in enumerate(absent):
        for name in json.loads(text):
            if name in column_index:
                has[row, column_index[name]] = False
    return has


def _pairs(table: pa.Table) -> Any:
    """Return bool[rows]: whether the row before has the same ``_seq``."""
    same = np.ones(max(table.num_rows - 1, 0), np.bool_)
    for part in _chunk(table["_seq"]).flatten():
        values = np.asarray(part)
        same &= values[1:] == values[:-1]
    return np.concatenate([np.zeros(min(table.num_rows, 1), np.bool_), same])


@njit(cache=True, nogil=True)
def _walk(op: Any, key: Any, pair: Any, partial: Any, held: Any, last: Any, link: Any, vanishes: Any) -> bool:
    n = len(op)
    i = 0
    while i < n:
        old_key = key[i]
        old = held[old_key]
        last[old_key] = i
        if op[i] == _OP_D:
            held[old_key] = _GONE
            i += 1
            continue
        if op[i] == _OP_B:
            held[old_key] = _GONE
            i += 1
            if i >= n or op[i] != _OP_U or not pair[i]:
                return False
        elif op[i] != _OP_U:  # an insert, or a snapshot row
            held[old_key] = i
            i += 1
            continue
        new_key = key[i]
        last[new_key] = i
        if not partial[i]:
            held[new_key] = i
        elif old != _GONE:
            if new_key != old_key:
                vanishes[i] = held[new_key] != _KEPT
            elif old >= 0:
                vanishes[i] = vanishes[old]
            link[i] = old if old >= 0 else -2 - old_key
            held[new_key] = i
        i += 1
    return True


def _chain(op: Any, key: Any, pair: Any, partial: Any, count: int) -> tuple[Any, Any, Any, Any]:
    """Follow images in order.

    :param key: number of each image's key; ``count`` of them.
    :param pair: whether an image has the ``_seq`` of the one before it.
    :returns: by key: what it holds in the end, and the last image that names it, -1 if none; by image: where its absent
        columns are (an image's number; -2 - key for the target's row at a key; -1 it has none), and ``vanishes``. The
        first is None if a ``b`` image stands alone.
    """
    held = np.full(count, _KEPT, np.int64)
    last = np.full(count, -1, np.int64)
    link = np.full(len(op), _WHOLE, np.int64)
    vanishes = np.zeros(len(op), np.bool_)
    fits = _walk(op, key, pair, partial, held, last, link, vanishes)
    return held if fits else None, last, link, vanishes


@njit(cache=True, nogil=True)
def _follow(line: Any, gone: Any, code: Any, has: Any, link: Any, source: Any, origin: Any) -> None:
    for m in range(len(line)):
        if gone[m]:
            for c in range(has.shape[1]):
                source[c, m] = line[m]
            continue
        i = line[m]
        missing = has.shape[1]
        while True:
            for c in range(has.shape[1]):
                if source[c, m] < 0 and has[code[i], c]:
                    source[c, m] = i
                    missing -= 1
            if link[i] < 0:
                break
            i = link[i]
        if link[i] != _WHOLE:
            origin[m] = -2 - link[i]


def _resolve(line: Any, gone: Any, code: Any, has: Any, link: Any) -> tuple[Any, Any]:
    """Return ``(int64[columns, lines]: the image that has a line's value, -1 for the target's; int64[lines]: key number
    of the origin, -1 if there is none)``.
    """
    source = np.full((has.shape[1], len(line)), -1, np.int64)
    origin = np.full(len(line), -1, np.int64)
    _follow(line, gone, code, has, link, source, origin)
    return source, origin
