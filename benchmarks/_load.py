"""A steady load: one process that commits small transactions at a held rate, and notes when.

Some transactions go to the server in one packet (PyMySQL would spend more on single statements than the server does);
each is one autocommitted UPDATE of a random row, or of some rows behind each other. A group's time is taken before it
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
from typing import Any

import numpy as np
import numpy.typing as npt
import pymysql
from pymysql.constants import CLIENT

from benchmarks._bench import DB
from headgate.testing import MySQLServer

__all__ = ["Commits", "SteadyWriter"]

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


class SteadyWriter:
    """Writes while its block is open; then :attr:`commits` are known. Nobody else may write meanwhile.

    :param rows: of the table; ``rate``: transactions a second.
    :param changed: rows that each transaction updates.
    :param group: transactions in a packet.
    """

    def __init__(self, mysql: MySQLServer, rows: int, rate: int, *, changed: int = 1, group: int = _GROUP) -> None:
        context = multiprocessing.get_context("spawn")
        self.commits = Commits(0, np.empty(0, np.int64))
        self._stop = context.Event()
        self._answer, theirs = context.Pipe(duplex=False)
        address = {"host": mysql.host, "port": mysql.port, "user": mysql.user, "password": "", "database": DB}
        self._process = context.Process(
            target=_write, args=(address, rows, rate, changed, group, self._stop, theirs), daemon=True
        )

    def __enter__(self) -> SteadyWriter:
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
    address: dict[str, Any], rows: int, rate: int, changed: int, group: int, stop: Event, answer: Connection
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
            keys = (choice.randrange(rows - changed + 1) for _ in range(group))
            sent.append(time.time_ns() // 1000)
            places = (f"= {key}" if changed == 1 else f"BETWEEN {key} AND {key + changed - 1}" for key in keys)
            cursor.execute(";".join(f"UPDATE orders SET amount = amount + 0.01 WHERE id {place}" for place in places))
            while cursor.nextset():
                pass
    answer.send((first, np.repeat(np.array(sent, np.int64), group)))
