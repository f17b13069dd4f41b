"""What a child process says on stderr, with the noise of a JVM's start left out; and the driver, of what is raised."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.engine._quiet import quiet_driver

CODE = """
import subprocess, sys
from headgate.engine._quiet import quiet_start
with quiet_start():
    child = subprocess.Popen(["sh", "-c", "echo 'WARNING: Using incubator modules: x' >&2; echo 'Error: no memory' >&2;"
                              " read line; echo 'late error' >&2; printf 'end'  >&2"], stdin=subprocess.PIPE)
sys.stderr.write("own\\n")  # one write, also with PYTHONUNBUFFERED; print makes two
sys.stderr.flush()
child.communicate(b"go\\n")
import threading
[t.join(120) for t in threading.enumerate() if t.name == "headgate-stderr"]
"""


def test_only_noise_is_left_out() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=240, check=True)
    assert sorted(done.stderr.split("\n")) == sorted(["own", "Error: no memory", "late error", "end"])


@pytest.fixture
def loggers() -> Iterator[None]:
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    before = py4j.level, list(root.filters)
    yield
    py4j.setLevel(before[0])
    root.filters[:] = before[1]


def record(path: str) -> logging.LogRecord:
    return logging.LogRecord("root", logging.ERROR, path, 1, "said", None, None)


@pytest.mark.usefixtures("loggers")
def test_py4j_and_the_server_of_counters_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    server = SimpleNamespace(handle_error=lambda *_: print("traceback"))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
    for _ in range(2):
        quiet_driver(spark)
    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.ERROR)
    assert not logging.getLogger().filter(record("/venv/py4j/java_gateway.py"))
    assert logging.getLogger().filter(record("/venv/app.py"))
    server.handle_error(None, None)
    assert capsys.readouterr().out == ""
