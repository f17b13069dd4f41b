"""``python -m headgate_testing``: fetch and prepare the private MySQL server and Kafka broker, so later starts need no
network.

Prints the versions that tests and examples will use; of a named server the URL, without connecting to it. If one
is not available, exits with code 3 and one line.

``python -m headgate_testing object-store`` builds the object store of S3 instead, which takes minutes, says so on
stderr, and prints the path of its program. ``blob-store`` installs that of Azure.
"""

from __future__ import annotations

import os
import sys

from headgate.errors import HeadgateError
from headgate_testing._blob_store import prepare_blob_store
from headgate_testing._kafka import prepare_kafka
from headgate_testing._mysql_program import URL_VARIABLE
from headgate_testing._mysql_server import MySQLServer, prepare_mysql
from headgate_testing._object_store import prepare_object_store


def main() -> int:
    """Prepare both, or an object store; return the exit code."""
    named = os.environ.get(URL_VARIABLE)
    try:
        if sys.argv[1:] == ["object-store"]:
            print(f"MinIO {prepare_object_store(_announce_build)}")  # noqa: T201
            return 0
        if sys.argv[1:] == ["blob-store"]:
            print(f"Azurite {prepare_blob_store()}")  # noqa: T201
            return 0
        print(f"MySQL at {MySQLServer.attach(named).url}" if named else f"MySQL {prepare_mysql()}")  # noqa: T201
        print(f"Kafka {prepare_kafka()}")  # noqa: T201
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)  # noqa: T201
        return 3
    return 0


def _announce_build() -> None:
    print("headgate: building an object store with Go (once; some minutes)", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
