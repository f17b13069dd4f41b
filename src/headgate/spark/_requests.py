"""Turn signals into changes of the snapshot plan: ``headgate.control`` parses users' signals, this module follows them.

``redo`` and ``settle`` come from the sinks, ``resnapshot`` also from the start of a run. ``settle`` names a set after
which rows are exact, and the windows that they were read with. A stream that is to end reads up to it. A signal is
taken once: its id stays in the offset as long as its file exists, with the time when it was sent, which tells it from a
later one of that id. A bad signal never stops the stream: its action has an ``error``, and the signal is finished. Only
a ``redo`` that names no table raises, because it reports missing rows. Each handler returns its action's fields other
than ``id`` and ``type``.

**execute-snapshot.** A table that is being read or queued is not queued twice: a snapshot of all rows includes any
other, and two filters are joined by OR. Other tables are read next to the live changes, whether they were read before
or not. The server checks a *filter* with a query for no row. A filtered snapshot is *partial*: the sinks add and
replace rows, but neither sweep the table nor record it as read. It never replaces a snapshot of all rows that the sinks
have not confirmed, because a chunk of that one may still have to be retried.

**BLOCKING.** While such a table has unread ranges, batches end where they begin: chunks are read, live changes wait. So
all tables of a blocking snapshot are exact at one GTID set. A chunk without a result lets one batch advance, because it
can only be read as of a later set.

**A table's condition** (``conditions``) selects the rows that the pipeline wants: every snapshot selects only these,
and counts as one of all rows. A signal's filter applies in addition.

**New tables.** Tables that appear later are read at once, or wait until a signal names them
(``snapshot_new_tables``). So are tables that only the present patterns match, not the previous offset's: they were not
followed so far, even if the sinks hold a table of that name. Tables that the patterns no longer match are forgotten.

**Stale tables**, and others that a request has read again, have a record from their request on. One without a record
is read again, if the server shows it: while the account could not see it, its request found nothing, or its read ended;
or the checkpoint was lost.

**forget-table** names tables of the sinks that the stream does not follow: the ledger's next row leaves them out.

**stop-snapshot** ends snapshots. A table whose snapshot of all rows was stopped leaves append mode, because from now
on the stream has to bring the changes of its unread ranges, too. It stays known, so it is not read as a new table; a
later execute-snapshot reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.carrier import Redo, Settle, parse_request, sent_at, signal_id, signal_path, signal_type
from headgate.catalog import TablePatterns, as_globs
from headgate.control import Signal, parse_signal
from headgate.errors import ConfigError, OffsetFormatError
from headgate.offsets import ChunkSpec, SnapshotRequest
from headgate.spark._snapshot_requests import Refusal, check_request
from headgate.spark._snapshots import SnapshotPlan

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["take_requests"]


def take_requests(
    plan: SnapshotPlan,
    server: Server,
    *,
    signals: Mapping[str, Mapping[str, Any]],
    discover: bool,
    patterns_before: TablePatterns,
    wait: bool,
) -> None:
    """Add the requests and the new tables to the plan; its chunks are planned after that.

    :param discover: look for tables that are not known yet.
    :param patterns_before: the patterns in force so far.
    :param wait: follow new tables, but do not read them before a signal names them.
    """
    reads, finished, patterns = plan.reads, plan.settings.finished, plan.settings.patterns
    reads.confirm(finished)
    for read in reads:
        if not _matches(patterns, read.table):
            reads.exclude(read.table)
    names: list[str] | None = None

    def tables() -> list[str]:
        nonlocal names
        if names is None:
            names = sorted(server.tables(patterns))
        return names

    if discover:  # before a signal can request only some of their rows
        # those of a name that was not followed are not valid in the sinks
        included = [table for table in tables() if not _matches(patterns_before, table)]
        known = {*(read.table for read in reads), *(finished or ()), *included}
        unknown = [table for table in tables() if table not in known]
        if wait:
            for table in (*unknown, *included):
                reads.defer(table)
        else:
            plan.enqueue(included, {})
            plan.enqueue(unknown, server.definitions(patterns) if unknown and plan.settings.append_allowed else {})
    take_signals(plan, signals, tables, server)
    sinks = plan.settings.sinks if discover else None
    waiting = frozenset[str]() if sinks is None else sinks.stale | sinks.requested
    lost = [table for table in sorted(waiting) if reads.get(table) is None]
    for table in lost:
        if table in tables():
            plan.read_again(table)


def take_signals(
    plan: SnapshotPlan, signals: Mapping[str, Mapping[str, Any]], tables: Callable[[], list[str]], server: Server
) -> None:
    """Take every signal that was not taken before.

    :param tables: returns the names of all tables (called only if a signal needs them).
    :raises OffsetFormatError: a ``redo`` that does not name the missing rows.
    """
    plan.taken = [name for name in plan.taken if name in signals]
    for name, signal in signals.items():
        if name in plan.taken:
            continue
        action: dict[str, Any] = {"id": signal_id(name, signal), "type": signal_type(signal), "tables": []}
        if action["id"] != name:
            action["file"] = name
        when_us = sent_at(signal)
        if when_us is not None:
            action["sent_us"] = when_us
        try:
            action |= _take(plan, name, signal, tables, server)
        except ConfigError as error:
            action["error"] = error.message
        plan.taken.append(name)
        plan.actions.append(action)


def _take(
    plan: SnapshotPlan, name: str, signal: Mapping[str, Any], tables: Callable[[], list[str]], server: Server
) -> dict[str, Any]:
    try:
        request = parse_request(signal)
    except OffsetFormatError as error:
        if error.table is None:
            raise OffsetFormatError(
                f"signal {name} requests missing rows, but is invalid ({error.message}): remove"
                f" {signal_path(name)} and read the tables again with headgate run --resnapshot"
            ) from None
        if _matches(plan.settings.patterns, error.table):
            plan.read_again(error.table)
        return {"tables": [error.table], "error": error.message}
    if isinstance(request, Redo):
        return _take_redo(plan, request)
    if isinstance(request, Settle):
        plan.settles_at |= request.gtid
        for table, ends in request.windows.items():
            if _matches(plan.settings.patterns, table):
                plan.windows[table] = tuple(dict.fromkeys((*plan.windows.get(table, ()), *ends)))
        return {}
    if request is None:
        if "problem" in signal:
            raise ConfigError(str(signal["problem"]))
        return follow_signal(plan, name, signal, tables, server)
    wanted = TablePatterns(request.tables)
    touched = [table for table in tables() if _matches(wanted, table)]
    for table in touched:
        plan.read_again(table)
    return {"tables": touched}


def _take_redo(plan: SnapshotPlan, redo: Redo) -> dict[str, Any]:
    """Retry a chunk whose rows the sinks are missing."""
    chunk, table = redo.chunk, redo.chunk.table
    if not _matches(plan.settings.patterns, table):
        return {}
    read, request = plan.reads.get(table), plan.reads.request(table)
    if chunk.filter is not None and (request.partial or request.filter != chunk.filter):
        return _redo_partly(plan, chunk, redo.reason if redo.whole_table else None)
    if read is not None and read.is_idle:
        return {}
    if read is not None and read.progress is not None and not redo.whole_table:
        plan.reads.retry(chunk)
    elif read is None or not read.is_queued:  # with whole_table the table is gone or has another key
        plan.read_again(table)
    else:
        plan.reads.leave_append(table)
    return {"tables": [table]}


def _redo_partly(plan: SnapshotPlan, chunk: ChunkSpec, refused: str | None) -> dict[str, Any]:
    """Retry a chunk of a partial snapshot, or join it with the snapshot under way.

    :param refused: why it can never be read.
    """
    table, read = chunk.table, plan.reads.get(chunk.table)
    is_over = read is None or read.is_idle
    is_same = plan.reads.request(table).filter == chunk.filter
    request = SnapshotRequest(filter=chunk.filter, partial=True, surrogate=chunk.surrogate)
    if refused is not None:
        if is_same:
            plan.stop(table)
        return {"tables": [table], "error": f"{table}: {refused}", "refused": {table: ["SKIPPED", refused]}}
    if is_over:
        plan.reads.retry(chunk, request)
    elif not is_same:  # another snapshot has begun: it includes this one
        queue_snapshot(plan, table, request)
    elif read is not None and not read.is_queued:
        plan.reads.retry(chunk)
    return {"tables": [table]}


def follow_signal(
    plan: SnapshotPlan, name: str, raw_signal: Mapping[str, Any], tables: Callable[[], list[str]], server: Server
) -> dict[str, Any]:
    """Follow a user's signal.

    :param name: the name of its file, which is its id if it has none.
    :param tables: returns the names of all tables that the pipeline follows.
    :raises ConfigError: the signal is invalid.
    """
    signal = parse_signal(raw_signal, name=name)
    if signal.type == "execute-snapshot":
        return _execute(plan, signal, tables(), server)
    if signal.type == "stop-snapshot":
        return _stop(plan, signal)
    if signal.type == "forget-table":
        return _forget(plan, signal, tables())
    if signal.type == "log":
        return {"message": signal.message.replace("{}", plan.settings.position)}
    plan.paused = signal.type == "pause-snapshot"
    return {}


def _execute(plan: SnapshotPlan, signal: Signal, tables: list[str], server: Server) -> dict[str, Any]:
    touched: list[str] = []
    refused: dict[str, Refusal] = {}
    wanted = [table for table in tables if signal.names(table)]
    needs_definitions = bool(signal.conditions or signal.surrogate_key or plan.settings.conditions.keys() & set(wanted))
    definitions = server.definitions(plan.settings.patterns) if wanted and needs_definitions else {}
    idle = signal.idle_conditions(wanted)
    for table in wanted:
        request = plan.settings.request_for(
            table,
            signal.filter_of(table),
            signals=(signal.id,),
            surrogate=signal.surrogate_key,
            blocking=signal.kind == "BLOCKING",
        )
        problem = None
        if idle and signal.filter_of(table) is None:
            reason = f"the signal's condition for {as_globs(idle[0])} is for none of its tables"
            problem = Refusal("SKIPPED", f"{reason}; without a condition all rows would be read")
        elif request.filter is not None or request.surrogate is not None:
            definition = definitions.get(table)
            problem = (
                Refusal("UNKNOWN_SCHEMA", "the table is gone")
                if definition is None
                else check_request(server, definition, request, plan.settings.policies.of(table))
            )
        if problem is not None:
            refused[table] = problem
            continue
        queue_snapshot(plan, table, request)
        touched.append(table)
    action: dict[str, Any] = {"tables": touched}
    unmatched = signal.unmatched(tables)
    if unmatched:
        action["unmatched"] = unmatched
    if refused:
        action["refused"] = {table: list(refusal) for table, refusal in refused.items()}
    problems = [f"{table}: {refusal.reason}" for table, refusal in refused.items()]
    problems += [f"no table of this pipeline matches {as_globs(one)}" for one in unmatched]
    if problems:
        action["error"] = "; ".join(problems)
    return action


def queue_snapshot(plan: SnapshotPlan, table: str, request: SnapshotRequest) -> None:
    """Queue a table snapshot, or join it with the one under way."""
    read = plan.reads.get(table)
    if read is not None and not read.is_idle:
        before = read.request
        joined = replace(
            before,
            signals=tuple(dict.fromkeys((*before.signals, *request.signals))),
            blocking=before.blocking or request.blocking,
        )
        if not read.is_pending:  # the sinks have not confirmed the previous snapshot
            request = replace(
                joined, filter=plan.settings.conditions.get(table), surrogate=request.surrogate, partial=False
            )
        elif not before.partial or before.filter == request.filter:
            plan.reads.join(table, joined)
            return
        else:
            wider = f"({before.filter}) OR ({request.filter})" if request.partial else request.filter
            request = replace(joined, filter=wider, partial=request.partial)
    plan.reads.read_again(table, request, first=request.blocking)


def _stop(plan: SnapshotPlan, signal: Signal) -> dict[str, Any]:
    running = [read.table for read in plan.reads.pending()]
    touched = [table for table in running if signal.names(table)]
    for table in touched:
        plan.stop(table)
    action: dict[str, Any] = {"tables": touched}
    unmatched = signal.unmatched(running)
    if unmatched:
        action["unmatched"] = unmatched
    return action


def _forget(plan: SnapshotPlan, signal: Signal, tables: list[str]) -> dict[str, Any]:
    """Forget tables that the sinks have and the stream does not follow any more.

    A table that the server no longer has, and the patterns still match, is then a new one if it is created again.
    """
    wanted = [table for table in sorted(plan.settings.finished or ()) if signal.names(table)]
    followed = [table for table in wanted if table in tables]
    forgotten = [table for table in wanted if table not in followed]
    for table in forgotten:
        if plan.reads.get(table) is not None:
            plan.reads.exclude(table)
    problems = [f"{table} is in source.tables: leave it out first" for table in followed]
    problems += [f"the lake has no table {as_globs(one)}" for one in signal.unmatched(wanted)]
    return {"tables": forgotten, **({"error": "; ".join(problems)} if problems else {})}


def _matches(patterns: TablePatterns, table: str) -> bool:
    db, _, name = table.partition(".")
    return patterns.matches(db, name)
