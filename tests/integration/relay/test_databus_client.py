"""A consumer that asks as Databus's Java client does (``tests.relay.server.databus_client``), at a relay by default."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from headgate_testing import MySQLServer
from tests.integration.relay.test_relay import Process, do
from tests.relay.server.databus_client import Change, DatabusClient

PERSON, PET = "com.linkedin.events.example.or_test.Person", "com.example.Pet"
IDLE_SECONDS = 7
"""Longer than web servers usually keep a connection on which nothing is asked."""


def config_of(server: MySQLServer, db: str, folder: Path) -> Path:
    file = folder / "relay.toml"
    file.write_text(
        f'state = "{folder}/state"\nschemas = "{folder}/schemas"\ntypes = "databus"\n'
        f'[[physical]]\nid = 1\nname = "test"\nurl = "{server.url}"\n'
        f'[[physical.sources]]\nid = 40\nname = "{PERSON}"\ntable = "{db}.person"\n'
        f'[[physical.sources]]\nid = 41\nname = "{PET}"\ntable = "{db}.pet"\n'
    )
    return file


def rows(changes: list[Change]) -> list[tuple[int, dict[str, Any]]]:
    return [(one.source, one.row) for one in changes]


def test_bootstrap_and_alter_table(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """A new consumer at a relay without options: the rows of two tables, what comes after them, an ALTER TABLE of one
    that is connected, and both sides started again.
    """
    server, db = mysql_server, mysql_db
    server.execute(
        f"CREATE TABLE {db}.person (id BIGINT PRIMARY KEY, first_name VARCHAR(20) NOT NULL, birth_date DATE)",
        f"CREATE TABLE {db}.pet (name VARCHAR(20) PRIMARY KEY)",
    )
    do(server, db, "INSERT INTO person VALUES (1, 'Ada', '1970-01-03'), (2, 'Grace', NULL)")
    file = config_of(server, db, tmp_path)
    ada, grace = {"id": 1, "firstName": "Ada", "birthDate": 172_800_000}, {"id": 2, "firstName": "Grace"}
    grace |= {"birthDate": None}
    with Process(file) as relay, contextlib.closing(DatabusClient(relay.port, [PERSON, PET], bootstrap=True)) as client:
        do(server, db, "INSERT INTO pet VALUES ('Rex')")
        while not client.bootstrapped:
            client.pull()
        assert client.windows == []
        assert rows(client.bootstrapped) == [(40, ada), (40, grace), (41, {"name": "Rex"})]
        connections = client.connections
        do(server, db, "INSERT INTO pet VALUES ('Tom')", "DELETE FROM person WHERE id = 1")
        client.until(1)
        assert rows(client.windows[0][1]) == [(41, {"name": "Tom"}), (40, ada)]
        assert client.connections == connections + 1
        assert client.connection is not None
        assert client.connection.is_idle(IDLE_SECONDS)
        do(server, db, "UPDATE person SET first_name = 'G.' WHERE id = 2")
        server.execute(f"ALTER TABLE {db}.person ADD COLUMN age INT")
        do(server, db, "UPDATE person SET age = 85", "INSERT INTO pet VALUES ('Jim')")
        client.until(3)
        grace |= {"firstName": "G."}
        assert [rows(changes) for _, changes in client.windows[1:]] == [
            [(40, grace)], [(40, grace | {"age": 85}), (41, {"name": "Jim"})],
        ]  # fmt: skip
        assert client.connections == connections + 2
        kept = client.checkpoint
    do(server, db, "UPDATE person SET age = 86")
    with Process(file) as relay, contextlib.closing(DatabusClient(relay.port, [PERSON, PET], checkpoint=kept)) as again:
        again.until(1)
        assert rows(again.windows[0][1]) == [(40, grace | {"age": 86})]
