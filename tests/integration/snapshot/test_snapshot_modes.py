"""How a pipeline starts, by mode; tables with conditions; which locks it takes; who is told of it. Real pipelines on
servers whose log may be purged: one with GTIDs, and one without.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.control import NotificationDispatcher
from headgate.errors import BinlogPurgedError, ConfigError, HeadgateError, TargetError, UnsupportedError
from headgate.pipeline import check_source
from headgate_testing import KafkaBroker, MySQLServer, wait_until
from tests.fix_webhook import Receiver
from tests.integration.outside import logged
from tests.integration.runs import Runs, killed_after_the_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server


GTIDS: dict[str, str] = {}
PLACES = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


LONG = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=[GTIDS, pytest.param(PLACES, marks=LONG)], ids=["gtids", "places"])
def server(request: pytest.FixtureRequest) -> Iterator[MySQLServer]:
    with MySQLServer.start(request.param) as mysql:
        yield mysql


WITH_GTIDS = pytest.mark.parametrize("server", [GTIDS], ids=["gtids"], indirect=True)
"""What this shows has nothing to do with how positions are written, or needs another watermark."""


@pytest.fixture
def runs(spark: SparkSession, server: MySQLServer, tmp_path: Path) -> Runs:
    db = f"m{len(server.query('SHOW DATABASES'))}"
    server.execute(f"CREATE DATABASE {db}")
    runs = Runs(spark, server, db, tmp_path)
    if server.query("SELECT @@gtid_mode") == [("OFF",)]:
        runs.do("CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
        runs.reads = f'watermark = "signal-table"\nsignal_table = "{db}.signals"'
    return runs


@WITH_GTIDS
def test_a_blocking_snapshot_takes_debezium_s_select(runs: Runs) -> None:
    a, b = runs.table("a"), runs.table("b")
    runs.run("no_data")
    one = {"data-collection": f"{runs.db}[.]a", "filter": f"SELECT * FROM {a} WHERE v IN (1, 2) OR a.id = 9"}
    runs.signal("execute-snapshot", "a", "b", type="BLOCKING", additional_conditions=[one, {**one, "filter": "n = 1"}])
    runs.run()
    assert runs.rows(a) == runs.source(a, "v IN (1, 2) OR id = 9")
    assert (runs.state(a), runs.state(b)) == ("snapshotting", "live")
    assert runs.rows(b) == runs.source(b)


@pytest.mark.slow
def test_initial_only(runs: Runs) -> None:
    """The run ends by itself; changes after it are for a run of another mode."""
    a = runs.table("a")
    runs.run("initial_only", once=False)
    assert runs.state(a) == "live"
    assert runs.rows(a) == runs.source(a)
    assert [one.type for one in runs.notifications()][-1] == "COMPLETED"
    runs.do("UPDATE a SET v = -1 WHERE id = 7")
    b = runs.table("b", 10)
    before = runs.rows(a)
    assert [sorted(report.rows) for report in runs.run("initial_only", once=False)] == [[b]], "it was not there before"
    assert runs.run("initial_only", once=False) == []
    runs.do("DELETE FROM b WHERE id = 1")
    runs.run("initial")
    assert runs.rows(a) == runs.source(a) != before
    assert runs.rows(b) == runs.source(b)


@pytest.mark.slow
def test_no_data_then_a_blocking_snapshot_and_conditions(runs: Runs) -> None:
    """A table's own condition and a signal's; what the stream does with the rows outside; an ALTER reads by it, too."""
    a, b = runs.table("a"), runs.table("b")
    runs.more = f'[tables."{a}"]\ncondition = "v < 3"\n'
    runs.run("no_data")
    assert {runs.state(a), runs.state(b)} == {"snapshotting"}
    assert runs.notifications() == []
    runs.do(
        "UPDATE a SET n = 1 WHERE id IN (5, 11)",  # 5 is outside: it comes as a change, as it is
        "DELETE FROM a WHERE id IN (6, 21)",
    )
    name = runs.signal("execute-snapshot", "a", "b", type="BLOCKING")
    runs.run()
    assert (runs.state(a), runs.state(b)) == ("filtered", "live")
    assert runs.rows(a) == runs.source(a, "v < 3 OR id = 5")
    assert len(runs.rows(a)) == 45
    assert runs.rows(b) == runs.source(b)
    assert {one.id for one in runs.notifications()} == {name}
    assert [one.type for one in runs.notifications()][-1] == "COMPLETED"
    runs.do(
        "UPDATE a SET v = 9 WHERE id = 12",  # it leaves the condition, and stays until the table is read again
        "UPDATE b SET v = 77 WHERE id BETWEEN 20 AND 29",
        "DELETE FROM b WHERE id = 30",
    )
    runs.signal("execute-snapshot", "a", additional_conditions=[{"data-collection": a, "filter": "n IS NULL OR n = 1"}])
    name = runs.signal("execute-snapshot", "b", additional_conditions=[{"data-collection": b, "filter": "v = 77"}])
    runs.run()
    assert runs.rows(a) == runs.source(a, "v < 3 OR id IN (5, 12)")
    assert sum(report.rows.get(b, 0) for report in runs.reports) == 10, "exactly the rows that the signal asks for"
    assert runs.rows(b) == runs.source(b)
    (scan,) = [one for one in runs.notifications() if (one.id, one.type) == (name, "TABLE_SCAN_COMPLETED")]
    assert scan.additional_data["total_rows_scanned"] == "10"
    runs.do("ALTER TABLE a MODIFY n BIGINT")
    runs.run()
    assert runs.state(a) == "filtered"
    assert runs.rows(a) == runs.source(a, "v < 3")


@pytest.mark.parametrize("kind", ["earliest", "time", "position"])
def test_no_data_from_an_earlier_position(runs: Runs, kind: str) -> None:
    """The changes since then are in the tables and in the changelog, and a signal makes the tables whole."""
    a = runs.table("a", 20)
    had = runs.server.gtid_executed
    has_gtids = bool(had)
    file, position = runs.server.log_status()
    written = datetime.now(UTC)
    wait_until(lambda: datetime.now(UTC) > written)
    now = datetime.now(UTC)
    runs.do("UPDATE a SET v = 77 WHERE id <= 5", "DELETE FROM a WHERE id = 6", "INSERT INTO a VALUES (100, 1, 1)")
    if kind == "time" and not has_gtids:
        pytest.skip("times need GTIDs")
    start = {"earliest": "earliest", "time": now.isoformat(), "position": had or f"{file}:{position}"}[kind]
    runs.reads += f'\nsnapshot_mode = "no_data"\nstart = "{start}"\n'
    runs.run()
    assert runs.state(a) == "snapshotting", "it lacks the rows that did not change"
    assert runs.rows(a) == runs.source(a, "TRUE" if kind == "earliest" else "id <= 5 OR id = 100")
    runs.do("DELETE FROM a WHERE id = 1")
    runs.reads = runs.reads.replace(start, "earliest")
    runs.run()
    assert 1 not in runs.rows(a), "it continues, and does not begin again"
    runs.signal("execute-snapshot", "a", type="BLOCKING")
    runs.run()
    assert runs.state(a) == "live"
    assert runs.rows(a) == runs.source(a)


@WITH_GTIDS
def test_an_initial_snapshot_and_the_changes_before_it(runs: Runs) -> None:
    """The changelog has every change since the start, then the rows; the tables are as of the last batch."""
    runs.modes = '["current", "changelog"]'
    a, b = runs.table("a", 20), runs.table("b", 20)
    had = runs.server.gtid_executed
    runs.do("UPDATE a SET v = 77 WHERE id <= 5", "DELETE FROM a WHERE id = 6", "ALTER TABLE b MODIFY n BIGINT")
    runs.do("INSERT INTO b VALUES (100, 1, 1)")
    runs.reads += f'\nstart = "{had}"\n'
    runs.run()
    for name in (a, b):
        assert runs.state(name) == "live"
        assert runs.rows(name) == runs.source(name)
    assert Counter(row["_op"] for row in logged(runs.lake.changelog(a))) == {"u": 5, "d": 1, "r": 19}
    runs.do("DELETE FROM a WHERE id = 1")
    runs.run()
    assert runs.rows(a) == runs.source(a)
    assert sum(report.rows.get(a, 0) for report in runs.reports) == 0, "it continues, and does not begin again"


@WITH_GTIDS
def test_a_start_that_the_server_does_not_have(runs: Runs) -> None:
    runs.table("a", 3)
    unknown = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
    for start, message in ((unknown, unknown), ("yesterday", "expected current, earliest, a time")):
        runs.reads = f'snapshot_mode = "no_data"\nstart = "{start}"\nretry_seconds = 0\n'
        with pytest.raises(HeadgateError, match=message):
            runs.run()


@pytest.mark.slow
def test_when_needed_reads_again_what_the_log_no_longer_tells(runs: Runs) -> None:
    a, b, gone = runs.table("a"), runs.table("b", 20), runs.table("gone", 5)
    runs.run()
    runs.do("UPDATE a SET v = -1 WHERE id < 10", "DELETE FROM a WHERE id > 140", "DROP TABLE gone")
    runs.do("ALTER TABLE b ADD late INT DEFAULT 3")
    new = runs.table("new", 5)
    runs.purge()
    runs.do("INSERT INTO a VALUES (2000, 1, 1)")
    with pytest.raises(BinlogPurgedError):
        runs.run("initial")
    runs.run("when_needed")
    for table in (a, b, new):
        assert runs.state(table) == "live"
        assert runs.rows(table) == runs.source(table)
    assert runs.state(gone) == "dropped"
    assert [one.aggregate_type for one in runs.notifications() if one.type == "STARTED"] == ["Initial Snapshot"] * 2


@pytest.mark.slow
def test_always_reads_at_each_start(runs: Runs) -> None:
    a = runs.table("a", 20)
    assert [report.rows for report in runs.run("always")] == [{a: 20}]
    runs.do("DELETE FROM a WHERE id = 3")
    runs.run("always")
    assert sum(report.rows.get(a, 0) for report in runs.reports) == 19
    assert runs.rows(a) == runs.source(a)
    runs.do("DELETE FROM a WHERE id = 4")
    runs.purge()
    runs.run("always")
    assert (runs.state(a), runs.rows(a)) == ("live", runs.source(a))


def test_starting_over_gets_past_a_change_that_no_run_can_read(runs: Runs) -> None:
    one, two, gone = runs.table("one"), runs.table("two"), runs.table("gone", 5)
    runs.run()
    runs.do("SET binlog_format = 'STATEMENT'", "UPDATE one SET v = v + 1 WHERE id < 9", "DROP TABLE gone")
    runs.do("UPDATE two SET v = -1 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="as a statement instead of rows"):
            runs.run()
    shutil.rmtree(runs.lake.checkpoint)
    shutil.rmtree(runs.lake.inbox)
    runs.run()
    assert {table: runs.state(table) for table in (one, two, gone)} == {one: "live", two: "live", gone: "dropped"}
    runs.do("UPDATE one SET v = -2 WHERE id = 3", "DELETE FROM two WHERE id = 4")
    runs.run()
    for table in (one, two):
        assert runs.rows(table) == runs.source(table)


def test_a_checkpoint_that_is_torn_or_older_than_the_tables(runs: Runs) -> None:
    """As after a loss of power, and from a backup: each change is in the changelog once."""
    one, checkpoint = runs.table("one", 5), Path(runs.lake.checkpoint)
    runs.modes = '["current", "changelog"]'
    runs.run()
    shutil.copytree(checkpoint, checkpoint.with_name("backup"))
    runs.do("UPDATE one SET v = 70 WHERE id = 1")
    runs.run()
    for folder in ("offsets", "commits"):
        newest = max(int(file.name) for file in (checkpoint / folder).iterdir() if file.name.isdigit())
        for torn in (str(newest + 1), f".{newest + 1}.crc"):
            (checkpoint / folder / torn).touch()
    runs.do("UPDATE one SET v = 71 WHERE id = 1")
    runs.run()
    shutil.rmtree(checkpoint)
    checkpoint.with_name("backup").rename(checkpoint)
    runs.do("UPDATE one SET v = 72 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(TargetError, match="checkpoint is older than the tables"):
            runs.run()
    shutil.rmtree(checkpoint)
    runs.inbox.write("hint.json", {**(runs.inbox.read("hint.json") or {}), "gtid": ""})  # older than the ledger's row
    runs.run()
    assert (runs.state(one), runs.rows(one)) == ("live", runs.source(one))
    changes = [(row["_op"], row["v"]) for row in logged(runs.lake.changelog(one)) if row["id"] == 1]
    assert changes == [("r", 1), ("u", 70), ("u", 71), ("u", 72)]


@WITH_GTIDS
def test_a_checkpoint_lost_after_a_kill_behind_the_ledger_row(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the last batch the snapshot of a table begins, which was followed before, and a row of the signal table."""
    one, two = runs.table("one", 5), runs.table("two", 900)
    runs.do("CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    runs.reads = f'signal_table = "{runs.db}.signals"'
    runs.run()
    both, runs.tables = runs.tables, f'["{one}"]'
    runs.do("UPDATE one SET v = 70 WHERE id = 1")
    runs.run()
    runs.tables = both
    runs.do("UPDATE two SET v = 70 WHERE id < 9", """INSERT INTO signals VALUES ('s', 'log', '{"message": "hello"}')""")
    with killed_after_the_ledger(monkeypatch):
        runs.run()
    shutil.rmtree(runs.lake.checkpoint)
    caplog.set_level(logging.INFO, "headgate")
    runs.run()
    assert (runs.state(two), runs.rows(two)) == ("live", runs.source(two))
    assert "hello" in caplog.text


@WITH_GTIDS
def test_a_checkpoint_lost_while_reading_is_paused(runs: Runs) -> None:
    """It had the requests to read tables again, and the pause. The rows of these tables stay valid meanwhile."""
    one, two, three = runs.table("one", 5), runs.table("two", 350), runs.table("three", 250)
    runs.run()
    runs.signal("pause-snapshot")
    requested = runs.signal("execute-snapshot", "two", additional_condition="v < 5")
    runs.run(resnapshot=[three])
    shutil.rmtree(runs.lake.checkpoint)
    runs.do("UPDATE one SET v = 70 WHERE id = 1")
    reports = runs.run()
    assert [report.rows for report in reports if report.rows] == [], "reading is still paused"
    assert (runs.rows(one), runs.state(two), runs.state(three)) == (runs.source(one), "live", "live")
    runs.signal("resume-snapshot")
    reports = runs.run()
    rows = {table: sum(report.rows.get(table, 0) for report in reports) for table in (two, three)}
    assert rows == {two: len(runs.source(two, "v < 5")), three: 250}
    scanned = [one.additional_data for one in runs.notifications() if one.type == "TABLE_SCAN_COMPLETED"]
    for table in (two, three):
        assert [one["status"] for one in scanned if one["scanned_collection"] == table] == ["SUCCEEDED"] * 2
    assert [(one.state, one.reason) for one in reports[-1].answers if one.id == requested] == [("done", None)]
    assert runs.inbox.signals() == {}


@WITH_GTIDS
def test_a_log_that_is_purged_after_all_of_it_was_read_hinders_nothing(runs: Runs) -> None:
    """The position that the stream has reached is in a file that is gone."""
    one = runs.table("one")
    runs.run()
    runs.do("UPDATE one SET v = 7 WHERE id = 1")
    runs.run()
    runs.purge()
    runs.do("UPDATE one SET v = 8 WHERE id = 2")
    runs.run()
    assert runs.rows(one) == runs.source(one)


def test_conditions_that_cannot_be_used(runs: Runs) -> None:
    a = runs.table("a", 1)
    runs.do("CREATE TABLE bare (v INT)")
    for table, condition, message in (
        (a, "v = nothing", r"is refused by the server: .*Unknown column 'nothing'"),
        (a, "v = 1) OR (v = 2", "its parentheses do not match"),
        (f"{runs.db}.bare", "v = 1", "a table without a key is read whole"),
    ):
        runs.more = f'[tables."{table}"]\ncondition = "{condition}"'
        with pytest.raises(ConfigError, match=message):
            check_source(runs.config())


@pytest.fixture
def recent_steps(runs: Runs) -> Iterator[Callable[[], list[str]]]:
    """What tasks have done since it was asked before, in the server's order: they read rows, with locks or without."""
    server = runs.server
    server.execute("SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON")

    def take_steps() -> list[str]:
        rows = server.query("SELECT thread_id, command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log")
        server.execute("TRUNCATE mysql.general_log")
        steps = [(thread, _step(f"{command} {text}")) for thread, command, text in rows]
        locking = {thread for thread, step in steps if step == "lock"}
        return [step for thread, step in steps if step and (step != "quit" or thread in locking)]

    yield take_steps
    server.execute("SET GLOBAL general_log = OFF", "TRUNCATE mysql.general_log")


def _step(text: str) -> str:
    starts = {
        "Query LOCK TABLES": "lock", "Query UNLOCK TABLES": "unlock", "Query START TRANSACTION WITH CONS": "view",
        "Query SELECT /*+ MAX_EXECUTION_TIME(": "read", "Quit": "quit",
    }  # fmt: skip
    return next((step for start, step in starts.items() if text.startswith(start)), "")


LOCKED = ["lock", "view", "unlock", "read"]


@WITH_GTIDS
@pytest.mark.parametrize(
    ("keys", "first", "later"),
    [
        pytest.param('snapshot_locking_mode = "minimal"', LOCKED, ["read"], marks=pytest.mark.slow, id="minimal"),
        pytest.param(
            'snapshot_locking_mode = "extended"', ["lock", "view", "read"], ["read"], marks=pytest.mark.slow,
            id="extended",
        ),
        pytest.param('snapshot_locking_mode = "none"\nwatermark = "lock"', ["read"], LOCKED, id="none"),
    ],
)  # fmt: skip
def test_locks_of_the_snapshot_that_a_pipeline_begins_with(
    runs: Runs, recent_steps: Callable[[], list[str]], keys: str, first: list[str], later: list[str]
) -> None:
    """By its own mode; what is read later, because a signal asks for it, by the watermark."""
    runs.reads = keys
    a, steps = runs.table("a", 50), list[list[str]]()
    recent_steps()

    def meanwhile(_number: int) -> bool | None:
        if not runs.reports[-1].rows.get(a):
            return None
        batch_steps = recent_steps()
        steps.append(batch_steps[: batch_steps.index("read") + 1])
        if len(steps) == 2:
            return False
        # Nothing is left locked.
        runs.do("UPDATE a SET v = 77 WHERE id BETWEEN 20 AND 29", "DELETE FROM a WHERE id = 1")
        runs.signal("execute-snapshot", "a")
        return None

    runs.run(once=False, meanwhile=meanwhile)
    assert steps == [first, later]
    assert runs.state(a) == "live"
    assert runs.rows(a) == runs.source(a)


NOTIFY = """\
[notifications]
log = true
table = true
wait_seconds = {wait}
[notifications.kafka]
bootstrap = "{bootstrap}"
topic = "{topic}"
[notifications.webhook]
url = "{hook}"
"""


@pytest.mark.long
@WITH_GTIDS
@pytest.mark.timeout(900)
def test_every_channel_is_told_at_least_once(
    runs: Runs,
    receiver: Receiver,
    kafka_broker: KafkaBroker,
    kafka_topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run whose process dies after its commits; one whose webhook is away; one in which all is well."""
    caplog.set_level(logging.DEBUG, "headgate.notifications")
    a = runs.table("a")
    targets = {"bootstrap": kafka_broker.bootstrap, "topic": kafka_topic, "hook": receiver.url}
    runs.more = NOTIFY.format(**targets, wait=60)
    with monkeypatch.context() as patch:
        patch.setattr(NotificationDispatcher, "add", lambda *_: None)  # dies before it could send anything
        runs.run("initial_only", once=False)
    assert (receiver.posts, [r for r in caplog.records if r.name.endswith("notifications")]) == ([], [])
    runs.more = NOTIFY.format(**targets, wait=3)
    receiver.code = 503
    name = runs.signal("execute-snapshot", "a", "nobody")

    def all_but_the_webhook_are_told(_number: int) -> None:
        """Else what one has just taken at the run's end is not noted down, and comes a second time."""
        epoch = max((report.epoch for report in runs.reports if report.notifications), default=0)

        def is_told() -> bool:
            taken = runs.inbox.read("notified.json") or {}
            return min(taken["log"], taken["table"], taken["kafka"]) >= epoch and bool(receiver.posts)

        wait_until(is_told, "a channel was not told")

    runs.run("initial_only", once=False, meanwhile=all_but_the_webhook_are_told)
    assert runs.reports
    for thread in threading.enumerate():  # a POST may have been under way when the run ended
        if thread.name == "headgate-webhook":
            thread.join()
    assert "notifications to webhook are delayed: the webhook answers 503" in caplog.text
    receiver.posts.clear()
    receiver.code = 202
    runs.more = NOTIFY.format(**targets, wait=60)
    runs.do("UPDATE a SET v = -1 WHERE id = 7")
    assert runs.run("initial_only", once=False) == [], "the tables are read; what is told of that is sent all the same"
    assert runs.rows(a) == {**runs.source(a), 7: (7, None)}
    notifications = runs.notifications()
    events = [one.event_id for one in notifications]
    assert len(set(events)) == len(events)
    kinds = [(one.id if one.aggregate_type != "Initial Snapshot" else "", one.type) for one in notifications]
    assert kinds[:2] == [("", "STARTED"), ("", "IN_PROGRESS")]
    assert {kind for who, kind in kinds if who == name} == {
        "REJECTED", "STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED",
    }  # fmt: skip
    assert [body["event_id"] for _, _, body in receiver.posts] == events
    messages = kafka_broker.messages(kafka_topic)
    assert {key for key, _ in messages} == {"modes"}
    assert [json.loads(value or "")["event_id"] for _, value in messages] == events
    logged = [json.loads(r.getMessage().partition(": ")[2]) for r in caplog.records if r.name.endswith("notifications")]
    assert [one["event_id"] for one in logged] == events
    rows = runs.spark.read.format("delta").load(runs.lake.notifications).orderBy("epoch").collect()
    assert sorted(row["event_id"] for row in rows) == sorted(events)
    (done,) = [row for row in rows if (row["id"], row["type"]) == (name, "COMPLETED")]
    assert done["additional_data"]["data_collections"] == a
