"""Rows of a lake's ``current`` tables as of one batch, in parts, in the same order on each read. The bootstraps of a
relay's consumers use them (``cli/_lake_supplier.py``) instead of reading MySQL.

The newest ledger row names, for each ``live`` table, the Delta version that holds exactly the source as of the row's
GTID set. A bootstrap uses one such row. The row's set and versions are the bootstrap's token, so all parts are as of
one GTID set, whenever they are read. A part is a row group of one of the version's files, ordered by file name, without
the rows that the version's deletion vectors name. Neither ever changes, so a part read again gives the same rows in the
same order. If VACUUM has removed files, the bootstrap begins again.

The row also names the definition of each table at its set, if the pipeline knows it. Rows are returned only while MySQL
has the table with that same definition. Under another one they would be encoded and keyed differently from how they
were written: a VARCHAR that is JSON by now, columns whose names were swapped, another primary key. The log does not
record what an ALTER did to rows either. So a bootstrap waits until the pipeline has reached the ALTER, and then begins
again. If the row names no definition (columns were added to the table and it was not written since), only the types of
the copy's columns are compared.

No Spark is needed (``_version``). Tables that require more of a reader than that module supports are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from headgate.delta import as_rows
from headgate.errors import ChunkRetryError, SnapshotRefusedError, TargetError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.lake._ignored import IgnoredChanges
from headgate.lake._layout import Lake
from headgate.lake._ledger import LedgerRow, find_newest
from headgate.lake._places import Place
from headgate.lake._properties import SourceMapping
from headgate.lake._version import TableVersion, open_version

if TYPE_CHECKING:
    from headgate._policies import Policies
    from headgate.catalog import TableDef

__all__ = ["CopyGoneError", "LakeCopies"]


class CopyGoneError(Exception):
    """The parts of a batch no longer exist, or have another meaning now."""


class LakeCopies:
    """Copies of tables in one lake.

    :param policies: determine the column types that a copy must have.
    """

    def __init__(self, lake: Lake, policies: Policies) -> None:
        self._lake, self._policies = lake, policies

    def begin(self) -> tuple[GtidSet, Mapping[str, Any]]:
        """Return the newest batch: its set, and a token that finds the same rows again, in JSON.

        :raises TargetError: there is no batch, or it cannot be read.
        """
        newest = self._newest()
        return GtidSet.parse(newest.gtid), self._token(newest)

    def _token(self, row: LedgerRow) -> Mapping[str, Any]:
        """Return the versions of a ledger row's live tables, and those of their definitions that it names."""
        live = [one for one in row.tables.values() if one.state == "live"]
        versions = {one.table: one.version for one in live}
        places = {one.table: asdict(one.place) for one in live if one.place is not None}
        definitions = {one.table: one.definition for one in live if one.definition is not None}
        shown = {one.table: one.ignored.to_json() for one in live if one.ignored.names}
        token = {"lake": self._lake.path, "versions": versions, "definitions": definitions, "places": places}
        return {**token, "ignored": shown} if shown else token

    def _newest(self) -> LedgerRow:
        row = find_newest(self._lake)
        if row is None:
            raise TargetError(f"the ledger at {self._lake.path} has no batch yet")
        return row

    def part_after(
        self, name: str, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Return the next row group of a table, in JSON; None: there are no more.

        :raises SnapshotRefusedError: the lake has no live copy of the table.
        """
        number = 0 if before is None else int(before["part"]) + 1
        return {"part": number} if number < len(self._version(name, token).parts) else None

    def read(self, table: TableDef, token: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[TableDef, pa.Table]:
        """Return the table as it is written, and the rows of a part. A column that was added without a default is NULL
        in older files.

        :param table: as MySQL has it now.
        :raises CopyGoneError: the files are gone, or the copy has reached the table's definition since.
        :raises ChunkRetryError: the copy has another definition, or is being read again because of that.
        :raises UnsupportedError: the copy has NULL where the table cannot.
        """
        from headgate.columns import TableCodec

        codec = TableCodec(table, self._policies)
        table, schema = codec.table, pa.schema(codec.fields)
        if self._mismatch_reason(token, table, schema):
            self._raise_mismatch(table, schema)
        try:
            return table, _read(self._version(table.full_name, token), part["part"], schema)
        except ValueError as error:
            raise UnsupportedError(f"the copy cannot be read as the table: {error}", table=table.full_name) from None

    def _mismatch_reason(self, token: Mapping[str, Any], table: TableDef, schema: pa.Schema) -> str:
        """Return why a batch's copy does not have this definition; ``""``: it has, as far as is known.

        :param table: as it is written.
        :param schema: the definition's columns.
        """
        version = self._version(table.full_name, token)
        mapping = SourceMapping.of(version.properties)
        if mapping.rows:
            return f"has only the table's rows with {mapping.rows}, by `rows` in its pipeline's configuration"
        if mapping.hook:
            return "has the columns that a hook makes, by `hook` in its pipeline's configuration"
        ignored = token.get("ignored", {}).get(table.full_name)
        if ignored is not None:
            columns = "; ".join(IgnoredChanges.from_json(ignored).texts())
            return f"does not have the columns that MySQL has, by [schema_changes] of its pipeline: {columns}"
        rules, names = mapping.rules, mapping.source_names
        differing = [
            one.name
            for one in table.columns
            if (one.rule, one.source_name) != (rules.get(one.name, ""), names.get(one.name, ""))
        ]
        if differing:
            return f"has other rules for {', '.join(differing)} in its pipeline's [columns] than this relay"
        lacking = _lacking(version, schema)
        if lacking:
            return (
                f"does not have the table's columns {', '.join(lacking)}: either its pipeline has not reached an ALTER "
                "TABLE yet, or its policies differ from this relay's"
            )
        known = token.get("definitions", {}).get(table.full_name)
        if known in (None, table.common_fingerprint):
            return ""
        return "was written under another definition of the table: its pipeline has not reached an ALTER TABLE yet"

    def _raise_mismatch(self, table: TableDef, schema: pa.Schema) -> NoReturn:
        """Raise for a copy that does not match its table: the next batch may match, or the newest one already does."""
        newest = self._newest()
        state = newest.tables.get(table.full_name)
        if state is not None and state.state in ("stale", "snapshotting", "settling"):
            reason = "is being read again by its pipeline"
        else:
            reason = self._mismatch_reason(self._token(newest), table, schema)
        if not reason:
            raise CopyGoneError(
                f"the copy of {table.full_name} has reached the table's definition since the bootstrap began"
            )
        raise ChunkRetryError(f"the copy in the lake {reason}", table=table.full_name)

    def _version(self, name: str, token: Mapping[str, Any]) -> TableVersion:
        version = token["versions"].get(name)
        if version is None:
            raise SnapshotRefusedError(
                f"the lake at {self._lake.path} has no live copy of the table in the bootstrap's batch", table=name
            )
        place = Place.of(token.get("places", {}).get(name))
        return _opened(self._lake.current(name, place), int(version))


@lru_cache(maxsize=64)
def _opened(path: str, version: int) -> TableVersion:
    """Open a version of the table at a path.

    :raises TargetError: it cannot be read; CopyGoneError: it is gone.
    """
    with _vacuumed():
        return open_version(path, version)


@contextmanager
def _vacuumed() -> Iterator[None]:
    """Turn a missing file into :class:`CopyGoneError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise CopyGoneError(f"the copy was vacuumed: {error}") from None


def _lacking(version: TableVersion, schema: pa.Schema) -> list[str]:
    """Return the columns that a version lacks, or has with another type."""
    from deltalake import Schema

    wanted = Schema.from_arrow(schema).fields
    return [field.name for field in wanted if version.columns.get(field.name) != field.type]


def _read(version: TableVersion, number: int, schema: pa.Schema) -> pa.Table:
    """Return the rows of a part.

    :param schema: columns that the version has; its files may lack some.
    :raises CopyGoneError: the version has no such part, or its file is gone.
    :raises ValueError: a column that must not be NULL holds NULL.
    """
    if number >= len(version.parts):
        raise CopyGoneError("the copy's file list changed since the bootstrap began")
    part, nullable = version.parts[number], pa.schema([one.with_nullable(True) for one in schema])
    with _vacuumed():
        rows = [as_rows(batch, nullable) for batch in version.batches([part], schema.names, rows=max(1, part.rows))]
    return pa.Table.from_batches(rows, nullable).cast(schema)
