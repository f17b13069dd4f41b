"""HTTP for all rooms that use it.

============  =====================================================================
``_client``   a client's connection to a web server
``_bodies``   a request's body, up to a limit
``_answers``  which failed responses may be retried, and when; answers of another form
``_tokens``   tokens: read, sent and compared
``serving``   a web server in a thread; it needs uvicorn, so it is imported by name
``probes``    ``/healthz`` and ``/readyz`` of supervisors; it needs starlette, so it is imported by name
============  =====================================================================
"""

from headgate.web._answers import LONGEST_SECONDS, answer_errors, is_retryable, retry_after, seconds_to_wait
from headgate.web._bodies import read_body
from headgate.web._client import WebServer
from headgate.web._tokens import Token, is_foreign_page, is_loopback, read_token

__all__ = [
    "LONGEST_SECONDS",
    "Token",
    "WebServer",
    "answer_errors",
    "is_foreign_page",
    "is_loopback",
    "is_retryable",
    "read_body",
    "read_token",
    "retry_after",
    "seconds_to_wait",
]
