"""Whether and when to retry a failed HTTP response (RFC 9110, 10.2.3 and 15), and answers of another form.

A status of 408, 425, 429 or 5xx may be temporary. Any other status (400, 401, 403, 404, …) means that the request is
wrong and must not be retried. With 429 and 503 a server may send the time to wait.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final

from headgate.errors import ProtocolError

__all__ = ["LONGEST_SECONDS", "answer_errors", "is_retryable", "retry_after", "seconds_to_wait"]

LONGEST_SECONDS: Final = 60.0
"""Longest wait, even if a server requests a longer one."""
_RETRYABLE: Final = (408, 425, 429)
_WITH_RETRY_AFTER: Final = (429, 503)
_SECONDS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@contextmanager
def answer_errors(problem: str) -> Iterator[None]:
    """Convert errors of reading a parsed answer in this block.

    :param problem: the error's message.
    :raises ProtocolError: the answer has another form.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ProtocolError(problem) from None


def is_retryable(status: int) -> bool:
    """Return whether a retry may help after a status other than 200."""
    return status in _RETRYABLE or status >= 500


def seconds_to_wait(status: int, headers: Message) -> float:
    """Return how many seconds a server requests to wait, 0 to 60; 0: none."""
    return retry_after(headers) if status in _WITH_RETRY_AFTER else 0.0


def retry_after(headers: Message) -> float:
    """Return the seconds that ``Retry-After`` requests, 0 to 60, as a number or a date; 0: missing or invalid.

    A date is relative to the sender's clock (``Date``), or else to the local clock.
    """
    text = (headers.get("retry-after") or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_SECONDS)
    then, now = _seconds_of(text), _seconds_of(headers.get("date") or "")
    return 0.0 if then is None else min(max(then - (time.time() if now is None else now), 0.0), LONGEST_SECONDS)


def _seconds_of(date: str) -> float | None:
    """Return seconds since 1970; None: not a date."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
