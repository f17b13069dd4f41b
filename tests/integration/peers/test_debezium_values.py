"""Debezium's scenarios for values and transactions, by their numbers (those for signals: ``test_debezium_signals``)."""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

import pytest

from headgate.errors import DecodeError
from headgate.policies import Policies
from headgate.positions import Position
from tests.integration.changes import Log, lose_connections

NULLS, TEXTS = Policies(zero_dates="null"), Policies(zero_dates="text")


def test_debezium_31_zero_dates_beside_the_key(log: Log) -> None:
    """They are null, and the dates beside them exact, on both roads."""
    log.do("CREATE TABLE a_dt (id INT PRIMARY KEY, d DATE, t DATETIME(3), s TIMESTAMP NULL, v INT)")
    log.do(
        "SET sql_mode = ''", "INSERT INTO a_dt VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', 0)",
        "INSERT INTO a_dt VALUES (2, '2024-02-29', '1970-01-01 00:00:00.001', '0000-00-00', NULL)",
    )  # fmt: skip
    expected: list[dict[str, Any]] = [
        {"id": 1, "d": None, "t": None, "s": None, "v": 0},
        {"id": 2, "d": dt.date(2024, 2, 29), "t": dt.datetime(1970, 1, 1, 0, 0, 0, 1000), "s": None, "v": None},
    ]
    assert log.rows(policies=NULLS) == [{"_op": "c", **row} for row in expected]
    assert log.chunk("a_dt", policies=NULLS) == [{"_op": "r", **row} for row in expected]


def test_debezium_31_zero_dates_in_the_key(log: Log) -> None:
    """As text they tell rows apart, also in a chunk that is turned back; as null they would not, and are refused."""
    log.do("CREATE TABLE t (d DATE, t DATETIME, v INT, PRIMARY KEY (d, t))")
    log.do(
        "SET sql_mode = ''",
        "INSERT INTO t VALUES ('0000-00-00', '0000-00-00', 1), ('0000-00-00', '2024-01-01', 2), ('2024-01-01', 0, 3)",
    )
    zero, zeros, first = "0000-00-00", "0000-00-00 00:00:00", "2024-01-01 00:00:00"
    expected = [(zero, zeros, 1), (zero, first, 2), ("2024-01-01", zeros, 3)]
    end = log.executed()

    def keys(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((row["d"], row["t"], row["v"]) for row in rows)

    assert keys(log.rows(policies=TEXTS)) == keys(log.chunk("t", policies=TEXTS)) == expected
    log.do("SET sql_mode = ''", "DELETE FROM t WHERE v = 1", "UPDATE t SET d = '2024-01-02' WHERE v = 2")
    log.do(
        "SET sql_mode = ''", "INSERT INTO t VALUES ('0000-00-00', '0000-00-00', 4)", "UPDATE t SET v = 9 WHERE v = 3"
    )
    assert keys(log.chunk("t", end, policies=TEXTS)) == expected
    for policies in (NULLS, Policies()):
        with pytest.raises(DecodeError, match="zero_dates") as logged:
            log.rows(policies=policies)
        with pytest.raises(DecodeError, match="zero_dates") as read:
            log.chunk("t", policies=policies)
        for error in (logged.value, read.value):
            assert (error.table, error.column) == (f"{log.db}.t", "d")


def test_debezium_36_compressed_transactions_over_tables_through_lost_connections(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event comes once, wherever the connection was lost, and from wherever one begins."""
    log.do("CREATE TABLE a (id INT PRIMARY KEY, v MEDIUMBLOB)", "CREATE TABLE b LIKE a")
    log.mark()
    prefixes, random = [log.start], Random(36)  # what cannot be compressed comes in several segments
    for n in range(4):
        log.do(
            "SET SESSION binlog_transaction_compression = ON", "BEGIN",
            f"INSERT INTO a VALUES ({n}, X'{random.randbytes(300_000).hex()}'), ({n + 10}, 'y')",
            f"INSERT INTO b VALUES ({n}, NULL)",
            f"UPDATE a SET v = 'z' WHERE id = {n}", f"DELETE FROM a WHERE id = {n + 10}", "COMMIT",
        )  # fmt: skip
        prefixes.append(log.executed())
    whole = log.rows()
    assert [(row["_op"], row["id"]) for row in whole] == [
        image for n in range(4) for image in (("c", n), ("c", n + 10), ("c", n), ("b", n), ("u", n), ("d", n + 10))
    ]
    for number, before in enumerate(prefixes):
        log.start = before
        assert log.rows() == whole[6 * number :]
    log.start, lost = prefixes[0], list[Position]()

    def lose(lacked: list[Position]) -> bool:
        """The first connection is lost behind its first segment, the second behind its second, and so on."""
        if len(lacked) < len(lost) + 2:
            return False
        lost.append(lacked[-1])
        return True

    lose_connections(monkeypatch, lose, at_once=65_536)  # so that no segment holds more than a transaction or two
    assert log.rows() == whole
    assert lost[0] != lost[-1]
