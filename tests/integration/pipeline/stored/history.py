"""What happened at the source of the stored lakes, for any server to have happened to it."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.testing import MySQLServer

__all__ = ["FIRST_RUNS", "HISTORY", "happen"]

UUID = "5b0c4a5e-c0de-11f0-8000-0242ac110002"
"""Of the server whose history it is; those that have it are as good as its replicas."""
STARTED_US = 1_782_900_000_000_000
"""When its first transaction was committed, microseconds since 1970-01-01 UTC; each other one a second later."""

_TEXT = re.sub(r"^-- .*\n", "", (Path(__file__).parent / "history.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
HISTORY = [
    [part.strip() for part in run.strip().split("\n\n")] for run in re.split(r"^-{5,}$", _TEXT, flags=re.MULTILINE)
]
"""The transactions that each run of a pipeline finds."""
FIRST_RUNS = 3
"""So many of them are of the headgate that made the lakes; of the last one only ``killed`` has something."""


def happen(server: MySQLServer, first: int, last: int) -> str:
    """Run the transactions of HISTORY[first:last], as a replica would; the GTID set of all up to them."""
    number = sum(map(len, HISTORY[:first]))
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for transaction in [one for run in HISTORY[first:last] for one in run]:
            number += 1
            cursor.execute(
                f"SET gtid_next = '{UUID}:{number}', original_commit_timestamp = {STARTED_US + number * 10**6}"
            )
            statements = [statement for statement in re.split(r";(?:\n|$)", transaction) if statement]
            if len(statements) > 1:
                statements = ["BEGIN", *statements, "COMMIT"]
            for statement in statements:
                cursor.execute(statement)
    return f"{UUID}:1-{number}"
