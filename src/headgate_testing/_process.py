"""Child processes that end with this process, even if it is killed.

On Linux the kernel kills the child when its parent *thread* ends (prctl(2), PR_SET_PDEATHSIG), so children are started
from one thread that lives as long as the process. A small Python program makes the request and then becomes the child
(same pid), because running code between fork and exec is not safe in a process with threads. Without prctl, only
:mod:`atexit` ends them.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

__all__ = ["start_child"]

LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.setpgid(0, 0)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Separate process group: a Ctrl-C in the terminal is for the parent, which then stops its children in order."""

_Order = tuple[list[str], Path, Mapping[str, str], "Future[subprocess.Popen[bytes]]"]
_orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
_lock = threading.Lock()
_starter: list[tuple[int, threading.Thread]] = []


def start_child(
    command: Sequence[str], *, output: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start ``command`` with stdout and stderr appended to the file ``output``.

    :param env: variables for it, in addition to this process's environment.
    :raises OSError: the program cannot be started.
    """
    if sys.platform == "linux":
        command = [sys.executable, "-ISc", LAUNCHER, str(os.getpid()), *command]
    future: Future[subprocess.Popen[bytes]] = Future()
    with _lock:
        if not _starter or _starter[0][0] != os.getpid():
            thread = threading.Thread(target=_serve, name="headgate-children", daemon=True)
            _starter[:] = [(os.getpid(), thread)]
            thread.start()
    _orders.put((list(command), output, {**os.environ, **(env or {})}, future))
    return future.result()


def _serve() -> None:
    while True:
        command, output, env, future = _orders.get()
        try:
            with output.open("ab") as sink:
                devnull = subprocess.DEVNULL
                future.set_result(
                    subprocess.Popen(command, stdin=devnull, stdout=sink, stderr=sink, cwd=output.parent, env=env)
                )
        except Exception as error:  # noqa: BLE001 - the caller raises it; this thread has to live on
            future.set_exception(error)
