"""Records docs/pictures/page.json: the status of a real run in the midst of a snapshot, for the page's picture.

``python -m tools.record_page`` takes about two minutes: it fills a private MySQL server with a shop, writes to it all
the time, runs ``headgate run``, and takes the first status whose figures agree (:func:`disagreements`) while the
largest table is being read. ``python -m tools.draw_pictures`` draws it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.carrier import ControlFolder
from headgate.errors import HeadgateError
from headgate.lake import Lake
from headgate.status import Status, read_status
from headgate_testing import MySQLServer
from tools.pictures import ROOT

FILE: Final = ROOT / "docs" / "pictures" / "page.json"
_CONFIG: Final = """\
name = "shop"
[source]
url = "{url}"
tables = ["shop.*"]
[target]
path = "{lake}"
"""
_ROWS: Final = {
    "customers": 100_000,
    "orders": 600_000,
    "order_items": 2_400_000,
    "payments": 600_000,
    "products": 4_000,
}
_COLUMNS: Final = "id BIGINT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), amount DECIMAL(10,2), at DATETIME(3)"
_SOURCE: Final = "SELECT CONCAT('number ', i), i % 10000 / 100, '2026-11-01' + INTERVAL i SECOND FROM shop_numbers.n"
_LOOK_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.01
_PATIENCE: Final = 6000
"""Looks at the status, at most."""
_CLOSE: Final = 0.15
"""How far the share of chunks may be from the share of rows: chunks differ in size, the first ones are small."""
_OWN_SECONDS: Final = 0.25
"""How far a batch's phases may be from its time, which is measured by another clock."""


def disagreements(status: Status) -> list[str]:
    """Return the figures of a first run that cannot be true together, in words."""
    tables, activity = status.tables_now(), status.activity
    reading = {name: table for name, table in tables.items() if table.state == "snapshotting"}
    differences = []
    for name, table in reading.items():
        rows = table.rows_read / table.rows_estimate if table.rows_estimate else 0.0
        chunks = (table.chunks_done or 0) / table.chunks_estimate if table.chunks_estimate else 0.0
        if abs(rows - chunks) > _CLOSE:
            differences.append(f"{name}: {rows:.0%} of the rows, {chunks:.0%} of the chunks")
        read = status.read_progress(name)
        if read and (
            read.first != (table.chunks_done or 0) + 1
            or read.chunks_estimate != (table.chunks_estimate or read.chunks_estimate)
        ):
            differences.append(f"{name}: chunk {read.first} of {read.chunks_estimate} is read")
    sums = [
        ("tables read", status.snapshot.tables if status.snapshot else 0, len(reading)),
        (
            "rows of snapshots",
            status.snapshot.rows if status.snapshot else 0,
            sum(one.rows_read for one in reading.values()),
        ),
        ("rows", sum(one.rows for one in tables.values()), sum(batch.rows for batch in status.recent)),
        ("changes", sum(one.changes for one in tables.values()), sum(batch.changes for batch in status.recent)),
        ("batches", status.batches, len(status.recent)),
    ]
    if activity is not None and activity.phase == "reading":
        estimate = sum(read.rows_estimate for read in activity.tables.values())
        sums.append(("rows of the batch", activity.rows_estimate or 0, estimate))
    differences += [f"{what}: {one} and {other}" for what, one, other in sums if one != other]
    for batch in status.recent:
        phases = sum(seconds for phase, seconds in batch.phases.items() if phase != "planning")
        if abs(phases - batch.seconds) > _OWN_SECONDS:
            differences.append(f"batch {batch.batch_id}: {batch.seconds} s, its phases {phases:.3f} s")
    return differences


def record() -> Status:
    """Return the status of a run that reads tables, as of another machine."""
    with tempfile.TemporaryDirectory(prefix="headgate-page-") as folder, MySQLServer.start() as server:
        _fill(server)
        config, lake = Path(folder) / "pipeline.toml", Path(folder) / "lake"
        config.write_text(_CONFIG.format(url=server.url, lake=lake), encoding="utf-8")
        command = [sys.executable, "-m", "headgate.cli", "run", str(config)]
        with _writing(server), subprocess.Popen(command) as run:
            try:
                status = _midst(run, ControlFolder(Lake(str(lake)).inbox))
            finally:
                run.terminate()
    return status.model_copy(update={"host": "lake-1", "pid": 1, "pid_namespace": ""})


def _fill(server: MySQLServer) -> None:
    server.execute(
        "CREATE DATABASE shop", "CREATE DATABASE shop_numbers", "CREATE TABLE shop_numbers.n (i INT PRIMARY KEY)",
        "INSERT INTO shop_numbers.n WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
        " SELECT i FROM n",
    )  # fmt: skip
    most = max(_ROWS.values())
    number = 1000
    while number < most:
        server.execute(f"INSERT INTO shop_numbers.n SELECT i + {number} FROM shop_numbers.n WHERE i <= {most - number}")
        number *= 2
    for table, rows in _ROWS.items():
        server.execute(
            f"CREATE TABLE shop.{table} ({_COLUMNS})",
            f"INSERT INTO shop.{table} (name, amount, at) {_SOURCE} WHERE i <= {rows}",
            f"ANALYZE TABLE shop.{table}",
        )
    server.execute("DROP DATABASE shop_numbers")


@contextmanager
def _writing(server: MySQLServer) -> Iterator[None]:
    """Write orders with their items and payments, until the end of the block."""
    ended = threading.Event()

    def write() -> None:
        number = 0
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not ended.wait(_PAUSE_SECONDS):
                number += 1
                cursor.execute("INSERT INTO shop.orders (name, amount, at) VALUES ('new', 1, NOW(3))")
                for item in range(2):
                    cursor.execute("INSERT INTO shop.order_items (name, amount, at) VALUES (%s, 2, NOW(3))", (item,))
                cursor.execute("UPDATE shop.customers SET amount = amount + 1 WHERE id = %s", (number % 5000 + 1,))
                connection.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _midst(run: subprocess.Popen[bytes], inbox: ControlFolder) -> Status:
    """Return the first status that is worth a picture.

    :raises HeadgateError: the run ended, or there was none.
    """
    pause: Callable[[float], bool] = threading.Event().wait
    before = None
    for _ in range(_PATIENCE):
        if run.poll() is not None:
            raise HeadgateError("the run ended before it had read half of the largest table")
        status = read_status(inbox)
        if status is not None and status.updated_us != before and _is_midst(status):
            differences = disagreements(status)
            if not differences:
                return status
            print("; ".join(differences))
        before = status.updated_us if status is not None else None
        pause(_LOOK_SECONDS)
    raise HeadgateError("no status of the run had figures that agree")


def _is_midst(status: Status) -> bool:
    """Whether a batch with rows is being read, tables are live, and the largest table is half done."""
    items, activity = status.tables.get("shop.order_items"), status.activity
    if items is None or activity is None or not items.rows_estimate:
        return False
    reads = activity.phase == "reading" and "shop.order_items" in activity.tables and activity.tasks
    is_half = 0.3 <= items.rows_read / items.rows_estimate <= 0.8
    return bool(reads) and is_half and items.state == "snapshotting" and status.freshness.p50 is not None


if __name__ == "__main__":
    FILE.write_text(json.dumps(record().to_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
