"""``binlog_encryption`` switched ON and OFF while the log is read.

The server begins a new file at each switch, encrypted whole, with a header of 512 bytes before its first event. The
dump protocol delivers decrypted events with the positions that they have without that header, so nothing changes for a
reader; but the sizes of SHOW BINARY LOGS count it. (MySQL Reference Manual, "Encrypting Binary Log Files and Relay Log
Files".)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from headgate.errors import BinlogPurgedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection
from headgate.offsets import Hint
from headgate.replication import LogRead, RangeEnd, WindowReader, cut_in_order, previous_gtids, transaction_headers
from headgate_testing import MySQLServer
from tests.integration.changes import Log, plain

pytestmark = [pytest.mark.needs_own_server, pytest.mark.mysql(plugin="component_keyring_file")]


@pytest.fixture(scope="module")
def mysql_server() -> Iterator[MySQLServer]:
    with MySQLServer.start(keyring=True) as server:
        yield server


@pytest.fixture
def log(log: Log) -> Iterator[Log]:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(300))")
    log.mark()
    yield log
    log.do("SET GLOBAL binlog_encryption = OFF")


def switches(log: Log) -> list[GtidSet]:
    """OFF, ON, OFF, ON, each with rows 10 n to 10 n + 3; what was executed at each switch, and at the end."""
    sets = []
    for n, kind in enumerate(("OFF", "ON", "OFF", "ON")):
        sets.append(log.executed())
        log.do(f"SET GLOBAL binlog_encryption = {kind}", f"INSERT INTO t VALUES ({10 * n}, REPEAT('x', 300))")
        log.do("SET binlog_transaction_compression = ON", f"INSERT INTO t VALUES ({10 * n + 1}, REPEAT('y', 300))")
        log.do(log.server.tagging("tagged"), f"INSERT INTO t VALUES ({10 * n + 2}, 'z')")
        log.do(f"INSERT INTO t VALUES ({10 * n + 3}, NULL)", f"UPDATE t SET v = 'u' WHERE id = {10 * n}")
    return [*sets, log.executed()]


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def of(n: int) -> list[int]:
    """The ids of the images of one of the ranges."""
    return [10 * n, 10 * n + 1, 10 * n + 2, 10 * n + 3, 10 * n, 10 * n]


def files(log: Log) -> list[tuple[str, int, bool]]:
    """Name, size and whether it is encrypted, of every file of the log."""
    return [(name, size, kind == "Yes") for name, size, kind in log.server.query("SHOW BINARY LOGS")]


def test_every_reader_goes_through_both_kinds_of_files(log: Log) -> None:
    stream = log.following()
    switches(log)
    assert [encrypted for *_, encrypted in files(log)][-4:] == [False, True, False, True]
    expected = [number for n in range(4) for number in of(n)]
    assert ids(log.rows()) == expected
    assert ids(stream.rows()) == expected
    log.do("SET GLOBAL binlog_encryption = OFF", "DELETE FROM t WHERE id = 0")
    assert stream.rows() == [{"_op": "d", "id": 0, "v": "u"}]
    stream.close()
    with Connection.open(log.settings) as connection:
        end = connection.log_status()
    window = WindowReader(log.settings, log.start, server_uuid=log.server.server_uuid, tables=log.tables)
    assert ids(plain(list(window.read_to(*end)))) == [*expected, 0]
    assert window.gtid == log.executed()


def test_hints_into_files_of_either_kind(log: Log) -> None:
    """A reader stands in a file and goes on there: behind the switch, in front of it, in the file's middle."""
    sets = switches(log)
    uuid, end = log.server.server_uuid, log.executed()

    def read(start: GtidSet, end: GtidSet, hint: Hint | None) -> tuple[list[int], Hint]:
        items = log.items(start=start, end=end, uuid=uuid, hint=hint)
        last = items[-1]
        assert isinstance(last, RangeEnd)
        return ids(plain(items)), Hint(uuid, last.file, last.pos)

    hint = None
    for n, (before, after) in enumerate(pairwise(sets)):
        row_ids, hint = read(before, after, hint)
        assert row_ids == of(n)
    names = [name for name, *_ in files(log)][-4:]
    for n, name in enumerate(names):
        assert read(sets[n], sets[n + 1], Hint(uuid, name, 4))[0] == of(n)
        if n:
            assert previous_gtids(log.settings, name) == sets[n]
    assert cut_in_order(log.settings, sets[0], end, limit_rows=10**6) == end
    log.do("SET GLOBAL binlog_encryption = OFF", "INSERT INTO t VALUES (60, 'o')")
    first = log.executed()
    log.do("INSERT INTO t VALUES (61, 'p')", "SET GLOBAL binlog_encryption = ON", "INSERT INTO t VALUES (62, 'q')")
    row_ids, here = read(sets[-1], first, hint)
    assert (row_ids, read(first, log.executed(), here)[0]) == ([60], [61, 62])
    (header,) = transaction_headers(LogRead(log.settings, wanted=first - sets[-1]))
    assert [header] == transaction_headers(LogRead(log.settings, wanted=first - sets[-1], hint=hint))
    assert header.commit_us > 1_600_000_000_000_000


def test_positions_are_those_of_the_events(log: Log) -> None:
    """The log's end is never beyond where a dump comes to, though the file is 512 bytes longer."""
    log.do("SET GLOBAL binlog_encryption = ON", "INSERT INTO t VALUES (1, 'a')")
    with Connection.open(log.settings) as connection:
        file, pos = connection.log_status()
    name, size, encrypted = files(log)[-1]
    assert (name, encrypted, size) == (file, True, pos + 512)
    last = log.items()[-1]
    assert isinstance(last, RangeEnd)
    assert (last.file, last.pos) == (file, pos)


def test_chunks_and_prepared_transactions_across_switches(log: Log) -> None:
    """A window that goes over two switches; a PREPARE in an encrypted file, found from a plain one behind it."""
    log.do("SET GLOBAL binlog_encryption = ON", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    log.do("XA START 'x'", "INSERT INTO t VALUES (3, 'c')", "XA END 'x'", "XA PREPARE 'x'")
    end = log.executed()
    log.do("SET GLOBAL binlog_encryption = OFF", "UPDATE t SET v = 'later' WHERE id = 1")
    log.mark()
    log.do("SET GLOBAL binlog_encryption = ON", "DELETE FROM t WHERE id = 2", "XA COMMIT 'x'")
    assert log.chunk("t", end) == [{"_op": "r", "id": 1, "v": "a"}, {"_op": "r", "id": 2, "v": "b"}]
    assert [(row["_op"], row["id"]) for row in log.rows()] == [("d", 2), ("c", 3)]


def test_keys_are_rotated_and_old_files_are_purged(log: Log) -> None:
    switches(log)
    log.do("ALTER INSTANCE ROTATE BINLOG MASTER KEY", "INSERT INTO t VALUES (50, 'k')")
    assert ids(log.rows())[-7:] == [*of(3), 50]
    names = [name for name, *_ in files(log)]
    log.server.purge_log(names[-1])
    with pytest.raises(BinlogPurgedError):
        log.rows()
    log.start = previous_gtids(log.settings, names[-1])
    assert ids(log.rows())[-1:] == [50]
