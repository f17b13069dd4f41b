"""The fork server, a process that has loaded modules and forks a process for each request:
``python -m headgate.engine._fork_server SOCKET FUNCTION``, which calls the function that loads the modules.

The driver creates the socket, so a launcher that connects before the modules are loaded waits. If a launcher ends, the
server ends the process that it requested, with SIGTERM. If the server ends, the kernel does so for all of them. So it
does not end for a request: if it has no descriptors left, it refuses that.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import traceback
import types
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from headgate.engine._launcher import FORKED, REFUSED

__all__ = ["main"]

_READ_SECONDS: Final = 10.0
"""Seconds that each read of a request may take."""
_PR_SET_PDEATHSIG: Final = 1
"""Linux manual, prctl(2): the signal that this process gets when its parent ends."""
_STARTUP_VARIABLES: Final = ("PYTHONHASHSEED", "NUMBA_CACHE_DIR")
"""Variables that Python and numba read at start; a process with other values cannot be forked."""


class Request(NamedTuple):
    """Request for a forked process."""

    folder: str
    arguments: list[str]
    """As for Python: ``-m`` and a module, or ``-c`` and a program's text, then its arguments."""
    environment: dict[str, str]
    streams: list[int]

    @property
    def fits(self) -> bool:
        """Whether a fork of this process is equivalent to a new Python."""
        values = ((name, self.environment.get(name)) for name in _STARTUP_VARIABLES)
        same = all(value is None or value == os.environ.get(name) for name, value in values)
        return same and self.arguments[:1] in (["-m"], ["-c"]) and len(self.arguments) > 1


class _Child(NamedTuple):
    pid: int
    handle: int  # pidfd, readable when the process has ended
    launcher: socket.socket


def main(descriptor: int, load: str) -> None:
    """Serve until standard input and all processes have ended, then remove the socket's folder.

    In a forked process: run the request.

    :param descriptor: of a listening socket, inherited from the driver.
    :param load: the function that loads what the processes need, as ``module:name``.
    """
    listening = socket.socket(fileno=descriptor)
    listening.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to end, and the server ends with it
    address = Path(listening.getsockname())
    server = _Server(listening, forks=_is_loaded(load))
    try:
        request = server.serve()
    except BaseException:
        address.unlink(missing_ok=True)  # each launcher that comes later becomes a plain Python
        raise
    if request is None:
        shutil.rmtree(address.parent, ignore_errors=True)
    else:
        _become(request)


def _is_loaded(load: str) -> bool:
    """Load what the processes need. Return whether that succeeded; standard error has the reason if not."""
    try:
        pkgutil.resolve_name(load)()
    except Exception:  # noqa: BLE001 - a plain Python shows the user the same error, or has none
        traceback.print_exc()
        return False
    gc.collect()
    gc.freeze()  # memory stays shared: no process's collector visits it
    return True


class _Server:
    """The server's loop.

    :param forks: whether it forks; False: it refuses each request.
    """

    def __init__(self, listening: socket.socket, *, forks: bool) -> None:
        self._listening, self._forks = listening, forks
        self._children: dict[int, _Child] = {}  # by each of their two descriptors
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(listening, select.POLLIN)
        self._spare: int | None = None  # a descriptor to release when there is no other

    def serve(self) -> Request | None:
        """Return None when the driver and all processes have ended; in a forked process, the request."""
        driven = True
        while driven or self._children:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    driven = False
                    self._poll.unregister(0)
                elif ready == self._listening.fileno():
                    launcher = self._accept()
                    request = self._take(launcher) if launcher is not None else None
                    if request is not None:
                        return request
                elif ready in self._children:
                    self._update_child(self._children[ready], ready)
        return None

    def _accept(self) -> socket.socket | None:
        """Return the next launcher; None: there is no descriptor for it, so it is refused."""
        if self._spare is None:
            with suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)
        with suppress(OSError):
            return self._listening.accept()[0]
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with suppress(OSError), self._listening.accept()[0] as launcher:
            launcher.sendall(REFUSED)
        return None

    def _take(self, launcher: socket.socket) -> Request | None:
        """Fork a process for a launcher, or refuse it; return the request in the forked process."""
        request, pid, server = None, -1, os.getpid()
        with suppress(OSError, ValueError):
            request = _read(launcher)
        if request is not None and request.fits and self._forks:
            with suppress(OSError):  # there may be no more processes
                pid = os.fork()
        if request is not None and not pid:
            _end_with(server)
            self._leave()
            launcher.close()
            return request
        for stream in request.streams if request is not None else ():
            os.close(stream)  # one of which the child's handle gets
        if pid < 0:
            with suppress(OSError):
                launcher.sendall(REFUSED)
            launcher.close()
        else:
            self._add_child(pid, launcher)
        return None

    def _add_child(self, pid: int, launcher: socket.socket) -> None:
        try:
            child = _Child(pid, os.pidfd_open(pid), launcher)
        except OSError:  # the system has no more; the process may have begun, so its launcher fails, too
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            launcher.close()
            return
        for descriptor in (child.handle, launcher.fileno()):
            self._children[descriptor] = child
            self._poll.register(descriptor, select.POLLIN)
        with suppress(OSError):
            launcher.sendall(FORKED)

    def _update_child(self, child: _Child, ready: int) -> None:
        if ready != child.handle:  # the launcher sends nothing more: it has ended
            os.kill(child.pid, signal.SIGTERM)
            self._poll.unregister(ready)
            return
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            child.launcher.sendall(status.to_bytes(4, "little"))
        for descriptor in (child.handle, child.launcher.fileno()):
            del self._children[descriptor]
            with suppress(KeyError):
                self._poll.unregister(descriptor)
        os.close(child.handle)
        child.launcher.close()

    def _leave(self) -> None:
        """Close the server's descriptors in a forked process."""
        self._listening.close()
        if self._spare is not None:
            os.close(self._spare)
        for descriptor, child in self._children.items():
            if descriptor == child.handle:
                os.close(descriptor)
            else:
                child.launcher.close()


def _end_with(server: int) -> None:
    """End this forked process with SIGTERM when the server ends, in whatever way; its launcher has failed then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != server:  # it ended before
        os._exit(1)


def _read(launcher: socket.socket) -> Request:
    """Read a launcher's request.

    :raises ValueError: it is cut, or there were no descriptors for its streams.
    :raises OSError: a read fails or times out.
    """
    launcher.settimeout(_READ_SECONDS)
    data, streams, _, _ = socket.recv_fds(launcher, 65536, 3)
    try:
        if len(streams) < 3:
            raise ValueError("the request lacks streams")
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            more = launcher.recv(65536)
            if not more:
                raise ValueError("the request is cut")
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
    """Run the request as a new Python would, with its streams, folder, environment, path and arguments."""
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
        exec(compile(name, "<string>", "exec"), vars(main))  # noqa: S102 - Spark's program
        return
    sys.modules.pop(name, None)  # it runs as the main module, even if already loaded
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
