"""The ledger's columns, and its fence on a pretended Delta table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.errors import CommitConflictError, TargetError
from headgate.lake import Lake, Ledger, LedgerRow, find_newest, newest_rows
from tests.lake.tables import make_ledger


class Table:
    path = "/lake/_headgate/ledger"

    def __init__(self, version: int) -> None:
        self.newest = version
        self.columns: Any = None

    def create(self, columns: Any, properties: dict[str, str]) -> None:
        self.columns = columns
        assert (properties["headgate.table"], properties["headgate.begun"]) == ("_headgate.ledger", "7")
        self.newest = 0

    def version(self) -> int:
        return self.newest

    def commit(self, others: int = 0) -> int:
        """Our commit, after some of another program."""
        self.newest += others + 1
        return self.newest


def test_the_columns_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of a record is a column: what is not written here has not been decided."""
    monkeypatch.setattr("headgate.lake._ledger.spark_schema", str)
    table, versions = Table(-1), "version bigint, changelog_version bigint"
    ledger_at(table).begin(7)
    shard = f"struct<table string, shard string, {versions}>"
    assert table.columns == (
        "batch_id bigint, epoch bigint, gtid string, committed_at timestamp, "
        f"tables array<struct<table string, state string, {versions}, since_epoch bigint, held_epoch bigint, "
        "rows_estimate bigint, chunks_done bigint, chunks_estimate bigint, images bigint, reason string, "
        "settles_at string, unlogged string, place struct<table string, shard string, column string, path string>, "
        "successor struct<folder string, version bigint>, hook string, "
        "left_out struct<reason string, since string, changes bigint>, ignored string, "
        "unmasked array<string>>>, "
        "snapshots string, notifications string, "
        f"merged array<struct<table string, path string, {versions}, reason string, shards array<{shard}>>>, "
        "server_uuid string, last struct<gtid string, ts_us bigint>"
    )


def ledger_at(table: Table, last: LedgerRow | None = None) -> Ledger:
    ledger = object.__new__(Ledger)
    ledger._version, ledger._delta, ledger.last, ledger._pipeline = table.newest, cast("Any", table), last, "p"
    return ledger


def test_only_the_batch_after_the_newest_one_is_accepted() -> None:
    """Also if a batch of chunks has left the GTID set as it was."""
    empty, row = ledger_at(Table(-1)), LedgerRow(3, 70, "", datetime(2026, 1, 1, tzinfo=UTC))
    assert not empty.has(10, 0)
    ledger = ledger_at(Table(4), row)
    assert ledger.has(70, 60)
    assert not ledger.has(80, 70)
    for epoch, start_epoch, age in ((80, 60, "older"), (60, 50, "older"), (90, 80, "newer")):
        with pytest.raises(TargetError, match=f"checkpoint is {age} than the tables .*: remove the checkpoint folder"):
            ledger.has(epoch, start_epoch)
    with pytest.raises(TargetError, match="checkpoint is newer"):
        empty.has(80, 70)


def test_a_late_commit_of_an_earlier_attempt_is_not_another_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    row = LedgerRow(3, 70, "", datetime(2026, 1, 1, tzinfo=UTC))
    last = replace(row, epoch=60)
    for version, before, newest in ((-1, None, None), (-1, None, row), (4, last, row), (4, last, last)):
        table = Table(version)
        ledger = ledger_at(table, before)
        ledger.fence(70)
        monkeypatch.setattr(ledger, "_newest", lambda newest=newest: newest)
        table.commit()
        with pytest.raises(CommitConflictError, match="a commit of an earlier attempt arrived late"):
            ledger.fence(70)
    monkeypatch.setattr(ledger, "_newest", lambda: row)
    with pytest.raises(TargetError, match="two pipelines run on one target"):
        ledger.fence(80)


def test_a_fold_notices_rows_of_another_program() -> None:
    table = Table(3)
    ledger = ledger_at(table)
    ledger.fold(lambda: None)
    ledger.fold(table.commit)
    assert ledger.version == 4
    with pytest.raises(TargetError, match="two pipelines run on one target"):
        ledger.fold(lambda: table.commit(others=1))


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_the_newest_rows_of_overlapping_files(tmp_path: Path, limit: int) -> None:
    lake = Lake.at(tmp_path)
    make_ledger(lake, [1, 5], [2, 3, 9], [4, 8], [7])
    assert [row.epoch for row in newest_rows(lake, limit)] == [9, 8, 7, 5, 4, 3, 2, 1][:limit]
    newest = find_newest(lake)
    assert newest is not None
    assert newest.epoch == 9
