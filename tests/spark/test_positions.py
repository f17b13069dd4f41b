"""Signals that set the stream's position, taken at a planning or applied to a batch that is planned already."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.binlog_positions import positions_before
from headgate.carrier import SkipNote
from headgate.gtid import GtidSet
from headgate.spark._notes import Notes
from headgate.spark._positions import added_to_batch, batch_actions, set_positions
from tests.spark.model import OTHER, UUID, FakeServer, Stream, gtids
from tests.spark.test_planner import source, stream


def setting(position: str) -> dict[str, Any]:
    return {"type": "set-binlog-position", "data": {"gtid_set": position}}


def running() -> tuple[FakeServer, Stream]:
    """A stream that has read everything, and five transactions after that."""
    server = source(("d.a", 3))
    server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.drain()
    for key in range(5):
        server.commit(("d.a", "put", key, 1))
    return server, run


def wanted(run: Stream, end: Any) -> GtidSet:
    """What the tasks read of the log."""
    parts = [GtidSet.parse(task.log.wanted) for task in run.tasks(end) if task.log is not None]
    return GtidSet.parse(",".join(map(str, parts)))


def header(run: Stream, end: Any) -> Any:
    (batch_header,) = [task.header for task in run.tasks(end) if task.header is not None]
    return batch_header


def test_the_next_batch_begins_after_the_position() -> None:
    _, run = running()
    run.control.files["signals/x"] = setting(str(gtids(4)))
    end = run.planner.latest(run.offset)
    assert end.gtid_set == gtids(6)
    assert wanted(run, end) == gtids(6, 5)
    batch_header = header(run, end)
    assert (batch_header.start, batch_header.skips) == (str(gtids(1)), str(gtids(4, 2)))
    (action,) = batch_header.actions
    assert (action["id"], action["skipped"]) == ("x", str(gtids(4, 2)))
    run.restart()
    assert run.tasks(run.reread(end)) == run.tasks(end), "a replay leaves out the same"
    assert wanted(run, end) == gtids(6, 5)
    after = run.planner.latest(end)
    assert after is end, "it is taken once"


def test_a_position_at_the_log_s_end_makes_a_batch_without_log() -> None:
    server, run = running()
    run.control.files["signals/x"] = setting(str(gtids(6)))
    end = run.planner.latest(run.offset)
    assert (end.gtid_set, wanted(run, end), header(run, end).skips) == (gtids(6), GtidSet(), str(gtids(6, 2)))
    run.offset = end
    run.planner.finished(end)
    server.commit(("d.a", "put", 9, 1))
    assert wanted(run, run.planner.latest(end)) == gtids(7, 7)


def test_a_position_passes_what_the_server_has_purged() -> None:
    server, run = running()
    server.purged_to = 4
    run.control.files["signals/x"] = setting(str(gtids(5)))
    end = run.planner.latest(run.offset)
    assert wanted(run, end) == gtids(6, 6)


def test_a_planned_batch_leaves_it_out_in_every_replay_until_it_is_done() -> None:
    server, run = running()
    end = run.reread(run.planner.latest(run.offset))
    assert wanted(run, end) == gtids(6, 2)
    run.control.files["signals/x"] = setting(str(gtids(3)))
    run.restart()
    assert wanted(run, end) == gtids(6, 4)
    del run.control.files["signals/x"]
    run.restart()
    assert wanted(run, end) == gtids(6, 4), "also if the signal's file is gone"
    run.control.files["signals/y"] = setting(str(gtids(5)))
    batch_header = header(run, end)
    assert (wanted(run, end), batch_header.skips) == (gtids(6, 6), str(gtids(5, 2)))
    assert [action["id"] for action in batch_header.actions] == ["x", "y"]
    run.offset = end
    after = run.planner.latest(end)
    (answer,) = Notes.from_dict(after.signals).actions
    assert "error" not in answer, "sinks that leave the file there have it answered"
    run.planner.finished(end)
    assert "skip" in run.control.files, "its batch may still be the start of a planning"
    run.offset = after
    server.commit(("d.a", "put", 9, 1))
    run.offset = run.planner.latest(after)
    run.planner.finished(after)
    assert "skip" not in run.control.files
    assert "signals/y" not in run.control.files


def test_a_position_beyond_a_planned_batch_retries_its_chunks_and_is_taken_again() -> None:
    server, run = running()
    run.control.files["signals/again"] = {"type": "resnapshot", "tables": ["d.a"]}
    end = run.reread(run.planner.latest(run.offset))
    assert {task.retries for task in run.tasks(end) if task.chunks} == {None}
    server.commit(("d.a", "put", 9, 1))
    run.control.files["signals/x"] = setting(str(gtids(7)))
    (reason,) = {task.retries for task in run.tasks(end) if task.chunks}
    assert "not read" in str(reason)
    batch_header = header(run, end)
    assert (batch_header.skips, [action["id"] for action in batch_header.actions]) == (str(gtids(6, 2)), ["again"])
    run.offset = end
    after = run.planner.latest(end)
    assert header(run, after).skips == str(gtids(7, 7))
    assert wanted(run, after) == GtidSet()


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (str(gtids(99)), f"has not executed {gtids(99, 7)}"),
        (f"{OTHER}:1", "has not executed"),
        (str(gtids(3, 2)), f"lacks what the stream has read, {gtids(1)}"),
        ("nonsense", "nonsense"),
    ],
)
def test_positions_that_cannot_be_set(position: str, message: str) -> None:
    _, run = running()
    planned = run.planner.latest(run.offset)
    run.control.files["signals/x"] = setting(position)
    assert wanted(run, planned) == gtids(6, 2), "nor in a planned batch"
    end = run.planner.latest(run.offset)
    (action,) = Notes.from_dict(end.signals).actions
    assert message in action["error"]
    assert wanted(run, end) == gtids(6, 2)


def test_positions_of_servers_without_gtids() -> None:
    here = {"type": "set-binlog-position", "data": {"binlog_filename": "binlog.000002", "binlog_position": 400}}
    had, executed = positions_before(UUID, 1, 157), positions_before(UUID, 2, 900)
    result = set_positions({"x": here}, had, executed)
    assert result.skips == positions_before(UUID, 2, 400) - had
    note = added_to_batch({"x": here}, SkipNote(1), had, executed)
    assert note.gtid == result.skips
    assert batch_actions(note, positions_before(UUID, 2, 300)) == []
    assert (
        "the server has no GTIDs" in set_positions({"x": setting(str(gtids(1)))}, had, executed).answers["x"]["error"]
    )
    assert "the server has GTIDs" in set_positions({"x": here}, gtids(1), gtids(9)).answers["x"]["error"]


def test_several_positions_add_up() -> None:
    result = set_positions({"x": setting(str(gtids(3))), "y": setting(str(gtids(5)))}, gtids(1), gtids(9))
    assert result.skips == gtids(5, 2)
    assert [answer["skipped"] for answer in result.answers.values()] == [str(gtids(3, 2)), str(gtids(5, 4))]
