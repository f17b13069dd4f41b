"""A folder and its processes, which live as long as the process that started them.

If that process is killed, the kernel kills the others (:mod:`headgate_testing._process`), and the next process that
starts a server of the kind removes the folder (:mod:`headgate_testing._folders`). A forked child of it ends nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from headgate.errors import ConfigError, ConnectError
from headgate_testing._folders import claim, new_folder
from headgate_testing._process import start_child
from headgate_testing._waiting import wait_until

__all__ = ["OwnedProcesses", "OwnedServer", "last_line"]

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.02

_running: weakref.WeakSet[OwnedProcesses] = weakref.WeakSet()


def last_line(log: str) -> str:
    """Return the last line of a process's log, as the reason why it did not start."""
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"


class OwnedProcesses:
    """A context manager that stops the processes and removes the folder.

    :param prefix: of the folder's name; folders of this prefix whose owners were killed are removed.
    :param reason: returns why a process did not start, from its log.
    """

    def __init__(self, prefix: str, reason: Callable[[str], str] = last_line) -> None:
        self.folder = new_folder(prefix)
        self._reason = reason
        self._creator = os.getpid()
        self._claim: TextIO | None = claim(self.folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        _running.add(self)

    def log_file(self, name: str) -> Path:
        """Return the file with the output of a process."""
        return self.folder / f"{name}.log"

    def launch(
        self, name: str, command: Sequence[str], answers: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process, and wait until it answers. A later process of the same name appends to its log.

        :param env: variables for it, in addition to this process's environment.
        :raises ConnectError: it ended, or did not answer in time and was killed; the message has the reason.
        """
        log = self.log_file(name)
        before = log.stat().st_size if log.exists() else 0
        process = start_child(command, output=log, env=env)
        self._processes.append(process)
        started = False
        with contextlib.suppress(TimeoutError):
            wait_until(
                lambda: answers() or process.poll() is not None,
                f"{name} does not answer",
                seconds=_START_SECONDS,
                every=_POLL_SECONDS,
            )
            started = process.poll() is None
        if not started:
            self.end(process)
            raise ConnectError(f"{name} did not start: {self._reason(_text_from(log.read_bytes(), before))}")
        return process

    def end(self, process: subprocess.Popen[bytes], with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a process a signal and wait for its end; if it does not end, kill it."""
        if os.getpid() != self._creator or process not in self._processes:
            return
        self._processes.remove(process)
        process.send_signal(with_signal)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Kill the processes, the last one first, and remove the folder. May be called twice."""
        if os.getpid() != self._creator:
            return
        for process in reversed([*self._processes]):
            self.end(process)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    @contextlib.contextmanager
    def stop_on_failure(self) -> Iterator[None]:
        """Stop everything if the block fails: for constructors, whose object nobody could stop."""
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class OwnedServer(OwnedProcesses):
    """One process and its data in the folder: it may be ended, and launched again on them."""

    _server: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's process id.

        :raises ConfigError: it is not running.
        """
        if self._server is None:
            raise ConfigError(f"the server of {self.folder} is not running")
        return self._server.pid

    def launch_server(
        self, name: str, command: Sequence[str], answers: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> None:
        """Start the server, as :meth:`launch` does."""
        self._server = self.launch(name, command, answers, env)

    def end_server(self, with_signal: signal.Signals) -> None:
        """End the server, if it runs; its data stays."""
        server, self._server = self._server, None
        if server is not None:
            self.end(server, with_signal)


def _text_from(log: bytes, start: int) -> str:
    return log[start:].decode(errors="replace")


@atexit.register
def _stop_all() -> None:
    for one in list(_running):
        one.stop()
