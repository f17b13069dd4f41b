"""GTID sets against the server's own functions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.gtid import GtidSet
from headgate_testing import MySQLServer

UUIDS = ["3e11fa47-71ca-11e1-9e33-c80aa9429562", "9e11fa47-71ca-11e1-9e33-c80aa9429562"]
interval = st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda ends: f"{ends[0]}-{ends[1]}") | st.integers(
    1, 12
).map(str)


def texts(tags: list[str]) -> st.SearchStrategy[str]:
    part = st.lists(interval, min_size=1, max_size=3).map(":".join)
    tagged = st.tuples(st.sampled_from(tags), part).map(lambda parts: ":".join(word for word in parts if word))
    source = st.tuples(st.sampled_from(UUIDS), st.lists(tagged, min_size=1, max_size=3))
    return st.lists(source.map(lambda parts: ":".join((parts[0], *parts[1]))), max_size=3).map(",\n".join)


def check(server: MySQLServer, left: str, right: str) -> None:
    a, b = GtidSet.parse(left), GtidSet.parse(right)
    subset, without, canonical = server.query(
        "SELECT GTID_SUBSET(%s, %s), GTID_SUBTRACT(%s, %s), GTID_SUBTRACT(%s, '')", (left, right, left, right, left)
    )[0]
    assert bool(subset) == (a <= b)
    assert without.replace("\n", "") == str(a - b)
    assert canonical.replace("\n", "") == str(a)
    assert server.query("SELECT GTID_SUBTRACT(%s, '')", (str(a),))[0][0] == canonical


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts([""]), texts([""]))
def test_untagged(mysql_server: MySQLServer, left: str, right: str) -> None:
    check(mysql_server, left, right)


@pytest.mark.mysql(">= 8.3", "GTIDs with tags")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts(["", "a", "Tag_2"]), texts(["", "a", "tag_2"]))
def test_tagged(mysql_server: MySQLServer, left: str, right: str) -> None:
    check(mysql_server, left, right)
