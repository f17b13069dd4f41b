"""Versions of rows, written to a history in one commit: closed ones in files of their own, open ones in others.

**Layout.** An open version lies in a file of open versions, until a change of its key ends it. Then its row is deleted
there by a deletion vector, and written again, with its end, to a file of closed versions. Closed versions never change,
so their files are neither searched nor indexed (``DataFile.is_whole``), and folds keep the two kinds apart. Another
program's OPTIMIZE may mix them: a mixed file is searched, and closed versions found in it are left alone.

**Replay.** The commit carries a marker with the batch's epoch. A table that has the marker has the whole batch, so a
replay writes nothing. (``_seq`` could not tell: after a failover a replay has other positions.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import KeyedTable, KeyLookup, Keys, Snapshot, as_rows, read_rows
from headgate.lake import END_GTID, END_SEQ, IS_CURRENT, VALID_TO, Marker, may_have_open

__all__ = ["OpenRows", "VersionChanges", "by_kind", "find_open"]


@dataclass(frozen=True)
class VersionChanges:
    """Changes of a batch to one history.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param key: columns of the table's key.
    :param keys: the keys that have changes, each once.
    :param has_values: bool[keys]: whether the changes bring the values of the open version themselves.
    :param values: the columns that they bring.
    :param settle: returns the rows to write in place of the open versions of these keys. Arguments: these versions, in
        all columns of the table, and for each the number of its key (int64[n]). ``values`` that the changes have
        are null in them.
    :param marker: of the batch.
    """

    ddl: str
    columns: Sequence[str]
    key: Sequence[str]
    keys: Keys
    has_values: Any
    values: Collection[str]
    settle: Callable[[pa.Table, Any], pa.Table]
    marker: Marker


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
    parts, numbers, lookup = [schema.empty_table()], [np.empty(0, np.int64)], KeyLookup(np.zeros(0, np.bool_))
    narrow, located = pa.schema([one for one in schema if one.name not in (*changes.values, *_ENDS)]), []
    for file, rows, key_numbers in keyed.locate(table, changes.keys, may_have_open):
        has_values = changes.has_values[key_numbers]
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
    return OpenRows(read.filter(pa.array(is_open)), np.concatenate(numbers)[is_open], lookup)


def by_kind(rows: pa.Table) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Return the open versions, and the closed ones."""
    is_open = rows[IS_CURRENT]
    return rows.filter(is_open).to_batches(), rows.filter(pc.invert(is_open)).to_batches()
