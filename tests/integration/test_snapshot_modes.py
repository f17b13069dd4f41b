"""How a pipeline starts, by mode; tables with conditions; who is told of it. Real pipelines on a server whose log may
be purged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.control import Courier
from headgate.errors import BinlogPurgedError, ConfigError
from headgate.pipeline import check_source
from headgate.testing import KafkaBroker, MySQLServer
from tests.fix_webhook import Receiver
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as own:
        yield own


@pytest.fixture
def runs(spark: SparkSession, server: MySQLServer, tmp_path: Path) -> Runs:
    number = len(server.query("SHOW DATABASES"))
    server.execute(f"CREATE DATABASE m{number}")
    return Runs(spark, server, f"m{number}", tmp_path)


def test_initial_only(runs: Runs) -> None:
    """The run ends by itself; changes after it are for a run of another mode."""
    a = runs.table("a")
    runs.run("initial_only", once=False)
    assert runs.state(a) == "live"
    assert runs.rows(a) == runs.source(a)
    assert [one.type for one in runs.told()][-1] == "COMPLETED"
    runs.do("UPDATE a SET v = -1 WHERE id = 7")
    b = runs.table("b", 10)
    before = runs.rows(a)
    assert [sorted(report.rows) for report in runs.run("initial_only", once=False)] == [[b]], "it was not there before"
    assert runs.run("initial_only", once=False) == []
    runs.do("DELETE FROM b WHERE id = 1")
    runs.run("initial")
    assert runs.rows(a) == runs.source(a) != before
    assert runs.rows(b) == runs.source(b)


def test_no_data_and_then_a_blocking_snapshot(runs: Runs) -> None:
    a, b = runs.table("a"), runs.table("b")
    runs.run("no_data")
    assert {report.tables[a].state for report in runs.reports} == {"snapshotting"}
    assert runs.told() == []
    runs.do("UPDATE a SET v = -1 WHERE id = 7", "INSERT INTO a VALUES (1000, 0, 0)")
    runs.run("no_data")
    assert runs.rows(a) == {7: (-1, None), 1000: (0, 0)}
    name = runs.signal("execute-snapshot", "a", "b", type="BLOCKING")
    runs.do("DELETE FROM a WHERE id = 8")
    runs.run()
    for table in (a, b):
        assert runs.state(table) == "live"
        assert runs.rows(table) == runs.source(table)
    assert {one.id for one in runs.told()} == {name}
    assert [one.type for one in runs.told()][-1] == "COMPLETED"


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
    assert runs.state(gone) == "stopped"
    assert [one.aggregate_type for one in runs.told() if one.type == "STARTED"] == ["Initial Snapshot"] * 2
    runs.do("UPDATE a SET v = -2 WHERE id < 10")
    (report,) = runs.run("when_needed")
    assert (report.images, report.rows) == ({a: 9}, {})
    assert runs.rows(a) == runs.source(a)


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


def test_conditions_say_what_is_read(runs: Runs) -> None:
    """Of the table's own, and of a signal's; and what the stream does with the other rows."""
    a, b = runs.table("a"), runs.table("b")
    runs.more = f'[tables."{a}"]\ncondition = "v = nothing"\n'
    with pytest.raises(ConfigError, match=r"condition of .*\.a.* is refused by the server: Unknown column 'nothing'"):
        runs.run()
    runs.more = f'[tables."{a}"]\ncondition = "v < 3"\n'
    runs.run()
    assert (runs.state(a), runs.state(b)) == ("filtered", "live")
    assert runs.rows(a) == runs.source(a, "v < 3")
    assert len(runs.rows(a)) == 45
    runs.do(
        "UPDATE a SET n = 1 WHERE id IN (5, 11)",  # one that was not read comes now, as it is
        "UPDATE a SET v = 9 WHERE id = 12",  # one that was read stays
        "DELETE FROM a WHERE id IN (6, 21)",
        "UPDATE b SET v = 77 WHERE id BETWEEN 20 AND 29",
        "DELETE FROM b WHERE id = 30",
    )
    runs.run()
    assert runs.rows(a) == runs.source(a, "v < 3 OR id IN (5, 12)")
    runs.signal("execute-snapshot", "a", additional_conditions=[{"data-collection": a, "filter": "n IS NULL OR n = 1"}])
    name = runs.signal("execute-snapshot", "b", additional_conditions=[{"data-collection": b, "filter": "v = 77"}])
    runs.run()
    assert runs.rows(a) == runs.source(a, "v < 3 OR id IN (5, 12)")
    assert sum(report.rows.get(b, 0) for report in runs.reports) == 10, "of the second exactly the rows it asks for"
    assert runs.rows(b) == runs.source(b)
    (scan,) = [one for one in runs.told() if (one.id, one.type) == (name, "TABLE_SCAN_COMPLETED")]
    assert scan.additional_data["total_rows_scanned"] == "10"
    runs.do("ALTER TABLE a MODIFY n BIGINT")  # reads it again, under its condition
    runs.run()
    runs.run()
    assert runs.state(a) == "filtered"
    assert runs.rows(a) == runs.source(a, "v < 3")


def test_a_condition_needs_a_key(runs: Runs) -> None:
    runs.do("CREATE TABLE bare (v INT)")
    runs.more = f'[tables."{runs.db}.bare"]\ncondition = "v = 1"'
    with pytest.raises(ConfigError, match="a table without a key is read whole"):
        check_source(runs.config())


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
    given = {"bootstrap": kafka_broker.bootstrap, "topic": kafka_topic, "hook": receiver.url}
    runs.more = NOTIFY.format(**given, wait=60)
    with monkeypatch.context() as patch:
        patch.setattr(Courier, "add", lambda *_: None)  # dies before it could send anything
        runs.run()
    assert (receiver.posts, caplog.records) == ([], [])
    runs.more = NOTIFY.format(**given, wait=3)
    receiver.code = 503
    name = runs.signal("execute-snapshot", "a", "nobody")
    runs.run()
    assert "notifications to webhook wait: the webhook answers 503" in caplog.text
    receiver.posts.clear()
    receiver.code = 202
    runs.more = NOTIFY.format(**given, wait=60)
    runs.run()
    told = runs.told()
    events = [one.event_id for one in told]
    assert len(set(events)) == len(events)
    kinds = [(one.id if one.aggregate_type != "Initial Snapshot" else "", one.type) for one in told]
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
    runs.inbox.delete("notified.json")
    receiver.posts.clear()
    runs.run()
    assert receiver.posts == [], "a channel that is new begins with what is to come"
