"""Rows of a lake's ``current`` tables as of one batch, part by part, in the same order whenever they are read: for the
bootstraps of a relay's consumers (``cli/_lake_supplier.py``), which so need not ask MySQL for them.

The newest row of the ledger names, for each table that is ``live``, the Delta version at which it holds exactly the
source as of the row's GTID set. A bootstrap is of one such row: its set and versions are its token, so all parts are
as of one point, whenever they are read. A part is a row group of one of the version's files, in the order of their
names, without the rows that the version's deletion vectors name; neither ever changes, so a part read again gives the
same rows in the same order. When VACUUM has removed files the bootstrap begins again.

The row also names the definition that each table has at its set, as far as the pipeline knows it, and rows are given
only while MySQL has the table with that same definition. Under another one they would be encoded and keyed as they were
not written: a VARCHAR that is JSON by now, columns whose names were swapped, another primary key. Nor does the log tell
what an ALTER did to them. So a bootstrap waits until the pipeline has come to the ALTER, and then begins again. Where
the row names none (of an earlier headgate; of a table to which columns were added and that was not written since) only
the types of the copy's columns are compared.

No Spark is needed (``_version``); tables whose readers have to know more than that module does are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from headgate.errors import ChunkRetryError, SnapshotRefusedError, TargetError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.lake._layout import Lake
from headgate.lake._version import TableVersion, newest_rows, open_version

if TYPE_CHECKING:
    from headgate._policies import Policies
    from headgate.catalog import TableDef

__all__ = ["CopyGoneError", "LakeCopies"]


class CopyGoneError(Exception):
    """The parts of a batch are not there any more, or mean something else by now."""


class LakeCopies:
    """The tables of one lake.

    :param policies: columns of other types are not taken.
    """

    def __init__(self, lake: Lake, policies: Policies) -> None:
        self._lake, self._policies = lake, policies

    def begin(self) -> tuple[GtidSet, Mapping[str, Any]]:
        """The newest batch: its set, and a token by which the same rows are found again, in JSON.

        :raises TargetError: there is none, or it cannot be read.
        """
        newest = self._newest()
        return GtidSet.parse(newest["gtid"]), self._token(newest)

    def _token(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of a row of the ledger: the versions of its live tables, and the definitions of those that name one."""
        live = [one for one in row["tables"] if one["state"] == "live"]
        versions = {one["table"]: one["version"] for one in live}
        definitions = {one["table"]: one["definition"] for one in live if one.get("definition") is not None}
        return {"lake": self._lake.path, "versions": versions, "definitions": definitions}

    def _newest(self) -> dict[str, Any]:
        """The ledger's newest row, by the statistics of its files: each holds a row or a few."""
        rows = newest_rows(self._lake.ledger, "epoch", ("epoch", "gtid", "tables")).to_pylist()
        if not rows:
            raise TargetError(f"the ledger at {self._lake.path} has no batch yet")
        return max(rows, key=lambda row: int(row["epoch"]))

    def part_after(
        self, name: str, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The next row group of a table, in JSON; None: there are no more.

        :raises SnapshotRefusedError: the lake has no copy of the table that is equal to it.
        """
        number = 0 if before is None else int(before["part"]) + 1
        return {"part": number} if number < len(self._version(name, token).parts) else None

    def read(self, table: TableDef, token: Mapping[str, Any], part: Mapping[str, Any]) -> pa.Table:
        """Its rows. A column that was added without a default is NULL in files that are older than it.

        :param table: as MySQL has it now.
        :raises CopyGoneError: the files are gone, or the copy has got the table's definition since.
        :raises ChunkRetryError: the copy is not of the table's definition, or is being read again because of that.
        :raises UnsupportedError: the copy has NULL where the table cannot.
        """
        from headgate.columns import TableCodec

        schema = pa.schema(TableCodec(table, self._policies).fields)
        if self._misfit(token, table, schema):
            self._wait(table, schema)
        try:
            return _read(self._version(table.full_name, token), part["part"], schema)
        except ValueError as error:
            raise UnsupportedError(f"the copy cannot be read as the table: {error}", table=table.full_name) from None

    def _misfit(self, token: Mapping[str, Any], table: TableDef, schema: pa.Schema) -> str:
        """Why a batch's copy is not one of this definition; ``""``: it is, as far as anybody knows.

        :param schema: the definition's columns.
        """
        lacking = _lacking(self._version(table.full_name, token), schema)
        if lacking:
            return (
                f"does not have the table's columns {', '.join(lacking)}: either its pipeline has not come to an ALTER "
                "TABLE yet, or it has other policies than this relay"
            )
        known = token.get("definitions", {}).get(table.full_name)  # of a bootstrap that an earlier version began: none
        if known in (None, table.common_fingerprint):
            return ""
        return "was written under another definition of the table: its pipeline has not come to an ALTER TABLE yet"

    def _wait(self, table: TableDef, schema: pa.Schema) -> NoReturn:
        """A copy follows its table: what it is not now it may be in the next batch, or be already."""
        newest = self._newest()
        states = {one["table"]: one["state"] for one in newest["tables"]}
        if states.get(table.full_name) in ("stale", "snapshotting", "settling"):
            misfit = "is being read again by its pipeline"
        else:
            misfit = self._misfit(self._token(newest), table, schema)
        if not misfit:
            raise CopyGoneError(
                f"the copy of {table.full_name} has got the table's definition since its bootstrap began"
            )
        raise ChunkRetryError(f"the copy in the lake {misfit}", table=table.full_name)

    def _version(self, name: str, token: Mapping[str, Any]) -> TableVersion:
        version = token["versions"].get(name)
        if version is None:
            raise SnapshotRefusedError(
                f"the lake at {self._lake.path} has no live copy of it in the batch that the bootstrap is of",
                table=name,
            )
        return _opened(self._lake.current(name), int(version))


@lru_cache(maxsize=64)
def _opened(path: str, version: int) -> TableVersion:
    """A version of the table at a path.

    :raises TargetError: it cannot be read; CopyGoneError: it is gone.
    """
    with _vacuumed():
        return open_version(path, version)


@contextmanager
def _vacuumed() -> Iterator[None]:
    """:raises CopyGoneError: a file is gone."""
    try:
        yield
    except FileNotFoundError as error:
        raise CopyGoneError(f"the copy was vacuumed: {error}") from None


def _lacking(version: TableVersion, schema: pa.Schema) -> list[str]:
    """Names of columns that a version does not have, or has of another type."""
    from deltalake import Schema

    wanted = Schema.from_arrow(schema).fields
    return [field.name for field in wanted if version.columns.get(field.name) != field.type]


def _read(version: TableVersion, number: int, schema: pa.Schema) -> pa.Table:
    """The rows of a part.

    :param schema: columns that the version does not lack; its files may.
    :raises CopyGoneError: its file is gone.
    :raises ValueError: a column holds NULL and must not.
    """
    if number >= len(version.parts):
        raise CopyGoneError("the copy has not the parts that it had")
    with _vacuumed():
        found = version.group(version.parts[number], schema.names)
    there = {*found.column_names}
    columns = [found[one.name] if one.name in there else pa.nulls(found.num_rows, one.type) for one in schema]
    return pa.table(columns, names=schema.names).cast(schema)
