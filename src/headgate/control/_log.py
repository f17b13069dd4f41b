"""Notifications into the log: one line each, the event as JSON, by the logger ``headgate.notifications``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from headgate.control._events import Notification

__all__ = ["LogChannel"]

log = logging.getLogger("headgate.notifications")


class LogChannel:
    """The channel ``log``. REJECTED is a warning, IN_PROGRESS for debugging, all else information."""

    name = "log"

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Write a line for each."""
        for one in notifications:
            level = {"REJECTED": logging.WARNING, "IN_PROGRESS": logging.DEBUG}.get(one.type, logging.INFO)
            text = json.dumps(one.to_dict(), ensure_ascii=False, sort_keys=True)
            log.log(level, "%s %s: %s", one.aggregate_type, one.type, text, extra={"epoch": epoch})

    def close(self) -> None:
        """Nothing is open."""
