"""The source: two MySQL servers that follow each other, those who write there, and the recorder of what MySQL had."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pymysql

from headgate_testing import MySQLServer, Proxy
from tests.soak._history import COLUMNS, Rows, digest

__all__ = ["Moment", "Source"]

_ACCOUNTS: Final = 400
_RECORDER_SECONDS: Final = 3.0


class Moment(NamedTuple):
    """What MySQL had at one moment: a set of GTIDs, and the digest of the rows of each table."""

    gtids: str
    digests: dict[str, int]


class Source:
    """Two servers, the address of the one that is the source, and those who write and read there.

    ``moments`` grows while they write.
    """

    def __init__(self, first: MySQLServer, second: MySQLServer, proxy: Proxy, seed: int) -> None:
        self.server, self.replica, self.proxy = first, second, proxy
        self.moments: list[Moment] = []
        self._seed, self._threads = seed, list[_Repeated]()

    def fill(self) -> None:
        """Create the tables with their first rows."""
        names = ",".join(f"('name {n}', 100, 0)" for n in range(_ACCOUNTS))
        self.server.execute(
            "CREATE DATABASE bank",
            "CREATE TABLE bank.accounts (id INT PRIMARY KEY, balance INT NOT NULL, n INT NOT NULL)",
            "CREATE TABLE bank.savings (name VARCHAR(40) PRIMARY KEY, balance INT NOT NULL, n INT NOT NULL)",
            "CREATE TABLE bank.journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, seq INT NOT NULL)",
            "CREATE TABLE bank.churn (id INT PRIMARY KEY, v INT, note TEXT, d DECIMAL(12,3), at DATETIME(6))",
            "CREATE TABLE bank.loose (v INT, note VARCHAR(20))",
            f"INSERT INTO bank.accounts VALUES {','.join(f'({n}, 100, 0)' for n in range(_ACCOUNTS))}",
            f"INSERT INTO bank.savings VALUES {names}",
        )

    def write(self) -> None:
        """Let the writers and the recorder begin."""
        self._seed += 100
        writers = [_Writer(self.server, self._seed + number) for number in range(2)]
        self._threads = [*writers, _Recorder(self.server, self.moments)]
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """Let them end. A last change makes sure that the pipeline has something to apply.

        :raises AssertionError: the recorder failed.
        """
        for thread in self._threads:
            thread.ended.set()
        for thread in self._threads:
            thread.join()
        failures = [thread.failure for thread in self._threads if thread.failure is not None]
        self._threads = []
        assert not failures, f"a writer or the recorder failed: {failures[0]!r}"
        self.server.execute("REPLACE INTO bank.churn VALUES (-1, NULL, UUID(), NULL, NOW(6))")

    def fail_over(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """The replica becomes the source, and the other way round; the address leads to it from now on.

        :param meanwhile: called while the address leads nowhere.
        """
        self.rest()
        self.replica.wait_for(self.server.gtid_executed)
        self.proxy.cut()
        self.server, self.replica = self.replica, self.server
        self.server.execute("STOP REPLICA", "RESET REPLICA ALL")
        self.proxy.aim(self.server.host, self.server.port)
        self.replica.follow(self.server)
        meanwhile()
        self.write()
        self.proxy.restore()

    def restart(self, *, kill: bool) -> None:
        """Restart the server of the source."""
        self.rest()
        self.server.restart(kill=kill)
        self.write()


class _Repeated(threading.Thread):
    """Repeats one thing with a connection until ``ended`` is set. An error ends it, and stays in ``failure``."""

    def __init__(self, server: MySQLServer) -> None:
        super().__init__(daemon=True)
        self._server = server
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with self._server.connect(database="bank", autocommit=False) as connection, connection.cursor() as cursor:
                while not self.ended.wait(self.pause()):
                    self.once(connection, cursor)
        except Exception as error:  # noqa: BLE001 - ``Source.rest`` looks at it
            self.failure = error

    def pause(self) -> float:
        """Return the seconds before the next time."""
        raise NotImplementedError

    def once(self, connection: pymysql.Connection[Any], cursor: pymysql.cursors.Cursor) -> None:
        """Do it once."""
        raise NotImplementedError


class _Recorder(_Repeated):
    """Notes what MySQL has: between two transactions, under a lock of all tables, as ``mysqldump`` does."""

    def __init__(self, server: MySQLServer, moments: list[Moment]) -> None:
        super().__init__(server)
        self._moments = moments

    def pause(self) -> float:
        return _RECORDER_SECONDS

    def once(self, connection: pymysql.Connection[Any], cursor: pymysql.cursors.Cursor) -> None:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        [gtids] = cursor.fetchone() or ("",)
        cursor.execute("UNLOCK TABLES")
        digests = {}
        for table, names in COLUMNS.items():
            cursor.execute(f"SELECT {', '.join(names)} FROM {table}")
            digests[table] = digest(Rows(cursor.fetchall()))
        connection.rollback()
        self._moments.append(Moment(gtids, digests))


class _Writer(_Repeated):
    """Transactions that move money, and others that insert, delete and rename rows."""

    def __init__(self, server: MySQLServer, seed: int) -> None:
        super().__init__(server)
        self._writer, self._choice, self._seq = seed, random.Random(seed), 0

    def pause(self) -> float:
        return self._choice.choice((0.0, 0.03, 0.1))

    def once(self, connection: pymysql.Connection[Any], cursor: pymysql.cursors.Cursor) -> None:
        with contextlib.suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
            self._move(cursor)
            if self._choice.random() < 0.5:
                self._churn(cursor)
            if self._choice.random() < 0.9:
                connection.commit()
                return
        connection.rollback()

    def _move(self, cursor: pymysql.cursors.Cursor) -> None:
        """Move money between two accounts, in one table or between both."""
        choice, money = self._choice, self._choice.randrange(1, 20)
        for amount in (money, -money):
            if choice.random() < 0.5:
                table, key, value = "accounts", "id", str(choice.randrange(_ACCOUNTS))
            else:
                table, key, value = "savings", "name", f"'name {choice.randrange(_ACCOUNTS)}'"
            cursor.execute(f"UPDATE {table} SET balance = balance + {amount}, n = n + 1 WHERE {key} = {value}")
        cursor.execute(f"INSERT INTO journal (writer, seq) VALUES ({self._writer}, {self._seq})")
        self._seq += 1

    def _churn(self, cursor: pymysql.cursors.Cursor) -> None:
        choice, key = self._choice, self._choice.randrange(3000)
        cursor.execute(
            choice.choice(
                (
                    f"REPLACE INTO churn VALUES ({key}, {key}, REPEAT('é', {key % 200}), {key}.125, NOW(6))",
                    f"UPDATE churn SET id = id + 5000 WHERE id = {key}",
                    f"UPDATE churn SET note = NULL, d = d + 1 WHERE id BETWEEN {key} AND {key + 40}",
                    f"DELETE FROM churn WHERE id % 50 = {key % 50}",
                    "INSERT INTO churn SELECT id + 10000, v, note, d, at FROM churn WHERE id < 5000 LIMIT 20",
                )
            )
        )
        if choice.random() < 0.03:
            cursor.execute("DELETE FROM journal ORDER BY id LIMIT 100")
        if choice.random() < 0.01:  # a batch of so many bytes has its images in files
            cursor.execute(f"UPDATE churn SET note = REPEAT('ü', {key % 400 + 400})")
        if choice.random() < 0.02:  # a table without a key is read in a moment without changes
            cursor.execute(f"INSERT INTO loose VALUES ({key % 7}, 'note'), ({key % 7}, 'note'), (NULL, NULL)")
            cursor.execute(f"DELETE FROM loose WHERE v = {choice.randrange(7)} LIMIT 2")
