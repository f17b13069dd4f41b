"""Python processes for Spark that are forked from one, which has loaded what they need. This is the driver's side.

Spark starts a Python process for each kind of work: four to learn what the source is, one that plans batches, two that
make plans for tasks, one that forks workers. Each would load numba, pyarrow, pandas, PySpark and headgate again, and
set up numba's loader: one to two seconds of a core, eight times before the first change is there.

- The **fork server** (``_fork_server``) is a process that the driver starts before the JVM. It loads the modules once,
  while the JVM starts, and then forks a process for each that asks.
- The **launcher** (``_launcher``) is what Spark starts as its Python. It hands its arguments, environment and standard
  streams to the server, and stays until the forked process ends, so that Spark can wait for it and end it. If the
  server does not answer or is unlike what is asked for, the launcher becomes a plain Python: slower, and the same.

Forking is safe as long as the server has no thread that holds a lock. What is loaded starts none but those of jemalloc
and of OpenBLAS, both of which take care of forks themselves; pyarrow's and numba's own pools are not begun.

If the driver ends, the server's standard input does, and the server goes on until the last forked process has ended:
those end when Spark's JVM does, as they would without the server. Then it removes its folder.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from headgate.engine import _launcher

__all__ = ["forking_python"]

_LONGEST_LINE: Final = 120
"""Of a script's first line; some kernels cut longer ones."""

_servers: Final[list[subprocess.Popen[bytes]]] = []
"""Kept until this process ends: the end of a server's standard input ends it."""


@cache
def forking_python(load: str) -> str | None:
    """The path of an executable that stands for this Python and gets its processes from a fork server.

    The server is started by the first call and lives as long as this process.

    :param load: the function that loads what the processes need, as ``module:name``; the server calls it.
    :returns: None where that cannot be: there is no Linux, or no folder that programs may be run from.
    """
    first = f"#!{sys.executable} -IS\n"
    if not hasattr(os, "pidfd_open") or " " in sys.executable or len(first) > _LONGEST_LINE:
        return None
    folder = Path(tempfile.mkdtemp(prefix="headgate-"))  # for its owner alone, as all that is in it
    python = folder / "python"
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        folder.rmdir()
        return None
    python.write_text(first + Path(_launcher.__file__).read_text())
    python.chmod(0o700)
    as_spark = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "OMP_NUM_THREADS": "1"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / _launcher.SOCKET))
        listening.listen(64)
        number = listening.fileno()
        _servers.append(
            subprocess.Popen(
                [sys.executable, "-m", "headgate.engine._fork_server", str(number), load],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**as_spark, **os.environ},
                pass_fds=[number],
                start_new_session=True,
            )
        )
    return str(python)
