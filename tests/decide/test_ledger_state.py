"""``live`` means exact: random histories, batches and chunk windows, against the source's own history.

The parts of the product that are in it: chunk windows (``Window``), and what the ledger says of the table after each
batch (``decide``). The log, the SELECTs and the target are modelled as dictionaries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.decide import Arrival, Decision, Divergence, Policy, TableBefore, decide
from headgate.gtid import GtidSet
from headgate.lake import TableState
from headgate.snapshot import Window
from tests.fix_carrier import UUID, FakeBatch, FakeTable

TABLE = FakeTable("shop.orders", (("id", "bigint"), ("item", "string")))
DEFINITION = TableDef("shop", "orders", (Column("id", "bigint"), Column("item", "text")), key=(0,))
FIELDS = pa.schema([("id", pa.int64()), ("item", pa.string())])
KEYS = 6
Rows = dict[int, str]
Image = tuple[str, int, str]


@dataclass(frozen=True)
class History:
    """Transactions 1, 2, …: ``images[n]`` of transaction n + 1, ``states[n]`` the source after n of them."""

    images: tuple[tuple[Image, ...], ...]
    states: tuple[Rows, ...]


@dataclass(frozen=True)
class Chunk:
    """The keys in ``[low, high)``, selected after transaction ``seen``, its window read up to ``end``."""

    low: int
    high: int
    seen: int
    end: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    rows: Rows = dict.fromkeys(draw(st.sets(st.integers(0, KEYS - 1))), "old")
    images: list[tuple[Image, ...]] = []
    states = [dict(rows)]
    for number in range(draw(st.integers(1, 12))):
        done: list[Image] = []
        for key, kind in draw(st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 2)), max_size=3)):
            value = f"v{number}"
            if key not in rows:
                done.append(("c", key, value))
                rows[key] = value
            elif kind == 0:
                done.append(("d", key, rows.pop(key)))
            else:
                free = [other for other in range(KEYS) if other not in rows]
                new = free[0] if kind == 1 and free else key
                done += [("b", key, rows.pop(key)), ("u", new, value)]
                rows[new] = value
        images.append(tuple(done))
        states.append(dict(rows))
    return History(tuple(images), tuple(states))


@st.composite
def plans(draw: st.DrawFn, length: int) -> list[tuple[int, list[Chunk]]]:
    """Batches: where each ends, and the chunks that it reads; all keys are read once."""
    bounds = sorted(draw(st.sets(st.integers(1, KEYS - 1), max_size=3)))
    ranges = list(zip([0, *bounds], [*bounds, KEYS], strict=True))
    batches: list[tuple[int, list[Chunk]]] = []
    end = draw(st.integers(0, length))
    while ranges:
        chunks = []
        for _ in range(draw(st.integers(0 if batches else 1, len(ranges)))):
            low, high = ranges.pop(0)
            seen = draw(st.integers(end, length))
            chunks.append(Chunk(low, high, seen, draw(st.integers(seen, length))))
        batches.append((end, chunks))
        end = draw(st.integers(end, length))
    for _ in range(draw(st.integers(0, 2))):
        batches.append((end, []))
        end = draw(st.integers(end, length))
    return [*batches, (length, [])]


def rows_of(history: History, chunk: Chunk, end: int, rule: str) -> Rows:
    """What a chunk of a batch that ends at ``end`` brings."""
    selected = {key: item for key, item in history.states[chunk.seen].items() if chunk.low <= key < chunk.high}
    if rule == "keep":
        return selected
    rows = pa.table([pa.array(list(selected)), pa.array(list(selected.values()), pa.string())], schema=FIELDS)
    window = Window(DEFINITION, FIELDS)
    images = [image for number in range(end, chunk.end) for image in history.images[number]]
    window.add(TABLE.batch(0, [(op, place, key, item) for place, (op, key, item) in enumerate(images)]))

    def in_range(keys: pa.Table) -> np.ndarray:
        ids = np.asarray(keys["id"])
        return (ids >= chunk.low) & (ids < chunk.high)

    result = window.drop(rows) if rule == "drop" else window.rewind(rows, in_range)
    return dict(zip(result["id"].to_pylist(), result["item"].to_pylist(), strict=True))


def decided(fake: FakeBatch, before: TableState | None, unseen: Divergence | None = None) -> Decision:
    target = None if before is None else TABLE.target()
    return decide(Arrival("shop.orders", fake.described(), unseen), TableBefore(before, target), Policy())


class Model:
    """A table and the ledger's word on it, batch by batch."""

    def __init__(self, history: History, rule: str) -> None:
        self.history, self.rule = history, rule
        self.rows: Rows = {}
        self.state: TableState | None = None
        self.epoch, self.begin, self.since = 10, 0, 0

    def batch(self, end: int, chunks: list[Chunk], *, first: bool, last: bool) -> TableState:
        self.epoch += 1
        self.since = self.epoch if first else self.since
        fake = FakeBatch(self.epoch, f"{UUID}:1-{end}" if end else "")
        fake.gtid = f"{UUID}:1-{end}" if end else ""
        log = [image for number in range(self.begin, end) for image in self.history.images[number]]
        self.begin = end
        for op, key, item in log:
            if op in ("b", "d"):
                self.rows.pop(key, None)
            else:
                self.rows[key] = item
        if log:
            fake.images(TABLE, [(op, place, key, item) for place, (op, key, item) in enumerate(log)])
        for chunk in chunks:
            rows = rows_of(self.history, chunk, end, self.rule)
            self.rows = {key: item for key, item in self.rows.items() if not chunk.low <= key < chunk.high} | rows
            fake.chunk(TABLE, list(rows.items()))
            touched = any(self.history.images[number] for number in range(end, chunk.end))
            if touched and self.rule != "rewind":
                fake.watermark("shop.orders", f"{UUID}:1-{chunk.end}")
        if chunks:
            fake.snapshot("shop.orders", self.since, append=False, first=first, last=last)
        self.state = replace(decided(fake, self.state).state, version=self.epoch)
        return self.state


@pytest.mark.parametrize("rule", ["rewind", "keep", "drop"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_live_table_is_exactly_the_source(rule: str, data: st.DataObject) -> None:
    history = data.draw(histories())
    model = Model(history, rule)
    plan = data.draw(plans(len(history.images)))
    reads = [number for number, (_, chunks) in enumerate(plan) if chunks]
    for number, (end, chunks) in enumerate(plan):
        state = model.batch(end, chunks, first=number == reads[0], last=number == reads[-1])
        if state.state == "live":
            assert model.rows == history.states[end]
        else:
            assert number < reads[-1] or rule != "rewind", "a table whose rows are exact is live at once"
    assert state.state == "live", "everything was applied in the end"
    assert model.rows == history.states[-1]


def test_without_the_watermark_it_would_not_be() -> None:
    """The control: a row that was kept is newer than the batch's end."""
    history = History((((("c", 1, "new")),),), ({}, {1: "new"}))
    assert rows_of(history, Chunk(0, KEYS, 1, 1), 0, "keep") != history.states[0]
    assert Model(history, "keep").batch(0, [Chunk(0, KEYS, 1, 1)], first=True, last=True).state == "settling"


def last_chunk(epoch: int, *, watermark: str | None = None, gtid: str = f"{UUID}:1-9") -> FakeBatch:
    fake = FakeBatch(epoch, gtid).snapshot("shop.orders", epoch, append=True, first=True, last=True)
    fake.chunk(TABLE, [(1, "x")])
    return fake if watermark is None else fake.watermark("shop.orders", watermark)


def state_after(fake: FakeBatch, before: TableState | None, unseen: Divergence | None = None) -> TableState:
    return replace(decided(fake, before, unseen).state, version=1)


def test_a_table_settles_until_its_watermark_is_applied() -> None:
    state = state_after(last_chunk(9, watermark=f"{UUID}:1-12"), None)
    assert (state.state, state.settles_at) == ("settling", f"{UUID}:10-12")
    assert state.is_read
    assert f"{UUID}:10-12" in str(state.reason)
    state = state_after(FakeBatch(10, f"{UUID}:1-11").images(TABLE, [("u", 1, 1, "y")]), state)
    assert (state.state, state.settles_at) == ("settling", f"{UUID}:12")
    state = state_after(FakeBatch(11, f"{UUID}:1-12").images(TABLE, [("u", 1, 1, "z")]), state)
    assert (state.state, state.settles_at, state.reason) == ("live", None, None)


def test_a_watermark_that_the_batch_covers_is_no_reason_to_wait() -> None:
    assert state_after(last_chunk(9, watermark=f"{UUID}:1-9"), None).state == "live"


def test_transactions_that_a_failover_lost_keep_a_table_from_being_live_until_it_is_read_again() -> None:
    other = "11111111-71ca-11e1-9e33-c80aa9429562"
    state = state_after(last_chunk(9, watermark=f"{UUID}:1-12"), None)
    state = state_after(FakeBatch(10, f"{UUID}:1-10,{other}:1-50").images(TABLE, [("u", 1, 1, "y")]), state)
    assert (state.state, state.settles_at) == ("settling", f"{UUID}:11-12")
    again = state_after(last_chunk(11, gtid=f"{UUID}:1-10,{other}:1-60"), state)
    assert (again.state, again.settles_at) == ("live", None)


def test_a_table_that_settles_is_not_live_while_it_waits_to_be_read_from_the_start() -> None:
    """Other transactions than those in its windows have their numbers."""
    state = state_after(last_chunk(9, watermark=f"{UUID}:1-12"), None)
    first = FakeBatch(10, f"{UUID}:1-20").snapshot("shop.orders", 10, append=False, first=True)
    begun = state_after(first.chunk(TABLE, [(1, "x")]), state)
    assert (begun.state, begun.settles_at, begun.held_epoch) == ("snapshotting", None, 10), "it need not wait"
    waits = FakeBatch(10, f"{UUID}:1-20").about("shop.orders", state="queued").images(TABLE, [("u", 1, 1, "y")])
    state = state_after(waits, state)
    assert state.state == "snapshotting"
    again = state_after(last_chunk(11, gtid=f"{UUID}:1-20"), state)
    assert (again.state, again.settles_at) == ("live", None)


def test_rows_of_a_partial_reading_unsettle_a_live_table() -> None:
    live = TableState("shop.orders", "live", version=4)
    fake = FakeBatch(9, f"{UUID}:1-9").about("shop.orders", state="reading", since_epoch=9, partial=True, last=True)
    fake.chunk(TABLE, [(1, "x")]).watermark("shop.orders", f"{UUID}:1-10")
    state = state_after(fake, live)
    assert (state.state, state.settles_at) == ("settling", f"{UUID}:10")
    assert state_after(FakeBatch(10, f"{UUID}:1-10").images(TABLE, [("u", 1, 1, "y")]), state).state == "live"


CASCADE = Divergence("foreign keys of shop.orders: c: ON DELETE CASCADE", accepted=True)


def test_a_table_whose_unseen_changes_are_accepted_is_inexact_until_it_is_read_without_them() -> None:
    state = state_after(last_chunk(9), None, CASCADE)
    assert (state.state, state.reason, state.unlogged) == ("inexact", CASCADE.reason, CASCADE.reason)
    assert state.is_read
    assert not state.is_suspended
    state = state_after(FakeBatch(10).images(TABLE, [("u", 1, 1, "y")]), state)
    assert (state.state, state.reason) == ("inexact", CASCADE.reason)
    first = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(TABLE, [(1, "x")])
    state = state_after(first, state)
    assert (state.state, state.unlogged) == ("snapshotting", None)
    rest = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True).chunk(TABLE, [(2, "x")], start=1)
    assert state_after(rest, state).state == "live"


def test_a_key_that_was_met_while_the_table_was_read_counts_when_it_is_complete() -> None:
    first = FakeBatch(11).snapshot("shop.orders", 11, append=True, first=True).chunk(TABLE, [(1, "x")])
    state = state_after(first, None, CASCADE)
    assert (state.state, state.unlogged) == ("snapshotting", CASCADE.reason)
    rest = FakeBatch(12).snapshot("shop.orders", 11, append=True, last=True).chunk(TABLE, [(2, "x")], start=1)
    assert state_after(rest, state).state == "inexact"


def test_an_accepted_key_that_came_and_went_leaves_the_table_inexact() -> None:
    live = TableState("shop.orders", "live", version=4)
    over = replace(CASCADE, over=True)
    assert state_after(FakeBatch(9).images(TABLE, [("u", 1, 1, "y")]), live, over).state == "inexact"
    assert state_after(last_chunk(10), live, over).state == "live", "rows that are read after it have what it did"


def test_what_an_earlier_version_called_live_is_looked_at_again() -> None:
    live = TableState("shop.orders", "live", version=4)
    work = decided(FakeBatch(9), live, CASCADE)
    assert (work.state.state, work.state.version) == ("inexact", 4)
    assert work.warnings == (f"shop.orders is inexact: {CASCADE.reason}",)
    again = decided(FakeBatch(10), work.state)
    assert (again.state.state, again.warnings) == ("inexact", ())


def test_watermarks_of_several_tasks_are_joined() -> None:
    fake = FakeBatch(9).watermark("shop.orders", f"{UUID}:1-10").watermark("shop.orders", f"{UUID}:1-12")
    assert fake.described().watermarks == {"shop.orders": GtidSet.parse(f"{UUID}:1-12")}
