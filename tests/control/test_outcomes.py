"""What becomes of a signal, batch by batch; between batches it goes through JSON, as in the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.test_events import A, B, Story, reading, snapshot_action


def answers(story: Story) -> list[tuple[str, str, str | None]]:
    return [(one.id, one.state.value, one.reason) for one in story.open.answers]


def late_refusal(name: str, table: str = A) -> dict[str, Any]:
    """What the planner reports if it cannot read a table of a signal that an earlier batch took."""
    reason = "bad filter"
    return snapshot_action(name, late=True, error=f"{table}: {reason}", refused={table: ["SQL_EXCEPTION", reason]})


def test_a_snapshot_is_taken_runs_and_is_done() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, sent_us=7), readings={A: {"state": "waits"}})
    assert answers(story) == [("s", "taken", None)]
    assert (story.open.answers[0].sent_us, story.open.answers[0].tables) == (7, (A,))
    story.batch(readings={A: reading(2)}, rows={A: 6})
    assert answers(story) == [("s", "running", None)]
    story.batch(readings={A: reading(2, "read")}, rows={A: 1})
    assert answers(story) == [("s", "done", None)]
    assert (story.open.answers[0].at_ms, story.open.answers[0].is_over) == (3000, True)


def test_what_was_not_read_is_the_reason() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, error=f"{B}: no key"), readings={A: reading(1, "read")}, rows={A: 1})
    assert answers(story) == [("s", "partly", f"{B}: no key")]
    story.batch(snapshot_action("t", A), readings={A: reading(2, "read")}, suspended={A: ("stopped", "altered")})
    assert answers(story)[0] == ("t", "refused", f"{A}: altered"), "none of its tables was read"
    story.batch(snapshot_action("u", error="no table of this pipeline matches x"))
    assert answers(story)[0] == ("u", "refused", "no table of this pipeline matches x")
    story.batch(snapshot_action("v", A), readings={A: {"state": "waits"}})
    story.batch(late_refusal("v"))
    assert answers(story)[0] == ("v", "refused", f"{A}: bad filter")


def test_a_table_that_was_read_earlier_counts() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, B), readings={A: reading(1, "read"), B: {"state": "waits"}}, rows={A: 1})
    story.batch(late_refusal("s", B), readings={A: {"state": "done"}})
    assert answers(story) == [("s", "partly", f"{B}: bad filter")]


def test_a_stopped_snapshot_names_the_signal() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, B), readings={A: reading(1), B: {"state": "waits"}}, rows={A: 1})
    story.batch({"id": "x", "type": "stop-snapshot", "tables": [A]}, readings={B: reading(2)}, rows={B: 1})
    assert answers(story) == [("x", "done", None), ("s", "running", f"signal x stopped {A}")]
    story.batch({"id": "y", "type": "stop-snapshot", "tables": [B]})
    assert answers(story)[1:] == [("x", "done", None), ("s", "stopped", f"signal x stopped {A}; signal y stopped {B}")]


@pytest.mark.parametrize("kind", ["log", "forget-table", "stop-snapshot"])
def test_a_signal_about_which_nothing_else_is_sent_is_notified_of_once(kind: str) -> None:
    story, action = Story(), {"id": "s", "type": kind, "tables": [A] if kind == "forget-table" else []}
    (notification,) = story.batch(action)
    assert (notification.aggregate_type, notification.type, notification.id) == ("Signal", "DONE", "s")
    assert notification.additional_data["signal_type"] == kind
    assert ("reason" in notification.additional_data) == (kind == "stop-snapshot")
    assert story.batch() == []
    assert [state for _, state, _ in answers(story)] == ["done"]


def test_other_signals_have_their_notifications() -> None:
    story = Story()
    story.batch(snapshot_action("s", A), readings={A: {"state": "waits"}})
    notifications = story.batch(
        {"id": "p", "type": "pause-snapshot", "tables": []},
        {"id": "run-1", "type": "resnapshot", "tables": [B]},
        readings={A: {"state": "waits"}, B: {"state": "waits"}},
    )
    assert [one.type for one in notifications] == ["PAUSED", "STARTED"]
    assert answers(story) == [("p", "done", None), ("s", "taken", None)], "requests of the sinks have no answer"


def test_a_refused_part_of_forgetting() -> None:
    story = Story()
    story.batch({"id": "f", "type": "forget-table", "tables": [A], "error": f"{B} is in source.tables"})
    story.batch({"id": "g", "type": "forget-table", "tables": [], "error": f"{B} is in source.tables"})
    assert [state for _, state, _ in answers(story)] == ["refused", "partly"]


def test_the_last_answers_and_all_open_ones_are_kept() -> None:
    story = Story()
    story.batch(snapshot_action("open", A), readings={A: {"state": "waits"}})
    for number in range(30):
        story.batch({"id": f"s{number}", "type": "log", "tables": []}, readings={A: {"state": "waits"}})
    names = [name for name, _, _ in answers(story)]
    assert names == [*(f"s{number}" for number in range(29, 9, -1)), "open"]
    story.batch({"id": "s20", "type": "log", "tables": [], "sent_us": 5}, readings={A: {"state": "waits"}})
    assert [one.sent_us for one in story.open.answers if one.id == "s20"] == [5, None], "another signal of this id"


def test_no_answer_of_a_batch_is_lost_before_readers_have_seen_it() -> None:
    story, waits = Story(), {A: {"state": "waits"}}
    story.batch(snapshot_action("old", A), readings=waits)
    story.batch(*({"id": f"s{number}", "type": "log", "tables": []} for number in range(30)), readings=waits)
    assert len(story.open.answers) == 31
    story.batch(readings={A: reading(3, "read")}, rows={A: 1})
    states = answers(story)
    assert (len(states), states[-1]) == (20, ("old", "done", None)), "it began first and ended last"


def keyed_answers(story: Story) -> list[tuple[str, int | None, str, str | None]]:
    return [(one.type, one.sent_us, one.state.value, one.reason) for one in story.open.answers]


def test_an_id_that_is_used_again_keeps_the_open_answer() -> None:
    story = Story()
    story.batch(snapshot_action("x", A, sent_us=1), readings={A: {"state": "waits"}})
    story.batch({"id": "x", "type": "pause-snapshot", "tables": [], "sent_us": 2}, readings={A: {"state": "waits"}})
    story.batch(snapshot_action("x", error="no table matches", sent_us=3), readings={A: {"state": "waits"}})
    expected = [("execute-snapshot", 3, "refused", "no table matches"), ("pause-snapshot", 2, "done", None)]
    assert keyed_answers(story) == [*expected, ("execute-snapshot", 1, "taken", None)]
    story.batch(readings={A: reading(4, "read")}, rows={A: 1})
    assert keyed_answers(story) == [*expected, ("execute-snapshot", 1, "done", None)]


def test_two_snapshots_of_one_id_end_each_for_itself() -> None:
    story, waits = Story(), {"state": "waits"}
    first, second = snapshot_action("x", A, sent_us=1), snapshot_action("x", B, sent_us=2)
    story.batch(first, second, readings={A: waits, B: waits})
    story.batch({"id": "p", "type": "pause-snapshot", "sent_us": 3}, readings={A: waits, B: waits})
    story.batch(late_refusal("x", B), readings={A: reading(3)}, rows={A: 1})
    assert keyed_answers(story)[1:] == [
        ("execute-snapshot", 2, "refused", f"{B}: bad filter"), ("execute-snapshot", 1, "running", None),
    ]  # fmt: skip
    story.batch({"id": "x", "type": "stop-snapshot", "tables": [A], "sent_us": 4})
    assert keyed_answers(story)[-1] == ("execute-snapshot", 1, "stopped", f"signal x stopped {A}")


def test_signals_without_a_time_are_told_apart_while_one_is_open() -> None:
    story = Story()
    story.batch(snapshot_action("x", A), readings={A: {"state": "waits"}})
    story.batch({"id": "x", "type": "pause-snapshot", "tables": []}, readings={A: {"state": "waits"}})
    assert answers(story) == [("x", "done", None), ("x", "taken", None)]
