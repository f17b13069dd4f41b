"""The source's history by ``mysqlbinlog``: each transaction's changes, and the rows that the tables have after it.

The log begins with the creation of the tables, so the state at any set of GTIDs follows from it alone. All values are
Python's, as PyMySQL and Arrow return them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["COLUMNS", "KEYS", "Change", "GtidSet", "History", "Row", "Rows", "Transaction", "digest", "transactions"]

Row: TypeAlias = tuple[Any, ...]
Rows = Counter[Row]
"""How often each row is in a table."""


_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "0": "\0"}


def _text(printed: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), printed[1:-1])


def _number(printed: str) -> int:
    return int(printed.split(" ", maxsplit=1)[0])  # after a negative number comes the same bits' unsigned one


def _moment(printed: str) -> datetime:
    return datetime.fromisoformat(printed.strip("'"))


_TYPES: Final[dict[str, dict[str, Callable[[str], Any]]]] = {
    "accounts": {"id": _number, "balance": _number, "n": _number},
    "savings": {"name": _text, "balance": _number, "n": _number},
    "journal": {"id": _number, "writer": _number, "seq": _number},
    "churn": {"id": _number, "v": _number, "note": _text, "d": Decimal, "at": _moment},
    "loose": {"v": _number, "note": _text},
}
COLUMNS: Final = {table: (*types,) for table, types in _TYPES.items()}
"""Table → its columns."""
KEYS: Final = {table: "name" if table == "savings" else "id" for table in COLUMNS if table != "loose"}
"""Table → its key; ``loose`` has none."""


class Change(NamedTuple):
    """A committed change of one row: ``op`` is c, u or d; ``before`` of a ``c`` and ``after`` of a ``d`` are None."""

    op: str
    before: Row | None
    after: Row | None


class Transaction(NamedTuple):
    """A transaction's GTID, and its changes by table, in the log's order."""

    gtid: str
    changes: dict[str, list[Change]]


def digest(rows: Rows) -> int:
    """Return a number for the rows, the same for equal rows in this process."""
    return hash(frozenset(rows.items()))


class GtidSet:
    """A set of GTIDs without tags (MySQL Reference Manual, "GTID Sets")."""

    def __init__(self, text: str) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for part in text.split(","):
            server, *ranges = part.strip().split(":")
            self._ranges.setdefault(server, []).extend(map(_bounds, ranges))

    def has(self, gtid: str) -> bool:
        """Return whether the set has a GTID."""
        server, _, number = gtid.partition(":")
        return any(low <= int(number) <= high for low, high in self._ranges.get(server, ()))


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


class History:
    """Transactions that were read and not yet passed, and the state before them.

    :meth:`advance` passes them, so memory holds one episode's.
    """

    def __init__(self) -> None:
        self.state = {table: Rows() for table in COLUMNS}
        self.transactions: list[Transaction] = []
        self._gtids: set[str] = set()
        self._next = 0

    def read(self, lines: Iterable[str]) -> None:
        """Add the transactions in the output of ``mysqlbinlog -v`` that were not yet added, in its order."""
        for transaction in transactions(lines):
            if transaction.gtid not in self._gtids:
                self._gtids.add(transaction.gtid)
                self.transactions.append(transaction)

    def advance(self, gtids: str) -> set[str]:
        """Apply the transactions that a set has to :attr:`state`. Return the tables that changed.

        :raises AssertionError: the set is no moment between two transactions of the log.
        """
        moment, changed = GtidSet(gtids), set[str]()
        while self._next < len(self.transactions) and moment.has(self.transactions[self._next].gtid):
            for table, changes in self.transactions[self._next].changes.items():
                self._apply(table, changes)
                changed.add(table)
            self._next += 1
        later = [one.gtid for one in self.transactions[self._next :] if moment.has(one.gtid)]
        assert not later, (
            f"{gtids} has {later[0]}, not {self.transactions[self._next].gtid}, which was committed before"
        )
        return changed

    def forget(self) -> None:
        """Forget the transactions that were passed."""
        del self.transactions[: self._next]
        self._next = 0

    def _apply(self, table: str, changes: list[Change]) -> None:
        rows = self.state[table]
        for change in changes:
            if change.before is not None:
                assert rows[change.before] > 0, f"{table}: the log removes {change.before}, which was not there"
                rows[change.before] -= 1
                if not rows[change.before]:
                    del rows[change.before]
            if change.after is not None:
                rows[change.after] += 1


_GTID: Final = re.compile(r"SET @@SESSION\.GTID_NEXT= '([0-9a-f-]{36}:\d+)'")
_CHANGE: Final = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `bank`\.`(\w+)`")
_OPS: Final = {"INSERT INTO": "c", "UPDATE": "u", "DELETE FROM": "d"}


def transactions(lines: Iterable[str]) -> Iterable[Transaction]:
    """Yield the transactions in the output of ``mysqlbinlog -v``.

    ``### UPDATE `bank`.`churn``` is followed by ``### WHERE`` and the row before, ``### SET`` and the row after; an
    INSERT has only the second, a DELETE only the first. A value is ``###   @1=5``.
    """
    current: Transaction | None = None
    images: list[tuple[str, str, dict[str, list[Any]]]] = []
    values: list[Any] = []
    types: list[Callable[[str], Any]] = []
    for line in lines:
        if line.startswith("###   @"):
            printed = line[line.index("=") + 1 : -1]
            values.append(None if printed == "NULL" else types[len(values)](printed))
        elif line.startswith("### "):
            if match := _CHANGE.match(line):
                images.append((_OPS[match[1]], match[2], {}))
                types = [*_TYPES[match[2]].values()]
            else:
                values = images[-1][2].setdefault(line[4:].strip(), [])
        elif match := _GTID.match(line):
            if current is not None:
                yield _with_changes(current, images)
            current, images = Transaction(match[1], {}), []
    if current is not None:
        yield _with_changes(current, images)


def _with_changes(transaction: Transaction, images: list[tuple[str, str, dict[str, list[Any]]]]) -> Transaction:
    for op, table, sides in images:
        before, after = (tuple(sides[side]) if side in sides else None for side in ("WHERE", "SET"))
        transaction.changes.setdefault(table, []).append(Change(op, before, after))
    return transaction
