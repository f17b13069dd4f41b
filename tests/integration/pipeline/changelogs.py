"""Every change of some tables exactly once: what changelogs hold, against an independent reading of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.mysql import ConnectionSettings
from headgate.replication import DecodeOptions, LogBlock, LogRead, read_range
from headgate_testing import MySQLServer
from tests.integration.outside import lake_rows

__all__ = ["changes_in_lake", "changes_in_log"]

Changes = Counter[tuple[Any, ...]]
"""(table, op, gtid, ordinal)"""


def changes_in_log(server: MySQLServer, tables: Collection[str], wanted: GtidSet, end: GtidSet) -> Changes:
    """The changes in the transactions ``wanted``."""
    settings = ConnectionSettings.from_url(server.url)
    patterns = TablePatterns(list(tables))
    changes: Changes = Counter()
    for item in read_range(LogRead(settings, wanted=wanted, executed=end), DecodeOptions(patterns)):
        if isinstance(item, LogBlock):
            for image in item.images:
                for row in image.batch.select(["_op", "_seq", "_gtid"]).to_pylist():
                    if row["_op"] != "b":
                        changes[image.table.full_name, row["_op"], row["_gtid"], row["_seq"]["ordinal"]] += 1
    return changes


def changes_in_lake(lake: Lake, tables: Collection[str], *, after: int = 0) -> Changes:
    """What the changelogs hold but for rows that were read.

    :param after: only of later epochs.
    """
    changes: Changes = Counter()
    for table in tables:
        columns = [f"'{table}'", "_op", "_gtid", "_seq['ordinal']"]
        changes += lake_rows(lake.changelog(table), columns, where=f"_op <> 'r' AND _seq['epoch'] > {after}")
    return changes
