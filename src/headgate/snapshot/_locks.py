"""Table locks as a watermark: one read view for all chunks of a task, and exactly where it stands in the log.

The argument
============

While a session holds LOCK TABLES t READ, nobody else writes t. A transaction that has written t holds a metadata lock
on it until it is committed in the engine (a prepared XA transaction until its XA COMMIT or ROLLBACK), so the lock is
granted only when no such transaction is under way. (MySQL Reference Manual, "LOCK TABLES and UNLOCK TABLES Statements",
"Metadata Locking".) So a read view that is opened and a log position P that is noted under the lock stand at the same
place as far as t is concerned: the view has exactly those changes of t that are logged before P.

- Whatever E is, if it is before P in the log, all that E holds of t is in the view: neither ``gtid_executed`` nor the
  order of commits is needed for it.
- The window of a chunk is exactly the log from E to P. Therefore a table *without a key* can be turned back, too
  (``snapshot/_undo.py``); without a lock it cannot, because it is unknown which of the window's changes the SELECT saw.

The procedure, for all tables of a task at once: lock them on a connection of its own, START TRANSACTION WITH CONSISTENT
SNAPSHOT on the reading connection, note P, unlock; then read the chunks in that transaction. (Materialize's MySQL
source opens its snapshot so.) Tasks that share a table each lock it for their own moment; their views differ, and each
chunk is turned back to E from where its own view stands. ``hold="read"`` unlocks after the last chunk's SELECT.

LOCK TABLES waits for every open transaction on the tables, and writers that come later wait behind it; so it is bounded
by ``lock_wait_timeout``, and what it waited for in vain is a ``ChunkRetryError``.

On restart, or after any failure, nothing is left: the connection ends, and its locks with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from headgate.errors import AccessError, ChunkRetryError, ServerError
from headgate.mysql import Connection, ConnectionSettings, log_status
from headgate.names import quote_name

__all__ = ["TableLocks", "View", "open_view"]

_TIMED_OUT = 1205
"""ER_LOCK_WAIT_TIMEOUT: lock_wait_timeout was exceeded, too."""
_GONE = 1146
"""ER_NO_SUCH_TABLE"""


@dataclass(frozen=True, slots=True)
class TableLocks:
    """How tables are locked."""

    hold: Literal["setup", "read"] = "setup"
    """Until the read view is open, or until the rows have been read."""
    wait_seconds: int = 10
    """How long a lock may be waited for."""


class View:
    """What chunks are read from.

    :param connection: for their SELECTs.
    :param end: where the view stands in the log; None: each SELECT has a view of its own, somewhere before the position
        that is noted after it.
    """

    def __init__(
        self, connection: Connection, end: tuple[str, int] | None = None, release: Callable[[], None] | None = None
    ) -> None:
        self.connection = connection
        self.end = end
        self._release = release

    def release(self) -> None:
        """All SELECTs are done: whatever is still locked is unlocked."""
        if self._release is not None:
            self._release()


@contextmanager
def open_view(
    settings: ConnectionSettings,
    tables: Sequence[tuple[str, str]],
    locks: TableLocks,
    check: Callable[[Connection], None],
) -> Iterator[View]:
    """One view of all tables, opened under locks.

    :param tables: (db, table); they exist.
    :param check: raises if a connection is not to the right server.
    :raises ChunkRetryError: they could not be locked in time, or one of them is gone.
    :raises AccessError: LOCK TABLES is not granted.
    """
    with Connection.open(settings) as reading, Connection.open(settings) as locking:
        for connection in (reading, locking):
            check(connection)
        reading.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        _lock(locking, tables, locks.wait_seconds)
        reading.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        end = log_status(locking)
        if locks.hold == "setup":
            locking.query("UNLOCK TABLES")
        yield View(reading, end, locking.close)


def _lock(connection: Connection, tables: Sequence[tuple[str, str]], seconds: int) -> None:
    names = [".".join(map(quote_name, table)) for table in sorted(tables)]
    connection.query(f"SET SESSION lock_wait_timeout = {seconds}")
    try:
        connection.query("LOCK TABLES " + ", ".join(f"{name} READ" for name in names))
    except AccessError as error:
        raise AccessError(
            f"{error.message}, and LOCK TABLES on it, or set watermark to gtid", code=error.code
        ) from error
    except ServerError as error:
        shown = ", ".join(".".join(table) for table in sorted(tables))
        if error.code == _TIMED_OUT:
            raise ChunkRetryError(
                f"{shown} could not be locked within {seconds} s: a transaction that wrote there is still open, or"
                " prepared (XA), or writers leave no gap; it is tried again, or set watermark to gtid"
            ) from error
        if error.code == _GONE:
            raise ChunkRetryError(f"a table vanished while it was to be locked: {error.message}") from error
        raise
