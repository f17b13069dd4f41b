"""Send a signal and wait for its outcome, from the status file; shared by ``headgate signal`` and ``forget``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headgate.cli._common import warn, write_lines
from headgate.errors import HeadgateError, TargetError
from headgate.files import file_errors

if TYPE_CHECKING:
    from headgate.carrier import ControlFolder
    from headgate.control import Signal
    from headgate.status import SignalStatus, Status

__all__ = ["is_running", "send", "wait_for"]

_SECONDS: Final = 0.5
"""Interval in which the status is read; a run writes it after each batch."""


def send(inbox: ControlFolder, signal: Signal) -> int:
    """Put a signal into the inbox. Return when it was sent, in microseconds since 1970 UTC.

    :raises TargetError: the inbox cannot be written.
    """
    from headgate.control import submit

    sent_us = time.time_ns() // 1000
    with file_errors(f"{inbox.path} cannot be written", TargetError):
        submit(inbox, signal, sent_us)
    return sent_us


def wait_for(inbox: ControlFolder, pipeline: str, signal: Signal, sent_us: int) -> SignalStatus:
    """Wait for a signal's last state, and print each state that it enters. Ctrl-C ends the waiting, not the signal."""
    from headgate.status import signal_text

    shown, warned = "", False
    while True:
        status = _read(inbox)
        if not warned and not (status is not None and status.is_alive()):
            warn(f"pipeline {pipeline} is not running; the signal waits in {inbox.path} for its next run")
            warned = True
        for one in status.signals if status is not None else ():
            if (one.id, one.sent_us) != (signal.id, sent_us):
                continue
            if one.state != shown:
                write_lines([f"{one.state}: {signal_text(one)}"])
                shown = one.state
            if one.is_over:
                return one
        time.sleep(_SECONDS)


def is_running(inbox: ControlFolder) -> bool:
    """Return whether a run can take signals now."""
    status = _read(inbox)
    return status is not None and status.is_alive()


def _read(inbox: ControlFolder) -> Status | None:
    from headgate.status import read_status

    try:
        return read_status(inbox)
    except (HeadgateError, OSError):  # damaged, or of another version: `headgate status` reports that
        return None
