"""Versions of a lake's tables without Spark: their files, and which of the rows are there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate._policies import Policies
from headgate.catalog import Column, TableDef
from headgate.delta import TableLog, VectorFile, positions_of
from headgate.errors import ChunkRetryError, SnapshotRefusedError, TargetError
from headgate.lake import CopyGoneError, Lake, LakeCopies
from headgate.lake._copies import _lacking, _opened, _read
from headgate.lake._version import open_version
from tests.delta.commits import commit
from tests.lake.tables import ledger_line, make_table

ROWS = pa.table({"id": range(10), "v": [f"v{n}" for n in range(10)]})


@pytest.mark.parametrize("table", ["d.plain", "d.dots.and spaces", "d.100%2E", "d.é~\U0001f600"])
def test_a_table_of_any_name(tmp_path: Path, table: str) -> None:
    made = tmp_path / "made"
    write_deltalake(str(made), ROWS)
    write_deltalake(str(made), ROWS, mode="append")
    path = Path(Lake.at(tmp_path / "lake").current(table))
    path.parent.mkdir(parents=True)
    made.rename(path)
    old, new = _opened(str(path), 0), _opened(str(path), 1)
    assert len(old.parts) == 1
    assert _read(old, 0, pa.schema([ROWS.schema.field("v"), ROWS.schema.field("id")])).equals(ROWS.select(["v", "id"]))
    assert len(new.parts) == 2
    with pytest.raises(TargetError, match="has no version 2"):
        _opened(str(path), 2)


def test_a_column_that_was_added(tmp_path: Path) -> None:
    """Delta has it as NULL where a file is older than it."""
    more = pa.array([4, None], pa.int16())
    write_deltalake(str(tmp_path), ROWS)
    write_deltalake(str(tmp_path), ROWS[:2].append_column("more", more), mode="append", schema_mode="merge")
    old, new = _opened(str(tmp_path), 0), _opened(str(tmp_path), 1)
    schema = ROWS.schema.append(pa.field("more", pa.int16()))
    assert (_lacking(old, schema), _lacking(new, schema)) == (["more"], [])
    tables = [_read(new, number, schema) for number in range(2)]
    assert all(one.schema == schema for one in tables)
    assert sorted((one["more"].to_pylist() for one in tables), key=len) == [[4, None], [None] * 10]
    with pytest.raises(ValueError, match="more"):
        _read(new, min(range(2), key=lambda number: tables[number].num_rows), _strict(schema))


def test_rows_that_are_marked_as_deleted_are_left_out(tmp_path: Path) -> None:
    marked = ROWS.append_column("_deleted", pa.array([number % 3 == 0 for number in range(10)]))
    for name, properties, kept in (
        ("marks", {"headgate.deletes": "mark"}, [1, 2, 4, 5, 7, 8]),
        ("own", {}, [*range(10)]),
    ):
        make_table(str(tmp_path / name), [marked], marked.schema, properties)
        version = _opened(str(tmp_path / name), 0)
        assert _read(version, 0, ROWS.schema)["id"].to_pylist() == kept
        batches = list(version.batches(version.parts, ["id"], rows=4))
        assert [number for batch in batches for number in batch["id"].to_pylist()] == kept
        assert batches[0].schema.names == ["id"]


def _strict(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(False) for field in schema])


def test_a_column_of_another_type_is_lacking(tmp_path: Path) -> None:
    """Arrow would make a date of any INT, and a text that need not be MySQL's."""
    fields = [
        pa.field(f"c{number}", kind)
        for number, kind in enumerate([
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
            pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(20),
            pa.decimal128(20, 2),
        ])
    ]  # fmt: skip
    schema = pa.schema(fields)
    write_deltalake(str(tmp_path), schema.empty_table())
    version = _opened(str(tmp_path), 0)
    assert _lacking(version, schema) == []
    others = fields[1:] + fields[:1]
    wrong = pa.schema([pa.field(field.name, other.type) for field, other in zip(fields, others, strict=True)])
    assert _lacking(version, wrong) == schema.names


def test_partitions_are_not_a_pipelines(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS, partition_by=["v"])
    assert DeltaTable(str(tmp_path)).version() == 0
    with pytest.raises(TargetError, match="has partitions"):
        _opened(str(tmp_path), 0)


def test_rows_that_a_deletion_vector_takes_away(tmp_path: Path) -> None:
    """In row groups of four."""
    make_table(str(tmp_path), [], ROWS.schema, {})
    pq.write_table(ROWS, tmp_path / "one.parquet", row_group_size=4)
    vectors = VectorFile()
    add = {"path": "one.parquet", "size": (tmp_path / "one.parquet").stat().st_size, "dataChange": True}
    commit(str(tmp_path), TableLog(str(tmp_path)).refresh(), [vectors.mark(add, 10, positions_of([0, 2, 3]))], "WRITE",
           {}, blind=True)  # fmt: skip
    vectors.write(str(tmp_path))
    version = open_version(str(tmp_path), 1)
    assert (version.rows, [part.rows for part in version.parts]) == (7, [4, 4, 2])
    ids = [_read(version, number, ROWS.schema)["id"].to_pylist() for number in range(3)]
    assert ids == [[1], [4, 5, 6, 7], [8, 9]]
    few = [batch["id"].to_pylist() for batch in version.batches(version.parts, ["id"], rows=2)]
    assert few == [[1], [], [4, 5], [6, 7], [8, 9]]


# --- the definition that a copy was written under

TEXT = Column("v", "varchar", length=80, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
TABLE = TableDef("d", "t", (Column("id", "bigint", nullable=False), TEXT), (0,))
OTHERS = [
    replace(TABLE, columns=(TABLE.columns[0], replace(TEXT, type="json", length=0, charset=None, collation=None))),
    replace(TABLE, columns=(TABLE.columns[0], replace(TEXT, collation="utf8mb4_bin"))),
    replace(TABLE, columns=(TABLE.columns[0], replace(TEXT, type="enum", length=0, members=("v0", "v1")))),
    replace(TABLE, columns=TABLE.columns[::-1], key=(1,)),
    replace(TABLE, key=(1,)),
]
"""To Delta they are all the same."""


class Copies:
    """A lake with one table, whose rows stay; what is told of it is a row of the ledger."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake.at(folder)
        self.epoch = 0
        write_deltalake(self.lake.current("d.t"), ROWS)
        self.copies = LakeCopies(self.lake, Policies())

    def batch(self, state: str = "live", **more: Any) -> None:
        self.epoch += 1
        row = ledger_line(self.epoch, {"table": "d.t", "state": state, "version": 0, **more})
        write_deltalake(self.lake.ledger, pa.Table.from_pylist([row]), mode="append", schema_mode="merge")

    def read(self, token: Any, table: TableDef) -> list[dict[str, Any]]:
        return self.copies.read(table, token, {"part": 0})[1].to_pylist()  # type: ignore[no-any-return]

    def token(self) -> Any:
        return self.copies.begin()[1]


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path)


@pytest.mark.parametrize("other", OTHERS)
def test_rows_of_another_definition_are_waited_for(copies: Copies, other: TableDef) -> None:
    """From an ALTER TABLE, over the pipeline that comes to it, until it has read the table again."""
    copies.batch(definition=TABLE.common_fingerprint)
    token = copies.token()
    assert copies.read(token, TABLE) == ROWS.to_pylist()
    with pytest.raises(ChunkRetryError, match="another definition"):
        copies.read(token, other)
    for state in ("stale", "snapshotting"):
        copies.batch(state)
        with pytest.raises(ChunkRetryError, match="read again"):
            copies.read(token, other)
    copies.batch(definition=other.common_fingerprint)
    with pytest.raises(CopyGoneError):
        copies.read(token, other)
    assert copies.read(copies.token(), other) == ROWS.to_pylist()
    copies.batch("stopped")
    with pytest.raises(SnapshotRefusedError):
        copies.read(token, other)


def test_rows_that_passed_an_expression_are_not_the_table(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    make_table(lake.current("d.t"), [ROWS], ROWS.schema, {"headgate.rows": "id > 3"})
    copies = LakeCopies(lake, Policies())
    row = ledger_line(1, {"table": "d.t", "state": "live", "version": 0})
    write_deltalake(lake.ledger, pa.Table.from_pylist([row]))
    with pytest.raises(
        ChunkRetryError, match="has only the table's rows with id > 3, by `rows` in its pipeline's conf"
    ):
        copies.read(TABLE, copies.begin()[1], {"part": 0})


def test_a_table_that_ignores_changes_of_columns(copies: Copies) -> None:
    """Two names that were exchanged leave columns of the same names and types, and the same definition."""
    ignored = json.dumps({"names": {"id": "v", "v": "id"}})
    copies.batch(definition=TABLE.common_fingerprint, ignored=ignored)
    with pytest.raises(
        ChunkRetryError, match=r"by \[schema_changes\] of its pipeline: v is id in MySQL; id is v in MySQ"
    ):
        copies.read(copies.token(), TABLE)
    kept = json.dumps({"names": {}, "kept": ["old"]})
    copies.batch(definition=TABLE.common_fingerprint, ignored=kept)
    assert copies.read(copies.token(), TABLE) == ROWS.to_pylist()


def test_a_definition_that_nobody_has_written_down(copies: Copies) -> None:
    """By a pipeline or a relay of an earlier version: only the columns' types tell."""
    copies.batch()
    old = copies.token()
    assert copies.read(old, OTHERS[0]) == ROWS.to_pylist()
    copies.batch(definition=TABLE.common_fingerprint)
    known = copies.token()
    copies.batch(definition=None)
    new = copies.token()
    assert copies.read(new, OTHERS[0]) == ROWS.to_pylist()
    assert copies.read({"lake": old["lake"], "versions": old["versions"]}, OTHERS[0]) == ROWS.to_pylist()
    with pytest.raises(CopyGoneError):
        copies.read(known, OTHERS[0])
    wider = replace(TABLE, columns=(*TABLE.columns, Column("more", "int")))
    with pytest.raises(ChunkRetryError, match="columns more"):
        copies.read(new, wider)


def test_columns_that_nobody_sees_are_no_other_definition(copies: Copies) -> None:
    copies.batch(definition=TABLE.common_fingerprint)
    hidden = replace(TABLE, columns=(TABLE.columns[0], replace(TEXT, visible=False)))
    assert copies.read(copies.token(), hidden) == ROWS.to_pylist()
