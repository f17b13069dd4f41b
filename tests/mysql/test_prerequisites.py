"""The report's rows for servers that are hard to come by: old ones, other makers', replicas of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import pytest

from headgate.errors import AccessError, DefiniteServerError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, Prerequisite, check_engine, prerequisites, quote_account, try_select, watermarks

GOOD = {
    "version": "9.7.4",
    "server_id": "1",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "1",
    "binlog_row_value_options": "",
    "binlog_order_commits": "ON",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "binlog_expire_logs_seconds": "2592000",
    "max_allowed_packet": "67108864",
    "log_replica_updates": "ON",
    "replica_parallel_workers": "4",
    "replica_preserve_commit_order": "ON",
}


class FakeConnection:
    """Answers statements from a table; one that is not in it is an error, as on a server that does not know it."""

    settings = "mysql://u@h:3306"
    log_filters: cached_property[tuple[str, str]] = vars(Connection)["log_filters"]

    def __init__(self, variables: Mapping[str, str], answers: Mapping[str, Any] = {}) -> None:
        numbers = [int(part) for part in variables["version"].split("-")[0].split(".")]
        self.version = (numbers[0], numbers[1], numbers[2])
        self.queries: list[str] = []
        self.answers: dict[str, Any] = {
            "SHOW GLOBAL VARIABLES": list(variables.items()),
            "SELECT CURRENT_USER()": [("u@%",)],
            "SHOW BINARY LOG STATUS" if self.version >= (8, 2) else "SHOW MASTER STATUS": [
                ("binlog.000001", 4, "", "", "")
            ],
            "SHOW REPLICAS" if self.version >= (8, 0, 22) else "SHOW SLAVE HOSTS": [],
            "SHOW REPLICA STATUS" if self.version >= (8, 0, 22) else "SHOW SLAVE STATUS": [],
            **answers,
        }

    def query(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        assert not args
        self.queries.append(sql)
        for begin, answer in self.answers.items():
            if sql.startswith(begin):
                if isinstance(answer, Exception):
                    raise answer
                return cast("list[tuple[Any, ...]]", answer)
        raise DefiniteServerError(f"unknown statement {sql}", code=1064)


def report(
    variables: Mapping[str, str | None] = {}, answers: Mapping[str, Any] = {}, **options: Any
) -> dict[str, Prerequisite]:
    known = {name: value for name, value in {**GOOD, **variables}.items() if value is not None}
    rows = prerequisites(cast("Connection", FakeConnection(known, answers)), **{"kinds": [GtidSet], **options})
    assert all(bool(row.remedy) == (row.status != "ok") for row in rows)
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: row for row in rows}


def bad(rows: Mapping[str, Prerequisite]) -> dict[str, str]:
    return {name: row.remedy for name, row in rows.items() if row.status != "ok"}


def test_all_is_well() -> None:
    assert bad(report()) == {}


@pytest.mark.parametrize("version", ["8.0.20", "8.0.36", "8.4.3", "9.7.4-2"])
def test_each_version_is_asked_in_its_own_words(version: str) -> None:
    assert bad(report({"version": version})) == {}


@pytest.mark.parametrize("version", ["5.7.44", "10.11.6-MariaDB-0+deb12u1"])
def test_other_servers_are_told_apart(version: str) -> None:
    assert bad(report({"version": version})) == {"version": "upgrade the server"}


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        (
            "OFF",
            (
                "SET PERSIST gtid_mode = OFF_PERMISSIVE; SET PERSIST gtid_mode = ON_PERMISSIVE;"
                " SET PERSIST gtid_mode = ON;"
            ),
        ),
        ("OFF_PERMISSIVE", "SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON;"),
        ("ON_PERMISSIVE", "SET PERSIST gtid_mode = ON;"),
    ],
)
def test_gtids_are_switched_on_step_by_step(mode: str, remedy: str) -> None:
    assert bad(report({"gtid_mode": mode})) == {"gtid_mode": remedy}


def test_gtids_need_consistency_first() -> None:
    remedy = bad(report({"gtid_mode": "ON_PERMISSIVE", "enforce_gtid_consistency": "WARN"}))["gtid_mode"]
    assert remedy == "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = ON;"


def test_partial_images_and_differences_are_followed_but_not_together() -> None:
    assert bad(report({"binlog_row_value_options": "PARTIAL_JSON"})) == {}
    rows = report({"binlog_row_image": "NOBLOB"})
    assert bad(rows) == {"binlog_row_image": "SET PERSIST binlog_row_image = FULL;"}
    assert rows["binlog_row_image"].status == "warn"
    rows = report({"binlog_row_image": "MINIMAL", "binlog_row_value_options": "PARTIAL_JSON"})
    assert rows["binlog_row_value_options"].status == "fail"


REPLICA = {"SHOW REPLICA STATUS": [("Waiting for source to send event",)]}


def test_a_replica() -> None:
    assert bad(report({}, REPLICA)) == {}
    off = {"log_replica_updates": "OFF", "replica_preserve_commit_order": "OFF"}
    assert set(bad(report(off, REPLICA))) == set(off)
    assert bad(report(off)) == {}  # who replicates from nobody needs neither
    alone = {"replica_preserve_commit_order": "OFF", "replica_parallel_workers": "0"}
    assert bad(report(alone, REPLICA)) == {}


def test_an_old_replica_has_other_names() -> None:
    old = {
        "version": "8.0.25",
        "log_replica_updates": None,
        "replica_parallel_workers": None,
        "replica_preserve_commit_order": None,
        "log_slave_updates": "ON",
        "slave_parallel_workers": "8",
        "slave_preserve_commit_order": "OFF",
    }
    remedy = "STOP SLAVE SQL_THREAD; SET PERSIST slave_preserve_commit_order = ON; START SLAVE SQL_THREAD;"
    assert bad(report(old, REPLICA)) == {"slave_preserve_commit_order": remedy}


@pytest.mark.parametrize(
    ("do", "ignore", "status"),
    [("", "", ("ok", "ok")), ("a,b", "", ("fail", "ok")), ("", "b", ("ok", "fail")), ("a", "b", ("fail", "fail"))],
)
def test_filters_of_the_log(do: str, ignore: str, status: tuple[str, str]) -> None:
    """DDL of any table is missing if the session's default database is left out, so no filter is harmless."""
    rows = report({}, {"SHOW BINARY LOG STATUS": [("f", 4, do, ignore, "")]})
    assert (rows["binlog_do_db"].status, rows["binlog_ignore_db"].status) == status


@pytest.mark.parametrize(
    ("seconds", "days", "status", "actual"),
    [
        ("0", None, "ok", "never purged"),
        ("3600", "0", "warn", "3600 (60 minutes)"),
        ("86399", None, "warn", "86399 (24 hours)"),
        ("86400", None, "ok", "86400 (24 hours)"),
        ("0", "3", "ok", "259200 (3 days)"),
        ("60", None, "warn", "60 (60 seconds)"),
    ],
)
def test_retention(seconds: str, days: str | None, status: str, actual: str) -> None:
    known = {"binlog_expire_logs_seconds": seconds, "expire_logs_days": days}
    row = report({**known, "binlog_expire_logs_auto_purge": "ON"})["binlog_expire_logs_seconds"]
    assert (row.status, row.actual) == (status, actual)
    kept = report({**known, "binlog_expire_logs_auto_purge": "OFF"})["binlog_expire_logs_seconds"]
    assert (kept.status, kept.actual) == ("ok", "never purged")


@pytest.mark.parametrize(
    ("value", "status", "actual"),
    [
        (None, "warn", "NULL (purged as soon as possible)"),
        ("0", "warn", "NULL (purged as soon as possible)"),
        ("23", "warn", "23"),
        ("24", "ok", "24"),
        ("168", "ok", "168"),
    ],
)
def test_retention_on_amazon_rds(value: str | None, status: str, actual: str) -> None:
    """MySQL's own setting has its default of 30 days there, which has no effect."""
    rows = report({}, {"SELECT value FROM mysql.rds_configuration": [(value,)]})
    row = rows["binlog retention hours"]
    assert (row.status, row.actual) == (status, actual)
    assert row.remedy in ("", "CALL mysql.rds_set_configuration('binlog retention hours', 168);")
    assert "binlog_expire_logs_seconds" not in rows


@pytest.mark.parametrize("answer", [[], AccessError("denied", code=1142), DefiniteServerError("none", code=1146)])
def test_retention_where_amazon_says_nothing(answer: Any) -> None:
    rows = report({"binlog_expire_logs_seconds": "3600"}, {"SELECT value FROM mysql.rds_configuration": answer})
    assert rows["binlog_expire_logs_seconds"].actual == "3600 (60 minutes)"


def test_which_watermarks_are_usable() -> None:
    def usable(variables: Mapping[str, str], answers: Mapping[str, Any] = {}) -> list[str]:
        connection = cast("Connection", FakeConnection({**GOOD, **variables}, answers))
        rows = watermarks(connection, prerequisites(connection, kinds=[GtidSet]), ["d"])
        return [row.actual.partition(",")[0] for row in rows]

    assert usable({}) == ["usable"] * 3
    assert usable({"gtid_mode": "OFF"}) == ["not usable: see gtid_mode", "usable", "not usable: see gtid_mode"]
    assert usable({"gtid_mode": "ON_PERMISSIVE"}) == ["not usable: see gtid_mode"] * 3
    assert usable({"binlog_order_commits": "OFF"}) == ["not usable: see binlog_order_commits"] * 3
    assert usable({"replica_preserve_commit_order": "OFF"}) == ["usable"] * 3
    replica = usable({"replica_preserve_commit_order": "OFF"}, REPLICA)
    assert replica == ["not usable: see replica_preserve_commit_order"] * 3
    denied = {"LOCK TABLES": AccessError("denied", code=1044)}
    lock = "needs GRANT LOCK TABLES ON `d`.* TO 'u'@'%'"
    assert usable({}, denied) == ["usable", "usable", lock]
    assert usable({"gtid_mode": "OFF"}, denied)[2] == f"{lock}; not usable: see gtid_mode"


def test_a_watermark_that_is_not_available_is_no_failure() -> None:
    connection = cast("Connection", FakeConnection(GOOD, {"LOCK TABLES": AccessError("denied", code=1044)}))
    rows = watermarks(connection, prerequisites(connection, kinds=[GtidSet]), ["d"])
    assert [row.status for row in rows] == ["ok", "ok", "info"]


def test_engines() -> None:
    assert check_engine("shop.orders", "InnoDB") is None
    row = check_engine("shop.my.orders", "MyISAM")
    assert row is not None
    assert (row.status, row.actual) == ("fail", "MyISAM")
    assert row.remedy == "ALTER TABLE `shop`.`my.orders` ENGINE = InnoDB;"


def test_a_server_without_an_id_serves_no_dump() -> None:
    assert bad(report({"server_id": "0"})) == {"server_id": "SET PERSIST server_id = 1;"}


def test_privileges_that_are_missing() -> None:
    denied = AccessError("denied", code=1227)
    rows = report({}, dict.fromkeys(("SHOW BINARY LOG STATUS", "SHOW REPLICAS", "SHOW REPLICA STATUS"), denied))
    assert bad(rows)["REPLICATION CLIENT"] == "GRANT REPLICATION CLIENT ON *.* TO 'u'@'%';"
    assert bad(rows)["REPLICATION SLAVE"] == "GRANT REPLICATION SLAVE ON *.* TO 'u'@'%';"
    assert rows["binlog_do_db"].status == "fail"


def test_names_are_quoted() -> None:
    assert quote_account("o'hara@x@%") == "'o''hara@x'@'%'"
    connection = FakeConnection(GOOD, {"SELECT `a``b` FROM `d`.`t`": AccessError("no", code=1142)})
    row = try_select(cast("Connection", connection), "d", "t", ["a`b"])
    assert row is not None
    assert row.remedy == "GRANT SELECT ON `d`.`t` TO 'u'@'%';"
    fine = FakeConnection(GOOD, {"SELECT `a` FROM `d`.`t` LIMIT 0": []})
    assert try_select(cast("Connection", fine), "d", "t", ["a"]) is None
    broken = FakeConnection(GOOD, {"SELECT": DefiniteServerError("crashed", code=145)})
    row = try_select(cast("Connection", broken), "d", "t", ["a"])
    assert row is not None
    assert (row.status, row.actual) == ("fail", "crashed")


@pytest.mark.parametrize("name", ["sync_binlog", "innodb_flush_log_at_trx_commit"])
def test_a_server_that_may_lose_transactions_in_a_crash(name: str) -> None:
    """A warning, not a failure: the stream ends if that happens."""
    rows = report({name: "2"})
    assert bad(rows) == {name: f"SET PERSIST {name} = 1;"}
    assert rows[name].status == "warn"
