"""JVM starts with classes from an archive: class data sharing (JEP 350, *Dynamic CDS Archives*).

Half the processor time of a start goes into reading and verifying some ten thousand classes from jars. A JVM that ends
normally writes the classes it has loaded into an archive, which later JVMs map into memory.

**Which archive fits** is in its name: a digest of Java's own files, of the jars and of the options. The JVM also checks
the jars' sizes and times, and continues without an archive that does not fit. So no archive can do harm. The collector
does not matter, nor what Java logs, nor the heap's size below 32 GB, where Java's references begin to take 8 bytes.

**Where it is mapped.** By default the JVM maps it at a random address, and must change each address in it: 0.15 s of a
start, and 160 MB of private memory. ``ArchiveRelocationMode=0`` takes the address that the archive was made for, if
that is free.

**Who writes one.** The JVM of the first ``headgate run`` that finds none, after that has ended: nothing waits for it.
If no batch was made, most classes would be missing, so the JVM is killed. If the JVM is killed while it writes, as in a
container that ends, the next one writes the archive. The JVM writes the file's header last
(``FileMapInfo::write_header`` in HotSpot's filemap.cpp), so a file is complete if it begins with the magic number of
dynamic archives. If two JVMs end at once, each writes a separate file, and the later one stays. A container ends with
its first process, and kills the JVM: if that process is this one, no archive is requested, because each stop would have
to wait for it.

Only classes on Java's own class path are archived, not those of ``spark.jars``: hence Delta is on the class path.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.archives import spark_home
from headgate.engine._java import java_home
from headgate.files import make_private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive_option", "keep_whole_archives", "store_class_archive"]

_MAGIC: Final = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""Magic number of dynamic archives: ``CDS_DYNAMIC_ARCHIVE_MAGIC`` in HotSpot's cds.h, from Java 13 on."""
_WRITES: Final = "-XX:ArchiveClassesAtExit="
_MAPPED: Final = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Do not report an archive that is missing or does not fit."""
_FIRST_PROCESS: Final = 1
"""Process number of a container's first process."""
_WRITE_SECONDS: Final = 60.0
_KEPT: Final = 4
"""Archives in the folder, of 150 to 200 MB each, for different versions and options."""
_IRRELEVANT: Final = re.compile(r"-XX:\+Use\w+GC|-Xlog(:.*)?|-Xloggc:.*|-verbose(:.*)?")
"""Options that change neither the classes nor their form: collectors, and Java's own log."""
_MEMORY: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}
"""Powers of two. A number alone is of MB: Spark's documentation, "Configuration", ``spark.driver.memory``."""
_LARGE_HEAP: Final = 32 << 30
_BATCH_DONE: Final = threading.Event()


def archive_option(folder: Path, jars: Sequence[str], options: str, memory: str, *, writes: bool = False) -> str | None:
    """Return the JVM's options to use the archive, or to write it; None if neither is possible or wanted.

    :param folder: the folder of archives.
    :param jars: paths on the class path besides those of Spark.
    :param options: the user's Java options.
    :param memory: the heap's size, in Spark's form.
    :param writes: if there is no archive, write it.
    """
    java, spark = java_home(), spark_home()
    if java is None or spark is None:
        return None
    parts = [java / "lib" / "modules", *spark.glob("jars/*.jar"), *map(Path, jars)]
    decisive = [one for one in options.split() if not _IRRELEVANT.fullmatch(one)]
    archive = folder / f"{_digest(parts, [*decisive, str(_is_large(memory))])}.jsa"
    with suppress(OSError):
        with archive.open("rb") as file:
            whole = file.read(4) == _MAGIC
        if whole:
            archive.touch()
            return f"{shlex.quote(f'-XX:SharedArchiveFile={archive}')} {_MAPPED} {_QUIET}"
        if time.time() - archive.stat().st_mtime < _WRITE_SECONDS:
            return None  # a JVM is writing it
    if not writes or os.getpid() == _FIRST_PROCESS:
        return None
    try:
        make_private_folder(folder)
        _tidy(folder)
    except OSError:
        return None
    return f"{shlex.quote(f'{_WRITES}{archive}')} {_QUIET}"


def keep_whole_archives(spark: SparkSession, options: str) -> None:
    """If this session's JVM writes an archive, kill it at this process's exit unless a batch is done."""
    process: Any = getattr(getattr(spark.sparkContext, "_gateway", None), "proc", None)
    if process is not None and any(one.startswith(_WRITES) for one in shlex.split(options)):
        atexit.register(_kill_without_batch, process, os.getpid())


def store_class_archive() -> None:
    """Keep the archive: a batch is done, so the JVM has loaded the classes that the next start needs."""
    _BATCH_DONE.set()


def _kill_without_batch(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() == starter and not _BATCH_DONE.is_set():
        process.kill()


def _is_large(memory: str) -> bool:
    """Whether Java's references take 8 bytes in a heap of this size."""
    match = _MEMORY.fullmatch(memory.strip())
    return match is not None and int(match[1]) << _UNITS[match[2].lower()] >= _LARGE_HEAP


def _digest(files: Iterable[Path], options: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        with suppress(OSError):
            status = file.stat()
            digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    digest.update("\0".join(options).encode())
    return digest.hexdigest()[:24]


def _tidy(folder: Path) -> None:
    """Remove the least recently used archives; a process that has one open keeps it."""
    archives = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in archives[_KEPT - 1 :]:
        old.unlink(missing_ok=True)
