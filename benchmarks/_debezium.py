"""The Debezium engine's read-only incremental snapshot, as one JVM process: what it takes for a part of ``orders``.

The engine comes by its Maven coordinates, as Delta's archives do (``headgate.archives``), and stays in the user's
cache folder. Settings are Debezium's defaults (documentation, "Debezium connector for MySQL" and "Debezium Engine"),
but for ``read.only``, the file signal channel and chunks of 10,000 rows, which are better for it than its default of
1,024. The consumer looks at every value (``DebeziumSnapshot.java``).

An idle server sends the engine nothing, and it opens its first window only at a heartbeat of the server, some 48 s
after the signal. So its rate is taken from its first row to its last one, which leaves this waiting out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks._bench import DB, Workloads
from headgate.archives import fetch_jars
from headgate.files import cache_folder, make_once
from headgate_testing._process import start_child

__all__ = ["VERSION", "DebeziumRun", "jars", "java", "measure"]

VERSION = "3.6.1.Final"
"""The newest whose archives are all in Maven Central."""
PACKAGES = (
    f"io.debezium:debezium-embedded:{VERSION}",
    f"io.debezium:debezium-connector-mysql:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",  # writes the engine's log; 1.7.36 is the SLF4J that the engine brings along
)
CHUNK_ROWS = 10_000
JAVA_FLAGS = ("-XX:+UseG1GC", "-Xms256m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
START_SECONDS = 180.0
END_SECONDS = 900.0
SIGNAL = "signals.jsonl"


@dataclass(frozen=True)
class DebeziumRun:
    """Of one snapshot: rows, seconds from the first to the last one, seconds from the signal to the first one."""

    rows: int
    seconds: float
    waited_seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def measure(load: Workloads, rows: int) -> DebeziumRun:
    """Read the rows of ``orders`` whose ``id`` is below ``rows`` by a signal.

    :raises RuntimeError: the engine ended, or did not get there in time; with its last words.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-debezium-") as name:
        folder = Path(name)
        (folder / "engine.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in _settings(load, folder).items())
        )
        program = Path(__file__).with_name("DebeziumSnapshot.java")
        command = [java(), *JAVA_FLAGS, "-cp", f"{jars()}/*", str(program), "engine.properties", str(rows)]
        output = folder / "output"
        process = start_child(command, output=output)
        try:
            _wait(process, output, "streaming", START_SECONDS, poke=lambda: _change(load))
            signalled = time.time_ns() // 1000
            _signal(folder, rows)
            times = _wait(process, output, "last", END_SECONDS)
        finally:
            process.kill()
            process.wait()
    return DebeziumRun(rows, (times["last"] - times["first"]) / 1e6, (times["first"] - signalled) / 1e6)


def java() -> str:
    path = shutil.which("java")
    if path is None:
        raise RuntimeError("there is no Java on PATH, and the Debezium engine needs it")
    return path


def jars() -> Path:
    jars = cache_folder("debezium", f"jars-{VERSION}")
    with make_once(jars) as folder:
        if folder is not None:
            fetch_jars(PACKAGES, folder)
    return jars


def _settings(load: Workloads, folder: Path) -> dict[str, str | int]:
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "bench",
        "database.hostname": load.mysql.host,
        "database.port": load.mysql.port,
        "database.user": load.mysql.user,
        "database.password": "",
        "database.server.id": 85744,
        "table.include.list": f"{DB}.orders",
        "snapshot.mode": "no_data",
        "read.only": "true",
        "incremental.snapshot.chunk.size": CHUNK_ROWS,
        "signal.enabled.channels": "file",
        "signal.file": str(folder / SIGNAL),
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
    }


def _change(load: Workloads) -> None:
    """A live change, by which the engine shows that it streams."""
    load.mysql.execute(f"UPDATE {DB}.orders SET flag = flag ^ 1 WHERE id = 0")


def _signal(folder: Path, rows: int) -> None:
    table = f"{DB}.orders"
    data = {
        "type": "INCREMENTAL",
        "data-collections": [table],
        "additional-conditions": [{"data-collection": table, "filter": f"id < {rows}"}],
    }
    part = folder / "signal.part"
    part.write_text(json.dumps({"id": "bench", "type": "execute-snapshot", "data": data}) + "\n")
    part.rename(folder / SIGNAL)


def _wait(
    process: subprocess.Popen[bytes], output: Path, event: str, seconds: float, poke: Callable[[], None] | None = None
) -> dict[str, int]:
    """The events so far, as soon as ``event`` is one of them."""
    deadline = time.monotonic() + seconds
    while True:
        text = output.read_text(errors="replace") if output.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        events = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
        if event in events:
            return events
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Debezium engine did not get to {event!r}: {text[-2000:]}")
        if poke is not None:
            poke()
        time.sleep(0.2)
