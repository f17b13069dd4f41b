"""Requests that the sinks send to the planner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder, End, Settle, SinkTables, sent_at, signal_path
from headgate.control import OpenSnapshots, SignalAnswer, SignalState, parse_signal, submit
from headgate.decide import Arrival, Policy, TableBefore, decide, suspend
from headgate.lake import TableState
from headgate.sinks import PlannerMessages
from headgate.spark import Notes
from tests.fix_carrier import UUID, FakeBatch, FakeTable


@pytest.mark.parametrize("table", ["shop.orders", "!shop.[x]*", "shop." + "т" * 64])
def test_a_re_read_is_requested_of_any_table(table: str, tmp_path: Path) -> None:
    messages = PlannerMessages(ControlFolder(str(tmp_path)))
    batch, later, before = FakeBatch(9).described(), FakeBatch(10).described(), TableState(table, "live", version=4)
    decision = decide(Arrival(table, batch), TableBefore(before, FakeTable(table).target()), Policy())
    messages.request(batch, [suspend(decision, 9, reread_reason="its columns changed", stop_reason=None)], {})
    pending = messages.pending_rereads(later)
    assert pending is not None
    db, _, name = table.partition(".")
    assert pending.matches(db, name)
    assert not pending.matches(db, f"{name}x")
    assert messages.pending_rereads(batch) is None, "its replay decides as it did"


def test_a_table_that_settles_may_have_to_wait_longer(tmp_path: Path) -> None:
    """Rows of it were read again, for a condition."""
    inbox, table = ControlFolder(str(tmp_path)), FakeTable()
    before = TableState("shop.orders", "settling", version=4, settles_at=f"{UUID}:10")
    fake = FakeBatch(9).about("shop.orders", state="reading", since_epoch=9, partial=True, last=True)
    batch = fake.chunk(table, [(1, "x")]).watermark("shop.orders", f"{UUID}:1-12").described()
    decision = decide(Arrival("shop.orders", batch), TableBefore(before, table.target()), Policy())
    assert decision.state.settles_at == f"{UUID}:10-12"
    PlannerMessages(inbox).request(batch, [decision], {"shop.orders": before})
    assert {str(one.gtid) for one in inbox.requests().values() if isinstance(one, Settle)} == {f"{UUID}:11-12"}


def test_requests_of_batches_of_one_epoch_are_told_apart(tmp_path: Path) -> None:
    """A checkpoint is lost with a batch that had sent its request. The next batch has its epoch, and another request of
    that name, which would count as taken.
    """
    inbox = ControlFolder(str(tmp_path))
    taken = Notes(taken=("redo-9-0",), sent={"redo-9-0": 1})
    for planned_us, is_another in ((1, False), (2, True)):
        batch = FakeBatch(9).redo("shop.orders").described()
        batch = replace(batch, header=replace(batch.header, planned_us=planned_us))
        PlannerMessages(inbox).request(batch, [], {})
        assert taken.is_another("redo-9-0", inbox.signals()) == is_another


SIGNAL = {"id": "s1", "type": "log", "data": '{"message": "hello"}'}


def test_signals_of_a_committed_batch_outlast_a_kill(tmp_path: Path) -> None:
    """Without a checkpoint the batch is not repeated, so its files exist before the ledger has it."""
    inbox = ControlFolder(str(tmp_path))
    messages, batch = PlannerMessages(inbox), FakeBatch(9).signal("shop.signals", SIGNAL).described()
    messages.request(batch, [], {})
    (signal,) = inbox.signals().values()
    assert signal["id"] == "s1"
    messages.hand_back(batch, {}, OpenSnapshots())
    assert len(inbox.signals()) == 1


@pytest.mark.parametrize(("sent_us", "late", "left"), [(5, {}, 0), (6, {}, 1), (5, {"late": True}, 1)])
def test_the_file_of_a_later_signal_with_the_same_id_stays(
    sent_us: int, late: dict[str, bool], left: int, tmp_path: Path
) -> None:
    inbox = ControlFolder(str(tmp_path))
    submit(inbox, parse_signal({"id": "x", "type": "pause-snapshot"}), sent_us)
    batch = FakeBatch(9)
    batch.actions.append({"id": "x", "type": "execute-snapshot", "tables": [], "sent_us": 5, **late})
    PlannerMessages(inbox).hand_back(batch.described(), {}, OpenSnapshots())
    assert len(inbox.signals()) == left


def answer(state: SignalState, **more: Any) -> SignalAnswer:
    return SignalAnswer("x", "execute-snapshot", state, **{"sent_us": 5, **more})


def test_a_request_for_tables_stays_until_they_are_read(tmp_path: Path) -> None:
    """A stream that has lost its checkpoint takes it again. Others with its id wait for a batch."""
    inbox, batch = ControlFolder(str(tmp_path)), FakeBatch(9)
    messages = PlannerMessages(inbox)
    inbox.write(signal_path("x"), {"id": "x", "submitted_us": 5})
    inbox.write(signal_path("kafka-t-1"), {"id": "x", "submitted_us": 6})
    batch.actions.append({"id": "x", "type": "execute-snapshot", "tables": ["shop.a"], "sent_us": 5})
    messages.hand_back(batch.described(), {}, OpenSnapshots(answers=(answer(SignalState.TAKEN),)))
    messages.hand_back(FakeBatch(10).described(), {}, OpenSnapshots(answers=(answer(SignalState.RUNNING),)))
    assert list(inbox.signals()) == ["x", "kafka-t-1"]
    for _ in range(2):  # as by a batch that is repeated by another run
        messages.hand_back(FakeBatch(11).described(), {}, OpenSnapshots(answers=(answer(SignalState.DONE),)))
        assert list(inbox.signals()) == ["kafka-t-1"]
        messages = PlannerMessages(inbox)
    done = OpenSnapshots(answers=(answer(SignalState.DONE), answer(SignalState.DONE, sent_us=None)))
    messages.hand_back(FakeBatch(12).described(), {}, done)
    assert list(inbox.signals()) == ["kafka-t-1"]


def test_a_request_for_tables_that_does_not_say_when_it_was_sent_stays_as_long(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    inbox.write(signal_path("x"), {"id": "x", "type": "execute-snapshot"})
    sent_us = sent_at(inbox.signals()["x"])
    for state, left in ((SignalState.TAKEN, ["x"]), (SignalState.DONE, [])):
        batch = FakeBatch(9)
        batch.actions.append({"id": "x", "type": "execute-snapshot", "tables": ["shop.a"], "sent_us": sent_us})
        answers = (answer(state, sent_us=sent_us),)
        PlannerMessages(inbox).hand_back(batch.described(), {}, OpenSnapshots(answers=answers))
        assert list(inbox.signals()) == left


def test_a_stream_without_a_checkpoint_resumes_also_before_a_batch_has_read_the_log(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    PlannerMessages(inbox).hand_back(FakeBatch(9).described(), {}, OpenSnapshots())
    position = End(FakeBatch(9).gtid, UUID, "", 0)
    assert inbox.hint() == position
    assert position.hint is None
    end, messages = FakeBatch(10).end(FakeBatch(10).gtid).described(), PlannerMessages(inbox)
    messages.hand_back(end, {}, OpenSnapshots())
    messages.hand_back(FakeBatch(11).described(), {}, OpenSnapshots())
    assert inbox.hint() == end.ends[0], "the ledger has the set; this is the last position that is known"


def test_the_planner_learns_how_many_tasks_run_at_once(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    messages, states = PlannerMessages(inbox), {"shop.a": TableState("shop.a", "live")}
    for slots in (2, 16):
        messages.hand_back(FakeBatch(9).described(), states, OpenSnapshots(), slots)
        assert inbox.sink_tables() == SinkTables(frozenset(states), slots=slots)
    PlannerMessages(inbox).resume(states, OpenSnapshots())
    assert inbox.sink_tables().slots == 0, "a new run has other executors"


def test_tables_that_a_stream_without_a_checkpoint_reads(tmp_path: Path) -> None:
    """The kill prevented the report of a batch in which one table was complete and the re-read of another began."""
    inbox = ControlFolder(str(tmp_path))
    PlannerMessages(inbox).resume({"shop.a": TableState("shop.a", "live")}, OpenSnapshots())
    assert inbox.sink_tables() == SinkTables()  # no stream was here
    end = FakeBatch(8).end(FakeBatch(8).gtid).described()
    PlannerMessages(inbox).hand_back(end, {"shop.b": TableState("shop.b", "live")}, OpenSnapshots())
    states = {"shop.a": TableState("shop.a", "live"), "shop.b": TableState("shop.b", "snapshotting", since_epoch=9)}
    PlannerMessages(inbox).resume(states, OpenSnapshots())
    assert inbox.sink_tables() == SinkTables(frozenset({"shop.a"}))
    suspended = {
        f"shop.{name}": TableState(f"shop.{name}", name)
        for name in ("stale", "stopped", "excluded", "dropped", "settling")
    }
    PlannerMessages(inbox).resume(suspended, OpenSnapshots())
    stale = frozenset({"shop.stale", "shop.excluded"})  # the second only if the patterns include it again
    assert inbox.sink_tables() == SinkTables(frozenset(suspended), stale, frozenset({"shop.settling"}))
