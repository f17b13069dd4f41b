"""A steady load: one process that commits small transactions at a held rate, and notes when.

Some transactions go to the server in one packet (PyMySQL would spend more on single statements than the server does);
each is one autocommitted UPDATE of a random row or of some rows behind each other, or an INSERT into one of many
tables. A group's time is taken before it
is sent, so a delay that is measured from there is, if anything, too long. What the writer cannot keep up with it makes
up for later, as users do who do not wait for each other.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pymysql
from pymysql.constants import CLIENT

from benchmarks._bench import DB
from headgate_testing import MySQLServer

__all__ = ["Commits", "Inserts", "SteadyWriter", "Transactions", "Updates"]

_GROUP = 20
_ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class Commits:
    """``at_us[i]`` is when transaction ``first + i`` of the server's own UUID was sent, microseconds since 1970 UTC."""

    first: int
    at_us: npt.NDArray[np.int64]

    def between(self, from_us: int, to_us: int) -> Commits:
        """Those sent in this time."""
        low, high = np.searchsorted(self.at_us, [from_us, to_us])
        return Commits(self.first + int(low), self.at_us[low:high])

    def rate(self, from_us: int, to_us: int) -> float:
        """Transactions a second in this time."""
        return len(self.between(from_us, to_us).at_us) / max(1e-6, (to_us - from_us) / 1e6)


@dataclass(frozen=True)
class Updates:
    """Transactions that each update ``changed`` neighbours of the ``rows`` of the table."""

    rows: int
    changed: int = 1

    def __call__(self, choice: random.Random) -> str:
        key = choice.randrange(self.rows - self.changed + 1)
        place = f"= {key}" if self.changed == 1 else f"BETWEEN {key} AND {key + self.changed - 1}"
        return f"UPDATE orders SET amount = amount + 0.01 WHERE id {place}"


@dataclass(frozen=True)
class Inserts:
    """Transactions that each insert ``rows`` rows into one of ``tables`` tables: ``name0``, ``name1``, ..., with a
    column ``v``.
    """

    name: str
    tables: int
    rows: int

    def __call__(self, choice: random.Random) -> str:
        values = ",".join(f"({choice.randrange(1000)})" for _ in range(self.rows))
        return f"INSERT INTO {self.name}{choice.randrange(self.tables)} (v) VALUES {values}"


class Transactions(Protocol):
    """Gives the next transaction, as SQL. It is pickled into the writer's process."""

    def __call__(self, choice: random.Random) -> str: ...


class SteadyWriter:
    """Writes while its block is open; then :attr:`commits` are known. Nobody else may write meanwhile.

    :param transactions: gives the next one; ``rate``: of them a second.
    :param group: transactions in a packet.
    """

    def __init__(self, mysql: MySQLServer, transactions: Transactions, rate: int, *, group: int = _GROUP) -> None:
        context = multiprocessing.get_context("spawn")
        self.commits = Commits(0, np.empty(0, np.int64))
        self._stop = context.Event()
        self._answer, theirs = context.Pipe(duplex=False)
        address = {"host": mysql.host, "port": mysql.port, "user": mysql.user, "password": "", "database": DB}
        self._process = context.Process(
            target=_write, args=(address, transactions, rate, group, self._stop, theirs), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if error is None and self._answer.poll(_ANSWER_SECONDS):
            self.commits = Commits(*self._answer.recv())
        self._process.join(_ANSWER_SECONDS)
        self._process.kill()
        if error is None and not len(self.commits.at_us):
            raise RuntimeError("the writer did not say what it wrote")


def _write(
    address: dict[str, Any], transactions: Transactions, rate: int, group: int, stop: Event, answer: Connection
) -> None:
    choice = random.Random(3)
    sent: list[int] = []
    with pymysql.connect(autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS, **address) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT @@global.gtid_executed")
        (executed,) = cursor.fetchone() or ("",)
        first = int(str(executed).rpartition(":")[2].rpartition("-")[2]) + 1
        begun = time.monotonic()
        while not stop.is_set():
            late = begun + len(sent) * group / rate - time.monotonic()
            if late > 0:
                stop.wait(late)
            statements = ";".join(transactions(choice) for _ in range(group))
            sent.append(time.time_ns() // 1000)
            cursor.execute(statements)
            while cursor.nextset():
                pass
    answer.send((first, np.repeat(np.array(sent, np.int64), group)))
