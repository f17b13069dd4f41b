"""Parts of a bug report: what each has, and how it is read. Nothing is changed, and no Spark starts."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import ConfigError, HeadgateError, TargetError, error_line
from headgate.files import cache_folder, file_errors

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.lake import Lake, LedgerRow
    from headgate.mysql import Connection

__all__ = ["ReportPart", "failed_part", "machine_parts", "pipeline_parts"]

_LOG_LINES: Final = 5_000
_LOG_BYTES: Final = 4 << 20
_OFFSETS: Final = 3
"""Newest files of each folder of Spark's checkpoint."""
_OFFSET_BYTES: Final = 256 << 10
_MOST_FILES: Final = 200_000
"""Files of a lake that are counted: a store lists 1,000 in a request."""
_VARIABLES: Final = ("HEADGATE_", "SPARK_", "PYSPARK_", "JAVA_")
"""Beginnings of environment variables whose names, without values, are in the report."""
_LIMITS: Final = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_NPROC")
_OF_CGROUP: Final = (
    "memory.max", "memory.high", "memory.current", "memory.swap.max", "memory.events", "cpu.max", "pids.max",
    "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "cpu/cpu.cfs_quota_us",
)  # fmt: skip
"""Files of control groups, of version 2 and version 1 (Linux, "Control Group v2")."""
_LIMIT_OF_MEMORY: Final = ("memory.max", "limit_in_bytes")

Content = dict[str, Any] | list[Any] | str


class ReportPart(NamedTuple):
    """One file of the report."""

    name: str
    content: Content
    """A JSON value, or text."""
    summary: str
    """One line for people."""


def machine_parts(log: Path | None) -> Iterator[ReportPart]:
    """Yield what is known without the pipeline's file.

    :param log: a file with the log of a run.
    """
    yield _part("versions", _versions)
    yield _part("limits", _limits)
    if log is not None:
        yield _part("log", partial(_log, log))


def pipeline_parts(config: PipelineConfig, batches: int) -> Iterator[ReportPart]:
    """Yield what is known of a pipeline: its configuration, its lake, its server.

    :param batches: number of the ledger's rows, the newest ones.
    """
    yield _part("configuration", partial(_configuration, config))
    yield from _lake_parts(config, batches)
    yield from _server_parts(config)


def failed_part(name: str, error: Exception) -> ReportPart:
    """Return a part that has an error instead of its content."""
    text = error_line(error)
    return ReportPart(name, {"error": text, "type": type(error).__name__}, f"error: {text}")


def _part(name: str, work: Callable[[], tuple[Content, str]]) -> ReportPart:
    try:
        return ReportPart(name, *work())
    except Exception as error:  # noqa: BLE001 - a report has what can be had, and why the rest is missing
        return failed_part(name, error)


def _lake_parts(config: PipelineConfig, batches: int) -> Iterator[ReportPart]:
    names = ("status", "control", "ledger", "checkpoint", "sizes")
    try:
        from headgate.lake import Lake

        lake = Lake.of(config)
    except Exception as error:  # noqa: BLE001 - as above: a package is missing, a setting is wrong
        yield from (failed_part(name, error) for name in names)
        return
    ledger = partial(_ledger, limit=batches)
    works: tuple[Callable[[Lake], tuple[Content, str]], ...] = (_status, _control, ledger, _checkpoint, _sizes)
    for name, work in zip(names, works, strict=True):
        yield _part(name, partial(work, lake))


def _server_parts(config: PipelineConfig) -> Iterator[ReportPart]:
    """Yield the parts of the server, all by one login: a refused one counts towards FAILED_LOGIN_ATTEMPTS."""
    from headgate.mysql import Connection, ConnectionSettings

    source = config.source
    works = {"server": _server, "check": _check, "tables": _tables}
    with ExitStack() as stack:
        try:
            settings = ConnectionSettings.from_url(source.url, **source.passwords)
            connection = stack.enter_context(Connection.open(settings))
        except HeadgateError as error:
            yield from (failed_part(name, error) for name in works)
            return
        for name, work in works.items():
            yield _part(name, partial(work, connection, config))


# --- this machine


def _versions() -> tuple[Content, str]:
    import headgate
    from headgate.archives import DELTA_VERSION
    from headgate.engine import java_home, java_release

    home = java_home()
    release = "" if home is None else java_release(home)
    java = re.search(r'^JAVA_VERSION="([^"]*)"', release, re.MULTILINE)
    packages = dict(sorted(_packages()))
    value: Content = {
        "headgate": headgate.__version__,
        "python": sys.version,
        "platform": platform.platform(),
        "java": {"home": None if home is None else str(home), "release": release.splitlines()},
        "delta": DELTA_VERSION,
        "packages": packages,
        "variables": sorted(name for name in os.environ if name.startswith(_VARIABLES)),
    }
    spark = packages.get("pyspark") or "missing"
    text = f"headgate {headgate.__version__}, Python {platform.python_version()}, Spark {spark}, Delta {DELTA_VERSION}"
    return value, f"{text}, Java {java[1] if java else 'missing' if home is None else 'of unknown version'}"


def _packages() -> Iterator[tuple[str, str | None]]:
    """Yield the packages that headgate and its extras need, and their versions; None: not installed."""
    for requirement in metadata.requires("headgate") or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        version = None
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
        yield name.lower(), version


def _limits() -> tuple[Content, str]:
    memory = _lines(Path("/proc/meminfo"), ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"))
    groups = dict(_control_groups())
    limits = {name: list(resource.getrlimit(getattr(resource, name))) for name in _LIMITS if hasattr(resource, name)}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    value: Content = {
        "cores": os.cpu_count(),
        "usable_cores": cores,
        "load": list(os.getloadavg()),
        "memory": memory,
        "limits": limits,
        "control_groups": groups,
        "disks": {path: _disk(Path(path)) for path in (str(cache_folder()), tempfile.gettempdir())},
    }
    most = _memory_limit(next((text for name, text in groups.items() if name.endswith(_LIMIT_OF_MEMORY)), "max"))
    files = limits.get("RLIMIT_NOFILE", ["unknown"])[0]
    memory_text = f"{memory.get('MemTotal', 'unknown')} of memory, {most} for the cgroup"
    return value, f"{cores} cores, {memory_text}, {files} open files"


def _memory_limit(text: str) -> str:
    """Return the limit of a control group as people read it: ``max`` in version 2, a number near 2⁶³ in version 1, say
    that there is none.
    """
    is_none = not text.isdigit() or int(text) >= 1 << 62
    return "no limit" if is_none else f"{int(text) // 1024} kB"


def _lines(file: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return some of the lines ``name: value`` of a file; none if it cannot be read."""
    with suppress(OSError):
        pairs = [line.partition(":") for line in file.read_text("utf-8").splitlines()]
        return {name: " ".join(value.split()) for name, _, value in pairs if name in names}
    return {}


def _control_groups() -> Iterator[tuple[str, str]]:
    """Yield the limits of this process's control group and of those above it."""
    root = Path("/sys/fs/cgroup")
    path = ""
    with suppress(OSError, IndexError):
        path = Path("/proc/self/cgroup").read_text("utf-8").splitlines()[-1].rpartition(":")[2].strip("/")
    folder = root / path
    for group in [folder, *(one for one in folder.parents if one.is_relative_to(root))]:
        for name in _OF_CGROUP:
            with suppress(OSError):
                yield str((group / name).relative_to(root)), (group / name).read_text("utf-8").strip()


def _disk(folder: Path) -> dict[str, int | str]:
    """Return the size of the disk of a folder, which may not exist yet."""
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        usage = shutil.disk_usage(nearest)
        files = os.statvfs(nearest)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {**usage._asdict(), "file_limit": files.f_files, "files_free": files.f_favail}


def _log(file: Path) -> tuple[Content, str]:
    """Return the end of a log.

    :raises ConfigError: the file cannot be read.
    """
    with file_errors(f"{file} cannot be read"), file.open("rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(0, opened.tell() - _LOG_BYTES))
        lines = deque(opened.read().decode("utf-8", "replace").splitlines(), _LOG_LINES)
    return "\n".join(lines), f"the last {len(lines):,} lines of {file}"


# --- the pipeline


def _configuration(config: PipelineConfig) -> tuple[Content, str]:
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return values, f"pipeline {config.name}: {config.source.url} into {config.target.path}"


def _status(lake: Lake) -> tuple[Content, str]:
    from headgate.carrier import ControlFolder
    from headgate.status import counted, figures_text, read_status

    inbox = ControlFolder(lake.inbox)
    with file_errors(f"{inbox.path} cannot be read", TargetError):
        status = read_status(inbox)
    if status is None:
        raise ConfigError(f"no run has written to {lake.path} yet")
    troubled = sum(table.is_troubled for table in status.tables.values())
    condition = status.condition()
    text = f"{condition}, {figures_text(status)}" if condition in ("running", "idle") else condition
    text += f", {status.error}" if status.error else ""
    text += f"; {counted(len(status.tables), 'table')}, {troubled} in trouble"
    return {**status.to_dict(), "condition": condition}, text


def _control(lake: Lake) -> tuple[Content, str]:
    """Return the other files of the control folder, and the signals that wait, or whose tables do."""
    from headgate.carrier import ControlFile, ControlFolder

    inbox = ControlFolder(lake.inbox)
    with file_errors(f"{inbox.path} cannot be read", TargetError):
        files = {str(name): inbox.read(name) for name in ControlFile if name is not ControlFile.STATUS}
        signals = inbox.signals()
    trouble = inbox.trouble()
    text = f"{len(signals)} signals wait"
    return {**files, "signals": signals}, text if trouble is None else f"{text}; planning fails: {trouble.error}"


def _ledger(lake: Lake, limit: int) -> tuple[Content, str]:
    from headgate.lake import newest_row, newest_rows

    newest = newest_row(lake)  # its errors say what is missing
    rows = newest_rows(lake, limit)
    return [_row(row) for row in rows], f"{len(rows)} rows, the newest is batch {newest.batch_id}"


def _row(row: LedgerRow) -> dict[str, Any]:
    return {
        **row.columns(),
        "committed_at": row.committed_at.isoformat(),
        "snapshots": row.snapshots.to_dict(),
        "notifications": [one.to_dict() for one in row.notifications],
    }


def _checkpoint(lake: Lake) -> tuple[Content, str]:
    """Return the newest files of Spark's checkpoint: each has the offset of a batch.

    :raises ConfigError: there is none.
    """
    from headgate.stores import folder_of

    checkpoint, folder = lake.checkpoint, folder_of(lake.checkpoint)
    heads: dict[str, dict[str, str]] = {}
    with file_errors(f"{checkpoint} cannot be read", TargetError):
        for area in ("offsets", "commits"):
            names = [file.name.rpartition("/")[2] for file in folder.files(area)]
            newest = sorted((int(name) for name in names if name.isdecimal()), reverse=True)[:_OFFSETS]
            heads[area] = {
                str(number): folder.read(f"{area}/{number}")[:_OFFSET_BYTES].decode("utf-8", "replace")
                for number in newest
            }
    if not heads["offsets"]:
        raise ConfigError(f"{checkpoint} has no offset: no batch was planned")
    ends = {area: next(iter(files), "none") for area, files in heads.items()}
    return {**heads}, f"the newest offset is {ends['offsets']}, the newest commit {ends['commits']}"


def _sizes(lake: Lake) -> tuple[Content, str]:
    """Return files and bytes by folder of the lake, and the space of its disk."""
    from headgate.stores import folder_of

    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    with file_errors(f"{lake.path} cannot be read", TargetError):
        for file in islice(folder_of(lake.path).below(), _MOST_FILES):
            known = file.identity()
            area = "/".join(file.name.split("/")[:-1][:3])
            files[area] += 1
            sizes[area] += 0 if known is None else known.size
    disk = _disk(Path(lake.path)) if lake.is_local else None
    count = files.total()
    value: Content = {
        "is_complete": count < _MOST_FILES,
        "disk": disk,
        "folders": {area: {"files": files[area], "bytes": sizes[area]} for area in sorted(files)},
    }
    free = "" if disk is None or "free" not in disk else f", {int(disk['free']) / 1e9:,.1f} GB of the disk are free"
    return value, f"{count:,} files, {sizes.total() / 1e6:,.1f} MB{free}"


# --- the server


def _server(connection: Connection, config: PipelineConfig) -> tuple[Content, str]:
    from headgate.mysql import read_facts

    del config
    facts = read_facts(connection)
    executed, purged = connection.query("SELECT @@global.gtid_executed, @@global.gtid_purged")[0]
    value = {"variables": dict(facts.settings), "gtid_executed": str(executed), "gtid_purged": str(purged)}
    return value, f"MySQL {facts.version} {facts.get('version_comment')}".rstrip()


def _check(connection: Connection, config: PipelineConfig) -> tuple[Content, str]:
    from headgate.catalog import TablePatterns
    from headgate.cli._check import conclusion, server_report

    rows = server_report(connection, TablePatterns.following(config.source.tables))
    return [row.as_dict() for row in rows], conclusion(rows)


def _tables(connection: Connection, config: PipelineConfig) -> tuple[Content, str]:
    from headgate.catalog import TableDef, TablePatterns, load_stats, load_tables
    from headgate.status import counted

    patterns = TablePatterns.following(config.source.tables)
    stats = load_stats(connection.query, patterns)

    def described(table: TableDef) -> dict[str, Any]:
        size = {} if table.full_name not in stats else asdict(stats[table.full_name])
        columns = [{"mysql": column.mysql, **asdict(column)} for column in table.columns]
        return {**size, "key": list(table.key_names), "columns": columns}

    tables = load_tables(connection.query, patterns)
    return {table.full_name: described(table) for table in tables}, counted(len(tables), "table")
