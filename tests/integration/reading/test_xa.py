"""XA transactions: what is prepared comes out where it is committed, wherever it was prepared; and never otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, DecodeError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import ChunkSpec
from headgate.positions import Position
from headgate.replication import DecodeOptions, Idle, ImageBatch, RangeEnd, WindowReader, _xa, follow, previous_gtids
from headgate_testing import MySQLServer
from tests.integration.changes import Log, images, lose_connections


class Site(Log):
    """A server, a database with tables ``t`` and ``u``, and XA transactions, each statement in a session of its own."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        super().__init__(server, db, create=False)
        self.do("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
        self.start, self.held_bytes = self.executed(), 64 << 20

    def place(self) -> tuple[str, int]:
        with Connection.open(self.settings) as connection:
            return connection.log_status()

    def xid(self, name: str) -> str:
        return f"'{self.db}','{name}',7"

    def prepare(self, name: str, *statements: str, before: str = "DO 0") -> str:
        """Prepares; the GTID of that."""
        had = self.executed()
        xid = self.xid(name)
        self.do(before, f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}")
        return str(self.executed() - had)

    def end(self, verb: str, name: str) -> str:
        """Commits or rolls back; the GTID of that."""
        had = self.executed()
        self.do(f"XA {verb} {self.xid(name)}")
        return str(self.executed() - had)

    def one_phase(self, name: str, *statements: str) -> None:
        xid = self.xid(name)
        self.do(f"XA START {xid}", *statements, f"XA END {xid}", f"XA COMMIT {xid} ONE PHASE")

    def all(self, tables: str = "*", **options: Any) -> list[dict[str, Any]]:
        items = self.items(f"{self.db}.{tables}", epoch=3, held_bytes=self.held_bytes, **options)
        assert isinstance(items[-1], RangeEnd)
        return [{**row, "table": row["table"].partition(".")[2]} for row in images(items)]

    def options(self, tables: str = "*") -> DecodeOptions:
        return DecodeOptions(TablePatterns([f"{self.db}.{tables}"]), epoch=3, held_bytes=self.held_bytes)

    def finish(self) -> None:
        """Prepared transactions hold locks: nothing may stay prepared."""
        with self.server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            for number, size, _, data in cursor.fetchall():
                if data[:size] == self.db:
                    cursor.execute(f"XA ROLLBACK '{data[:size]}','{data[size:]}',{number}")


def short(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["_op"], row["id"]) for row in rows]


@pytest.fixture
def site(mysql_server: MySQLServer, mysql_db: str) -> Iterator[Site]:
    site = Site(mysql_server, mysql_db)
    yield site
    site.finish()


@pytest.fixture(params=["held", "read again"])
def way(request: pytest.FixtureRequest, site: Site) -> str:
    """Both ways to the images of a transaction that one reader sees prepared and committed."""
    if request.param == "read again":
        site.held_bytes = 0
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_rows_come_out_at_their_commit(site: Site) -> None:
    site.do("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO u VALUES (1, 1)")
    site.mark()
    prepared = site.prepare(
        "x", "INSERT INTO t VALUES (5, 'e')", "UPDATE u SET v = 2", "UPDATE t SET id = 9 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )  # fmt: skip
    site.do("INSERT INTO t VALUES (50, 'between')")
    file, begin = site.place()
    gtid = site.end("COMMIT", "x")
    _, end = site.place()
    site.do("INSERT INTO t VALUES (51, 'after')")
    rows = site.all()
    assert [(row["table"], *pair) for row, pair in zip(rows, short(rows), strict=True)] == [
        ("t", "c", 50), ("t", "c", 5), ("u", "b", 1), ("u", "u", 1), ("t", "b", 1), ("t", "u", 9), ("t", "d", 2),
        ("t", "c", 51),
    ]  # fmt: skip
    mine = rows[1:-1]
    assert {row["_gtid"] for row in mine} == {gtid}
    assert gtid != prepared
    assert [row["_seq"][3] for row in mine] == [0, 1, 1, 2, 2, 3]
    (pos,) = {row["_seq"][2] for row in mine}
    assert begin < pos < end
    assert {row["_seq"][:2] for row in mine} == {(3, int(file.rpartition(".")[2]))}
    assert rows[0]["_ts"] <= mine[0]["_ts"] <= rows[-1]["_ts"]
    assert len({row["_ts"] for row in mine}) == 1
    assert short(site.all("u")) == [("b", 1), ("u", 1)]
    assert site.all("nothing") == []


@pytest.mark.usefixtures("way")
def test_a_rollback_leaves_no_trace(site: Site) -> None:
    site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
    site.do("INSERT INTO u VALUES (1, 1)")
    site.end("ROLLBACK", "x")
    assert [(row["table"], row["id"]) for row in site.all()] == [("u", 1)]
    site.prepare("x", "INSERT INTO t VALUES (2, 'a')")
    site.mark()
    site.end("ROLLBACK", "x")
    assert site.all() == []


@pytest.mark.usefixtures("way")
def test_one_phase_is_an_ordinary_transaction(site: Site) -> None:
    site.one_phase("x", "INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 1)")
    site.one_phase("x", "INSERT INTO t VALUES (2, 'a')")
    rows = site.all()
    assert [(row["table"], row["id"], row["_seq"][3]) for row in rows] == [("t", 1, 0), ("u", 1, 1), ("t", 2, 0)]
    assert rows[0]["_seq"][2] < rows[1]["_seq"][2]
    assert GtidSet.parse(rows[0]["_gtid"]) | GtidSet.parse(rows[2]["_gtid"]) == site.executed() - site.start


def test_what_changes_nothing_is_nothing(site: Site) -> None:
    site.prepare("x", "SELECT * FROM t")
    site.end("COMMIT", "x")
    assert site.all() == []


@pytest.mark.usefixtures("way")
def test_compressed_and_tagged(site: Site) -> None:
    compression = "SET SESSION binlog_transaction_compression = ON"
    site.prepare("x", "INSERT INTO t VALUES (1, REPEAT('x', 5000))", before=compression)
    site.prepare("y", "INSERT INTO t VALUES (2, 'y')", before=site.server.tagging("blue"))
    middle = site.executed()
    site.end("COMMIT", "x")
    site.end("COMMIT", "y")
    rows = site.all()
    assert short(rows) == [("c", 1), ("c", 2)]
    assert len(rows[0]["v"]) == 5000
    site.start = middle
    assert site.all() == rows


def test_prepared_before_the_range(site: Site) -> None:
    site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
    site.prepare("y", "INSERT INTO t VALUES (2, 'b')")
    site.do("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    site.prepare("z", "INSERT INTO t VALUES (3, 'c')")
    site.mark()
    gtids = [site.end("COMMIT", name) for name in "yzx"]
    rows = site.all()
    assert short(rows) == [("c", 2), ("c", 3), ("c", 1)]
    assert [row["_gtid"] for row in rows] == gtids


def test_an_xid_used_again_means_its_nearest_prepare(site: Site) -> None:
    site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
    site.end("COMMIT", "x")
    site.prepare("x", "INSERT INTO t VALUES (2, 'b')")
    site.end("ROLLBACK", "x")
    site.do("FLUSH BINARY LOGS")
    site.prepare("x", "INSERT INTO t VALUES (3, 'c')")
    site.mark()
    site.end("COMMIT", "x")
    site.prepare("x", "INSERT INTO t VALUES (4, 'd')")
    site.end("ROLLBACK", "x")
    site.prepare("x", "INSERT INTO t VALUES (5, 'e')")
    site.end("COMMIT", "x")
    assert short(site.all()) == [("c", 3), ("c", 5)]


def test_ranges_in_parallel_give_what_one_gives(site: Site) -> None:
    cuts = [site.start]
    for n in range(3):
        site.prepare(f"x{n}", f"INSERT INTO t VALUES ({n}, 'x')", f"INSERT INTO u VALUES ({n}, 0)")
        if n:
            site.end("COMMIT", f"x{n - 1}")
        site.do("FLUSH BINARY LOGS")
        cuts.append(previous_gtids(site.settings, site.place()[0]))
    site.end("COMMIT", "x2")
    cuts.append(site.executed())
    whole = site.all()
    pieces = [site.all(start=before, end=after) for before, after in pairwise(cuts)]
    assert [len(piece) for piece in pieces] == [0, 2, 2, 2]
    assert [row for piece in pieces for row in piece] == whole


def test_a_connection_lost_among_the_rows_of_a_commit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Position] = []

    def lose(lacked: list[Position]) -> bool:
        once = not lost and [one.count() for one in lacked].count(1) == 3  # the prepared transaction alone
        lost.extend(lacked[-1:] if once else ())
        return once

    lose_connections(monkeypatch, lose)
    site.prepare("x", *(f"INSERT INTO t VALUES ({n}, REPEAT('x', 1000000))" for n in range(12)))
    site.mark()
    site.do("INSERT INTO u VALUES (1, 1)")
    gtid = site.end("COMMIT", "x")
    site.do("INSERT INTO u VALUES (2, 2)")
    rows = site.all()
    assert lost
    assert [row["id"] for row in rows] == [1, *range(12), 2]
    assert {row["_gtid"] for row in rows[1:-1]} == {gtid}


def test_a_chunk_shows_what_was_committed_at_e(site: Site) -> None:
    """Prepared in E, committed between E and the SELECT: as of E the old rows are there."""
    site.do("INSERT INTO t VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    site.prepare(
        "x", "UPDATE t SET v = 'new' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 'new')"
    )
    site.prepare("y", "UPDATE t SET v = 'never' WHERE id = 3")
    site.do("FLUSH BINARY LOGS")
    end = site.executed()

    def chunk() -> list[tuple[int, str]]:
        items = site.chunks([ChunkSpec(f"{site.db}.t", 0, None, None)], end)
        rows = [row for item in items if isinstance(item, ImageBatch) for row in item.batch.to_pylist()]
        return sorted((row["id"], row["v"]) for row in rows)

    old = [(1, "old"), (2, "old"), (3, "old")]
    assert chunk() == old
    site.end("COMMIT", "x")
    site.end("ROLLBACK", "y")
    assert chunk() == old
    end = site.executed()
    site.prepare("z", "DELETE FROM t WHERE id = 1")
    assert chunk() == [(1, "new"), (3, "old"), (4, "new")]


def test_a_window_goes_on_between_prepare_and_commit(site: Site) -> None:
    window = WindowReader(
        site.settings, site.start, server_uuid=site.server.server_uuid, tables=TablePatterns([f"{site.db}.*"])
    )
    site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
    assert images(list(window.read_to(*site.place()))) == []
    site.do("INSERT INTO t VALUES (2, 'b')")
    site.end("COMMIT", "x")
    assert short(images(list(window.read_to(*site.place())))) == [("c", 2), ("c", 1)]
    assert window.gtid == site.executed()


@pytest.mark.usefixtures("way")
def test_following_gives_them_at_their_commit(site: Site) -> None:
    site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
    site.mark()
    site.prepare("y", "INSERT INTO t VALUES (2, 'b')")
    stream: Any = follow(site.settings, site.start, site.options())

    def until_idle() -> list[tuple[str, int]]:
        wanted, items = site.executed(), []
        for item in stream:
            items.append(item)
            if isinstance(item, Idle) and wanted <= item.gtid:
                return short(images(items))
        raise AssertionError

    assert until_idle() == []
    site.end("COMMIT", "y")
    assert until_idle() == [("c", 2)]
    site.end("COMMIT", "x")
    assert until_idle() == [("c", 1)]
    stream.close()


@pytest.mark.needs_own_server
def test_a_restart_between_and_a_purged_prepare() -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d")
        site = Site(server, "d")
        site.prepare("x", "INSERT INTO t VALUES (1, 'a')")
        site.prepare("y", "INSERT INTO t VALUES (2, 'b')")
        server.restart(kill=True)
        site.settings = ConnectionSettings.from_url(server.url)
        site.end("COMMIT", "x")
        assert short(site.all()) == [("c", 1)]
        site.mark()
        server.purge_log()
        gtid = site.end("COMMIT", "y")
        with pytest.raises(BinlogPurgedError, match=f"X'{b'd'.hex()}',X'{b'y'.hex()}',7") as caught:
            site.all()
        assert caught.value.gtid == gtid


def test_xids_have_one_spelling() -> None:
    event = bytes([0, 255, 255, 255, 255, 2, 0, 0, 0, 1, 0, 0, 0]) + b"\x00Jk"
    one_phase, xid = _xa.parse_prepare(event)
    assert (one_phase, xid) == (False, "X'004a',X'6b',4294967295")
    assert _xa.parse_xa_statement("XA COMMIT X'004A',X'6b',4294967295") == ("COMMIT", xid)
    assert _xa.parse_prepare(b"\x01" + event[1:])[0]
    assert _xa.parse_xa_statement("XA RECOVER") is None
    with pytest.raises(DecodeError, match="truncated"):
        _xa.parse_prepare(event[:-1])
