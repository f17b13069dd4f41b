"""Table locks as a watermark: one read view for all chunks of a task, at a known position in the log.

The argument
============

While a session holds LOCK TABLES t READ, no other session writes t. A transaction that has written t holds a metadata
lock on t until its engine commit (a prepared XA transaction until XA COMMIT or ROLLBACK), so the lock is granted only
when no such transaction is open. (MySQL Reference Manual, "LOCK TABLES and UNLOCK TABLES Statements", "Metadata
Locking".) So a read view opened and a log position P noted under the lock mark the same moment for t: the view has
exactly those changes of t that are logged before P.

- For every E before P in the log, the view has all that E holds of t. This needs neither ``gtid_executed`` nor the
  order of commits.
- The window of a chunk is exactly the log from E to P. So a table *without a key* can be rewound, too
  (``snapshot/_undo.py``). Without a lock it is unknown which of the window's changes the SELECT saw.

The procedure, for all tables of a task at once: lock them on a separate connection, START TRANSACTION WITH CONSISTENT
SNAPSHOT on the reading connection, note P, unlock; then read the chunks in that transaction. (Materialize's MySQL
source does the same.) Tasks that share a table lock it separately; each chunk is rewound to E from the position of its
view. ``hold="read"`` unlocks after the last chunk's SELECT.

LOCK TABLES waits for every open transaction on the tables, and later writers queue behind it. So ``lock_wait_timeout``
bounds the wait; a timeout is a ``ChunkRetryError``.

On restart, or after any failure, nothing remains: the locks end with the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from headgate.errors import AccessError, ChunkRetryError, ServerError
from headgate.mysql import Connection, ConnectionSettings
from headgate.names import quote_name

__all__ = ["ReadView", "TableLocks", "open_view"]

_TIMED_OUT = 1205
"""ER_LOCK_WAIT_TIMEOUT: also raised when lock_wait_timeout was exceeded."""
_GONE = 1146
"""ER_NO_SUCH_TABLE"""


@dataclass(frozen=True, slots=True)
class TableLocks:
    """Settings of table locks."""

    hold: Literal["setup", "read"]
    """When locks are released: once the read view is open (``setup``), or once the rows have been read (``read``)."""
    wait_seconds: int
    """Longest wait for a lock."""


class ReadView:
    """A read view for chunks.

    :param connection: for the chunks' SELECTs.
    :param end: the view's position in the log; None: each SELECT has its own view, somewhere before the position noted
        after it.
    """

    def __init__(
        self, connection: Connection, end: tuple[str, int] | None = None, release: Callable[[], None] | None = None
    ) -> None:
        self.connection = connection
        self.end = end
        self._release = release

    def release(self) -> None:
        """Release the locks that are still held; call after the last SELECT."""
        if self._release is not None:
            self._release()


@contextmanager
def open_view(
    settings: ConnectionSettings,
    tables: Sequence[tuple[str, str]],
    locks: TableLocks,
    check: Callable[[Connection], None],
) -> Iterator[ReadView]:
    """Open one view of all tables under locks.

    :param tables: (db, table); they exist.
    :param check: raises if a connection is not to the right server.
    :raises ChunkRetryError: the tables could not be locked in time, or one of them was dropped.
    :raises AccessError: LOCK TABLES is not granted.
    """
    with Connection.open(settings) as reading, Connection.open(settings) as locking:
        for connection in (reading, locking):
            check(connection)
        _lock(locking, tables, locks.wait_seconds)
        reading.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        end = locking.log_status()
        if locks.hold == "setup":
            locking.query("UNLOCK TABLES")
        yield ReadView(reading, end, locking.close)


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
                f"{shown} could not be locked within {seconds} s: a transaction that wrote there is still open or"
                " prepared (XA), or writes never pause. headgate retries; or set watermark to gtid"
            ) from error
        if error.code == _GONE:
            raise ChunkRetryError(f"a table was dropped before it could be locked: {error.message}") from error
        raise
