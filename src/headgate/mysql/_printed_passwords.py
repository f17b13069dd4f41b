"""Passwords that a command prints: tokens that expire, such as those of IAM on Amazon RDS, or passwords of a vault.

The command is a program with its arguments, without a shell. It gets no input; the first line of its standard output is
the password. Its standard error is discarded, and no log and no error shows what it printed: both may hold secrets. If
it takes too long, it is ended with all processes that it started.

A process runs it for its first connection, and again if the printed password is older than ``FRESH_SECONDS`` or the
server has refused it. Connections that open at the same time wait for one run.

A program that cannot be started is a wrong configuration. If it fails, the service behind it may be away: that is
retried as a server that cannot be reached.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headgate.errors import ConnectError
from headgate.files import file_errors
from headgate.parsing import parse_command

__all__ = ["COMMAND_SECONDS", "FRESH_SECONDS", "PrintedPasswords", "run_command"]

FRESH_SECONDS: Final = 300.0
"""How long a printed password is used. Tokens of Amazon RDS are valid for 900 s (Amazon RDS User Guide, "IAM database
authentication")."""
COMMAND_SECONDS: Final = 30.0
"""Time limit of a command."""


class PrintedPasswords:
    """Passwords of this process, by the command that printed them.

    :param run: returns the first line that a command prints.
    :param clock: returns seconds.
    """

    def __init__(self, run: Callable[[str], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._lock = threading.Lock()
        self._printed: dict[str, tuple[str, float]] = {}

    def get(self, command: str) -> str:
        """Return the password that a command printed; run the command if there is none, or an old one.

        :raises ConfigError: the command cannot be run.
        :raises ConnectError: it fails, or prints no password.
        """
        with self._lock:
            password, until = self._printed.get(command, ("", self._clock()))
            if self._clock() >= until:
                password = self._run(command)
                self._printed[command] = password, self._clock() + FRESH_SECONDS
            return password

    def forget(self, command: str, password: str) -> None:
        """Run the command again before the next connection, unless it has printed another password since."""
        with self._lock:
            if self._printed.get(command, ("", 0.0))[0] == password:
                del self._printed[command]


def run_command(command: str, seconds: float = COMMAND_SECONDS) -> str:
    """Return the first line that a command prints, without its line ending.

    :param command: a program and its arguments, quoted as for a shell.
    :param seconds: time limit.
    :raises ConfigError: the program cannot be started.
    :raises ConnectError: it exits with another code than 0, takes too long, or prints no line of UTF-8. The error names
        the program, no argument and nothing that it printed.
    :raises StorageError: there can be no more processes or descriptors.
    """
    words = parse_command(command)
    name = f"the password command {words[0]}"
    with (
        file_errors(f"{name} cannot be run"),
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process,
    ):
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ConnectError(f"{name} did not end within {seconds:g} s") from None
        finally:
            _end(process)
    if process.returncode:
        raise ConnectError(f"{name} failed with exit code {process.returncode}; run it by hand to see why")
    with file_errors(f"{name} printed no password", ConnectError):
        password = output.partition(b"\n")[0].removesuffix(b"\r").decode()
    if not password:
        raise ConnectError(f"{name} printed no password: its first line is empty")
    return password


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the processes of the command that are left. Its own is not reaped before it is ``wait``-ed for."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
