"""Filter for messages of every JVM start that are useless to users and cannot be switched off.

The JVM writes them straight to the file descriptor it inherits, before its logging is set up. So it is started with one
end of a pipe as its standard error, and a thread copies every line from the pipe to the real one, except known lines.
All other lines, errors among them, remain visible.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoiseFilter", "quiet_driver", "quiet_py4j", "quiet_start"]

_NOISE = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|Setting (default|Spark) log level to "
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|Using Spark's default log4j profile: "
    rb"|.* WARN NativeCodeLoader: Unable to load native-hadoop library"
    rb"|.* WARN Utils: (Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP if you need)"
)


class NoiseFilter:
    """A pipe for the standard error of processes to start; it buffers their output until :meth:`begin`."""

    def __init__(self) -> None:
        self.real = os.dup(2)
        self._reading, self.writing = os.pipe()

    def begin(self) -> None:
        """Copy, in a thread, until the last process with the pipe's other end has ended; close that end here."""
        os.close(self.writing)
        threading.Thread(target=_copy, args=(self._reading, self.real), name="headgate-stderr", daemon=True).start()


@contextmanager
def quiet_start() -> Iterator[None]:
    """Filter the standard error of processes that are started in the block, for all their life.

    This process's standard error is filtered, too, while the block runs, in any thread.
    """
    sys.stderr.flush()
    filtered = NoiseFilter()
    os.dup2(filtered.writing, 2)
    filtered.begin()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(filtered.real, 2)


def quiet_driver(spark: SparkSession) -> None:
    """Keep failures that the caller also gets as exceptions off standard error: py4j logs them with their tracebacks,
    some by the root logger, and pyspark's accumulator server prints one when the JVM is killed.
    """
    quiet_py4j()
    counters: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if counters is not None:
        counters.handle_error = lambda *_: None


def quiet_py4j() -> None:
    """Keep py4j out of the log."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if _is_not_py4j not in logging.getLogger().filters:
        logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _copy(reading: int, real: int) -> None:
    """Copy lines until the last process with the pipe's other end has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
        for line in lines:
            if not _NOISE.match(line):
                with suppress(OSError):  # stderr is closed, but the JVM must not stall on a full pipe
                    out.write(line)
