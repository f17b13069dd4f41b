"""Files of small tables that change all the time: ``python -m benchmarks.files [--minutes N] [--output FILE]``.

``headgate run``, a process of its own, keeps tables of 1,000 rows up to date, of each of which a row is updated every
second. Each minute this process counts the files in the lake, and of each table those that the retention demands: data
files, deletion vectors and log files of the versions that the ledger's rows within the retention name, and of the row
before them. No code of headgate counts: delta-rs reads the ledger and names the data files of the oldest of these
versions, and the commits since, read as plain JSON, name the others. The vectors of the oldest version are from the
checkpoint before it, read as plain Parquet; the data files that this replay finds have to be those of delta-rs.

- ``data``, ``vectors``, ``log``, ``mb``: at the end;
- ``demanded``: of these files, how many the retention demands;
- ``halfway``: files at half of the time, which is as many if nothing grows but with the retention;
- ``most_above``: the most files above what the retention demands that were seen.

Folders without a table are Spark's checkpoint and headgate's own files. Bound: 100 files a table above the demand.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from benchmarks._bench import DB, progress, report
from benchmarks._load import SteadyWriter
from benchmarks.freshness import LEDGER, Ledger, Marks, Shape, make, running, wait_until_live
from headgate_testing import MySQLServer

ROWS = 1_000
ABOVE = 100
LOOK_SECONDS = 60.0
TRIES = 30
"""A look takes seconds, in which the retention goes on: a version that it demanded may be gone at the end."""
LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
INTERNAL = (LEDGER, "_headgate/schema_history", "_headgate/notifications")
"""Tables that the ledger does not name."""
COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.parquet")
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
TO_B85 = str.maketrans(Z85, B85)
"""Names of deletion vectors are in Z85 (ZeroMQ RFC 32), which Python has with other letters."""


class Unreadable(Exception):
    """A version was removed while it was read."""


@dataclass(frozen=True)
class Count:
    """Files in a folder."""

    kinds: Mapping[str, int]
    bytes: int
    demanded: Mapping[str, int] | None
    """Of them, those that the retention demands; None: the folder has no table."""

    @property
    def files(self) -> int:
        return sum(self.kinds.values())

    @property
    def above(self) -> int:
        """Files that the retention does not demand."""
        return 0 if self.demanded is None else self.files - sum(self.demanded.values())

    def above_by_kind(self) -> str:
        demanded = self.demanded or {}
        return ", ".join(f"{number - demanded.get(kind, 0)} {kind}" for kind, number in sorted(self.kinds.items()))


@dataclass
class TableLog:
    """The log of a table, read as the Delta Transaction Log Protocol describes it. Commits are read once."""

    folder: Path
    commits: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def demanded(self, oldest: int) -> set[str]:
        """The files that the versions from ``oldest`` on need, by their names in the folder."""
        names = [f"{LOG}/{path.name}" for path in (self.folder / LOG).iterdir()]
        versions = sorted(numbered(names, COMMIT))
        checkpoints = numbered(names, CHECKPOINT)
        base = max((version for version in checkpoints if version <= oldest), default=0)
        self.commits = {version: actions for version, actions in self.commits.items() if version >= base}
        live = self.checkpoint(checkpoints[base]) if base in checkpoints else {}
        for version in range(base + 1 if base in checkpoints else base, oldest + 1):
            actions = self.commit(version)
            for action in actions:
                if "remove" in action:
                    live.pop(action["remove"]["path"], None)
            live |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        needed = files_of(live.values())
        self.compare(oldest, {name for name in needed if not name.endswith(".bin")})
        later = [version for version in versions if version > oldest]
        needed |= files_of(action["add"] for version in later for action in self.commit(version) if "add" in action)
        log = {name for pattern in (COMMIT, CHECKPOINT) for version, name in numbered(names, pattern).items()
               if version >= base}  # fmt: skip
        return needed | log | {LAST_CHECKPOINT}

    def compare(self, version: int, names: set[str]) -> None:
        """Compare the data files of a version with those that delta-rs finds."""
        try:
            uris = DeltaTable(str(self.folder), version=version).file_uris()
        except Exception as error:  # delta-rs has a class for each kind of fault, and some raise plain ones
            raise Unreadable(f"{self.folder} at version {version}: {error}") from error
        by_delta_rs = {str(Path(local(uri)).relative_to(self.folder)) for uri in uris}
        assert by_delta_rs == names, f"{self.folder} at version {version}: {by_delta_rs ^ names}"

    def commit(self, version: int) -> list[dict[str, Any]]:
        if version not in self.commits:
            try:
                lines = (self.folder / LOG / f"{version:020}.json").read_text().splitlines()
            except FileNotFoundError as error:
                raise Unreadable(f"{self.folder} has no commit {version}") from error
            actions = [json.loads(line) for line in lines]
            self.commits[version] = [
                {kind: {"path": body["path"], "deletionVector": body.get("deletionVector")}}
                for action in actions
                for kind, body in action.items()
                if kind in ("add", "remove")
            ]
        return self.commits[version]

    def checkpoint(self, name: str) -> dict[str, dict[str, Any]]:
        """The files in a checkpoint, by path."""
        try:
            with pq.ParquetFile(self.folder / name) as file:
                adds = file.read(columns=["add.path", "add.deletionVector"])["add"].to_pylist()
        except FileNotFoundError as error:
            raise Unreadable(f"{self.folder} has no {name}") from error
        return {add["path"]: add for add in adds if add is not None}


def numbered(names: Iterable[str], pattern: re.Pattern[str]) -> dict[int, str]:
    """The names that match, by their versions."""
    return {int(match[1]): name for name in names if (match := pattern.fullmatch(name))}


def files_of(adds: Iterable[Mapping[str, Any]]) -> set[str]:
    """Data files and files of deletion vectors."""
    names = set()
    for add in adds:
        names.add(unquote(add["path"]))
        vector = add.get("deletionVector") or {}
        if vector.get("storageType") == "u":
            prefix, text = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
            name = f"deletion_vector_{UUID(bytes=base64.b85decode(text.translate(TO_B85)))}.bin"
            names.add(f"{prefix}/{name}" if prefix else name)
    return names


def look(lake: Path, logs: dict[str, TableLog], retention_seconds: float) -> dict[str, Count]:
    """Count the files in each folder of a lake, by its name there.

    :param logs: what was read of each table's log before.
    """
    for left in reversed(range(TRIES)):
        sizes = sizes_in(lake)
        since = time.time() - retention_seconds
        try:
            oldest = {**ledger_versions(lake, since), **internal_versions(lake, since)}
            demands = {
                folder: logs.setdefault(folder, TableLog(lake / folder)).demanded(version)
                for folder, version in oldest.items()
            }
        except Unreadable:
            if not left:
                raise
            continue
        return {folder: count(files, demands.get(folder)) for folder, files in by_folder(sizes, [*demands]).items()}
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
    demanded = None if wanted is None else Counter(map(kind_of, wanted & sizes.keys()))
    return Count(Counter(map(kind_of, sizes)), sum(sizes.values()), demanded)


def kind_of(name: str) -> str:
    return "log" if name.startswith(LOG) else "vectors" if name.endswith(".bin") else "data"


def ledger_versions(lake: Path, since: float) -> dict[str, int]:
    """The oldest version of each table that a reader of the ledger may want, by its folder's name."""
    try:
        files = [*map(local, DeltaTable(str(lake / LEDGER)).file_uris())]
        parts = [pq.read_table(file, columns=["committed_at", "tables"]) for file in files]
    except (FileNotFoundError, TableNotFoundError) as error:
        raise Unreadable("the ledger") from error
    rows = [
        (moment.timestamp(), number, index)
        for number, part in enumerate(parts)
        for index, moment in enumerate(part["committed_at"].to_pylist())
    ]
    _, number, index = max((row for row in rows if row[0] <= since), default=min(rows))
    tables = parts[number]["tables"][index].as_py()
    return {table["table"].replace(".", "/"): table["version"] for table in tables if table["version"] is not None}


def internal_versions(lake: Path, since: float) -> dict[str, int]:
    """The oldest version within the retention of each table of headgate's own: by its commit's time, the newest at its
    beginning."""
    versions = {}
    for folder in INTERNAL:
        times: dict[int, float] = {}
        for path in (lake / folder / LOG).glob("*.json"):
            if path.stem.isdecimal():
                with suppress(FileNotFoundError):
                    times[int(path.stem)] = path.stat().st_mtime
        if times:
            versions[folder] = max(
                (version for version, moment in times.items() if moment <= since), default=min(times)
            )
    return versions


def local(uri: str) -> str:
    return unquote(uri.removeprefix("file://"))


def watch(
    run: subprocess.Popen[bytes], lake: Path, minutes: float, retention_seconds: float
) -> Iterator[dict[str, Count]]:
    """Look each minute, and at the end."""
    begun = time.monotonic()
    end = begun + 60 * minutes
    due = begun
    logs: dict[str, TableLog] = {}
    while time.monotonic() < end:
        due = min(end, due + LOOK_SECONDS)
        time.sleep(max(0.0, due - time.monotonic()))
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {run.returncode}")
        counts = look(lake, logs, retention_seconds)
        files = sum(one.files for one in counts.values())
        folder, most = max(counts.items(), key=lambda item: item[1].above)
        progress(
            f"after {(time.monotonic() - begun) / 60:.0f} min: {files:,} files; most above the demand: {most.above} "
            f"in {folder} ({most.above_by_kind()})"
        )
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
            "demanded": sum((one.demanded or {}).values()) if is_table else "", "most_above": most if is_table else "",
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
        lake = Path(scratch, "lake")
        hours = args.retention_minutes / 60
        with running(Path(scratch), mysql, retention_hours=hours, freshness_ms=args.freshness_ms) as run:
            wait_until_live(run, Ledger(lake), args.tables)
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


def newest_batch(lake: Path) -> int:
    """The number of the newest batch, also when the log's first files are gone."""
    files = map(local, DeltaTable(str(lake / LEDGER)).file_uris())
    return max(
        int(number) for file in files for number in pq.read_table(file, columns=["batch_id"])["batch_id"].to_pylist()
    )


if __name__ == "__main__":
    sys.exit(main())
