"""Check that reads from a server are exact: its settings, and filters that keep changes out of its log."""

from __future__ import annotations

from collections.abc import Collection

from headgate.catalog import TablePatterns, load_stats
from headgate.mysql import Connection, ServerFacts, check_filters, check_required
from headgate.positions import Position

__all__ = ["check_settings"]


def check_settings(
    connection: Connection, tables: TablePatterns, *, kinds: Collection[type[Position]], ordered: bool = True
) -> ServerFacts:
    """Return the server's facts, if it has all settings that exactness rests on (``mysql/_required.py``).

    :param tables: tables that are read or followed.
    :param kinds: kinds of positions that the reader can use (``mysql.kinds_of_watermark``).
    :param ordered: rows of tables are read; if False, the log alone is followed, in any order of commits.
    :raises ServerSettingError: the first setting that is wrong, with its remedy.
    :raises AccessError: REPLICATION CLIENT is missing.
    """
    facts = check_required(connection, kinds=kinds, ordered=ordered)
    check_filters(connection, lambda: {name.partition(".")[0] for name in load_stats(connection.query, tables)})
    return facts
