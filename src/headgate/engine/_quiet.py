"""Keeps what every start of a JVM says off the terminal: lines that tell a user nothing and cannot be switched off.

The JVM writes them straight to the file descriptor it inherits, before any of its logging is set up. So it is started
with one end of a pipe as its standard error, and a thread copies every line from the pipe to the real one, but for the
known lines. Nothing else is held back, so errors of the JVM are seen as ever.
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
    """A pipe for the standard error of processes that are to be started; what they say is kept until :meth:`begin`."""

    def __init__(self) -> None:
        self.real = os.dup(2)
        self._reading, self.writing = os.pipe()

    def begin(self) -> None:
        """Copy, in a thread, until the last process has gone that holds the pipe's other end; here it is closed."""
        os.close(self.writing)
        threading.Thread(target=_copy, args=(self._reading, self.real), name="headgate-stderr", daemon=True).start()

    def leave(self) -> None:
        """In a fork of this process: close what is the filter's."""
        for descriptor in (self.real, self._reading, self.writing):
            os.close(descriptor)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Processes started in the block have a filtered standard error, for all their life.

    The process's own standard error goes the same way while the block runs, in any thread.
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
    """Nothing on standard error of failures that come to the caller as exceptions, too: py4j logs them with their
    tracebacks, some by the root logger, and pyspark's server of counters prints one when the JVM is killed.
    """
    quiet_py4j()
    counters: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if counters is not None:
        counters.handle_error = lambda *_: None


def quiet_py4j() -> None:
    """Nothing of py4j in the log."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if _is_not_py4j not in logging.getLogger().filters:
        logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _copy(reading: int, real: int) -> None:
    """Until the last process that holds the pipe's other end has gone."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
        for line in lines:
            if not _NOISE.match(line):
                with suppress(OSError):  # nobody looks any more; the JVM must not stall on a full pipe for that
                    out.write(line)
