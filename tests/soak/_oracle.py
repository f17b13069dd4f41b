"""The judge of an episode at rest: delta-rs reads the lake, PyMySQL the server. No code of headgate's."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headgate_testing import MySQLServer
from tests.soak._world import KEYED, TABLES, TOTAL

__all__ = ["has_applied", "judge"]

_COLUMNS: Final = {
    "accounts": "id, balance, n", "savings": "name, balance, n", "journal": "id, writer, seq",
    "churn": "id, v, note, d, at", "loose": "v, note",
}  # fmt: skip

_SUMS: Final = {
    "accounts": "SELECT sum(balance) AS balance, sum(n) AS n FROM t",
    "savings": "SELECT sum(balance) AS balance, sum(n) AS n FROM t",
    "journal": "SELECT count(*) AS n FROM t",
}
_LEDGER_ROWS: Final = 40
"""So many of the newest rows of the ledger are judged."""


def has_applied(lake: Path, server: MySQLServer) -> bool:
    """Return whether the newest row of the ledger has every transaction of the server."""
    newest = _query(lake / "_headgate" / "ledger", "SELECT gtid FROM t ORDER BY epoch DESC LIMIT 1")
    sql = "SELECT GTID_SUBSET(@@GLOBAL.gtid_executed, '{}')"
    return bool(newest) and server.query(sql.format(newest[0]["gtid"]))[0][0] == 1


def judge(lake: Path, server: MySQLServer) -> dict[str, int]:
    """Judge a lake whose pipeline has applied everything. Return what was compared.

    :raises AssertionError: something was lost, repeated or half applied.
    """
    rows = _rows_are_equal(lake, server)
    return {"rows": rows, "changes": _changes_come_once(lake), "ledger rows": _ledger_rows_are_cuts(lake)}


def _query(folder: Path, sql: str, version: int | None = None) -> list[dict[str, Any]]:
    table = QueryBuilder().register("t", DeltaTable(str(folder), version)).execute(sql).read_all()
    rows: list[dict[str, Any]] = pa.table(table).to_pylist()
    return rows


def _rows_are_equal(lake: Path, server: MySQLServer) -> int:
    compared = 0
    for table in TABLES:
        names = _COLUMNS[table]
        theirs = Counter(tuple(row.values()) for row in _query(lake / "bank" / table, f"SELECT {names} FROM t"))
        ours = Counter(server.query(f"SELECT {names} FROM bank.{table}"))
        assert theirs == ours, f"{table}: {len(theirs - ours)} rows too many, {len(ours - theirs)} are missing"
        compared += sum(ours.values())
    return compared


def _changes_come_once(lake: Path) -> int:
    """In each changelog every change is there once, and those of a key follow from each other."""
    compared = 0
    for table in TABLES:
        changes = _query(
            lake / "_changelog" / "bank" / table,
            "SELECT _op, _gtid, _seq['epoch'] AS epoch, _seq['file'] AS file, _seq['pos'] AS pos,"
            f" _seq['ordinal'] AS ordinal, {_COLUMNS[table]} FROM t",
        )
        seen = Counter((row["_gtid"], row["ordinal"]) for row in changes if row["_op"] not in ("r", "t"))
        twice = [key for key, count in seen.items() if count > 1]
        assert not twice, f"{table}: {len(twice)} changes are there twice, such as {twice[0]}"
        if table in KEYED:
            changes.sort(key=lambda row: (row["epoch"], row["file"], row["pos"], row["ordinal"]))
            _follow(table, changes)
        compared += len(changes)
    return compared


def _follow(table: str, changes: list[dict[str, Any]]) -> None:
    """Each row that was ever counted up was counted up by one, from one change to the next."""
    if table not in ("accounts", "savings"):
        return
    key = "id" if table == "accounts" else "name"
    counts = defaultdict[Any, list[int]](list)
    for change in changes:
        counts[change[key]].append(change["n"])
    for value, numbers in counts.items():
        steps = {after - before for before, after in pairwise(numbers)}
        assert steps <= {0, 1}, f"{table}: a change of {value} is missing: {numbers}"


def _ledger_rows_are_cuts(lake: Path) -> int:
    """Each row of the ledger is a cut through all tables between two transactions."""
    rows = _query(lake / "_headgate" / "ledger", "SELECT epoch, tables FROM t ORDER BY epoch")
    assert len({row["epoch"] for row in rows}) == len(rows), "two rows of the ledger have one epoch"
    judged = 0
    for row in rows[-_LEDGER_ROWS:]:
        states = {state["table"]: state for state in row["tables"]}
        versions = {
            table: state["version"]
            for table in _SUMS
            if (state := states.get(f"bank.{table}")) is not None and state["state"] == "live"
        }
        if versions.keys() != _SUMS.keys():
            continue
        sums = {table: _query(lake / "bank" / table, sql, versions[table])[0] for table, sql in _SUMS.items()}
        balance = sums["accounts"]["balance"] + sums["savings"]["balance"]
        assert balance == TOTAL, f"epoch {row['epoch']}: {balance} instead of {TOTAL} in all accounts"
        moves = sums["accounts"]["n"] + sums["savings"]["n"]
        assert moves == 2 * sums["journal"]["n"], (
            f"epoch {row['epoch']}: {moves} moves, {sums['journal']['n']} in the journal"
        )
        judged += 1
    return judged
