"""Python processes for Spark, forked from one that has loaded what they need. This is the driver's side.

Spark starts a Python process for each kind of work: four to inspect the source, one that plans batches, two that plan
tasks, one that forks workers. Each would load numba, pyarrow, pandas, PySpark and headgate again, and set up numba's
loader: one to two seconds of a core, eight times before the first change arrives.

- The **fork server** (``_fork_server``) loads the modules once, and then forks a process per request. A starting driver
  with a single thread loads them itself and forks the server. Any other driver starts the server as a program, which
  loads them while the JVM starts.
- The **launcher** (``_launcher``) is the Python that Spark starts. It sends its arguments, environment and standard
  streams to the server, and stays until the forked process ends, so that Spark can wait for it and end it. If the
  server does not answer or cannot serve the request, the launcher becomes a plain Python: slower, with the same result.

Forking is safe as long as the server has no thread that holds a lock. The modules start no threads except those of
jemalloc and OpenBLAS, which both handle forks; pyarrow's and numba's pools are not started.

If the driver ends, so does the server's standard input. The server continues until the last forked process has ended:
those end when Spark's JVM does, as they would without the server. Then it removes its folder.
"""

from __future__ import annotations

import atexit
import os
import pkgutil
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from headgate.engine import _launcher
from headgate.files import hold_folder

__all__ = ["fork_server", "forking_python"]

_PROGRAM: Final = "headgate.engine._fork_server"
"""Not imported here: a module that Python runs as a program must not be loaded by its package."""
_LONGEST_LINE: Final = 120
"""Maximum length of a script's first line; some kernels cut longer ones."""
_LONGEST_ADDRESS: Final = 107
"""Maximum bytes of a socket's path (Linux manual, unix(7))."""
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}
"""As Spark sets it in its Python processes."""
_JEMALLOCS: Final = "jemalloc_bg_thd"

_executables: dict[str, str | None] = {}
"""Loading function → path of the executable file; None: not possible."""
_open_inputs: list[int] = []
"""Ends of the servers' standard inputs, open until this process ends."""


class _PythonStandIn(NamedTuple):
    """An executable file that replaces this Python, and the socket that it connects to."""

    path: str
    listening: socket.socket


def forking_python(load: str) -> str | None:
    """Return the path of an executable that replaces this Python, with processes from a fork server.

    The first call starts the server, which lives as long as this process.

    :param load: the function that loads what the processes need, as ``module:name``; the server calls it.
    :returns: None if that is impossible: not on Linux, no programs allowed in temporary folders, or their path is too
        long, or Python's path is too long or has a blank.
    """
    if load not in _executables:
        python = _make_python()
        _executables[load] = None if python is None else python.path
        if python is not None:
            _start_server(python.listening, load)
    return _executables[load]


def fork_server(load: str) -> Callable[[Callable[[], None]], None]:
    """Make :func:`forking_python` return its path from now on; return a function that makes the server.

    That function loads what the processes need, here, and forks the server. If this process has a second thread by
    then, it starts the server as a program.

    :param load: as :func:`forking_python`'s.
    :returns: a function to call once, with one that in the fork closes what belongs to the driver only.
    """
    python = None if load in _executables else _make_python()
    if python is None:
        return lambda _: None
    _executables[load] = python.path
    os.environ.update({name: value for name, value in _ONE_THREAD.items() if name not in os.environ})

    def make(leave: Callable[[], None]) -> None:
        pkgutil.resolve_name(load)()
        if _has_one_thread():
            _fork(python.listening, leave)
        else:
            _start_server(python.listening, load)

    return make


def _make_python() -> _PythonStandIn | None:
    first = f"#!{sys.executable} -IS\n"
    if not hasattr(os, "pidfd_open") or " " in sys.executable or len(first) > _LONGEST_LINE:
        return None
    folder = Path(tempfile.mkdtemp(prefix="headgate-"))  # accessible to its owner only, with all files in it
    python, address = folder / "python", str(folder / _launcher.SOCKET)
    if os.statvfs(folder).f_flag & os.ST_NOEXEC or len(os.fsencode(address)) > _LONGEST_ADDRESS:
        folder.rmdir()
        return None
    hold_folder(folder)  # a run may start no process for weeks
    python.write_text(first + Path(_launcher.__file__).read_text())
    python.chmod(0o700)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    return _PythonStandIn(str(python), listening)


def _has_one_thread() -> bool:
    """Ignore jemalloc's thread, which stops while this process forks (``background_thread_prefork0`` in its source)."""
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return len(names) - names.count(_JEMALLOCS) == 1


def _start_server(listening: socket.socket, load: str) -> None:
    # Not by ``subprocess``, whose object warns if the process outlives it.
    reading, writing = os.pipe()
    with listening:
        number = listening.fileno()
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
    os.close(reading)
    _open_inputs.append(writing)


def _fork(listening: socket.socket, leave: Callable[[], None]) -> None:
    from headgate.engine._fork_server import serve

    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(reading)
        listening.close()
        _open_inputs.append(writing)
        return
    code: object = 1
    try:
        os.setsid()
        os.close(writing)
        os.dup2(reading, 0)
        os.close(reading)
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a device
            os.dup2(nothing.fileno(), 1)
        leave()
        atexit._clear()  # the driver's exit handlers
        # Spark sets 0 so that all processes have one seed; these have the driver's, which is as good.
        os.environ.setdefault("PYTHONHASHSEED", "0")
        serve(listening)
        code = 0
    except SystemExit as exit_request:
        code = exit_request.code
    except BaseException:  # noqa: BLE001 - as any program that fails
        traceback.print_exc()
    _end(code)


def _end(code: object) -> NoReturn:
    """End this process like a program, without returning to the driver's frames in which it was forked."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)
