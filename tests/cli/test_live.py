"""What `headgate run` shows, from a status and batches made by hand."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from headgate.cli.live import LiveView
from headgate.status import (
    Activity,
    BatchStatus,
    FreshnessStatus,
    LagStatus,
    SnapshotStatus,
    Status,
    TableReadProgress,
    TableStatus,
)

NAME = "shop.[red]orders"
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"


def status(state: str = "running", **more: Any) -> Status:
    return Status(pipeline="shop", pid=1, host="h", started_us=0, updated_us=0, state=state, **more)  # type: ignore[arg-type]


def activity(phase: str, seconds: float = 0.0, **more: Any) -> Activity:
    return Activity(phase=phase, since_us=-int(seconds * 1e6), **more)  # type: ignore[arg-type]


def batch() -> BatchStatus:
    return BatchStatus(batch_id=1, epoch=1, gtid=GTID, committed_us=0, rows=0, changes=0, seconds=1.0)


def reading(seconds: float, **more: Any) -> Status:
    """The first batch of a table of about 1,494,498 rows is being read."""
    table = TableReadProgress(first=1, last=3, chunks_estimate=7, rows_estimate=500_000, table_rows_estimate=1_494_498)
    doing = activity("reading", seconds, tables={NAME: table}, rows_estimate=500_000, transactions=0, **more)
    return status(activity=doing)


def screen(width: int = 120, height: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def drawn(view: LiveView) -> str:
    paper = Console(file=io.StringIO(), width=view._console.width, color_system=None)
    paper.print(view._draw())
    assert isinstance(paper.file, io.StringIO)
    return paper.file.getvalue()


def test_from_the_first_moment_it_says_what_is_under_way() -> None:
    view = LiveView(screen())
    assert drawn(view) == "connecting to MySQL …\n"
    view.update(status(activity=activity("starting", 0.2)))
    assert drawn(view) == "starting Spark\n"
    view.update(status(activity=activity("starting", 12)))
    assert drawn(view) == "starting Spark, 12 s so far\n"
    view.update(status(activity=activity("planning", 3)))
    assert drawn(view) == "planning the next batch, 3 s so far\n"
    view.update(reading(6, tasks=3, tasks_done=1, seconds_left=12.04))
    picture = drawn(view)
    assert f"{NAME} │ snapshotting │ 0 of about 1,494,498 rows (0 %)" in picture
    assert f"\nreading {NAME} (chunks 1–3 of 7)\n" in picture  # noqa: RUF001 - a range's dash
    assert "\nabout 500,000 rows, 1 of 3 tasks done, 6 s so far, about 12 s left\n" in picture
    assert "waiting" not in picture


def test_after_that_how_far_it_is_behind() -> None:
    view = LiveView(screen())
    live = TableStatus(state="live", changes=4000, rows=10, changes_per_second=20.5)
    known: dict[str, Any] = {"batch": batch(), "tables": {NAME: live}, "changes_per_second": 20.5}
    lag = LagStatus(seconds=2.5, transactions=1)
    doing = activity("applying", 2, rows=1, changes=5, tables_written=1, tables_to_write=3)
    view.update(status(activity=doing, lag=lag, **known))
    assert f"{NAME} │ live  │ 4,000 changes, 20.5 changes/s, 10 rows read" in drawn(view)
    assert "applying 1 row and 5 changes: 1 of 3 tables written, 2 s so far\n" in drawn(view)
    assert f"lag 2.5 s, at least 1 transaction behind, 20.5 changes/s\nup to {GTID}\n" in drawn(view)
    fresh = FreshnessStatus(p50=0.5, p99=1.25)
    view.update(status(activity=doing, lag=lag, freshness=fresh, **known))
    assert "lag 2.5 s, at least 1 transaction behind, freshness p50 0.5 s, p99 1.2 s, 20.5 changes/s\n" in drawn(view)
    waiting = status("idle", activity=activity("waiting", 9), lag=LagStatus(seconds=0, transactions=0), **known)
    view.update(waiting)
    assert "\nwaiting for changes\nlag 0.0 s, 20.5 changes/s\n" in drawn(view)
    view.update(status(error="cannot connect", activity=activity("retrying"), **known))
    assert "cannot connect; trying again" in drawn(view)
    snapshot = SnapshotStatus(tables=2, rows=900, rows_estimate=4000, seconds_left=65)
    view.update(status(activity=activity("planning"), snapshot=snapshot))
    assert "snapshot of 2 tables: 900 of about 4,000 rows (22 %), about 1 min 5 s left\n" in drawn(view)


def test_stopping() -> None:
    view = LiveView(screen())
    view.update(status(activity=activity("applying", 5, rows=7), batch=batch()))
    view.stop_requested()
    assert drawn(view).startswith(
        "stopping when this is done, Ctrl-C again ends at once:\napplying 7 rows, 5 s so far\n"
    )
    view.update(status(activity=activity("stopping"), batch=batch()))
    assert drawn(view).startswith("stopping; Ctrl-C again ends at once\n")
    waiting = activity("stopping", 5).model_copy(update={"waits_for": "Spark to end"})
    view.update(status(activity=waiting, batch=batch()))
    assert drawn(view).startswith("stopping: waiting for Spark to end, 5 s so far; Ctrl-C again ends at once\n")
    with view:
        pass
    assert drawn(view) == f"up to {GTID}\n"


def test_names_and_reasons_are_shown_as_they_are() -> None:
    console = screen()
    with LiveView(console) as view:
        view.update(status(tables={NAME: TableStatus(state="stopped", reason="DROP TABLE `[b]x`; gone")}))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "connecting" in shown
    assert NAME in shown
    assert "DROP TABLE `[b]x`; gone" in shown


@pytest.mark.parametrize("height", [12, 24, 60])
def test_the_picture_fits_the_terminal(height: int) -> None:
    """A thousand tables, and every figure long: what is under way is always to be seen, and nothing scrolls."""
    view = LiveView(screen(width=80, height=height))
    tables = {f"shop.table_{i:04}": TableStatus(state="live", changes=10**12, rows=10**12) for i in range(1000)}
    tables |= {"shop.zz_bad": TableStatus(state="stopped", reason="gone"), NAME: TableStatus(state="snapshotting")}
    full_status = reading(6, tasks=10**9, tasks_done=10**8, seconds_left=1e6).model_copy(
        update={
            "tables": tables, "error": "cannot connect", "batch": batch().model_copy(update={"gtid": GTID * 9}),
            "snapshot": SnapshotStatus(tables=1, rows=10**12, rows_estimate=10**13, seconds_left=1e6),
        }
    )  # fmt: skip
    view.update(full_status)
    lines = drawn(view).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= 80
    assert {name for name in ("shop.zz_bad", NAME) if not any(name in line for line in lines)} == set()
    shown = sum("shop.table_" in line for line in lines)
    assert shown >= (height - 20) // 2
    assert f"and {1000 - shown:,} other tables" in lines
    assert f"reading {NAME} (chunks 1–3 of 7)" in lines  # noqa: RUF001


def test_columns_do_not_shrink_from_second_to_second() -> None:
    view = LiveView(screen())
    widths = set()
    for tasks_done in (1, 100_000, 20):
        view.update(reading(6, tasks=100_000, tasks_done=tasks_done))
        widths.add(len(drawn(view).splitlines()[0]))
    assert len(widths) == 1


# --- a terminal that goes


class Gone(io.StringIO):
    """A terminal that is closed at some time."""

    closed_by_user = False

    def write(self, text: str) -> int:
        if self.closed_by_user:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_the_run_goes_on_without_its_terminal() -> None:
    gone = Gone()
    with LiveView(Console(file=gone, force_terminal=True)) as view:
        view.update(reading(1))
        gone.closed_by_user = True
        view.update(status())
