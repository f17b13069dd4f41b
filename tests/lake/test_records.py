"""Records as columns: one description gives the type, and writes and reads the values."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.control import Notification, OpenSnapshots, SignalAnswer, SignalState
from headgate.lake import IgnoredChanges, LedgerRow, LeftOut, Place, Successor, TableState
from headgate.offsets import Last

STATE = TableState(
    "s.t", "stopped", 0, 4, 5, 6, 7, 0, 9, 10, "why", "u:1-3", "cascades", Place("s.all", "s", "db", "s3://b"),
    Successor("_successor_1", 2), "m:f@1", LeftOut("odd", "u:1-2", 3), IgnoredChanges({"n": None, "b": "ä"}, ("c",)),
    ("a, b", "it"),
)  # fmt: skip
BEGUN = {"batch_id": 1, "epoch": 2, "gtid": "", "committed_at": datetime(2026, 1, 1, tzinfo=UTC)}
SHOWN: dict[str, Any] = {"table": "s.t", "shard": "s", "version": 0, "changelog_version": None}
MERGED = LedgerRow.of(
    {**BEGUN, "merged": [{"table": "s.all", "path": "s3://b", "version": 1, "shards": [SHOWN]}]}
).merged
FULL = LedgerRow(
    1,
    2,
    "u:1-9",
    datetime(2026, 1, 1, tzinfo=UTC),
    {one.table: one for one in (STATE, TableState("s.plain", "live"))},
    OpenSnapshots(rows={"s.t": (1, 2)}, missed=("s.t",), answers=(SignalAnswer("a", "log", SignalState.DONE),)),
    (Notification("e", "i", "Initial Snapshot", "STARTED", {"epoch": "2"}, 5),),
    MERGED,
    "uuid",
    Last("u:9", 5),
)
"""No column of the first table, or of the row, has its default."""


def as_read(row: LedgerRow) -> dict[str, Any]:
    """The row as a Parquet file gives it."""
    value: dict[str, Any] = pa.Table.from_pylist([row.columns()]).to_pylist()[0]
    return value


def test_a_row_that_is_read_is_the_row_that_was_written() -> None:
    for one in (FULL, STATE):
        assert [field.name for field in fields(one) if getattr(one, field.name) == field.default] == []
    assert LedgerRow.of(as_read(FULL)) == FULL
    assert as_read(FULL)["merged"][0]["shards"] == [SHOWN]
    empty = LedgerRow(1, 2, "", datetime(2026, 1, 1, tzinfo=UTC))
    assert LedgerRow.of(as_read(empty)) == empty
    assert [name for name, value in as_read(empty).items() if value is None] == ["snapshots", "notifications", "last"]


def test_columns_that_are_missing_have_their_defaults() -> None:
    value = {"batch_id": 1, "epoch": 2, "gtid": "", "committed_at": None, "tables": [{"table": "s.t", "state": "live"}]}
    with pytest.raises(TypeError, match="committed_at"):
        LedgerRow.of(value)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    row = LedgerRow.of({**value, "committed_at": moment, "later": 5})
    assert row == LedgerRow(1, 2, "", moment, {"s.t": TableState("s.t", "live")})
