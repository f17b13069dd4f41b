"""Versions of rows, written to a history in one commit: closed ones in files of their own, open ones in others.

**Layout.** An open version lies in a file of open versions, until a change of its key ends it. Then its row is deleted
there by a deletion vector, and written again, with its end, to a file of closed versions. Closed versions never change,
so their files are neither searched nor indexed (``DataFile.is_whole``), and folds keep the two kinds apart. Another
program's OPTIMIZE may mix them: a mixed file is searched, and closed versions found in it are left alone.

**Replay.** The commit carries a marker with the batch's epoch. A table that has the marker has the whole batch, so a
replay writes nothing. (``_seq`` could not tell: after a failover a replay has other positions.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import (
    DataFile,
    KeyedTable,
    KeyLookup,
    Keys,
    Snapshot,
    as_rows,
    discard_files,
    read_rows,
    write_files,
)
from headgate.lake._append import CommitBase, Marker
from headgate.lake._form import END_GTID, END_SEQ, IS_CURRENT, SEEN, VALID_FROM, VALID_TO, with_columns

__all__ = ["Ending", "OpenRows", "VersionChanges", "by_kind", "ended", "find_open", "find_seen", "write_versions"]


@dataclass(frozen=True)
class VersionChanges:
    """Changes of a batch to one history.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param key: columns of the table's key.
    :param keys: the keys that have changes, each once.
    :param given: bool[keys]: whether the changes bring the values of the open version themselves.
    :param values: the columns that they bring.
    :param settle: returns the rows to write in place of the open versions of these keys. Arguments: these versions, in
        all columns of the table, and for each the number of its key (int64[n]). The values of given ones are null.
    :param marker: of the batch.
    """

    ddl: str
    columns: Sequence[str]
    key: Sequence[str]
    keys: Keys
    given: Any
    values: Collection[str]
    settle: Callable[[pa.Table, Any], pa.Table]
    marker: Marker


@dataclass(frozen=True)
class Ending:
    """A change that ends the open versions that were last seen in some epochs.

    :param first: the first of these epochs.
    :param end: the first epoch after them.
    :param seq: the change's ``_seq``.
    :param gtid: its GTID, if known.
    :param at_us: its time, µs since 1970 UTC.
    """

    first: int
    end: int
    seq: tuple[int, int, int, int]
    gtid: str | None
    at_us: int

    def touches(self, file: DataFile) -> bool:
        """Return whether a file may have such versions."""
        bounds = file.bounds((SEEN,), pa.int64())
        return _may_have_open(file) and (bounds is None or (bounds[0] < self.end and bounds[1] >= self.first))

    def chosen(self, rows: pa.RecordBatch) -> Any:
        """bool[n]: which of these rows are ended."""
        seen, is_open = (np.asarray(rows[name].to_numpy(zero_copy_only=False)) for name in (SEEN, IS_CURRENT))
        return is_open & (seen >= self.first) & (seen < self.end)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows, ended: not before their beginnings."""
        begun = np.asarray(rows[VALID_FROM].cast(pa.int64()).combine_chunks())
        ends = pa.array(np.maximum(begun, self.at_us), pa.int64())
        seq = dict(zip(("epoch", "file", "pos", "ordinal"), self.seq, strict=True))
        return with_columns(
            rows,
            {
                VALID_TO: ends.cast(rows.schema.field(VALID_TO).type),
                IS_CURRENT: pa.repeat(pa.scalar(False), len(rows)),
                END_SEQ: pa.array([seq] * len(rows), rows.schema.field(END_SEQ).type),
                END_GTID: pa.array([self.gtid] * len(rows), pa.string()),
            },
        )


@dataclass(frozen=True)
class OpenRows:
    """Open versions with some keys.

    :param rows: all columns of the table.
    :param key_numbers: int64[rows]: the number of each row's key.
    :param lookup: how to delete them.
    """

    rows: pa.Table
    key_numbers: Any
    lookup: KeyLookup


_ENDS: Final = (VALID_TO, END_SEQ, END_GTID)
"""Columns that are null in open versions."""


def find_open(table: Snapshot, keyed: KeyedTable, changes: VersionChanges, schema: pa.Schema) -> OpenRows:
    """Find the open versions of keys, and read what the changes do not give: few columns, if they give the values.

    :raises OSError: a file cannot be read.
    """
    found, numbers, lookup = [schema.empty_table()], [np.empty(0, np.int64)], KeyLookup(np.zeros(0, np.bool_))
    own, located = pa.schema([one for one in schema if one.name not in (*changes.values, *_ENDS)]), []
    for file, rows, key_numbers in keyed.locate(table, changes.keys, _may_have_open):
        given = changes.given[key_numbers]
        found.append(as_rows(keyed.read(file, rows[given], own), schema))
        found += read_rows(keyed.folder, file, rows[~given], schema)
        numbers += [key_numbers[given], key_numbers[~given]]
        located.append((file, np.concatenate([rows[given], rows[~given]])))
    read = pa.concat_tables(found)
    is_open = np.asarray(read[IS_CURRENT].combine_chunks())
    first = 0
    for file, rows in located:
        keyed.remove(file, np.sort(rows[is_open[first : first + len(rows)]]), lookup)
        first += len(rows)
    return OpenRows(read.filter(pa.array(is_open)), np.concatenate(numbers)[is_open], lookup)


def find_seen(table: Snapshot, keyed: KeyedTable, ending: Ending) -> tuple[dict[str, Any], KeyLookup]:
    """Find the versions that end: int64[n] by file, the rows in it; and how to delete them.

    :raises OSError: a file cannot be read.
    """
    found, lookup = {}, KeyLookup(np.zeros(0, np.bool_))
    for file in filter(ending.touches, table.files.values()):
        rows = keyed.select(file, (IS_CURRENT, SEEN), ending.chosen)
        if len(rows):
            found[file.path] = rows
            keyed.remove(file, rows, lookup)
    return found, lookup


def ended(
    table: Snapshot, folder: str, found: Mapping[str, Any], ending: Ending, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :func:`find_seen` has found, ended."""
    for path, rows in found.items():
        for part in read_rows(folder, table.files[path], rows, schema):
            yield from ending.apply(part).to_batches()


def _may_have_open(file: DataFile) -> bool:
    return not file.is_whole(VALID_TO)


def by_kind(rows: pa.Table) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Return the open versions, and the closed ones."""
    is_open = rows[IS_CURRENT]
    return rows.filter(is_open).to_batches(), rows.filter(pc.invert(is_open)).to_batches()


def write_versions(
    kinds: Iterable[Iterable[pa.RecordBatch]], base: CommitBase, folder: str, key: Sequence[str]
) -> list[dict[str, Any]]:
    """Write versions to new files. Return the ``add`` actions.

    :param kinds: versions whose files are kept apart, in all columns of the table.
    :raises OSError: a file cannot be written. All files are removed.
    """
    always = (*key, "_seq", VALID_TO, SEEN)
    actions: list[dict[str, Any]] = []
    try:
        for batches in kinds:
            written = write_files(batches, folder, base.schema, base.codec, always, base.names)
            actions += [json.loads(action) for action in written]
    except BaseException:
        discard_files(folder, [action["add"]["path"] for action in actions])
        raise
    return actions
