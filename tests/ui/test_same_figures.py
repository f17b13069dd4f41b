"""The figures of one run, in everything that prints them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.carrier import Commits, ControlFolder
from headgate.cli import app
from headgate.cli.log_view import LogView
from headgate.lake import TableState, WriteMethod
from headgate.pipeline import StatusWriter
from headgate.sinks import BatchReport
from headgate.status import read_status
from headgate.ui import Watched, create_app
from tests.logged import logged_here
from tests.ui.status import UUID
from tests.ui.test_app import ask
from tests.ui.test_metrics import samples

ORDERS, ITEMS = "shop.orders", "shop.items"


def report(now_us: int, number: int, rows: dict[str, int], changes: dict[str, int]) -> BatchReport:
    """A batch of 2 s, planned 3.5 s ago, whose changes were committed 4 s ago."""
    reading = TableState(ITEMS, "snapshotting", 2, since_epoch=1, rows_estimate=9000, chunks_done=1, chunks_estimate=11)
    tables = {ORDERS: TableState(ORDERS, "live", 1), ITEMS: reading}
    made = {name: [Commits(now_us - 4_000_000, now_us - 4_000_000, count)] for name, count in changes.items()}
    return BatchReport(
        number, number, f"{UUID}:1-{number}", tables, rows=rows, changes=changes, commits=made, seconds=2.0,
        committed_us=now_us, planned_us=now_us - 3_500_000, write_methods={ORDERS: frozenset({WriteMethod.UPSERT})},
    )  # fmt: skip


def test_page_status_metrics_and_log_have_the_same_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "headgate")
    now_us = time.time_ns() // 1000
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n[target]\npath = "{tmp_path}/lake"\n'
    )
    inbox, moment = ControlFolder(f"{tmp_path}/lake/_headgate/inbox"), iter(range(1000))
    watched = Watched("shop", inbox)
    view = LogView()
    writer = StatusWriter(
        inbox, "shop", on_status=view.update, clock=lambda: float(next(moment)), wall_us=lambda: now_us
    )
    writer._ending.wait = lambda timeout=None: True  # type: ignore[method-assign]
    with view, writer:
        writer.ends(report(now_us - 10_000_000, 1, {ORDERS: 1200, ITEMS: 300}, {}))
        writer.ends(report(now_us, 2, {ITEMS: 500}, {ORDERS: 4321}))
        page = ask(create_app([watched]), "/").text
        status = read_status(inbox)
        lines = CliRunner().invoke(app, ["status", str(file)], terminal_width=200).output
        metrics = samples(watched)
    log = "\n".join(record.getMessage() for record in logged_here(caplog))
    assert status is not None
    # the totals of a table
    for table, changes, rows in ((ORDERS, 4321, 1200), (ITEMS, 0, 800)):
        assert metrics["headgate_table_changes_total", "shop", table] == changes
        assert metrics["headgate_table_rows_total", "shop", table] == rows
        row = page[page.index(f'scope="row">{table}<') :]
        assert [int(n.replace(",", "")) for n in re.findall(r'data-label="[a-z ]+">([\d,]+)<', row)[:2]] == [
            changes,
            rows,
        ]
    assert f"{ORDERS} live: 4,321 changes" in lines
    assert f"{ITEMS} snapshotting: 800 of about 9,000 rows (8 %)" in lines
    assert metrics["headgate_table_snapshot_rows", "shop", ITEMS] == 800
    # a table and all tables in a batch
    assert f"{ORDERS} live: 0 changes, 1,200 rows read" in log
    assert f"{ORDERS}: 4,321 changes (2,160.5/s)" in log
    assert f"{ITEMS} snapshotting: 300 of about 9,000 rows (3 %)" in log
    assert "batch 1: 2.0 s, 1,500 rows read (750.0/s) in 2 tables" in log
    assert "batch 2: 2.0 s, 500 rows read (250.0/s), 4,321 changes (2,160.5/s)" in log
    assert [(batch.rows, batch.changes, batch.seconds) for batch in status.recent] == [(500, 4321, 2.0), (1500, 0, 2.0)]
    assert metrics["headgate_last_batch_seconds", "shop"] == 2.0
    ledger = page[page.index("<tbody", page.index("<caption>Ledger")) :]
    assert re.findall(r'class="number"[^>]*>([^<]+)<', ledger)[:6] == ["4,321", "500", "2.0 s", "0", "1,500", "2.0 s"]
    # the run
    assert "ended after 2 batches: 2,000 rows read, 4,321 changes" in log
    assert metrics["headgate_batches_total", "shop"] == 2
    assert metrics["headgate_writes_total", "shop", "upsert"] == 2
    assert metrics["headgate_lag_seconds", "shop"] == 3.5
    assert "lag 3.5 s" in lines
    assert (log.count("lag 14 s"), log.count("lag 3.5 s")) == (1, 1), "of both batches"
    assert "<dt>lag</dt><dd>3.5 s</dd>" in page
    fresh, rate = (
        metrics["headgate_freshness_recent_seconds", "shop", "0.5"],
        metrics["headgate_changes_per_second", "shop"],
    )
    assert f"freshness p50 {fresh:.1f} s" in lines
    assert f"<dt>freshness p50, p99</dt><dd>{fresh:.1f} s" in page
    assert metrics["headgate_freshness_seconds_count", "shop"] == 4321
    assert f"{rate:,.1f} changes/s" in lines
    assert rate > 0
