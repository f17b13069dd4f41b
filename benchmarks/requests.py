"""Requests to an object store: ``python -m benchmarks.requests [--tables N ...] [--seconds N] [--output FILE]``.

``headgate run``, a process of its own, writes tables of 1,000 rows into a bucket of MinIO while a row of each table is
updated ten times a second, so each batch changes all tables. MinIO counts the requests: those of headgate, and those of
Spark for its checkpoint. This process reads the ledger, by delta-rs, only before and after the counted time.

The figures are requests a batch, for each number of tables, and what that makes a day with each ``freshness_ms``: a
batch begins that often at most, less the time that it takes itself. ``in_status``: how many of MinIO's the run's status
has. Bound: 0.9 to 1.1, without DELETEs, which are free.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._bench import DB, progress, report
from benchmarks.freshness import Ledger, Place, Shape, make, running, s3_lake, wait_until_live
from headgate_testing import MySQLServer, ObjectStore

ROWS = 1_000
KINDS = {
    "put": ("putobject", "copyobject", "newmultipartupload", "putobjectpart", "completemultipartupload"),
    "get": ("getobject", "headobject"),
    "list": ("listobjectsv1", "listobjectsv2"),
    "delete": ("deleteobject", "deletemultipleobjects"),
}
SETTLE_SECONDS = 15.0
"""MinIO gathers its counts with a delay."""
DAY = 86_400
FRESHNESS = 1, 10, 60
"""Seconds."""


def measure(folder: Path, mysql: MySQLServer, tables: int, seconds: float) -> dict[str, Any]:
    """Requests a batch, by kind."""
    with ObjectStore.start() as store:
        place, settings = s3_lake(store)
        with running(folder, mysql, spark=settings, lake=place.uri.replace("s3:", "s3a:"), freshness_ms=2000) as run:
            wait_until_live(run, Ledger(place), tables)
            write(mysql, tables, SETTLE_SECONDS)  # the first batch of a table does more
            before, requests, status = batches(place), store.requests(), status_requests(place)
            write(mysql, tables, seconds)
            time.sleep(SETTLE_SECONDS)  # the last batch ends, and MinIO counts
            counted, known = store.requests(), status_requests(place) - status
            after = batches(place)
    number = after - before
    if number < 2:
        raise RuntimeError(f"only {number} batches came; {folder / 'run.log'} says why")
    kinds = {name: sum(counted.get(api, 0) - requests.get(api, 0) for api in apis) for name, apis in KINDS.items()}
    other = {
        api: count - requests.get(api, 0)
        for api, count in counted.items()
        if api not in {api for apis in KINDS.values() for api in apis} and count > requests.get(api, 0)
    }
    if other:
        progress(f"other requests: {other}")
    share = known / (sum(kinds.values()) - kinds["delete"])
    return {
        "tables": tables, "batches": number, **{name: round(count / number, 1) for name, count in kinds.items()},
        "in_status": round(share, 2), "ok": "ok" if 0.9 <= share <= 1.1 else "MISSED",
    }  # fmt: skip


def status_requests(place: Place) -> int:
    """Requests in the run's status, without DELETEs."""
    assert place.files is not None
    with place.files.open_input_file(f"{place.uri.removeprefix('s3://')}/_headgate/inbox/status.json") as file:
        requests = json.loads(file.read())["requests"]
    return sum(int(requests[name]) for name in ("put", "get", "list"))


def batches(place: Place) -> int:
    row = Ledger(place).newest()
    return 0 if row is None else int(row["batch_id"])


def write(mysql: MySQLServer, tables: int, seconds: float) -> None:
    """Update a row of each table, ten times a second."""
    choice, end = random.Random(4), time.monotonic() + seconds
    with mysql.connect(database=DB) as connection, connection.cursor() as cursor:
        while time.monotonic() < end:
            for number in range(tables):
                cursor.execute(f"UPDATE t{number} SET amount = amount + 1 WHERE id = {choice.randrange(ROWS)}")
            connection.commit()
            time.sleep(0.1)


def a_day(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line with thousands of requests a day if rows change all the time: stores price PUT and LIST alike."""
    priced = {"put_list": line["put"] + line["list"], "get": line["get"]}
    daily = {
        f"{kind}_k_a_day_{freshness}s": round(number * DAY / freshness / 1000)
        for freshness in FRESHNESS
        for kind, number in priced.items()
    }
    return {**line, **daily}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--output")
    args = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for tables in args.tables:
            folder = Path(scratch, str(tables))
            folder.mkdir()
            with MySQLServer.start() as mysql:
                make(mysql, Shape("requests", tables, ROWS, tables, 10))
                lines.append(a_day(measure(folder, mysql, tables, args.seconds)))
    return report("requests", lines, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
