"""Files of small tables that change all the time: ``python -m benchmarks.files [--minutes N] [--output FILE]``.

``headgate run``, a process of its own, keeps tables of 1,000 rows up to date, of each of which a row is updated every
second. Each minute this process counts the files in the lake, and of each table those that the retention demands, by
its log: data files, deletion vectors and log files of the versions that the ledger's rows within the retention name,
and of the row before them.

- ``data``, ``vectors``, ``log``, ``mb``: at the end;
- ``demanded``: of these files, how many the retention demands;
- ``halfway``: files at half of the time, which is as many if nothing grows but with the retention;
- ``most_above``: the most files above what the retention demands that were seen.

Folders without a table are Spark's checkpoint and headgate's own files. Bound: 100 files a table above the demand.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks._bench import DB, progress, report
from benchmarks._load import SteadyWriter
from benchmarks.freshness import Ledger, Marks, Shape, make, running, wait_until_live
from headgate.delta import LOG, snapshot_at, vectors_of, version_at
from headgate.delta._log import LAST_CHECKPOINT, commit_name, find_checkpoints, read_commit
from headgate.errors import TargetError
from headgate.lake import Lake
from headgate_testing import MySQLServer

ROWS = 1_000
ABOVE = 100
LOOK_SECONDS = 60.0
TRIES = 5


@dataclass(frozen=True)
class Count:
    """Files in a folder."""

    kinds: Mapping[str, int]
    bytes: int
    demanded: int | None
    """Of them, those that the retention demands; None: the folder has no table."""

    @property
    def files(self) -> int:
        return sum(self.kinds.values())

    @property
    def above(self) -> int:
        """Files that the retention does not demand."""
        return 0 if self.demanded is None else self.files - self.demanded


def look(lake: Lake, retention_seconds: float) -> dict[str, Count]:
    """Count the files in each folder of a lake, by its name there."""
    for left in reversed(range(TRIES)):
        since = time.time() - retention_seconds
        sizes = sizes_in(Path(lake.path))
        try:
            oldest = {**ledger_versions(lake, since), **internal_versions(lake, since)}
            demands = {folder: demanded(folder, version) for folder, version in oldest.items()}
        except (TargetError, FileNotFoundError):  # a version was removed meanwhile
            if not left:
                raise
            continue
        names = {folder.removeprefix(f"{lake.path}/"): files for folder, files in demands.items()}
        return {folder: count(files, names.get(folder)) for folder, files in by_folder(sizes, [*names]).items()}
    raise AssertionError


def sizes_in(folder: Path) -> dict[str, int]:
    """Bytes of each file below a folder, by its name there."""
    sizes = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes[str(Path(path, name).relative_to(folder))] = Path(path, name).stat().st_size
    return sizes


def by_folder(sizes: Mapping[str, int], tables: list[str]) -> dict[str, dict[str, int]]:
    """The files of each table, and of each other folder below ``_headgate``, by their names there."""
    folders: dict[str, dict[str, int]] = {table: {} for table in sorted(tables)}
    for name, size in sizes.items():
        folder = next((table for table in tables if name.startswith(f"{table}/")), None)
        if folder is None:
            folder = "/".join(name.split("/")[:2])
        folders.setdefault(folder, {})[name.removeprefix(f"{folder}/")] = size
    return folders


def count(sizes: Mapping[str, int], wanted: set[str] | None) -> Count:
    """:param wanted: names of files that the retention demands."""
    kinds = Counter("log" if name.startswith(LOG) else "vectors" if name.endswith(".bin") else "data" for name in sizes)
    return Count(kinds, sum(sizes.values()), None if wanted is None else len(wanted & sizes.keys()))


def ledger_versions(lake: Lake, since: float) -> dict[str, int]:
    """The oldest version of each table that a reader of the ledger may want, by its folder."""
    parts = [pq.read_table(file, columns=["committed_at", "tables"]) for file in DeltaTable(lake.ledger).file_uris()]
    rows = [
        (moment.timestamp(), number, index)
        for number, part in enumerate(parts)
        for index, moment in enumerate(part["committed_at"].to_pylist())
    ]
    _, number, index = max((row for row in rows if row[0] <= since), default=min(rows))
    tables = parts[number]["tables"][index].as_py()
    return {lake.current(table["table"]): table["version"] for table in tables if table["version"] is not None}


def internal_versions(lake: Lake, since: float) -> dict[str, int]:
    """The oldest version within the retention of each table of headgate's own."""
    folders = [folder for folder in (lake.ledger, lake.schema_history) if Path(folder, LOG).exists()]
    return {folder: version_at(folder, since) for folder in folders}


def demanded(folder: str, oldest: int) -> set[str]:
    """The files of a table that its versions from ``oldest`` on need, by their names there."""
    adds: list[Mapping[str, Any]] = [{"add": file.action} for file in snapshot_at(folder, oldest).files.values()]
    newest = oldest
    while (actions := read_commit(folder, newest + 1)) is not None:
        newest += 1
        adds += [action for action in actions if "add" in action]
    checkpoints = find_checkpoints(folder)
    base = max((version for version in checkpoints if version <= oldest), default=0)
    log = {commit_name(version) for version in range(base, newest + 1)}
    log |= {name for version, names in checkpoints.items() if version >= base for name in names}
    return {str(action["add"]["path"]) for action in adds} | vectors_of(adds) | log | {LAST_CHECKPOINT}


def watch(
    run: subprocess.Popen[bytes], lake: Lake, minutes: float, retention_seconds: float
) -> Iterator[dict[str, Count]]:
    """Look each minute, and at the end."""
    begun = time.monotonic()
    end = begun + 60 * minutes
    due = begun
    while time.monotonic() < end:
        due = min(end, due + LOOK_SECONDS)
        time.sleep(max(0.0, due - time.monotonic()))
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {run.returncode}")
        counts = look(lake, retention_seconds)
        tables = [one for one in counts.values() if one.demanded is not None]
        files, above = sum(one.files for one in counts.values()), max(one.above for one in tables)
        progress(f"after {(time.monotonic() - begun) / 60:.0f} min: {files:,} files; most above the demand: {above}")
        yield counts


def lines(looks: list[dict[str, Count]]) -> Iterator[dict[str, Any]]:
    end, middle = looks[-1], looks[len(looks) // 2 - 1] if len(looks) > 1 else looks[0]
    for folder, one in end.items():
        most = max(look[folder].above for look in looks if folder in look)
        halfway = middle[folder].files if folder in middle else 0
        is_table = one.demanded is not None
        yield {
            "folder": folder, "data": one.kinds.get("data", 0), "vectors": one.kinds.get("vectors", 0),
            "log": one.kinds.get("log", 0), "files": one.files, "halfway": halfway, "mb": round(one.bytes / 1e6, 1),
            "demanded": one.demanded if is_table else "", "most_above": most if is_table else "",
            "bound": f"≤ {ABOVE}" if is_table else "", "ok": ("ok" if most <= ABOVE else "MISSED") if is_table else "",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0, help="of changes (120)")
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--retention-minutes", type=float, default=60.0, help="target.retention_hours, at least 3 (60)")
    parser.add_argument("--freshness-ms", type=int, help="target.freshness_ms")
    parser.add_argument("--output")
    args = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    shape = Shape("files", args.tables, ROWS, args.tables, args.tables)
    with MySQLServer.start() as mysql, tempfile.TemporaryDirectory() as scratch:
        make(mysql, shape)
        lake = Lake.at(Path(scratch, "lake"))
        hours = args.retention_minutes / 60
        with running(Path(scratch), mysql, retention_hours=hours, freshness_ms=args.freshness_ms) as run:
            wait_until_live(run, Ledger(Path(lake.path)), args.tables)
            progress(f"all tables are live; writing for {args.minutes:g} minutes")
            before = newest_batch(lake)
            with SteadyWriter(mysql, Marks(shape), shape.rate, group=1):
                looks = [*watch(run, lake, args.minutes, hours * 3600)]
            batches = newest_batch(lake) - before
    assert all(f"{DB}/t{number}" in looks[-1] for number in range(args.tables))
    series = {
        "minutes": args.minutes, "tables": args.tables, "retention_hours": hours, "batches": batches,
        "files_each_minute": [sum(one.files for one in look.values()) for look in looks],
    }  # fmt: skip
    progress(f"{batches:,} batches in {args.minutes:g} minutes")
    return report("files", list(lines(looks)), output=args.output, series=series)


def newest_batch(lake: Lake) -> int:
    """The number of the newest batch, also when the log's first files are gone."""
    files = DeltaTable(lake.ledger).file_uris()
    return max(
        int(number) for file in files for number in pq.read_table(file, columns=["batch_id"])["batch_id"].to_pylist()
    )


if __name__ == "__main__":
    sys.exit(main())
