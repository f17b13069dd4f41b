"""Distinguish a server that is behind from one that has lost part of its history.

Both lack transactions that count as read. A replica, or a member of a group, may receive them later. A server that had
them and receives nothing will never have them again: it crashed without ``sync_binlog=1``, its GTIDs were reset, or its
data is an older image. From then on the same GTIDs name other transactions.
"""

from __future__ import annotations

from typing import Final

from headgate.errors import HistoryRewrittenError, ServerBehindError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import read_facts
from headgate.mysql._required import replicates
from headgate.positions import Position

__all__ = ["REWRITTEN", "missing_error"]

REWRITTEN: Final = (
    "the server's history was rewritten (a crash without sync_binlog = 1, RESET BINARY LOGS AND GTIDS, or a restored"
    " image): {}; start again with a new checkpoint and target, a relay with --anew"
)
"""Text of a ``HistoryRewrittenError``; ``{}`` is what shows it."""


def missing_error(
    connection: Connection, missing: Position, *, server_uuid: str, had_them: bool, behind: str
) -> HistoryRewrittenError | ServerBehindError:
    """Return the error for a server that lacks transactions which count as read.

    :param server_uuid: the server.
    :param had_them: it is known to have executed them before.
    :param behind: text of the error for a server that may receive them.
    """
    if missing.is_in_log_of(server_uuid) or (had_them and not _receives(connection)):
        return HistoryRewrittenError(REWRITTEN.format(f"it had executed {missing} and now lacks that"))
    return ServerBehindError(behind, missing=str(missing))


def _receives(connection: Connection) -> bool:
    """Return whether the server may receive transactions: it has a replication channel, or belongs to a group."""
    return replicates(connection) or bool(read_facts(connection).get("group_replication_group_name"))
