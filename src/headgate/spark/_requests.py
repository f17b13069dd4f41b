"""Users' signals become changes of the snapshot plan: ``headgate.control`` says what one means, this what it does.

A bad signal never stops the stream: what is wrong becomes an ``error`` in its action, and it is done with. Each
function gives back the action's fields beside ``id`` and ``type``.

**execute-snapshot.** A table that is being read or waits for it is not queued twice: a reading of all rows brings what
any other would, and two filters are joined by OR. What was read before is read again, beside the live changes; so is a
table that was never read. A *filter* is checked by asking the server, for no row. A filtered reading is *partial*: the
sinks add and replace rows, and neither sweep nor take the table as read. It never takes the place of a reading of all
rows that the sinks have not confirmed, because then a chunk of that one may yet have to be repeated.

**BLOCKING.** While such a table has unread ranges, batches end where they begin: chunks go out, live changes wait. So
all tables of a blocking snapshot are exact at one GTID set. A chunk that gave nothing lets one batch go on, because it
can only be read as of a later set.

**stop-snapshot** forgets readings. A table whose reading of all rows was stopped leaves append mode, because from now
on the stream has to bring the changes of its unread ranges too, and is not found again as a new table; a later
execute-snapshot reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.catalog import TableDef
from headgate.control import Signal, parse_signal
from headgate.errors import Definite, HeadgateError, SnapshotRefusedError
from headgate.spark._notes import Reading

if TYPE_CHECKING:
    from headgate.spark._server import Server
    from headgate.spark._snapshots import SnapshotPlan

__all__ = ["check_reading", "follow_signal", "request"]


def follow_signal(
    plan: SnapshotPlan, name: str, given: Mapping[str, Any], tables: Callable[[], list[str]], server: Server
) -> dict[str, Any]:
    """Do what a signal asks.

    :param name: its id, as its file is named.
    :param tables: names of all tables that the pipeline follows.
    :raises ConfigError: it is not one.
    """
    signal = parse_signal(given, name=name)
    if signal.type == "execute-snapshot":
        return _execute(plan, name, signal, tables(), server)
    if signal.type == "stop-snapshot":
        return _stop(plan, signal)
    if signal.type == "log":
        return {"message": signal.message.replace("{}", plan.position)}
    plan.paused = signal.type == "pause-snapshot"
    return {}


def check_reading(server: Server, definition: TableDef, reading: Reading, *, keeps: bool) -> str | None:
    """Why the table cannot be read like this; None: it can.

    :param keeps: whether rows that change meanwhile are kept as read (``window = "keep"``).
    """
    from headgate.snapshot import bound_columns, literal_expression, quote_name

    if reading.filter is None and reading.surrogate is None:
        return None
    if not definition.key:
        return "a table without a key is read whole, in one piece"
    if reading.surrogate is not None:
        if keeps:
            return 'a surrogate key needs whole row images (window = "rewind")'
        try:
            literal_expression(bound_columns(definition, reading.surrogate)[0], definition.full_name)
        except SnapshotRefusedError as error:
            return error.message
        if not _leads_an_index(server, definition, reading.surrogate):
            return f"no index begins with column {reading.surrogate}, so every chunk would look through the whole table"
    if reading.filter is not None:
        place = f"{quote_name(definition.db)}.{quote_name(definition.name)}"
        try:
            server.query(f"SELECT 1 FROM {place} WHERE ({reading.filter}) LIMIT 0")
        except HeadgateError as error:
            if not isinstance(error, Definite):
                raise
            return f"the server refuses the filter: {error.message}"
    return None


def _leads_an_index(server: Server, definition: TableDef, column: str) -> bool:
    texts = (f"_utf8mb4 X'{text.encode().hex()}'" for text in (definition.db, definition.name, column))
    db, table, name = texts
    rows = server.query(
        f"SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = {db} AND TABLE_NAME = {table}"
        f" AND COLUMN_NAME = {name} AND SEQ_IN_INDEX = 1 AND IS_VISIBLE = 'YES'"
    )
    return int(rows[0][0]) > 0


def _execute(plan: SnapshotPlan, name: str, signal: Signal, tables: list[str], server: Server) -> dict[str, Any]:
    touched, refused = [], []
    wanted = [table for table in tables if signal.names(table)]
    definitions = server.definitions(plan.patterns) if wanted and (signal.conditions or signal.surrogate_key) else {}
    for table in wanted:
        reading = Reading((name,), signal.filter_of(table), signal.surrogate_key, signal.kind == "BLOCKING")
        problem = None
        if reading.filter is not None or reading.surrogate is not None:
            definition = definitions.get(table)
            problem = (
                "the table is gone"
                if definition is None
                else check_reading(server, definition, reading, keeps=plan.keeps(table))
            )
        if problem is not None:
            refused.append(f"{table}: {problem}")
            continue
        request(plan, table, reading)
        touched.append(table)
    action: dict[str, Any] = {"tables": touched}
    unmatched = signal.unmatched(tables)
    if unmatched:
        action["unmatched"] = unmatched
    problems = [*refused, *(f"no table of this pipeline matches {one}" for one in unmatched)]
    if problems:
        action["error"] = "; ".join(problems)
    return action


def request(plan: SnapshotPlan, table: str, asked: Reading) -> None:
    """Queue one reading, or join it with the one that is under way."""
    plan.stopped.discard(table)
    progress = plan.active.get(table)
    running = (progress is not None and not progress.finished) or any(chunk.table == table for chunk in plan.redo)
    if running or table in plan.queue:
        before = plan.readings.get(table, Reading())
        joined = replace(
            before,
            signals=tuple(dict.fromkeys((*before.signals, *asked.signals))),
            blocking=before.blocking or asked.blocking,
        )
        if before.filter is None or before.filter == asked.filter:
            plan.readings[table] = joined
            return
        wider = None if asked.filter is None else f"({before.filter}) OR ({asked.filter})"
        asked = replace(joined, filter=wider, surrogate=before.surrogate)
    elif progress is not None:
        asked = replace(asked, filter=None)  # a reading that the sinks have not confirmed
    plan.read_again(table, first=asked.blocking)
    plan.readings[table] = asked


def _stop(plan: SnapshotPlan, signal: Signal) -> dict[str, Any]:
    running = plan.being_read()
    touched = [table for table in running if signal.names(table)]
    for table in touched:
        plan.forget(table)
    action: dict[str, Any] = {"tables": touched}
    idle = signal.unmatched(running)
    if idle:
        action["unmatched"] = idle
    return action
