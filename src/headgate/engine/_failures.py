"""What failures of Spark mean: an error of ours in another process's traceback, a JVM that is gone, Spark's own."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

from headgate import errors
from headgate.errors import EngineError, HeadgateError, TargetError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["end_session", "find_error", "jvm_ended", "spark_failure"]

_JVM_SECONDS = 5.0
"""How long a process that has closed its sockets may take to be gone."""
_JVM_ENDING_SECONDS = 30.0
"""How long one may take that was told to end: Spark tidies up first, and its errors come before that is done."""


def jvm_ended(spark: SparkSession, error: Exception, *, ending: bool = False) -> bool:
    """Whether something failed because the JVM that this process has started is gone.

    :param ending: the run is to end. Who ends a service may end all of its processes at once, and a JVM that ends has
        all kinds of errors.
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
    """Stop the session; no error if its JVM is gone.

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
    "Connection reset by peer",
)
"""What Spark says when a process did not start in time or was lost: on a busy machine that comes and goes."""


def spark_failure(text: str) -> HeadgateError:
    """An error for Spark's own failures: ``EngineError`` where another try may go well, else ``TargetError``."""
    passing = next((known for known in _PASSING if known in text), None)
    if passing is not None:
        return EngineError(f"Spark failed for now: {passing}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in text.splitlines() if _RAISED.match(line)] if _TRACEBACK in text else []
    return TargetError(f"Spark failed: {raised[-1] if raised else lines[0]}")


_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Warning|Interrupt): ")
"""The last line of a Python traceback; before it there is only that a worker has raised something."""


_LEAVES = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HeadgateError)
}
_IN_TRACEBACK = re.compile(r"headgate\.errors\.(\w+): ([^\n]*)")


def find_error(text: str) -> HeadgateError | None:
    """The last headgate error in the text of a traceback that came through Spark, rebuilt; None if there is none."""
    found = [match for match in _IN_TRACEBACK.finditer(text) if match.group(1) in _LEAVES]
    if not found:
        return None
    name, message = found[-1].groups()
    return _LEAVES[name](message)
