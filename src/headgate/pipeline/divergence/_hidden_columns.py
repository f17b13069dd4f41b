"""Columns that the log has and that MySQL hides from the account.

If SELECT is granted on some columns of a table, information_schema hides the others (``catalog/_visible.py``). A run
checks at its start that rules exclude them. One case it cannot see: an INVISIBLE column behind the last visible one. A
column may also get there later. The log shows such a column with the first image; without names of columns
(``binlog_row_metadata = MINIMAL``) it shows more columns than information_schema. Reading the table again would not
help, since no SELECT has the column, so the table is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.carrier import Batch, Definition
from headgate.catalog import TablePatterns, hidden_reason, hides_columns
from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.mysql import Connection, ConnectionSettings
from headgate.names import lower_name, split_table
from headgate.sinks import BatchWriter

__all__ = ["HiddenColumns"]


class HiddenColumns:
    """Detector, batch by batch, of tables with such columns. It looks at tables with columns that rules exclude: any
    other table whose columns are granted is refused before.

    :param writer: has checked the tables.
    """

    def __init__(self, config: PipelineConfig, writer: BatchWriter, settings: ConnectionSettings) -> None:
        self._writer, self._settings = writer, settings
        self._excluding = [
            TablePatterns((pattern,))
            for pattern, rules in config.policies().columns
            if any(rule.kind == "exclude" for _, rule in rules)
        ]
        self._known: dict[str, frozenset[str]] = {}
        """Columns of the tables, in lower case."""

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables. Query the server only about a table with a column that no statement explains.

        :raises HeadgateError: the query failed.
        """
        explained = {ddl.table for ddl in batch.ddl}
        suspects: dict[str, str | None] = {table: None for table in batch.unknown if self._excludes(table)}
        for table, parts in batch.parts.items():
            if not self._excludes(table):
                continue
            read = _names(part.definition for part in parts if part.kind == "chunk")
            logged = _names(part.definition for part in parts if part.kind != "chunk")
            known = read or self._known.get(table) or self._written(table)
            if known and table not in explained and logged - known:
                suspects[table] = min(logged - known)
            self._known[table] = known | logged
        return self._hidden(suspects) if suspects else {}

    def _excludes(self, table: str) -> bool:
        return any(patterns.matches(*split_table(table)) for patterns in self._excluding)

    def _written(self, table: str) -> frozenset[str]:
        target = self._writer.targets.get(table)
        columns = {} if target is None or target.hook else target.columns
        return frozenset(lower_name(column.source_name or name) for name, column in columns.items())

    def _hidden(self, suspects: dict[str, str | None]) -> dict[str, Divergence]:
        """Return the suspects of which the account sees some columns only.

        :param suspects: with the name of a column; None: the log does not name it.
        """
        with Connection.open(self._settings) as connection:
            hiding = [table for table in suspects if hides_columns(connection.query, *split_table(table))]
        return {table: Divergence(hidden_reason(*split_table(table), suspects[table])) for table in hiding}


def _names(definitions: Iterable[Definition]) -> frozenset[str]:
    """Return the names of a table's columns in MySQL, in lower case."""
    return frozenset(
        lower_name(name)
        for one in definitions
        for name in (
            (name for name, _, _ in one.hook_gets)
            if one.hook
            else (column.source_name or column.name for column in one.columns)
        )
    )
