"""Notifications to the log: one line of JSON each, by the logger ``headgate.notifications``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from headgate.control._events import Notification

__all__ = ["LogChannel"]

log = logging.getLogger("headgate.notifications")


class LogChannel:
    """The channel ``log``. REJECTED is logged as WARNING, IN_PROGRESS as DEBUG, all others as INFO."""

    name = "log"

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Write a line for each notification."""
        for one in notifications:
            level = {"REJECTED": logging.WARNING, "IN_PROGRESS": logging.DEBUG}.get(one.type, logging.INFO)
            text = json.dumps(one.to_dict(), ensure_ascii=False, sort_keys=True)
            log.log(level, "%s %s: %s", one.aggregate_type, one.type, text, extra={"epoch": epoch})

    def close(self) -> None:
        """Do nothing: no resource is open."""
