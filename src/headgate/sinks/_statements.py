"""What a batch's statements mean for a table.

What a statement does to the rows that are there is not in the log. So a table goes on taking images only if the
statement itself tells all of it:

| met in the log | under ``evolve`` | under ``strict`` |
|---|---|---|
| ALTER of indexes, constraints, comments, options; of partitions that keeps all rows | nothing to do | the same |
| ALTER that only adds columns, NULL or of an exact literal default | columns added and filled | the same |
| any other ALTER | held as ``stale``, read again | ``stopped`` |
| DROP, or a RENAME after which nothing has the name | ``stopped``; the target stays as it is | the same |
| CREATE after that, or a RENAME that gives the name to another table | held as ``stale``, read again | ``stopped`` |
| TRUNCATE | everything before it is deleted | the same |

Tools that change a table through a copy (gh-ost, pt-online-schema-change) end in a RENAME that gives the name away and
to the copy in one statement: that reads the table again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.carrier import DdlRow, Seq
from headgate.sinks._case import Case
from headgate.sinks._course import Course, remedy
from headgate.sinks._shape import shortened
from headgate.sinks._states import State

__all__ = ["Statements", "read_statements"]


@dataclass
class Statements:
    """What remains to be done after a batch's statements."""

    truncated: Seq | None = None  # the last TRUNCATE
    gone: bool = False  # the last thing they did was to take the table away
    adds: list[DdlRow] = field(default_factory=list)  # those that added columns, and nothing else


def read_statements(course: Course, case: Case) -> Statements:
    """Go through the batch's statements on this table, in log order."""
    arrival, known = case.arrival, case.known
    # A name that headgate never had cannot be lost.
    is_ours = known.row is not None or arrival.about is not None or bool(arrival.parts)
    statements = Statements(gone=known.state is State.STOPPED)
    for ddl in arrival.batch.ddl:
        if ddl.table == course.table:
            held = course.state if course.held else known.state if known.held else None
            _read(course, statements, ddl, held, is_ours=is_ours)
        if ddl.new_name == course.table and is_ours:
            statements.gone = False
            course.read_again(f"the name was given to another table: {shortened(ddl.statement)}")
            course.note_hold(ddl)
    return statements


def _read(course: Course, statements: Statements, ddl: DdlRow, held: State | None, *, is_ours: bool) -> None:
    """One statement.

    :param held: how the table is held before it, or was before the batch.
    """
    text = shortened(ddl.statement)
    match ddl.action:
        case "truncate":
            statements.truncated = ddl.seq
            course.note(ddl, "held" if held else "applied")
        case "alter" if ddl.adds is not None:
            statements.adds.append(ddl)
            course.note(ddl, "held" if held else "applied")
        case "alter" if held is State.STOPPED and course.strict:
            course.note(ddl, "held")
        case "alter":
            course.read_again(f"ALTER may have changed rows: {text}")
            course.note_hold(ddl)
        case "drop" | "rename" if is_ours:
            statements.gone = True
            course.stop(f"{text}; if the name is in use again, {remedy(course.table)}")
            course.note_hold(ddl)
        case "create" if statements.gone:
            statements.gone = False
            course.read_again(f"created again: {text}")
            course.note_hold(ddl)
        case _:
            course.note(ddl, "applied")
