"""One version of a Delta table without Spark: its files, and which of their rows it has.

delta-rs reads the table's log and its deletion vectors, pyarrow the files. A version never changes, so its parts are
the same whenever it is opened. Tables that require reader features beyond :data:`READER_FEATURES` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from headgate.delta import MAPPING_FEATURE, UNMAPPED, ColumnNames, files_of, is_mapped_otherwise, names_of
from headgate.errors import TargetError
from headgate.lake._form import Form
from headgate.stores import delta_rs_options, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.schema import DataType

__all__ = ["Part", "TableVersion", "delta_table", "newest_rows", "open_version", "rows_kept"]

_R = TypeVar("_R", pa.Table, pa.RecordBatch)

READER_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz", MAPPING_FEATURE})
"""Supported reader features."""
_INSIDE: Final = re.compile(r"(\w+/){0,2}[^/%]+")
"""Path of a data file within the table's folder. Files of a successor (``headgate.delta``) stay in its folder. With
column mapping Spark puts files into subfolders with short random names."""


class Part(NamedTuple):
    """A row group of a file."""

    file: str
    group: int
    before: int
    """Number of the file's rows before it."""
    rows: int
    """Number of its rows, including those that a deletion vector deletes."""


@dataclass(frozen=True)
class TableVersion:
    """A version of a table."""

    path: str
    columns: Mapping[str, DataType]
    schema: pa.Schema
    """The same, in Arrow."""
    properties: Mapping[str, str]
    parts: list[Part]
    """Row groups, by the names of their files."""
    kept: Mapping[str, pa.BooleanArray]
    """For files with deletion vectors, by name: which of their rows exist. A vector may end with the last row that it
    deletes."""
    names: ColumnNames = UNMAPPED
    """Column names in files."""

    @property
    def rows(self) -> int:
        """Number of rows, including those that are marked as deleted at the source."""
        taken: int = sum(len(vector) - vector.true_count for vector in self.kept.values())
        return sum(part.rows for part in self.parts) - taken

    def group(self, part: Part, names: Sequence[str]) -> pa.Table:
        """Return the rows of a part, with those of the columns that its file has. Rows that are marked as deleted at
        the source are left out.

        :raises FileNotFoundError: the file is gone.
        """
        with self.names.open(self.path, part.file) as file:
            rows = file.row_group(part.group, [name for name in self._needed(names) if name in file.columns])
        kept = self._kept(part, 0, rows.num_rows)
        return self._unmarked(rows if kept is None else rows.filter(kept), names)

    def batches(self, parts: Sequence[Part], names: Sequence[str], *, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts of one file, ``rows`` at a time, as :meth:`group` returns them. Memory holds the part
        that is being read, as it is in the file, and one batch.

        :raises FileNotFoundError: the file is gone.
        """
        with self.names.open(self.path, parts[0].file) as file:
            columns = [name for name in self._needed(names) if name in file.columns]
            for part in parts:
                done = 0
                for batch in file.batches(rows, columns, [part.group], threads=False):
                    kept = self._kept(part, done, batch.num_rows)
                    done += batch.num_rows
                    yield self._unmarked(batch if kept is None else batch.filter(kept), names)

    def _needed(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns to read for these."""
        return (*names, *Form.of(self.properties).needed)

    def _unmarked(self, rows: _R, names: Sequence[str]) -> _R:
        """Return the rows that the source has, with these columns."""
        form = Form.of(self.properties)
        if not form.needed:
            return rows
        return form.of_source(rows).select([name for name in names if name in rows.schema.names])

    def _kept(self, part: Part, start: int, rows: int) -> pa.BooleanArray | None:
        """Return which of ``rows`` rows of a part, from its row ``start`` on, exist; None: all."""
        vector = self.kept.get(part.file)
        if vector is None:
            return None
        chosen = vector.slice(part.before + start, rows)
        return pa.concat_arrays([chosen, pa.repeat(True, rows - len(chosen))])


def open_version(path: str, version: int) -> TableVersion:
    """Open a version of the table at a path, or a URL that delta-rs supports.

    :raises TargetError: it cannot be read, or requires unsupported features.
    :raises FileNotFoundError: one of its files is gone.
    """
    with delta_table(path, version) as table:
        unknown = {*(table.protocol().reader_features or ())} - READER_FEATURES
        if unknown:
            raise TargetError(f"{path} has reader features that need Spark: {', '.join(sorted(unknown))}")
        properties = dict(table.metadata().configuration)
        if is_mapped_otherwise(properties):
            raise TargetError(f"{path} has column mapping by id")
        names = sorted(_arrow(table.get_add_actions())["path"].to_pylist())
        vectors = _arrow(table.deletion_vectors())
        columns = {field.name: field.type for field in table.schema().fields}
        schema = pa.schema(table.schema().to_arrow())
        mapped = names_of(table.schema().to_json(), properties)
    if not all(_INSIDE.fullmatch(name) for name in names):
        raise TargetError(f"{path} has files outside its folder, as no table of a pipeline has")
    kept = rows_kept(path, frozenset(names), vectors)
    parts = []
    for name in names:
        with files_of(path).open_parquet(name) as file:
            counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        befores = accumulate(counts, initial=0)
        parts += [Part(name, i, before, rows) for i, (before, rows) in enumerate(zip(befores, counts, strict=False))]
    return TableVersion(path, columns, schema, properties, parts, kept, mapped)


def newest_rows(path: str, column: str, columns: Sequence[str]) -> pa.Table:
    """Return the rows of those files of the newest version that may hold the greatest value of an integer column, by
    their statistics: a few rows of a table to which they are appended in this order.

    :param columns: those to read, if they exist.
    :raises TargetError: the table cannot be read.
    """
    with delta_table(path) as table:
        files = _arrow(table.get_add_actions(flatten=True))
    name = f"max.{column}"
    bounds = files[name].to_pylist() if name in files.column_names else [None] * files.num_rows
    highest = max((bound for bound in bounds if bound is not None), default=None)
    tables = []
    for file_name, bound in zip(files["path"].to_pylist(), bounds, strict=True):
        if bound is None or bound == highest:
            with files_of(path).open_parquet(file_name) as file:
                tables.append(file.read(columns=[one for one in columns if one in file.schema_arrow.names]))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


@contextmanager
def delta_table(path: str, version: int | None = None) -> Iterator[DeltaTable]:
    """Open a version of the table at a path, by default the newest one.

    delta-rs decodes ``%2E`` in a path to a dot, and folders of tables have such names. So for a local table it gets a
    folder of links to the log and the deletion vectors.

    :raises TargetError: it cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with ExitStack() as stack:
        location = path.replace("%", "%25")
        try:
            if not is_remote(path):
                location = stack.enter_context(TemporaryDirectory(prefix="headgate-"))
                _link(Path(path), Path(location))
            yield DeltaTable(location, version=version, storage_options=delta_rs_options(path))
        except (DeltaError, OSError) as error:
            raise TargetError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _link(table: Path, to: Path) -> None:
    """Link all files of the table except its Parquet files."""
    for entry in table.iterdir() if table.is_dir() else ():
        if entry.suffix != ".parquet":
            (to / entry.name).symlink_to(entry, target_is_directory=entry.is_dir())


def _arrow(stream: Any) -> pa.Table:
    """Return delta-rs' stream as a pyarrow table; ``pa.table`` would load pandas for it."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


def rows_kept(path: str, names: frozenset[str], vectors: pa.Table) -> dict[str, pa.BooleanArray]:
    """Return the deletion vectors by the names of their files.

    :param vectors: ``filepath`` (string, a URI or a path), ``selection_vector`` (list<bool>), as delta-rs returns them.
    :raises TargetError: one is of a file that the version lacks: deleted rows would come back.
    """
    uris, rows = vectors["filepath"].to_pylist(), vectors["selection_vector"]
    known = {name.rpartition("/")[2]: name for name in names}
    file_names = (known.get(uri.rpartition("/")[2], uri) for uri in uris)
    kept = {name: rows[number].values for number, name in enumerate(file_names)}
    if len(known) < len(names) or len(kept) < len(uris) or not kept.keys() <= names:
        raise TargetError(f"{path} has deletion vectors of files that this version lacks: {', '.join(uris)}")
    return kept
