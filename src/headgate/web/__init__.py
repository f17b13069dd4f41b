"""HTTP for all rooms that speak it.

============  =====================================================================
``_asking``   a client's connection to a web server
``_answers``  which answers may pass, and when to ask again
``_tokens``   tokens that a request must bring
``serving``   a web server in a thread; it needs uvicorn, so it is imported by name
============  =====================================================================
"""

from headgate.web._answers import LONGEST_SECONDS, may_pass, retry_after, seconds_to_wait
from headgate.web._asking import WebServer
from headgate.web._tokens import Token, is_loopback

__all__ = ["LONGEST_SECONDS", "Token", "WebServer", "is_loopback", "may_pass", "retry_after", "seconds_to_wait"]
