"""Records docs/pictures/page.json: the status of a real run in the midst of a snapshot, for the page's picture.

``python -m tools.record_page`` takes about four minutes: it fills a private MySQL server with a shop, writes to it all
the time, runs ``headgate run``, and takes the first status whose figures agree (:func:`disagreements`) while the
largest table is being read. ``python -m tools.draw_pictures`` draws it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.carrier import ControlFolder
from headgate.lake import Lake
from headgate.status import SnapshotStatus, Status, TableReadProgress, TableStatus, read_status
from headgate_testing import MySQLServer, wait_until
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
    "orders": 900_000,
    "order_items": 3_600_000,
    "payments": 600_000,
    "products": 4_000,
}
_COLUMNS: Final = "id BIGINT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), amount DECIMAL(10,2), at DATETIME(3)"
_SOURCE: Final = "SELECT CONCAT('number ', i), i % 10000 / 100, '2026-11-01' + INTERVAL i SECOND FROM shop_numbers.n"
_PAUSE_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 600
_LEAST_BATCHES: Final = 5
_CLOSE: Final = 0.15
"""How far the share of chunks may be from the share of rows: chunks differ in size, the first ones are small."""
_OWN_SECONDS: Final = 0.25
"""How far a batch's phases may be from its time, which is measured by another clock."""


def disagreements(status: Status) -> list[str]:
    """Return the figures of a first run that cannot be true together, in words."""
    differences = [f"{what}: {one:,} and {other:,}" for what, one, other in _pairs(status) if one != other]
    for name, table in _being_read(status).items():
        differences += _differences_in_table(name, table, status.read_progress(name))
    for batch in status.recent:
        phases = sum(seconds for phase, seconds in batch.phases.items() if phase != "planning")
        if abs(phases - batch.seconds) > _OWN_SECONDS:
            differences.append(f"batch {batch.batch_id}: {batch.seconds} s, its phases {phases:.3f} s")
    return differences


def _being_read(status: Status) -> dict[str, TableStatus]:
    return {name: table for name, table in status.tables_now().items() if table.state == "snapshotting"}


def _pairs(status: Status) -> Iterator[tuple[str, int, int]]:
    """Yield what should be equal: its name, the figure, the sum of its parts."""
    tables, read = status.tables.values(), _being_read(status).values()
    snapshot = status.snapshot or SnapshotStatus(tables=0, rows=0)
    yield "tables read", snapshot.tables, sum(1 for one in tables if one.state == "snapshotting")
    yield "rows of snapshots", snapshot.rows, sum(one.rows_read for one in read)
    yield "rows", sum(one.rows for one in tables), sum(batch.rows for batch in status.recent)
    yield "changes", sum(one.changes for one in tables), sum(batch.changes for batch in status.recent)
    yield "batches", status.batches, len(status.recent)
    activity = status.activity
    if activity is not None and activity.phase == "reading":
        parts = sum(one.rows_estimate for one in activity.tables.values())
        yield "rows of the batch", activity.rows_estimate or 0, parts


def _differences_in_table(name: str, table: TableStatus, read: TableReadProgress | None) -> list[str]:
    differences = []
    rows = table.rows_read / table.rows_estimate if table.rows_estimate else 0.0
    done, estimate = table.chunks_done or 0, table.chunks_estimate or 0
    chunks = done / estimate if estimate else 0.0
    if abs(rows - chunks) > _CLOSE:
        differences.append(f"{name}: {rows:.0%} of the rows, {chunks:.0%} of the chunks")
    if read is not None and (read.first != done + 1 or (estimate and read.chunks_estimate != estimate)):
        differences.append(f"{name}: chunk {read.first} of {read.chunks_estimate} is read after {done} of {estimate}")
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

    :raises RuntimeError: the run ended before.
    """

    def look() -> Status | None:
        if run.poll() is not None:
            raise RuntimeError("the run ended before its figures agreed in the midst of a snapshot")
        status = read_status(inbox)
        if status is None or not _is_midst(status):
            return None
        differences = disagreements(status)
        print("; ".join(differences))
        return None if differences else status

    status = wait_until(look, "there was no such moment", seconds=_PATIENCE_SECONDS)
    assert status is not None
    return status


def _is_midst(status: Status) -> bool:
    """Return whether a batch with rows is read or applied after some others, and the largest table is half done."""
    items, activity = status.tables.get("shop.order_items"), status.activity
    if items is None or activity is None or not items.rows_estimate:
        return False
    reads = "shop.order_items" in activity.tables and (activity.tasks or activity.tables_to_write)
    is_half = status.batches >= _LEAST_BATCHES and 0.3 <= items.rows_read / items.rows_estimate <= 0.9
    return bool(reads) and is_half and items.state == "snapshotting" and status.freshness.p50 is not None


if __name__ == "__main__":
    FILE.write_text(json.dumps(record().to_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
