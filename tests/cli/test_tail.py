"""``headgate tail``: which changes of a log it prints, and which servers, starts and tables it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.mysql import Connection, ConnectionSettings
from tests.replication.pretended import NON_BLOCK, OTHER, UUID, Network, PretendedServer, gtids

URL = "mysql://reader@pretended"
BEGAN = "2023-11-14T22:13:20"


class Altered(PretendedServer):
    """A server with other settings, purged transactions, or an account that sees no table."""

    settings: Mapping[str, str] = MappingProxyType({})
    tables: tuple[str, ...] = ("t", "u")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if "FROM information_schema.TABLES" in sql:
            return [("d", name, "InnoDB", 1, 1, "") for name in self.tables]
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            return list({**dict(super().query(sql)), **self.settings}.items())
        return super().query(sql)


def logged(*, anonymous: bool = False) -> Altered:
    """Three transactions in two files: two rows, a statement, a row of ``d.t`` before an emptied table."""
    server = Altered(anonymous=anonymous)
    server.commit([1, 2])
    server.rotate()
    server.statement("CREATE TABLE d.u (id INT)")
    server.commit([3])
    return server


def run(monkeypatch: pytest.MonkeyPatch, network: Network, *words: str) -> tuple[int, str, str]:
    def connect(settings: ConnectionSettings) -> Connection:
        assert (settings.host, settings.user) == ("pretended", "reader")
        return network.connect(settings)

    monkeypatch.setattr(Connection, "open", connect)
    result = CliRunner().invoke(app, ["tail", URL, *words])
    return result.exit_code, result.stdout, result.stderr


def changes(monkeypatch: pytest.MonkeyPatch, server: PretendedServer, *words: str) -> list[dict[str, Any]]:
    code, out, err = run(monkeypatch, Network(server), "--until-current", *words)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_all_changes_in_the_order_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    server = logged()
    one, two, statement, three = changes(monkeypatch, server, "--from", "earliest")
    row = {"op": "c", "db": "d", "table": "t", "before": None}
    first = {**row, "gtid": f"{UUID}:1", "file": "binlog.000001", "ts": f"{BEGAN}.000001Z"}
    assert one == {**first, "pos": one["pos"], "ordinal": 0, "after": {"id": 1}}
    assert two == {**first, "pos": one["pos"], "ordinal": 1, "after": {"id": 2}}
    third = {**row, "gtid": f"{UUID}:3", "file": "binlog.000002", "ts": f"{BEGAN}.000003Z"}
    assert three == {**third, "pos": three["pos"], "ordinal": 0, "after": {"id": 3}}
    assert {event.pos for file in server.files for event in file.events} >= {one["pos"], three["pos"]}
    assert statement == {
        "op": "ddl", "db": "d", "table": "u", "gtid": f"{UUID}:2", "file": "binlog.000002", "pos": statement["pos"],
        "ordinal": 0, "ts": f"{BEGAN}.000002Z", "statement": "CREATE TABLE d.u (id INT)",
    }  # fmt: skip


def test_changes_of_a_log_without_gtids(monkeypatch: pytest.MonkeyPatch) -> None:
    server = logged(anonymous=True)
    end = max(event.end for event in server.files[0].events if event.number == 1)
    read = changes(monkeypatch, server, "--from", f"binlog.000001:{end}")
    assert [(one["op"], one["gtid"], one["file"]) for one in read] == [
        ("ddl", None, "binlog.000002"),
        ("c", None, "binlog.000002"),
    ]
    assert [one["op"] for one in changes(monkeypatch, server, "--from", "earliest")] == ["c", "c", "ddl", "c"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ([], []),
        (["--from", f"{UUID}:1-2"], [3]),
        (["--from", f"{BEGAN}.000002+00:00"], [3]),
        (["--from", "earliest", "-t", "d.*"], [1, 2, 3]),
        (["--from", "earliest", "-t", "d.*", "-t", "!d.t"], []),
        (["--from", "earliest", "-t", "!d.t"], []),
        (["--from", "earliest", "-t", "!d.u"], [1, 2, 3]),
    ],
)
def test_which_changes(monkeypatch: pytest.MonkeyPatch, words: list[str], ids: list[int]) -> None:
    read = changes(monkeypatch, logged(), *words)
    assert [one["after"]["id"] for one in read if one["op"] == "c"] == ids


def test_a_short_form_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, Network(logged()), "--until-current", "--from", "earliest", "--format", "text")
    assert (code, out.splitlines()) == (
        0,
        [
            f"2023-11-14 22:13:20.000001  {UUID}:1",
            "  + d.t  id=1",
            "  + d.t  id=2",
            f"2023-11-14 22:13:20.000002  {UUID}:2",
            "  # d.u  CREATE TABLE d.u (id INT)",
            f"2023-11-14 22:13:20.000003  {UUID}:3",
            "  + d.t  id=3",
        ],
    )


def test_changes_are_followed_until_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that connects again is at the end of what it printed."""
    server = logged()

    class Leading(Network):
        def connect(self, settings: ConnectionSettings) -> Connection:
            followed = [flags for flags, _ in self.dumps if not flags & NON_BLOCK]
            if len(followed) == 2:
                raise KeyboardInterrupt
            if followed and server.number == 3:
                server.commit([4])
            return super().connect(settings)

    code, out, err = run(monkeypatch, Leading(server), "--from", f"{UUID}:1-2")
    assert (code, [json.loads(line)["after"]["id"] for line in out.splitlines()], err) == (0, [3, 4], "")


def test_a_pattern_without_a_table_is_said_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = logged()
    server.tables = ()
    code, out, err = run(monkeypatch, Network(server), "--until-current", "--from", "earliest", "-t", "d.odrers")
    assert (code, out) == (0, "")
    warning = "warning: no table matches d.odrers yet: check the spelling (case counts) and the grants\n"
    assert err == warning
    server.tables = ("t",)
    words = ["--until-current", "--from", "earliest", "-t", "d.t", "-t", "d.odrers"]
    code, out, err = run(monkeypatch, Network(server), *words)
    assert (code, len(out.splitlines()), err) == (0, 3, warning), "also beside one that has some"


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"binlog_format": "STATEMENT"}, 3, "binlog_format is STATEMENT on .*, but ROW is needed: SET PERSIST"),
        ({"log_bin": "OFF"}, 3, "log_bin is OFF on .*: restart the server with log_bin=binlog"),
        ({"gtid_mode": "ON_PERMISSIVE"}, 3, "gtid_mode is ON_PERMISSIVE on .*SET PERSIST gtid_mode = ON;"),
        ({"version": "5.7.44"}, 3, "version is 5.7.44 on .*: upgrade the server"),
    ],
)
def test_a_server_whose_log_lacks_changes_is_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], code: int, message: str
) -> None:
    server = logged()
    server.settings = settings
    network = Network(server)
    got, out, err = run(monkeypatch, network, "--from", "earliest")
    assert (got, out, network.dumps, network.open) == (code, "", [], 0)
    assert re.search(message, err), err


def test_a_start_that_the_log_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = logged()
    server.purged = gtids(1, 1)
    for code, start, message in (
        (3, f"{OTHER}:1", f"has not executed {OTHER}:1: is this the right server?"),
        (3, f"{BEGAN}+00:00", "may be purged: begin at earliest"),
        (2, "binlog.000001:4", "give a GTID set (uuid:1-5)"),
        (2, "yesterday", "the start is 'yesterday'; expected current, earliest, a time"),
    ):
        network = Network(server)
        got, out, err = run(monkeypatch, network, "--until-current", "--from", start)
        assert (got, out, message in err, network.open) == (code, "", True, 0), err
