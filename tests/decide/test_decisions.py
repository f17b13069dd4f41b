"""The decision table: what each thing that a batch can bring does to a table in each state (``decisions.txt``).

A line of the file is the state before, the state after, and the actions on the table that takes the rows. ``beside`` is
``snapshotting`` with a successor. It changes only with the behaviour. What holds for all batches is shown by random
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import AddedColumn
from headgate.decide import Arrival, Decision, Divergence, Policy, TableBefore, decide
from headgate.decide.states import COMPLETE
from headgate.lake import State, Successor, TableState
from tests.fix_carrier import UUID, FakeBatch, FakeTable

TABLE = "shop.orders"
EPOCH = 9
ORDERS = FakeTable()
WIDER = FakeTable(columns=(*ORDERS.columns, ("added", "int")))
RETYPED = FakeTable(columns=(("id", "bigint"), ("item", "int")))
KEYLESS = FakeTable(key=())
ADDED = AddedColumn("added", default="5")

BEFORE: Mapping[str, TableState | None] = {
    "new": None,
    "snapshotting": TableState(TABLE, "snapshotting", version=4, since_epoch=7),
    "beside": TableState(TABLE, "snapshotting", version=4, since_epoch=7, successor=Successor("new", 2)),
    "settling": TableState(TABLE, "settling", version=4, settles_at=f"{UUID}:20", reason="exact later"),
    "live": TableState(TABLE, "live", version=4),
    "inexact": TableState(TABLE, "inexact", version=4, unlogged="cascades", reason="cascades"),
    "filtered": TableState(TABLE, "filtered", version=4),
    "stale": TableState(TABLE, "stale", version=4, held_epoch=3, reason="altered"),
    "stopped": TableState(TABLE, "stopped", version=4, held_epoch=3, reason="strict"),
    "excluded": TableState(TABLE, "excluded", version=4, held_epoch=3, reason="left out"),
    "dropped": TableState(TABLE, "dropped", version=4, held_epoch=3, reason="dropped"),
}


@dataclass
class Brought:
    """What a batch brings, to a table of this shape."""

    batch: FakeBatch
    shape: FakeTable = ORDERS
    unseen: Divergence | None = None
    strict: bool = False
    appended_since: int | None = None


def row(table: FakeTable) -> list[object]:
    values: dict[str, object] = {"bigint": 1, "int": 2, "string": "x"}
    return [values[kind] for _, kind in table.columns]


def changes(table: FakeTable = ORDERS) -> FakeBatch:
    return FakeBatch(EPOCH, f"{UUID}:1-9").images(table, [("u", 1, *row(table))])


def reading(since: int | None, *, last: bool = False, append: bool = False, filtered: bool = False) -> FakeBatch:
    about = {"since_epoch": since, "last": last, "append": append, "filtered": filtered}
    return FakeBatch(EPOCH, f"{UUID}:1-9").about(TABLE, state="queued" if since is None else "reading", **about)


def chunk(since: int, *, table: FakeTable = ORDERS, last: bool = False, append: bool = False) -> FakeBatch:
    return reading(since, last=last, append=append).chunk(table, [tuple(row(table))])


def statement(text: str, action: str, *, new_name: str | None = None, table: str = TABLE) -> FakeBatch:
    return changes().ddl(table, text, action, 5, new_name=new_name)


def added(batch: FakeBatch) -> FakeBatch:
    return batch.ddl(TABLE, "ALTER TABLE orders ADD added INT", "alter", 5, adds=[ADDED], schema=WIDER)


def partial() -> FakeBatch:
    return FakeBatch(EPOCH).images(ORDERS, [("u", 1, 1, ...)])


def some_rows() -> FakeBatch:
    fake = changes().about(TABLE, state="reading", since_epoch=EPOCH, last=True, partial=True)
    return fake.chunk(ORDERS, [(2, "y")])


CASCADE = "foreign keys change its rows"
BRINGS: Mapping[str, Callable[[], Brought]] = {
    "changes": lambda: Brought(changes()),
    "changes of a table without a key": lambda: Brought(changes(KEYLESS), KEYLESS),
    "changes that leave columns out": lambda: Brought(partial()),
    "changes of other columns": lambda: Brought(changes(RETYPED)),
    "changes of other columns, under strict": lambda: Brought(changes(RETYPED), strict=True),
    "changes and a TRUNCATE": lambda: Brought(statement("TRUNCATE TABLE orders", "truncate")),
    "changes, and a reading that waits": lambda: Brought(reading(None).images(ORDERS, [("u", 1, 1, "x")])),
    "an ALTER that adds a column": lambda: Brought(added(FakeBatch(EPOCH, f"{UUID}:1-9"))),
    "changes and an ALTER that adds a column": lambda: Brought(added(changes())),
    "changes and any other ALTER": lambda: Brought(statement("ALTER TABLE orders FORCE", "alter")),
    "changes and any other ALTER, under strict": lambda: Brought(
        statement("ALTER TABLE orders FORCE", "alter"), strict=True
    ),
    "a DROP": lambda: Brought(statement("DROP TABLE orders", "drop")),
    "a CREATE": lambda: Brought(statement("CREATE TABLE orders ...", "create")),
    "its name is given away": lambda: Brought(
        statement("RENAME TABLE other TO orders", "rename", table="shop.other", new_name=TABLE)
    ),
    "the first chunk": lambda: Brought(chunk(EPOCH)),
    "the first chunk, to append": lambda: Brought(chunk(EPOCH, append=True), appended_since=EPOCH),
    "the first chunk, of other columns": lambda: Brought(
        chunk(EPOCH, table=RETYPED).images(ORDERS, [("d", 1, 1, "x")])
    ),
    "the first chunk, changes and an ALTER": lambda: Brought(
        statement("ALTER TABLE orders FORCE", "alter")
        .about(TABLE, state="reading", since_epoch=EPOCH)
        .chunk(ORDERS, [(1, "x")])
    ),
    "the only chunk": lambda: Brought(chunk(EPOCH, last=True)),
    "the only chunk of a table without a key": lambda: Brought(chunk(EPOCH, table=KEYLESS, last=True), KEYLESS),
    "a later chunk": lambda: Brought(chunk(7)),
    "a later chunk, to append": lambda: Brought(chunk(7, append=True), appended_since=7),
    "the last chunk": lambda: Brought(chunk(7, last=True)),
    "the last chunk, to append": lambda: Brought(chunk(7, last=True, append=True), appended_since=7),
    "the last chunk, some of whose rows are newer": lambda: Brought(
        chunk(7, last=True).watermark(TABLE, f"{UUID}:1-20")
    ),
    "the last chunk of a filtered reading": lambda: Brought(
        reading(7, last=True, filtered=True).chunk(ORDERS, [(1, "x")])
    ),
    "the last chunk, to be read again": lambda: Brought(reading(7, last=True).redo(TABLE)),
    "the end of a reading that found nothing": lambda: Brought(reading(7, last=True)),
    "some rows": lambda: Brought(some_rows()),
    "images that nobody can read": lambda: Brought(changes().stop(TABLE, "unreadable")),
    "a first chunk that nobody can read": lambda: Brought(reading(EPOCH).unread(TABLE, "unreadable")),
    "rows change unseen": lambda: Brought(changes(), unseen=Divergence(CASCADE)),
    "the configuration leaves it out": lambda: Brought(changes(), unseen=Divergence("left out", excluded=True)),
    "a DROP of what it leaves out": lambda: Brought(
        statement("DROP TABLE orders", "drop"), unseen=Divergence("left out", excluded=True)
    ),
    "a DROP, and rows change unseen": lambda: Brought(
        statement("DROP TABLE orders", "drop").stop(TABLE, "unreadable"), unseen=Divergence(CASCADE)
    ),
    "rows have changed unseen": lambda: Brought(changes(), unseen=Divergence(CASCADE, over=True)),
    "rows change unseen, which is accepted": lambda: Brought(changes(), unseen=Divergence(CASCADE, accepted=True)),
}


def decided(brings: str, before: str) -> str:
    brought, known_row = BRINGS[brings](), BEFORE[before]
    shape = brought.shape.target(since_epoch=brought.appended_since)
    known = TableBefore(known_row, None if known_row is None else shape)
    decision = decide(Arrival(TABLE, brought.batch.described(), brought.unseen), known, Policy(strict=brought.strict))
    return " ".join([decision.state.state, *(type(action).__name__ for action in decision.actions)])


def written() -> dict[str, dict[str, str]]:
    """What the batch brings → the state before → what is decided."""
    table: dict[str, dict[str, str]] = {}
    for line in (Path(__file__).parent / "decisions.txt").read_text().splitlines():
        if line and not line.startswith(" "):
            lines = table.setdefault(line, {})
        elif line:
            before, *after = line.split()
            lines[before] = " ".join(after)
    return table


DECISIONS = written()


@pytest.mark.parametrize("brings", BRINGS)
def test_each_state(brings: str) -> None:
    assert {before: decided(brings, before) for before in BEFORE} == DECISIONS[brings]


def test_the_table_is_whole() -> None:
    assert DECISIONS.keys() == BRINGS.keys()
    assert {State.NEW if known is None else known.state for known in BEFORE.values()} == set(State)


ORDER = (
    "Create", "Reshape", "AddColumns", "NoteTypes", "FillColumns", "Truncate", "DropStrays", "Append", "Overwrite",
    "Count", "Upsert", "UpsertPartial", "Sweep", "TakeOver",
)  # fmt: skip
STATEMENTS: Mapping[str, str] = {
    "ALTER TABLE orders FORCE": "alter",
    "DROP TABLE orders": "drop",
    "CREATE TABLE orders ...": "create",
    "TRUNCATE TABLE orders": "truncate",
}


@st.composite
def batches(draw: st.DrawFn) -> FakeBatch:
    """Any header, any statements, images and chunks of any columns."""
    fake = FakeBatch(EPOCH, f"{UUID}:1-9")
    for pos, table in enumerate(draw(st.lists(st.sampled_from([ORDERS, ORDERS, WIDER, RETYPED, KEYLESS]), max_size=2))):
        fake.images(table, [("u", pos, *row(table))])
    for pos, text in enumerate(draw(st.lists(st.sampled_from([*STATEMENTS]), max_size=2))):
        fake.ddl(TABLE, text, STATEMENTS[text], 5 + pos)
    since = draw(st.sampled_from([None, 7, EPOCH]))
    partial, last, append = (draw(st.booleans()) for _ in range(3))
    if draw(st.booleans()):
        last &= since is not None
        about = {"since_epoch": since, "partial": partial, "last": last, "append": append}
        fake.about(TABLE, state="queued" if since is None else "reading", **about)
        for table in draw(st.lists(st.sampled_from([ORDERS, ORDERS, RETYPED]), max_size=2)) if since else ():
            fake.chunk(table, [tuple(row(table))] * draw(st.integers(0, 1)))
    trouble = draw(st.sets(st.sampled_from(["redo", "stop", "unread"]), max_size=1))
    if "redo" in trouble:
        fake.redo(TABLE)
    if "stop" in trouble:
        fake.stop(TABLE, "unreadable")
    if "unread" in trouble:
        fake.unread(TABLE, "unread")
    return fake


def is_sound(before: TableState | None, decision: Decision) -> None:
    state, kinds = decision.state, [type(action).__name__ for action in decision.actions]
    assert state.state in set(State) - {State.NEW}
    assert kinds == sorted(kinds, key=ORDER.index)
    assert not (state.is_suspended and kinds), "a held table stays as it is"
    assert (state.held_epoch is not None) if state.is_suspended else (state.held_epoch is None or state.since_epoch)
    assert (state.reason is not None) == (state.is_suspended or state.state in ("settling", "inexact"))
    assert decision.reread_reason is None or state.state == "stale"
    assert "Sweep" not in kinds or state.is_read, "rows are swept after the last chunk only"
    assert "TakeOver" not in kinds or state.state in COMPLETE, "readers never see an incomplete table"
    assert state.successor is None or not state.is_suspended, "a suspended table gives its successor up"
    if before is not None and before.is_suspended and not state.is_suspended:
        assert state.is_read or state.since_epoch is not None, "only a reading frees a table"


@settings(max_examples=300, deadline=None)
@given(fake=batches(), before=st.sampled_from([*BEFORE]), policy=st.builds(Policy), reread_requested=st.booleans())
def test_any_batch(fake: FakeBatch, before: str, policy: Policy, *, reread_requested: bool) -> None:
    known = TableBefore(BEFORE[before], None if before == "new" else ORDERS.target(), None, reread_requested)
    decision = decide(Arrival(TABLE, fake.described()), known, policy)
    is_sound(BEFORE[before], decision)
    assert decide(Arrival(TABLE, fake.described()), known, policy) == decision, "a replay decides the same"
