"""The planner lives through commits, restarts, signals and faults, and the target is the source."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.carrier import ImageFolder, _image_files
from headgate.catalog import TablePatterns, expressions
from headgate.control import OpenSnapshots
from headgate.errors import (
    BinlogPurgedError,
    ConfigError,
    ConnectionLostError,
    DefiniteServerError,
    HistoryRewrittenError,
    OffsetFormatError,
    ServerBehindError,
    ServerSettingError,
    UnsupportedError,
    error_line,
)
from headgate.gtid import GtidSet
from headgate.offsets import Hint, Last, ReadState, SinkPosition, TableRead
from headgate.positions import KINDS, LogPlace, Position
from headgate.spark import BatchPlan, MySQLCDCDataSource, Notes, Options
from tests.domains import Domains, domains
from tests.fix_carrier import FakeTable
from tests.spark.model import OTHER, UUID, FakeControl, FakeServer, FakeTarget, FakeTopic, Stream, gtids

HINT = {"hint": {"gtid": str(gtids(1)), "server_uuid": UUID, "file": "binlog.000001", "pos": 9}}
BASE = {"url": "mysql://u@h", "tables": "d.*", "chunk_rows": "4", "slots": "2", "retry_seconds": "30"}


def applied(transactions: int, last: Last | None = None) -> str:
    """The option: what the sinks have applied."""
    return SinkPosition(str(gtids(transactions)), UUID, last).to_json()


def stream(server: FakeServer, control: FakeControl | None = None, **options: str) -> Stream:
    """With sinks that have applied what the hint names, if ``applied`` is not given."""
    control = control or FakeControl()
    hint = control.hint()
    if hint is not None:
        options = {"applied": SinkPosition(hint.gtid, hint.server_uuid).to_json(), **options}
    return Stream(server, control, Options.parse({**BASE, **options}))


def source(*tables: tuple[str, int]) -> FakeServer:
    server = FakeServer()
    for name, rows in tables:
        server.create(name, set(range(rows)))
    return server


def queued(run: Stream) -> list[str]:
    return [read.table for read in run.offset.snapshot.tables if read.is_queued]


keys = st.integers(-3, 25)


@pytest.fixture(autouse=True)
def third_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.positions.KINDS", (Domains, *KINDS))


tables = st.sampled_from(["d.a", "d.b", "d.c"])
change = st.tuples(tables, st.sampled_from(["put", "put", "del", "move"]), keys, keys)
step = st.one_of(
    st.tuples(st.just("commit"), st.lists(change, min_size=1, max_size=4)),
    st.tuples(st.just("batch"), st.just(set[tuple[str, int]]())),
    st.tuples(st.just("batch"), st.sets(st.tuples(tables, st.integers(0, 3)), min_size=4)),
    st.tuples(st.just("restart"), st.sampled_from([{}, {"append": "true"}, {"append": "false"}])),
    st.tuples(st.just("again"), tables),
    st.tuples(st.just("signal"), st.sampled_from(["pause-snapshot", "resume-snapshot"])),
    st.tuples(
        st.just("execute"),
        st.tuples(tables, st.sampled_from([None, "v = 0", "v = 2"]), st.sampled_from(["INCREMENTAL", "BLOCKING"])),
    ),
    st.tuples(st.just("replay"), st.none()),
)


@settings(max_examples=100)
@given(
    st.dictionaries(tables, st.one_of(st.sets(keys), st.sets(keys, min_size=12)), min_size=1),
    st.lists(step, min_size=6, max_size=25),
    st.sampled_from(["true", "false"]),
    st.sampled_from(["int", "decimal"]),
    st.integers(1, 4),
    st.sampled_from([("batch", "1"), ("start", "1"), ("batch", "0.3")]),
    st.sampled_from(["{}", '{"d.a": "v = 0"}']),
    st.sampled_from([gtids, domains]),
)
def test_target_is_the_source_whatever_happens(
    rows: dict[str, set[int]],
    steps: list[tuple[str, Any]],
    append: str,
    key_type: str,
    slots: int,
    cut_share: tuple[str, str],
    conditions: str,
    position: Callable[..., Position],
) -> None:
    """Also by positions of a kind that only ``tests/domains.py`` knows."""
    server = FakeServer(key_type=key_type, position=position)
    for name, table_keys in rows.items():
        server.create(name, table_keys)
    cut, share = cut_share
    more = {"slots": str(slots), "snapshot_cut": cut, "snapshot_share": share, "conditions": conditions}
    chosen: dict[str, Any] = {"append": append, **more}
    run = stream(server, **chosen)
    for number, (what, argument) in enumerate(steps):
        if what == "commit":
            server.commit(*argument)
        elif what == "batch":
            run.batch(redo=argument)
            run.clock.sleep(0.1 * number)
        elif what == "replay":
            run.batch(replay=True)
        elif what == "restart":
            chosen |= argument
            run.options = Options.parse({**BASE, **chosen})
            run.restart()
        elif what == "signal":
            run.control.files[f"signals/{number}"] = {"type": argument}
        elif what == "execute":
            table, condition, kind = argument
            data: dict[str, Any] = {"data-collections": [table], "type": kind}
            if condition is not None:
                data["additional-conditions"] = [{"data-collection": table, "filter": condition}]
            run.control.files[f"signals/{number}"] = {"type": "execute-snapshot", "data": data}
        else:
            run.control.files[f"signals/{number}"] = {"type": "resnapshot", "tables": [argument]}
    run.control.files["signals/end"] = {"type": "resume-snapshot"}
    run.drain()
    assert run.offset.position == position(len(server.log))
    assert not run.offset.snapshot.is_pending
    notifications = run.sink.notifications
    assert replace(run.sink.open, answers=()) == OpenSnapshots(), "every snapshot that was begun was told to its end"
    assert all(answer.is_over for answer in run.sink.open.answers), "and so was every signal"
    assert len({one.event_id for one in notifications}) == len(notifications)
    begun = {one.id for one in notifications if one.type == "STARTED"}
    assert begun == {one.id for one in notifications if one.type == "COMPLETED"}
    for name in server.states[-1]:
        if name in conditions:
            target = run.sink.targets[name]
            assert target.filtered, name
            held, source = {key: row[0] for key, row in target.rows.items()}, server.rows(name)
            assert held.items() <= source.items(), "what is there is as it is at the source"
            assert held.items() >= {key: value for key, value in source.items() if value == 0}.items()
            continue
        assert run.sink.targets[name].live, name
        assert {k: row[0] for k, row in run.sink.targets[name].rows.items()} == server.rows(name), name


def test_a_stream_that_has_nothing_to_do_for_a_second_says_so() -> None:
    server, control = source(("d.a", 3)), FakeControl()
    run = stream(server, control, poll_ms="400")
    run.drain()
    count = len(control.waiting)
    server.commit(("d.a", "put", 9, 9))
    assert run.batch()
    for _ in range(2):
        assert not run.batch()
    assert len(control.waiting) == count, "a pause between two batches is none"
    for _ in range(9):
        assert not run.batch()
    assert [epoch for epoch, *_ in control.waiting[count:]] == [run.offset.epoch]
    run.control.files["signals/1"] = {"type": "pause-snapshot"}
    assert run.batch()
    for _ in range(9):
        assert not run.batch()
    assert control.waiting[-1] == (run.offset.epoch, control.waiting[-1][1], True), "reading is paused"
    assert len(control.waiting) == count + 2
    run.restart()
    for _ in range(9):
        assert not run.batch()
    assert len(control.waiting) == count + 3, "a planner that begins says it, too"


def test_a_stream_that_asks_seldom_says_at_once_that_it_waits() -> None:
    run = stream(source(("d.a", 3)), poll_ms="5000")
    run.drain()
    assert [epoch for epoch, *_ in run.control.waiting] == [run.offset.epoch]


@pytest.mark.parametrize("poll_ms", [400, 60_000])
def test_an_idle_stream_says_again_in_time_that_the_server_has_nothing(poll_ms: int) -> None:
    run = stream(source(("d.a", 3)), poll_ms=str(poll_ms))
    run.drain()
    begun = run.clock.now
    while run.clock.now < begun + 130:
        assert not run.batch()
        if run.control.waiting:
            assert run.control.waiting_until_us is not None
            assert run.clock.wall_us() < run.control.waiting_until_us - 10_000_000, "there is time for an answer"
    times = [seen_us / 1e6 for _, seen_us, _ in run.control.waiting]
    assert all(9.9 <= second - first <= 10.5 + poll_ms / 1000 for first, second in pairwise(times))
    assert len(times) >= 2, "also of a server that is asked once a minute"
    assert len(times) <= 15, "not at each look"


def test_the_plan_says_how_many_rows_a_batch_reads() -> None:
    """Chunks of four rows, two slots; of a table's first chunk, above its greatest key, nothing is expected."""
    server = source(("d.a", 10), ("d.b", 2), ("d.c", 0))
    run = stream(server)
    plans = []
    while True:
        before = run.offset
        if not run.batch():
            break
        plans.append(BatchPlan.of(before, run.offset))
    expected = {"d.a": 10, "d.b": 2, "d.c": 0}
    for table, rows in expected.items():
        parts = [plan.tables[table] for plan in plans if table in plan.tables]
        assert rows <= sum(part.rows for part in parts) <= rows + 4, table
        assert [part.first for part in parts] == [1, *[part.last + 1 for part in parts[:-1]]], table
        assert {part.rows_estimate for part in parts} == {rows}
        assert all(part.last <= part.chunks_estimate for part in parts)
    assert len([plan for plan in plans if "d.a" in plan.tables]) > 1
    assert {plan.behind for plan in plans} == {0}
    server.commit(("d.a", "put", 1, 1))
    server.commit(("d.a", "put", 2, 1))
    before = run.offset
    assert run.batch()
    assert BatchPlan.of(before, run.offset) == BatchPlan(run.offset.epoch, {}, transactions=2, behind=0)
    assert BatchPlan.of(None, run.offset).transactions is None


def test_nothing_new_gives_the_start_back() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    assert run.planner.latest(run.offset) is run.offset
    run.restart()
    assert run.planner.latest(run.offset) is run.offset, "also for a planner that begins"


def test_idle_planner_asks_once_a_poll() -> None:
    server = source(("d.a", 3))
    run = stream(server, poll_ms="500")
    run.drain()
    begun, query_count = run.clock.now, server.query_count
    for _ in range(100):
        assert run.planner.latest(run.offset) is run.offset
    assert server.query_count - query_count == 100
    assert run.clock.now - begun == pytest.approx(50.0), "it waits in between"


def test_epochs_are_at_least_the_wall_clock_and_the_ledger() -> None:
    run = stream(source(("d.a", 3)), epoch="99999999999999")
    assert run.offset.epoch == 99999999999999, "the ledger's newest batch is the one before the first"
    run.sink.last_epoch = 99999999999999
    assert run.batch()
    assert run.headers[0]["epoch"] == 100000000000000
    assert run.headers[0]["start_epoch"] == 99999999999999
    run = stream(source(("d.a", 3)))
    assert run.offset.epoch == 0
    assert run.batch()
    assert run.headers[0]["epoch"] == int(run.clock.now * 1000)
    run = stream(source(("d.a", 3)), written_epoch="99999999999999")
    assert run.batch()
    assert run.headers[0]["epoch"] == 100000000000000, "a lost batch wrote tables before the clock went back"
    assert run.headers[0]["start_epoch"] == 0


def test_small_tables_share_a_batch_and_large_ones_their_slots() -> None:
    run = stream(source(("d.a", 2), ("d.b", 3), ("d.c", 40)), chunk_rows="8")
    assert run.batch()
    first = run.headers[0]["tables"]
    assert first["d.a"]["last"]
    assert first["d.b"]["last"]
    assert not first["d.c"]["last"]
    run.drain()
    assert run.headers[-1]["tables"]["d.c"]["last"]
    assert sum("d.c" in header["tables"] for header in run.headers) > 2


def test_queued_tables_are_said_to_be_snapshotting() -> None:
    server = source(*((f"d.t{n}", 30) for n in range(6)))
    run = stream(server)
    run.batch()
    states = run.headers[0]["tables"]
    assert len(states) == 6
    epoch = run.offset.epoch
    assert {(info["state"], info["since_epoch"]) for info in states.values()} == {("queued", None), ("reading", epoch)}


def test_new_table_is_found_with_its_first_change() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    server.create("d.late", {1, 2, 3})
    server.commit(("d.late", "put", 9, 9))
    run.batch()
    assert run.headers[-1]["tables"]["d.late"]["first"]
    assert set(run.sink.targets["d.late"].rows) == {1, 2, 3, 9}


@pytest.mark.parametrize("start", ["current", "earliest", f"{UUID}:1"])
def test_streams_without_a_snapshot(start: str) -> None:
    server = source(("d.a", 30))
    server.commit(("d.a", "put", 1, 1))
    server.commit(("d.a", "put", 2, 1))
    run = stream(server, start=start)
    had = {"current": 2, "earliest": 0}.get(start, 1)
    assert run.offset.position == gtids(had)
    server.commit(("d.a", "put", 3, 1))
    run.batch()
    assert not run.headers[0]["tables"]
    assert len(run.sink.targets["d.a"].rows) == 3 - had


@pytest.mark.parametrize("append", ["true", "false"])
def test_an_initial_snapshot_with_the_changes_before_it(append: str) -> None:
    """Those of rows that are gone, too; the tables are the source after each batch."""
    server = source(("d.a", 3), ("d.b", 30))
    for number in range(7):
        server.commit(("d.a", "put", number, 1), ("d.b", "del", number, 0), ("d.b", "move", number + 9, number + 50))
    run = stream(server, start=f"{UUID}:1-2", snapshot_mode="initial", append=append, max_rows_per_batch="2")
    assert run.offset.position == gtids(2)
    server.commit(("d.a", "del", 0, 0))
    run.batch()
    assert GtidSet.parse(run.headers[0]["gtid"]) < gtids(8)
    run.drain()
    assert run.offset.position == gtids(8)
    assert all(target.live for target in run.sink.targets.values())
    assert {name: len(target.rows) for name, target in run.sink.targets.items()} == {
        name: len(server.rows(name)) for name in ("d.a", "d.b")
    }


def test_stream_without_checkpoint_goes_on_where_the_sinks_are() -> None:
    server = source(("d.a", 3), ("d.b", 3))
    control = FakeControl(deepcopy(HINT))
    control.files["finished"] = {"tables": ["d.a"]}
    server.commit(("d.a", "put", 1, 1))
    server.commit(("d.a", "put", 2, 1))
    run = stream(server, control)
    assert run.offset.position == gtids(1)
    assert queued(run) == ["d.b"]
    killed = stream(server, control, applied=applied(2), epoch="77")
    assert killed.offset.position == gtids(2), "the ledger's set, if the sinks were killed before they wrote the hint"
    killed.sink.last_epoch = 77
    assert killed.batch()
    del control.files["hint"]
    assert queued(stream(server, control)) == ["d.a", "d.b"], "nothing says where they are: read again"


def test_a_first_batch_that_is_repeated_begins_where_it_was_planned_to() -> None:
    """Spark asks for its beginning again, and the server has purged the log after the sinks' position meanwhile."""
    server = source(("d.a", 3))
    control = FakeControl(deepcopy(HINT))
    control.files["finished"] = {"tables": ["d.a"]}
    for number in range(3):
        server.commit(("d.a", "put", number, 1))
    run = stream(server, control)
    end = run.planner.latest(run.offset)
    planned = run.tasks(end)
    server.purged_to = 2
    again = stream(server, control)
    assert again.offset.position == gtids(3)
    assert again.offset.epoch == run.offset.epoch
    repeated = again.tasks(again.reread(end))
    assert [task.log and task.log.wanted for task in repeated] == [task.log and task.log.wanted for task in planned]
    assert repeated[0].header == planned[0].header, "no table counts as dropped"


def test_a_first_batch_in_which_nothing_was_to_do_is_repeated() -> None:
    server = source(("d.a", 3))
    control = FakeControl(deepcopy(HINT))
    control.files["finished"] = {"tables": ["d.a"]}
    server.commit(("d.a", "put", 0, 1))
    run = stream(server, control)
    end = run.offset
    server.commit(("d.a", "put", 1, 1))
    control.files["hint"]["gtid"] = str(gtids(2))
    (task,) = stream(server, control).tasks(end)
    assert task.log is None
    assert task.header is not None
    assert (task.header.start, task.header.gtid) == (str(gtids(1)), str(gtids(1)))


def test_stream_without_checkpoint_and_without_a_snapshot_goes_on_where_the_sinks_are() -> None:
    """Also if none of its tables was ever read; its start is for the first run only."""
    server = source(("d.a", 3))
    control = FakeControl(deepcopy(HINT))
    server.commit(("d.a", "put", 1, 1))
    server.commit(("d.a", "put", 2, 1))
    options = {"snapshot_mode": "no_data", "start": "earliest"}
    assert stream(server, control, **options).offset.position == gtids(1)
    del control.files["hint"]
    run = stream(server, control, **options)
    assert run.offset.position == gtids(0)
    assert queued(run) == []


def test_signal_is_taken_once_as_long_as_its_file_exists() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    run.control.files["signals/x"] = {"type": "resnapshot", "tables": ["*.a"]}
    end = run.planner.latest(run.offset)
    assert [action["id"] for action in Notes.from_dict(end.signals).actions] == ["x"]
    run.restart()
    assert run.planner.latest(end) is end, "the file is still there, and nothing happens"
    server.commit(("d.a", "put", 1, 1))
    after = run.planner.latest(end)
    assert Notes.from_dict(after.signals).taken == ("x",)
    assert not Notes.from_dict(after.signals).actions
    run.control.remove_signal("x")
    server.commit(("d.a", "put", 1, 1))
    assert Notes.from_dict(run.planner.latest(after).signals).taken == ()


def test_signal_is_taken_again_if_it_was_sent_again_when_it_was_done() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    run.control.files["signals/x"] = {"type": "pause-snapshot", "submitted_us": 1}
    end = run.planner.latest(run.offset)
    assert Notes.from_dict(end.signals).paused
    run.control.files["signals/x"] = {"type": "resume-snapshot", "submitted_us": 2}
    after = run.planner.latest(end)
    assert not Notes.from_dict(after.signals).paused
    assert Notes.from_dict(after.signals).taken == ("x",)


def test_a_typed_stream_removes_the_signals_of_a_batch_that_is_done() -> None:
    """It has no header by which its sink could."""
    server, control = source(("d.a", 3)), FakeControl()
    run = Stream(server, control, Options.parse({"url": "mysql://u@h", "table": "d.a", "slots": "2"}))
    run.drain()
    done = run.offset
    control.files["signals/x"] = {"type": "execute-snapshot", "data-collections": ["d.a"], "submitted_us": 1}
    end = run.planner.latest(done)
    assert Notes.from_dict(end.signals).taken == ("x",)
    run.restart()
    assert run.planner.tasks(done, end)
    assert [*control.signals()] == ["x"], "its batch may be planned again"
    control.files["signals/y"] = {"type": "pause-snapshot", "submitted_us": 2}
    after = run.planner.latest(end)
    assert [*control.signals()] == ["y"]
    assert Notes.from_dict(after.signals).taken == ("y",)
    assert Notes.from_dict(after.signals).sent == {"y": 2}
    control.files["signals/y"] = {"type": "resume-snapshot", "submitted_us": 3}
    last = run.planner.latest(after)
    assert [*control.signals()] == ["y"], "another one, which no batch has yet"
    run.planner.latest(last)
    assert not control.signals()


def test_a_signal_that_has_no_time_is_told_from_one_that_is_sent() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    run.control.files["signals/x"] = {"type": "pause-snapshot"}
    end = run.planner.latest(run.offset)
    run.control.files["signals/x"] = {"type": "resume-snapshot", "submitted_us": 2}
    assert not Notes.from_dict(run.planner.latest(end).signals).paused


def test_a_stream_that_has_lost_its_checkpoint_is_still_paused() -> None:
    server, control = source(("d.a", 3)), FakeControl(deepcopy(HINT))
    server.commit(("d.a", "put", 1, 1))
    control.files["finished"] = {"tables": ["d.a"], "paused": True}
    assert stream(server, control).offset.signals["paused"]
    server.commit(("d.a", "put", 2, 1))
    server.purged_to = 2
    purged = stream(server, control)
    assert purged.offset.signals["paused"]
    assert queued(purged) == ["d.a"], "it waits for the signal that ends the pause"
    del control.files["hint"]
    forgotten = stream(server, control)
    assert forgotten.offset.signals["paused"], "as when a run has forgotten its position"
    assert forgotten.batch(), "also without a change"
    assert forgotten.headers[-1]["tables"]["d.a"]["state"] == "queued", "so nobody calls it live"
    assert not forgotten.batch()


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ({"type": "dance"}, "unknown signal type 'dance'"),
        ({"type": "resnapshot", "tables": ["x"]}, "not a table pattern"),
        ({"type": "resnapshot"}, "no list of table patterns"),
        ({}, "unknown signal type None"),
        ({"problem": "x is not a JSON object"}, "x is not a JSON object"),
        ({"type": "redo", "table": "d.a", "chunk": {}}, "damaged"),
    ],
)
def test_signals_that_make_no_sense_are_answered_and_done_with(signal: dict[str, Any], message: str) -> None:
    run = stream(source(("d.a", 3)))
    run.drain()
    run.control.files["signals/x"] = signal
    assert run.batch()
    (action,) = run.headers[-1]["actions"]
    assert (action["id"], action["type"]) == ("x", signal.get("type", "not a signal"))
    assert message in action["error"]
    assert run.control.signals() == {}
    run.drain()


def test_a_condition_for_no_table_does_not_have_others_read_whole() -> None:
    run = stream(source(("d.a", 3), ("d.b", 3)))
    run.drain()
    conditions = [{"data-collection": one, "filter": "v = 0"} for one in ("d.a", r"d\.bb")]
    unmatched = expressions(["d.[x-z]*", "!d.tmp_*"])
    data = {"data-collections": ["d.a", "d.b", *unmatched], "additional-conditions": conditions}
    run.control.files["signals/x"] = {"type": "execute-snapshot", "data": data}
    assert run.batch()
    (action,) = run.headers[-1]["actions"]
    assert action["tables"] == ["d.a"]
    assert action["refused"]["d.b"][0] == "SKIPPED"
    assert "the signal's condition for d.bb is for none of its tables" in action["error"]
    assert "no table of this pipeline matches d.[x-z]*, !d.tmp_*" in action["error"]
    assert action["unmatched"] == unmatched
    run.drain()


def test_a_request_for_missing_rows_is_never_dropped() -> None:
    run = stream(source(("d.a", 3)))
    run.control.files["signals/x"] = {"type": "redo", "reason": "?"}
    with pytest.raises(OffsetFormatError, match="signal x requests missing rows"):
        run.planner.latest(run.offset)


def test_available_now_ends_with_what_was_there() -> None:
    server = source(("d.a", 30))
    server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.planner.freeze()
    batches = 0
    while run.batch():
        server.commit(("d.a", "put", batches, 1))
        batches += 1
    assert batches > 2
    assert run.offset.position == gtids(1)
    assert run.sink.targets["d.a"].live
    assert {header["gtid"] for header in run.headers} == {str(gtids(1))}, "one point in time for all chunks"


def test_all_tasks_of_a_batch_share_the_bytes_of_images_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a batch has more tasks than the run had slots when it began."""
    folders: list[ImageFolder] = []

    def rows(*_: Any, folder: ImageFolder, **__: Any) -> list[Any]:
        folders.append(folder)
        return []

    monkeypatch.setattr("headgate.spark._carried.carrier_rows", rows)
    monkeypatch.setattr("headgate.mysql.expect_login", lambda _: None)
    run = stream(source(("d.a", 100)), slots="2", start="snapshot", images_path=str(tmp_path))
    run.control.files["finished"] = {"slots": 8}
    tasks = run.tasks(run.planner.latest(run.offset))
    reader = MySQLCDCDataSource({**BASE, "images_path": str(tmp_path)}).streamReader(StructType([]))
    row = FakeTable().batch(1, [("c", 1, 1, "x" * 9999)])
    monkeypatch.setattr(_image_files, "ROWS_BYTES", 16 * row.nbytes)
    for task in tasks:
        assert [*reader.read(InputPartition(task))] == []
    assert len(folders) == len(tasks) == 8
    in_rows = [folder.serialised(row).size > row.nbytes for folder in folders for _ in range(5)]
    assert sum(in_rows) == 16


def test_batches_are_planned_for_the_executors_that_have_registered() -> None:
    """When a run begins, some may not have; later ones are found by the sinks, batch by batch."""
    server = source(("d.a", 100))
    run = stream(server, slots="2", start="snapshot")
    sizes = []
    for slots in (0, 5, 3, 0):
        run.control.files["finished"] = {"slots": slots}
        end = run.planner.latest(run.offset)
        sizes.append(len([task for task in run.tasks(end) if task.chunks]))
        run.offset = end
    assert sizes == [2, 5, 3, 2]
    for n in range(40):
        server.commit(("d.a", "put", n, 1))
    run.control.files["finished"] = {"slots": 4}
    end = run.planner.latest(run.offset)
    assert len([task for task in run.tasks(end) if task.log]) == 4


def test_backlog_over_files_is_divided_at_file_starts() -> None:
    server = source(("d.a", 1))
    run = stream(server, start="current", slots="3")
    for n in range(23):
        server.commit(("d.a", "put", n, 1))
    end = run.planner.latest(run.offset)
    tasks = run.tasks(end)
    parts = [GtidSet.parse(task.log.wanted) for task in tasks if task.log]
    assert len(parts) == 3
    assert parts[0] | parts[1] | parts[2] == gtids(23)
    assert not parts[0] & parts[1]
    assert not parts[1] & parts[2]
    assert all(part.count() % 5 == 0 for part in parts[:-1])
    assert [task.log.is_last for task in tasks if task.log] == [False, False, True]
    assert [task.log.hint.file if task.log.hint else None for task in tasks if task.log][1:] == [
        f"binlog.{part.count() // 5 + before:06d}" for part, before in ((parts[0], 1), (parts[0] | parts[1], 1))
    ]
    server.uuid = OTHER
    run.restart()
    (task,) = run.tasks(end)
    assert task.server_uuid == OTHER
    assert task.log is not None
    assert task.log.wanted == str(gtids(23))
    assert task.log.hint is None, "another server's files say nothing"


@pytest.mark.parametrize("window", ["rewind", "keep"])
def test_chunks_of_a_batch_that_met_another_server_are_read_in_a_later_one(window: str) -> None:
    server = source(("d.a", 20))
    run = stream(server, window=f'{{"*": "{window}"}}', conditions='{"d.a": "v = 0"}')
    end = run.planner.latest(run.offset)
    planned = [chunk for task in run.tasks(end) for chunk in task.chunks]
    assert len(planned) > 1
    for uuid in (OTHER, UUID, OTHER):
        server.uuid = uuid
        run.restart()
        tasks = run.tasks(end)
        assert not any(task.chunks for task in tasks), "also on the planned server, after it met the other one"
        redo = [one for task in tasks for one in task.redo]
        assert [one.whole_table for one in redo] == [window == "keep"] * len(planned)
        assert [replace(one.chunk, filter="v = 0") for one in redo] == planned
        assert len({one.chunk.filter for one in redo} - {None}) == (window == "rewind")
    options = {**BASE, "table": "d.a"}
    del options["tables"]
    typed = Stream(server, run.control, Options.parse(options))
    assert any(task.chunks for task in typed.tasks(end)), "a typed stream has no rows to ask for them later"


def test_hint_is_used_only_where_it_was_made() -> None:
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    (task,) = run.tasks(run.planner.latest(run.offset))
    assert task.log is not None
    assert task.log.hint is not None
    assert task.log.hint.file == "binlog.000001"
    run.control.files["hint"]["gtid"] = str(gtids(1))
    (task,) = run.tasks(run.planner.latest(run.offset))
    assert task.log is not None
    assert task.log.hint is None


def test_read_limit_cuts_in_log_order_and_always_gets_on() -> None:
    server = source(("d.a", 1))
    run = stream(server, start="current", max_rows_per_batch="3")
    for n in range(12):
        server.commit(*(("d.a", "put", 100 + n * 10 + i, 1) for i in range(2)))
    sizes = []
    while run.batch():
        sizes.append(GtidSet.parse(run.headers[-1]["gtid"]).count())
    assert sizes == [2, 4, 6, 8, 10, 12]
    assert [header["behind"] for header in run.headers] == [10, 8, 6, 4, 2, 0]


def test_settings_are_checked_at_every_planning_and_before_a_batch_is_handed_out() -> None:
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    end = run.planner.latest(run.offset)
    server.refuses = ServerSettingError("binlog_order_commits is OFF", setting="binlog_order_commits")
    run.restart()
    for ask in (partial(run.planner.tasks, run.offset, run.offset), run.planner.freeze, run.planner.initial):
        with pytest.raises(ServerSettingError):
            ask()
    with pytest.raises(ServerSettingError):
        run.planner.latest(run.offset)
    with pytest.raises(ServerSettingError):
        run.tasks(end)
    server.refuses = None
    assert run.planner.latest(run.offset).gtid == end.gtid


def test_purged_log_is_an_error_with_both_sets() -> None:
    server = source(("d.a", 1))
    run = stream(server)
    for n in range(3):
        server.commit(("d.a", "put", n, 1))
    server.purged_to = 2
    with pytest.raises(BinlogPurgedError) as caught:
        run.planner.latest(run.offset)
    assert caught.value.needed == str(gtids(2))
    assert caught.value.purged == str(gtids(2))


def test_server_that_is_behind_is_waited_for_but_not_for_ever() -> None:
    server = source(("d.a", 1))
    for n in range(3):
        server.commit(("d.a", "put", n, 1))
    run = stream(server)
    run.drain()
    server.replicates = True
    lost = server.log.pop()
    begun = run.clock.now
    with pytest.raises(ServerBehindError) as caught:
        run.planner.latest(run.offset)
    assert caught.value.missing == f"{UUID}:3"
    assert 30 <= run.clock.now - begun < 45
    server.log.append(lost)
    assert run.planner.latest(run.offset) is run.offset


def test_transient_faults_are_tried_again_and_connections_replaced() -> None:
    server = source(("d.a", 1))
    run = stream(server)
    server.fails = [ConnectionLostError("gone")] * 3
    before = server.connection_number
    troubles: list[dict[str, Any] | None] = []

    def sleep(_seconds: float) -> None:
        troubles.append(run.control.files.get("trouble"))
        run.clock.sleep(5)

    run.planner._retry = replace(run.planner._retry, sleep=sleep)
    assert run.batch()
    assert server.connection_number == before + 3
    line = error_line(ConnectionLostError("gone"))
    assert [trouble and trouble["error"] for trouble in troubles] == [line] * 3, "in the control folder, for people"
    assert len({trouble["since_us"] for trouble in troubles if trouble}) == 1
    assert [trouble and trouble["seconds"] for trouble in troubles] == [0.0, 5.0, 10.0], "whatever the clock shows"
    assert "trouble" not in run.control.files


def test_the_last_try_counts_as_trouble_too() -> None:
    server = source(("d.a", 1))
    run = stream(server)
    server.fails = [ConnectionLostError("gone")] * 1000
    with pytest.raises(ConnectionLostError):
        run.batch()
    assert run.control.files["trouble"]["seconds"] == pytest.approx(30), (
        "all of retry_seconds, so that a run does not begin again"
    )


@pytest.mark.parametrize("change", ["dropped", "altered"])
def test_a_table_that_changes_while_its_chunks_are_planned_is_planned_again(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A query by the old definition fails, which is no reason to end the stream."""
    server = source(("d.a", 9), ("d.b", 2))
    run, query, refused = stream(server), server.query, list[str]()

    def racing(sql: str) -> list[tuple[Any, ...]]:
        if "`a`" in sql and not refused:
            refused.append(sql)
            if change == "dropped":
                del server.states[-1]["d.a"]
            server.key_type = "bigint"
            raise DefiniteServerError("no such table, or no such column", code=1146)
        return query(sql)

    monkeypatch.setattr(server, "query", racing)
    run.drain()
    assert refused
    live = {name for name, target in run.sink.targets.items() if target.live}
    assert live == ({"d.b"} if change == "dropped" else {"d.a", "d.b"})


def test_a_query_that_fails_on_an_unchanged_table_ends_the_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    server = source(("d.a", 9))
    run = stream(server)

    def refuse(_sql: str) -> list[tuple[Any, ...]]:
        raise DefiniteServerError("corrupt", code=126)

    monkeypatch.setattr(server, "query", refuse)
    with pytest.raises(DefiniteServerError, match="corrupt"):
        run.batch()


def rewrite(server: FakeServer, first: int) -> None:
    """From this transaction on, the GTIDs name others."""
    server.commit_times |= dict.fromkeys(range(first, len(server.log) + 9), 77)


def test_a_rewritten_history_is_noticed_at_the_next_planning() -> None:
    """The newest transaction of each batch is compared, on the same connection as on another one."""
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    for _ in range(3):
        server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    assert run.offset.last == Last(f"{UUID}:3", 3000)
    assert run.offset.hint == Hint(UUID, "binlog.000001", 7)
    rewrite(server, 3)
    server.commit(("d.a", "put", 1, 1))
    with pytest.raises(HistoryRewrittenError) as caught:
        run.planner.latest(run.offset)
    assert caught.value.gtid == f"{UUID}:3"
    server.purged_to = 3
    assert run.batch(), "what is purged cannot be compared"


def test_a_promotion_with_transactions_that_have_no_original_time() -> None:
    """Each server's log has another time for them, so only one server's own are compared."""
    server = source(("d.a", 1))
    server.knows_original_times = False
    run = stream(server)
    run.drain()
    for number in (1, 2):
        server.commit(("d.a", "put", 1, number))
        assert run.batch()
        server.uuid = f"{UUID[:-1]}{number}"
        server.commit_times |= {one: one * 1000 + number for one in range(1, 9)}
    server.commit(("d.a", "put", 1, 3))
    assert run.batch()
    assert run.offset.last == Last(f"{UUID}:3", 3002)
    rewrite(server, 3)
    with pytest.raises(HistoryRewrittenError):
        run.planner.latest(run.offset)


@pytest.mark.parametrize("way", ["goes on", "ends", "restarts"])
def test_a_rewritten_history_is_noticed_before_a_stream_ends_or_waits(way: str) -> None:
    """Nothing is new, so only the comparison shows it."""
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    if way == "ends":
        run.planner.freeze()
    assert run.batch()
    rewrite(server, 1)
    if way == "restarts":
        run.restart()
    with pytest.raises(HistoryRewrittenError):
        run.planner.latest(run.offset)


def test_an_idle_stream_compares_once_and_again_on_another_connection() -> None:
    server = source(("d.a", 1))
    server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.drain()
    count = len(server.probes)
    run.drain()
    assert len(server.probes) == count
    server.drop()
    run.drain()
    assert server.probes[count:] == [(gtids(1), run.offset.hint)]


def test_a_rewritten_history_is_noticed_during_the_first_snapshot() -> None:
    server = source(("d.a", 30))
    for _ in range(7):
        server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    assert run.offset.last == Last(f"{UUID}:7", 7000)
    assert run.batch()
    rewrite(server, 7)
    server.commit(("d.a", "put", 1, 1))
    with pytest.raises(HistoryRewrittenError) as caught:
        run.batch()
    assert caught.value.gtid == f"{UUID}:7"


def test_headers_are_read_from_the_last_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dump reads both, and begins at the older one. Of many it reads the highest in the newest file that has new
    ones, and what is behind it.
    """
    monkeypatch.setattr("headgate.spark._server_history._FEW", 1)
    server = source(("d.a", 1))
    server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.drain()
    server.probes.clear()
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    assert server.probes == [(gtids(2), Hint(UUID, "binlog.000001", 5))]
    run.drain()
    server.probes.clear()
    for _ in range(15):
        server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    assert server.probes == [
        (gtids(2, 2), Hint(UUID, "binlog.000001", 6)),
        (gtids(17, 17), Hint(UUID, "binlog.000004", 4)),
        (gtids(16, 16), Hint(UUID, "binlog.000004", 21)),
    ]


def test_a_server_that_lost_what_it_had_is_not_waited_for() -> None:
    """It has the UUID of the planned one, and receives nothing. Another server may be behind."""
    server = source(("d.a", 1))
    for _ in range(3):
        server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.drain()
    server.log.pop()
    begun = run.clock.now
    with pytest.raises(HistoryRewrittenError):
        run.planner.latest(run.offset)
    assert run.clock.now - begun < 1
    server.uuid = OTHER
    with pytest.raises(ServerBehindError):
        run.planner.latest(run.offset)


def test_a_rewritten_history_is_noticed_if_the_connection_breaks_behind_the_planning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch's tasks would read the other history."""
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    end = run.planner.latest(run.offset)
    server.fails = [ConnectionLostError("gone")]
    drop = server.drop
    monkeypatch.setattr(server, "drop", lambda: [drop(), server.commit_times.update({1: 77})])
    with pytest.raises(HistoryRewrittenError):
        run.tasks(end)


def test_rewritten_history_is_noticed_before_a_batch_is_replayed() -> None:
    """After a restart Spark asks for the tasks of the last batch before the next one is planned."""
    server = source(("d.a", 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    server.commit(("d.a", "put", 1, 2))
    end = run.planner.latest(run.offset)
    rewrite(server, 2)
    run.restart()
    with pytest.raises(HistoryRewrittenError):
        run.tasks(end)
    del server.log[1:], server.states[2:]
    run.restart()
    with pytest.raises(HistoryRewrittenError):
        run.tasks(end)
    server.replicates = True
    assert run.tasks(end), "a server that is behind is refused by the tasks"


def test_rewritten_history_is_noticed_by_a_stream_without_a_checkpoint() -> None:
    server = source(("d.a", 1))
    for _ in range(3):
        server.commit(("d.a", "put", 1, 1))
    control = FakeControl()
    stream(server, control).drain()
    control.files["hint"]["gtid"] = str(gtids(1))  # a kill, or a late request, left an older one
    had = applied(3, Last(f"{UUID}:3", 3000))
    assert stream(server, control, applied=had).offset.position == gtids(3)
    rewrite(server, 3)
    with pytest.raises(HistoryRewrittenError):
        stream(server, control, applied=had)
    del server.log[2:]
    with pytest.raises(HistoryRewrittenError):
        stream(server, control, applied=had)


def test_a_stream_without_a_checkpoint_whose_ledger_is_gone_reads_its_tables_again() -> None:
    server, control = source(("d.a", 3)), FakeControl()
    stream(server, control).drain()
    assert control.sink_tables().finished == {"d.a"}
    assert queued(Stream(server, control, Options.parse(BASE))) == ["d.a"]


def test_no_table_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no table matches"):
        stream(FakeServer())


def test_typed_stream_without_control_folder() -> None:
    server = source(("d.a", 30))
    run = stream(server)
    run.planner._control = None
    while run.batch():
        server.commit(("d.a", "put", 3, 1)) if len(server.log) < 5 else None
    assert run.offset.snapshot.tables == (TableRead("d.a", ReadState.FOLLOWED),)
    assert {key: row[0] for key, row in run.sink.targets["d.a"].rows.items()} == server.rows("d.a")


def test_chunk_that_gave_nothing_is_read_again_and_the_table_leaves_append_mode() -> None:
    server = source(("d.a", 20))
    run = stream(server)
    run.batch(redo={("d.a", 0), ("d.a", 1)})
    assert run.headers[-1]["tables"]["d.a"]["append"]
    server.commit(("d.a", "put", 30, 0), ("d.a", "put", 1, 0))
    run.batch()
    assert not run.headers[-1]["tables"]["d.a"]["append"]
    assert {chunk.number for chunk in run.offset.snapshot.chunks} >= {0, 1}
    run.drain()
    assert run.sink.targets["d.a"].live


def test_changes_of_unread_ranges_come_as_soon_as_the_sinks_need_every_change() -> None:
    """A changelog is added while a table is being read, and a row that no chunk will bring is deleted."""
    server = source(("d.a", 20), ("d.b", 2))
    run = stream(server, slots="1")
    run.batch()
    assert run.headers[-1]["tables"]["d.a"]["append"]
    including(run, "d.*", slots="1", append="false")
    server.commit(("d.a", "del", 15, 0))
    end = run.planner.latest(run.offset)
    assert [task.log.unread for task in run.tasks(end) if task.log is not None] == [()]
    run.drain()
    assert {name: info["append"] for name, info in run.headers[1]["tables"].items()} == {"d.a": False, "d.b": False}
    assert all(target.live for target in run.sink.targets.values())


def test_chunk_whose_range_means_nothing_any_more_has_its_table_planned_anew() -> None:
    server, control = source(("d.a", 40)), FakeControl()
    run = stream(server, control)
    run.batch()
    chunk = run.offset.snapshot.chunks[-1]
    since = run.headers[-1]["tables"]["d.a"]["since_epoch"]
    control.files["signals/redo-1-0"] = {"type": "redo", "chunk": chunk.to_dict(), "whole_table": True}
    server.commit(("d.a", "put", 1, 1))
    run.batch()
    info = run.headers[-1]["tables"]["d.a"]
    assert info["since_epoch"] > since
    assert (info["first"], info["append"]) == (True, False)
    assert run.offset.snapshot.chunks[0].number == 0
    run.drain()
    assert run.sink.targets["d.a"].live


def test_available_now_moves_its_end_for_chunks_that_gave_nothing_but_not_for_ever() -> None:
    server = source(("d.a", 6))
    run = stream(server)
    run.planner.freeze()
    run.batch(redo={("d.a", 0)})
    server.commit(("d.a", "put", 1, 1))
    run.drain()
    assert run.offset.position == gtids(1)
    assert run.sink.targets["d.a"].live

    run = stream(source(("d.a", 6)))
    run.planner.freeze()
    for _ in range(100):
        run.server.commit(("d.a", "put", 1, 1))
        if not run.batch(redo={("d.a", 0)}):
            break
    assert run.offset.position.count() < 30, "the run ends"
    assert run.control.signals(), "and the next one has it to do"
    run.restart()
    run.drain()
    assert run.sink.targets["d.a"].live


@pytest.mark.parametrize("mode", ["initial", "initial_only"])
def test_a_run_that_ends_reads_just_until_rows_that_were_kept_are_exact(mode: str) -> None:
    server = source(("d.a", 6))
    run = stream(server, snapshot_mode=mode)
    run.planner.freeze()
    while not run.sink.targets.get("d.a", FakeTarget()).live:
        assert run.batch()
    for value in range(4):
        server.commit(("d.a", "put", value, 1))
    run.control.files["signals/settle-1"] = {"type": "settle", "gtid": str(gtids(2))}
    run.drain()
    assert run.offset.position == gtids(2)
    run.control.files["signals/settle-2"] = {"type": "settle", "gtid": "nonsense"}
    assert run.batch()
    assert "not a GTID set" in run.headers[-1]["actions"][0]["error"]


def test_a_run_that_ends_does_not_wait_for_transactions_that_a_failover_lost() -> None:
    server = source(("d.a", 6))
    run = stream(server)
    run.drain()
    run.control.files["signals/settle"] = {"type": "settle", "gtid": f"{gtids(9)},{OTHER}:1-5"}
    server.commit(("d.a", "put", 1, 1))
    run.planner.freeze()
    run.drain()
    assert run.offset.position == gtids(1)


def test_a_stream_that_only_reads_tables_does_not_wait_for_transactions_that_a_failover_lost() -> None:
    run = stream(source(("d.a", 6)), snapshot_mode="initial_only")
    run.drain()
    run.control.files["signals/settle"] = {"type": "settle", "gtid": f"{OTHER}:1-5"}
    run.server.commit(("d.a", "put", 1, 1))
    run.drain()
    assert run.offset.position == gtids(0)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_table_is_read_again_if_a_failover_lost_what_its_rows_were_read_with(is_same: bool) -> None:
    """The stream had not read the transaction. Another one has its number when a batch's end contains it."""
    server = source(("d.a", 6))
    run = stream(server)
    run.drain()
    windows = {"d.a": [{"gtid": str(gtids(2, 2)), "ts_us": 2000 if is_same else 1999}], "d.gone": []}
    run.control.files["signals/settle-1"] = {"type": "settle", "gtid": "", "windows": windows}
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    assert run.offset.position == gtids(1)
    assert [*Notes.from_dict(run.offset.signals).windows] == ["d.a"], "the transaction is not there yet"
    server.commit(("d.a", "put", 2, 1))
    assert run.batch()
    read = run.headers[-1]["tables"].get("d.a")
    assert (read is None) == is_same
    server.commit(("d.a", "put", 3, 1))
    assert run.batch()
    assert not Notes.from_dict(run.offset.signals).windows
    run.drain()
    assert run.sink.targets["d.a"].live


def settle(run: Stream, **windows: int) -> None:
    """Tables were read with a window that this transaction ends."""
    ends = {f"d.{table}": [{"gtid": str(gtids(last, last)), "ts_us": last * 1000}] for table, last in windows.items()}
    run.control.files["signals/settle"] = {"type": "settle", "gtid": "", "windows": ends}


def test_a_window_is_compared_once_on_a_connection() -> None:
    """Also if many tables have it. The next transactions wait, because a batch holds one."""
    server = source(("d.a", 6), ("d.b", 6))
    run = stream(server, max_rows_per_batch="1")
    run.drain()
    for key in range(6):
        server.commit(("d.a", "put", key, 1))
    settle(run, a=6, b=6)
    for _ in range(3):
        assert run.batch()
    assert run.offset.position == gtids(3)
    assert [part for part, _ in server.probes].count(gtids(6, 6)) == 1
    server.drop()
    assert run.batch()
    assert [part for part, _ in server.probes].count(gtids(6, 6)) == 2
    assert Notes.from_dict(run.offset.signals).windows.keys() == {"d.a", "d.b"}


def test_a_lost_window_of_a_table_that_is_left_out_reads_nothing() -> None:
    server = source(("d.a", 6), ("d.b", 6))
    run = stream(server)
    run.drain()
    settle(run, a=2, b=2)
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    including(run, "d.b")
    server.commit(("d.b", "put", 2, 1))
    server.commit_times[2] = 1999
    assert run.batch()
    assert run.headers[-1]["tables"].keys() == {"d.b"}, "it is read again"
    run.drain()
    assert run.sink.targets["d.b"].live


def test_a_stream_that_plans_for_long_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last report would be overdue before the plan is there, as if the server did not answer."""
    run = stream(source(("d.a", 3)))
    run.drain()
    while not run.control.waits:
        assert not run.batch()
    run.server.commit(("d.a", "put", 1, 1))
    waits, tables = list[bool](), run.server.tables

    def slow(patterns: TablePatterns) -> Any:
        run.clock.now += 100
        waits.append(run.control.waits)
        return tables(patterns)

    monkeypatch.setattr(run.server, "tables", slow)
    assert run.batch()
    assert waits
    assert not any(waits)


def test_a_stream_that_has_read_its_tables_waits_while_others_write() -> None:
    run = stream(source(("d.a", 3)), snapshot_mode="initial_only", poll_ms="400")
    run.drain()
    for key in range(9):
        run.server.commit(("d.a", "put", key, 1))
        assert not run.batch()
    assert run.control.waits


def including(run: Stream, patterns: str, **options: str) -> None:
    """The configuration changed: another planner goes on."""
    run.options = Options.parse({**BASE, **options, "tables": patterns})
    run.restart()


def test_tables_that_are_included_later_are_read_at_once_also_those_that_were_followed_before() -> None:
    server = source(("d.a", 6), ("d.b", 6))
    run = stream(server, tables="d.a,d.b")
    run.drain()
    including(run, "d.a")
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    server.commit(("d.b", "put", 1, 1))
    run.sink.targets["d.b"].live = False  # nobody follows it, so it is not what the sink believes
    run.control.files["finished"]["tables"].append("d.b")
    run.drain()
    server.create("d.c", {1, 2})
    including(run, "d.*")
    assert run.batch(), "without a change of any table"
    assert run.headers[-1]["tables"]["d.b"]["first"]
    assert not run.headers[-1]["tables"]["d.b"]["append"]
    run.drain()
    assert all(run.sink.targets[name].live for name in ("d.a", "d.b", "d.c"))
    assert run.offset.tables == ("d.*",)


def test_tables_that_are_included_later_wait_for_a_signal_and_are_followed_meanwhile() -> None:
    server = source(("d.a", 3), ("d.b", 30))
    run = stream(server, tables="d.a", snapshot_new_tables="false")
    run.drain()
    including(run, "d.a,d.b", snapshot_new_tables="false")
    run.drain()
    info = run.headers[-1]["tables"]["d.b"]
    assert (info["state"], info["since_epoch"]) == ("deferred", None), "other patterns make a batch"
    server.commit(("d.b", "put", 7, 1), ("d.a", "put", 7, 1))
    run.drain()
    assert set(run.sink.targets["d.b"].rows) == {7}
    run.restart()
    server.commit(("d.b", "put", 8, 1))
    run.drain()
    assert set(run.sink.targets["d.b"].rows) == {7, 8}, "nothing else, also after a restart"
    run.control.files["signals/x"] = {"type": "execute-snapshot", "data": {"data-collections": ["d\\.b"]}}
    run.drain()
    assert run.sink.targets["d.b"].live
    assert len(run.sink.targets["d.b"].rows) == 30


def test_a_snapshot_of_one_point_in_time_outlives_restarts_and_writers() -> None:
    server = source(("d.a", 40), ("d.b", 30))
    server.commit(("d.a", "put", 1, 1))
    began = str(gtids(1))
    run = stream(server, slots="1", snapshot_cut="start")
    assert Notes.from_dict(run.offset.signals).initial == began
    parts = 0
    while sum(target.live for target in run.sink.targets.values()) < 2:
        server.commit(("d.a", "put", parts, 1), ("d.b", "del", parts, 0), ("d.new", "put", 1, 1))
        run.restart()
        assert run.batch(replay=parts % 2 == 0)
        assert run.headers[-1]["gtid"] == began
        assert run.headers[-1]["behind"] == len(server.log) - 1
        parts += 1
    assert parts > 10
    assert Notes.from_dict(run.offset.signals).initial == began
    assert {key: row[0] for key, row in run.sink.targets["d.a"].rows.items()} == server.rows("d.a", 1)
    assert run.batch()
    assert run.headers[-1]["gtid"] == str(gtids(len(server.log)))
    run.drain()
    assert Notes.from_dict(run.offset.signals).initial is None
    assert all(run.sink.targets[name].live for name in ("d.a", "d.b", "d.new"))


@pytest.mark.parametrize("moved", [False, True])
def test_what_is_asked_for_after_the_first_snapshot_is_none_of_it(moved: bool) -> None:
    """Also if it is asked for at once; a chunk that gave nothing is."""
    server = source(("d.a", 3), ("d.b", 3))
    run = stream(server, slots="2")

    def goes_on(name: str, signal: dict[str, Any], redo: set[tuple[str, int]]) -> bool:
        run.control.files[f"signals/{name}"] = signal
        if moved:
            server.commit(("d.a", "put", len(server.log), 1))
        assert run.batch(redo=redo)
        assert run.offset.snapshot.chunks
        return Notes.from_dict(run.offset.signals).initial is not None

    assert goes_on("none", {"type": "log"}, {("d.a", 0)})
    assert goes_on("more", {"type": "log"}, set()), "the chunk is read again"
    assert not goes_on("again", {"type": "execute-snapshot", "data": {"data-collections": ["d.b"]}}, set())
    run.drain()
    assert run.sink.targets["d.b"].live


def test_a_snapshot_of_one_point_in_time_says_when_it_cannot_be() -> None:
    server = source(("d.a", 40), ("d.b", 30))
    run = stream(server, slots="1", snapshot_cut="start")
    assert run.batch(redo={("d.a", 0)})
    server.commit(("d.b", "put", 1, 1))
    assert run.batch()
    (redo, moved) = run.headers[-1]["actions"]
    assert redo["type"] == "redo"
    assert moved["type"] == "snapshot-cut"
    assert str(gtids(1)) in moved["error"]
    server.commit(("d.b", "put", 2, 1))
    assert run.batch()
    assert run.headers[-1]["gtid"] == str(gtids(1)), "what is left is of one point in time again"
    run.drain()
    assert not any(header["actions"] for header in run.headers[2:])


def test_a_snapshot_of_one_point_in_time_ends_where_its_log_is_purged() -> None:
    server = source(("d.a", 40))
    run = stream(server, slots="1", snapshot_cut="start")
    run.batch()
    for number in range(4):
        server.commit(("d.a", "put", number, 1))
    server.purged_to = 2
    with pytest.raises(BinlogPurgedError, match="purged log that was not read yet"):
        run.batch()


def test_a_watermark_is_written_for_each_batch_with_chunks_and_for_no_other() -> None:
    server = source(("d.a", 20))
    run = stream(server, slots="1", watermark="signal-table", signal_table="s.signals")
    assert server.watermarks == []
    run.drain()
    epochs = [header["epoch"] for header in run.headers]
    assert [(table, data) for table, data, _ in server.watermarks] == [
        ("s.signals", f'{{"epoch": {epoch}}}') for epoch in epochs
    ]
    server.commit(("d.a", "put", 1, 1))
    run.drain()
    assert len(run.headers) == len(server.watermarks) + 1
    run.planner.everything(None)
    assert len(run.headers) == len(server.watermarks)


def test_a_stream_does_not_change_between_gtids_and_places() -> None:
    server = source(("d.a", 3))
    run = stream(server, watermark="signal-table", signal_table="s.signals")
    server.commit(("d.a", "put", 1, 1))
    run.drain()
    server.position = lambda *_: LogPlace.before(UUID, 1, 1000)
    with pytest.raises(ServerSettingError, match="read again"):
        run.batch()


def test_tables_that_are_left_out_are_read_no_more() -> None:
    run = stream(source(("d.a", 40), ("d.b", 40)), slots="1")
    run.batch()
    including(run, "d.b")
    run.drain()
    assert "d.a" not in run.offset.snapshot.by_table
    assert run.sink.targets["d.b"].live
    assert not run.sink.targets["d.a"].live


def executes(table: str, condition: str) -> dict[str, Any]:
    """A signal that requests a part of a table."""
    conditions = [{"data-collection": table, "filter": condition}]
    return {"type": "execute-snapshot", "data": {"data-collections": [table], "additional-conditions": conditions}}


def test_a_table_of_which_a_part_was_requested_and_stopped_waits_for_a_signal_as_before() -> None:
    server = source(("d.a", 3), ("d.b", 30))
    run = stream(server, tables="d.a", snapshot_new_tables="false", slots="1")
    run.drain()
    including(run, "d.a,d.b", snapshot_new_tables="false", slots="1")
    server.commit(("d.a", "put", 7, 1))
    run.drain()
    stop = {"type": "stop-snapshot", "data": {"data-collections": ["d.b"]}}
    for name, signal in (("1", executes("d.b", "v = 0")), ("2", stop)):
        run.control.files[f"signals/{name}"] = signal
        assert run.batch()
    (read,) = run.offset.snapshot.tables
    assert (read.table, read.state) == ("d.b", ReadState.FOLLOWED)
    including(run, "d.a,d.b", slots="1")  # only tables that appear from now on are read at once
    server.commit(("d.b", "put", 9, 1))
    count = len(run.sink.read["d.b"])
    run.drain()
    assert len(run.sink.read["d.b"]) == count


def test_a_retried_part_does_not_narrow_a_read_of_the_whole_table_requested_with_it() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    run.control.files["signals/x"] = executes("d.a", "v = 0")
    assert run.batch(redo={("d.a", 0)})
    (redo,) = run.control.signals().values()
    run.control.files["signals/1"] = {"type": "resnapshot", "tables": ["d.a"]}
    assert redo["chunk"]["filter"] == "v = 0"
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    (header,) = [header for header in run.headers if "1" in [action["id"] for action in header["actions"]]]
    assert not header["tables"]["d.a"].get("partial")
    assert header["tables"]["d.a"]["last"]
    assert len(run.offset.snapshot.chunks) == 1
    run.drain()
    assert run.sink.targets["d.a"].live


def test_a_chunk_of_a_table_that_is_left_out_now_is_not_retried() -> None:
    run = stream(source(("d.a", 3), ("d.b", 3)))
    assert run.batch(redo={("d.a", 0)})
    including(run, "d.b")
    run.drain()
    assert not any(chunk.table == "d.a" for chunk in run.offset.snapshot.chunks)
    assert [action["tables"] for header in run.headers for action in header["actions"]] == [[]]
    assert "d.a" not in run.headers[-1]["tables"]


# --- the share of a snapshot


def test_chunks_leave_live_changes_their_share_of_the_time() -> None:
    server = source(("d.a", 4000))
    run = stream(server, chunk_rows="400", slots="2", snapshot_share="0.25")
    chunks, whole = 0.0, 0.0
    for number in range(60):
        server.commit(("d.b", "put", number, 0))
        read = len(run.sink.read.get("d.a", []))
        run.batch()
        took = (len(run.sink.read.get("d.a", [])) - read) * 0.01  # a row takes 10 ms, all else half a second
        run.clock.sleep(0.5 + took)
        chunks, whole = chunks + took, whole + 0.5 + took
    assert 0.1 <= chunks / whole <= 0.27
    last = run.offset.snapshot.by_table["d.a"].progress
    assert last is not None
    assert last.chunks_done > 20, "smaller ones"
    before = len(run.sink.read["d.a"])
    assert run.batch()
    assert len(run.sink.read["d.a"]) - before >= 700, "nobody waits for this one"


# --- signals out of a Kafka topic


def with_topic(server: FakeServer, topic: FakeTopic, **options: str) -> Stream:
    return Stream(server, FakeControl(), Options.parse({**BASE, **options}), topic=topic)


def ask(kind: str = "execute-snapshot", **data: Any) -> tuple[str, dict[str, Any]]:
    return "us", {"type": kind, "data": {name.replace("_", "-"): value for name, value in data.items()}}


def taken(run: Stream) -> list[str]:
    return [action["id"] for header in run.headers for action in header["actions"]]


def test_a_new_stream_begins_at_the_end_of_its_topic() -> None:
    topic = FakeTopic([ask("pause-snapshot")])
    run = with_topic(source(("d.a", 3)), topic)
    run.drain()
    assert taken(run) == []
    topic.messages += [("them", {}), ask(data_collections=["d[.]a"])]
    run.restart()
    run.drain()
    assert taken(run) == ["kafka-t-2"]
    assert run.headers[-1]["tables"]["d.a"]["signals"] == ["kafka-t-2"]


def test_a_stream_that_begins_again_before_its_first_batch_keeps_its_signals() -> None:
    """Spark asks where a stream begins until the first batch is committed."""
    topic, server = FakeTopic(), source(("d.a", 3))
    run = with_topic(server, topic)
    topic.messages.append(ask(data_collections=["d[.]a"]))
    again = Stream(server, run.control, run.options, topic=topic)
    again.drain()
    assert taken(again) == ["kafka-t-0"]


def test_messages_for_others_make_no_batch() -> None:
    topic = FakeTopic()
    run = with_topic(source(("d.a", 3)), topic)
    run.drain()
    topic.messages += [("them", {})] * 3
    assert not run.batch()


def test_a_topic_joins_a_stream_at_its_end() -> None:
    server, topic = source(("d.a", 3)), FakeTopic([ask("pause-snapshot")])
    run = stream(server)
    run.drain()
    run.topic = topic
    run.restart()
    topic.away = True
    assert not run.batch(), "nobody knows where it ends"
    topic.away = False
    assert not run.batch()
    topic.messages.append(ask(data_collections=["d[.]a"]))
    run.restart()
    run.drain()
    assert taken(run) == ["kafka-t-1"]


def test_what_a_message_says_badly_is_answered() -> None:
    topic = FakeTopic()
    run = with_topic(source(("d.a", 3)), topic)
    run.drain()
    topic.messages += [("us", {"problem": "no JSON"}), ask("snapshot"), ("us", {"id": "mine", **ask("log")[1]})]
    run.drain()
    (actions,) = [header["actions"] for header in run.headers if header["actions"]]
    assert [(action["id"], action["error"].partition(":")[0]) for action in actions] == [
        ("kafka-t-0", "no JSON"),
        ("kafka-t-1", "unknown signal type 'snapshot'"),
        ("mine", 'the data of a log signal has no "message"'),
    ]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["send", "other", "batch", "restart", "replan", "away", "back", "commit"]), max_size=30)
)
def test_each_message_is_taken_once_in_order_whatever_happens(steps: list[str]) -> None:
    server, topic = source(("d.a", 9)), FakeTopic()
    run = with_topic(server, topic)
    sent = []
    for step in steps:
        if step == "send":
            sent.append(f"kafka-t-{len(topic.messages)}")
            topic.messages.append(ask("log", message="x"))
        elif step == "other":
            topic.messages.append(("them", {}))
        elif step == "batch":
            run.batch()
        elif step == "restart":
            run.restart()
        elif step == "replan":
            run.planner.latest(run.offset)  # and nobody wrote it down
        elif step == "commit":
            server.commit(("d.a", "put", len(topic.messages), 0))
        else:
            topic.away = step == "away"
    topic.away = False
    run.drain()
    assert taken(run) == sent


def test_a_batch_holds_places_of_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover, where the log comes out of a relay; chunks are read as of ends in the newest part."""
    server = source(("d.a", 20))
    one = stream(server)
    assert one.batch()
    for n in range(8):
        server.commit(("d.a", "put", n, 0))
    server.part_end = 6
    ends = []
    while True:
        tasks: list[Any] = []
        planned = one.tasks
        monkeypatch.setattr(one, "tasks", lambda end, tasks=tasks, planned=planned: tasks.extend(planned(end)) or tasks)
        if not one.batch():
            break
        monkeypatch.setattr(one, "tasks", planned)
        last = one.offset.position.count()
        ends.append(last)
        for task in tasks:
            if task.log is not None:
                assert task.server_uuid == (OTHER if last <= 6 else UUID)
            if task.chunks:
                assert task.server_uuid == UUID
                assert last >= 6
    assert ends[:2] == [6, 8]
    assert one.sink.targets["d.a"].live


def test_a_range_with_changes_of_two_servers_is_refused() -> None:
    """A relay's log after a failover: the batch source has no next batch for the rest."""
    server = source(("d.a", 6))
    for n in range(5):
        server.commit(("d.a", "put", n, 0))
    server.part_end = 3
    planner = stream(server).planner
    with pytest.raises(UnsupportedError, match="in two ranges") as raised:
        planner.between(str(gtids(1)), str(gtids(5)))
    assert raised.value.fields["end"] == str(gtids(3))
    first, last = planner.between(str(gtids(1)), str(gtids(3)))
    assert (first.position, last.position) == (gtids(1), gtids(3))


def test_tables_as_of_a_place_that_no_window_can_begin_at() -> None:
    server = source(("d.a", 20))
    one = stream(server, snapshot_cut="start")
    assert one.batch()
    server.commit(("d.a", "put", 1, 0))
    server.part_end = 1
    with pytest.raises(BinlogPurgedError, match="relay_fallback"):
        one.batch()


def test_a_table_that_waits_to_be_read_again_is_read_without_the_checkpoint() -> None:
    """The checkpoint was lost with the request, which a batch had taken."""
    server, control = source(("d.a", 3), ("d.b", 3), ("d.c", 3)), FakeControl()
    server.commit(("d.a", "put", 1, 1))
    stream(server, control).drain()
    server.commit(("d.a", "put", 1, 1))
    control.files["finished"] = {
        "tables": ["d.a", "d.b", "d.c", "d.gone"], "stale": ["d.b", "d.gone"], "settling": ["d.c"],
    }  # fmt: skip
    run = stream(server, control)
    assert queued(run) == ["d.b", "d.c"], "the windows of one that settles were in the checkpoint"
    assert run.offset.snapshot.by_table["d.b"].state is ReadState.QUEUED, "its rows are not valid: headers say so"


@pytest.mark.parametrize("hidden_first", [True, False])
def test_a_stale_table_is_read_again_once_it_is_visible(hidden_first: bool) -> None:
    """The account cannot see it when its request is taken, or when its first chunk is planned."""
    server = source(("d.a", 3), ("d.b", 3))
    run = stream(server)
    run.drain()
    run.sink.stale = {"d.a"}
    run.control.files["signals/1"] = {"type": "resnapshot", "tables": ["d.a"]}
    if not hidden_first:
        run.control.files["signals/0"] = {"type": "pause-snapshot"}
        assert run.batch()
        assert queued(run) == ["d.a"]
        run.control.files["signals/2"] = {"type": "resume-snapshot"}
    server.hidden = {"d.a"}
    server.commit(("d.b", "put", 1, 1))
    run.drain()
    assert not run.offset.snapshot.is_pending
    assert not run.control.signals()
    server.hidden = set()
    server.commit(("d.b", "put", 1, 1))
    run.drain()
    assert [chunk.table for chunk in run.offset.snapshot.chunks] == ["d.a"]
    assert not run.sink.stale
    server.commit(("d.b", "put", 1, 1))
    run.drain()
    assert not run.offset.snapshot.chunks, "once"


def test_a_table_that_settles_is_not_read_again() -> None:
    server = source(("d.a", 3))
    run = stream(server)
    run.drain()
    run.control.files["finished"] |= {"settling": ["d.a"]}
    server.commit(("d.a", "put", 1, 1))
    assert run.batch()
    assert not run.offset.snapshot.chunks


def test_a_stream_that_loses_its_checkpoint_in_the_first_snapshot_goes_on_at_the_sinks_position() -> None:
    """Its tables are read again, but changelogs and messages need every change since then."""
    server, control = source(("d.a", 30)), FakeControl()
    run = stream(server, control)
    for _ in range(2):
        server.commit(("d.a", "put", 1, 1))
        assert run.batch()
    assert not control.sink_tables().finished
    had, epoch = run.offset.gtid, run.offset.epoch
    server.commit(("d.a", "put", 1, 1))
    begun = stream(server, control, epoch=str(epoch))
    assert begun.offset.gtid == had
    assert queued(begun) == ["d.a"]


def test_rewritten_history_is_noticed_if_new_transactions_come_first_in_the_log() -> None:
    """A server that lost its newest transactions followed another one, and then used their numbers again."""
    server = source(("d.a", 3))
    server.commit(("d.a", "put", 1, 1))
    run = stream(server)
    run.drain()
    server.commit(("d.a", "put", 1, 1))
    server.commit_times[1] = 7
    in_order = server.headers
    server.headers = lambda part, hint: in_order(part, hint)[::-1]  # type: ignore[method-assign]
    with pytest.raises(HistoryRewrittenError):
        run.batch()


@pytest.mark.parametrize("tables", [1, 3])
def test_a_table_whose_key_has_changed_begins_again_at_once(tables: int) -> None:
    """Not with the next transaction, which may be a day away."""
    names = [f"d.t{number}" for number in range(tables)]
    server = source(*((name, 100) for name in names))
    run = stream(server, slots=str(tables), chunk_rows="10")
    assert run.batch()
    assert {chunk.table for chunk in run.offset.snapshot.chunks} == {*names}
    server.key_type = "varchar"
    run.restart()
    chunks = run.planner.latest(run.offset).snapshot.chunks
    assert {chunk.table for chunk in chunks if chunk.lo is None} == {*names}


def test_a_table_is_forgotten_unless_the_stream_follows_it() -> None:
    """One is left out, one is gone at the server and new when it comes again."""
    server = source(("d.a", 3), ("d.b", 3), ("d.c", 3))
    run = stream(server, tables="d.*")
    run.drain()
    run.control.files["finished"] = {"tables": ["d.a", "d.b", "d.c"]}
    including(run, "d.*,!d.b")
    for state in server.states:
        del state["d.c"]
    run.sink.targets["d.c"].live = False
    names = ["d\\.a", "d\\.b", "d\\.c", "d\\.x"]
    run.control.files["signals/f"] = {"type": "forget-table", "data": {"data-collections": names}, "submitted_us": 7}
    run.drain()
    (action,) = [one for header in run.headers for one in header["actions"] if one["type"] == "forget-table"]
    assert (action["tables"], action["sent_us"]) == (["d.b", "d.c"], 7)
    assert action["error"] == "d.a is in source.tables: leave it out first; the lake has no table d.x"
    assert {read.table for read in run.offset.snapshot.tables} & {"d.b", "d.c"} == set()
