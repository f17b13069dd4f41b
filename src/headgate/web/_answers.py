"""What an HTTP answer says that is none: whether another try may have a better one, and when (RFC 9110, 10.2.3 and 15).

A status of 408, 425 or 429, and every 5xx, may be another one later; anything else (400, 401, 403, 404, …) says that
the request is wrong and stays wrong. With 429 and 503 a server says when to come again.
"""

from __future__ import annotations

import re
import time
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["LONGEST_SECONDS", "may_pass", "retry_after", "seconds_to_wait"]

LONGEST_SECONDS: Final = 60.0
"""A server that wants to be left alone for longer is asked after so long."""
_LATER: Final = (408, 425, 429)
_SAY_WHEN: Final = (429, 503)
_SECONDS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def may_pass(status: int) -> bool:
    """Whether what a status other than 200 says may be cured by another try."""
    return status in _LATER or status >= 500


def seconds_to_wait(status: int, headers: Message) -> float:
    """How long a server wants to be left alone, 0 to 60; 0: it does not say."""
    return retry_after(headers) if status in _SAY_WHEN else 0.0


def retry_after(headers: Message) -> float:
    """Seconds that ``Retry-After`` asks for, 0 to 60, whether it has seconds or a date; 0: nothing that can be read.

    A date is taken by the clock of whoever sent it (``Date``), if that is told.
    """
    text = (headers.get("retry-after") or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_SECONDS)
    then, now = _seconds_of(text), _seconds_of(headers.get("date") or "")
    return 0.0 if then is None else min(max(then - (time.time() if now is None else now), 0.0), LONGEST_SECONDS)


def _seconds_of(date: str) -> float | None:
    """Since 1970; None: it is no date."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
