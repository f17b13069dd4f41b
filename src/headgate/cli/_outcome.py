"""Send a signal and wait for its outcome, from the status file; shared by ``headgate signal`` and ``forget``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headgate.cli._common import warn, write_text
from headgate.errors import HeadgateError, TargetError
from headgate.files import file_errors

if TYPE_CHECKING:
    from headgate.carrier import ControlFolder
    from headgate.control import Signal
    from headgate.lake import Lake
    from headgate.status import Status

__all__ = ["is_running", "send", "wait_for"]

_SECONDS: Final = 0.5
"""Interval in which the status is read; a run writes it after each batch."""
_MISSED: Final = 20
"""Polls without the signal until its answer is given up: 10 s, in which a run writes its status at least once."""


def send(lake: Lake, pipeline: str, signal: Signal) -> int:
    """Put a signal into a pipeline's inbox. Return when it was sent, in microseconds since 1970 UTC.

    :raises TargetError: the inbox cannot be written, or the lake is another pipeline's.
    """
    from headgate.carrier import ControlFolder
    from headgate.control import sending_us, submit
    from headgate.lake import check_lake

    inbox = ControlFolder(lake.inbox)
    status = _read(inbox)
    if status is not None:
        status.check_pipeline(inbox, pipeline)
    check_lake(lake, pipeline, {})
    with file_errors(f"{inbox.path} cannot be written", TargetError):
        sent_us = sending_us(inbox)
        submit(inbox, signal, sent_us)
    return sent_us


def wait_for(inbox: ControlFolder, pipeline: str, signal: Signal, sent_us: int) -> bool:
    """Wait for a signal's last state, and print each state that it enters. Return whether the signal is done.

    False also if the answer is no longer kept, and after Ctrl-C, which ends the waiting and not the signal.
    """
    try:
        return _wait_for(inbox, pipeline, signal, sent_us)
    except KeyboardInterrupt:
        warn(f"signal {signal.id} is still under way; headgate status shows what becomes of it")
        return False


def _wait_for(inbox: ControlFolder, pipeline: str, signal: Signal, sent_us: int) -> bool:
    from headgate.control import SignalState
    from headgate.status import signal_text

    shown, warned, missed = "", False, 0
    while missed < _MISSED:
        status = _read(inbox)
        runs = status is not None and status.is_alive()
        if not warned and not runs:
            warn(f"pipeline {pipeline} is not running; the signal waits in {inbox.path} for its next run")
            warned = True
        signals = () if status is None else status.signals
        answer = next((one for one in signals if (one.id, one.sent_us) == (signal.id, sent_us)), None)
        missed = missed + 1 if runs and answer is None else 0
        if answer is not None and answer.state != shown:
            write_text([f"{answer.state}: {signal_text(answer)}"])
            shown = answer.state
        if answer is not None and answer.is_over:
            return answer.state is SignalState.DONE
        time.sleep(_SECONDS)
    warn(f"signal {signal.id} was replaced, or its answer is no longer kept")
    return False


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
