"""What `headgate run` logs without a terminal, from a status and batches made by hand."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.cli.log_lines import Format, LogLevel, log_to_stderr
from headgate.cli.log_view import LogView
from headgate.status import Activity, BatchStatus, LagStatus, Status, TableReadProgress, TableStatus
from tests.logged import logged_here

NAME = "shop.[red]orders"
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"
LAG = LagStatus(seconds=0.8)


def status(second: float = 0, number: int | None = None, **more: Any) -> Status:
    """A run's status at a second, after a batch of a number."""
    fields = {"pipeline": "shop", "pid": 1, "host": "h", "started_us": 0, "state": "running", "lag": LAG, **more}
    if number is not None and "batch" not in fields:
        fields["batch"] = batch(number)
    return Status(updated_us=int(second * 1e6), **fields)


def batch(number: int, **more: Any) -> BatchStatus:
    figures = {"rows": 0, "changes": 0, "seconds": 2.0, **more}
    return BatchStatus(batch_id=number, epoch=number, gtid=GTID, committed_us=0, **figures)


def live(changes: int = 0, rows: int = 0) -> dict[str, TableStatus]:
    return {NAME: TableStatus(state="live", changes=changes, rows=rows)}


def lines(caplog: pytest.LogCaptureFixture, *updates: Status, level: str = "INFO") -> list[str]:
    caplog.set_level(level, "headgate")
    view = LogView()
    for update in updates:
        view.update(update)
    return [record.getMessage() for record in logged_here(caplog)]


@pytest.mark.parametrize(
    ("table", "figures", "expected"),
    [
        (live(changes=63), {"seconds": 1.5}, "1.5 s, 63 changes (42.0/s) in 1 table, lag 0.8 s"),
        (live(rows=1_000_000), {"seconds": 4.0}, "4.0 s, 1,000,000 rows read (250,000.0/s) in 1 table, lag 0.8 s"),
        (live(1, 1), {}, "2.0 s, 1 row read (0.5/s), 1 change (0.5/s) in 1 table, lag 0.8 s"),
        (live(7, 5), {"seconds": 0.0}, "0.0 s, 5 rows read, 7 changes in 1 table, lag 0.8 s"),
        (live(), {}, "2.0 s, nothing in these tables, lag 0.8 s"),
        (live(), {"replayed": True}, "2.0 s, it was in the ledger already, lag 0.8 s"),
    ],
)
def test_a_batch(
    caplog: pytest.LogCaptureFixture, table: dict[str, TableStatus], figures: dict[str, Any], expected: str
) -> None:
    after = status(1, tables=table, batch=batch(2, **figures))
    assert lines(caplog, status(tables=live()), after, after) == [f"batch 2: {expected}, up to {GTID}"]


def test_batches_have_one_line_a_period(caplog: pytest.LogCaptureFixture) -> None:
    """An hour with a batch a second: the first batch at once, six periods of ten seconds, then one a minute."""
    updates = [status(second, second, tables=live(changes=10 * second)) for second in range(1, 3600)]
    written = lines(caplog, status(tables=live()), *updates)
    assert written[:2] == [
        f"batch 1: 2.0 s, 10 changes (5.0/s) in 1 table, lag 0.8 s, up to {GTID}",
        f"10 batches in 10 s: 100 changes (10.0/s) in 1 table, lag 0.8 s, up to {GTID}",
    ]
    assert written[-1].startswith("60 batches in 1 min 0 s: 600 changes (10.0/s) in 1 table")
    assert len(written) == 1 + 6 + 58


def test_what_is_left_of_a_period_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headgate")
    with LogView() as view:
        for second in range(4):
            view.update(status(second, second or None, tables=live(second), batches=second))
    assert [record.getMessage() for record in logged_here(caplog)] == [
        f"batch 1: 2.0 s, 1 change (0.5/s) in 1 table, lag 0.8 s, up to {GTID}",
        f"2 batches in 2.0 s: 2 changes (1.0/s) in 1 table, lag 0.8 s, up to {GTID}",
        "ended after 3 batches: 3 changes",
    ]


def test_a_run_that_fails_has_no_last_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headgate")
    with contextlib.suppress(OSError), LogView() as view:
        view.update(status(state="failed"))
        raise OSError("disk")
    assert logged_here(caplog) == []


def test_a_new_state_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    reason = "DROP TABLE"
    tables = {"a.b": TableStatus(state="stopped", reason=reason), NAME: TableStatus(state="live", rows=3)}
    updates = [status(1, 1, tables=live()), status(2, 2, tables=tables), status(3, 3, tables=tables)]
    written = lines(caplog, status(tables={NAME: TableStatus(state="snapshotting")}), *updates)
    assert written[0] == f"{NAME} live: 0 changes"
    assert written[2:] == ["a.b stopped: DROP TABLE"]


def test_a_table_that_is_as_it_was_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """After a restart the figures of a run begin at 0."""
    assert lines(caplog, status(tables=live()), status(1, 1, tables=live())) == [
        f"batch 1: 2.0 s, nothing in these tables, lag 0.8 s, up to {GTID}"
    ]


def test_many_tables_are_counted_if_they_need_no_care(caplog: pytest.LogCaptureFixture) -> None:
    good = {f"shop.t{number:02}": TableStatus(state="live") for number in range(11)}
    bad = {f"shop.u{number:02}": TableStatus(state="stopped", reason="gone") for number in range(11)}
    written = lines(caplog, status(), status(1, 1, tables={**good, **bad}))
    assert written[0] == "11 tables are live"
    assert written[1:12] == [f"{name} stopped: gone" for name in bad]


def test_a_table_that_is_being_read_has_a_line_a_period(caplog: pytest.LogCaptureFixture) -> None:
    def progress(rows: int) -> dict[str, TableStatus]:
        read: dict[str, Any] = {
            "rows": rows,
            "rows_read": rows,
            "rows_estimate": 1000,
            "chunks_done": 3,
            "chunks_estimate": 5,
        }
        return {NAME: TableStatus(state="snapshotting", **read)}

    updates = [status(second, second, tables=progress(50 * second)) for second in range(1, 12)]
    written = lines(caplog, status(tables=progress(0)), *updates)
    assert [line for line in written if line.startswith(NAME)] == [
        f"{NAME} snapshotting: 50 of about 1,000 rows (5 %), 3 of 5 chunks",
        f"{NAME} snapshotting: 550 of about 1,000 rows (55 %), 3 of 5 chunks",
    ]


def test_debug_has_each_batch_and_table(caplog: pytest.LogCaptureFixture) -> None:
    updates = [status(second, second, tables=live(3 * second)) for second in range(1, 4)]
    written = lines(caplog, status(tables=live()), *updates, level="DEBUG")
    assert written[-2:] == [f"{NAME}: 3 changes (1.5/s)", f"batch 3: 2.0 s, up to {GTID}"]


def test_what_takes_long_has_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    def activity(phase: str, seconds: float = 0.0, **more: Any) -> Activity:
        return Activity(phase=phase, since_us=-int(seconds * 1e6), **more)  # type: ignore[arg-type]

    def reading(done: int) -> Activity:
        table = TableReadProgress(first=1, last=3, chunks_estimate=7, rows_estimate=500_000)
        figures = {"rows_estimate": 500_000, "transactions": 0, "tasks": 3000, "tasks_done": done}
        return activity("reading", tables={NAME: table}, **figures)

    written = lines(
        caplog,
        *(status(second, activity=reading(second)) for second in range(3000)),
        *(status(second, activity=activity("applying", rows=9)) for second in range(4)),
        *(status(activity=activity("waiting", 60)) for _ in range(50)),
    )
    times = [line.rpartition(", ")[2].removesuffix(" so far") for line in written]
    assert times[:8] == ["3 s", "13 s", "23 s", "33 s", "43 s", "54 s", "1 min 8 s", "1 min 25 s"]
    assert 15 < len(written) < 30, "the longer it takes, the fewer"
    assert written[1].startswith(f"reading {NAME} (chunks 1–3 of 7): about 500,000 rows, 13 of 3,000 tasks done")  # noqa: RUF001
    assert written[-1] == "applying 9 rows, 3 s so far"


# --- the lines of all commands


@contextlib.contextmanager
def logged_to_stderr(*options: Any, **more: Any) -> Iterator[None]:
    """Logging is set up in the block, as in a new process."""
    root, ours = logging.getLogger(), logging.getLogger("headgate")
    handlers, levels = root.handlers, (root.level, ours.level)
    root.handlers = []
    try:
        log_to_stderr(*options, **more)
        yield
    finally:
        root.handlers = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LogLevel.debug, ["fine", "news", "trouble", "other trouble"]),
        (LogLevel.info, ["news", "trouble", "other trouble"]),
        (LogLevel.warning, ["trouble", "other trouble"]),
        (LogLevel.error, []),
    ],
)
def test_levels(capsys: pytest.CaptureFixture[str], level: LogLevel, expected: list[str]) -> None:
    with logged_to_stderr(level):
        logging.getLogger("headgate").debug("fine")
        logging.getLogger("headgate").info("news")
        logging.getLogger("headgate.part").warning("trouble")
        logging.getLogger("library").info("other news")
        logging.getLogger("library").warning("other trouble")
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 3)[3] for line in printed] == expected


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with logged_to_stderr(form=Format.json):
        view = LogView()
        view.update(status(tables=live()))
        view.update(status(1, 2, tables=live(changes=63)))
        try:
            raise OSError("full")
        except OSError:
            logging.getLogger("headgate").exception("cannot write to\n%s", "ä")
    batches, failure = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert batches["timestamp"].endswith("Z")
    del batches["timestamp"]
    text = f"batch 2: 2.0 s, 63 changes (31.5/s) in 1 table, lag 0.8 s, up to {GTID}"
    fields = {"batch": 2, "batches": 1, "seconds": 2.0, "rows": 0, "changes": 63, "tables": 1, "lag_seconds": 0.8}
    assert batches == {"level": "info", "event": text, "gtid": GTID, **fields}
    assert (failure["level"], failure["event"]) == ("error", "cannot write to\nä")
    assert failure["exception"].endswith("OSError: full")
