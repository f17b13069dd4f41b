"""Spark's Python workers are forked from a process that has loaded what they need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORKED = """
import os, sys
from headgate.preload import preload
preload()
before = set(sys.modules)
if not os.fork():
    {use}
    os._exit(len({{name for name in set(sys.modules) - before if name.startswith(("headgate", "numba", "pyarrow"))}}))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
NOT_TAKEN = """
import gc
from headgate.engine import prestart_session, build_session
from headgate.preload import PRELOAD
from headgate_testing import wait_until
with prestart_session("x", {"spark.master": "local[1]"}, PRELOAD):
    from pyspark import SparkContext
    wait_until(lambda: SparkContext._active_spark_context)
gc.collect()
spark = build_session("x", {"spark.master": "local[1]"}, quiet=True)
print(spark.range(3).count())
spark.stop()
"""
TAKEN = """
from headgate.engine import prestart_session, build_session
from headgate.preload import PRELOAD
with prestart_session("x", {"spark.master": "local[1]"}, PRELOAD):
    spark = build_session("x", {"spark.master": "local[1]"}, quiet=None)
print(spark.range(3).count())
spark.stop()
"""
USE = """
    import numpy as np, pyarrow as pa, pyarrow.compute as pc
    from headgate.replication import op_array
    from headgate.apply._images import pair_updates
    assert pc.sum(pa.array(np.arange(100_000)).cast(pa.int32())).as_py() == 4999950000
    assert op_array(np.array([98, 99], np.uint8)).to_pylist() == ["b", "c"]
"""


def test_workers_are_forked_from_the_server(spark: SparkSession) -> None:
    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import psutil
        import pyarrow as pa

        for _ in batches:
            command = " ".join(psutil.Process(os.getppid()).cmdline())
            yield pa.RecordBatch.from_pydict({"command": [command]})

    for row in spark.range(2).mapInArrow(parents, "command string").collect():
        assert "-m headgate.engine._fork_server " in row["command"]


@pytest.mark.parametrize("code", [TAKEN, NOT_TAKEN], ids=["taken at once", "not taken"])
def test_a_session_is_taken_or_does_not_hinder_the_next(code: str) -> None:
    """Also while its thread still loads PySpark. If nobody took it, its JVM is ended, and nothing of it stays open."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "ResourceWarning" not in done.stderr


def test_a_forked_process_loads_nothing_more() -> None:
    code = FORKED.format(use=USE.strip())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout == "0\n", done.stderr
