"""The status that a run keeps of itself: what is written when, with clocks that stand still."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import Batch, Commits, ControlFolder, Header
from headgate.errors import BinlogPurgedError, ConnectError, ConnectionLostError, TargetError
from headgate.lake import TableState, WriteMethod
from headgate.pipeline import StatusWriter, record_failure
from headgate.sinks import BatchReport
from headgate.status import FilesStatus, IndexStatus, LagStatus, RequestsStatus, Status, progress_lines, read_status
from headgate.ui import PipelineView
from tests.logged import logged_here

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START_US = 1_700_000_000_000_000
AWAY = " (see docs/runbook.md#server-away)"


class Clocks:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now = 500.0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return START_US + int((self.now - 500) * 1e6)


class Run:
    """A writer whose own thread never wakes up; ``beat`` is what that thread would do."""

    def __init__(self, folder: Path) -> None:
        self.clocks = Clocks()
        self.inbox = ControlFolder(str(folder / "inbox"))
        self.writer = StatusWriter(
            self.inbox, "shop", beat_seconds=5.0, clock=self.clocks.monotonic, wall_us=self.clocks.wall_us
        )
        self.writer._ending.wait = lambda timeout=None: True  # type: ignore[method-assign]

    def beat(self, seconds: float) -> Status:
        self.clocks.now += seconds
        self.writer._read_reports()
        self.writer._write()
        return self.read()

    def waits(self, epoch: int, **more: Any) -> None:
        """The planner finds nothing to do after that batch."""
        self.inbox.write("waiting.json", {"epoch": epoch, "seen_us": 0, "paused": False, **more})

    def read(self) -> Status:
        status = read_status(self.inbox, self.clocks.wall_us())
        assert status is not None
        return status


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def batch(first: int, last: int, behind: int = 0, planned_us: int = 0) -> Batch:
    header = Header(last, f"{UUID}:1-{first}", f"{UUID}:1-{last}", UUID, planned_us, behind=behind)
    return Batch(header, {}, [], [], [])


def report(number: int, last: int, **more: Any) -> BatchReport:
    tables = more.pop("tables", {"shop.orders": TableState("shop.orders", "live", version=number)})
    fields = {"start": f"{UUID}:1-{last - 2}", "seconds": 1.25, "planned_us": START_US, **more}
    return BatchReport(number, 1000 + number, f"{UUID}:1-{last}", tables, **fields)


@pytest.mark.parametrize("since", [(None, None), (1001, 1003)])
def test_a_snapshot_that_begins_again_counts_its_own_rows(run: Run, since: tuple[int | None, int | None]) -> None:
    """Without a current table the ledger does not tell one from the next, and its chunks do."""
    first, second = since
    batches = [(first, 3), (first, None), (first, 5), (second, 1), (second, 2)]
    read = []
    with run.writer as writer:
        for number, (epoch, chunks) in enumerate(batches, 1):
            state = TableState("shop.items", "snapshotting", since_epoch=epoch, chunks_done=chunks)
            writer.ends(report(number, 10 + number, tables={"shop.items": state}, rows={"shop.items": 10}))
            read.append(run.read().tables["shop.items"].rows_read)
    assert read[:3] == [10, 20, 30]
    assert read[4] - read[3] == 10
    assert read[3] == 10


def test_from_start_to_a_clean_stop(run: Run) -> None:
    with run.writer as writer:
        status = run.read()
        assert (status.state, status.pipeline, status.pid, status.batches) == ("running", "shop", os.getpid(), 0)
        assert status.started_us == status.updated_us == START_US
        assert status.lag == LagStatus(), "nobody has asked the server yet"
        writer.starts()
        snapshotting = TableState(
            "shop.items", "snapshotting", 3, since_epoch=1001, rows_estimate=900, chunks_done=2, chunks_estimate=5
        )
        live = TableState("shop.orders", "live", version=7, rows_estimate=5, chunks_done=1, chunks_estimate=1)
        run.clocks.now += 10
        writer.ends(
            report(
                1, 12, tables={"shop.orders": live, "shop.items": snapshotting}, images={"shop.orders": 50},
                changes={"shop.orders": 30}, rows={"shop.items": 600}, planned_us=START_US + 8_000_000,
            )
        )  # fmt: skip
        status = run.read()
        assert status.state == "running"
        assert (status.lag.seconds, status.as_of_us) == (2.0, START_US + 8_000_000)
        assert status.lag.transactions is None, "what was committed since then nobody has counted"
        assert (status.changes_per_second, status.rows_per_second) == (3.0, 60.0)
        assert status.batch is not None
        assert (status.batch.changes, status.batch.rows, status.batch.gtid) == (30, 600, f"{UUID}:1-12")
        assert status.batch.committed_us == START_US + 10_000_000
        assert list(status.tables) == ["shop.items", "shop.orders"]
        assert status.tables["shop.items"].model_dump() == {
            "state": "snapshotting", "version": 3, "since_epoch": 1001, "rows_read": 600, "rows_estimate": 900,
            "chunks_done": 2, "chunks_estimate": 5, "beside": False, "reason": None, "place": None,
            "changes": 0,
            "rows": 600, "changes_per_second": 0.0, "hook": None, "ignored": (), "files": None,
        }  # fmt: skip
        assert status.tables["shop.orders"].rows_estimate is None, "it is read: no figure of the reading is left"
        assert status.tables["shop.orders"].changes_per_second == 3.0
        assert status.snapshot is not None
        assert (status.snapshot.rows, status.snapshot.rows_estimate, status.snapshot.seconds_left) == (600, 900, None)
        assert status.recent[0].transactions == 2
        assert status.recent[0].tables == 2
        status = run.beat(4)
        assert (status.state, status.lag.seconds) == ("running", 6.0)
        assert status.activity is not None
        assert status.activity.phase == "planning"
        run.waits(1001)
        status = run.beat(2)
        assert (status.state, status.lag, status.changes_per_second) == (
            "idle", LagStatus(seconds=0.0, transactions=0), 1.9,
        )  # fmt: skip
        assert status.activity is not None
        assert status.activity.phase == "waiting"
        assert run.beat(60).changes_per_second == 0
        writer.ends(report(2, 13, tables={"shop.items": snapshotting}, changes={"shop.items": 9}))
        assert run.read().tables["shop.items"].changes_per_second > 0
    status = run.read()
    assert (status.state, status.error, status.activity) == ("stopped", None, None)
    assert (status.changes_per_second, status.tables["shop.items"].changes_per_second) == (0.0, 0.0)
    assert status.snapshot is not None
    assert (status.snapshot.rows, status.snapshot.seconds_left) == (600, None), "nobody goes on with it"
    assert not status.is_alive()


def test_what_a_run_does_is_said_from_the_beginning(run: Run) -> None:
    def phase() -> tuple[str, str, int]:
        status = run.beat(3)
        assert status.activity is not None
        return status.state, status.activity.phase, (status.updated_us - status.activity.since_us) // 1_000_000

    with run.writer as writer:
        assert phase() == ("running", "starting", 3)
        writer.enters("checking")
        assert phase() == ("running", "checking", 3)
        writer.starts()
        for _ in range(10):
            assert phase()[:2] == ("running", "planning"), "nothing says that there is nothing to do"
        writer.reads(0)
        assert phase() == ("running", "reading", 3)
        assert phase() == ("running", "reading", 6)
        writer.applies(batch(0, 1))
        assert phase() == ("running", "applying", 3)
        writer.commits()
        assert phase() == ("running", "committing", 3)
        writer.ends(report(0, 2))
        assert phase() == ("running", "planning", 3)
        writer.rests()
        assert phase() == ("running", "resting", 3)
        run.waits(1000)
        assert phase() == ("running", "resting", 6), "the planner is not asked meanwhile, and the lag grows"
        writer.plans()
        run.waits(1000)
        assert phase() == ("idle", "waiting", 0)
        assert phase() == ("idle", "waiting", 3)
        writer.tries_again(ConnectionLostError("lost"))
        assert phase() == ("running", "retrying", 3)
        writer.starts()
        writer.reads(1)
        writer.stops("Spark to end")
        run.waits(1000)
        writer.applies(batch(1, 2))
        assert phase() == ("running", "stopping", 3), "the batch was dropped, whatever it does"
        writer.rests()
        writer.plans()
        assert phase() == ("running", "stopping", 6), "a pause of a run that ends is none"
        activity = run.read().activity
        assert activity is not None
        assert activity.waits_for == "Spark to end"


def test_a_rest_that_ends_with_the_run_is_no_planning(run: Run) -> None:
    with run.writer as writer:
        writer.rests()
        writer.stops("Spark to end")
        writer.plans()
        activity = run.beat(1).activity
        assert activity is not None
        assert activity.phase == "stopping"


def test_a_batch_knows_how_long_its_phases_took(run: Run) -> None:
    def takes(seconds: float) -> dict[str, float]:
        activity = run.beat(seconds).activity
        assert activity is not None
        return activity.phases

    with run.writer as writer:
        writer.starts()
        assert takes(7) == {}
        planned_us = run.clocks.wall_us()
        assert takes(2) == {}
        writer.reads(1)
        assert takes(3) == {}, "when it was planned is not known before it is read"
        writer.applies(batch(0, 2, planned_us=planned_us))
        assert takes(4) == {"planning": 2.0, "reading": 3.0}, "the time before was none of this batch"
        writer.commits()
        assert takes(0.5) == {"planning": 2.0, "reading": 3.0, "applying": 4.0}
        writer.ends(report(1, 2))
        took = {"planning": 2.0, "reading": 3.0, "applying": 4.0, "committing": 0.5}
        status = run.read()
        assert status.batch is not None
        assert (status.batch.phases, status.recent[0].phases) == (took, took)
        assert takes(1) == {}
        writer.rests()
        run.clocks.now += 8
        writer.plans()
        run.clocks.now += 1
        writer.reads(2)
        writer.applies(batch(0, 2, planned_us=planned_us))  # planned before the run failed, and read again
        writer.ends(report(2, 2, replayed=True))
        status = run.read()
        assert status.batch is not None
        assert status.batch.phases == {"planning": 1.0, "reading": 0.0, "applying": 0.0}
        run.clocks.now += 9
        run.waits(1002)
        assert takes(3) == {}
        writer.reads(3)
        later_us = run.clocks.wall_us() + 1
        run.clocks.now -= 60
        writer.applies(batch(2, 3, planned_us=later_us))
        assert takes(0) == {"planning": 0.0, "reading": 0.0}, "a clock that is set back"


def test_waiting_is_what_the_planner_says_of_the_newest_batch(run: Run) -> None:
    run.waits(10**9)
    with run.writer as writer:
        writer.starts()
        assert run.beat(9).state == "running", "of the query before"
        run.waits(5)
        assert run.beat(1).state == "idle", "after the batch of an earlier run"
        writer.reads(1)
        assert run.beat(1).state == "running"
        writer.ends(report(1, 4))
        assert run.beat(9).state == "running", "it was said of the batch before"
        run.waits(1001, paused=True)
        status = run.beat(1)
        assert status.activity is not None
        assert (status.state, status.activity.paused) == ("idle", True)
        run.inbox.write("waiting.json", {"epoch": "nonsense"})
        assert run.beat(1).state == "running"


def test_an_idle_run_whose_server_gives_no_answer_is_neither_idle_nor_ready(run: Run) -> None:
    def is_ready(status: Status) -> bool:
        return PipelineView("shop", run.clocks.wall_us(), status).is_following

    with run.writer as writer:
        writer.starts()
        writer.ends(report(1, 4))
        run.waits(1001, seen_us=START_US, until_us=START_US + 30_000_000)
        status = run.beat(25)
        assert (status.state, status.error, status.lag.seconds, is_ready(status)) == ("idle", None, 0.0, True)
        status = run.beat(6)
        assert (status.state, status.lag.seconds, is_ready(status)) == ("running", 6.0, False)
        assert status.error == f"no answer from MySQL since 2023-11-14 22:13:20Z{AWAY}"
        assert run.beat(60).lag.seconds == 66.0, "as long as there is none"
        writer.reads(2)
        assert run.beat(1).error is None, "it has answered, with a batch"
        writer.ends(report(2, 8))
        assert run.beat(1).error is None
        run.waits(1002)
        assert run.beat(1).state == "idle"


def test_a_batch_under_way_is_lag(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        writer.ends(report(1, 10))
        run.waits(1001)
        assert run.beat(30).state == "idle"
        run.clocks.now += 1
        writer.reads(2)
        assert run.beat(4).lag.seconds == 5.0
        writer.applies(batch(10, 14, behind=3))
        status = run.beat(4)
        assert (status.state, status.lag.seconds, status.lag.transactions) == ("running", 9.0, 7)
        planned = START_US + 31_000_000
        writer.ends(
            report(2, 14, behind=3, planned_us=planned, commits={"shop.orders": [Commits(0, planned - 500_000, 1)]})
        )
        assert run.read().lag.transactions == 3
        assert run.read().as_of_us == planned - 500_000, "limited batches: there is more after its newest change"
        status = run.beat(30)
        assert (status.state, status.lag.transactions, status.lag.seconds) == ("running", 3, 38.5)
        writer.ends(report(3, 16, behind=3, planned_us=planned - 9))
        assert run.read().as_of_us == planned - 500_000, "a batch without changes of tables says nothing new"


def test_a_clock_that_was_ahead_leaves_no_moment_in_the_future(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        writer.ends(report(1, 10))
        run.clocks.now += 3600
        run.waits(1001)
        assert run.beat(1).state == "idle"
        run.clocks.now -= 3600
        writer.reads(2)
        status = run.beat(5)
        assert (status.as_of_us, status.lag.seconds) == (None, None)
        planned = run.clocks.wall_us() - 2_000_000
        writer.ends(report(2, 12, planned_us=planned))
        assert (run.read().as_of_us, run.read().lag.seconds) == (planned, 2.0)
        run.clocks.now += 3600
        assert run.beat(1).state == "running"
        writer.ends(report(3, 14, planned_us=run.clocks.wall_us()))
        run.clocks.now -= 3600
    after = Run(Path(run.inbox.path).parent)
    with after.writer:
        assert after.read().as_of_us is None, "of the run before"


def test_a_run_that_begins_with_nothing_to_do_is_up_to_date(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        run.waits(0, seen_us=run.clocks.wall_us())
        assert run.beat(5).state == "idle"
        now = run.clocks.wall_us()
        made = Commits(now - 2_000_000, now - 2_000_000, 10)
        writer.ends(report(1, 4, commits={"shop.orders": [made]}, committed_us=now))
        assert run.read().freshness.p50 == pytest.approx(2.0, rel=0.1), "its first batch counts"


def test_freshness_is_from_the_commit_to_the_ledger(run: Run) -> None:
    def ends(number: int, seconds: float, **more: Any) -> Status:
        now = run.clocks.wall_us()
        made = Commits(now - int(seconds * 1e6), now - int(seconds * 1e6), 10)
        fields = {"commits": {"shop.orders": [made], "shop.gone": [made]}, "committed_us": now, **more}
        writer.ends(report(number, 2 * number + 2, **fields))
        return run.read()

    with run.writer as writer:
        assert run.read().freshness.changes == 0
        first = ends(1, 40.0, behind=3).freshness
        assert (first.p50, first.changes) == (None, 10), "the run is not up to date yet"
        first = ends(2, 40.0).freshness
        assert (first.p50, first.changes) == (None, 20), "what this batch brought has waited for the run"
        run.clocks.now += 5
        figures = ends(3, 2.0).freshness
        assert (figures.changes, figures.seconds, dict(figures.buckets)[2.0], dict(figures.buckets)[1.0]) == (
            30,
            820.0,
            10,
            0,
        )
        assert figures.p50 == pytest.approx(2.0, rel=0.1)
        assert ends(3, 9.0, replayed=True, committed_us=None).freshness == figures, "it was in the ledger already"
        held = {"shop.orders": TableState("shop.orders", "stale")}
        assert ends(4, 9.0, tables=held).freshness == figures, "the table does not take its changes"
        assert run.beat(310).freshness.p50 is None
        assert run.read().freshness.changes == 30
    figures = run.read().freshness
    assert (figures.p50, figures.changes) == (None, 30)
    with Run(Path(run.inbox.path).parent).writer:
        assert run.read().freshness.changes == 0, "totals begin at 0 with each run"


def test_the_history_of_lag_and_rate(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        run.waits(10**9)
        run.beat(1)
        run.clocks.now += 5
        writer.reads(1)
        run.beat(4)
        run.clocks.now += 2.5
        now = run.clocks.wall_us()
        writer.ends(report(1, 4, changes={"shop.orders": 60}, planned_us=now - 1_000_000, committed_us=now))
        history = run.read().history
        assert history.lag_seconds[-1] == 11.5, "what it was just before the batch was in the ledger"
        assert history.changes_per_second[-1] > 0
        for _ in range(500):
            run.beat(2)
        assert len(run.read().history.at_us) == 120
    before = run.read().history
    again = Run(Path(run.inbox.path).parent)
    again.clocks.now = run.clocks.now + 20
    with again.writer:
        assert again.read().history.at_us[:-1] == before.at_us[-len(again.read().history.at_us) + 1 :]
        assert len(again.read().history.at_us) > 100


def test_how_tables_are_written(run: Run) -> None:
    tables = {name: TableState(name, "live", version=1) for name in ("shop.orders", "shop.items")}
    upserted, both = frozenset({WriteMethod.UPSERT}), frozenset({WriteMethod.UPSERT, WriteMethod.APPEND})
    with run.writer as writer:
        writer.ends(report(1, 2, tables=tables, write_methods={"shop.orders": upserted, "shop.items": both}))
        assert run.read().writes == {"append": 1, "upsert": 2}
        writer.ends(report(2, 4, tables=tables, write_methods={"shop.orders": upserted}))
        assert run.read().writes == {"append": 1, "upsert": 3}


def test_the_key_indexes(run: Run) -> None:
    building = IndexStatus(tables_building=2, bytes_on_disk=10**9)
    run.writer.indexes = lambda: building
    with run.writer:
        assert run.beat(1).index == building
    assert run.read().index is None


def test_files_and_requests(run: Run) -> None:
    with run.writer:
        run.writer.ends(report(1, 12))
        assert (run.beat(1).files, run.read().requests) == (None, None)
        table, internal = FilesStatus(data=1, vectors=2, log=3, bytes=4), FilesStatus(data=10, log=30, bytes=40)
        run.writer.files = lambda: {"shop.orders": table, None: internal}
        requests = RequestsStatus(seconds=1.0, put=1)
        run.writer.counts_requests(requests)
        status = run.beat(1)
        assert (status.files, status.tables["shop.orders"].files, status.requests) == (
            table + internal,
            table,
            requests,
        )
        run.writer.files = dict
        run.writer.ends(report(2, 14))
        assert run.read().tables["shop.orders"].files == table, "until it is counted again"
    assert run.read().files == table + internal


def test_totals_rates_and_history(run: Run) -> None:
    with run.writer as writer:
        for number in range(60):
            run.clocks.now += 1
            writer.ends(report(number, 2 * number + 2, changes={"shop.orders": 2}, seconds=1.0))
        status = run.beat(0)
        assert status.batches == 60
        assert status.tables["shop.orders"].changes == 120
        assert status.changes_per_second == 2.0
        assert [row.batch_id for row in status.recent] == list(range(59, 9, -1))
        writer.ends(report(59, 120, changes={"shop.orders": 2}, replayed=True))
        status = run.read()
        assert len({row.epoch for row in status.recent}) == 50, "a replayed batch is no new one"
        assert status.tables["shop.orders"].changes == 120
        assert status.batches == 60, "it was committed before"
        writer.ends(report(77, 160, changes={"shop.orders": 5}, replayed=True))
        status = run.read()
        assert status.recent[0].changes == 5, "the run before was killed before it could say what it had done"
        assert (status.tables["shop.orders"].changes, status.batches) == (120, 60)


def test_the_rows_of_one_snapshot_of_a_table(run: Run) -> None:
    """They are counted through restarts; the next snapshot of the table begins with none."""

    def read(number: int, rows: int, since: int | None, state: str = "snapshotting") -> tuple[int, int]:
        table = TableState("shop.items", state, since_epoch=since, rows_estimate=1000)
        writer.ends(report(number, 2 * number, tables={"shop.items": table}, rows={"shop.items": rows} if rows else {}))
        known = run.read().tables["shop.items"]
        return known.rows_read, known.rows

    with run.writer as writer:
        assert read(1, 0, None) == (0, 0)
        assert read(2, 300, 1002) == (300, 300)
    run = Run(Path(run.inbox.path).parent)
    with run.writer as writer:
        assert read(3, 200, 1002) == (500, 200)
        assert read(4, 100, 1004) == (100, 300), "it is read again from the beginning"
        assert read(5, 50, None, "live") == (0, 350)
        assert read(6, 70, 1006) == (70, 420)


def test_warnings_are_kept_newest_first(run: Run) -> None:
    with run.writer as writer:
        for number in range(30):
            writer.ends(report(number, 9, warnings=(f"shop.old is stopped: {number}",)))
        warnings = run.read().warnings
        assert len(warnings) == 20
        assert (warnings[0].text, warnings[0].level) == ("shop.old is stopped: 29", "warning")


def test_a_failure_that_is_tried_again(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        run.waits(1)
        assert run.beat(1).lag.seconds == 0.0
        writer.tries_again(ConnectionLostError("the connection\nended"))
        status = run.beat(20)
        assert (status.state, status.error, status.lag.seconds) == ("running", f"the connection ended{AWAY}", 20.0)
        assert (status.warnings[0].level, status.warnings[0].text) == ("error", "the connection ended")
        writer.starts()
        status = run.beat(10)
        assert (status.error, status.lag.seconds) == (f"the connection ended{AWAY}", 30.0), "it has not gone well yet"
        run.waits(1)
        status = run.beat(10)
        assert (status.state, status.error, status.lag.seconds) == ("idle", None, 0.0), "nothing was under way"
        writer.reads(2)
        writer.tries_again(ConnectionLostError("again"))
        writer.starts()
        status = run.beat(20)
        assert (status.error, status.lag.seconds) == (f"again{AWAY}", 20.0), "the batch is still to be done"
        writer.ends(report(1, 2))
        assert run.read().error is None


def test_a_planner_that_cannot_reach_the_server(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headgate")
    run.inbox.write("trouble.json", {"error": "of a run that was killed", "since_us": 0})
    with run.writer as writer:
        writer.starts()
        run.waits(1)
        assert run.beat(10).state == "idle"
        trouble = {"error": "cannot connect\nto MySQL", "since_us": START_US + 9_000_000}
        run.inbox.write("trouble.json", trouble)
        status = run.beat(5)
        assert (status.state, status.error, status.lag.seconds) == ("running", "cannot connect to MySQL", 5.0)
        run.inbox.write("trouble.json", {**trouble, "error": "still cannot"})
        status = run.beat(5)
        assert (status.error, status.lag.seconds, len(status.warnings)) == ("still cannot", 10.0, 1)
        run.inbox.delete("trouble.json")
        status = run.beat(5)
        assert (status.state, status.error, status.lag.seconds) == ("idle", None, 0.0)
        assert [(one.levelname, one.getMessage()) for one in logged_here(caplog)] == [
            ("WARNING", "cannot connect to MySQL; trying again"),
            ("INFO", "resumed, 16 s after this began: still cannot"),
        ]
        run.inbox.write("trouble.json", {"error": "nonsense"})
        assert run.beat(5).error is None
    assert run.read().error is None


def test_the_error_that_ends_a_run(run: Run) -> None:
    with pytest.raises(BinlogPurgedError), run.writer:
        raise BinlogPurgedError("the server has\npurged log")
    status = run.read()
    assert (status.state, status.error) == ("failed", "the server has purged log (see docs/runbook.md#lost-binlog)")
    assert status.transient is False, "a new start fails with the same error"
    with pytest.raises(ConnectError), Run(Path(run.inbox.path).parent).writer:
        raise ConnectError("nobody answers")
    assert run.read().transient is True
    with pytest.raises(KeyboardInterrupt), Run(Path(run.inbox.path).parent).writer:
        raise KeyboardInterrupt
    assert (run.read().state, run.read().transient) == ("stopped", None)
    texts = [warning.text for warning in run.read().warnings]
    assert texts[:2] == ["nobody answers", "the server has purged log"], "what the runs before have left"


def test_reading_stays_paused_until_a_batch_says_otherwise(run: Run) -> None:
    with run.writer as writer:
        writer.starts()
        assert not run.read().paused
        writer.ends(report(1, 10, paused=True))
        status = run.read()
        assert (status.activity and status.activity.phase, status.paused) == ("planning", True)
        assert "reading tables is paused" in progress_lines(status)
    assert (run.read().state, run.read().paused) == ("stopped", True)
    with Run(Path(run.inbox.path).parent).writer as writer:
        assert run.read().paused, "the stream goes on as it was"
        writer.ends(report(2, 12))
        assert not run.read().paused


def test_the_next_run_goes_on_where_this_one_was(run: Run) -> None:
    with run.writer as writer:
        writer.ends(report(1, 10, changes={"shop.orders": 4}))
    with Run(Path(run.inbox.path).parent).writer:
        status = run.read()
        assert (status.state, status.batches) == ("running", 0)
        assert [row.batch_id for row in status.recent] == [1]
        assert status.tables["shop.orders"].changes == 0
        assert status.as_of_us == START_US, "that the lake has everything up to then is as true as before"
        assert status.tables["shop.orders"].state == "live"


def test_the_file_is_kept_fresh_by_itself(tmp_path: Path) -> None:
    """The thread writes without being told, and is gone when the run is."""
    inbox = ControlFolder(str(tmp_path))
    written = threading.Semaphore(0)

    class Counting(ControlFolder):
        def write(self, name: str, value: dict[str, Any]) -> None:
            super().write(name, value)
            written.release()

    before = set(threading.enumerate())
    with StatusWriter(Counting(str(tmp_path)), "shop", beat_seconds=0.01, tick_seconds=0.01):
        for _ in range(4):
            assert written.acquire(timeout=60)
        alive = read_status(inbox)
        assert alive is not None
        assert alive.is_alive()
    assert [one for one in threading.enumerate() if one.name == "headgate-status" and one not in before] == []


def test_a_status_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "inbox").write_text("a file where the folder should be")
    run = Run(tmp_path)
    with run.writer as writer:
        writer.ends(report(1, 10))
    (line,) = logged_here(caplog)
    assert line.levelname == "WARNING"
    assert "cannot be written" in line.getMessage()


def test_a_file_system_with_errors_of_its_own_stops_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(name: str, value: dict[str, Any]) -> None:
        raise ValueError("no such\nbucket")

    run.inbox.write = refuse  # type: ignore[method-assign]
    with run.writer as writer:
        writer.ends(report(1, 10))
    assert [line.getMessage().partition(": ")[2] for line in logged_here(caplog)] == ["no such bucket"]


def test_a_failure_before_the_run_began(run: Run) -> None:
    error = TargetError("no grant")
    record_failure(run.inbox, "shop", error)
    assert not Path(run.inbox.path).exists(), "nothing is left where nothing has run"
    noted = read_status(run.inbox)
    assert noted is not None
    assert (noted.condition(), noted.error) == ("failed", "no grant (see docs/runbook.md#refused-target)")
    with StatusWriter(run.inbox, "shop") as writer:
        record_failure(run.inbox, "shop", error)
        assert run.read().state == "running", "another run is alive"
        writer.ends(report(1, 10))
    record_failure(run.inbox, "shop", error)
    status = run.read()
    assert (status.state, status.error) == ("failed", "no grant (see docs/runbook.md#refused-target)")
    assert len(status.recent) == 1


def test_the_status_of_a_run_that_cannot_write_into_its_lake(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with run.writer as writer:
        writer.ends(report(1, 10))
    before = run.read()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run.clocks.now += 60
    with monkeypatch.context() as patch:
        patch.setattr(run.inbox, "write", refuse)
        record_failure(run.inbox, "shop", TargetError("the disk is full"))
        failed = run.read()
    assert (before.error, failed.state, failed.error) == (
        None,
        "failed",
        "the disk is full (see docs/runbook.md#refused-target)",
    )
    assert failed.recent == before.recent
    with StatusWriter(run.inbox, "shop", wall_us=run.clocks.wall_us) as writer:
        assert run.read().state == "running"
    assert run.read().error is None
    Path(run.inbox.path, "status.json").unlink()
    assert read_status(run.inbox) is None, "what was noted is gone"


def test_who_is_alive(run: Run) -> None:
    with run.writer:
        alive = run.read()
    now = alive.updated_us + 1_000_000
    gone = alive.model_copy(update={"pid": _nobody()})
    assert alive.is_alive(now)
    assert not alive.is_alive(now + 60_000_000), "silent for a minute"
    assert not gone.is_alive(now)
    assert gone.condition(now) == "not running"
    assert gone.model_copy(update={"host": "elsewhere"}).is_alive(now), "other processes have other numbers there"
    assert gone.model_copy(update={"pid_namespace": "pid:[1]"}).is_alive(now)
    assert alive.model_copy(update={"state": "stopped"}).condition(now) == "stopped"


def _nobody() -> int:
    """The number of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(60)
    return process.pid


def test_files_that_are_not_ours(run: Run) -> None:
    run.inbox.write("status.json", {"v": 3, "pipeline": "shop"})
    with pytest.raises(TargetError, match="newer headgate"):
        read_status(run.inbox)
    run.inbox.write("status.json", {"v": 2, "pipeline": "shop"})
    with pytest.raises(TargetError, match=r"damaged at pid"):
        read_status(run.inbox)
    with run.writer:
        assert run.read().state == "running", "a run overwrites it"


def test_what_is_added_later_is_understood(run: Run) -> None:
    with run.writer:
        value = json.loads((Path(run.inbox.path) / "status.json").read_text())
    run.inbox.write("status.json", {**value, "later": 1})
    assert run.read().pipeline == "shop"


def test_who_is_told_of_the_status(tmp_path: Path) -> None:
    """At each look, however rarely the file is written."""
    statuses: list[Status] = []
    clocks = Clocks()
    inbox = ControlFolder(str(tmp_path))
    writer = StatusWriter(
        inbox, "shop", clock=clocks.monotonic, wall_us=clocks.wall_us, on_status=statuses.append, beat_seconds=5.0
    )
    writer._ending.wait = lambda timeout=None: True  # type: ignore[method-assign]
    with writer:
        writer.starts()
        inbox.write("waiting.json", {"epoch": 1, "seen_us": 0, "paused": False})
        writer._tick()
        seen = []
        for _ in range(10):
            clocks.now += 1
            writer._tick()
            written = read_status(inbox)
            assert written is not None
            seen.append((statuses[-1].updated_us - START_US, statuses[-1].updated_us - written.updated_us))
        assert [at for at, _ in seen] == [second * 1_000_000 for second in range(1, 11)]
        assert sum(age == 0 for _, age in seen) == 2, "idle: each five seconds"
        writer.reads(1)
        count = 0
        for _ in range(10):
            clocks.now += 1
            writer._tick()
            written = read_status(inbox)
            count += written is not None and written.updated_us == statuses[-1].updated_us
        assert count == 5, "while something is under way, each two seconds"


def test_statuses_are_passed_on_in_order(tmp_path: Path) -> None:
    """One that is made while another is being taken waits, or totals would decrease for who takes them."""
    taking, go_on = threading.Event(), threading.Event()
    batches: list[int] = []

    def take(status: Status) -> None:
        if threading.current_thread() is looks:
            taking.set()
            assert go_on.wait(60)
        batches.append(status.batches)

    writer = StatusWriter(ControlFolder(str(tmp_path)), "shop", on_status=take)
    looks = threading.Thread(target=writer._tick)
    ends = threading.Thread(target=writer.ends, args=(report(1, 10),))
    looks.start()
    assert taking.wait(60)
    ends.start()
    ends.join(0.5)
    go_on.set()
    looks.join(60)
    ends.join(60)
    assert batches == [0, 1]
