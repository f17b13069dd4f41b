"""Python processes for Spark, forked from one that has loaded what they need. This is the driver's side.

Spark starts a Python process for each kind of work: four to inspect the source, one that plans batches, two that plan
tasks, one that forks workers. Each would load numba, pyarrow, pandas, PySpark and headgate again, and set up numba's
loader: one to two seconds of a core, eight times before the first change arrives.

- The **fork server** (``_fork_server``) is a program that loads the modules once, while the JVM starts, and then forks
  a process per request.
- The **launcher** (``_launcher``) is the Python that Spark starts. It sends its arguments, environment and standard
  streams to the server, and stays until the forked process ends, so that Spark can wait for it and end it. If there is
  no server, or it refuses the request, the launcher becomes a plain Python: slower, with the same result.

Spark's daemon module (``spark.python.daemon.module``) serves only the last of these: planning and inspection always run
``pyspark.daemon`` or a program of their own. With it alone a start takes twice the processor time.

Forking is safe as long as the server has no thread that holds a lock. The modules start no threads except those of
jemalloc and OpenBLAS, which both handle forks; pyarrow's and numba's pools are not started.

If the driver ends, so does the server's standard input. The server continues until the last forked process has ended:
those end when Spark's JVM does, as they would without the server. Then it removes its folder. If the server itself is
killed, the kernel ends the forked processes, and Spark sees that they failed.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from headgate.engine import _launcher
from headgate.files import hold_folder

__all__ = ["forking_python"]

log = logging.getLogger("headgate")

_PROGRAM: Final = "headgate.engine._fork_server"
"""Not imported here: a module that Python runs as a program must not be loaded by its package."""
_LONGEST_LINE: Final = 120
"""Maximum length of a script's first line; some kernels cut longer ones."""
_LONGEST_ADDRESS: Final = 107
"""Maximum bytes of a socket's path (Linux manual, unix(7))."""
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}
"""As Spark sets it in its Python processes."""

_open_inputs: list[int] = []
"""Ends of the servers' standard inputs, open until this process ends."""


@functools.cache
def forking_python(load: str) -> str | None:
    """Return the path of an executable that replaces this Python, with processes from a fork server.

    The first call starts the server, which lives as long as this process.

    :param load: the function that loads what the processes need, as ``module:name``; the server calls it.
    :returns: None if that is impossible: no Linux with ``pidfd_open``, no programs allowed in temporary folders, or
        their path is too long, or Python's path is too long or has a blank, or the system refuses a folder, a socket or
        a process.
    """
    first = f"#!{sys.executable} -IS\n"
    if not _has_process_handles() or " " in sys.executable or len(first) > _LONGEST_LINE:
        return None
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="headgate-"))  # accessible to its owner only, with all files in it
        python, address = folder / "python", str(folder / _launcher.SOCKET)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC or len(os.fsencode(address)) > _LONGEST_ADDRESS:
            raise OSError("no launcher or socket can be in this folder")
        python.write_text(first + Path(_launcher.__file__).read_text())
        python.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(64)
            hold_folder(folder)  # a run may start no process for weeks
            _start_server(listening, load)
    except OSError as error:
        log.info("Spark starts each Python process separately: %s", error)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        return None
    return str(python)


def _has_process_handles() -> bool:
    """Whether Python, the kernel and its filters allow ``pidfd_open``."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _start_server(listening: socket.socket, load: str) -> None:
    """Start the server, which inherits the socket.

    :raises OSError: there can be no more processes or descriptors.
    """
    # Not by ``subprocess``, whose object warns if the process outlives it.
    reading, writing = os.pipe()
    number = listening.fileno()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _PROGRAM, str(number), load],
            {**_ONE_THREAD, "PYTHONHASHSEED": "0", **os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, number, number),  # so the server inherits it
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    _open_inputs.append(writing)
