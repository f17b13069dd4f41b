"""Versions of rows, written to a history in one commit: closed ones in files of their own, open ones in others.

**Layout.** An open version lies in a file of open versions, until a change of its key ends it. Then its row is deleted
there by a deletion vector, and written again, with its end, to a file of closed versions. Closed versions never change,
so their files are neither searched nor indexed (``DataFile.is_whole``), and folds keep the two kinds apart. Another
program's OPTIMIZE may mix them: a mixed file is searched, and closed versions found in it are left alone.

**Clocks that went back.** A new version must not begin before the key's last one ended. If that one is open, its
beginning is known. Else files are searched whose statistics allow ends after the least time at which a new version
begins. All ends in the table are of earlier changes, so while clocks go on there are no such files, but for ends in the
same millisecond, to which statistics are cut.

**Replay.** The commit carries a marker with the batch's epoch. A table that has the marker has the whole batch, so a
replay writes nothing. (``_seq`` could not tell: after a failover a replay has other positions.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._versions import Versions
from headgate.delta import DataFile, KeyedTable, KeyLookup, Snapshot, as_rows, keys_of, read_rows
from headgate.lake import END_GTID, END_SEQ, IS_CURRENT, SEEN, VALID_TO, Marker, may_end_after, may_have_open

__all__ = ["VersionChanges", "settled_rows"]


@dataclass(frozen=True)
class VersionChanges:
    """Changes of a batch to one history.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param key: columns of the table's key.
    :param values: the source's columns.
    :param pieces: returns the versions of the keys that have changes, each key in one piece.
    :param marker: of the batch.
    :param exact_since: open versions that were last seen in earlier epochs may have other values than the source.
    """

    ddl: str
    columns: Sequence[str]
    key: Sequence[str]
    values: Sequence[str]
    pieces: Callable[[], Iterable[Versions]]
    marker: Marker
    exact_since: int = 0


_ENDS: Final = (VALID_TO, END_SEQ, END_GTID)
"""Columns that are null in open versions."""
_TIMES: Final = pa.schema([(VALID_TO, pa.timestamp("us", "UTC"))])


def settled_rows(
    table: Snapshot, keyed: KeyedTable, changes: VersionChanges, schema: pa.Schema, lookup: KeyLookup
) -> Iterator[Iterable[pa.RecordBatch]]:
    """Yield the rows to write in place of the open versions of the keys that have changes: open and closed ones in
    turns. Record those open versions as deleted.

    :raises OSError: a file cannot be read.
    """
    for versions in changes.pieces():
        open_rows, key_numbers = _find_open(table, keyed, versions, changes, schema, lookup)
        ended = _last_ends(table, keyed, versions, key_numbers, changes)
        rows = versions.settle(
            open_rows, key_numbers, changes.values, changes.marker.version, ended, exact_since=changes.exact_since
        )
        is_open = rows[IS_CURRENT]
        yield rows.filter(is_open).to_batches()
        yield rows.filter(pc.invert(is_open)).to_batches()


def _find_open(
    table: Snapshot,
    keyed: KeyedTable,
    versions: Versions,
    changes: VersionChanges,
    schema: pa.Schema,
    lookup: KeyLookup,
) -> tuple[pa.Table, Any]:
    """Find the open versions of keys, and read what the changes do not give: few columns, if they give the values.
    Return them, and the number of each one's key: int64[rows].
    """
    keys = keys_of([versions.ends[name] for name in changes.key])
    parts, numbers, located = [schema.empty_table()], [np.empty(0, np.int64)], []
    narrow = pa.schema([one for one in schema if one.name not in (*changes.values, *_ENDS)])
    for file, rows, key_numbers in keyed.locate(table, keys, may_have_open):
        has_values = versions.has_values[key_numbers] & _is_seen(file, changes.exact_since)
        parts.append(as_rows(keyed.read(file, rows[has_values], narrow), schema))
        parts += read_rows(keyed.folder, file, rows[~has_values], schema)
        numbers += [key_numbers[has_values], key_numbers[~has_values]]
        located.append((file, np.concatenate([rows[has_values], rows[~has_values]])))
    read = pa.concat_tables(parts)
    is_open = np.asarray(read[IS_CURRENT].combine_chunks())
    first = 0
    for file, rows in located:
        keyed.remove(file, np.sort(rows[is_open[first : first + len(rows)]]), lookup)
        first += len(rows)
    return read.filter(pa.array(is_open)), np.concatenate(numbers)[is_open]


def _is_seen(file: DataFile, since: int) -> bool:
    """Return whether all versions in a file were seen in this epoch or later."""
    bounds = file.bounds((SEEN,), pa.int64()) if since else None
    return not since or (bounds is not None and bounds[0] >= since)


def _last_ends(table: Snapshot, keyed: KeyedTable, versions: Versions, open_keys: Any, changes: VersionChanges) -> Any:
    """int64[keys]: when the last version of each key ended, µs since 1970 UTC, if the key has no open one, and that may
    be after its first new version begins; else the least number.

    :param open_keys: numbers of the keys that have an open version.
    """
    least = np.iinfo(np.int64).min
    ended, begins = np.full(len(versions.ends), least), versions.begins
    none = np.iinfo(begins.dtype).max
    begins[open_keys] = none
    new = np.flatnonzero(begins < none)
    if not len(new):
        return ended
    keys = keys_of([versions.ends[name].take(pa.array(new)) for name in changes.key])
    first = int(begins[new].min())
    for file, rows, numbers in keyed.locate(table, keys, lambda file: may_end_after(file, first)):
        parts = [part[VALID_TO].cast(pa.int64()) for part in read_rows(keyed.folder, file, rows, _TIMES)]
        ends = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.int64()).fill_null(least)
        np.maximum.at(ended, new[numbers], np.asarray(ends.combine_chunks()))
    return ended
