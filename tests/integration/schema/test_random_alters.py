"""Random ALTERs among writes: whatever is applied in place, a table that is live equals its source after every batch.

Each history is one table, whose columns change by statements of all kinds, between batches, within one, and after a
batch was planned but before it is read. With ``binlog_row_metadata=MINIMAL`` the log does not name columns, so images
from before an ALTER may be ambiguous. There the table may stop within the history; it must not be live and wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from headgate.config import SchemaChangesConfig
from headgate_testing import MySQLServer
from tests.integration.streams import Stream

_numbers = itertools.count(1)

LADDERS = (
    ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"),
    ("TINYINT UNSIGNED", "SMALLINT UNSIGNED", "INT UNSIGNED", "BIGINT UNSIGNED"),
    ("DECIMAL(4,1)", "DECIMAL(6,2)", "DECIMAL(12,4)", "DECIMAL(20,4)"),
    ("VARCHAR(4)", "VARCHAR(9)", "VARCHAR(30)", "TEXT"),
    ("ENUM('a','b')", "ENUM('a','b','c')", "ENUM('a','b','c','d')"),
    ("SET('a','b')", "SET('a','b','c')"),
    ("VARBINARY(4)", "VARBINARY(8)"),
)
"""Types, each followed by wider ones."""
KINDS = ("add_column", "drop_column", "rename_column")
"""Changes that may be ignored."""


class Table:
    """The columns of the one table of a history, as the statements so far leave them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.columns: dict[str, tuple[int, int]] = {}  # name → its ladder, and the step on it
        self.key = 0
        for _ in range(4):
            self.columns[self._new_name()] = self._type()

    def _new_name(self) -> str:
        """A name of few, so that names come back."""
        return self.random.choice([name for name in "abcdefgh" if name not in self.columns])

    def _type(self) -> tuple[int, int]:
        ladder = self.random.randrange(len(LADDERS))
        return ladder, self.random.randrange(len(LADDERS[ladder]))

    def _some(self) -> str:
        return self.random.choice([*self.columns])

    def sql(self, name: str) -> str:
        ladder, step = self.columns[name]
        return LADDERS[ladder][step]

    def create(self) -> str:
        return f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'{name} {self.sql(name)}' for name in self.columns)})"

    def value(self, name: str) -> str:
        ladder, step = self.columns[name]
        if self.random.random() < 0.2:
            return "NULL"
        if ladder == 0:
            return str(self.random.choice([-1, 1]) * (2 ** [7, 15, 23, 31, 63][step] - 1))
        if ladder == 1:
            return str(2 ** [8, 16, 32, 64][step] - 1)
        if ladder == 2:
            return ["-99.9", "9999.99", "12345678.0001", "1234567890123456.0001"][step]
        if ladder in (4, 5):
            return f"'{self.random.choice('abcd'[: len(LADDERS[ladder][step].split(','))])}'"
        return f"'{self.random.choice(['x', 'x ', 'é', '0'])}{'y' * [1, 3, 20, 40][step]}'"

    def write(self) -> str:
        match self.random.randrange(4):
            case 0 | 1:
                self.key += 1
                values = ", ".join(self.value(name) for name in self.columns)
                return f"INSERT INTO t (id, {', '.join(self.columns)}) VALUES ({self.key}, {values})"
            case 2:
                name = self._some()
                return f"UPDATE t SET {name} = {self.value(name)} WHERE id % 3 = {self.random.randrange(3)}"
            case _:
                return f"DELETE FROM t WHERE id = {self.random.randint(1, max(1, self.key))}"

    def alter(self) -> str:
        """A statement, which is valid for the rows that :meth:`value` gave."""
        place = self.random.choice(["", "", " FIRST", f" AFTER {self._some()}"])
        match self.random.randrange(9):
            case 0 if len(self.columns) < 7:
                name, self_type = self._new_name(), self._type()
                self.columns[name] = self_type
                return f"ALTER TABLE t ADD {name} {self.sql(name)}{place}"
            case 1 if len(self.columns) < 7:
                name = self._new_name()
                self.columns[name] = (0, 3)
                return f"ALTER TABLE t ADD {name} INT DEFAULT 7{place}"
            case 0 | 1 | 2 if len(self.columns) > 2:
                name = self._some()
                del self.columns[name]
                return f"ALTER TABLE t DROP COLUMN {name}"
            case 3:
                old, new = self._some(), self._new_name()
                self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
                return f"ALTER TABLE t RENAME COLUMN {old} TO {new}"
            case 4 if len(self.columns) > 1:
                one, two = self.random.sample([*self.columns], 2)
                names = {one: two, two: one}
                self.columns = {names.get(name, name): kind for name, kind in self.columns.items()}
                return f"ALTER TABLE t RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}"
            case 5:
                name = self._some()
                other = self.random.choice([one for one in self.columns if one != name] or ["id"])
                return f"ALTER TABLE t MODIFY {name} {self.sql(name)} COMMENT 'moved' AFTER {other}"
            case 6:
                old, new = self._some(), self._new_name()
                kind = self._widened(old)
                self.columns = {
                    new if name == old else name: kind if name == old else k for name, k in self.columns.items()
                }
                return f"ALTER TABLE t CHANGE {old} {new} {self.sql(new)}"
            case _:
                name = self._some()
                self.columns[name] = self._widened(name)
                return f"ALTER TABLE t MODIFY {name} {self.sql(name)}{place if name not in place.split() else ''}"

    def _widened(self, name: str) -> tuple[int, int]:
        ladder, step = self.columns[name]
        return ladder, min(step + self.random.randrange(3), len(LADDERS[ladder]) - 1)


def history(stream: Stream, table: Table) -> int:
    """Run one history; return in how many batches with an ALTER the table stayed live."""
    random = table.random
    stream.do(*(table.write() for _ in range(6)))
    name, kept = f"{stream.db}.t", 0
    while stream.batch():
        pass
    for _ in range(8):
        done = [table.alter() if random.random() < 0.25 else table.write() for _ in range(random.randrange(1, 7))]
        stream.do(*done)
        meanwhile = [table.alter() if random.random() < 0.5 else table.write() for _ in range(random.randrange(3))]
        raced = random.random() < 0.4
        if stream.batch(*(meanwhile if raced else ())) and raced:
            continue
        if not raced and stream.states[name].state == "live":
            stream.assert_equal(name)
            kept += any(statement.startswith("ALTER") for statement in done)
        stream.do(*meanwhile)
    if any(state.state == "stopped" for state in stream.states.values()):
        assert stream.is_nameless
        return kept
    stream.finish()
    return kept


@pytest.fixture(scope="module")
def minimal_server() -> Iterator[MySQLServer]:
    with MySQLServer.start({"binlog_row_metadata": "MINIMAL"}) as server:
        yield server


def _histories(
    server: MySQLServer, folder: Path, seeds: Sequence[int], *, is_nameless: bool, ignoring: bool = False
) -> int:
    kept = 0
    for seed in seeds:
        db, seed_folder = f"random_alters{next(_numbers)}", folder / str(seed)
        seed_folder.mkdir()
        server.execute(f"CREATE DATABASE {db} CHARACTER SET utf8mb4")
        table = Table(Random(seed))
        server.execute(table.create().replace(" t ", f" {db}.t ", 1))
        try:
            stream = Stream(server, db, seed_folder, is_nameless=is_nameless)
            if ignoring:
                choices = {kind: Random(f"{seed} {kind}").choice(["ignore", "ignore", "evolve"]) for kind in KINDS}
                stream.schema_changes = SchemaChangesConfig.model_validate(choices)
            kept += history(stream, table)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            server.execute(f"DROP DATABASE {db}")
    return kept


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds", [range(4, 7), pytest.param([*range(4), *range(7, 12)], marks=pytest.mark.long)], ids=str
)
def test_random_alters_in_a_log_that_names_columns(
    mysql_server: MySQLServer, tmp_path: Path, seeds: Sequence[int]
) -> None:
    assert _histories(mysql_server, tmp_path, seeds, is_nameless=False) > len(seeds), "few are read again"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_alters_of_which_some_kinds_are_ignored(mysql_server: MySQLServer, tmp_path: Path) -> None:
    """The table's columns that are from the source equal it, renamed ones those that the ledger names."""
    assert _histories(mysql_server, tmp_path, range(200, 212), is_nameless=False, ignoring=True) > 12


@pytest.mark.long
@pytest.mark.needs_own_server
@pytest.mark.timeout(900)
def test_random_alters_in_a_log_without_names(minimal_server: MySQLServer, tmp_path: Path) -> None:
    _histories(minimal_server, tmp_path, range(100, 108), is_nameless=True)
    _histories(minimal_server, tmp_path, range(300, 304), is_nameless=True, ignoring=True)
