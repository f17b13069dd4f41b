"""The figures of `headgate run`, from batches made by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headgate.cli._live import LiveView, LogView, TableProgress
from headgate.lake import Status, TableState, TableStatus, duration
from headgate.sinks import BatchReport
from tests.logged import logged_here

NAME = "shop.[red]orders"


def report(state: str, *, rows: int = 0, images: int = 0, newest_us: int | None = None, **more: object) -> BatchReport:
    table = TableState(NAME, state, rows_estimate=1000, reason=str(more.pop("reason", "")) or None)
    return BatchReport(
        1, 1, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", {NAME: table},
        {NAME: images} if images else {}, {NAME: rows} if rows else {},
        {NAME: newest_us} if newest_us is not None else {}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_snapshot_and_what_follows() -> None:
    table = TableProgress(NAME)
    table.take(report("snapshotting", rows=200), 10.0, 0.0)
    assert table.describe() == "200 of about 1,000 rows, 0 rows/s"
    table.take(report("snapshotting", rows=400), 14.0, 0.0)
    assert table.describe() == "600 of about 1,000 rows, 100 rows/s, 4.0 s left"
    table.take(report("snapshotting", rows=400, replayed=True), 15.0, 0.0)
    assert table.rows == 600
    table.take(report("live", images=30, newest_us=97_500_000), 20.0, 100.0)
    assert table.describe() == "lag 2.5 s, 30 changes, 43.0 changes/s"
    table.take(report("live"), 21.0, 200.0)
    assert table.lag_seconds == 0
    table.take(report("snapshotting", rows=5), 22.0, 200.0)
    assert table.rows == 5, "a re-read counts from nothing"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_names_and_reasons_are_shown_as_they_are() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    with LiveView(screen) as view:
        view.take(report("stopped", reason="DROP TABLE `[b]x`; gone"))
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "starting Spark" in shown
    assert NAME in shown
    assert "DROP TABLE `[b]x`; gone" in shown


def status(state: str, error: str | None = None) -> Status:
    tables = {"shop.before": TableStatus(state="stopped", reason="DROP TABLE")}
    return Status(
        pipeline="shop", pid=1, host="h", started_us=0, updated_us=0, state=state, error=error, tables=tables,  # type: ignore[arg-type]
    )  # fmt: skip


def drawn(view: LiveView) -> str:
    screen = Console(file=io.StringIO(), width=120, color_system=None)
    screen.print(view._draw())
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_between_batches_the_status_is_shown() -> None:
    view = LiveView(Console(file=io.StringIO()))
    assert drawn(view) == "starting Spark …\n"
    view.begins()
    assert drawn(view) == "the first batch is being read …\n"
    view.tell(status("idle"))
    assert "shop.before │ stopped │ DROP TABLE" in drawn(view)
    assert drawn(view).endswith("waiting for changes\n")
    view.take(report("live", images=3, newest_us=0))
    view.tell(status("running", "cannot connect"))
    assert "cannot connect; trying again" in drawn(view)
    assert "lag 0.0 s" not in drawn(view)
    view.tell(status("idle"))
    assert "lag 0.0 s" in drawn(view), "what came is applied, and nothing came after it"
    assert drawn(view).endswith(":1-9, waiting for changes\n")
    view.ends()
    assert "stopping: what is under way may finish" in drawn(view)
    with view:
        pass
    assert drawn(view).endswith(":1-9\n")


def test_log_lines_only_where_something_happened(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headgate")
    with LogView() as view:
        view.take(report("live", images=3, newest_us=0))
        view.take(report("live"))
    lines = [record.getMessage() for record in logged_here(caplog)]
    assert [line.startswith(NAME) for line in lines] == [True, False, False]
