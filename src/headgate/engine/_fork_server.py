"""The fork server: a process that has loaded modules and forks a process for each that asks. It is a fork of the
driver itself, or ``python -m headgate.engine._fork_server SOCKET FUNCTION``, which calls the function that loads them.

The driver has made the socket: a launcher that asks before the modules are loaded waits. If a launcher is ended, the
server ends the process that it asked for, with SIGTERM.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from headgate.engine._launcher import FORKED

__all__ = ["main", "serve"]

_PATIENCE: Final = 10.0
"""Seconds for one that has connected to say all it has to say."""
_SAME: Final = ("PYTHONHASHSEED", "NUMBA_CACHE_DIR")
"""Variables that Python and numba read when they start; a process that is to have others is not ours to fork."""


class Request(NamedTuple):
    """What a forked process is to be."""

    folder: str
    arguments: list[str]
    """As of a Python: ``-m`` and a module, or ``-c`` and a program's text, then its arguments."""
    environment: dict[str, str]
    streams: list[int]

    @property
    def fits(self) -> bool:
        """Whether a fork of this process is what a new Python would be."""
        asked = ((name, self.environment.get(name)) for name in _SAME)
        same = all(value is None or value == os.environ.get(name) for name, value in asked)
        return same and self.arguments[:1] in (["-m"], ["-c"]) and len(self.arguments) > 1


class _Child(NamedTuple):
    pid: int
    handle: int  # of the process, readable when it has ended
    asker: socket.socket


def main(descriptor: int, load: str) -> None:
    """Serve as a program.

    :param descriptor: of a listening socket, which this process was started with.
    :param load: the function that loads what the processes need, as ``module:name``.
    """
    listening = socket.socket(fileno=descriptor)
    listening.set_inheritable(False)
    serve(listening, load)


def serve(listening: socket.socket, load: str | None = None) -> None:
    """Serve until standard input and all processes have ended, then remove the socket's folder.

    In a forked process: run what was asked for.

    :param load: as :func:`main`'s; None: this process has loaded what they need.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends in its own time, and the server with it
    folder, server = Path(listening.getsockname()).parent, os.getpid()
    try:
        if load is not None:
            pkgutil.resolve_name(load)()
        gc.collect()
        gc.freeze()  # what is shared stays shared: no process's collector goes over it
        request = _Server(listening).serve()
    finally:
        if os.getpid() == server:
            shutil.rmtree(folder, ignore_errors=True)
    if request is not None:
        _become(request)


class _Server:
    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._children: dict[int, _Child] = {}  # by each of their two descriptors
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(listening, select.POLLIN)

    def serve(self) -> Request | None:
        """None when the driver has gone and all processes have ended; in a forked process, what was asked for."""
        driven = True
        while driven or self._children:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    driven = False
                    self._poll.unregister(0)
                elif ready == self._listening.fileno():
                    asker, _ = self._listening.accept()
                    request = self._take(asker)
                    if request is not None:
                        return request
                elif ready in self._children:
                    self._look_after(self._children[ready], ready)
        return None

    def _take(self, asker: socket.socket) -> Request | None:
        """Fork a process for this one, or send it away; the request in the forked process."""
        request: Request | None = None
        with suppress(OSError, ValueError):
            request = _read(asker)
        if request is None or not request.fits:
            asker.close()
        else:
            pid = os.fork()
            if not pid:
                self._leave()
                asker.close()
                return request
            child = _Child(pid, os.pidfd_open(pid), asker)
            for descriptor in (child.handle, asker.fileno()):
                self._children[descriptor] = child
                self._poll.register(descriptor, select.POLLIN)
            with suppress(OSError):
                asker.sendall(FORKED)
        for stream in request.streams if request is not None else ():
            os.close(stream)
        return None

    def _look_after(self, child: _Child, ready: int) -> None:
        if ready != child.handle:  # the asker says nothing more: it has gone
            os.kill(child.pid, signal.SIGTERM)
            self._poll.unregister(ready)
            return
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            child.asker.sendall(status.to_bytes(4, "little"))
        for descriptor in (child.handle, child.asker.fileno()):
            del self._children[descriptor]
            with suppress(KeyError):
                self._poll.unregister(descriptor)
        os.close(child.handle)
        child.asker.close()

    def _leave(self) -> None:
        """Close what is the server's own, in a forked process."""
        self._listening.close()
        for descriptor, child in self._children.items():
            if descriptor == child.handle:
                os.close(descriptor)
            else:
                child.asker.close()


def _read(asker: socket.socket) -> Request:
    """:raises ValueError: the message is cut.
    :raises OSError: the asker does not go on in time.
    """
    asker.settimeout(_PATIENCE)
    data, streams, _, _ = socket.recv_fds(asker, 65536, 3)
    try:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            more = asker.recv(65536)
            if not more:
                raise ValueError("a cut request")
            data += more
        folder, count, *words = os.fsdecode(data[4:]).split("\0")
        number = int(count)
        environment = dict(word.split("=", 1) for word in words[number:])
    except (OSError, ValueError):
        for stream in streams:
            os.close(stream)
        raise
    return Request(folder, words[:number], environment, streams)


def _become(request: Request) -> None:
    """Run the module as a new Python would: its streams, folder, environment, path and arguments."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    first = [request.folder, *filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = dict.fromkeys([*first, *sys.path])
    kind, name, *words = request.arguments
    sys.argv = [kind if kind == "-c" else name, *words]
    if kind == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(name, "<string>", "exec"), vars(main))  # noqa: S102 - what Spark has asked for
        return
    sys.modules.pop(name, None)  # it is to run as the main module, loaded before or not
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
