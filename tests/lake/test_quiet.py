"""What a child process says on stderr, with the noise of a JVM's start left out."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import subprocess, sys
from headgate.lake._quiet import quiet_start
with quiet_start():
    child = subprocess.Popen(["sh", "-c", "echo 'WARNING: Using incubator modules: x' >&2; echo 'Error: no memory' >&2;"
                              " read line; echo 'late error' >&2; printf 'end'  >&2"], stdin=subprocess.PIPE)
print("own", file=sys.stderr, flush=True)
child.communicate(b"go\\n")
import threading
[t.join(120) for t in threading.enumerate() if t.name == "headgate-stderr"]
"""


def test_only_noise_is_left_out() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=240, check=True)
    assert sorted(done.stderr.split("\n")) == sorted(["own", "Error: no memory", "late error", "end"])
