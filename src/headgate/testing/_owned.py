"""A folder and the processes that work in it, for a server that lives as long as the process that started it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO

from headgate.errors import ConnectError
from headgate.testing._folders import claim, new_folder
from headgate.testing._process import start_child

__all__ = ["OwnedProcesses"]

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.02

_running: weakref.WeakSet[OwnedProcesses] = weakref.WeakSet()


class OwnedProcesses:
    """A context manager that stops the processes and removes the folder.

    :param prefix: of the folder's name; folders of this prefix whose owners were killed are removed.
    """

    def __init__(self, prefix: str) -> None:
        self.folder = new_folder(prefix)
        self._creator = os.getpid()
        self._claim: TextIO | None = claim(self.folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        _running.add(self)

    def launch(
        self, name: str, command: Sequence[str], answers: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process, and wait until it answers. Its log is ``<name>.log`` in the folder.

        :param env: set for it, over this process's environment.
        :raises ConnectError: it ended, or does not answer in time; the message has the last line of its log.
        """
        log = self.folder / f"{name}.log"
        process = start_child(command, output=log, env=env)
        self._processes.append(process)
        deadline = time.monotonic() + _START_SECONDS
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
                raise ConnectError(f"{name} did not start: {lines[-1] if lines else 'it wrote nothing to its log'}")
            time.sleep(_LOOK_SECONDS)
        return process

    def stop(self) -> None:
        """End the processes, the last one first, and remove the folder. May be called twice."""
        if os.getpid() != self._creator:
            return
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@atexit.register
def _stop_all() -> None:
    for one in list(_running):
        one.stop()
