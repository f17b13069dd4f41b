"""Signals become changes of the snapshot plan: ``headgate.control`` says what users' signals mean, this what they do.

``redo``, ``resnapshot`` and ``settle`` come from the sinks; ``settle`` names a set after which rows are exact, and a
stream that is to end reads so far. A signal is taken once: its id is kept in the offset for as long as its file is
there. A bad signal never stops the stream: what is wrong becomes an ``error`` in its action, and it is done with. Only
a ``redo`` that names no table raises: it speaks of rows that are missing. What follows a signal gives back its action's
fields beside ``id`` and ``type``.

**execute-snapshot.** A table that is being read or waits for it is not queued twice: a reading of all rows brings what
any other would, and two filters are joined by OR. What was read before is read again, beside the live changes; so is a
table that was never read. A *filter* is checked by asking the server, for no row. A filtered reading is *partial*: the
sinks add and replace rows, and neither sweep nor take the table as read. It never takes the place of a reading of all
rows that the sinks have not confirmed, because then a chunk of that one may yet have to be repeated.

**BLOCKING.** While such a table has unread ranges, batches end where they begin: chunks go out, live changes wait. So
all tables of a blocking snapshot are exact at one GTID set. A chunk that gave nothing lets one batch go on, because it
can only be read as of a later set.

**A table's own condition** (``conditions``) says which rows the pipeline wants of it: every reading asks for these
alone, and counts as one of all rows. A signal's filter comes on top of it.

**New tables.** Tables that appear later are read at once, or wait until a signal names them (``new_tables``). So are
those that only the patterns of now match, and not those of the offset before: they were not followed so far, also if
the sinks hold something of that name. What the patterns leave out from now on is forgotten.

**stop-snapshot** forgets readings. A table whose reading of all rows was stopped leaves append mode, because from now
on the stream has to bring the changes of its unread ranges too, and is not found again as a new table; a later
execute-snapshot reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headgate.carrier import Redo, Settle, parse_request, signal_path
from headgate.catalog import TablePatterns
from headgate.control import Signal, parse_signal
from headgate.errors import ConfigError, OffsetFormatError
from headgate.offsets import ChunkSpec
from headgate.spark._notes import Reading
from headgate.spark._readings import Refusal, check_reading
from headgate.spark._snapshots import SnapshotPlan

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["take_requests"]


def take_requests(
    plan: SnapshotPlan,
    server: Server,
    *,
    finished: frozenset[str] | None,
    signals: Mapping[str, Mapping[str, Any]],
    discover: bool,
    patterns_before: TablePatterns,
    wait: bool,
) -> None:
    """What there is to read, from what was left and what is new; then come the plan's chunks.

    :param discover: look for tables that are not known yet.
    :param patterns_before: those in force up to now.
    :param wait: new tables are followed, and not read before a signal names them.
    """
    plan.confirm(finished)
    for table in plan.known() | plan.stopped | {chunk.table for chunk in plan.redo}:
        if not _matches(plan.patterns, table):
            plan.forget(table)
            plan.stopped.discard(table)
    names: list[str] | None = None

    def tables() -> list[str]:
        nonlocal names
        if names is None:
            names = sorted(server.tables(plan.patterns))
        return names

    if discover:  # before any signal could ask for some of their rows only
        known = plan.known() | plan.stopped | (finished or frozenset())
        included = [table for table in tables() if not _matches(patterns_before, table)]
        unknown = [table for table in tables() if table not in known and table not in included]
        if wait:
            plan.wait({*unknown, *included})
        else:
            for table in included:
                plan.read_again(table, first=False)
                plan.reread.discard(table)  # until then it is not what the sinks take it for
            if unknown:
                plan.enqueue(unknown, server.definitions(plan.patterns) if plan.append_allowed else {})
    take_signals(plan, signals, tables, server)


def take_signals(
    plan: SnapshotPlan, signals: Mapping[str, Mapping[str, Any]], tables: Callable[[], list[str]], server: Server
) -> None:
    """Take every signal that was not taken before.

    :param tables: names of all tables there are (asked only if a signal needs them).
    :raises OffsetFormatError: a ``redo`` that does not say what is missing.
    """
    plan.taken = [name for name in plan.taken if name in signals]
    for name, signal in signals.items():
        if name in plan.taken:
            continue
        action: dict[str, Any] = {"id": _shown(name, signal), "type": str(signal.get("type")), "tables": []}
        if action["id"] != name:
            action["file"] = name
        try:
            action |= _take(plan, name, signal, tables, server)
        except ConfigError as error:
            action["error"] = error.message
        plan.taken.append(name)
        plan.actions.append(action)


def _shown(name: str, signal: Mapping[str, Any]) -> str:
    """The id that a signal carries, else what its file's name says."""
    given = signal.get("id")
    return given if isinstance(given, str) and given else unquote(name)


def _take(
    plan: SnapshotPlan, name: str, signal: Mapping[str, Any], tables: Callable[[], list[str]], server: Server
) -> dict[str, Any]:
    try:
        asked = parse_request(signal)
    except OffsetFormatError as error:
        if error.table is None:
            raise OffsetFormatError(
                f"signal {name} asks for rows that are missing, and cannot be understood ({error.message}): remove"
                f" {signal_path(name)} and read the tables again with headgate run --resnapshot"
            ) from None
        plan.read_again(error.table)
        return {"tables": [error.table], "error": error.message}
    if isinstance(asked, Redo):
        return _take_redo(plan, asked)
    if isinstance(asked, Settle):
        plan.settles |= asked.gtid
        return {}
    if asked is None:
        if "problem" in signal:
            raise ConfigError(str(signal["problem"]))
        return follow_signal(plan, name, signal, tables, server)
    wanted = TablePatterns(asked.tables)
    touched = [t for t in tables() if _matches(wanted, t) and _matches(plan.patterns, t)]
    for table in touched:
        plan.read_again(table)
    return {"tables": touched}


def _take_redo(plan: SnapshotPlan, asked: Redo) -> dict[str, Any]:
    """The sinks missed a chunk's rows."""
    chunk = asked.chunk
    if chunk.filter is not None and _is_partial(plan, chunk):
        return _redo_partly(plan, chunk, asked.reason if asked.whole_table else None)
    if chunk.table in plan.stopped:
        return {}
    return {"tables": _redo(plan, chunk, whole_table=asked.whole_table)}


def _is_partial(plan: SnapshotPlan, chunk: ChunkSpec) -> bool:
    """Whether a chunk with a filter is of a partial reading."""
    reading = plan.readings.get(chunk.table)
    return reading is None or reading.partial or reading.filter != chunk.filter


def _redo_partly(plan: SnapshotPlan, chunk: ChunkSpec, refused: str | None) -> dict[str, Any]:
    """A chunk with a filter: of a reading that is still wanted, or nothing is to be done.

    :param refused: why it would never give anything.
    """
    table, reading = chunk.table, plan.readings.get(chunk.table)
    if refused is not None:
        if reading is not None and reading.filter == chunk.filter:
            plan.forget(table)
        return {"tables": [table], "error": f"{table}: {refused}", "refused": {table: ["SKIPPED", refused]}}
    if reading is not None and reading.filter != chunk.filter:  # another one has begun: it takes this in
        request(plan, table, Reading(filter=chunk.filter, partial=True, surrogate=chunk.surrogate))
        return {"tables": [table]}
    plan.redo.append(chunk)
    plan.readings.setdefault(table, Reading(filter=chunk.filter, partial=True, surrogate=chunk.surrogate))
    if table in plan.done:
        plan.done.remove(table)
    return {"tables": [table]}


def _redo(plan: SnapshotPlan, chunk: ChunkSpec, *, whole_table: bool) -> list[str]:
    """:param whole_table: the table is gone or has another key, so none of its planned ranges means anything."""
    table = chunk.table
    plan.append.discard(table)
    if table in plan.active and not whole_table:
        plan.redo.append(chunk)
        if table in plan.done:
            plan.done.remove(table)
    elif table not in plan.queue:
        plan.read_again(table)
    return [table]


def follow_signal(
    plan: SnapshotPlan, name: str, given: Mapping[str, Any], tables: Callable[[], list[str]], server: Server
) -> dict[str, Any]:
    """Do what a signal asks.

    :param name: the name of its file, which is its id if it carries none.
    :param tables: names of all tables that the pipeline follows.
    :raises ConfigError: it is not one.
    """
    signal = parse_signal(given, name=name)
    if signal.type == "execute-snapshot":
        return _execute(plan, signal, tables(), server)
    if signal.type == "stop-snapshot":
        return _stop(plan, signal)
    if signal.type == "log":
        return {"message": signal.message.replace("{}", plan.position)}
    plan.paused = signal.type == "pause-snapshot"
    return {}


def _execute(plan: SnapshotPlan, signal: Signal, tables: list[str], server: Server) -> dict[str, Any]:
    touched: list[str] = []
    refused: dict[str, Refusal] = {}
    wanted = [table for table in tables if signal.names(table)]
    asks = bool(signal.conditions or signal.surrogate_key or plan.conditions.keys() & set(wanted))
    definitions = server.definitions(plan.patterns) if wanted and asks else {}
    idle = signal.idle_conditions(wanted)
    for table in wanted:
        reading = plan.wanted(
            table,
            signal.filter_of(table),
            signals=(signal.id,),
            surrogate=signal.surrogate_key,
            blocking=signal.kind == "BLOCKING",
        )
        problem = None
        if idle and signal.filter_of(table) is None:
            nobody = f"the signal's condition for {idle[0]} is for none of its tables"
            problem = Refusal("SKIPPED", f"{nobody}, and without one all rows would be read")
        elif reading.filter is not None or reading.surrogate is not None:
            definition = definitions.get(table)
            problem = (
                Refusal("UNKNOWN_SCHEMA", "the table is gone")
                if definition is None
                else check_reading(server, definition, reading, keeps=plan.keeps(table))
            )
        if problem is not None:
            refused[table] = problem
            continue
        request(plan, table, reading)
        touched.append(table)
    action: dict[str, Any] = {"tables": touched}
    unmatched = signal.unmatched(tables)
    if unmatched:
        action["unmatched"] = unmatched
    if refused:
        action["refused"] = {table: list(refusal) for table, refusal in refused.items()}
    problems = [f"{table}: {refusal.reason}" for table, refusal in refused.items()]
    problems += [f"no table of this pipeline matches {one}" for one in unmatched]
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
        if not before.partial or before.filter == asked.filter:
            plan.readings[table] = joined
            return
        wider = f"({before.filter}) OR ({asked.filter})" if asked.partial else asked.filter
        asked = replace(joined, filter=wider, partial=asked.partial)
    elif progress is not None:  # a reading that the sinks have not confirmed
        asked = replace(asked, filter=plan.conditions.get(table), partial=False)
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


def _matches(patterns: TablePatterns, table: str) -> bool:
    db, _, name = table.partition(".")
    return patterns.matches(db, name)
