"""Distinguish a server that is behind from one that has lost part of its history.

Both lack transactions that count as read. A replica, or a member of a group, may receive them later. A server that had
them and receives nothing will never have them again: it crashed without ``sync_binlog=1``, its GTIDs were reset, or its
data is an older image. From then on the same GTIDs name other transactions.
"""

from __future__ import annotations

from typing import Final

from headgate.binlog_positions import end_of
from headgate.errors import HistoryRewrittenError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql._connection import Connection
from headgate.mysql._facts import read_facts
from headgate.mysql._required import replicates

__all__ = ["REWRITTEN", "missing_error"]

REWRITTEN: Final = (
    "the server's history was rewritten (a crash without sync_binlog = 1, RESET BINARY LOGS AND GTIDS, or a restored"
    " image): {}; start again with a new checkpoint and target, a relay with --anew"
)
"""Text of a ``HistoryRewrittenError``; ``{}`` is what shows it."""


def missing_error(
    connection: Connection, missing: GtidSet, *, had_them: bool, behind: str
) -> HistoryRewrittenError | ServerBehindError:
    """Return the error for a server that lacks transactions which count as read.

    :param had_them: this server, by its UUID, had executed them before.
    :param behind: text of the error for a server that may receive them.
    """
    end = end_of(missing)
    if had_them and end is not None:
        return HistoryRewrittenError(REWRITTEN.format(f"its log ends before file {end.file}, position {end.pos}"))
    if had_them and not _receives(connection):
        return HistoryRewrittenError(REWRITTEN.format(f"it had executed {missing} and now lacks that"))
    return ServerBehindError(behind, missing=str(missing))


def _receives(connection: Connection) -> bool:
    """Return whether the server may receive transactions: it has a replication channel, or belongs to a group."""
    return replicates(connection) or bool(read_facts(connection).get("group_replication_group_name"))
