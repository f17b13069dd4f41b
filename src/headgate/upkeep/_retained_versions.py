"""Versions of the lake's tables that have to stay readable, because a reader of the ledger may request them.

They are those of the newest ledger row, however old; of all rows within the retention; and of the row before them,
which was the newest one when the retention began. So a version stays readable for the whole retention after a newer row
has replaced it, even if it was the newest for long before.

A merged table has the files of the tables that it shows, so their versions that it shows as of a row are needed, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import DataFile, open_parquet
from headgate.lake import PLACE_FIELDS, Lake, Place, ledger_files

__all__ = ["LedgerSpan", "RetainedVersions", "ledger_moments", "ledger_spans"]

_COLUMNS: Final = ("epoch", "committed_at")
_LISTS: Final = ("tables", "merged")
"""The ledger's lists of tables."""
_VERSIONS: Final = ("version", "changelog_version")
_SHARDS: Final = "shards"
_NOT_SHOWN: Final = 1 << 63
"""Above every version."""
_Spans: TypeAlias = dict[str, list[tuple[float, int]]]
"""Folder → since when its newest version has been this one, in order."""


class LedgerSpan(NamedTuple):
    """Since when a row of the ledger names a version."""

    moment: float
    """Seconds since 1970 UTC."""
    folder: str
    version: int
    is_shown: bool
    """Whether a merged table shows it; else it is the table's own."""


class RetainedVersions:
    """Versions that ledger rows name, by folder, and since when. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spans: _Spans = {}
        self._shown: _Spans = {}
        self._newest: dict[str, tuple[float, int]] = {}
        """By folder, the version that was added last: its moment is not the latest one if a clock was set back."""

    def add(self, moment: float, versions: Mapping[str, int], shown: Mapping[str, int]) -> None:
        """Add a newer row.

        :param moment: time of its commit, in seconds since 1970 UTC.
        :param versions: those that differ from the row's before, by folder.
        :param shown: all versions that merged tables show, by folder.
        """
        with self._lock:
            self._newest.update({folder: (moment, version) for folder, version in versions.items()})
            _extend(self._spans, moment, versions)
            _extend(self._shown, moment, {**dict.fromkeys(self._shown, _NOT_SHOWN), **shown})

    def load(self, rows: Iterable[LedgerSpan]) -> None:
        """Add earlier rows, in any order."""
        rows = list(rows)
        with self._lock:
            for spans, is_shown in ((self._spans, False), (self._shown, True)):
                _insert(spans, (row for row in rows if row.is_shown == is_shown))

    def oldest(self, folder: str, since: float) -> int | None:
        """Return the oldest version to keep if the retention began at ``since``; None: no row names the table."""
        with self._lock:
            spans = self._spans.get(folder)
            if not spans:
                return None
            shown = self._shown.get(folder, [])
            kept = [*spans[_newest_at(spans, since) :], *shown[_newest_at(shown, since) :]]
            return min(version for _, version in kept)

    def at(self, folder: str, moment: float) -> int | None:
        """Return the version that the newest row at ``moment`` named; the oldest known one, if there was none."""
        with self._lock:
            spans = self._spans.get(folder)
            return spans[_newest_at(spans, moment)][1] if spans else None

    def forget(self, since: float) -> None:
        """Forget versions that are not needed if the retention begins at ``since``."""
        with self._lock:
            for spans in (*self._spans.values(), *self._shown.values()):
                del spans[: _newest_at(spans, since)]

    def newest(self, folder: str) -> tuple[float, int] | None:
        """Return when a row first named the newest version, and that version."""
        with self._lock:
            spans = self._spans.get(folder)
            return self._newest.get(folder, spans[-1]) if spans else None

    def folders(self) -> list[str]:
        """Return the folders of all tables."""
        with self._lock:
            return list(self._spans)


def _extend(spans: _Spans, moment: float, versions: Mapping[str, int]) -> None:
    """Add versions in the order of their moments: a row's is before that of the row before if a clock was set back."""
    for folder, version in versions.items():
        known = spans.setdefault(folder, [])
        at = bisect_right(known, moment, key=itemgetter(0))
        if not at or known[at - 1][1] != version:
            known.insert(at, (moment, version))


def _insert(spans: _Spans, rows: Iterable[LedgerSpan]) -> None:
    since = {folder: {version: moment for moment, version in reversed(known)} for folder, known in spans.items()}
    for row in rows:
        moments = since.setdefault(row.folder, {})
        moments[row.version] = min(row.moment, moments.get(row.version, row.moment))
    for folder, moments in since.items():
        spans[folder] = sorted((moment, version) for version, moment in moments.items())


def _newest_at(spans: Sequence[tuple[float, int]], moment: float) -> int:
    """Return the index of the newest one at a moment; 0 if all are newer."""
    return max(0, bisect_right(spans, moment, key=itemgetter(0)) - 1)


def ledger_moments(lake: Lake, span_seconds: float) -> list[float]:
    """Return the commit times of the ledger's batches, newest first: at least those of its last ``span_seconds``."""
    moments: list[float] = []
    for file in ledger_files(lake):
        with open_parquet(lake.ledger, file.name) as opened:
            moments += [
                moment.timestamp() for moment in opened.read(columns=["committed_at"])["committed_at"].to_pylist()
            ]
        moments.sort(reverse=True)
        if moments and moments[-1] < moments[0] - span_seconds:
            break
    return moments


def ledger_spans(lake: Lake, since: float, places: Mapping[str, Place | None]) -> Iterator[LedgerSpan | None]:
    """Yield when a row of the ledger first names each version. In any order.

    Reads the rows from the newest one to the last that is older than ``since``, by the ledger's statistics, without
    Spark.

    :param places: of the source tables.
    :return: also None now and then, for a pause.
    """
    for file in ledger_files(lake):
        rows = _read_versions(lake.ledger, file)
        yield None
        if "tables" in rows.column_names:
            yield from _spans_of(lake, _lines(rows, "tables"), _table_place)
        if "merged" in rows.column_names:
            merged = _lines(rows, "merged")
            yield from _spans_of(lake, merged, _merged_place)
            if _SHARDS in merged.column_names:
                shards = _lines(merged.filter(pc.is_valid(merged[_SHARDS])), _SHARDS)
                known = shards.filter(pc.is_in(shards["table"], pa.array(list(places), pa.string())))
                yield from _spans_of(lake, known, lambda row: places[row["table"]], is_shown=True)
        newest = pc.max(rows["committed_at"]).as_py()
        if isinstance(newest, datetime) and newest.timestamp() <= since:
            return  # the other files are older


def _spans_of(
    lake: Lake, lines: pa.Table, place_of: Callable[[Mapping[str, Any]], Place | None], *, is_shown: bool = False
) -> Iterator[LedgerSpan]:
    """Yield what :func:`ledger_spans` yields of the tables in these lines.

    :param place_of: returns the place of a line's table.
    """
    names = [name for name in lines.column_names if name not in ("committed_at", *_VERSIONS, _SHARDS)]
    for version in _VERSIONS:
        known = lines.filter(pc.is_valid(lines[version])).select(["committed_at", *names, version])
        first = known.group_by([*names, version]).aggregate([("committed_at", "min")])
        for row in first.to_pylist():
            folder = lake.delta_tables(row["table"], place_of(row))[version]
            yield LedgerSpan(row["committed_at_min"].timestamp(), folder, row[version], is_shown)


def _table_place(row: Mapping[str, Any]) -> Place | None:
    values: dict[str, Any] = {name: row.get(f"place.{name}") for name in PLACE_FIELDS}
    return Place(**values) if values["table"] is not None else None


def _merged_place(row: Mapping[str, Any]) -> Place:
    return Place(row["table"], path=row["path"])


def _read_versions(ledger: str, file: DataFile) -> pa.Table:
    """Read of a ledger's file when its rows were committed, and which versions of which tables they name."""
    with open_parquet(ledger, file.name) as opened:
        paths = [column.path for column in map(opened.schema.column, range(len(opened.schema)))]
        wanted = [path for path in paths if path in _COLUMNS or _names_version(path)]
        return opened.read(columns=wanted).combine_chunks()


def _names_version(path: str) -> bool:
    """Return whether a column of the ledger's files says which version of a table a row names."""
    column, _, inside = path.partition(".")
    *above, name = inside.split(".")
    if column not in _LISTS or "successor" in above:
        return False
    return name in ({"table", *_VERSIONS} if _SHARDS in above else {*PLACE_FIELDS, *_VERSIONS})


def _lines(rows: pa.Table, column: str) -> pa.Table:
    """Return a row for each table in a list of each row; fields of structs are columns such as ``place.shard``."""
    lists = pa.concat_arrays(rows[column].chunks) if rows.num_rows else pa.array([], rows.schema.field(column).type)
    moments = rows["committed_at"].take(pc.list_parent_indices(lists))
    lines = pa.Table.from_batches([pa.RecordBatch.from_struct_array(lists.flatten())]).flatten()
    return lines.append_column("committed_at", moments)
