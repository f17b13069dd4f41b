"""A session's JVM, started before PySpark is loaded: PySpark takes over a running one, as under ``spark-submit``.

PySpark loads for half a second, then starts the JVM by a script, and checks every tenth of a second for a file with the
JVM's port. Here the same script starts first. Its JVM writes the same file (``PythonGatewayServer`` in Spark's core),
and PySpark gets its content in the variables that ``spark-submit`` sets for a program in Python (``PythonRunner``
there; ``launch_gateway`` in PySpark's java_gateway.py reads them).

The JVM ends when its standard input does: with this process, even if that is killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.archives import spark_home
from headgate.errors import EngineError

__all__ = ["StartedJVM"]

_POLL_SECONDS: Final = 0.01
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LAUNCHER: Final = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Java's options for the small JVM that builds the command of the large one."""
_ALLOCATION: Final = {"MALLOC_ARENA_MAX": "2"}
"""Number of areas from which glibc gives memory to the JVM's threads (GNU C Library manual, "Memory Allocation
Tunables"). By default each of some 200 threads may use one of 8 per core, and freed memory stays there: 150 MB."""


class StartedJVM:
    """A JVM that is starting.

    :param conf: Spark's settings, without secrets.
    :param stderr: the descriptor of its standard error.
    :raises OSError: there is no Spark, or its script cannot be run.
    """

    def __init__(self, conf: Mapping[str, str], stderr: int) -> None:
        home = spark_home()
        if home is None:
            raise FileNotFoundError("pyspark is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-jvm-"))
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        submit = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), *settings, *submit],
            stdin=subprocess.PIPE,
            stderr=stderr,
            env={
                **_LAUNCHER,
                **_ALLOCATION,
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection_file),
            },
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does; there is one thread
        )

    @property
    def _connection_file(self) -> Path:
        return self._folder / "gateway"

    def hand_over(self) -> None:
        """Wait until it listens, and make PySpark take it over.

        :raises EngineError: it has ended.
        """
        from pyspark import SparkContext

        try:
            while not self._connection_file.exists():
                if self.process.poll() is not None:
                    raise EngineError(
                        f"Spark's JVM exited with code {self.process.returncode} at its start (see its output above); "
                        "it needs Java 17, in JAVA_HOME or on PATH"
                    )
                time.sleep(_POLL_SECONDS)
            connection = self._connection_file.read_bytes()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        os.environ[_PORT] = str(int.from_bytes(connection[:4], "big"))
        os.environ[_SECRET] = connection[8:].decode()  # after its length, 4 bytes
        try:
            SparkContext._ensure_initialized()
        finally:
            del os.environ[_PORT], os.environ[_SECRET]
        assert SparkContext._gateway is not None
        SparkContext._gateway.proc = self.process

    def end(self) -> None:
        """Kill the JVM."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """Make PySpark start another JVM if it needs one, although it took over this one, which was ended."""
        pyspark = sys.modules.get("pyspark")
        gateway = pyspark.SparkContext._gateway if pyspark is not None else None
        if pyspark is not None and gateway is not None and gateway.proc is self.process:
            context = pyspark.SparkContext
            context._gateway = context._jvm = context._active_spark_context = None
            pyspark.sql.SparkSession._instantiatedSession = None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
