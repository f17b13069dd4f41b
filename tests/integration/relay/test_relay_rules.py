"""A relay whose rules hide, rename and leave out columns: what it serves and stores never has a hidden value."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.relay.client import Consumer as ClientConsumer
from headgate.relay.client import Event, RelayClient
from headgate.relay.server import LogicalSource, Relay, RelayConfig, create_app
from headgate.web.serving import Serving
from headgate_testing import MySQLServer
from tests.integration.relay.test_relay import Consumer, do, physical, relaying

KEY = "not the password, but a key"
SECRET = "s3cr3t"
COLUMNS = (
    "id INT PRIMARY KEY, email VARCHAR(80), name VARCHAR(40), phone VARCHAR(40), born VARCHAR(40), notes TEXT, doc"
    " JSON, salary DECIMAL(12,2), admin TINYINT(1), state ENUM('new','old'), open VARCHAR(40)"
)
RULES: dict[str, Any] = {
    "*.*": {"*mail": "hash", "phone": {"text": "-"}, "born": "null", "notes": "exclude", "doc": "exclude"},
    "*.people": {
        "id": {"rename": "customer"}, "email": {"rename": "mail"}, "name": {"rename": "short", "rule": {"truncate": 2}},
        "admin": "boolean", "state": "number", "salary": "hash",
    },
}  # fmt: skip
SALARY = "7654321.25"


def hashed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def insert(n: int) -> str:
    values = (
        f"{n}, '{SECRET}{n}@x.org', 'An{SECRET}', '{SECRET}', '{SECRET}', '{SECRET}', '{{\"a\": \"{SECRET}\"}}',"
        f" {SALARY}, {n % 2}, 'old', 'open{n}'"
    )
    return f"INSERT INTO people VALUES ({values})"


def served(n: int) -> dict[str, Any]:
    return {
        "customer": n, "mail": hashed(f"{SECRET}{n}@x.org"), "short": "An", "phone": "-", "born": None,
        "salary": hashed(SALARY), "admin": n % 2 == 1, "state": 2, "open": f"open{n}",
    }  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mask.key").write_text(KEY)
    return {
        "columns": RULES, "mask_key_file": str(tmp_path / "mask.key"), "event_version": 2,
        "state": tmp_path / "relay", "schemas": tmp_path / "schemas", "before_images": True, "disk_bytes": 1 << 24,
        "memory_bytes": 1 << 20,
    }  # fmt: skip


def answers(consumer: Consumer) -> dict[str, bytes]:
    """Everything that a relay tells, in all forms."""
    paths: dict[str, dict[str, str]] = {
        "sources": {}, "register": {}, "admin/status": {}, "metrics": {}, "physicalSources": {},
        "physicalBuffers": {}, "containerStats/inbound/events/total": {}, "relayStats/outbound/http/clients": {},
    }  # fmt: skip
    bodies = {path: consumer.get(path, **parameters)[2] for path, parameters in paths.items()}
    for output in ("binary", "json", "json_plain_value", "rows", "arrow"):
        status, _, bodies[output] = consumer.get(
            "stream", sources=consumer.sources, size="1000000", output=output, maxev="2"
        )
        assert status == 200, bodies[output]
    return bodies


def hits(contents: dict[str, bytes]) -> list[str]:
    return [name for name, data in contents.items() if SECRET.encode() in data or SALARY.encode() in data]


def test_nothing_has_a_hidden_value(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.people ({COLUMNS})")
    source = LogicalSource(1, "test.People", f"{db}.people")
    do(server, db, *(insert(n) for n in range(5)))
    with relaying(server, source, **config) as consumer:
        do(server, db, insert(10))
        do(server, db, f"UPDATE people SET email = '{SECRET}new', open = 'x', id = 11 WHERE id = 10")
        do(
            server,
            db,
            f"UPDATE people SET notes = '{SECRET}2', open = 'y' WHERE id = 11",
            "DELETE FROM people WHERE id = 0",
        )
        consumer.until(lambda one: len(one.events) >= 5)
        after = {**served(10), "customer": 11, "mail": hashed(f"{SECRET}new"), "open": "x"}
        assert [(one.opcode, one.key, one.row) for one in consumer.events] == [
            (1, 10, served(10)), (2, 10, served(10)), (1, 11, after), (1, 11, {**after, "open": "y"}),
            (2, 0, served(0)),
        ]  # fmt: skip
        bodies = answers(consumer)
        assert hits(bodies) == []
        assert hashed(f"{SECRET}new").encode() in bodies["rows"]
        assert b'"before":{"customer":11' in bodies["rows"], bodies["rows"]

        # Predicates see what is served.
        def rows_where(where: str) -> int:
            filters = json.dumps({"1": {"partitionType": "NONE", "where": where}})
            status, _, body = consumer.get("stream", sources="1", size="1000000", output="rows", filters=filters)
            return len(body.splitlines()) if status == 200 else -status

        in_events = hashed(f"{SECRET}10@x.org")
        assert rows_where(f"mail = '{SECRET}10@x.org'") == 0
        assert rows_where(f"mail = '{in_events}'") == 3, "with the row before the update"
        assert rows_where(f"short LIKE 'An{SECRET}%'") == 0
        assert rows_where("admin = 1") + rows_where("admin = 0") == 5
        for unknown in ("email", "notes", "id"):
            assert rows_where(f"{unknown} = '{SECRET}'") == -400
        assert rows_where("salary > '1000'") >= 0, "by the text of hashes"

        # A column that a rule hides is added, with a default.
        server.execute(f"ALTER TABLE {db}.people ADD webmail VARCHAR(80) DEFAULT '{SECRET}' FIRST")
        do(server, db, "UPDATE people SET open = 'z' WHERE id = 1")
        consumer.until(lambda one: len(one.events) >= 6)
        assert consumer.events[-1].row == {"webmail": hashed(SECRET), **served(1), "open": "z"}
        assert hits(answers(consumer)) == []
        status, _, body = consumer.get("admin/status")
        assert (status, b"RUNNING" in body) == (200, True)

    files = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(name.endswith(".events") for name in files)
    assert hits(files) == []
    assert SECRET not in caplog.text


class Bootstrapped(ClientConsumer):
    """The rows of a bootstrap, by key."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.client: RelayClient

    def on_bootstrap_event(self, event: Event) -> None:
        self.rows[event.key] = event.row

    def on_stop_bootstrap(self) -> None:
        self.client.stop()


def test_rows_of_a_bootstrap(mysql_server: MySQLServer, mysql_db: str, config: dict[str, Any]) -> None:
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.people ({COLUMNS})")
    do(server, db, *(insert(n) for n in range(5)))
    source = physical(server, LogicalSource(1, "test.People", f"{db}.people"))
    start = GtidSet.parse(server.gtid_executed)
    tables = Bootstrapped()
    with (
        Relay(RelayConfig(physical=(source,), **config), lambda _: start) as relay,
        Serving(create_app(relay), "127.0.0.1", 0) as at,
    ):
        tables.client = RelayClient(at.url, [], tables, bootstrap=True)
        tables.client.run()
    assert [row for _, row in sorted(tables.rows.items())] == [served(n) for n in range(5)]


def test_other_rules_drop_the_buffer(
    mysql_server: MySQLServer, mysql_db: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What was stored before the rules, or with others, is not served after a restart."""
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.people ({COLUMNS})")
    source = LogicalSource(1, "test.People", f"{db}.people")
    plain = {**config, "columns": {}, "mask_key_file": None}
    with relaying(server, source, **plain) as consumer:
        do(server, db, insert(1))
        consumer.until(lambda one: len(one.events) >= 1)
        assert hits(answers(consumer)) != []
        newest = consumer.place
    with relaying(server, source, had="", **config) as consumer:
        status, headers, _ = consumer.get(
            "stream", sources="1", size="1000000", output="binary", checkPoint='{"windowScn": 0, "windowOffset": -1}'
        )
        assert (status, "ScnNotFound" in headers["x-dbus-error-cause"]) == (500, True)
        assert hits(answers(consumer)) == []
        consumer.place = newest  # who had everything misses nothing
        do(server, db, insert(2))
        consumer.until(lambda one: len(one.events) >= 1)
        assert [one.row for one in consumer.events] == [served(2)]
    assert "the rules in [columns] changed" in caplog.text
    assert [one for one in config["state"].rglob("*.events") if SECRET.encode() in one.read_bytes()] == []
    with relaying(server, source, had="", **config) as consumer:
        consumer.until(lambda one: len(one.events) >= 1)
        assert [one.row for one in consumer.events] == [served(2)], "the same rules keep it"


def test_refused_before_it_serves(mysql_server: MySQLServer, mysql_db: str, config: dict[str, Any]) -> None:
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.people ({COLUMNS})")
    source = LogicalSource(1, "test.People", f"{db}.people")

    def begin(rules: dict[str, Any], **more: Any) -> None:
        options = {**config, "columns": {"*.people": rules}, **more}
        with relaying(server, source, **options):
            pass

    for rules, more, error, message in (
        ({"id": "null"}, {}, UnsupportedError, "a column of the key"),
        ({"email": "boolean"}, {}, UnsupportedError, "which it is not for"),
        ({"email": {"rename": "Name"}}, {}, UnsupportedError, "would be named 'name'"),
        ({"email": "hash"}, {"mask_key_file": None}, ConfigError, "needs a key"),
        (
            {"salary": "hash"},
            {"scn": "application", "scn_column": "salary"},
            ConfigError,
            "scn_column shows its values",
        ),
        ({"phone": "null"}, {"log_disk_bytes": 1 << 24}, ValueError, "the binlog archive has every value"),
    ):
        with pytest.raises(error, match=message):
            begin(rules, **more)
