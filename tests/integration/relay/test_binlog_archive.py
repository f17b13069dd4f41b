"""The log out of a relay is the server's own: the same rows at the same places, whatever happens to the relay."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.catalog import TablePatterns
from headgate.cli import app
from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, LogRequest
from headgate.offsets import ChunkSpec
from headgate.relay.archive import LogOfRelay
from headgate.relay.server import LogicalSource, PhysicalSource, Relay, RelayConfig, create_app
from headgate.replication import (
    Ddl,
    DecodeOptions,
    LogBlock,
    LogRead,
    RangeEnd,
    WindowReader,
    cut_in_order,
    read_range,
    transaction_headers,
)
from headgate.snapshot import ChunkRead, read_chunks
from headgate.web.serving import Serving
from headgate_testing import MySQLServer, wait_until

DEADLINE_SECONDS = 240


@dataclass
class Keeping:
    """A relay that keeps the log, and a way to it."""

    relay: Relay
    log: LogOfRelay

    def wait_for(self, gtid: str) -> None:
        """Until it reads the log, and has all of this."""
        wanted = GtidSet.parse(gtid)

        def has_it() -> bool:
            head = self.log.head()
            return bool(head.server_uuid) and wanted <= head.gtid

        wait_until(has_it, lambda: f"the relay is at {self.log.head()}", seconds=DEADLINE_SECONDS)


@contextlib.contextmanager
def keeping(
    server: MySQLServer, folder: Path, *, had: str | None = None, disk_bytes: int = 1 << 28, port: int = 0,
    falls_back: bool = False, anew: bool = False, url: str | None = None, **config: Any,
) -> Iterator[Keeping]:  # fmt: skip
    """A relay in this process that keeps the log from ``had`` on (by default from now)."""
    settings = ConnectionSettings.from_url(url or server.url)
    source = PhysicalSource(1, "test", settings, (LogicalSource(1, "test.None", "nobody.has_this"),))
    start = GtidSet.parse(server.gtid_executed if had is None else had)
    relay = Relay(
        RelayConfig(physical=(source,), state=folder, log_disk_bytes=disk_bytes, **config), lambda _: start, reset=anew
    )
    with relay, Serving(create_app(relay), "127.0.0.1", port) as serving:
        yield Keeping(relay, LogOfRelay(serving.url.rstrip("/"), falls_back=falls_back))


def do(server: MySQLServer, db: str, *statements: str) -> None:
    with server.connect(database=db, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def read(settings: ConnectionSettings, server: MySQLServer, db: str, wanted: GtidSet, images: str = "all") -> list[Any]:
    """What a range gives: statements, and rows with all their places."""
    executed = GtidSet.parse(server.gtid_executed)
    items = list(
        read_range(
            LogRead(settings, wanted=wanted, executed=executed, server_uuid=server.server_uuid),
            DecodeOptions(TablePatterns([f"{db}.*"]), epoch=3, images=images),
        )
    )
    assert isinstance(items[-1], RangeEnd)
    return [*rows_of(items), items[-1]]


def rows_of(items: list[Any]) -> list[Any]:
    rows: list[Any] = []
    for item in items:
        if isinstance(item, LogBlock):
            for image in item.images:
                batch = image.batch
                rows += zip(
                    [image.table.full_name] * batch.num_rows, [item.file] * batch.num_rows, batch.to_pylist(),
                    strict=True,
                )  # fmt: skip
        elif isinstance(item, Ddl):
            rows.append(item)
    return rows


def much_happens(server: MySQLServer, db: str) -> None:
    """Transactions of every form: of several tables, large ones, compressed, XA, statements, over several files."""
    xid = f"'{db}','x'"
    do(
        server, db,
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)", "CREATE TABLE u (a INT, b DECIMAL(9,2))",
        "INSERT INTO t (v) VALUES ('a'), ('b')",
        "BEGIN", "INSERT INTO u VALUES (1, 1.5)", "UPDATE t SET v = 'c' WHERE id = 1", "SAVEPOINT s",
        "DELETE FROM u", "ROLLBACK TO s", "COMMIT",
        f"XA START {xid}", "INSERT INTO t (v) VALUES ('xa')", f"XA END {xid}", f"XA PREPARE {xid}",
    )  # fmt: skip
    do(
        server, db, "INSERT INTO t (v) VALUES ('between')", f"XA COMMIT {xid}", "FLUSH BINARY LOGS",
        "INSERT INTO t (v) VALUES (REPEAT('x', 17000000))", "SET binlog_transaction_compression = ON",
        "INSERT INTO t (v) SELECT CONCAT('z', id) FROM t", "UPDATE t SET v = 'y' WHERE id < 3",
        "SET binlog_transaction_compression = OFF", "ALTER TABLE t ADD COLUMN w INT DEFAULT 4", "FLUSH BINARY LOGS",
        "TRUNCATE TABLE u", "CREATE TABLE w (id INT PRIMARY KEY)", "RENAME TABLE w TO x", "INSERT INTO x VALUES (1)",
        "DELETE FROM t WHERE id = 2", "DROP TABLE x",
    )  # fmt: skip
    for n in range(30):
        do(server, db, f"INSERT INTO u VALUES ({n}, {n}.25), ({n}, NULL)")


def test_both_roads_give_the_same_rows_at_the_same_places(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    server, db = mysql_server, mysql_db
    direct = ConnectionSettings.from_url(server.url)
    start = GtidSet.parse(server.gtid_executed)
    with keeping(server, tmp_path) as kept:
        much_happens(server, db)
        kept.wait_for(server.gtid_executed)
        relayed = replace(direct, log=kept.log)
        all_of_it = GtidSet.parse(server.gtid_executed) - start
        expected = read(direct, server, db, all_of_it)
        assert len(expected) > 80
        assert read(relayed, server, db, all_of_it) == expected
        assert read(relayed, server, db, all_of_it, images="keys") == read(direct, server, db, all_of_it, images="keys")
        numbers, rng = [str(one) for one in all_of_it], random.Random(5)
        for _ in range(6):  # any set: with holes, within files and over them
            some = GtidSet.parse(",".join(rng.sample(numbers, rng.randint(1, len(numbers)))))
            assert read(relayed, server, db, some) == read(direct, server, db, some)
        with Connection.open(direct) as connection:
            place = connection.log_status()
        windows = [
            rows_of(
                list(
                    WindowReader(
                        settings, start, server_uuid=server.server_uuid, tables=TablePatterns([f"{db}.*"])
                    ).read_to(*place)
                )
            )
            for settings in (relayed, direct)
        ]
        assert windows[0] == windows[1]
        executed = GtidSet.parse(server.gtid_executed)
        for rows in (1, 5, 40):
            cuts = [cut_in_order(one, start, executed, limit_rows=rows) for one in (direct, relayed)]
            assert start < cuts[1] <= executed
            assert cuts[1] <= cuts[0] or cuts[0] <= cuts[1]  # the pieces that bytes arrive in decide how far it goes
        one = GtidSet.parse(numbers[7])
        (archived,), (logged,) = (transaction_headers(LogRead(road, wanted=one)) for road in (relayed, direct))
        assert archived.last == logged.last
        last = kept.log.files()[-1]
        assert last.name == place[0]


def test_a_window_waits_until_the_relay_has_it(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """A chunk's window ends where the server's log did, however far the relay is behind."""
    server, db = mysql_server, mysql_db
    do(server, db, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    executed = GtidSet.parse(server.gtid_executed)
    direct = ConnectionSettings.from_url(server.url)
    with keeping(server, tmp_path) as kept:
        kept.wait_for(server.gtid_executed)
        spool = kept.relay.partitions[1].spool
        assert spool is not None
        store, waiting = spool.store, threading.Event()
        held = threading.Event()

        def slowly(item: Any) -> None:
            held.wait(DEADLINE_SECONDS)
            store(item)

        spool.store = slowly  # type: ignore[method-assign]
        do(server, db, "UPDATE t SET v = 20 WHERE id = 2", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (4, 4)")
        has_reached = spool._reaches_until

        def reaches(request: LogRequest) -> bool:
            reached = has_reached(request)
            if not reached:
                waiting.set()
            return reached

        spool._reaches_until = reaches  # type: ignore[method-assign]
        items: list[Any] = []
        reader = threading.Thread(
            target=lambda: items.extend(
                read_chunks(
                    ChunkRead(
                        replace(direct, log=kept.log),
                        [ChunkSpec(f"{db}.t", 0, None, None)],
                        executed,
                        server.server_uuid,
                        epoch=1,
                        planned_us=0,
                    )
                )
            )
        )
        reader.start()
        assert waiting.wait(DEADLINE_SECONDS)
        assert not items
        held.set()
        reader.join(DEADLINE_SECONDS)
    (chunk,) = items
    rows = chunk.batch.to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, 1), (2, 2), (3, 3)]


def test_a_restart_goes_on_without_gap_or_repeat(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    server, db = mysql_server, mysql_db
    start = GtidSet.parse(server.gtid_executed)
    do(server, db, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(9))")
    direct = ConnectionSettings.from_url(server.url)
    for n in range(2):
        with keeping(server, tmp_path, had=str(start)) as kept:
            do(server, db, f"INSERT INTO t (v) VALUES ('{n}')", "FLUSH BINARY LOGS", "INSERT INTO t (v) VALUES ('x')")
            kept.wait_for(server.gtid_executed)
        do(server, db, f"INSERT INTO t (v) VALUES ('off {n}')")
        (*_, last) = sorted((tmp_path / "log-1").glob("*.packets"))
        with last.open("ab") as file:  # a transaction that was not over when the relay was killed
            file.write((tmp_path / "log-1" / last.name).read_bytes()[:300])
    with keeping(server, tmp_path) as kept:
        kept.wait_for(server.gtid_executed)
        everything = GtidSet.parse(server.gtid_executed) - start
        assert read(replace(direct, log=kept.log), server, db, everything) == read(direct, server, db, everything)
        assert kept.log.head().begin == start


def test_what_is_not_kept(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """A log in so many bytes lets go of the oldest: an error, or the server is read."""
    server, db = mysql_server, mysql_db
    do(server, db, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)")
    start = GtidSet.parse(server.gtid_executed)
    direct = ConnectionSettings.from_url(server.url)
    with keeping(server, tmp_path, disk_bytes=1 << 20) as kept:
        for _ in range(30):
            do(server, db, "INSERT INTO t (v) VALUES (REPEAT('x', 100000))")
        kept.wait_for(server.gtid_executed)
        head = kept.log.head()
        assert start < head.begin < head.gtid
        assert sum(file.stat().st_size for file in (tmp_path / "log-1").glob("*.packets")) < 1_300_000
        newest = head.gtid - head.begin
        everything = GtidSet.parse(server.gtid_executed) - start
        assert read(replace(direct, log=kept.log), server, db, newest) == read(direct, server, db, newest)
        with pytest.raises(BinlogPurgedError, match="no longer has this part") as raised:
            read(replace(direct, log=kept.log), server, db, everything)
        assert GtidSet.parse(raised.value.needed) == everything - newest
        falls_back = replace(kept.log, falls_back=True)
        assert len(read(replace(direct, log=falls_back), server, db, everything)) == 31
        with pytest.raises(ConfigError, match="no physical source other; it has test"):
            replace(kept.log, source="other").head()
        missing = GtidSet.parse(f"{server.server_uuid}:999999")
        with pytest.raises(ServerBehindError):
            _soon(kept, missing)


def test_check(mysql_server: MySQLServer, tmp_path: Path) -> None:
    def row(*more: str) -> dict[str, str]:
        out = CliRunner().invoke(app, ["check", mysql_server.url, "--format", "json", *more]).stdout
        (result,) = [one for one in json.loads(out) if one["name"] == "relay"]
        return dict(result)

    with keeping(mysql_server, tmp_path) as kept:
        kept.wait_for(mysql_server.gtid_executed)
        assert row("--relay", kept.log.url)["status"] == "ok"
        failure = row("--relay", kept.log.url, "--relay-source", "other")
        assert failure["status"] == "fail"
        assert "no physical source other" in failure["actual"]
    assert "does not answer" in row("--relay", kept.log.url)["actual"]


def _soon(kept: Keeping, missing: GtidSet) -> None:
    """Ask for what is not there, without the time that a request may wait."""
    spool = kept.relay.partitions[1].spool
    assert spool is not None
    waits, spool._wait_seconds = spool._wait_seconds, 0.01
    try:
        with kept.log.open(LogRequest(executed_before=GtidSet(), executed=missing)):
            pass
    finally:
        spool._wait_seconds = waits
