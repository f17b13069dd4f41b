"""What is told of snapshots, batch by batch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from headgate.carrier import ReadingProgress
from headgate.control import BatchFacts, Notification, OpenSnapshots, batch_notifications

A, B = "shop.a", "shop.b"


def reading(since: int = 1, state: str = "reading", last: str = "5") -> dict[str, Any]:
    return {"state": state, "since_epoch": since, "maximum_key": "9", "last_processed_key": last}


class Story:
    """Batches one after the other; what is kept between them goes through JSON, as in the ledger."""

    def __init__(self) -> None:
        self.open = OpenSnapshots()
        self.notifications: list[Notification] = []
        self._epoch = 0

    def batch(self, *actions: dict[str, Any], **facts: Any) -> list[Notification]:
        self._epoch += 1
        readings = {table: ReadingProgress(**one) for table, one in facts.pop("readings", {}).items()}
        batch_facts = BatchFacts("p", self._epoch, 1000 * self._epoch, actions=actions, readings=readings, **facts)
        before = self.open
        self.open, notifications = batch_notifications(before, batch_facts)
        assert batch_notifications(before, batch_facts) == (self.open, notifications), (
            "the same batch is told in the same way"
        )
        self.open = OpenSnapshots.from_dict(json.loads(json.dumps(self.open.to_dict())))
        self.notifications += [Notification.from_dict(json.loads(json.dumps(one.to_dict()))) for one in notifications]
        ids = [one.event_id for one in self.notifications]
        assert len(ids) == len(set(ids)), "no two events are the same one"
        return notifications


def short(notifications: list[Notification]) -> list[tuple[str, ...]]:
    return [(one.id, one.type) for one in notifications]


def snapshot_action(name: str, *tables: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "execute-snapshot", "tables": list(tables), **more}


def test_a_snapshot_that_a_signal_asks_for() -> None:
    story = Story()
    notifications = story.batch(
        snapshot_action("s", A, B), readings={A: reading(1), B: {"state": "waits"}}, rows={A: 6}
    )
    assert short(notifications) == [("s", "STARTED"), ("s", "IN_PROGRESS")]
    assert notifications[0].aggregate_type == "Incremental Snapshot"
    assert notifications[0].additional_data == {"connector_name": "p", "epoch": "1", "data_collections": f"{A},{B}"}
    assert notifications[0].timestamp == 1000
    assert notifications[1].additional_data == {
        "connector_name": "p", "epoch": "1", "data_collections": f"{A},{B}", "current_collection_in_progress": A,
        "maximum_key": "9", "last_processed_key": "5",
    }  # fmt: skip
    notifications = story.batch(readings={A: reading(1, "read", "9"), B: reading(2, "read")}, rows={A: 4})
    data = [(one.type, one.additional_data) for one in notifications]
    assert [(kind, details.get("total_rows_scanned"), details.get("status")) for kind, details in data] == [
        ("IN_PROGRESS", None, None), ("TABLE_SCAN_COMPLETED", "10", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "0", "EMPTY"), ("COMPLETED", None, None),
    ]  # fmt: skip
    assert {details["data_collections"] for _, details in data} == {f"{A},{B}"}
    assert replace(story.open, answers=()) == OpenSnapshots()
    assert story.batch(readings={A: {"state": "done"}}) == []


def test_tables_are_requested_by_the_sinks_and_runs_whether_or_not_signals_have_times() -> None:
    story = Story()
    request = {"id": "ddl-1-shop.a", "type": "resnapshot", "tables": [A], "sent_us": 7}
    story.batch(request, snapshot_action("s", B), readings={A: reading(1), B: {"state": "waits"}})
    assert story.open.requested == {A}
    story.batch({"id": "run-1", "type": "resnapshot", "tables": [B]}, readings={A: reading(1, "read"), B: reading(2)})
    assert story.open.requested == {B}
    story.batch(readings={B: reading(2, "read")})
    assert story.open.requested == frozenset()


def test_tables_that_nobody_asked_for_are_the_initial_snapshot() -> None:
    story = Story()
    notifications = story.batch(readings={A: reading(1), B: {"state": "waits"}}, rows={A: 5})
    assert [(one.aggregate_type, one.id, one.type) for one in notifications] == [
        ("Initial Snapshot", "initial-1", "STARTED"), ("Initial Snapshot", "initial-1", "IN_PROGRESS"),
    ]  # fmt: skip
    story.batch(readings={A: reading(1, "read"), B: reading(2), "shop.new": {"state": "waits"}}, rows={A: 1, B: 1})
    notifications = story.batch(readings={B: reading(2, "read"), "shop.new": reading(3, "read")}, rows={B: 1})
    assert notifications[-1].type == "COMPLETED"
    assert notifications[-1].additional_data["data_collections"] == f"{A},{B},shop.new"


def test_pause_and_resume_speak_of_what_is_under_way() -> None:
    story = Story()
    story.batch(snapshot_action("s", A), readings={A: reading(1)}, rows={A: 5})
    notifications = story.batch({"id": "p1", "type": "pause-snapshot"}, readings={A: {"state": "waits"}})
    assert short(notifications) == [("s", "PAUSED")]
    assert notifications[0].additional_data["signal"] == "p1"
    notifications = story.batch({"id": "r1", "type": "resume-snapshot"}, readings={A: reading(1, "read")}, rows={A: 5})
    assert [one.type for one in notifications] == ["RESUMED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert short(story.batch({"id": "p2", "type": "pause-snapshot"})) == [("p2", "PAUSED")]


def test_what_is_stopped_is_aborted() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, B), readings={A: reading(1), B: {"state": "waits"}})
    notifications = story.batch({"id": "x", "type": "stop-snapshot", "tables": [B]}, readings={A: reading(1)})
    assert short(notifications) == [("s", "ABORTED"), ("s", "IN_PROGRESS")]
    assert notifications[0].additional_data["data_collections"] == B
    assert notifications[0].additional_data["signal"] == "x"
    notifications = story.batch({"id": "y", "type": "stop-snapshot", "tables": [A]})
    assert short(notifications) == [("s", "ABORTED")], "and not completed"
    assert replace(story.open, answers=()) == OpenSnapshots()


def test_a_stopped_table_is_in_no_later_list() -> None:
    story = Story()
    waits = {"state": "waits"}
    story.batch(snapshot_action("s", A, B), {"id": "p", "type": "pause-snapshot"}, readings={A: waits, B: waits})
    story.batch({"id": "x", "type": "stop-snapshot", "tables": [B]}, readings={A: waits})
    notifications = story.batch({"id": "r", "type": "resume-snapshot"}, readings={A: reading(3, "read")}, rows={A: 1})
    assert [(one.type, one.additional_data["data_collections"]) for one in notifications] == [
        ("RESUMED", A), ("IN_PROGRESS", A), ("TABLE_SCAN_COMPLETED", A), ("COMPLETED", A),
    ]  # fmt: skip


def test_a_bad_signal_is_answered() -> None:
    story = Story()
    notifications = story.batch({"id": "s/1", "type": "execute-snapsho", "tables": [], "error": "unknown signal type"})
    assert [(one.id, one.aggregate_type, one.type) for one in notifications] == [("s/1", "Signal", "REJECTED")]
    assert notifications[0].additional_data["reason"] == "unknown signal type"
    refused = {B: ["NO_PRIMARY_KEY", "a table without a key"]}
    notifications = story.batch(
        snapshot_action("t", A, error="…", refused=refused, unmatched=["bad"]),
        readings={A: reading(2, "read")},
        rows={A: 1},
    )
    assert [one.type for one in notifications[:2]] == ["REJECTED", "STARTED"]
    scans = [one.additional_data for one in notifications if one.type == "TABLE_SCAN_COMPLETED"]
    assert [(scan["scanned_collection"], scan["status"], scan["total_rows_scanned"]) for scan in scans] == [
        (B, "NO_PRIMARY_KEY", "0"), ("bad", "UNKNOWN_SCHEMA", "0"), (A, "SUCCEEDED", "1"),
    ]  # fmt: skip
    assert notifications[-1].type == "COMPLETED"
    (scan,) = story.batch(snapshot_action("u", refused=refused))
    assert scan.additional_data["data_collections"] == B


def test_a_reading_that_fails_later_ends_with_the_reason() -> None:
    story = Story()
    story.batch(snapshot_action("s", A, B), readings={A: reading(1), B: {"state": "waits"}})
    refused = {t: {t: ["SQL_EXCEPTION", f"no {t}"]} for t in (A, B)}
    refusals = [snapshot_action("s", late=True, error=f"{t}: no", refused=refused[t]) for t in (A, B)]
    notifications = story.batch(*refusals)
    scans = [one.additional_data for one in notifications if one.type == "TABLE_SCAN_COMPLETED"]
    assert [(scan["status"], scan["reason"]) for scan in scans] == [("SQL_EXCEPTION", f"no {t}") for t in (A, B)]
    assert notifications[-1].type == "COMPLETED"


def test_a_table_that_goes_away_is_said_to_be_gone() -> None:
    story = Story()
    story.batch(snapshot_action("s", A), readings={A: {"state": "waits"}})
    notifications = story.batch()
    assert [one.type for one in notifications] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert notifications[0].additional_data["status"] == "UNKNOWN_SCHEMA"


def test_a_chunk_that_gave_nothing_keeps_the_snapshot_open() -> None:
    story = Story()
    notifications = story.batch(snapshot_action("s", A), readings={A: reading(1, "read")}, rows={A: 3}, missed={A})
    assert [one.type for one in notifications] == ["STARTED", "IN_PROGRESS"]
    assert story.batch() == [], "it was not taken yet"
    notifications = story.batch(
        {"id": "redo-1-0", "type": "redo", "tables": [A]}, readings={A: reading(1, "read")}, rows={A: 2}
    )
    assert notifications[-2].additional_data["total_rows_scanned"] == "5"
    assert [one.type for one in notifications] == ["IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_a_table_that_is_read_anew_counts_its_rows_anew() -> None:
    story = Story()
    story.batch(snapshot_action("s", A), readings={A: reading(1)}, rows={A: 6})
    story.batch({"id": "ddl-1-a", "type": "resnapshot", "tables": [A]}, readings={A: reading(2)}, rows={A: 2})
    notifications = story.batch(readings={A: reading(2, "read")}, rows={A: 2})
    scans = [
        (one.id, one.additional_data["total_rows_scanned"])
        for one in notifications
        if one.type == "TABLE_SCAN_COMPLETED"
    ]
    assert scans == [("s", "4"), ("ddl-1-a", "4")], "one reading serves both"
    assert sorted(short(notifications)[-2:]) == [("ddl-1-a", "COMPLETED"), ("s", "COMPLETED")]


def test_a_table_that_is_held_after_its_last_chunk() -> None:
    story = Story()
    last = {A: reading(1, "read")}
    story.batch(snapshot_action("s", A), readings=last, suspended={A: ("stale", "altered")})
    assert len(story.open.snapshots) == 1, "it is read again"
    story = Story()
    notifications = story.batch(snapshot_action("s", A), readings=last, suspended={A: ("stopped", "dropped")})
    assert notifications[-2].additional_data["status"] == "SKIPPED"
    assert notifications[-2].additional_data["reason"] == "dropped"


def test_long_lists_of_tables_are_cut() -> None:
    tables = [f"d.t{n}" for n in range(150)]
    (notification, *_) = Story().batch(
        snapshot_action("s", *tables), readings={table: {"state": "waits"} for table in tables}
    )
    names = notification.additional_data["data_collections"].split(",")
    assert len(names) == 101
    assert names[-1] == "… and 50 more"


def test_ids_differ_between_batches_and_pipelines() -> None:
    facts = BatchFacts("p", 1, 0, actions=[snapshot_action("s", A)])
    others = [replace(facts, epoch=2), replace(facts, pipeline="q"), replace(facts, actions=[snapshot_action("t", A)])]
    ids = {batch_notifications(OpenSnapshots(), one)[1][0].event_id for one in (facts, *others)}
    assert len(ids) == 4
