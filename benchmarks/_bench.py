"""What the benchmarks share: a private server with the workloads, timing, results as table and JSON.

Workloads, on ``orders(id bigint primary key, customer_id int, status varchar(16), amount decimal(12,2), note
varchar(100), created_at datetime(3), updated_at timestamp, flag tinyint)``:

- *bulk*: inserts in transactions of 1,000 rows;
- *oltp*: transactions of one row, 30 % insert, 60 % update, 10 % delete;
- the table itself, for SELECTs.

Machines are shared and noisy. A figure "per core" is rows per second of this process's own CPU time on one thread; a
ratio is taken between two measurements that alternate in one run; of several rounds the median counts.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate_testing import MySQLServer

SCHEMA = (
    "id BIGINT PRIMARY KEY, customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100), "
    "created_at DATETIME(3), updated_at TIMESTAMP NULL, flag TINYINT"
)
DB = "bench"
ROWS_PER_TRANSACTION = 1000


@contextmanager
def server(rows: int, transactions: int) -> Iterator[Workloads]:
    """A server with ``rows`` bulk rows and ``transactions`` of oltp; what is in its log."""
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 30}
    with MySQLServer.start(flags=flags) as mysql:
        yield Workloads(mysql, rows, transactions)


class Workloads:
    """The workloads, loaded into a server; ``bulk`` and ``oltp`` are the GTID sets of their transactions."""

    def __init__(self, mysql: MySQLServer, rows: int, transactions: int) -> None:
        self.mysql = mysql
        self.rows = rows
        self.settings = ConnectionSettings.from_url(f"{mysql.url}/?tls=disabled")
        mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.orders ({SCHEMA})")
        start = self.executed()
        progress(f"loading {rows:,} rows")
        fill(mysql, f"{DB}.orders", rows, halfway="FLUSH BINARY LOGS")  # so that a batch can be read in two ranges
        middle = self.executed()
        self._oltp(rows, transactions)
        self.end = self.executed()
        self.bulk, self.oltp = middle - start, self.end - middle

    def executed(self) -> GtidSet:
        with Connection.open(self.settings) as connection:
            return gtid_executed(connection)

    def _oltp(self, rows: int, transactions: int) -> None:
        progress(f"committing {transactions:,} transactions of one row")
        choice, new = random.Random(2), 10 * rows
        with self.mysql.connect(database=DB) as connection, connection.cursor() as cursor:
            for _ in range(transactions):
                kind, key = choice.random(), choice.randrange(rows)
                if kind < 0.3:
                    new += 1
                    cursor.execute(f"INSERT INTO orders VALUES {_row(choice, new)}")
                elif kind < 0.9:
                    cursor.execute(f"UPDATE orders SET amount = amount + 1, status = 'paid' WHERE id = {key}")
                else:
                    cursor.execute(f"DELETE FROM orders WHERE id = {key}")
                connection.commit()


def fill(mysql: MySQLServer, table: str, rows: int, *, halfway: str | None = None) -> None:
    """Insert rows in transactions of 1,000, the same ones each time; a statement after about half of them."""
    choice = random.Random(1)
    with mysql.connect() as connection, connection.cursor() as cursor:
        for first in range(0, rows, ROWS_PER_TRANSACTION):
            values = ",".join(_row(choice, n) for n in range(first, min(rows, first + ROWS_PER_TRANSACTION)))
            cursor.execute(f"INSERT INTO {table} VALUES {values}")
            connection.commit()
            if halfway is not None and first == rows // 2:
                cursor.execute(halfway)


def _row(choice: random.Random, number: int) -> str:
    status = choice.choice(("new", "paid", "shipped", "done"))
    note = "note " + "x" * choice.randrange(5, 40)
    when = f"2024-01-{choice.randrange(1, 28):02d} 10:11:{choice.randrange(60):02d}.{choice.randrange(1000):03d}"
    return (
        f"({number},{choice.randrange(100_000)},'{status}',{choice.randrange(10_000)}.{choice.randrange(100):02d},'{note}',"
        f"'{when}','2024-02-03 04:05:06',{choice.randrange(3)})"
    )


class Timing:
    """Wall and CPU seconds of one call."""

    def __init__(self, work: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.result = work()
        self.cpu_seconds = time.process_time() - cpu
        self.wall_seconds = time.perf_counter() - wall


def median(timings: list[Timing], attribute: str = "wall_seconds") -> float:
    return float(statistics.median(getattr(timing, attribute) for timing in timings))


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(
    name: str, rows: list[dict[str, Any]], *, output: str | None, series: Mapping[str, Any] | None = None
) -> int:
    """Print the table, write the JSON, and return 1 if a bound was missed.

    :param series: figures behind the rows, for the JSON file alone.
    """
    table = Table(title=name)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v) for v in row.values())
        )
    Console(width=140).print(table)
    data = {
        "benchmark": name, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "results": rows,
    }  # fmt: skip
    print(json.dumps(data, indent=2))
    if output:
        text = json.dumps(data if series is None else {**data, "series": series}, indent=2)
        Path(output).write_text(text + "\n", encoding="utf-8")
    return int(any(row.get("ok") == "MISSED" for row in rows))


def verdict(value: float, bound: float) -> str:
    return "ok" if value >= bound else "MISSED"
