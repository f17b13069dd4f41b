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
        self.told: list[Notification] = []
        self._epoch = 0

    def batch(self, *actions: dict[str, Any], **facts: Any) -> list[Notification]:
        self._epoch += 1
        readings = {table: ReadingProgress(**one) for table, one in facts.pop("readings", {}).items()}
        given = BatchFacts("p", self._epoch, 1000 * self._epoch, actions=actions, readings=readings, **facts)
        before = self.open
        self.open, told = batch_notifications(before, given)
        assert batch_notifications(before, given) == (self.open, told), "the same batch is told in the same way"
        self.open = OpenSnapshots.from_dict(json.loads(json.dumps(self.open.to_dict())))
        self.told += [Notification.from_dict(json.loads(json.dumps(one.to_dict()))) for one in told]
        ids = [one.event_id for one in self.told]
        assert len(ids) == len(set(ids)), "no two events are the same one"
        return told


def short(told: list[Notification]) -> list[tuple[str, ...]]:
    return [(one.id, one.type) for one in told]


def asked(name: str, *tables: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "execute-snapshot", "tables": list(tables), **more}


def test_a_snapshot_that_a_signal_asks_for() -> None:
    story = Story()
    told = story.batch(asked("s", A, B), readings={A: reading(1), B: {"state": "waits"}}, rows={A: 6})
    assert short(told) == [("s", "STARTED"), ("s", "IN_PROGRESS")]
    assert told[0].aggregate_type == "Incremental Snapshot"
    assert told[0].additional_data == {"connector_name": "p", "epoch": "1", "data_collections": f"{A},{B}"}
    assert told[0].timestamp == 1000
    assert told[1].additional_data == {
        "connector_name": "p", "epoch": "1", "data_collections": f"{A},{B}", "current_collection_in_progress": A,
        "maximum_key": "9", "last_processed_key": "5",
    }  # fmt: skip
    told = story.batch(readings={A: reading(1, "read", "9"), B: reading(2, "read")}, rows={A: 4})
    data = [(one.type, one.additional_data) for one in told]
    assert [(kind, found.get("total_rows_scanned"), found.get("status")) for kind, found in data] == [
        ("IN_PROGRESS", None, None), ("TABLE_SCAN_COMPLETED", "10", "SUCCEEDED"),
        ("IN_PROGRESS", None, None), ("TABLE_SCAN_COMPLETED", "0", "EMPTY"), ("COMPLETED", None, None),
    ]  # fmt: skip
    assert story.open == OpenSnapshots()
    assert story.batch(readings={A: {"state": "done"}}) == []


def test_tables_that_nobody_asked_for_are_the_initial_snapshot() -> None:
    story = Story()
    told = story.batch(readings={A: reading(1), B: {"state": "waits"}}, rows={A: 5})
    assert [(one.aggregate_type, one.id, one.type) for one in told] == [
        ("Initial Snapshot", "initial-1", "STARTED"), ("Initial Snapshot", "initial-1", "IN_PROGRESS"),
    ]  # fmt: skip
    story.batch(readings={A: reading(1, "read"), B: reading(2), "shop.new": {"state": "waits"}}, rows={A: 1, B: 1})
    told = story.batch(readings={B: reading(2, "read"), "shop.new": reading(3, "read")}, rows={B: 1})
    assert told[-1].type == "COMPLETED"
    assert told[-1].additional_data["data_collections"] == f"{A},{B},shop.new"


def test_pause_and_resume_speak_of_what_is_under_way() -> None:
    story = Story()
    story.batch(asked("s", A), readings={A: reading(1)}, rows={A: 5})
    told = story.batch({"id": "p1", "type": "pause-snapshot"}, readings={A: {"state": "waits"}})
    assert short(told) == [("s", "PAUSED")]
    assert told[0].additional_data["signal"] == "p1"
    told = story.batch({"id": "r1", "type": "resume-snapshot"}, readings={A: reading(1, "read")}, rows={A: 5})
    assert [one.type for one in told] == ["RESUMED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert short(story.batch({"id": "p2", "type": "pause-snapshot"})) == [("p2", "PAUSED")]


def test_what_is_stopped_is_aborted() -> None:
    story = Story()
    story.batch(asked("s", A, B), readings={A: reading(1), B: {"state": "waits"}})
    told = story.batch({"id": "x", "type": "stop-snapshot", "tables": [B]}, readings={A: reading(1)})
    assert short(told) == [("s", "ABORTED"), ("s", "IN_PROGRESS")]
    assert told[0].additional_data["data_collections"] == B
    assert told[0].additional_data["signal"] == "x"
    told = story.batch({"id": "y", "type": "stop-snapshot", "tables": [A]})
    assert short(told) == [("s", "ABORTED")], "and not completed"
    assert story.open == OpenSnapshots()


def test_a_bad_signal_is_answered() -> None:
    story = Story()
    told = story.batch({"id": "s/1", "type": "execute-snapsho", "tables": [], "error": "unknown signal type"})
    assert [(one.id, one.aggregate_type, one.type) for one in told] == [("s/1", "Signal", "REJECTED")]
    assert told[0].additional_data["reason"] == "unknown signal type"
    refused = {B: ["NO_PRIMARY_KEY", "a table without a key"]}
    told = story.batch(
        asked("t", A, error="…", refused=refused, unmatched=["bad"]), readings={A: reading(2, "read")}, rows={A: 1}
    )
    assert [one.type for one in told[:2]] == ["REJECTED", "STARTED"]
    scans = [one.additional_data for one in told if one.type == "TABLE_SCAN_COMPLETED"]
    assert [(scan["scanned_collection"], scan["status"], scan["total_rows_scanned"]) for scan in scans] == [
        (B, "NO_PRIMARY_KEY", "0"), ("bad", "UNKNOWN_SCHEMA", "0"), (A, "SUCCEEDED", "1"),
    ]  # fmt: skip
    assert told[-1].type == "COMPLETED"


def test_a_reading_that_fails_later_ends_with_the_reason() -> None:
    story = Story()
    story.batch(asked("s", A, B), readings={A: reading(1), B: {"state": "waits"}})
    refusals = [asked("s", error=f"{t}: no", refused={t: ["SQL_EXCEPTION", f"no {t}"]}) for t in (A, B)]
    told = story.batch(*refusals)
    scans = [one.additional_data for one in told if one.type == "TABLE_SCAN_COMPLETED"]
    assert [(scan["status"], scan["reason"]) for scan in scans] == [("SQL_EXCEPTION", f"no {t}") for t in (A, B)]
    assert told[-1].type == "COMPLETED"


def test_a_table_that_goes_away_is_said_to_be_gone() -> None:
    story = Story()
    story.batch(asked("s", A), readings={A: {"state": "waits"}})
    told = story.batch()
    assert [one.type for one in told] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert told[0].additional_data["status"] == "UNKNOWN_SCHEMA"


def test_a_chunk_that_gave_nothing_keeps_the_snapshot_open() -> None:
    story = Story()
    told = story.batch(asked("s", A), readings={A: reading(1, "read")}, rows={A: 3}, missed={A})
    assert [one.type for one in told] == ["STARTED", "IN_PROGRESS"]
    assert story.batch() == [], "it was not taken yet"
    told = story.batch({"id": "redo-1-0", "type": "redo", "tables": [A]}, readings={A: reading(1, "read")}, rows={A: 2})
    assert told[-2].additional_data["total_rows_scanned"] == "5"
    assert [one.type for one in told] == ["IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_a_table_that_is_read_anew_counts_its_rows_anew() -> None:
    story = Story()
    story.batch(asked("s", A), readings={A: reading(1)}, rows={A: 6})
    story.batch({"id": "ddl-1-a", "type": "resnapshot", "tables": [A]}, readings={A: reading(2)}, rows={A: 2})
    told = story.batch(readings={A: reading(2, "read")}, rows={A: 2})
    scans = [(one.id, one.additional_data["total_rows_scanned"]) for one in told if one.type == "TABLE_SCAN_COMPLETED"]
    assert scans == [("s", "4"), ("ddl-1-a", "4")], "one reading serves both"
    assert sorted(short(told)[-2:]) == [("ddl-1-a", "COMPLETED"), ("s", "COMPLETED")]


def test_a_table_that_is_held_after_its_last_chunk() -> None:
    story = Story()
    last = {A: reading(1, "read")}
    story.batch(asked("s", A), readings=last, suspended={A: ("stale", "altered")})
    assert len(story.open.snapshots) == 1, "it is read again"
    story = Story()
    told = story.batch(asked("s", A), readings=last, suspended={A: ("stopped", "dropped")})
    assert told[-2].additional_data["status"] == "SKIPPED"
    assert told[-2].additional_data["reason"] == "dropped"


def test_long_lists_of_tables_are_cut() -> None:
    tables = [f"d.t{n}" for n in range(150)]
    (told, *_) = Story().batch(asked("s", *tables), readings={table: {"state": "waits"} for table in tables})
    names = told.additional_data["data_collections"].split(",")
    assert len(names) == 101
    assert names[-1] == "… and 50 more"


def test_ids_differ_between_batches_and_pipelines() -> None:
    facts = BatchFacts("p", 1, 0, actions=[asked("s", A)])
    others = [replace(facts, epoch=2), replace(facts, pipeline="q"), replace(facts, actions=[asked("t", A)])]
    ids = {batch_notifications(OpenSnapshots(), one)[1][0].event_id for one in (facts, *others)}
    assert len(ids) == 4
