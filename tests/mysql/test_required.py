"""One rule: what ``headgate check`` fails is what planners and readers refuse, with the same remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from headgate.errors import AccessError, ServerSettingError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, check_required, kinds_of_watermark
from tests.mysql.test_prerequisites import GOOD, REPLICA, FakeConnection, bad, report

OF_REPLICAS = ("log_replica_updates", "replica_preserve_commit_order")
EACH = {
    "version": "5.7.44",
    "log_bin": "OFF", "gtid_mode": "OFF", "binlog_format": "MIXED", "binlog_order_commits": "OFF",
    "log_replica_updates": "OFF", "replica_preserve_commit_order": "OFF", "lower_case_table_names": "2",
}  # fmt: skip


def fake(variables: Mapping[str, str] = {}, answers: Mapping[str, Any] = {}) -> FakeConnection:
    return FakeConnection({**GOOD, **variables}, answers)


def refusal(connection: FakeConnection, **options: Any) -> ServerSettingError | None:
    try:
        check_required(cast("Connection", connection), **{"kinds": [GtidSet], **options})
    except ServerSettingError as error:
        return error
    return None


@pytest.mark.parametrize("answers", [{}, REPLICA], ids=["primary", "replica"])
@pytest.mark.parametrize(("name", "value"), EACH.items())
def test_what_the_report_fails_is_refused(name: str, value: str, answers: Mapping[str, Any]) -> None:
    failed = bad(report({name: value}, answers))
    error = refusal(fake({name: value}, answers))
    assert (error is None) == (failed == {}) == (name in OF_REPLICAS and answers is not REPLICA)
    if error is not None:
        expected = report({name: value}, answers)[name].expected
        assert error.message == f"{name} is {value} on mysql://u@h:3306, but {expected} is needed: {failed[name]}"
        assert (error.setting, error.expected, error.actual) == (name, expected, value)


@pytest.mark.parametrize("name", EACH)
def test_who_only_follows_the_log_takes_it_in_any_order_of_commits(name: str) -> None:
    error = refusal(fake({name: EACH[name]}, REPLICA), ordered=False)
    assert (error is None) == (name in ("binlog_order_commits", "replica_preserve_commit_order"))


@pytest.mark.parametrize(
    ("mode", "good"), [("ON", True), ("ON_PERMISSIVE", False), ("OFF_PERMISSIVE", False), ("OFF", True)]
)
def test_where_positions_are_places_in_the_log(mode: str, good: bool) -> None:
    kinds = kinds_of_watermark("signal-table")
    assert (refusal(fake({"gtid_mode": mode}), kinds=kinds) is None) == good
    rows = report({"gtid_mode": mode, "enforce_gtid_consistency": mode.partition("_")[0]}, kinds=kinds)
    assert (bad(rows) == {}) == good
    assert "enforce_gtid_consistency" not in rows


def test_a_setting_that_the_server_does_not_know_is_missing() -> None:
    known = {name: value for name, value in GOOD.items() if name != "binlog_order_commits"}
    error = refusal(FakeConnection(known))
    assert error is not None
    assert error.setting == "binlog_order_commits"


def test_a_good_server_is_asked_one_thing() -> None:
    """Planning must stay cheap, and SHOW REPLICA STATUS waits while a channel is being stopped."""
    for variables, count in (({}, 1), ({"replica_preserve_commit_order": "OFF"}, 2)):
        connection = fake(variables)
        assert connection.log_filters == ("", "")
        connection.queries.clear()
        assert refusal(connection) is None
        assert len(connection.queries) == count


def test_a_replica_that_may_not_be_asked_for_its_channels() -> None:
    denied = {"SHOW REPLICA STATUS": AccessError("denied", code=1227)}
    assert refusal(fake({}, denied)) is None
    with pytest.raises(AccessError):
        refusal(fake({"log_replica_updates": "OFF"}, denied))


@pytest.mark.parametrize(("do", "ignore"), [("a,b", ""), ("", "b,c")])
def test_filters_that_keep_changes_out_of_the_log(do: str, ignore: str) -> None:
    error = refusal(fake({}, {"SHOW BINARY LOG STATUS": [("f", 4, do, ignore, "")]}), ordered=False)
    assert error is not None
    assert error.message == (
        f"{error.setting} is {do or ignore} on mysql://u@h:3306, but '' is needed: restart the server without"
        f" {error.setting}; its log lacks earlier changes: continue on another server, or read the tables again"
    )


def test_filters_are_queried_once_per_connection() -> None:
    connection = fake()
    assert refusal(connection) is refusal(connection) is None
    assert [query for query in connection.queries if query.startswith("SHOW BINARY LOG")] == ["SHOW BINARY LOG STATUS"]
