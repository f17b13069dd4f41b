"""Writers for the exactness test, in a process of their own: ``exact_writers.py HOST PORT USER SEED WRITERS XA``.

Each writer commits random transactions on the tables of database ``exact`` until standard input ends; then the number
of committed transactions is printed. The share XA (0 to 1) of them are two-phase XA transactions, which stay prepared
for a while before they are committed or rolled back. Passwords come from MYSQL_PWD.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import deque

import pymysql

from headgate_testing import pass_time

ROWS = 150
"""Ids are drawn from twice as many."""
PAUSE_SECONDS = 0.004
"""Between a writer's transactions: load that a small machine bears beside the reading of snapshots."""
PREPARED_SECONDS = 0.06
"""How long a transaction stays prepared, at most: many snapshots begin meanwhile."""
LIFE_AMONG_WRITERS = (1062, 1205, 1213)
"""Duplicate key, lock wait, deadlock."""
ROLLED_BACK_ALREADY = (1402, 1613, 1614)
"""What XA END says after those."""
SPELLINGS = ["a", "A", "á", "Á", "à", "ä", "Ä", "å"]
"""One key to the collation, eight to the log."""


class Writer:
    """Random transactions on all tables, from one seed, until told to stop."""

    def __init__(self, connection: pymysql.Connection, seed: int, xa: float) -> None:
        self.random = random.Random(seed)
        self.xids, self.xa = deque(f"writer {seed}.{n}" for n in range(5)), xa
        self.connection = connection
        self.cursor = self.connection.cursor()
        self.committed = 0

    def run(self, stop: threading.Event) -> None:
        with self.connection:
            while not stop.wait(PAUSE_SECONDS):
                self.transaction()

    def transaction(self) -> None:
        if self.xa and self.random.random() < self.xa:
            self.two_phases()
        elif not self.changes() or self.random.random() < 0.12:
            self.connection.rollback()
        else:
            self.connection.commit()
            self.committed += 1

    def changes(self) -> bool:
        """Whether they went well."""
        try:
            for _ in range(self.random.choice((1, 1, 2, 3, 6))):
                self.random.choice((self.orders, self.orders, self.names, self.names, self.pairs, self.kinds))()
                if self.random.random() < 0.1:
                    self.savepoint()
        except pymysql.MySQLError as error:
            if error.args[0] not in LIFE_AMONG_WRITERS:
                raise
            return False
        return True

    def two_phases(self) -> None:
        """An xid is used again, but not at once; the second phase comes from the same session, but need not."""
        self.xids.rotate()
        self.do("XA START %s", self.xids[0])
        well = self.changes()
        try:
            self.do("XA END %s", self.xids[0])
        except pymysql.MySQLError as error:
            if error.args[0] not in ROLLED_BACK_ALREADY:
                raise
        if well:
            self.do("XA PREPARE %s", self.xids[0])
            pass_time(self.random.random() * PREPARED_SECONDS)
            well = self.random.random() > 0.25
        self.do(f"XA {'COMMIT' if well else 'ROLLBACK'} %s", self.xids[0])
        self.committed += well

    def do(self, sql: str, *args: object) -> None:
        self.cursor.execute(sql, args)

    def savepoint(self) -> None:
        self.do("SAVEPOINT s")
        self.orders()
        self.do("ROLLBACK TO SAVEPOINT s")

    def id(self) -> int:
        return self.random.randrange(ROWS * 2)

    def orders(self) -> None:
        one, two, n = self.id(), self.id(), self.random.randrange(1000)
        kind = self.random.randrange(8)
        if kind == 0:
            self.do("INSERT IGNORE INTO orders VALUES (%s, %s, 'new', 1.25, NOW(3))", one, n)
        elif kind == 1:
            self.do("REPLACE INTO orders VALUES (%s, %s, 'replaced', 2, NULL)", one, n)
        elif kind == 2:
            self.do("INSERT INTO orders VALUES (%s, %s, 'up', 3, NULL) ON DUPLICATE KEY UPDATE qty = %s", one, n, n)
        elif kind == 3:
            self.do("UPDATE orders SET qty = %s, note = REPEAT('x', %s) WHERE id = %s", n, n % 40, one)
        elif kind == 4:
            self.do("UPDATE orders SET qty = qty + 1 WHERE id BETWEEN %s AND %s", one, one + 5)
        elif kind == 5:
            self.do("DELETE FROM orders WHERE id = %s", one)
        elif kind == 6:
            self.do("UPDATE orders SET id = %s WHERE id = %s", two, one)
        else:
            self.swap("orders", one, two)

    def swap(self, table: str, one: int, two: int) -> None:
        spare = -1 - self.random.randrange(10**6)
        for old, new in ((one, spare), (two, one), (spare, two)):
            self.do(f"UPDATE {table} SET id = %s WHERE id = %s", new, old)

    def name(self) -> str:
        letters = "abcdefgh"
        text = self.random.choice(letters) + self.random.choice(letters) + self.random.choice("xyz")
        return text.replace("a", self.random.choice(SPELLINGS))

    def names(self) -> None:
        one, n = self.name(), self.random.randrange(1000)
        kind = self.random.randrange(6)
        if kind == 0:
            self.do("INSERT IGNORE INTO names VALUES (%s, %s)", one, n)
        elif kind == 1:
            self.do("REPLACE INTO names VALUES (%s, %s)", one, n)
        elif kind == 2:
            self.do("DELETE FROM names WHERE name = %s", one)
        elif kind in (3, 4):  # the same key to the collation, other bytes
            other = "".join(self.random.choice(SPELLINGS) if letter in SPELLINGS else letter for letter in one)
            self.do("UPDATE names SET name = %s WHERE name = %s", self.random.choice((other, other.upper())), one)
        else:
            self.do("UPDATE names SET name = %s, v = %s WHERE name = %s", self.name(), n, one)

    def pairs(self) -> None:
        a, b, n = self.random.randrange(12), self.name(), self.random.random()
        kind = self.random.randrange(4)
        if kind == 0:
            self.do("REPLACE INTO pairs VALUES (%s, %s, %s)", n, b, a)
        elif kind == 1:
            self.do("DELETE FROM pairs WHERE a = %s AND b < %s ORDER BY b LIMIT 1", a, b)
        elif kind == 2:
            self.do("UPDATE pairs SET b = UPPER(b), v = %s WHERE a = %s AND b = %s", n, a, b)
        else:
            self.do("UPDATE pairs SET a = a + 1 WHERE a = %s AND b LIKE 'a%%' ORDER BY b LIMIT 2", a)

    def kinds(self) -> None:
        k, n = self.random.choice("zmaq"), self.random.randrange(40)
        kind = self.random.randrange(3)
        if kind == 0:
            self.do("REPLACE INTO kinds VALUES (%s, %s, SEC_TO_TIME(%s), %s)", k, n, 5000 - n * 300, bytes([n, 0]))
        elif kind == 1:
            self.do("DELETE FROM kinds WHERE k = %s AND n = %s", k, n)
        else:
            self.do("UPDATE kinds SET k = %s WHERE n = %s", k, n)


def main(host: str, port: str, user: str, seed: str, writers: str, xa: str) -> None:
    stop, failures, committed = threading.Event(), list[BaseException](), list[int]()

    def work(number: int) -> None:
        connection = pymysql.connect(
            host=host, port=int(port), user=user, password=os.environ.get("MYSQL_PWD", ""), database="exact"
        )
        writer = Writer(connection, int(seed) * 100 + number, float(xa))
        try:
            writer.run(stop)
        except BaseException as error:
            failures.append(error)
            raise
        committed.append(writer.committed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(int(writers))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    if failures or not all(committed):
        sys.exit(f"a writer failed: {failures}")
    print(sum(committed))


if __name__ == "__main__":
    main(*sys.argv[1:])
