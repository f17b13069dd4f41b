"""Classification of Spark failures: a headgate error in another process's traceback, an ended JVM, Spark's own."""

from __future__ import annotations

import errno
import re
import subprocess
from typing import TYPE_CHECKING, Any

from headgate import errors
from headgate.errors import EngineError, HeadgateError, SparkFailedError
from headgate.files import system_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["end_session", "find_error", "jvm_ended", "spark_failure"]

_JVM_SECONDS = 5.0
"""Limit for a process that has closed its sockets to end."""
_JVM_ENDING_SECONDS = 30.0
"""Limit for a process that was ordered to end: Spark cleans up first, and its errors come before that is done."""


def jvm_ended(spark: SparkSession, error: Exception, *, ending: bool = False) -> bool:
    """Whether something failed because the JVM that this process has started has ended.

    :param ending: the run is stopping. A service manager may end all processes at once, and a JVM that ends raises all
        kinds of errors.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    process: Any = getattr(getattr(spark.sparkContext, "_gateway", None), "proc", None)
    lost = isinstance(error, (OSError, Py4JError)) and not isinstance(error, Py4JJavaError)
    if process is None or not (lost or ending):
        return False
    try:
        process.wait(_JVM_ENDING_SECONDS if ending else _JVM_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_session(spark: SparkSession, *, ending: bool) -> None:
    """Stop the session; no error if its JVM has ended.

    :param ending: as in :func:`jvm_ended`.
    """
    try:
        spark.stop()
    except Exception as error:
        if not jvm_ended(spark, error, ending=ending):
            raise


_PASSING = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Timed out while waiting for the Python worker",
    "RpcTimeoutException",
    "Cannot find endpoint",
    "ExecutorLostFailure",
    "Connection reset",
    "IOException: Stream closed",
    "terminated with exception: SQLSTATE",
    "AWSApiCallTimeoutException",
    "AWSServiceThrottledException",
    "AWSStatus500Exception",
    "Unable to execute HTTP request",
)
"""Spark's messages when a process did not start in time or was lost, on a busy machine a transient failure: without a
cause it is Java's ``EOFException``, of a Python process that ended. And those of S3A and AWS's client when a store does
not answer, or not now (Hadoop, "Troubleshooting S3A").
"""


def spark_failure(text: str, files: str = "a file of Spark") -> HeadgateError:
    """Convert Spark's own failure: ``EngineError`` or, for a full disk and the like, ``StorageError`` if a retry may
    succeed, else ``SparkFailedError``, or ``TargetError`` for permissions.

    :param files: what cannot be written if the failure is about a file and does not name it.
    """
    passing = next((known for known in _PASSING if known in text), None)
    if passing is not None:
        return EngineError(f"Spark failed for now: {passing}")
    system = _system_error(text, files)
    if system is not None:
        return system
    lines = [line.strip() for line in text.replace(_TRACEBACK, "\n").splitlines() if line.strip()]
    return SparkFailedError(f"Spark failed: {_raised(text) or next(iter(lines), 'without a message')}")


_OF_PYTHON = re.compile(r"\[Errno ([0-9]{1,3})\] ([^:\n]+)(?:: '([^'\n]+)')?")
_OF_JAVA = re.compile(
    r"(?:(/[^\s:()]+)(?: \(|: ))?"
    r"(No space left on device|Disk quota exceeded|Read-only file system|Too many open files|Stale file handle)"
)
"""Errors of the system as ``java.io`` (``FileOutputStream``) and ``java.nio`` (``FileSystemException``) print them."""
_NUMBERS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Read-only file system": errno.EROFS,
    "Too many open files": errno.EMFILE,
    "Stale file handle": errno.ESTALE,
}


def _system_error(text: str, files: str) -> HeadgateError | None:
    """Return the error of a disk or of permissions in Spark's text; None: it has none."""
    raised = _OF_PYTHON.search(_raised(text) or text.partition("\n")[0])
    if raised is not None:
        number, reason, path = int(raised[1]), raised[2], raised[3]
    else:
        java = _OF_JAVA.search(text)
        if java is None:
            return None
        number, reason, path = _NUMBERS[java[2]], java[2], java[1] or files
    return system_error(OSError(number, reason.strip(), path), f"{path or files} cannot be used")


_TRACEBACK = "Traceback (most recent call last):"


def _raised(text: str) -> str | None:
    """Return the last line of the last Python traceback in a text: type and message. None: there is none, or it is cut.

    It is the first one behind the traceback's head that is not indented more than that.
    """
    before, marker, frames = text.rpartition(_TRACEBACK)
    head = before.rpartition("\n")[2]
    margin = len(head) - len(head.lstrip())
    ends = (line for line in frames.splitlines()[1:] if line.strip() and not line[: margin + 1].isspace())
    return next(ends, "").strip() or None if marker else None


_LEAVES = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HeadgateError)
}
_IN_TRACEBACK = re.compile(r"headgate\.errors\.(\w+): ([^\n]*)")


def find_error(text: str) -> HeadgateError | None:
    """Rebuild the last headgate error in the text of a traceback that came through Spark; None if there is none."""
    matches = [match for match in _IN_TRACEBACK.finditer(text) if match.group(1) in _LEAVES]
    if not matches:
        return None
    name, message = matches[-1].groups()
    return _LEAVES[name](message)
