"""The signal table and the Kafka topic on real servers: each signal is followed once, in order, through restarts.

Planner and tasks with the sink in memory of ``test_debezium_signals``, which hands on inserted rows as the real one
does (``test_sinks.py`` has that one through a kill).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.config import parse_config
from headgate.control import KafkaCluster, KafkaTopic
from headgate.errors import ConfigError
from headgate.pipeline import check_source
from headgate_testing import KafkaBroker, MySQLServer
from tests.integration.peers.test_debezium_signals import ALL, ROWS, Run

SIGNALS = "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


@pytest.fixture
def start(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Streams of tables of 1000 rows, with an empty signal table that is none of theirs."""
    runs: list[Run] = []

    def begin(*tables: str, topic: KafkaTopic | None = None, **options: str) -> Run:
        with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
            cursor.execute(SIGNALS)
            for table in tables or ("a",):
                cursor.execute(f"CREATE TABLE {table} (pk INT AUTO_INCREMENT PRIMARY KEY, aa INT)")
                cursor.execute(f"INSERT INTO {table} {ROWS}")
        settings = {"tables": f"{mysql_db}.*,!{mysql_db}.signals", "signal_table": f"{mysql_db}.signals", **options}
        runs.append(Run(mysql_server, mysql_db, tmp_path, topic=topic, **settings))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def value(kind: str, name: str, data: Any = None) -> str:
    text = "NULL" if data is None else "'" + json.dumps(data).replace("\\", "\\\\").replace("'", "''") + "'"
    return f"('{name}', '{kind}', {text})"


def snap(run: Run, name: str, *tables: str) -> str:
    return value("execute-snapshot", name, {"data-collections": [f"{run.db}[.]{table}" for table in tables]})


def taken(run: Run) -> list[str]:
    return [action["id"] for action in run.actions]


def test_an_insert_is_followed_in_the_batch_after_the_one_that_saw_it(start: Callable[..., Run]) -> None:
    run = start()
    run.do(f"INSERT INTO signals VALUES {snap(run, 'ad hoc/1', 'a')}")
    assert run.next()
    assert (run.actions, run.headers[0]["tables"]) == ([], {})
    assert run.next()
    (action,) = run.headers[1]["actions"]
    assert (action["id"], action["tables"]) == ("ad hoc/1", [f"{run.db}.a"])
    assert run.headers[1]["tables"][f"{run.db}.a"]["signals"] == ["ad hoc/1"]
    run.drain()
    assert run.ids("a") == ALL
    run.check("a")
    assert f"{run.db}.signals" not in run.states
    assert run.inbox.signals() == {}


def test_what_is_no_insert_is_no_signal(start: Callable[..., Run]) -> None:
    run = start()
    run.do(
        f"INSERT INTO signals VALUES {value('log', 'one', {'message': 'x'})}",
        "UPDATE signals SET type = 'pause-snapshot'",
        f"REPLACE INTO signals VALUES {value('log', 'two', {'message': 'y'})}",
        f"INSERT INTO signals VALUES {value('log', 'one', {'message': 'z'})} ON DUPLICATE KEY UPDATE type = 'log'",
        "START TRANSACTION",
        f"INSERT INTO signals VALUES {value('pause-snapshot', 'three')}",
        "ROLLBACK",
        "DELETE FROM signals WHERE id = 'two'",
        f"INSERT INTO signals VALUES {value('snapshot-window-open', 'mark')}",
        f"INSERT INTO signals VALUES {value('log', 'two', {'message': 'again'})}",
        "TRUNCATE TABLE signals",
    )
    run.drain()
    assert [(action["id"], action["message"]) for action in run.actions] == [
        ("one", "x"),
        ("two", "y"),
        ("two", "again"),
    ]
    assert run.copies == {}


def test_signals_of_a_transaction_and_of_a_batch_keep_their_order(start: Callable[..., Run]) -> None:
    run = start()
    names = [f"s{number}" for number in (7, 3, 9, 1, 8, 2)]
    pairs = [value("pause-snapshot" if n % 2 else "resume-snapshot", name) for n, name in enumerate(names)]
    run.do(
        f"INSERT INTO signals VALUES {', '.join(pairs[:4])}", *(f"INSERT INTO signals VALUES {p}" for p in pairs[4:])
    )
    run.drain()
    assert taken(run) == names
    assert run.offset.signals["paused"]


def test_a_row_that_makes_no_sense_is_answered_and_nothing_stops(start: Callable[..., Run]) -> None:
    run = start()
    run.do(
        "INSERT INTO signals VALUES ('1', 'execute-snapshots', NULL), ('2', 'execute-snapshot', '{'),"
        " ('3', 'log', NULL), ('4', 'execute-snapshot', '{\"data-collections\": [\"[\"]}'), ('', '', '')",
        f"INSERT INTO signals VALUES {value('log', '5', {'message': 'still here'})}",
    )
    run.drain()
    answers = {action["id"]: action.get("error", action.get("message")) for action in run.actions}
    assert [name for name in answers if name in "12345"] == ["1", "2", "3", "4", "5"]
    assert answers.pop("5") == "still here"
    for word, text in zip(("unknown", "JSON", "message", "regular"), answers.values(), strict=False):
        assert text is not None
        assert word in text
    assert len(answers) == 5, "one without an id has the name of its place in the log"
    run.do("UPDATE a SET aa = -1 WHERE pk = 1")
    assert run.next()


def test_a_signal_table_that_changes_its_form_stops_nothing(start: Callable[..., Run]) -> None:
    run = start()
    run.do(
        "ALTER TABLE signals DROP COLUMN data",
        "INSERT INTO signals VALUES ('1', 'log')",
        "DROP TABLE signals",
        SIGNALS.replace("VARCHAR(2048)", "BLOB, more INT NOT NULL DEFAULT 3"),
        f"INSERT INTO signals (id, type, data) VALUES {value('log', '2', {'message': 'back'})}",
        "RENAME TABLE signals TO signals_old",
        SIGNALS.replace("id VARCHAR(42) PRIMARY KEY", "id INT AUTO_INCREMENT PRIMARY KEY"),
        "INSERT INTO signals (type) VALUES ('resume-snapshot')",
    )
    run.drain()
    assert [(action["id"][:5], action.get("error"), action.get("message")) for action in run.actions] == [
        ("table", "the signal table has no column data", None), ("2", None, "back"), ("1", None, None)
    ]  # fmt: skip


def test_a_signal_table_may_be_one_of_the_streams_tables(start: Callable[..., Run], mysql_db: str) -> None:
    """Its inserts count also where the snapshot has yet to read their keys, and its rows are no signals."""
    run = start(tables=f"{mysql_db}.*", start="snapshot", append="true", chunk_rows="20")
    run.do(f"INSERT INTO signals VALUES {value('pause-snapshot', 'before')}")
    run.restart()
    run.offset = run.planner.initial()
    run.do(f"INSERT INTO signals VALUES {value('log', 'during', {'message': 'x'})}")
    run.drain()
    assert taken(run) == ["during"]
    run.check("a", "signals")


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_partial_row_images_and_xa(start: Callable[..., Run], image: str) -> None:
    run = start()
    run.do(
        f"SET binlog_row_image = '{image}'",
        "INSERT INTO signals (id, type) VALUES ('1', 'pause-snapshot')",
        f"XA START '{run.db}'",
        "INSERT INTO signals (id, type) VALUES ('2', 'resume-snapshot')",
        f"XA END '{run.db}'",
        f"XA PREPARE '{run.db}'",
    )
    run.drain()
    assert taken(run) == ["1"]
    run.do(f"XA COMMIT '{run.db}'")
    run.drain()
    assert taken(run) == ["1", "2"]


@pytest.mark.needs_own_server
def test_a_log_without_gtids(tmp_path: Path) -> None:
    """Inserts are told apart by their places, and watermark rows are no signals."""
    with MySQLServer.start({"gtid_mode": False, "enforce_gtid_consistency": False}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.a (pk INT PRIMARY KEY, aa INT)", f"INSERT INTO d.a {ROWS}")
        server.execute(SIGNALS.replace("TABLE signals", "TABLE d.signals"))
        settings = {"tables": "d.a", "signal_table": "d.signals", "watermark": "signal-table"}
        run = Run(server, "d", tmp_path, **settings)
        try:
            for number in range(3):
                run.do(f"INSERT INTO signals VALUES {value('log', str(number), {'message': 'x'})}")
            run.do(f"INSERT INTO signals VALUES {snap(run, 'read', 'a')}")
            run.drain()
            run.restart()
            run.drain()
            assert taken(run) == ["0", "1", "2", "read"]
            assert run.ids("a") == ALL
        finally:
            run.close()


def test_a_signal_table_that_is_not_one_is_told_before_a_run_begins(start: Callable[..., Run], tmp_path: Path) -> None:
    run = start()
    text = f"""
name = "shop"
[source]
url = "{run.server.url}"
password_file = "{tmp_path}/secret"
tables = ["{run.db}.a"]
signal_table = "{{}}"
[target]
path = "{tmp_path}/lake"
"""
    assert check_source(parse_config(text.format(f"{run.db}.signals"))) == [f"{run.db}.a"]
    for name, problem in (
        (f"{run.db}.nothing", "is missing, or the user has no SELECT on it"),
        (f"{run.db}.Signals", f"is {run.db}.signals on the server: use that name"),
        (f"{run.db}.a", "has no column id"),
        ("mysql.user", "which is not followed"),
    ):
        with pytest.raises(ConfigError, match=problem):
            check_source(parse_config(text.format(name)))


# --- Debezium's scenarios, by signals of these channels


@pytest.fixture
def topic(kafka_broker: KafkaBroker, kafka_topic: str) -> KafkaTopic:
    return KafkaTopic(KafkaCluster(kafka_broker.bootstrap), kafka_topic, "us")


@pytest.fixture
def send(kafka_broker: KafkaBroker, kafka_topic: str) -> Callable[..., int]:
    def message(run: Run, *tables: str, key: str = "us", **more: Any) -> int:
        data = {"data-collections": [f"{run.db}[.]{table}" for table in tables], **more}
        return kafka_broker.send(kafka_topic, json.dumps({"type": "execute-snapshot", "data": data}), key)

    return message


def down(run: Run) -> None:
    """As if Kafka's client had all day: what was sent is here when the run begins."""
    run.restart()
    assert run.forwarder is not None
    run.forwarder.forward(wait=True)


@pytest.mark.parametrize("committed", [True, False], ids=["with offset commit", "without offset commit"])
def test_signals_it_kafka_signal_that_comes_while_down_is_executed_once(
    start: Callable[..., Run], topic: KafkaTopic, send: Callable[..., int], committed: bool
) -> None:
    run = start(topic=topic)
    run.drain()
    run.close()
    send(run, "a", key="them")
    send(run, "a")
    down(run)
    if not committed:
        assert run.planner.latest(run.offset) is not run.offset, "planned, and killed before it was written down"
        down(run)
    run.drain()
    assert len(run.actions) == 1
    assert run.ids("a") == ALL
    down(run)
    run.drain()
    assert len(run.actions) == 1
    run.check("a")
