"""A stream that nobody applies to tables, while ALTER gives the key of a table that is being read another order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.carrier import DATA_COLUMN, KIND_COLUMN, Batch, open_images
from headgate_testing import MySQLServer
from tests.integration.streams import Stream

LETTERS = "AbCdEfGhIjKlMnOp"
LIST = ", ".join(f"'{letter}'" for letter in LETTERS)
REVERSED = ", ".join(f"'{letter}'" for letter in reversed(LETTERS))
CHANGES = {
    "a collation": ("VARCHAR(3) COLLATE utf8mb4_0900_ai_ci", "MODIFY k VARCHAR(3) COLLATE utf8mb4_bin NOT NULL"),
    "members": (f"ENUM({LIST})", f"MODIFY k ENUM({REVERSED}) NOT NULL"),
    "a character set": ("VARCHAR(3) CHARACTER SET latin1", "MODIFY k VARCHAR(3) CHARACTER SET binary NOT NULL"),
    "another column": ("VARCHAR(3) COLLATE utf8mb4_bin", "DROP PRIMARY KEY, ADD PRIMARY KEY (v)"),
}


class Raw(Stream):
    """A stream whose consumer takes rows of tables as they are read, and nothing else."""

    def __init__(self, server: MySQLServer, db: str, folder: Path, columns: str, rows: Iterable[str]) -> None:
        with server.connect(database=db, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE t ({columns})")
            cursor.execute(f"INSERT INTO t VALUES {', '.join(rows)}")
        super().__init__(server, db, folder)
        self.read: list[tuple[int, str]] = []
        """Epoch and key of each row."""

    def rows(self) -> set[str]:
        """The keys that the table's last snapshot read."""
        return {key for epoch, key in self.read if epoch >= self.since("t")}

    def _table(self, name: str, batch: Batch, rows: list[pa.RecordBatch]) -> None:
        blobs = [row[DATA_COLUMN][0] for row in rows if row[KIND_COLUMN][0].as_py() == "chunk"]
        for part in open_images(blobs):
            keys = part.column("k").to_pylist()
            self.read += [(batch.header.epoch, key.decode() if isinstance(key, bytes) else key) for key in keys]
        for number, redo in enumerate(batch.redo):
            value = {"type": "redo", "chunk": redo.chunk.to_dict(), "whole_table": redo.whole_table}
            self.inbox.write(f"signals/redo-{batch.header.epoch}-{number}.json", value)

    def finish(self) -> None:
        for _ in range(30):
            if not self.batch():
                break


@pytest.mark.parametrize("meanwhile", ["between batches", "while a chunk is read", "while the last chunk is read"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_row_is_read_in_the_new_order(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, change: str, meanwhile: str
) -> None:
    kind, alter = CHANGES[change]
    columns = f"k {kind} NOT NULL PRIMARY KEY, v VARCHAR(3) COLLATE utf8mb4_bin NOT NULL"
    rows = (f"('{k}', '{v}')" for k, v in zip(LETTERS, reversed(LETTERS), strict=True))
    stream = Raw(mysql_server, mysql_db, tmp_path, columns, rows)
    if meanwhile == "while the last chunk is read":
        while (end := stream.planner.latest(stream.offset)).snapshot.is_pending:
            assert stream.batch(end=end)
        assert stream.batch(f"ALTER TABLE t {alter}", end=end)
    else:
        assert stream.batch()
        first = stream.since("t")
        if meanwhile == "between batches":
            stream.do(f"ALTER TABLE t {alter}")
        else:
            assert stream.batch(f"ALTER TABLE t {alter}")
    stream.finish()
    assert stream.rows() == set(LETTERS)
    if meanwhile == "between batches":
        assert stream.since("t") > first


def test_a_change_that_keeps_the_order_keeps_what_was_read(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    rows = (f"('{letter}', 1)" for letter in LETTERS)
    stream = Raw(mysql_server, mysql_db, tmp_path, "k VARCHAR(3) PRIMARY KEY, v INT", rows)
    assert stream.batch()
    first = stream.since("t")
    stream.do("ALTER TABLE t MODIFY v BIGINT, ADD w INT FIRST, ADD INDEX (v), COMMENT 'x'")
    stream.finish()
    assert (stream.since("t"), stream.rows()) == (first, set(LETTERS))
