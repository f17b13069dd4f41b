"""Whether what is read from a server is exact: its settings, and filters that keep changes out of its log."""

from __future__ import annotations

from headgate.catalog import TablePatterns, load_stats
from headgate.mysql import Connection, ServerFacts, check_filters, check_required

__all__ = ["check_settings"]


def check_settings(
    connection: Connection, tables: TablePatterns, *, gtids: bool = True, ordered: bool = True
) -> ServerFacts:
    """The server's settings, if it has all that exactness rests on (``mysql/_required.py``).

    :param tables: those that are read or followed.
    :param gtids: positions are GTID sets; if not, they are places in the log.
    :param ordered: rows of tables are read; who only follows the log takes it in any order of commits.
    :raises ServerSettingError: the first setting that is missing, with what mends it.
    :raises AccessError: REPLICATION CLIENT is missing.
    """
    facts = check_required(connection, gtids=gtids, ordered=ordered)
    check_filters(connection, lambda: {name.partition(".")[0] for name in load_stats(connection.query, tables)})
    return facts
