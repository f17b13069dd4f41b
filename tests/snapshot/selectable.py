"""A pretended server whose table can be selected: what a SELECT sees is a state between two transactions of its log."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from headgate.binlog import codes
from headgate.errors import AccessError, DefiniteServerError
from headgate.mysql import Connection
from headgate_testing._binlog import packed
from tests.mysql.test_prerequisites import GOOD
from tests.mysql.test_result import result
from tests.replication.pretended import Network, PretendedServer

Row = tuple[int, int | None]
"""``id`` and ``v``"""
Image = tuple[Row | None, Row | None]
"""Before and after a change; None: there is no row."""

_KINDS: Final = {(False, True): codes.WRITE_ROWS, (True, True): codes.UPDATE_ROWS, (True, False): codes.DELETE_ROWS}


class SelectableServer(PretendedServer):
    """One table ``d.t (id INT NOT NULL, v INT)``, whose key is ``id`` if ``is_keyed``."""

    def __init__(self, *, is_keyed: bool = True, anonymous: bool = False) -> None:
        self.is_keyed = is_keyed
        self.states: list[list[Row]] = [[]]
        """Rows before the first transaction, and after each."""
        self.engine = "InnoDB"
        self.columns = ["id", "v"]
        self.tables = ["t"]
        self.answers: dict[str, list[tuple[Any, ...]] | Exception] = {}
        """Other answers to statements, by how these begin (the longest counts); ``chunk``: the error of each SELECT of
        rows."""
        self.before_select: Callable[[], object] = lambda: None
        """Called when a SELECT of rows arrives, before its view is opened; ``after_select`` once it is; ``before_lock``
        before the table is locked."""
        self.after_select: Callable[[], object] = lambda: None
        self.before_lock: Callable[[], object] = lambda: None
        self.statements: list[str] = []
        self.view: list[Row] | None = None
        """Rows of a transaction that began WITH CONSISTENT SNAPSHOT."""
        super().__init__(anonymous=anonymous)

    # --- what is written

    def change(self, *images: Image) -> None:
        """Log a transaction."""
        self.begin()
        rows = [*self.states[-1]]
        for before, after in images:
            self._log(before, after)
            if before is not None:
                rows.remove(before)
            if after is not None:
                rows.append(after)
        self.write(lambda one: one.xid(self.number))
        self.states.append(rows)

    def statement(self, text: str) -> None:
        super().statement(text)
        self.states.append([] if text.startswith("TRUNCATE") else self.states[-1])

    def _log(self, before: Row | None, after: Row | None) -> None:
        names = b"".join(packed(len(name)) + name.encode() for name in ("id", "v"))
        optional = packed(4) + packed(len(names)) + names
        if self.is_keyed:
            optional += packed(8) + packed(1) + packed(0)
        types, nullable = [codes.T_LONG, codes.T_LONG], b"\2"
        self.write(lambda one: one.table_map(1, "d", "t", types, b"", nullable=nullable, optional=optional))
        images = b"".join(_logged(row) for row in (before, after) if row is not None)
        kind = _KINDS[before is not None, after is not None]
        self.write(lambda one: one.rows(kind, 1, 2, images))

    # --- what is selected

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        begins = [begin for begin in self.answers if sql.startswith(begin)]
        if begins:
            answer = self.answers[max(begins, key=len)]
            if isinstance(answer, Exception):
                raise answer
            return answer
        if sql.startswith("SELECT MAX(ORDINAL_POSITION)"):
            return [(1,)]
        if "information_schema" in sql:
            return [*self._catalog(sql)]
        if sql.startswith("SELECT `headgate: no such column`"):
            raise DefiniteServerError("unknown column", code=1054)
        if sql.startswith("SELECT CAST(`id` AS CHAR)"):
            return self._bound(sql)
        if "JSON_TABLE" in sql:
            return self._passing(sql)
        if sql.startswith("LOCK TABLES"):
            self.before_lock()
            return []
        if sql.startswith(("SET SESSION", "UNLOCK")):
            return []
        if sql.startswith("START TRANSACTION WITH CONSISTENT SNAPSHOT"):
            self.view = self.states[-1]
            return []
        return super().query(sql)

    def _catalog(self, sql: str) -> Iterator[tuple[Any, ...]]:
        for table in self.tables:
            if "information_schema.TABLES" in sql:
                yield "d", table, self.engine, len(self.states[-1]), 0, ""
            elif "information_schema.COLUMNS" in sql:
                for name in self.columns:
                    key, nullable = (
                        ("PRI", "NO") if name == "id" and self.is_keyed else ("", "NO" if name == "id" else "YES")
                    )
                    yield "d", table, name, "int", "int", nullable, None, 10, 0, None, None, None, "", "", key
            elif "information_schema.STATISTICS" in sql and self.is_keyed:
                yield "d", table, "PRIMARY", "id"

    def _bound(self, sql: str) -> list[tuple[Any, ...]]:
        match = re.fullmatch(r".* WHERE (.*) ORDER BY `id` (ASC|DESC) LIMIT 1 OFFSET (\d+)", sql)
        assert match is not None
        keys = sorted((row[0] for row in self.states[-1] if _fulfils(row, match[1])), reverse=match[2] == "DESC")
        return [(str(key),) for key in keys[int(match[3]) :][:1]]

    @staticmethod
    def _passing(sql: str) -> list[tuple[Any, ...]]:
        match = re.search(r"_utf8mb4 X'([0-9a-f]*)'.* WHERE (.*)", sql)
        assert match is not None
        values = [one for (one,) in json.loads(bytes.fromhex(match[1]))]
        return [(number,) for number, v in enumerate(values, 1) if _fulfils((0, v), match[2])]

    def select(self, sql: str) -> bytes:
        self.statements.append(sql)
        if isinstance(error := self.answers.get("chunk"), Exception):
            raise error
        self.before_select()
        rows = self.states[-1] if self.view is None else self.view
        chosen = [row for row in rows if _fulfils(row, sql.partition(" WHERE ")[2])]
        self.after_select()
        assert "SELECT /*+ MAX_EXECUTION_TIME(" in sql
        return result(2, [[None if value is None else str(value).encode() for value in row] for row in chosen])


def _logged(row: Row) -> bytes:
    key, value = row
    return bytes([2 * (value is None)]) + struct.pack("<i", key) + (b"" if value is None else struct.pack("<i", value))


def _fulfils(row: Row, condition: str) -> bool:
    """Whether a row fulfils a condition of bounds on ``id``, and perhaps ``v > n``."""
    key, value = row
    above, upto, least = (re.search(rf"{text} (-?\d+)", condition) for text in ("`id` >", "`id` <=", r"\bv >"))
    return (
        (above is None or key > int(above[1]))
        and (upto is None or key <= int(upto[1]))
        and (least is None or (value is not None and value > int(least[1])))
    )


def ready() -> SelectableServer:
    """Return a server that has all that a run needs; the account may read ``d.t`` only."""
    server = SelectableServer()
    variables = {**GOOD, "server_uuid": server.uuid, "innodb_native_foreign_keys": "OFF"}
    denied = AccessError("SELECT command denied", code=1142)
    server.answers = {
        "SHOW GLOBAL VARIABLES": [*variables.items()],
        "SHOW REPLICAS": [],
        "SELECT CURRENT_USER()": [("reader@%",)],
        "SELECT `id`, `v` FROM `d`.`t` LIMIT 0": [],
        "SELECT 1 FROM `d`.": [],
        "SELECT 1 FROM": denied,
        "SELECT value FROM mysql.rds_configuration": denied,
        "LOCK TABLES `d`.`headgate: no such table` READ": DefiniteServerError("no such table", code=1146),
    }
    return server


def variables(server: SelectableServer, **changed: str) -> None:
    """Change settings of a server."""
    known = server.answers["SHOW GLOBAL VARIABLES"]
    assert isinstance(known, list)
    server.answers["SHOW GLOBAL VARIABLES"] = [*{**dict(known), **changed}.items()]


@contextmanager
def connected(server: PretendedServer) -> Iterator[Network]:
    """Lead all connections to a server."""
    network = Network(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "open", network.connect)
        yield network
