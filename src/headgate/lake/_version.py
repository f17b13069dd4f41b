"""One version of a Delta table without Spark: its files, and which of their rows are there.

delta-rs reads the table's log and its deletion vectors, pyarrow the files. A version never changes, so its parts are
the same whenever it is opened. Tables whose readers have to know more than :data:`READER_FEATURES` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from headgate.delta import MAPPING_FEATURE, UNMAPPED, ColumnNames, files_of, is_mapped_otherwise, names_of
from headgate.errors import TargetError
from headgate.stores import delta_rs_options, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.schema import DataType

__all__ = ["Part", "TableVersion", "delta_table", "newest_rows", "open_version", "rows_kept"]

READER_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz", MAPPING_FEATURE})
"""What readers of a table may have to know."""
_INSIDE: Final = re.compile(r"(\w+/)?[^/%]+")
"""The name of a data file in the table's folder. With column mapping Spark puts files into folders with short random
names there."""


class Part(NamedTuple):
    """A row group of a file."""

    file: str
    group: int
    before: int
    """The file's rows before it."""
    rows: int
    """Its rows, also those that a deletion vector takes away."""


@dataclass(frozen=True)
class TableVersion:
    """A version of a table."""

    path: str
    columns: Mapping[str, DataType]
    schema: pa.Schema
    """The same, in Arrow."""
    properties: Mapping[str, str]
    parts: list[Part]
    """By the names of their files."""
    kept: Mapping[str, pa.BooleanArray]
    """Of files with deletion vectors, by name: which of their rows are there. A vector may end with the last row that
    it takes away."""
    names: ColumnNames = UNMAPPED
    """Those that the columns have in files."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        taken: int = sum(len(vector) - vector.true_count for vector in self.kept.values())
        return sum(part.rows for part in self.parts) - taken

    def group(self, part: Part, names: Sequence[str]) -> pa.Table:
        """The rows of a part, with those of the columns that its file has.

        :raises FileNotFoundError: the file is gone.
        """
        with self.names.open(self.path, part.file) as file:
            found = file.row_group(part.group, [name for name in names if name in file.columns])
        kept = self._kept(part, 0, found.num_rows)
        return found if kept is None else found.filter(kept)

    def batches(self, parts: Sequence[Part], names: Sequence[str], *, rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of parts of one file, so many at a time, with those of the columns that it has. In memory are the
        part that is being read, as it is in the file, and one batch.

        :raises FileNotFoundError: the file is gone.
        """
        with self.names.open(self.path, parts[0].file) as file:
            columns = [name for name in names if name in file.columns]
            for part in parts:
                done = 0
                for batch in file.batches(rows, columns, [part.group], threads=False):
                    kept = self._kept(part, done, batch.num_rows)
                    done += batch.num_rows
                    yield batch if kept is None else batch.filter(kept)

    def _kept(self, part: Part, start: int, rows: int) -> pa.BooleanArray | None:
        """Which of ``rows`` rows of a part, from its row ``start`` on, are there; None: all."""
        vector = self.kept.get(part.file)
        if vector is None:
            return None
        chosen = vector.slice(part.before + start, rows)
        return pa.concat_arrays([chosen, pa.repeat(True, rows - len(chosen))])


def open_version(path: str, version: int) -> TableVersion:
    """A version of the table at a path, or a URL that delta-rs knows.

    :raises TargetError: it cannot be read, or not without knowing more.
    :raises FileNotFoundError: one of its files is gone.
    """
    with delta_table(path, version) as table:
        unknown = {*(table.protocol().reader_features or ())} - READER_FEATURES
        if unknown:
            raise TargetError(f"{path} asks its readers for {', '.join(sorted(unknown))}")
        properties = dict(table.metadata().configuration)
        if is_mapped_otherwise(properties):
            raise TargetError(f"{path} has column mapping by id")
        names = sorted(_arrow(table.get_add_actions())["path"].to_pylist())
        vectors = _arrow(table.deletion_vectors())
        columns = {field.name: field.type for field in table.schema().fields}
        schema = pa.schema(table.schema().to_arrow())
        mapped = names_of(table.schema().to_json(), properties)
    if not all(_INSIDE.fullmatch(name) for name in names):
        raise TargetError(f"{path} has files elsewhere than in its folder, as no table of a pipeline has")
    kept = rows_kept(path, frozenset(names), vectors)
    parts = []
    for name in names:
        with files_of(path).open_parquet(name) as file:
            counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        befores = accumulate(counts, initial=0)
        parts += [Part(name, i, before, rows) for i, (before, rows) in enumerate(zip(befores, counts, strict=False))]
    return TableVersion(path, columns, schema, properties, parts, kept, mapped)


def newest_rows(path: str, column: str, columns: Sequence[str]) -> pa.Table:
    """The rows of those files of the newest version that may hold the greatest value of an integer column, by their
    statistics: a few rows of a table to which they are appended in this order.

    :param columns: those to read, if they are there.
    :raises TargetError: the table cannot be read.
    """
    with delta_table(path) as table:
        files = _arrow(table.get_add_actions(flatten=True))
    name = f"max.{column}"
    bounds = files[name].to_pylist() if name in files.column_names else [None] * files.num_rows
    highest = max((bound for bound in bounds if bound is not None), default=None)
    found = []
    for file_name, bound in zip(files["path"].to_pylist(), bounds, strict=True):
        if bound is None or bound == highest:
            with files_of(path).open_parquet(file_name) as file:
                found.append(file.read(columns=[one for one in columns if one in file.schema_arrow.names]))
    return pa.concat_tables(found, promote_options="default") if found else pa.table({})


@contextmanager
def delta_table(path: str, version: int | None = None) -> Iterator[DeltaTable]:
    """A version of the table at a path, or the newest one.

    delta-rs takes ``%2E`` in a path for a dot, and tables lie in folders with such names: of a local one it gets a
    folder of links to the log and the deletion vectors.

    :raises TargetError: it cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with ExitStack() as stack:
        there = path.replace("%", "%25")
        try:
            if not is_remote(path):
                there = stack.enter_context(TemporaryDirectory(prefix="headgate-"))
                _link(Path(path), Path(there))
            yield DeltaTable(there, version=version, storage_options=delta_rs_options(path))
        except (DeltaError, OSError) as error:
            raise TargetError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _link(table: Path, to: Path) -> None:
    """All that the table has but its rows."""
    for entry in table.iterdir() if table.is_dir() else ():
        if entry.suffix != ".parquet":
            (to / entry.name).symlink_to(entry, target_is_directory=entry.is_dir())


def _arrow(stream: Any) -> pa.Table:
    """What delta-rs gives, as pyarrow's; ``pa.table`` would load pandas for it."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


def rows_kept(path: str, names: frozenset[str], vectors: pa.Table) -> dict[str, pa.BooleanArray]:
    """The deletion vectors by the names of their files.

    :param vectors: ``filepath`` (string, a URI or a path), ``selection_vector`` (list<bool>), as delta-rs has them.
    :raises TargetError: one is of a file that the table has not: its rows would come back.
    """
    uris, rows = vectors["filepath"].to_pylist(), vectors["selection_vector"]
    known = {name.rpartition("/")[2]: name for name in names}
    found = (known.get(uri.rpartition("/")[2], uri) for uri in uris)
    kept = {name: rows[number].values for number, name in enumerate(found)}
    if len(known) < len(names) or len(kept) < len(uris) or not kept.keys() <= names:
        raise TargetError(f"{path} has deletion vectors of files that are not among its own: {', '.join(uris)}")
    return kept
