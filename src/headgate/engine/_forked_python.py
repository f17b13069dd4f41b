"""Python processes for Spark that are forked from one, which has loaded what they need. This is the driver's side.

Spark starts a Python process for each kind of work: four to learn what the source is, one that plans batches, two that
make plans for tasks, one that forks workers. Each would load numba, pyarrow, pandas, PySpark and headgate again, and
set up numba's loader: one to two seconds of a core, eight times before the first change is there.

- The **fork server** (``_fork_server``) loads the modules once, and then forks a process for each that asks. A driver
  that begins, and has a single thread, loads them for itself and forks the server. Any other driver starts it as a
  program, which loads them while the JVM starts.
- The **launcher** (``_launcher``) is what Spark starts as its Python. It hands its arguments, environment and standard
  streams to the server, and stays until the forked process ends, so that Spark can wait for it and end it. If the
  server does not answer or is unlike what is asked for, the launcher becomes a plain Python: slower, and the same.

Forking is safe as long as the server has no thread that holds a lock. What is loaded starts none but those of jemalloc
and of OpenBLAS, both of which take care of forks themselves; pyarrow's and numba's own pools are not begun.

If the driver ends, the server's standard input does, and the server goes on until the last forked process has ended:
those end when Spark's JVM does, as they would without the server. Then it removes its folder.
"""

from __future__ import annotations

import atexit
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from headgate.engine import _launcher

__all__ = ["fork_server", "forking_python"]

_PROGRAM: Final = "headgate.engine._fork_server"
"""Not imported here: Python wants the module that it runs as a program not to be loaded by its package."""
_LONGEST_LINE: Final = 120
"""Of a script's first line; some kernels cut longer ones."""
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1"}
"""As Spark has it in its Python processes."""
_JEMALLOCS: Final = "jemalloc_bg_thd"

_standing: dict[str, str | None] = {}
"""The executable file by the function that loads."""
_held: list[object] = []
"""Ends of the servers' standard inputs, kept until this process ends."""


class _Python(NamedTuple):
    """An executable file that stands for this Python, and the socket where it asks."""

    path: str
    listening: socket.socket


def forking_python(load: str) -> str | None:
    """The path of an executable that stands for this Python and gets its processes from a fork server.

    The server is started by the first call and lives as long as this process.

    :param load: the function that loads what the processes need, as ``module:name``; the server calls it.
    :returns: None where that cannot be: there is no Linux, or no folder that programs may be run from.
    """
    if load not in _standing:
        python = _make_python()
        _standing[load] = None if python is None else python.path
        if python is not None:
            _start_server(python.listening, load)
    return _standing[load]


def fork_server(load: str) -> Callable[[Callable[[], None]], None]:
    """Have :func:`forking_python` tell its path from now on, of a server that the function which is returned makes:
    it loads what the processes need, here, and forks the server. If this process has a second thread by then, it
    starts the server as a program.

    :param load: as :func:`forking_python`'s.
    :returns: what is to be called once, with a function that lets go, in the fork, of what is the driver's alone.
    """
    python = None if load in _standing else _make_python()
    if python is None:
        return lambda _: None
    _standing[load] = python.path
    os.environ.update({name: value for name, value in _ONE_THREAD.items() if name not in os.environ})

    def make(leave: Callable[[], None]) -> None:
        pkgutil.resolve_name(load)()
        if _has_one_thread():
            _fork(python.listening, leave)
        else:
            _start_server(python.listening, load)

    return make


def _make_python() -> _Python | None:
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
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / _launcher.SOCKET))
    listening.listen(64)
    return _Python(str(python), listening)


def _has_one_thread() -> bool:
    """Not counting jemalloc's, which stops while this process forks (``background_thread_prefork0`` in its source)."""
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return len(names) - names.count(_JEMALLOCS) == 1


def _start_server(listening: socket.socket, load: str) -> None:
    with listening:
        number = listening.fileno()
        server = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(number), load],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**_ONE_THREAD, "PYTHONHASHSEED": "0", **os.environ},
            pass_fds=[number],
            start_new_session=True,
        )
    _held.append(server)


def _fork(listening: socket.socket, leave: Callable[[], None]) -> None:
    from headgate.engine._fork_server import serve

    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(reading)
        listening.close()
        _held.append(writing)
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
        atexit._clear()  # those are the driver's
        # Spark asks for 0 so that all processes have one seed; these have the driver's, which is as good.
        os.environ.setdefault("PYTHONHASHSEED", "0")
        serve(listening)
        code = 0
    except SystemExit as asked:
        code = asked.code
    except BaseException:  # noqa: BLE001 - as any program that fails
        traceback.print_exc()
    _end(code)


def _end(code: object) -> NoReturn:
    """End this process as the end of a program does, without the frames of the driver that it was forked in."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)
