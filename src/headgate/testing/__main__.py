"""``python -m headgate.testing``: fetch and prepare the private MySQL server and Kafka broker, so later starts need no
network.

Prints the versions that tests and demonstrations will use; of a named server the URL, without connecting to it. If one
is not available, exits with code 3 and one line.
"""

from __future__ import annotations

import os
import sys

from headgate.errors import HeadgateError
from headgate.testing._kafka import prepare_kafka
from headgate.testing._mysql_program import URL_VARIABLE
from headgate.testing._mysql_server import MySQLServer, prepare_mysql


def main() -> int:
    """Prepare both; return the exit code."""
    named = os.environ.get(URL_VARIABLE)
    try:
        print(f"MySQL at {MySQLServer.attach(named).url}" if named else f"MySQL {prepare_mysql()}")  # noqa: T201
        print(f"Kafka {prepare_kafka()}")  # noqa: T201
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)  # noqa: T201
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
