"""Reports of an idle stream in the control folder: that there is nothing to do, and until when that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.carrier import ControlFile, ControlFolder, Waiting
from headgate.offsets import SourceOffset
from headgate.spark._notes import Notes

__all__ = ["IdleReports"]

_IDLE_SECONDS: Final = 1.0
"""A stream that is idle for so long is reported as waiting; a busy one writes nothing between its batches."""
_REPORT_SECONDS: Final = 10.0
"""... and again at the first look after so many seconds, so that a look without an answer shows."""
_LATE_SECONDS: Final = 20.0
"""How long an answer may take: busy machines pause, and the trouble of a lost connection comes after 30 seconds."""


class IdleReports:
    """Reports of one stream.

    :param control: the folder; None: no reports.
    :param pause: seconds between two looks at the server.
    :param wall_us: the time, in µs since 1970 UTC.
    """

    def __init__(self, control: ControlFolder | None, pause: float, wall_us: Callable[[], int]) -> None:
        self._control, self._pause, self._wall_us = control, pause, wall_us
        self._idle_since: float | None = None
        self._reported: float | None = None

    def report(self, start: SourceOffset, now: float | None) -> None:
        """Report that there is nothing to do after ``start``, if that is due.

        :param now: when that was found, by the planner's clock; None: there is something to do.
        """
        if now is None or self._control is None:
            self._idle_since = self._reported = None
            return
        if self._idle_since is None:
            self._idle_since = now
        is_idle = now + self._pause - self._idle_since >= _IDLE_SECONDS
        if is_idle and (self._reported is None or now - self._reported >= _REPORT_SECONDS):
            self._reported, seen_us = now, self._wall_us()
            until_us = seen_us + int((self._pause + _REPORT_SECONDS + _LATE_SECONDS) * 1e6)
            self._control.record_state(Waiting(start.epoch, seen_us, Notes.from_dict(start.signals).paused, until_us))

    def retract(self) -> None:
        """Remove the last report: the server has answered, and the planning that follows may take longer than the
        report holds.
        """
        if self._control is not None and self._reported is not None:
            self._control.forget(ControlFile.WAITING)
            self._reported = None
