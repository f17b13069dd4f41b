"""Bootstrap over HTTP without a server: the commands as Databus's clients use them, and our client."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.columns import TableCodec
from headgate.errors import ConfigError, RelayConsumerError, ScnNotFoundError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.relay.client import CheckpointFile, Consumer, Event, RelayClient, Result, Retry
from headgate.relay.databus import CHECKPOINT_SOURCE, BootstrapPoint, checkpoint_event, event_fields, is_intact
from headgate.relay.server import LogicalSource, Relay, RelayLimits, RelayTimes, create_app
from headgate.relay.server.bootstrap import Bootstrap, PartGoneError, Piece, PlanGoneError, Rows
from headgate.web.serving import Serving
from headgate_testing import wait_until
from tests.relay.server.rows import PERSON as PERSON_TABLE
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, PET, Answer, Served, load, physical, relay_config
from tests.relay.server.test_app import pets

GENERATION = 1 << 48
READING = 1 << 24
"""Between the offsets of one reading and of the next."""
NAME = PERSON.name


def persons(ids: list[int]) -> Rows:
    columns = {
        "id": ids, "first_name": [f"first{i}" for i in ids], "last_name": [f"last{i}" for i in ids],
        "birth_date": [i % 30_000 for i in ids], "deleted": ["false"] * len(ids),
    }  # fmt: skip
    fields = TableCodec(PERSON_TABLE).fields
    return Rows(PERSON_TABLE, pa.table([pa.array(columns[one.name], one.type) for one in fields], pa.schema(fields)))


class Shelf:
    """Persons in parts; what was read, and errors to be raised."""

    def __init__(self, *parts: list[int]) -> None:
        self.parts = list(parts)
        self.reads: list[tuple[int, str]] = []
        self.errors: list[Exception] = []

    def plan(self, source: LogicalSource, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        number = 0 if before is None else before["number"] + 1
        return {"number": number} if number < len(self.parts) and source == PERSON else None

    def read(self, source: LogicalSource, part: Mapping[str, Any], executed: GtidSet, hint: Any) -> Rows | None:
        self.reads.append((part["number"], str(executed)))
        if self.errors:
            raise self.errors.pop()
        ids = self.parts[part["number"]]
        return persons(ids) if ids else None


@contextlib.contextmanager
def serving(shelf: Shelf, *sources: LogicalSource, **config: Any) -> Iterator[Served]:
    relay = Relay(relay_config(physical(1, "person", *(sources or (PERSON, PET))), **config), lambda _: GtidSet())
    load(relay.config.event_version)
    app = create_app(relay, suppliers={1: shelf})
    with Serving(app, "127.0.0.1", 0) as server:
        yield Served(relay, app, server.port)
    relay.close()


def put(relay: Served, *numbers: int) -> None:
    for n in numbers:
        relay.put(block(people([n], gtids=[f"{UUID}:{n}"], pos=[n * 100])))


def point(**more: Any) -> dict[str, Any]:
    """What Databus's client sends at the beginning (``createInitialBootstrapCheckpoint``)."""
    return {
        "consumption_mode": "BOOTSTRAP_SNAPSHOT", "bootstrap_since_scn": 0, "bootstrap_start_scn": -1,
        "bootstrap_target_scn": -1, "bootstrap_snapshot_source_index": 0, "bootstrap_catchup_source_index": 0,
        "snapshot_source": NAME, "catchup_source": NAME, "snapshot_offset": 0, "windowScn": -1, "windowOffset": -1,
        "prevScn": -1, "bootstrap_server_info": "db:1", **more,
    }  # fmt: skip


def bootstrap(relay: Served, at: dict[str, Any], *, size: int = 100_000, **more: Any) -> Answer:
    return relay.get("bootstrap", sources="40,41", checkPoint=at, batchSize=str(size), output="binary", **more)


def taken(answer: Answer) -> tuple[list[tuple[int, int]], dict[str, Any] | None]:
    """``(SCN, key)`` of the data events, and the checkpoint at the end."""
    assert answer.status == 200, answer
    data = np.frombuffer(answer.body, np.uint8)
    assert is_intact(data)
    fields = event_fields(data)
    rows = zip(fields.scn.tolist(), fields.long_key.tolist(), fields.source.tolist(), strict=True)
    events = [(scn - GENERATION, key) for scn, key, source in rows if source > 0]
    if not len(fields.source) or fields.source[-1] != CHECKPOINT_SOURCE:
        return events, None
    at = int(fields.value[-1])
    return events, json.loads(answer.body[at : at + int(fields.value_size[-1])])


def start(relay: Served) -> int:
    answer = relay.get("startSCN", sources=f"{NAME},{PET.name}", checkPoint=point())
    assert answer.status == 200, answer
    assert answer.headers["x-dbus2-bs-hostport"] == f"127.0.0.1:{relay.port}"
    assert isinstance(answer.json, str)  # a string that holds a number, as Databus has it
    return int(answer.json)


def test_rows_in_parts_as_databus_asks_for_them() -> None:
    shelf = Shelf([1, 2, 3], [], [4, 5])
    with serving(shelf) as relay:
        put(relay, 1, 2)
        begin = start(relay)
        assert begin == GENERATION + 2
        at = point(bootstrap_start_scn=begin)
        answer = bootstrap(relay, at)
        rows, after = taken(answer)
        assert rows == [(2, 1), (2, 2), (2, 3)]
        assert "phasecompleted" not in answer.headers
        assert after is not None
        assert {**after, "snapshot_offset": 0} == at  # what it does not know, it gives back
        put(relay, 3)
        rows, after = taken(bootstrap(relay, after))
        assert rows == [(3, 4), (3, 5)]  # an empty part is passed over; each is as of its own point
        assert after is not None
        last = bootstrap(relay, after)
        assert taken(last) == ([], None)
        assert last.headers["phasecompleted"] == "TRUE"
        target = relay.get("targetSCN", source=NAME, checkPoint={**after, "snapshot_offset": -1})
        assert int(target.json) == GENERATION + 3
        catchup = {
            **after, "consumption_mode": "BOOTSTRAP_CATCHUP", "snapshot_offset": -1, "windowScn": begin,
            "windowOffset": 0, "bootstrap_target_scn": int(target.json), "bootstrap_snapshot_source_index": 1,
        }  # fmt: skip
        put(relay, 4)
        answer = bootstrap(relay, catchup)
        assert taken(answer)[0] == [(3, 3)]  # not what comes after the target
        assert answer.headers["phasecompleted"] == "TRUE"
        of_pets = bootstrap(relay, {**catchup, "catchup_source": PET.name})
        assert taken(of_pets) == ([], None)
        assert of_pets.headers["phasecompleted"] == "TRUE"


def test_rows_by_a_schema_that_their_reading_makes_are_filtered() -> None:
    """As after an ALTER TABLE without changes since."""
    with serving(Shelf([1, 2, 3])) as relay:
        begin = start(relay)
        filters = {"40": {"partitionType": "NONE", "where": "id = 2"}}
        rows, _ = taken(bootstrap(relay, point(bootstrap_start_scn=begin), filters=filters))
    assert [key for _, key in rows] == [2]


def test_a_batch_ends_within_a_part_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    shelf = Shelf(list(range(1, 101)))
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        begin = start(relay)
        at = point(bootstrap_start_scn=begin)
        rows, after = taken(bootstrap(relay, at, size=4_000))
        assert 0 < len(rows) < 100
        assert after is not None
        assert after["snapshot_offset"] % READING == len(rows)
        too_large = bootstrap(relay, after, size=1_000)
        assert taken(too_large) == ([], None)
        assert int(too_large.headers["x-dbus-pending-event-size"]) > 1_000
        assert len(shelf.reads) == 1  # kept in memory meanwhile
    with serving(shelf, state=tmp_path) as relay:
        rest = []
        for _ in range(100):
            more, again = taken(bootstrap(relay, after, size=6_000))
            rest += more
            if again is None:
                break
            after = again
        assert rows + rest == [(1, i) for i in range(1, 101)]
        assert shelf.reads == [(0, f"{UUID}:1")] * 2  # as of the same set


def test_a_row_larger_than_the_largest_answer() -> None:
    """It comes alone, to a client that asks for as many bytes as the answer names."""
    with serving(Shelf([1, 2]), limits=RelayLimits(answer=50)) as relay:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay), windowScn=GENERATION, windowOffset=-1)
        rows, n = [], 1
        for _ in range(5):
            answer = bootstrap(relay, at, size=n)
            part, after = taken(answer)
            rows += part
            n, at = int(answer.headers.get("x-dbus-pending-event-size", n)), after or at
        assert rows == [(1, 1), (1, 2)]
        put(relay, 2)
        catchup = {**at, "consumption_mode": "BOOTSTRAP_CATCHUP", "bootstrap_target_scn": GENERATION + 2}
        refused = bootstrap(relay, catchup, size=1)
        assert taken(refused) == ([], None)
        assert taken(bootstrap(relay, catchup, size=int(refused.headers["x-dbus-pending-event-size"])))[0] == [(2, 2)]


def test_a_large_change_behind_a_small_one() -> None:
    """The end of the small one's window fits, but a checkpoint does not say that it was sent."""
    with serving(Shelf([1])) as relay:
        put(relay, 1, 2)
        relay.put(block(people([3], gtids=[f"{UUID}:3"], pos=[300], columns={"first_name": ["x" * 10_000]})))
        catchup = point(
            consumption_mode="BOOTSTRAP_CATCHUP", snapshot_offset=-1, bootstrap_start_scn=GENERATION + 1,
            bootstrap_target_scn=GENERATION + 3, windowScn=GENERATION + 1,
        )  # fmt: skip
        rows, after = taken(bootstrap(relay, catchup, size=4_000))
        assert rows == [(2, 2)]
        assert after is not None
        refused = bootstrap(relay, after, size=4_000)
        assert taken(refused) == ([], None)
        assert taken(bootstrap(relay, after, size=int(refused.headers["x-dbus-pending-event-size"])))[0] == [(3, 3)]


@pytest.mark.parametrize("version", [1, 2])
def test_other_forms_and_filters(version: int) -> None:
    with serving(Shelf([1, 2, 3, 4]), event_version=version) as relay:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay))
        mod = {"partitionType": "MOD", "filters": [{"numBuckets": 2, "bktRange": {"start": 0, "end": 1}}]}
        assert [key for _, key in taken(bootstrap(relay, at, filter=mod))[0]] == [2, 4]
        of_sources = {"40": mod, "41": {"partitionType": "NONE"}}
        assert [key for _, key in taken(bootstrap(relay, at, filters=of_sources, maxev="2"))[0]] == [2, 4]
        nothing = {"partitionType": "RANGE", "filters": []}
        rows, after = taken(bootstrap(relay, at, filter=nothing))
        assert rows == []
        assert after is None
        lines = relay.get("bootstrap", sources="40", checkPoint=at, batchSize="100000", output="json", maxev="2").body
        parsed = [json.loads(line) for line in lines.splitlines()]
        assert [one["srcId"] for one in parsed] == [40] * 4 + [CHECKPOINT_SOURCE]
        assert bootstrap(relay, at).body[0] == 0  # version 1, unless the client says that it understands more
        assert bootstrap(relay, at, maxev="2").body[0] == (0 if version == 1 else 2)
        same = relay.get("stream", sources="40", size="100000", output="binary", maxev="2").body
        fields = event_fields(np.frombuffer(bootstrap(relay, at, maxev="2").body, np.uint8))
        stream = event_fields(np.frombuffer(same, np.uint8))
        assert (fields.size[0], fields.attributes[0], fields.value_size[0]) == (  # person 1 looks as in the stream
            stream.size[0], stream.attributes[0], stream.value_size[0],
        )  # fmt: skip


def test_what_is_refused() -> None:
    with serving(Shelf([1])) as relay:
        put(relay, 1)
        begin = start(relay)
        for at in (point(bootstrap_start_scn=begin + 5), point(bootstrap_start_scn=begin, snapshot_offset=1 << 30)):
            answer = bootstrap(relay, at)
            assert answer.status == 500
            assert answer.headers["x-dbus-error-cause"].endswith("ScnNotFoundException")
        for at in (
            point(), point(bootstrap_start_scn=begin, snapshot_offset=-1), point(consumption_mode="INIT"),
            point(bootstrap_start_scn=begin, snapshot_source="no"), point(bootstrap_start_scn="1"),
            point(bootstrap_start_scn=begin, consumption_mode="BOOTSTRAP_CATCHUP"),
        ):  # fmt: skip
            answer = bootstrap(relay, at)
            assert answer.status == 500
            assert answer.headers["x-dbus-error"].endswith("InvalidRequestParamValueException")
        ahead = bootstrap(relay, point(bootstrap_start_scn=begin, windowScn=begin + 7))
        assert "is behind its consumer" in ahead.json["message"]
        since = relay.get("startSCN", sources="40", checkPoint=point(bootstrap_since_scn=begin))
        assert int(since.json) == begin  # nothing since then is gone: rows are not needed
        bypassed = bootstrap(relay, point(bootstrap_since_scn=begin, bootstrap_start_scn=begin))
        assert taken(bypassed) == ([], None)
        assert bypassed.headers["phasecompleted"] == "TRUE"


def test_a_consumer_is_told_at_once_of_rows_that_nobody_can_give() -> None:
    shelf = Shelf([1])
    with serving(shelf) as relay:
        put(relay, 1)
        shelf.errors = [UnsupportedError("a table without a key", table="or_test.person")]
        answer = bootstrap(relay, point(bootstrap_start_scn=start(relay)))
        assert (answer.status, answer.headers["x-dbus-error"].rpartition(".")[2]) == (400, "RequestProcessingException")
        shelf.errors = [UnsupportedError("a table without a key", table="or_test.person")]
        with pytest.raises(ConfigError, match="without a key"):
            consume(relay, Recorder())


def test_bootstraps_that_wait_block_no_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more of them than threads for all commands."""
    entered, go, rows = list[int](), threading.Event(), Bootstrap.rows

    def wait(*arguments: Any) -> Piece:
        entered.append(1)
        go.wait(PATIENCE_SECONDS)
        return rows(*arguments)

    monkeypatch.setattr(Bootstrap, "rows", wait)
    stream = {"sources": "40", "size": "1000", "output": "json"}
    with serving(Shelf([1]), state=tmp_path) as relay, ThreadPoolExecutor(47) as pool:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay))
        expected = relay.get("stream", **stream).body
        waiting = [pool.submit(bootstrap, relay, at) for _ in range(45)]
        try:
            wait_until(lambda: len(entered) >= 40)
            assert pool.submit(relay.get, "stream", **stream).result(60).body == expected
            assert pool.submit(relay.get, "groups/x").result(60).status == 500  # there is no such group
        finally:
            go.set()
        assert all(taken(one.result())[0] == [(1, 1)] for one in waiting)


def test_a_part_that_is_disturbed_is_read_as_of_a_later_point(tmp_path: Path) -> None:
    shelf = Shelf([1], [2])
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay))
        rows, before = taken(bootstrap(relay, at))
        assert rows == [(1, 1)]
        assert before is not None
        put(relay, 2)
        ahead = {**at, "windowScn": GENERATION + 2}  # the consumer's stream is beyond that reading
        rows, after = taken(bootstrap(relay, ahead))
        assert rows == [(2, 1)]
        assert after is not None
        assert after["snapshot_offset"] == before["snapshot_offset"] + READING
    with serving(shelf, state=tmp_path) as relay:  # what was kept cannot be read again as it was
        put(relay, 1, 2, 3)
        shelf.errors = [PartGoneError("DDL")]
        assert taken(bootstrap(relay, at))[0] == [(3, 1)]
        shelf.errors = [PlanGoneError("another key")]
        answer = bootstrap(relay, after)
        assert answer.headers["x-dbus-error-cause"].endswith("ScnNotFoundException")
        assert bootstrap(relay, at).status == 500  # the whole bootstrap is over


def test_a_bootstrap_goes_on_when_its_start_has_left_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is how far the consumer's stream is."""
    with serving(Shelf([1], [2]), memory_bytes=256 << 10) as relay:
        put(relay, 1)
        begin = start(relay)
        _, after = taken(bootstrap(relay, point(bootstrap_start_scn=begin)))
        for n in range(10, 3000):
            put(relay, n)
        assert not relay.relay.partitions[1].buffer.holds(begin)
        follows = {**(after or {}), "windowScn": GENERATION + 2990}
        start(relay)  # another consumer's does not end it
        assert taken(bootstrap(relay, follows))[0] == [(2999, 2)]
        assert int(relay.get("targetSCN", source=NAME, checkPoint=follows).json) == GENERATION + 2999
        stands = bootstrap(relay, after or {})  # it would have to follow from the start
        assert stands.headers["x-dbus-error-cause"].endswith("ScnNotFoundException")
        relay.relay.times = RelayTimes(bootstrap_idle=0.0, bootstrap_together=0.0)
        start(relay)
        forgotten = bootstrap(relay, follows)
        assert forgotten.headers["x-dbus-error-cause"].endswith("ScnNotFoundException")


def test_a_place_of_another_bootstrap_from_the_same_start_is_refused() -> None:
    """Parts differ from one to the other: a place in this would skip rows of that."""
    places: list[dict[str, Any]] = []
    for parts in ([1, 2], [3]), ([1], [2, 3]):
        with serving(Shelf(*parts)) as relay:
            put(relay, 1)
            at = point(bootstrap_start_scn=start(relay))
            rows, after = taken(bootstrap(relay, at))
            assert [key for _, key in rows] == parts[0]
            for place in places:
                answer = bootstrap(relay, place)
                assert answer.headers["x-dbus-error-cause"].endswith("ScnNotFoundException")
            assert after is not None
            places.append(after)


# --- our client


class Recorder(Consumer):
    """Rows, and the calls beside; ends after the bootstrap and so many windows."""

    def __init__(self, windows: int = 0) -> None:
        self.rows: dict[Any, str] = {}
        self.calls: list[Any] = []
        self.errors = 0
        self.fail = ""
        self.client: RelayClient
        self._left = windows

    def on_data_event(self, event: Event) -> Result | None:
        self.calls.append(event.key)
        self.rows[event.key] = event.row["firstName"]
        return None

    def _note(self, name: str, value: Any) -> Result | None:
        self.calls.append((name, value - GENERATION if isinstance(value, int) and value > 0 else value))
        if self.fail == name:
            self.fail = ""
            return Result.ERROR
        return None

    def on_start_bootstrap(self) -> Result | None:
        return self._note("bootstrap", None)

    def on_start_bootstrap_sequence(self, scn: int) -> Result | None:
        return self._note("from", scn)

    def on_end_bootstrap_sequence(self, scn: int) -> Result | None:
        return self._note("to", scn)

    def on_stop_bootstrap(self) -> Result | None:
        if not self._left:
            self.client.stop()
        return self._note("bootstrapped", None)

    def on_bootstrap_checkpoint(self, scn: int) -> Result | None:
        return self._note("point", scn)

    def on_bootstrap_rollback(self, scn: int) -> Result | None:
        return self._note("back", scn)

    def on_checkpoint(self, scn: int) -> Result | None:
        self._left -= 1
        if self._left <= 0:
            self.client.stop()
        return self._note("checkpoint", scn)

    def on_error(self, error: Exception) -> Result | None:
        self.errors += 1
        return None


def consume(relay: Served, recorder: Recorder, checkpoints: CheckpointFile | None = None) -> list[Any]:
    recorder.client = RelayClient(
        f"http://127.0.0.1:{relay.port}", [NAME, PET.name], recorder, checkpoints, bootstrap=True
    )
    recorder.client.run()
    return recorder.calls


def test_a_new_consumer_gets_rows_then_changes(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    with serving(Shelf([7, 8], [9])) as relay:
        put(relay, 1, 2)
        recorder = Recorder()
        assert consume(relay, recorder, checkpoints) == [
            ("bootstrap", None), ("from", 2), ("point", 2), 7, 8, ("point", 2), 9, ("point", 2), ("point", 2),
            ("point", 2), ("to", 2), ("bootstrapped", None),
        ]  # fmt: skip
        assert checkpoints.load() == {
            "windowOffset": -1, "snapshot_offset": -1, "prevScn": -1, "windowScn": GENERATION + 2,
            "consumption_mode": "ONLINE_CONSUMPTION",
        }  # fmt: skip
        put(relay, 3)
        assert consume(relay, Recorder(1), checkpoints) == [3, ("checkpoint", 3)]


def test_a_table_that_appears_while_all_are_bootstrapped() -> None:
    """Its id is smaller than the one whose rows come: these do not begin again, and its own rows come behind them."""

    class First(Recorder):
        def on_data_event(self, event: Event) -> Result | None:
            if not self.rows:
                relay.put(block(pets([1], gtids=[f"{UUID}:2"], pos=[200])))
            self.calls.append((event.source, event.key))
            self.rows[event.key] = ""
            return None

    shelf, recorder = Shelf([7], [8], [9]), First()
    with serving(shelf, PERSON, LogicalSource(10, "a", "or_test.pe?")) as relay:
        put(relay, 1)
        recorder.client = RelayClient(f"http://127.0.0.1:{relay.port}", [], recorder, bootstrap=True)
        recorder.client.run()
        assert [one.id for one in relay.relay.names.all()] == [10, PERSON.id]
    changes = [one for one in recorder.calls if one[0] in (NAME, "a.or_test.pet")]
    assert changes == [(NAME, 7), (NAME, 8), ("a.or_test.pet", b"1\tpet1"), (NAME, 9)]
    assert [one for one in recorder.calls if one[0] in ("bootstrap", "back")] == [("bootstrap", None)]
    assert recorder.errors == 0


def test_a_relay_that_knows_no_scn_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can tell rows from before such a start, nor that the relay has begun again; with a state that does
    not occur.
    """
    with serving(Shelf([7]), state=tmp_path) as relay:
        assert start(relay) == 0
        assert not caplog.records
    with serving(Shelf([7])) as relay:
        assert start(relay) == 0
        (warning,) = (record.getMessage() for record in caplog.records)
        assert warning.startswith("person: a bootstrap begins at SCN 0")
    with serving(Shelf([7])) as relay:
        put(relay, 1)
        assert start(relay) == GENERATION + 1
    assert len(caplog.records) == 1


def test_from_a_relay_that_had_no_window_yet(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    with serving(Shelf([7])) as relay:
        assert consume(relay, Recorder(), checkpoints)[-2:] == [("to", 0), ("bootstrapped", None)]
        put(relay, 1, 2)
        calls = consume(relay, Recorder(2), checkpoints)
        assert calls == [1, ("checkpoint", 1), 2, ("checkpoint", 2)]


def test_changes_come_between_rows_and_a_rollback_repeats_both(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    shelf = Shelf([7], [8], [9])
    with serving(shelf) as relay:
        put(relay, 1)
        read = shelf.read

        def busy(*arguments: Any) -> Rows | None:
            rows = read(*arguments)
            if arguments[1]["number"] < 2 and len(shelf.reads) <= 2:
                put(relay, len(shelf.reads) + 1)  # after the part's point
            return rows

        shelf.read = busy  # type: ignore[assignment, method-assign]
        recorder = Recorder()
        recorder.fail = "to"
        calls = consume(relay, recorder, checkpoints)
        assert calls == [
            ("bootstrap", None), ("from", 1), ("point", 1), 7, ("point", 1), 8, 2, ("point", 2), 9, 3, ("point", 3),
            ("point", 3), ("point", 3), ("to", 3), ("back", 3), ("to", 3), ("bootstrapped", None),
        ]  # fmt: skip
        assert sorted(recorder.rows) == [2, 3, 7, 8, 9]


def test_a_consumer_that_is_too_far_behind_recovers_by_itself(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    with serving(Shelf([5, 6]), memory_bytes=256 << 10) as relay:
        put(relay, 1, 2)
        consume(relay, Recorder(), checkpoints)
        for n in range(10, 3000):
            put(relay, n)
        assert not relay.relay.partitions[1].buffer.holds(GENERATION + 2)
        recorder = Recorder()
        calls = consume(relay, recorder, checkpoints)
        assert calls[:2] == [("bootstrap", None), ("from", 2999)]
        assert calls[-1] == ("bootstrapped", None)
        assert recorder.rows == {5: "first5", 6: "first6"}


def test_a_start_is_kept_before_its_rows_also_where_a_bootstrap_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However seldom checkpoints are kept."""
    starts: list[int] = []

    class Store:
        def load(self) -> None:
            return None

        def store(self, checkpoint: Any) -> None:
            starts.append(checkpoint.get("bootstrap_start_scn", GENERATION) - GENERATION)

    shelf = Shelf([7], [8])
    with serving(shelf, times=RelayTimes(bootstrap_together=0.0)) as relay:
        put(relay, 1)
        read = shelf.read

        def gone_once(*arguments: Any) -> Rows | None:
            if not shelf.reads:
                shelf.errors = [PlanGoneError("another key")]
                put(relay, 2)
            return read(*arguments)

        shelf.read = gone_once  # type: ignore[assignment, method-assign]
        recorder = Recorder()
        noted: list[list[int]] = []
        recorder.on_start_bootstrap_source = lambda *_: noted.append(list(starts))  # type: ignore[method-assign]
        recorder.client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], recorder, Store(), bootstrap=True, checkpoint_seconds=1000.0,
            retry=Retry(first_seconds=0.001),
        )  # fmt: skip
        recorder.client.run()
    assert noted[0] == [1, 2]
    assert recorder.rows == {7: "first7", 8: "first8"}


def test_a_transaction_larger_than_an_answer_comes_once() -> None:
    """Between rows and after the last ones, also if the client may not deliver in the middle of it."""
    shelf, dice, many = Shelf([7], [8]), random.Random(3), 20_000
    with serving(shelf) as relay:
        put(relay, 1)
        read = shelf.read

        def busy(*arguments: Any) -> Rows | None:
            rows, n = read(*arguments), len(shelf.reads)
            ids = range(n * 100_000, n * 100_000 + many)
            relay.put(block(people(ids, gtids=[f"{UUID}:{n + 1}"] * many, pos=[n] * many)))
            return rows

        shelf.read = busy  # type: ignore[assignment, method-assign]
        recorder = Recorder()
        recorder.client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], recorder, bootstrap=True,
            may_deliver=lambda: dice.random() < 0.9995, retry=Retry(first_seconds=0.001),
        )  # fmt: skip
        recorder.client.run()
    keys = [one for one in recorder.calls if isinstance(one, int)]
    assert [key for key in keys if key >= 100_000] == [n + at for n in (100_000, 200_000) for at in range(many)]
    assert [one for one in recorder.calls if isinstance(one, tuple)] == [
        ("bootstrap", None), ("from", 1), ("point", 1), ("point", 1), ("point", 2), ("point", 2),
        ("to", 3), ("bootstrapped", None),
    ]  # fmt: skip


def test_rows_of_a_window_that_the_stream_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their changes cannot be followed up to it, so the bootstrap begins again."""
    shelf = Shelf([7])
    with serving(shelf, times=RelayTimes(bootstrap_together=0.0)) as relay:
        put(relay, 1)
        feeder = relay.relay.partitions[1].feeder
        await_position, read = feeder.position.wait, shelf.read

        def ahead(enough: Any, seconds: float) -> Any:
            position = await_position(enough, seconds)
            return replace(position, scn=GENERATION + 2) if position and not shelf.reads else position

        def busy(*arguments: Any) -> Rows | None:
            if not shelf.reads:
                put(relay, 3)
            return read(*arguments)

        monkeypatch.setattr(feeder.position, "wait", ahead)
        monkeypatch.setattr(shelf, "read", busy)
        recorder = Recorder()
        recorder.client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], recorder, bootstrap=True, retry=Retry(first_seconds=0.001)
        )
        recorder.client.run()
    assert recorder.calls == [
        ("bootstrap", None), ("from", 1), ("point", 1), 7, ("bootstrap", None), ("from", 3), ("point", 3), 7,
        ("point", 3), ("point", 3), ("to", 3), ("bootstrapped", None),
    ]  # fmt: skip


def test_a_bootstrap_that_is_never_done_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each beginning succeeds, and then the buffer does not reach back to it any more."""
    shelf = Shelf([7])
    begun: list[int] = []
    with serving(shelf) as relay:
        put(relay, 1)
        recorder = Recorder()
        recorder.client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], recorder, bootstrap=True, retry=Retry(0.001, tries=2)
        )

        def gone(*arguments: Any, **more: Any) -> Piece:
            begun.append(1)
            if len(begun) > 6:
                recorder.client.stop()
            raise ScnNotFoundError("gone", scn=1)

        monkeypatch.setattr(Bootstrap, "rows", gone)
        with pytest.raises(RelayConsumerError, match="given up after 3 tries: gone"):
            recorder.client.run()
    assert len(begun) == 3


def test_an_interrupted_bootstrap_goes_on_over_a_restart(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path / "consumer", "people")
    shelf = Shelf([7], [8], [9])
    with serving(shelf, state=tmp_path / "relay") as relay:
        put(relay, 1)
        recorder = Recorder()
        recorder.fail = "never"
        first = recorder.on_bootstrap_checkpoint

        def stop_after_eight(scn: int) -> Result | None:
            if 8 in recorder.rows:
                recorder.client.stop()
            return first(scn)

        recorder.on_bootstrap_checkpoint = stop_after_eight  # type: ignore[method-assign]
        assert consume(relay, recorder, checkpoints)[-2:] == [8, ("point", 1)]
        kept = checkpoints.load()
        assert kept is not None
        assert kept["consumption_mode"] == "BOOTSTRAP_SNAPSHOT"
    with serving(shelf, state=tmp_path / "relay") as relay:
        put(relay, 1)
        calls = consume(relay, Recorder(), checkpoints)
        assert [one for one in calls if isinstance(one, int)] == [9]
        assert calls[-1] == ("bootstrapped", None)
    (tmp_path / "consumer" / "people.current").write_text(json.dumps(kept))
    with serving(shelf, state=tmp_path / "another") as relay:  # which knows nothing of that bootstrap
        put(relay, 1)
        calls = consume(relay, Recorder(), checkpoints)
        assert [one for one in calls if isinstance(one, int)] == [7, 8, 9]


def test_a_client_that_may_not_deliver_for_a_moment_leaves_nothing_out() -> None:
    """The lease of a group's member may be over, and there again, between any two events."""
    dice = random.Random(4)
    shelf = Shelf(*([n, n + 1, n + 2] for n in range(100, 160, 3)))
    with serving(shelf) as relay:
        put(relay, 1)
        read = shelf.read

        def busy(*arguments: Any) -> Rows | None:
            rows = read(*arguments)
            if len(shelf.reads) < 20:
                put(relay, *range(10 * len(shelf.reads), 10 * len(shelf.reads) + 4))
            return rows

        shelf.read = busy  # type: ignore[assignment, method-assign]
        recorder = Recorder()
        recorder.client = RelayClient(
            f"http://127.0.0.1:{relay.port}", [NAME], recorder, bootstrap=True,
            may_deliver=lambda: dice.random() < 0.95, retry=Retry(first_seconds=0.001),
        )  # fmt: skip
        recorder.client.run()
        changed = {n for part in range(1, 20) for n in range(10 * part, 10 * part + 4)}
        assert set(recorder.rows) == changed | set(range(100, 160))


def test_consumers_that_begin_together_read_the_same_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf([1], [2])
    with serving(shelf, times=RelayTimes(bootstrap_together=3600.0)) as relay:
        put(relay, 1)
        first = start(relay)
        at = taken(bootstrap(relay, point(bootstrap_start_scn=first)))[1]
        put(relay, 2)
        assert start(relay) == first
        other = taken(bootstrap(relay, point(bootstrap_start_scn=first)))
        assert other == ([(1, 1)], at)
        assert len(shelf.reads) == 1
        relay.relay.times = RelayTimes(bootstrap_together=0.0)
        assert start(relay) == first + 1


# --- its parts


def test_points_are_what_databus_makes_of_them() -> None:
    one = BootstrapPoint.from_json(point(snapshot_offset=2**62, other=[1]))
    assert one.to_json() == point(snapshot_offset=2**62, other=[1])
    for version in (1, 2):
        event = checkpoint_event(one, version, 3)
        assert is_intact(event)
        fields = event_fields(event)
        assert (fields.source[0], fields.physical[0], fields.scn[0]) == (CHECKPOINT_SOURCE, 3, 0)
        at = int(fields.value[0])
        assert json.loads(bytes(event[at : at + int(fields.value_size[0])])) == one.to_json()
    wrong: Any
    for wrong in (
        {},
        [],
        point(consumption_mode="ONLINE_CONSUMPTION"),
        point(snapshot_offset=True),
        point(windowScn=-2),
    ):
        with pytest.raises(ValueError, match="not a"):
            BootstrapPoint.from_json(wrong)


def readings(relay: Served, at: dict[str, Any]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Part by part: its keys, and the checkpoint after it."""
    while True:
        rows, after = taken(bootstrap(relay, at))
        if after is None:
            return
        at = after
        yield [key for _, key in rows], after


def test_a_session_survives_a_torn_line(tmp_path: Path) -> None:
    """A kill cut off its last reading, which nobody has seen: it is made again, under the same number."""
    shelf = Shelf([1], [2], [3])
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        begin = start(relay)
        assert start(relay) == begin
        at = point(bootstrap_start_scn=begin)
        first, second, last = (after for _, after in readings(relay, at))
    (file,) = tmp_path.glob("bootstrap-1/*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        for unknown in (last, {**last, "snapshot_offset": first["snapshot_offset"] - READING}):
            assert bootstrap(relay, unknown).headers["x-dbus-error-cause"].endswith("ScnNotFoundException")
        assert list(readings(relay, first)) == [([2], second), ([3], last)]
        assert file.read_bytes() == whole
        shelf.errors = [PlanGoneError("another key")] * 2
        for _ in range(2):  # and the session, and its file, are gone
            assert bootstrap(relay, at).status == 500
        assert not file.exists()


def test_a_session_whose_file_a_cleaner_has_removed_is_written_again(tmp_path: Path) -> None:
    shelf = Shelf([1], [2], [3])
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay))
        parts = readings(relay, at)
        whole = [next(parts)]
        shutil.rmtree(tmp_path / "bootstrap-1")
        whole += parts
    (file,) = tmp_path.glob("bootstrap-1/*.jsonl")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        assert list(readings(relay, at)) == whole


def test_a_session_whose_disk_was_full_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    shelf = Shelf([1], [2])
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        at = point(bootstrap_start_scn=start(relay))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            answer = bootstrap(relay, at)
            assert (answer.status, "No space left" in answer.json["message"]) == (500, True)
        whole = list(readings(relay, at))
    with serving(shelf, state=tmp_path) as relay:
        put(relay, 1)
        assert list(readings(relay, at)) == whole
