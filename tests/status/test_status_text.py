"""The status in words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lake import IgnoredChanges
from headgate.status import (
    Activity,
    FreshnessStatus,
    IndexStatus,
    LagStatus,
    SnapshotStatus,
    Status,
    TableReadProgress,
    TableStatus,
    activity_text,
    counted,
    duration,
    figures_text,
    index_text,
    lag_text,
    snapshot_text,
    table_text,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"),
        (61, "1 min 1 s"), (3599.7, "1 h 0 min"), (7260, "2 h 1 min"), (3 * 86400 + 7200, "3 d 2 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_one_and_many() -> None:
    assert [counted(number, "row") for number in (0, 1, 2, 123_456_789_012)] == [
        "0 rows", "1 row", "2 rows", "123,456,789,012 rows",
    ]  # fmt: skip


def progress(rows: int, estimate: int | None) -> str:
    """The progress of a snapshot of one table."""
    return snapshot_text(SnapshotStatus(tables=1, rows=rows, rows_estimate=estimate)).removeprefix(
        "snapshot of 1 table: "
    )


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_percent_never_says_that_all_is_done(done: int, estimate: int) -> None:
    share = re.search(r"\((\d+) %\)", progress(done, estimate))
    assert (share is not None) == (estimate > 0 and done <= estimate)
    assert share is None or int(share[1]) <= 99


def test_progress() -> None:
    assert progress(1250, 4000) == "1,250 of about 4,000 rows (31 %)"
    assert progress(4000, 4000) == "4,000 of about 4,000 rows (99 %)"
    assert progress(4001, 4000) == "4,001 rows"
    assert progress(1, None) == "1 row"
    assert progress(0, 1) == "0 of about 1 row (0 %)"


def test_lag() -> None:
    assert lag_text(LagStatus()) == "lag not known yet"
    assert lag_text(LagStatus(seconds=1.25, transactions=1)) == "lag 1.2 s, at least 1 transaction behind"
    assert lag_text(LagStatus(seconds=90.0)) == "lag 1 min 30 s", "without GTIDs nobody counts transactions"
    assert lag_text(LagStatus(seconds=0.0, transactions=0)) == "lag 0.0 s"


def test_freshness() -> None:
    def text(freshness: FreshnessStatus, rows: float = 0.0) -> str:
        return figures_text(
            Status(
                pipeline="p",
                pid=1,
                host="h",
                started_us=0,
                updated_us=0,
                state="running",
                lag=LagStatus(seconds=0.0),
                freshness=freshness,
                rows_per_second=rows,
            )
        )

    assert text(FreshnessStatus(changes=9)) == "lag 0.0 s, 0.0 changes/s"
    assert text(FreshnessStatus(), rows=0.05) == "lag 0.0 s, 0.0 changes/s", "three rows in a minute"
    assert text(FreshnessStatus(), rows=0.6) == "lag 0.0 s, 0.0 changes/s, 1 rows/s read"
    assert text(FreshnessStatus(p50=0.84, p99=61.0)) == "lag 0.0 s, freshness p50 0.8 s, p99 1 min 1 s, 0.0 changes/s"


def test_indexes_are_told_while_they_are_built() -> None:
    assert index_text(None) == index_text(IndexStatus(bytes_on_disk=10**9)) == ""
    built = IndexStatus(tables_building=2, bytes_on_disk=1_234_500_000)
    assert index_text(built) == "building key indexes of 2 tables, 1,234 MB on disk"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"state": "live", "changes": 4000, "rows": 1}, "4,000 changes, 1 row read"),
        ({"state": "filtered", "changes": 1, "changes_per_second": 0.1}, "1 change, 0.1 changes/s"),
        ({"state": "snapshotting"}, "waits to be read"),
        ({"state": "snapshotting", "chunks_estimate": 1, "rows_read": 7}, "7 rows, 0 of 1 chunk"),
        (
            {"state": "snapshotting", "chunks_done": 3, "chunks_estimate": 8, "rows_read": 30, "rows_estimate": 90},
            "30 of about 90 rows (33 %), 3 of 8 chunks",
        ),
        (
            {"state": "snapshotting", "chunks_done": 8, "chunks_estimate": 8, "rows_read": 95, "rows_estimate": 90},
            "95 rows, 8 of 8 chunks",
        ),
        (
            {"state": "snapshotting", "chunks_estimate": 1, "rows_read": 7, "beside": True},
            "7 rows, 0 of 1 chunk; readers have the old table until the new one is complete",
        ),
        ({"state": "snapshotting", "reason": "not exact yet"}, "waits to be read; not exact yet"),
        ({"state": "stale", "reason": "ALTER"}, "ALTER"),
        ({"state": "live"}, "0 changes"),
        ({"state": "inexact", "reason": "cascades"}, "0 changes; cascades"),
        ({"state": "stopped", "reason": "ALTER"}, "ALTER"),
        ({"state": "stopped"}, ""),
    ],
)
def test_tables(table: dict[str, Any], text: str) -> None:
    assert table_text(TableStatus.model_validate(table)) == text


def test_a_table_that_is_being_read() -> None:
    part = TableReadProgress(first=3, last=4, chunks_estimate=8, rows_estimate=50, table_rows_estimate=100)
    known = TableStatus(state="snapshotting", rows_read=30, rows_estimate=90, chunks_done=2, chunks_estimate=8)
    assert table_text(known, part) == "30 of about 90 rows (33 %), 2 of 8 chunks"
    assert table_text(TableStatus(state="snapshotting"), part) == "0 of about 100 rows (0 %)"
    assert table_text(TableStatus(state="live"), part) == "0 changes", "it is read again: still live"


def doing(phase: str, **more: Any) -> str:
    return activity_text(Activity.model_validate({"phase": phase, "since_us": 0, **more}), 12_000_000)


def part(first: int, last: int, rows: int = 5) -> TableReadProgress:
    return TableReadProgress(first=first, last=last, chunks_estimate=8, rows_estimate=rows)


@pytest.mark.parametrize(
    ("phase", "more", "text"),
    [
        ("starting", {}, "starting Spark, 12 s so far"),
        ("compiling", {}, "compiling, once on this machine (headgate prefetch does it before), 12 s so far"),
        ("checking", {}, "looking at the tables in the lake, 12 s so far"),
        ("waiting", {}, "waiting for changes"),
        ("waiting", {"paused": True}, "waiting for changes; reading tables is paused"),
        ("reading", {}, "reading changes, 12 s so far"),
        ("reading", {"transactions": 1, "tasks": 1}, "reading changes of 1 transaction, 0 of 1 task done, 12 s so far"),
        (
            "reading",
            {"tables": {"s.t": part(2, 2)}, "rows_estimate": 5, "tasks": 4, "tasks_done": 1},
            "reading s.t (chunk 2 of 8): about 5 rows, 1 of 4 tasks done, 12 s so far",
        ),
        (
            "reading",
            {"tables": {"s.t": part(1, 1)}, "rows_estimate": 5, "transactions": 3},
            "reading s.t (chunk 1 of 8): about 5 rows, changes of 3 transactions, 12 s so far",
        ),
        ("applying", {}, "applying the batch, 12 s so far"),
        ("applying", {"rows": 0, "changes": 1}, "applying 1 change, 12 s so far"),
        ("applying", {"rows": 1, "tables_to_write": 1}, "applying 1 row: 0 of 1 table written, 12 s so far"),
    ],
)
def test_what_is_under_way(phase: str, more: dict[str, Any], text: str) -> None:
    assert doing(phase, **more) == text


def test_many_tables_are_counted() -> None:
    tables = {"s.a": part(1, 1, 0), "s.b": part(1, 2, 9), "s.c": part(4, 6, 99), "s.d": part(1, 1, 1)}
    assert doing("reading", tables=tables, rows_estimate=109).startswith(
        "reading s.c (chunks 4–6 of 8), s.b (chunks 1–2 of 8) and 2 other tables: about 109 rows"  # noqa: RUF001
    )


def test_columns_unlike_those_of_mysql() -> None:
    ignored = IgnoredChanges({"n": None, "b": "a"}, ("c",))
    table = TableStatus(state="live", ignored=tuple(ignored.texts()))
    assert table_text(table).endswith("; columns unlike MySQL's (n left out, a is b in MySQL, c dropped in MySQL)")
