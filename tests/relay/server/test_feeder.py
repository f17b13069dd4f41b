"""The reader's thread: what it loads before it begins, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BinlogPurgedError, ConnectError, ScnOrderError, ServerBehindError, StorageError
from headgate.files import sync, write_all, write_json
from headgate.gtid import GtidSet
from headgate.mysql import Connection
from headgate.offsets import Last
from headgate.relay.databus import StreamPosition
from headgate.relay.server import (
    EventBatch,
    EventBuffer,
    LogicalSource,
    Relay,
    SubjectKind,
    _feeder,
    _position,
    _relay,
    _segments,
)
from headgate.replication import Ddl, Idle, LogBlock, Stopped, Transport, follow, resumable
from headgate.retrying import Failures, RetryPolicy, Stage
from tests.relay.server.rows import PERSON, UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, load_loops, physical, served
from tests.relay.server.test_avro import TABLE
from tests.replication import pretended
from tests.replication.pretended import Ends, Network, filtered


@pytest.fixture
def relay() -> Relay:
    with served() as server:
        return server.relay


@pytest.mark.parametrize("version", [1, 2])
def test_columns_of_every_type_are_loaded(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    events = []
    really = EventBuffer.read

    def noted(self: EventBuffer, *arguments: Any) -> EventBatch:
        batch = really(self, *arguments)
        events.append((batch.events, batch.control))
        return batch

    monkeypatch.setattr(EventBuffer, "read", noted)
    other = replace(TABLE, name="like_it")
    load_loops([TABLE, other], version)
    assert events == [(1, 1), (0, 1), (1, 1)]  # all, what is chosen of them, and that with fewer columns


def test_a_server_that_is_away_keeps_nobody_from_ending(relay: Relay) -> None:
    feeder = relay.partitions[1].feeder
    waits, pause = threading.Event(), feeder._pause

    def noticed(seconds: float) -> None:
        waits.set()
        pause(seconds)

    feeder._transport = Transport().retrying(first_seconds=1000.0, longest_seconds=1000.0, sleep=noticed)
    feeder._stop.clear()
    feeder.start()
    assert waits.wait(60)
    feeder.stop()
    feeder._thread.join(PATIENCE_SECONDS)
    assert not feeder._thread.is_alive()
    assert feeder.problem is None


def test_a_server_that_lacks_what_the_relay_has_is_told_with_what_helps(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when the relay begins, but as long as it is so."""

    def lacking(*_: Any, **__: Any) -> Iterator[Any]:
        raise ServerBehindError("the server lacks transactions", missing="some:5")

    feeder = relay.partitions[1].feeder
    feeder._stop.clear()
    monkeypatch.setattr(_feeder, "follow", lacking)
    monkeypatch.setattr(feeder._stop, "wait", lambda _seconds: feeder._stop.set())  # before it tries again
    feeder._run()
    assert feeder.problem is not None
    assert feeder.problem.startswith("the server has not executed some:5, which the relay has: wait for it")
    assert "if its binlog was reset, start the relay with --anew" in feeder.problem


def test_that_it_goes_on_is_told_once(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feeder, tries = relay.partitions[1].feeder, iter([ConnectError("nobody listens"), ConnectError("not yet"), None])
    stages: list[Stage] = []

    def again(*_: Any, **__: Any) -> Iterator[Any]:
        error = next(tries)
        if error is not None:
            raise error
        yield Idle(GtidSet(), is_end=False)
        stages.append(feeder.stage)  # nothing has come
        yield Idle(GtidSet())
        stages.append(feeder.stage)
        feeder._stop.set()
        yield Idle(GtidSet())

    feeder._stop.clear()
    feeder._failures = Failures(RetryPolicy.every(0))
    monkeypatch.setattr(_feeder, "follow", again)
    with caplog.at_level("WARNING", "headgate"):
        feeder._run()
    assert (stages, feeder.problem) == ([Stage.RETRYING, Stage.WORKING], None)
    away = " (see docs/runbook.md#server-away)"
    first, second, back = (record.getMessage() for record in caplog.records)
    assert (first, second) == (f"person: nobody listens{away}", f"person: not yet{away}")
    assert re.fullmatch(r"person: resumed after \d+ s", back)


def test_what_a_purged_log_means_for_a_relay(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def purged(*_: Any, **__: Any) -> Iterator[Any]:
        raise BinlogPurgedError("the tables have to be read again", needed="some:5", purged="some:1-5")

    feeder = relay.partitions[1].feeder
    feeder._stop.clear()
    monkeypatch.setattr(_feeder, "follow", purged)
    feeder._run()
    assert feeder.failed
    assert feeder.problem is not None
    assert "was not read yet (some:5; purged: some:1-5): start the relay with --anew" in feeder.problem


def state_in(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / "partition-1.json").read_text())
    return state


def test_where_it_begins_is_kept_before_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill right after the first start loses nothing: the next one begins at the same place, whatever it is told."""
    with served(state=tmp_path) as server:
        feeder = server.relay.partitions[1].feeder
    seen: list[dict[str, Any]] = []

    def follow(*_: Any, **__: Any) -> Iterator[Any]:
        seen.append(state_in(tmp_path))
        feeder._stop.set()
        yield Idle(GtidSet())

    monkeypatch.setattr(_feeder, "follow", follow)
    (tmp_path / "partition-1.json").unlink(missing_ok=True)
    feeder._stop.clear()
    feeder._run()
    feeder.stop()
    assert [(one["gtid"], one["scn"]) for one in seen] == [("", -1)]


def test_its_last_transaction_is_kept_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that came after the log was last read to the end of all transactions: it comes again."""
    begun: list[tuple[Last | None, str]] = []

    def read(*items: Any) -> None:
        with served(state=tmp_path) as server:
            feeder = server.relay.partitions[1].feeder

            def follow(*_: Any, last: Last | None, had_by: str, **__: Any) -> Iterator[Any]:
                begun.append((last, had_by))
                yield from items
                feeder._stop.set()
                yield Stopped("d.t", "", "", "", 0)

            monkeypatch.setattr(_feeder, "follow", follow)
            feeder._stop.clear()
            feeder._run()
            feeder.stop()

    first, second = people([1], gtids=[f"{UUID}:1"], pos=[100], ts_us=7), people([2], gtids=[f"{UUID}:2"], pos=[200])
    read(block(first), Idle(GtidSet.parse(f"{UUID}:1"), None, Last(f"{UUID}:1", 7), UUID), block(second))
    read(Idle(GtidSet.parse(f"{UUID}:1-3"), None, Last(f"{UUID}:3", 9), UUID))
    read()
    assert begun == [(None, ""), (Last(f"{UUID}:1", 7), UUID), (Last(f"{UUID}:3", 9), UUID)]
    state = state_in(tmp_path)
    assert (state["gtid"], state["server_uuid"]) == (f"{UUID}:1-3", UUID)
    assert Last.from_dict(state["last"]) == Last(f"{UUID}:3", 9)


def test_windows_are_on_disk_before_the_state_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the machine that loses the newest pages of a file would cost the whole buffer."""
    calls: list[str] = []

    def synced(path: Path) -> None:
        calls.append(path.name)
        sync(path)

    def saved(path: Path, value: Any) -> None:
        calls.append(path.name)
        write_json(path, value)

    monkeypatch.setattr(_segments, "sync", synced)
    monkeypatch.setattr(_position, "write_json", saved)
    with served(state=tmp_path, disk_bytes=1 << 20, memory_bytes=256 << 10) as server:
        feeder = server.relay.partitions[1].feeder
        for n in (1, 2):
            server.put(whole(n))
            feeder._file.save()
        feeder._file.save()
        (file,) = (tmp_path / "partition-1").iterdir()
        assert calls == [file.name, "partition-1", "partition-1.json", file.name, "partition-1.json"]
        server.put(block(people(range(900), gtids=[f"{UUID}:3"] * 900, pos=[300] * 900)))
        calls.clear()
        feeder._file.save()
        newer = max(one.name for one in (tmp_path / "partition-1").iterdir())
        assert calls[-3:] == [newer, "partition-1", "partition-1.json"]


def test_statements_that_change_rows_without_events_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def statement(action: str, **more: Any) -> Ddl:
        return Ddl("not shown", action, "or_test", "person", f"{UUID}:1", 7, "binlog.000001", 1, 4, **more)

    with served() as server:
        feeder = server.relay.partitions[1].feeder

        def follow(*_: Any, **__: Any) -> Iterator[Any]:
            yield statement("create")
            yield statement("alter", changes=())
            yield from (statement(action) for action in ("alter", "drop", "rename", "drop_database"))
            feeder._stop.set()
            yield Idle(GtidSet())

        monkeypatch.setattr(_feeder, "follow", follow)
        feeder._stop.clear()
        feeder._run()
        feeder.stop()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 4
    assert warnings[0] == (
        "person: or_test.person was altered in a way that may change rows: Databus has no event for that, so consumers "
        "keep its rows as they were; let them bootstrap"
    )
    assert not any("not shown" in one for one in warnings)


class Child:
    """A server with one table, whose rows a foreign key changes."""

    def __init__(self, *, logs_cascades: bool) -> None:
        self._native = "OFF" if logs_cascades else "ON"

    def query(self, statement: str) -> Any:
        if "REFERENTIAL_CONSTRAINTS" in statement:
            return [
                ("or_test", "other", "f0", "CASCADE", "CASCADE"),
                ("or_test", "person", "f1", "RESTRICT", "CASCADE"),
            ]
        return [("innodb_native_foreign_keys", self._native)] if "VARIABLES" in statement else [("",)]


@pytest.mark.parametrize("logs_cascades", [False, True])
def test_foreign_keys_that_change_rows_without_events_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, logs_cascades: bool
) -> None:
    child = Child(logs_cascades=logs_cascades)
    monkeypatch.setattr(Connection, "open", lambda _settings: contextlib.nullcontext(child))
    monkeypatch.setattr(_feeder, "load_tables", lambda *_: [PERSON])
    with served() as server:
        server.relay.partitions[1].feeder.prepare()
    warnings = [one.getMessage() for one in caplog.records if "without events" in one.getMessage()]
    key = (
        "person: foreign keys of or_test.person change its rows without events (f1: ON UPDATE RESTRICT ON DELETE "
        "CASCADE), so consumers keep them as they were: use RESTRICT, or MySQL 9.6+ with innodb_native_foreign_keys=OFF"
    )
    assert warnings == ([] if logs_cascades else [key])


def test_a_transaction_larger_than_the_buffer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody may have time to read it, and the operator hears what helps."""
    with served(memory_bytes=256 << 10) as relay:
        relay.put(block(people(range(1_000), gtids=[f"{UUID}:1"] * 1_000, pos=[100] * 1_000)))
        assert not caplog.records
        relay.put(block(people(range(4_000), gtids=[f"{UUID}:2"] * 4_000, pos=[200] * 4_000)))
        (warning,) = (record.getMessage() for record in caplog.records)
    assert "the transaction with SCN 281474976710658 takes " in warning
    assert f"more than the buffer's limit ({256 << 10})" in warning


def test_an_error_between_numbers_and_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle of a block: the log is read again, with the same SCNs, and nothing comes twice."""
    with served(state=tmp_path, disk_bytes=1 << 20, memory_bytes=256 << 10) as server:
        feeder, buffer = server.relay.partitions[1].feeder, server.relay.partitions[1].buffer
        writes, begun = [0], list[GtidSet]()

        def full_once(file: Any, data: memoryview) -> None:
            writes[0] += 1
            if writes[0] == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            write_all(file, data)

        def follow(_settings: Any, had: GtidSet, *_: Any, **__: Any) -> Iterator[Any]:
            begun.append(had)
            ids = [n for n in range(1, 4) if GtidSet.parse(f"{UUID}:{n}") - had]
            rows = [
                people(range(n * 1000, n * 1000 + 900), gtids=[f"{UUID}:{n}"] * 900, pos=[n * 100] * 900) for n in ids
            ]
            yield block(*rows)
            yield Idle(GtidSet.parse(f"{UUID}:1-3"))
            feeder._stop.set()
            yield Idle(GtidSet.parse(f"{UUID}:1-3"))

        monkeypatch.setattr(_segments, "write_all", full_once)
        monkeypatch.setattr(_feeder, "follow", follow)
        feeder._stop.clear()
        feeder._failures = Failures(RetryPolicy.every(0))
        feeder._run()
        assert (feeder.failed, feeder.problem) == (False, None)
        assert begun == [GtidSet(), GtidSet()]  # what it has comes again, and is passed over
        info = buffer.info()
        assert (info.min_scn & 0xFF, info.max_scn & 0xFF, feeder.position.now().scn) == (1, 3, info.max_scn)
        assert buffer.read(StreamPosition(-1), 1 << 30).events == 2700
        counted = server.relay.counters.read(SubjectKind.RECEIVED, 1)
        assert (counted["numDataEvents"], counted["numSysEvents"]) == (2700, 3)
        assert counted["sizeDataEvents"] + counted["sizeSysEvents"] == info.stored
        feeder.stop()


def whole(n: int) -> LogBlock:
    """A transaction that is known to have ended."""
    return replace(block(people([n], gtids=[f"{UUID}:{n}"], pos=[100 * n])), whole=True)


def test_the_saved_set_is_all_that_precedes_a_position_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two transactions, of which the first touches no followed table and is large: a binlog archive
    that begins there has both, and if a table of the first one joins, SCNs are in log order.
    """
    before, gap = GtidSet.parse(f"{UUID}:1-103"), GtidSet.parse(f"{UUID}:1-103:105")
    begun: list[GtidSet] = []

    def run(feeder: _feeder.Feeder, items: Iterator[Any]) -> None:
        def follow(_settings: Any, had: GtidSet, *_: Any, **__: Any) -> Iterator[Any]:
            begun.append(had)
            yield from items

        monkeypatch.setattr(_feeder, "follow", follow)
        feeder._stop.clear()
        feeder._run()
        assert (feeder.failed, feeder.problem) == (False, None)

    with served(state=tmp_path, disk_bytes=1 << 20, memory_bytes=256 << 10) as server:
        feeder = server.relay.partitions[1].feeder

        def killed() -> Iterator[Any]:
            yield Idle(before)
            yield whole(105)
            feeder._file.save()
            assert feeder.position.now().gtid == gap
            assert state_in(tmp_path)["gtid"] == str(before) == str(_relay._begin_of(feeder.position))
            feeder._stop.set()
            yield Stopped("d.t", "", "", "", 0)

        run(feeder, killed())
        feeder.stop()
    with served(state=tmp_path, disk_bytes=1 << 20, memory_bytes=256 << 10) as server:
        feeder, buffer = server.relay.partitions[1].feeder, server.relay.partitions[1].buffer
        assert buffer.info().max_scn == -1

        def joined() -> Iterator[Any]:
            yield from (whole(104), whole(105))
            feeder._stop.set()
            yield Idle(GtidSet.parse(f"{UUID}:1-105"))

        run(feeder, joined())
        info = buffer.info()
        assert (info.min_scn & 0xFF, info.max_scn & 0xFF) == (104, 105)
        feeder.stop()
    assert begun == [GtidSet(), before]
    assert state_in(tmp_path)["gtid"] == f"{UUID}:1-105"


def test_what_is_read_again_changes_nothing_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(state=tmp_path) as server:
        feeder, buffer = server.relay.partitions[1].feeder, server.relay.partitions[1].buffer
        seen: list[str] = []

        def follow(_settings: Any, had: GtidSet, *_: Any, **__: Any) -> Iterator[Any]:
            assert had == GtidSet()
            if not seen:
                yield from (whole(1), whole(3))
                seen.append("failed")
                raise ConnectError("the server is away", host="h", port=1)
            yield whole(1)
            yield Idle(GtidSet.parse(f"{UUID}:1"))
            seen.extend(str(one.gtid) for one in (feeder.position.now(), feeder.position.prefix()))
            yield whole(3)
            feeder._stop.set()
            yield Idle(GtidSet.parse(f"{UUID}:1-3"))

        monkeypatch.setattr(_feeder, "follow", follow)
        feeder._stop.clear()
        feeder._failures = Failures(RetryPolicy.every(0))
        feeder._run()
        assert seen == ["failed", f"{UUID}:1:3", ""]
        assert buffer.read(StreamPosition(-1), 1 << 30).control == 2
        assert server.relay.counters.read(SubjectKind.RECEIVED, 1)["numDataEvents"] == 2
        feeder.stop()
    state = state_in(tmp_path)
    assert (state["gtid"], state["scn"] & 0xFF) == (f"{UUID}:1-3", 3)


@pytest.mark.parametrize("kind", ["relay-generated", "binlog-offset", "gtid-generation"])
@pytest.mark.parametrize("after", [("other:8",), ("own:7", "own:6"), ("own:7",), ("own:6", "other:8")])
def test_what_a_retry_reads_again_must_be_what_was_published(
    kind: str, after: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server answers meanwhile. Its first transactions would be passed over for others with the same SCNs, and
    one that comes later than at the first server would come twice.
    """
    with served(scn=kind) as server:
        feeder, buffer = server.relay.partitions[1].feeder, server.relay.partitions[1].buffer
        required: list[GtidSet] = []

        def transaction(name: str, pos: int) -> LogBlock:
            gtid = name.replace("own", UUID).replace("other", pretended.OTHER)
            return replace(block(people([pos], gtids=[gtid], pos=[pos])), whole=True)

        def follow(*_: Any, executed: GtidSet, **__: Any) -> Iterator[Any]:
            required.append(executed)
            if len(required) == 1:
                yield transaction("own:6", 200)
                raise StorageError("the disk is full")
            yield from (transaction(name, 100 * n) for n, name in enumerate(after, start=2))
            feeder._stop.set()
            yield Idle(required[1] | GtidSet.parse(f"{pretended.OTHER}:8"))

        monkeypatch.setattr(_feeder, "follow", follow)
        feeder._stop.clear()
        feeder._failures = Failures(RetryPolicy.every(0))
        feeder._run()
        assert required == [GtidSet(), GtidSet.parse(f"{UUID}:6")]
        is_published = after[0] == "own:6"
        assert (feeder.failed, buffer.read(StreamPosition(-1), 1 << 30).control) == (not is_published, 1 + is_published)
        if not is_published:
            assert isinstance(feeder.error, ScnOrderError)
            assert feeder.error.fields["gtid"].endswith(after[0][-2:])
        feeder.stop()


def test_a_state_that_cannot_be_saved_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(state=tmp_path) as server:
        feeder, partition = server.relay.partitions[1].feeder, server.relay.partitions[1]
        feeder._file.save()
        server.put(block(people([1], gtids=[f"{UUID}:1"], pos=[100])))

        def full(*_: Any) -> None:
            raise StorageError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(_position, "write_json", full)
            feeder._file._try_save()
        assert partition.problems == ["person: the disk is full"]
        assert server.relay.status() == ("ERROR_RETRYING", "person: the disk is full")
        monkeypatch.setattr(_feeder, "follow", lambda *_, **__: iter_and_stop(feeder))
        feeder._stop.clear()
        feeder._run()
        assert not feeder.failed
        assert partition.problems == []
        assert state_in(tmp_path)["gtid"] == f"{UUID}:1"
        feeder.stop()


def test_a_failover_within_a_transaction_publishes_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica's log has fewer changes of it. Nothing of it was published, so the feeder begins before it again."""
    source, replica = filtered(pretended.UUID, 4), filtered(pretended.OTHER, 0)
    network = Network(replica, [Ends(after_packets=22)], [source], step=60)
    monkeypatch.setattr(resumable, "check_history", lambda *_: None)  # it would count as a dump of the script
    with served(physical(1, "d", LogicalSource(40, "com.example.T", "d.t"))) as server:
        feeder, buffer = server.relay.partitions[1].feeder, server.relay.partitions[1].buffer
        restarts = [-1]

        def until_read(*arguments: Any, **options: Any) -> Iterator[Any]:
            restarts[0] += 1
            for item in follow(*arguments, **options):
                if isinstance(item, Idle) and replica.executed <= item.gtid:
                    feeder._stop.set()
                yield item

        monkeypatch.setattr(_feeder, "follow", until_read)
        feeder._transport, feeder._failures = network.transport(), Failures(RetryPolicy.every(0))
        feeder._stop.clear()
        feeder._run()
        assert (feeder.failed, restarts) == (False, [1])
        batch = buffer.read(StreamPosition(-1), 1 << 30)
        assert (batch.events, batch.control) == (8, 3)
        assert feeder.position.now().gtid == replica.executed
        feeder.stop()


def iter_and_stop(feeder: _feeder.Feeder) -> Iterator[Any]:
    feeder._stop.set()
    yield Idle(GtidSet.parse(f"{UUID}:1"))
