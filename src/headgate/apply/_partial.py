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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.apply._images import drop_before, image_order, without_truncates
from headgate.carrier import ABSENT, META, Seq
from headgate.delta import keys_of
from headgate.errors import DecodeError
from headgate.lake import Form

__all__ = ["fold_partial"]

_WHOLE = -1  # link: the row has all its columns
_KEPT, _GONE = -1, -2  # key: the target's row, nothing; else the number of the image that made its row
_OP_B, _OP_U, _OP_D = 0, 1, 2
_REMOVES, _NEVER = -1, 2**62  # cut: deleted rows do not stay; there is no TRUNCATE


class _Images(NamedTuple):
    """The batch's images, in log order.

    :param op: int8[images]: ``_OP_B``, ``_OP_U``, ``_OP_D``, or another number.
    :param key: int64[images]: the number of its key.
    :param pair: bool[images]: whether it has the ``_seq`` of the one before it.
    :param partial: bool[images]: whether it leaves columns out.
    """

    op: Any
    key: Any
    pair: Any
    partial: Any


class _Chains(NamedTuple):
    """What the images come to.

    :param held: int64[keys]: what a key holds: the number of an image, ``_KEPT`` or ``_GONE``.
    :param last: int64[keys]: the last image that names the key, −1 if none. (If deleted rows stay, the last one that
        had an effect: the deletion of a row that is gone.)
    :param link: int64[images]: where its absent columns are: an image's number; −2 − key for the target's row at a
        key; ``_WHOLE``: it has none.
    :param vanishes: bool[images]: see the module.
    """

    held: Any
    last: Any
    link: Any
    vanishes: Any


class _Lines(NamedTuple):
    """The keys that the batch touches.

    :param image: int64[lines]: the image that gives the key's effect.
    :param gone: bool[lines]: whether the key holds nothing.
    :param source: int64[columns, lines]: the image that has a column's value, −1 for the target's.
    :param origin: int64[lines]: key number of the origin, −1 if there is none.
    """

    image: Any
    gone: Any
    source: Any
    origin: Any


def fold_partial(
    table: pa.Table, key: Sequence[str], truncated: Seq | None = None, form: Form = Form.PLAIN
) -> pa.Table:
    """Return the batch's effect on each key that it touches.

    :param table: all images of the batch, canonical, with ``_absent`` (string) as the last column, in any order.
    :param key: the key's columns.
    :param truncated: the ``_seq`` of the batch's last TRUNCATE.
    :param form: of the table. For a marked one a line with ``d`` has the last values of the row that was there, as a
        chain like those of rows. Keys without an image since ``truncated`` have a line, too.
    :returns: ``table``'s columns; ``_op`` is ``d`` where the key holds nothing; ``_absent`` is struct<columns:
        list<string>, vanishes: bool, old: struct<k0, …>>, null where nothing depends on the target.
    :raises DecodeError: a before-image without its after-image.
    """
    marks = form is Form.MARKED
    since = drop_before(table, truncated)
    table = without_truncates(table, truncated) if marks else since
    table = table.take(image_order(table)).combine_chunks()
    cut = _REMOVES if not marks else _NEVER if truncated is None else table.num_rows - since.num_rows
    names = [name for name in table.column_names if name not in (*META, ABSENT)]
    keys = keys_of([table[name] for name in key]).numbers
    absent = table[ABSENT].combine_chunks().dictionary_encode()
    code = np.asarray(absent.indices.fill_null(len(absent.dictionary)))
    has = _present(absent.dictionary.to_pylist(), names)
    op = np.asarray(pc.index_in(table["_op"].combine_chunks(), pa.array(["b", "u", "d"])).fill_null(-1)).astype(np.int8)
    images = _Images(op, keys, _pairs(table), code < len(has) - 1)
    chains = _chain(images, int(keys.max(initial=-1)) + 1, cut)
    touched = np.nonzero((chains.last >= 0) & (chains.held != _KEPT))[0]
    gone = chains.held[touched] == _GONE
    line = np.where(gone, chains.last[touched], chains.held[touched])
    lines = _resolve(line, gone, gone & (not marks), (code, has), chains.link)
    return _written(table, key, names, keys, lines, chains.vanishes)


def _written(
    table: pa.Table, key: Sequence[str], names: list[str], keys: Any, lines: _Lines, vanishes: Any
) -> pa.Table:
    line, gone, source, origin = lines
    op = pc.if_else(pa.array(gone), "d", table["_op"].combine_chunks().take(pa.array(line)))
    columns = [op, *(table[name].combine_chunks().take(pa.array(line)) for name in META[1:])]
    for index, name in enumerate(names):
        columns.append(table[name].combine_chunks().take(pa.array(source[index], mask=source[index] < 0)))
    partial = origin >= 0
    sets, which = np.unique((source < 0).T & partial[:, None], axis=0, return_inverse=True)
    lists = pa.array(
        [[name for name, out in zip(names, row, strict=True) if out] for row in sets.tolist()], pa.list_(pa.string())
    )
    first = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    old = pa.array(first[np.maximum(origin, 0)] if len(first) else origin)
    origins = [table[name].combine_chunks().take(old) for name in key]
    parts = [
        lists.take(pa.array(which.reshape(-1))),
        pa.array(vanishes[line]),
        pa.StructArray.from_arrays(origins, [f"k{i}" for i in range(len(key))]),
    ]
    columns.append(pa.StructArray.from_arrays(parts, ["columns", "vanishes", "old"], mask=pa.array(~partial)))
    return pa.table(columns, names=[*META, *names, ABSENT])


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
    for part in table["_seq"].combine_chunks().flatten():
        values = np.asarray(part)
        same &= values[1:] == values[:-1]
    return np.concatenate([np.zeros(min(table.num_rows, 1), np.bool_), same])


@njit(cache=True, nogil=True)
def _truncate(held: Any, last: Any) -> None:
    """Delete all rows; the images that made those of the batch now have their last values."""
    for k in range(len(held)):
        if held[k] >= 0:
            last[k] = held[k]
        held[k] = _GONE


@njit(cache=True, nogil=True)
def _remove(images: _Images, i: int, chains: _Chains, marks: Any) -> None:
    """Delete a key's row. If it stays, marked, the image takes the columns that it lacks from that row."""
    key = images.key[i]
    old = chains.held[key]
    chains.held[key] = _GONE
    if marks and old == _GONE:
        return
    chains.last[key] = i
    if marks and images.partial[i]:
        chains.link[i] = old if old >= 0 else -2 - key
        chains.vanishes[i] = True


@njit(cache=True, nogil=True)
def _update(images: _Images, i: int, before: tuple[Any, Any], chains: _Chains, marks: Any) -> None:
    """Set a key to the row that was held at a key before; without such a row a partial image is ignored.

    :param before: that key, and what it held.
    """
    (old_key, old), key, is_partial = before, images.key[i], images.partial[i]
    is_ignored = is_partial and old == _GONE
    if not (marks and is_ignored):
        chains.last[key] = i
    if is_ignored:
        return
    if is_partial:
        if key != old_key:
            chains.vanishes[i] = chains.held[key] != _KEPT
        elif old >= 0:
            chains.vanishes[i] = chains.vanishes[old]
        chains.link[i] = old if old >= 0 else -2 - old_key
    chains.held[key] = i


@njit(cache=True, nogil=True)
def _walk(images: _Images, chains: _Chains, cut: int) -> bool:
    """Follow the images in order; return False if a ``b`` image stands alone."""
    op, n, marks = images.op, len(images.op), cut >= 0
    i = 0
    while i < n:
        if i == cut:
            _truncate(chains.held, chains.last)
        k = images.key[i]
        old = chains.held[k]
        if op[i] == _OP_D or op[i] == _OP_B:
            _remove(images, i, chains, marks)
        elif op[i] != _OP_U:  # an insert, or a snapshot row
            chains.held[k] = chains.last[k] = i
        if op[i] == _OP_B:
            i += 1
            if i >= n or op[i] != _OP_U or not images.pair[i]:
                return False
        if op[i] == _OP_U:
            _update(images, i, (k, old), chains, marks)
        i += 1
    if i == cut:
        _truncate(chains.held, chains.last)
    return True


def _chain(images: _Images, count: int, cut: int) -> _Chains:
    """Follow images in order.

    :param count: of keys.
    :param cut: if deleted rows stay, the number of images before the last TRUNCATE; else ``_REMOVES``.
    :raises DecodeError: a ``b`` image stands alone.
    """
    chains = _Chains(
        held=np.full(count, _KEPT, np.int64),
        last=np.full(count, -1, np.int64),
        link=np.full(len(images.op), _WHOLE, np.int64),
        vanishes=np.zeros(len(images.op), np.bool_),
    )
    if not _walk(images, chains, cut):
        raise DecodeError("a before-image that no after-image follows")
    return chains


@njit(cache=True, nogil=True)
def _follow(is_whole: Any, code: Any, has: Any, link: Any, lines: _Lines) -> None:
    """Find the images of each line's chain that have its values.

    :param is_whole: bool[lines]: whether the line's image alone gives them.
    """
    for m in range(len(lines.image)):
        i = lines.image[m]
        if is_whole[m]:
            lines.source[:, m] = i
            continue
        while True:
            for c in range(has.shape[1]):
                if lines.source[c, m] < 0 and has[code[i], c]:
                    lines.source[c, m] = i
            if link[i] < 0:
                break
            i = link[i]
        if link[i] != _WHOLE:
            lines.origin[m] = -2 - link[i]


def _resolve(image: Any, gone: Any, is_whole: Any, present: tuple[Any, Any], link: Any) -> _Lines:
    """Return the lines with their sources and origins.

    :param present: the number of each image's set of columns, and :func:`_present`'s result.
    """
    code, has = present
    shape = has.shape[1], len(image)
    lines = _Lines(image, gone, np.full(shape, -1, np.int64), np.full(len(image), -1, np.int64))
    _follow(is_whole, code, has, link, lines)
    return lines
