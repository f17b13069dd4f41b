"""Tables that other settings would have written otherwise, or whose rows were not written.

A changed setting does not show in the log. A row that fails a new expression (``rows``) has no image any more, one that
passes only the new one has none yet, and a row of which a new function makes another, or a new rule of ``[columns]``
hides a value, has none either. So each run compares the tables' properties with the configuration before its first
batch, by the rule that decides for images, too (``decide.changed_setting``). A re-read is requested for a table with
other settings, also if nothing changes at the source. The first batch of the run suspends the table, unless the re-read
begins in it. The table is made again when its first rows come (``decide/_columns.py``). A replay of that batch finds
the same.

The columns are compared as the target names them at its source: the server may be ahead of the batches. The next change
settles what that does not show: columns behind a hook, those of a table that ignores changes of columns, a column that
is no longer excluded, settings of types, and a chosen key of a table that has one: it may be the source's own since.

A history keeps the columns that rules exclude or rename. It is read again once, until its newest rows lack them.

The rows of a table may be missing because its folder was removed, or because an earlier run had no ``current`` and no
``history`` in ``target.mode``. Such a table is read again, too; the next change of it would suspend it
(``decide/_decide.py``). So is one whose changelog an earlier run left out of ``target.mode`` while it changed: the rows
that are read stand in the changelog after the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headgate.carrier import Batch, CarriedColumn, Definition, Resnapshot
from headgate.catalog import Column, TableDef, exact_pattern
from headgate.columns import target_table
from headgate.config import PipelineConfig
from headgate.decide import Divergence, changed_setting, reread_reason
from headgate.errors import UnsupportedError
from headgate.lake import Form, Target, short_name
from headgate.names import lower_name, split_table
from headgate.pipeline._table_policy import table_policy
from headgate.policies import Policies
from headgate.sinks import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ChangedSettings"]

log = logging.getLogger("headgate")


class ChangedSettings:
    """Detector, for one run, of tables that were written by other settings than the configuration's.

    :param writer: has checked the tables.
    """

    def __init__(self, config: PipelineConfig, writer: BatchWriter) -> None:
        self._config, self._writer = config, writer
        self._compared = False

    def request_rereads(self, spark: SparkSession) -> None:
        """Request re-reads of these tables, if they are not suspended and ``schema_changes`` allows it."""
        ledger = self._writer.ledger
        states, epoch = ledger.tables(), ledger.last.epoch if ledger.last else 0
        reasons = self._writer.lacking(spark) | self.changed(self._writer.targets)
        for table in sorted(states.keys() & reasons):
            reason = reread_reason(states[table], reasons[table], table_policy(self._config, table))
            if reason is not None:
                log.warning("%s is read again: %s", table, reason)
                request = Resnapshot((exact_pattern(table),), reason)
                self._writer.inbox.send_request(f"rows-{epoch}-{short_name(table)}", request)

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables, at the first call."""
        del batch
        if self._compared:
            return {}
        self._compared = True
        return {table: Divergence(reason, over=True) for table, reason in self.changed(self._writer.targets).items()}

    def changed(self, written: Mapping[str, Target]) -> dict[str, str]:
        """Return the reason by table, of those that were written otherwise.

        :param written: the current tables.
        """
        policies, states = self._config.policies(), self._writer.ledger.tables()
        reasons: dict[str, str] = {}
        for table, target in written.items():
            ignores = table in states and bool(states[table].ignored)
            definition = _wanted(table, Target({}) if ignores else target, policies.of(table))
            policy = table_policy(self._config, table)
            reason = changed_setting(definition, target, policy.form or target.form)
            if reason is None and not (ignores or definition.hook):
                reason = _removed(definition, target)
            if reason is not None:
                reasons[table] = reason
        return reasons


def _wanted(table: str, target: Target, policies: Policies) -> Definition:
    """Return the definition by which a table's columns would be written now; without columns behind a hook, or if they
    cannot be written so.
    """
    hook = policies.hook.spelled if policies.hook is not None else ""
    names = {name: column.source_name or name for name, column in target.columns.items()}
    of_source = [*dict.fromkeys(names.values())]  # a history has a column under each name that a rule gave it
    chosen = policies.key if names and not target.key and not hook else ()
    by_source = {lower_name(source): name for name, source in names.items()}
    written_key = tuple(by_source.get(lower_name(name), name) for name in chosen) or target.key
    key = tuple(of_source.index(names[name]) for name in written_key if name in names)
    source = TableDef(*split_table(table), tuple(Column(name, "") for name in of_source), key)
    columns: tuple[Column, ...] = ()
    if not hook:
        with suppress(UnsupportedError):  # a rule hides values of the key that the table had
            columns = target_table(source, policies).columns
    carried = (CarriedColumn(one.name, "", "", rule=one.rule, source_name=one.source_name) for one in columns)
    return Definition(table, written_key, tuple(carried), policies.rows, chosen_key=bool(chosen), hook=hook)


def _removed(definition: Definition, target: Target) -> str | None:
    """Return the column of the target that a rule excludes or renames; None: there is none.

    A history keeps such a column. The type at the source tells whether its newest rows still have it.
    """
    if not definition.columns:
        return None
    grows = target.form is Form.HISTORY
    written = (name for name, column in target.columns.items() if not grows or column.source is not None)
    left = (name for name in written if name not in definition.types)
    return next((f"column {name} is excluded, or has another name, by [columns]" for name in left), None)
