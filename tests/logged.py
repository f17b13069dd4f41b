"""What was logged by the test itself: threads of tests before, and of fixtures they share, may log at any time."""

from __future__ import annotations

import logging
import threading

import pytest

__all__ = ["logged_here"]


def logged_here(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of the thread that asks, oldest first."""
    return [record for record in caplog.records if record.thread == threading.get_ident()]
