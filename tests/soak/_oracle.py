"""The judge of a world at rest: delta-rs reads the lake, PyMySQL and ``mysqlbinlog`` the source. No code of headgate's.

1. The tables of the newest ledger row have the rows that MySQL has.
2. The history by ``mysqlbinlog`` (``_history``) has, at each moment of the recorder, the rows that MySQL had.
3. The live tables of each kept ledger row have, at the versions that it names, the rows of the history as of its GTID
   set. So each row of the ledger is a state that MySQL had.
4. The changelogs have the history's changes, each once, in its order. What was committed before the first row of the
   ledger may be missing at their beginning, because snapshots contain it.
5. Epochs and GTID sets of the ledger grow from row to row.

Each judgement continues behind the last one; of what was judged before, a sample of the ledger's rows and the number of
the changes are judged again.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headgate_testing import MySQLServer
from tests.soak._history import COLUMNS, Change, GtidSet, History, Rows, digest
from tests.soak._source import Source

__all__ = ["Oracle"]

_KEPT: Final = timedelta(minutes=14)
"""Ledger rows of so long stay readable (``retention_hours`` is a quarter of an hour)."""
_SAMPLE: Final = 5


class Oracle:
    """The judge of one world."""

    def __init__(self, lake: Path, source: Source) -> None:
        self._lake, self._source, self._history = lake, source, History()
        self._log_files: dict[MySQLServer, str] = {}
        self._moments = 0
        self._epoch = -1
        self._gtids = ""
        self._changes = Counter[str]()
        self._judged: list[tuple[dict[str, Any], dict[str, int]]] = []

    def newest_epoch(self) -> int | None:
        """Return the epoch of the ledger's newest row; None: it has no row."""
        [row] = _query(self._lake / "_headgate" / "ledger", "SELECT max(epoch) AS epoch FROM t")
        epoch: int | None = row["epoch"]
        return epoch

    def has_applied(self) -> bool:
        """Return whether the newest row of the ledger has every transaction of the source."""
        newest = _query(self._lake / "_headgate" / "ledger", "SELECT gtid FROM t ORDER BY epoch DESC LIMIT 1")
        sql = "SELECT GTID_SUBSET(@@GLOBAL.gtid_executed, '{}')"
        return bool(newest) and self._source.server.query(sql.format(newest[0]["gtid"]))[0][0] == 1

    def judge(self) -> dict[str, int]:
        """Judge a lake whose pipeline has applied everything. Return what was compared.

        :raises AssertionError: something was lost, repeated or half applied.
        """
        self._read_log()
        rows = _query(
            self._lake / "_headgate" / "ledger",
            f"SELECT epoch, gtid, committed_at, tables FROM t WHERE epoch > {self._epoch} ORDER BY epoch",
        )
        self._ledger_is_continuous(rows)
        judged = self._states_are_mysqls(rows)
        judged["changes"] = self._changes_come_once(rows[0]["gtid"])
        judged["rows"] = self._rows_are_equal()
        self._history.forget()
        self._epoch, self._gtids = rows[-1]["epoch"], rows[-1]["gtid"]
        return judged

    def _read_log(self) -> None:
        """Read what was committed since the last time, from the log of the present source. Both servers have it all."""
        server, other = self._source.server, self._source.replica
        other.wait_for(server.gtid_executed)
        first = self._log_files.get(server) or str(server.query("SHOW BINARY LOGS")[0][0])
        self._history.read(server.printed_log(first))
        self._log_files = {one: one.new_log_file() for one in (server, other)}

    def _ledger_is_continuous(self, rows: list[dict[str, Any]]) -> None:
        assert rows, "the ledger has no new row"
        epoch, gtids = self._epoch, self._gtids
        for row in rows:
            assert row["epoch"] > epoch, f"two rows of the ledger have epoch {epoch}"
            [[grows]] = self._source.server.query("SELECT GTID_SUBSET(%s, %s)", (gtids, row["gtid"]))
            assert grows, f"epoch {row['epoch']}: {row['gtid']} lacks some of {gtids}, of the row before"
            epoch, gtids = row["epoch"], row["gtid"]

    def _states_are_mysqls(self, rows: list[dict[str, Any]]) -> dict[str, int]:
        """Walk through the history: from each row of the ledger, and each moment of the recorder, to the next."""
        history, moments = self._history, self._source.moments
        oldest = datetime.now(UTC) - _KEPT
        stops: list[tuple[int, int, Any]] = [(_size(row["gtid"]), 0, row) for row in rows]
        stops += [(_size(moment.gtids), 1, moment) for moment in moments[self._moments :]]
        self._moments = len(moments)
        versions: dict[str, int] = {}
        states = Counter[str]()
        for _, is_moment, stop in sorted(stops, key=lambda one: one[:2]):
            for table in history.advance(stop.gtids if is_moment else stop["gtid"]):
                versions.pop(table, None)
            if is_moment:
                for table, known in stop.digests.items():
                    assert digest(history.state[table]) == known, f"{table}: mysqlbinlog has other rows than MySQL had"
                states["moments"] += 1
            elif stop["committed_at"] >= oldest:
                states["as-of reads"] += self._is_state(stop, versions)
                states["ledger rows"] += 1
        for row, digests in random.sample(self._judged, min(_SAMPLE, len(self._judged))):
            if row["committed_at"] >= oldest:
                for table, known in digests.items():
                    lake = self._lake_rows(table, _live(row)[table])
                    assert digest(lake) == known, f"{table}: epoch {row['epoch']} has other rows than before"
                    states["as-of reads"] += 1
        return dict(states)

    def _is_state(self, row: dict[str, Any], versions: dict[str, int]) -> int:
        """Compare the live tables of a ledger row with the history's state. Return how many were read.

        :param versions: those that were compared with the same state before.
        """
        reads, digests = 0, {}
        for table, version in _live(row).items():
            state = self._history.state[table]
            if versions.get(table) != version:
                lake = self._lake_rows(table, version)
                assert lake == state, f"epoch {row['epoch']}: {_difference(table, lake, state)} as of {row['gtid']}"
                versions[table] = version
                reads += 1
            digests[table] = digest(state)
        self._judged.append((row, digests))
        return reads

    def _lake_rows(self, table: str, version: int | None = None) -> Rows:
        columns = ", ".join(COLUMNS[table])
        rows = _table(self._lake / "bank" / table, f"SELECT {columns} FROM t", version)
        return Rows(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def _rows_are_equal(self) -> int:
        compared = 0
        for table, names in COLUMNS.items():
            ours = Rows(self._source.server.query(f"SELECT {', '.join(names)} FROM bank.{table}"))
            assert ours == self._history.state[table], f"{table}: mysqlbinlog has other rows than MySQL"
            lake = self._lake_rows(table)
            assert lake == ours, _difference(table, lake, ours)
            compared += sum(ours.values())
        return compared

    def _changes_come_once(self, first: str) -> int:
        """In each changelog every change is there once, in the order of the log.

        :param first: the GTID set of the first row of the ledger since the last judgement.
        """
        compared, first_set = 0, GtidSet(first)
        for table in COLUMNS:
            folder = self._lake / "_changelog" / "bank" / table
            ours = [(one.gtid, change) for one in self._history.transactions for change in one.changes.get(table, [])]
            theirs = _changes(folder, table, self._epoch)
            if self._epoch < 0:  # snapshots contain what was committed before the stream began
                missing = len(ours) - len(theirs)
                assert missing <= sum(first_set.has(gtid) for gtid, _ in ours), (
                    f"{table}: {missing} changes are missing"
                )
                ours = ours[max(0, missing) :]
            more = [*(Counter(theirs) - Counter(ours))][:1]
            assert not more, f"{table}: the changelog has {more[0]} too often"
            assert len(theirs) == len(ours), f"{table}: {len(theirs)} changes instead of {len(ours)}"
            for our, their in zip(ours, theirs, strict=True):
                assert our == their, f"{table}: the changelog has {their}, the log {our}"
            older = f"SELECT count(*) AS n FROM t WHERE {_CHANGED} AND _seq['epoch'] <= {self._epoch}"
            [before] = _query(folder, older)
            assert before["n"] == self._changes[table], (
                f"{table}: {before['n']} older changes, not {self._changes[table]}"
            )
            self._changes[table] += len(theirs)
            compared += len(theirs)
        return compared


_CHANGED: Final = "_op NOT IN ('r', 't')"


def _table(folder: Path, sql: str, version: int | None = None) -> pa.Table:
    return pa.table(QueryBuilder().register("t", DeltaTable(str(folder), version)).execute(sql).read_all())


def _query(folder: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(folder, sql).to_pylist()
    return rows


def _changes(folder: Path, table: str, after: int) -> list[tuple[str, Change]]:
    """Return the changes of a changelog since an epoch with their GTIDs, in the order of ``_seq``."""
    names = COLUMNS[table]
    before = [f"_before['{name}']" for name in names]
    rows = _table(
        folder,
        f"SELECT _gtid, _op, {', '.join((*names, *before))} FROM t WHERE {_CHANGED} AND _seq['epoch'] > {after}"
        " ORDER BY _seq['epoch'], _seq['file'], _seq['pos'], _seq['ordinal']",
    )
    changes = []
    for gtid, op, *values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        row, old = tuple(values[: len(names)]), tuple(values[len(names) :])
        change = Change(op, row if op == "d" else old if op == "u" else None, None if op == "d" else row)
        changes.append((gtid, change))
    return changes


def _live(row: dict[str, Any]) -> dict[str, int]:
    """Return the versions of the tables that equal the source as of a ledger row."""
    states = {state["table"].removeprefix("bank."): state for state in row["tables"]}
    return {table: state["version"] for table, state in states.items() if state["state"] == "live"}


def _size(gtids: str) -> int:
    """Return how many GTIDs a set has."""
    ranges = [part for server in gtids.replace("\n", "").split(",") for part in server.split(":")[1:]]
    bounds = [part.partition("-") for part in ranges]
    return sum(int(high or low) - int(low) + 1 for low, _, high in bounds)


def _difference(table: str, theirs: Rows, ours: Rows) -> str:
    more, less = theirs - ours, ours - theirs
    examples = [*more][:2] + [*less][:2]
    return f"{table}: {sum(more.values())} rows too many, {sum(less.values())} are missing, such as {examples}"
