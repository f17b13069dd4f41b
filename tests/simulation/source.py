"""The simulated source: two MySQL servers, one of which replicates from the other.

A transaction reaches the log, then its rows become visible, then ``gtid_executed`` has it, in three actions. So a
SELECT may see rows that ``gtid_executed`` lacks, and the log is ahead of both. Everything else follows from the log:
the rows after any of its transactions, the files, what is purged.

Rows after a transaction are one mapping by table, which shares all tables that the transaction did not change. The rows
of a table are a mapping that never changes (``tables``).
"""

from __future__ import annotations

import uuid as _uuid
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from headgate.gtid import GtidSet
from headgate.positions import Position
from tests.simulation.tables import Image, State

__all__ = ["FIRST_POS", "UUIDS", "Counts", "Server", "Transaction", "gtids"]

UUIDS: Final = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562")
FIRST_POS: Final = 4
_STEPS: Final = (130, 100)
"""Bytes of a transaction in each server's log."""

Counts: TypeAlias = tuple[int, int]
"""How many transactions of each server there are: a GTID set without holes."""

_BYTES: Final = tuple(_uuid.UUID(text).bytes for text in UUIDS)
_INDEX: Final = {value: index for index, value in enumerate(_BYTES)}


@lru_cache(maxsize=65_536)
def gtids(counts: Counts) -> GtidSet:
    """Return the set of the first transactions of each server."""
    return GtidSet({(_BYTES[index], ""): [(1, last)] for index, last in enumerate(counts) if last})


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in the log."""

    origin: int
    """Index of the server that committed it first."""
    number: int
    commit_us: int
    images: tuple[Image, ...] = ()
    statement: tuple[str, str] | None = None
    """Action and table of a DDL statement."""
    gtid: str = ""


@dataclass
class Server:
    """A server with its log."""

    index: int
    states: list[State]
    """Before the first transaction of the log, and after each."""
    counts: list[Counts]
    """The same, as sets."""
    log: list[Transaction] = field(default_factory=list)
    files: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    """Number of each binlog file, and the index of its first transaction."""
    purged: int = 0
    """So many transactions of the log are purged: whole files."""
    visible: int = 0
    executed: int = 0
    created_s: int = 1
    """When the first of the present files was created; the others follow."""
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """Origin and number → index in the log."""

    @property
    def uuid(self) -> str:
        return UUIDS[self.index]

    def append(self, transaction: Transaction, state: State) -> None:
        """Write a transaction to the log."""
        counts = self.counts[-1]
        made = (transaction.number, counts[1]) if transaction.origin == 0 else (counts[0], transaction.number)
        self.places[transaction.origin, transaction.number] = len(self.log)
        self.log.append(transaction)
        self.states.append(state)
        self.counts.append(made)

    def settle(self) -> None:
        """Let everything in the log become visible."""
        self.visible = self.executed = len(self.log)

    def rotate(self) -> None:
        """Begin another file."""
        self.files.append((self.files[-1][0] + 1, len(self.log)))

    def executed_set(self) -> GtidSet:
        return gtids(self.counts[self.executed])

    def purged_set(self) -> GtidSet:
        return gtids(self.counts[self.purged])

    def file_of(self, index: int) -> tuple[str, int, int]:
        """Return name, position and creation time of the file where transaction ``index`` is, or will be."""
        number, pos = self.position_of(index)
        return file_name(number), pos, self.created_s + number

    def position_of(self, index: int) -> tuple[int, int]:
        """Return the number of the file where a transaction is, and its position there."""
        for number, first in reversed(self.files):
            if first <= index:
                return number, FIRST_POS + (index - first) * _STEPS[self.index]
        raise IndexError(index)

    def index_at(self, file: str, pos: int, created_s: int | None) -> int | None:
        """Return the transaction at a position; None: there is no such position in this log.

        :param created_s: when the file was created; None: it may be another one of that name.
        """
        for number, first in self.files:
            if file_name(number) == file and created_s in (None, self.created_s + number):
                index = first + (pos - FIRST_POS) // _STEPS[self.index]
                return index if index <= len(self.log) else None
        return None

    def indexes(self, part: Position) -> list[int]:
        """Return the transactions of a set that the log has, in log order."""
        indexes = []
        for uuid, _, first, last in part.intervals():
            origin = _INDEX[uuid]
            indexes += [self.places[origin, n] for n in range(first, last + 1) if (origin, n) in self.places]
        return sorted(indexes)

    def length_of(self, position: Position) -> int:
        """Return how many transactions of the log are in a set, which begins the log."""
        counts = [0, 0]
        for uuid, _, _, last in position.intervals():
            counts[_INDEX[uuid]] = last
        low = self.counts[0]
        return counts[0] - low[0] + counts[1] - low[1]


def file_name(number: int) -> str:
    return f"binlog.{number:06d}"
