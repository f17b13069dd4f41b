"""Rows that pass an expression, from the log and from chunks of a real server: MySQL's own WHERE is the model."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headgate.errors import RowFilterError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec
from headgate.policies import ColumnRule, Policies
from headgate.replication import ImageBatch
from headgate_testing import MySQLServer
from tests.integration.changes import Log

ROWS = "country = 'DE' AND amount > 10 AND (gone IS NULL OR gone >= '2026-01-02')"
COUNTRIES = ("'DE'", "'AT'", "NULL")
DATES = ("NULL", "'2026-01-01 23:59:59'", "'2026-01-02'")


class Source(Log):
    def __init__(self, server: MySQLServer, db: str) -> None:
        super().__init__(server, db, create=False)
        self.name = f"{db}.t"
        self.random = random.Random(7)
        # The country is masked and the date excluded: the rows are chosen by the values before the rules.
        rules = ((f"{db}.t", (("country", ColumnRule.parse("null")), ("gone", ColumnRule.parse("exclude")))),)
        self.policies = Policies.make({"columns": rules}, {self.name: {"rows": ROWS}})
        server.execute(
            f"CREATE TABLE {self.name} (id INT PRIMARY KEY, country VARCHAR(2), amount DECIMAL(8,2), gone DATETIME)"
        )

    def write(self, count: int) -> None:
        pick = self.random
        for _ in range(count):
            row = f"{pick.choice(COUNTRIES)}, {pick.choice(('NULL', 10, 10.01, 50))}, {pick.choice(DATES)}"
            key, other = pick.randrange(12), pick.randrange(12)
            self.server.execute(
                pick.choice(
                    [
                        f"REPLACE INTO {self.name} VALUES ({key}, {row})",
                        f"DELETE FROM {self.name} WHERE id = {key}",
                        f"UPDATE {self.name} SET country = {pick.choice(COUNTRIES)} WHERE id = {key}",
                        f"UPDATE {self.name} SET gone = {pick.choice(DATES)}",
                        f"UPDATE IGNORE {self.name} SET id = {other} WHERE id = {key}",
                    ]
                )
            )

    def expected(self) -> dict[int, Any]:
        return dict(self.server.query(f"SELECT id, amount FROM {self.name} WHERE {ROWS}"))

    def read_chunk(self, executed: GtidSet) -> dict[int, Any]:
        rows: dict[int, Any] = {}
        for item in self.chunks([ChunkSpec(self.name, 0)], executed, policies=self.policies):
            assert isinstance(item, ImageBatch), item
            assert item.batch.schema.names[4:] == ["id", "country", "amount"]
            assert item.batch["country"].null_count == item.batch.num_rows
            rows.update(zip(item.batch["id"].to_pylist(), item.batch["amount"].to_pylist(), strict=True))
        return rows

    def images(self, start: GtidSet, end: GtidSet, images: str) -> list[tuple[str, int, Any]]:
        rows = self.rows(self.name, start=start, end=end, images=images, policies=self.policies)
        return [(row["_op"], row["id"], row["amount"]) for row in rows]


@pytest.mark.parametrize("images", ["all", "keys"])
def test_chunks_and_the_log_bring_exactly_the_rows_that_pass(
    mysql_server: MySQLServer, mysql_db: str, images: str
) -> None:
    source = Source(mysql_server, mysql_db)
    source.write(40)
    seen = ""
    for _ in range(3):
        start, table = source.executed(), source.expected()
        source.write(40)
        assert source.read_chunk(start) == table  # rewound: the writes since may have moved rows in or out
        end = source.executed()
        for op, key, amount in source.images(start, end, images):
            seen += op
            if op in "bd":
                assert table.pop(key) == amount
            else:
                assert key not in table
                table[key] = amount
        assert table == source.expected()
    assert {*seen} == {*"bucd"}


def test_partial_images_are_refused(mysql_server: MySQLServer, mysql_db: str) -> None:
    source = Source(mysql_server, mysql_db)
    source.write(10)
    start = source.executed()
    with mysql_server.connect(autocommit=True) as connection, connection.cursor() as cursor:  # a session of its own
        cursor.execute(f"INSERT INTO {source.name} VALUES (99, 'DE', 20, NULL)")
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute(f"UPDATE {source.name} SET amount = 30 WHERE id = 99")
    with pytest.raises(RowFilterError, match="needs whole row images"):
        source.images(start, source.executed(), "all")
