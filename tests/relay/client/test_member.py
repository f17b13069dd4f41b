"""Members of a group over HTTP: partitions move while events come."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError, ConnectError, ProtocolError, RelayConsumerError, ScnNotFoundError, TargetError
from headgate.relay.client import ClientTuning, Consumer, Event, GroupMember, RelayTransport, Result, Retry
from headgate.relay.client._member import PartitionCheckpoint
from headgate.relay.client.states import MemberState, PartitionState
from headgate_testing import Proxy, wait_until
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, Served, served
from tests.relay.server.test_bootstrap import Shelf
from tests.relay.server.test_bootstrap import serving as bootstrapping

PARTITIONS = 4


class Log:
    """What was delivered, by whom."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int, int, int]] = []
        """Member, partition, generation, SCN, key; in the order of delivery."""
        self.dropped: list[tuple[str, int]] = []

    def of(self, partition: int) -> list[tuple[int, int]]:
        return [(scn, key) for _, one, _, scn, key in self.events if one == partition]

    @property
    def keys(self) -> list[int]:
        return sorted(key for *_, key in self.events)

    def check_order(self) -> None:
        """Of each partition's transactions: each generation's are in order, and none begins behind a gap."""
        for partition in range(PARTITIONS):
            log = sorted({scn for scn, _ in self.of(partition)})
            place, next_place, newest = {scn: n for n, scn in enumerate(log)}, 0, dict[int, int]()
            for _, one, generation, scn, _ in self.events:
                if one == partition:
                    assert scn >= newest.get(generation, 0)
                    assert place[scn] <= next_place
                    next_place, newest[generation] = max(next_place, place[scn] + 1), scn


class Noting(Consumer):
    def __init__(self, log: Log, member: str, partition: int, generation: int, hook: Callable[[Event], Any]) -> None:
        self._log, self._where, self._hook = log, (member, partition, generation), hook

    def on_data_event(self, event: Event) -> Result | None:
        assert isinstance(event.key, int)
        answer = self._hook(event)
        self._log.events.append((*self._where, event.scn, event.key))
        return answer if isinstance(answer, Result) else None


class InThread:
    """A member that runs in a thread."""

    def __init__(self, member: GroupMember) -> None:
        self.member = member
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.member.run()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.member.stop()
        self.join()

    def crash(self) -> None:
        """Nothing more is heard of it, as after a kill; nothing that it had not reported counts."""
        self.member._post_reports = lambda *_a, **_k: {}  # type: ignore[method-assign]
        self.stop()


class Running(InThread):
    """One that notes what it is given."""

    def __init__(
        self, relay: Served, log: Log, name: str, hook: Callable[[Event], Any] = lambda _: None, **more: Any
    ) -> None:
        def consumer_of(partition: int, generation: int) -> Consumer:
            return Noting(log, name, partition, generation, hook)

        arguments = {
            "partitions": PARTITIONS,
            "lease_seconds": 1.0,
            "tuning": ClientTuning(sync=0.1),
            "port": relay.port,
            **more,
        }
        member = GroupMember(
            f"http://127.0.0.1:{arguments.pop('port')}", "g", arguments.pop("partitions"), [PERSON.name], consumer_of,
            dropped=lambda number: log.dropped.append((name, number)), **arguments,
        )  # fmt: skip
        super().__init__(member)

    @property
    def owned(self) -> set[int]:
        return set(self.member._workers)


@contextlib.contextmanager
def running(*members: Running) -> Iterator[None]:
    try:
        yield
    finally:
        for one in members:
            one.member.stop()
        for one in members:
            one.join()


def put(relay: Served, *numbers: int) -> None:
    """A transaction of each number n, that inserts the persons 10 n to 10 n + 7."""
    for n in numbers:
        keys = list(range(10 * n, 10 * n + 8))
        relay.put(block(people(keys, gtids=[f"{UUID}:{n}"] * 8, pos=[n * 100] * 8)))


def keys_of(*numbers: int) -> list[int]:
    return [key for n in numbers for key in range(10 * n, 10 * n + 8)]


def group_of(relay: Served) -> Any:
    return relay.get("groups/g").json


def test_members_join_and_leave(tmp_path: Path) -> None:
    log = Log()
    with served(state=tmp_path) as relay:
        put(relay, 1)
        first = Running(relay, log, "a", lease_seconds=PATIENCE_SECONDS)
        with running(first):
            wait_until(lambda: len(log.events) == 8)
            second = Running(relay, log, "b", lease_seconds=PATIENCE_SECONDS)
            with running(second):
                wait_until(lambda: len(first.owned) == len(second.owned) == 2)
                put(relay, 2)
                wait_until(lambda: len(log.events) == 16)
                assert {member for member, *_, scn, _ in log.events if scn & 0xFFFF == 2} == {"a", "b"}
            put(relay, 3)
            wait_until(lambda: len(log.events) == 24)
        group = group_of(relay)
    # Nothing was repeated, because every move was one that the owner knew of; each key is where it belongs.
    assert log.keys == keys_of(1, 2, 3)
    log.check_order()
    assert group["members"] == {}
    assert {one["checkpoint"]["windowScn"] & 0xFFFF for one in group["partitions"]} == {3}
    assert sorted(log.dropped)[-2:] == [("b", 2), ("b", 3)]


def test_a_member_that_crashed_is_replaced(tmp_path: Path) -> None:
    log = Log()
    with served(state=tmp_path) as relay:
        first, second = Running(relay, log, "a"), Running(relay, log, "b")
        with running(second):
            with running(first):
                wait_until(lambda: len(first.owned) == len(second.owned) == 2)
                put(relay, 1)
                wait_until(lambda: set(log.keys) == set(keys_of(1)))  # again, too, if a lease was over meanwhile
                first.crash()
            put(relay, 2)
            wait_until(lambda: set(log.keys) == set(keys_of(1, 2)) and len(second.owned) == PARTITIONS)
    log.check_order()


def test_a_zombie_delivers_nothing_more_and_counts_for_nothing(tmp_path: Path) -> None:
    """A member whose callback outlives its lease: another takes over, and its reports are of an old generation."""
    log, held, release = Log(), threading.Event(), threading.Event()

    def hook(event: Event) -> None:
        if event.key == 15:
            held.set()
            release.wait(PATIENCE_SECONDS)

    with served(state=tmp_path) as relay:
        first = Running(relay, log, "a", hook, partitions=1)
        ask = first.member._post_reports
        with running(first):
            put(relay, 1)
            assert held.wait(PATIENCE_SECONDS)
            frozen = threading.Event()

            def silent(*_: Any, **__: Any) -> Any:
                frozen.wait(PATIENCE_SECONDS)
                return ask(*_, **__)

            first.member._post_reports = silent  # type: ignore[method-assign]
            second = Running(relay, log, "b", partitions=1, lease_seconds=PATIENCE_SECONDS)
            with running(second):
                wait_until(lambda: len([one for one in log.events if one[0] == "b"]) == 8)
                # The zombie's callback ends, but its lease is over: it begins no other.
                before = list(log.events)
                worker = next(iter(first.member._workers.values()))
                release.set()
                wait_until(lambda: len(log.events) > len(before))
                put(relay, 2)
                wait_until(lambda: len([one for one in log.events if one[0] == "b"]) == 16)
                worker.checkpoint.value = {"windowScn": 1, "windowOffset": -1}  # what it would like to report
                worker.client.stop()
                wait_until(lambda: worker.ended)
                worker.error = TargetError("a store refused it, because the partition is another's")
                frozen.set()
                wait_until(lambda: worker.state is PartitionState.LOST)
                assert [one for one in log.events if one[0] == "a"][5:] == [("a", 0, 1, log.events[0][3], 15)]
                assert group_of(relay)["partitions"][0]["generation"] == 2
        (partition,) = group_of(relay)["partitions"]
    assert partition["checkpoint"]["windowScn"] & 0xFFFF == 2
    assert first.error is second.error is None
    assert [key for member, *_, key in log.events if member == "b"] == keys_of(1, 2)


def test_a_new_owner_begins_where_the_group_began(tmp_path: Path) -> None:
    """A first owner that died before its first report is not the beginning."""
    log = Log()
    with served(state=tmp_path, memory_bytes=1 << 18) as relay:
        put(relay, 1)
        begin = relay.relay.partitions[1].buffer.oldest_resumable_scn
        first = Running(relay, log, "a", lambda _: Result.ERROR_FATAL, partitions=1)
        first.join()
        assert isinstance(first.error, RelayConsumerError)
        assert group_of(relay)["partitions"][0]["checkpoint"]["windowScn"] == begin
        second = Running(relay, log, "b", partitions=1)
        with running(second):
            wait_until(lambda: [key for member, *_, key in log.events if member == "b"] == keys_of(1))


@pytest.mark.parametrize("rolled", [False, True])
def test_a_group_that_began_before_the_first_window(tmp_path: Path, *, rolled: bool) -> None:
    """It gets everything, or an error if the first windows are gone; no window is passed over."""
    log = Log()
    with served(state=tmp_path, memory_bytes=1 << 18) as relay:
        buffer, first = relay.relay.partitions[1].buffer, Running(relay, log, "a", partitions=1)
        with running(first):
            wait_until(lambda: first.owned == {0})
        put(relay, 1)
        for n in range(2, 50):
            if rolled and buffer.holds(0):
                relay.put(block(people(range(900), gtids=[f"{UUID}:{n}"] * 900, pos=[n * 100] * 900)))
        assert buffer.holds(0) is not rolled
        second = Running(relay, log, "b", partitions=1)
        with running(second):
            if rolled:
                second.join()
                assert isinstance(second.error, ScnNotFoundError)
            else:
                wait_until(lambda: len(log.events) == 8)
    assert log.keys == ([] if rolled else keys_of(1))


def test_a_relay_that_restarts(tmp_path: Path) -> None:
    log = Log()
    with contextlib.ExitStack() as stack:
        with served(state=tmp_path) as relay:
            put(relay, 1)
            proxy = stack.enter_context(Proxy("127.0.0.1", relay.port))  # its address stays; the port may be taken
            member = Running(relay, log, "a", port=proxy.port, lease_seconds=PATIENCE_SECONDS)
            stack.enter_context(running(member))
            wait_until(lambda: len(log.events) == 8)
            generations = [one["generation"] for one in group_of(relay)["partitions"]]
        wait_until(lambda: member.member._state is MemberState.CUT_OFF)
        with served(state=tmp_path) as relay:
            proxy.aim("127.0.0.1", relay.port)
            wait_until(lambda: member.member._state is MemberState.JOINED)
            put(relay, 1, 2)
            wait_until(lambda: len(log.events) == 16)
            assert [one["generation"] for one in group_of(relay)["partitions"]] == generations
            member.stop()
    assert log.keys == keys_of(1, 2)


def test_what_ends_a_member(tmp_path: Path) -> None:
    log = Log()
    with served(state=tmp_path) as relay:
        first = Running(relay, log, "a")
        with running(first):
            wait_until(lambda: len(first.owned) == PARTITIONS)
            other = Running(relay, log, "b", partitions=3)
            other.join()
            assert isinstance(other.error, ConfigError)
            assert "has 4 partitions, not 3" in str(other.error)
    with served() as relay:
        nowhere = Running(relay, log, "c")
        nowhere.join()
        assert isinstance(nowhere.error, ConfigError)
        assert "give it a state folder" in str(nowhere.error)
    for partitions, lease in ((0, 10.0), (1025, 10.0), (4, 0.01), (4, 1000.0)):
        with pytest.raises(ConfigError, match="a group has"):
            GroupMember("http://127.0.0.1:1", "g", partitions, [], lambda *_: Consumer(), lease_seconds=lease)


def test_a_member_gives_up_in_the_time_it_has() -> None:
    """Also before it has a partition."""
    member = GroupMember("http://127.0.0.1:1", "g", 1, [], lambda *_: Consumer(), retry=Retry(deadline_seconds=0.05))
    with pytest.raises(RelayConsumerError, match="given up after 2 tries: the relay does not answer"):
        member.run()


@pytest.mark.parametrize("error", [ConfigError("the token is refused"), ValueError("a fault of the program")])
def test_a_member_that_ends_with_an_error_ends_its_partitions_first(tmp_path: Path, error: Exception) -> None:
    """A partition is dropped after its last callback, and no thread is left."""
    log, running_callback, release = Log(), threading.Event(), threading.Event()
    dropped_while_running: list[bool] = []

    def hook(_: Event) -> None:
        running_callback.set()
        release.wait(PATIENCE_SECONDS)
        running_callback.clear()

    with served(state=tmp_path) as relay:
        put(relay, 1)
        one = Running(relay, log, "a", hook, partitions=1)
        with running(one):
            assert running_callback.wait(PATIENCE_SECONDS)
            (worker,) = one.member._workers.values()

            def refuse(*_: Any, **__: Any) -> Any:
                raise error

            one.member._dropped = lambda _: dropped_while_running.append(running_callback.is_set())
            one.member._post_reports = refuse  # type: ignore[method-assign]
            wait_until(lambda: worker.client._stop.is_set() or not one.is_running)
            release.set()
    assert one.error is error
    assert dropped_while_running == [False]
    assert worker.ended
    assert [key for *_, key in log.events] == [10]


@pytest.mark.parametrize("value", [[], {}, {"partitions": [1]}, {"partitions": {"0": {"generation": "x"}}}])
def test_json_that_is_no_answer_of_a_relay(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """Another program may be at the URL."""
    monkeypatch.setattr(RelayTransport, "post", lambda *_: value)
    member = GroupMember("http://127.0.0.1:1", "g", 1, [], lambda *_: Consumer())
    with pytest.raises(ProtocolError, match="/groups/g gave another answer than a relay's"):
        member.run()


@pytest.mark.parametrize("name", ["my group", "größe", "billing?eu", "billing#eu", "店"])
def test_a_name_that_no_group_has(tmp_path: Path, name: str) -> None:
    """It is sent as it is, and the relay refuses it; a part of it is another group's."""
    with served(state=tmp_path) as relay:
        url = f"http://127.0.0.1:{relay.port}"
        member = InThread(GroupMember(url, name, 1, [PERSON.name], lambda *_: Consumer()))
        try:
            wait_until(lambda: member.error is not None)
        finally:
            member.stop()
    assert isinstance(member.error, ConfigError)
    assert "is not a group name" in str(member.error)
    assert list((tmp_path / "groups").glob("*.json")) == []


def test_members_share_a_bootstrap_and_go_on_with_that_of_one_that_crashed(tmp_path: Path) -> None:
    some_rows = ClientTuning(sync=0.1, rows_bytes=2_000)
    log, held, release = Log(), threading.Event(), threading.Event()
    parts = [list(range(n, n + 20)) for n in range(1000, 1200, 20)]
    rows = {key for part in parts for key in part}

    def hold(_: Event) -> None:
        if len([one for one in log.events if one[0] == "a" and one[1] == 0]) == 20:
            held.set()
            release.wait(PATIENCE_SECONDS)

    def bootstraps(relay: Served) -> list[Any]:
        return [one["checkpoint"] or {} for one in group_of(relay)["partitions"]]

    with bootstrapping(Shelf(*parts), state=tmp_path) as relay:
        put(relay, 1)
        first = Running(relay, log, "a", hold, bootstrap=True, tuning=some_rows)
        with running(first):
            assert held.wait(PATIENCE_SECONDS)  # in the middle of a bootstrap; its stream has had nothing yet
            wait_until(lambda: bootstraps(relay)[0].get("snapshot_offset", 0) > 0)
            before = [one for one in log.events if one[1] == 0]
            first.member._post_reports = lambda *_a, **_k: {}  # type: ignore[method-assign]
            wait_until(lambda: all(one.state is PartitionState.LOST for one in list(first.member._workers.values())))
            release.set()  # callbacks that have begun end, and their rows are old: before anything newer comes
            first.stop()
            put(relay, 100, 101)  # rows that are there are changed
            second = Running(relay, log, "b", tuning=some_rows)  # the group knows that it bootstraps
            with running(second):
                wait_until(lambda: second.owned == set(range(PARTITIONS)))
                wait_until(
                    lambda: (
                        [one.get("consumption_mode") for one in bootstraps(relay)]
                        == ["ONLINE_CONSUMPTION"] * PARTITIONS
                    )
                )
                put(relay, 102)
                wait_until(lambda: len([scn for *_, scn, _ in log.events if scn & 0xFFFF == 102]) == 8)
                after = [one for one in log.events if one[:2] == ("b", 0)]
    assert set(log.keys) == rows
    assert len({key for *_, key in before} - {key for *_, key in after}) > 0  # it went on, and did not begin again
    last = {key: scn & 0xFFFF for *_, scn, key in log.events}
    for n in (100, 101, 102):
        assert {last[key] for key in keys_of(n)} == {n}


def test_no_row_is_given_before_the_relay_knows_where_the_bootstrap_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, if the member is killed, the next one begins with rows of a later moment, and of those that were given and
    deleted in between nobody hears.
    """
    log, known, delivered, really = Log(), list[Any](), threading.Event(), GroupMember._post_reports
    with bootstrapping(Shelf([1000, 1001], [1002]), state=tmp_path) as relay:
        put(relay, 1)

        def look(_: Event) -> None:
            delivered.set()
            known.append(group_of(relay)["partitions"][0]["checkpoint"])

        def ask(self: GroupMember, done: Any, **more: Any) -> Any:
            if done:
                delivered.wait(1)  # reports are slow: a row would overtake the first one
            return really(self, done, **more)

        monkeypatch.setattr(GroupMember, "_post_reports", ask)
        rare = {"lease_seconds": 600.0, "tuning": ClientTuning(sync=1000.0)}  # reports, but for what has to be reported
        member = Running(relay, log, "a", look, bootstrap=True, partitions=1, **rare)
        with running(member):
            wait_until(lambda: len(log.events) == 3 or member.error is not None)
    assert known[0] is not None
    assert known[0]["consumption_mode"] == "BOOTSTRAP_SNAPSHOT"
    assert known[0]["bootstrap_start_scn"] & 0xFFFF == 1


def test_reports_that_make_no_sense(tmp_path: Path) -> None:
    import http.client

    good = {"member": "m", "partitions": 2, "sources": [PERSON.name]}
    with served(state=tmp_path) as relay:

        def post(body: bytes, kind: str = "application/json", name: str = "g") -> tuple[int, str]:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", relay.port, timeout=60)) as connection:
                connection.request("POST", f"/groups/{name}", body, {"content-type": kind})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        status, text = post(json.dumps(good).encode())
        assert status == 200
        assert sorted(json.loads(text)["partitions"]) == ["0", "1"]
        for body, kind, name, why in (
            (json.dumps(good).encode(), "text/plain", "g", "content-type"),
            (b"{", "application/json", "g", "body"),
            (json.dumps({**good, "partitions": 0}).encode(), "application/json", "g", "partitions"),
            (json.dumps({**good, "sources": ["none"]}).encode(), "application/json", "g", "has no source none"),
            (json.dumps(good).encode(), "application/json", ".g", "not a group name"),
        ):
            status, text = post(body, kind, name)
            assert status == 500
            assert why in text
        assert relay.get("groups/none").status == 500


def test_a_full_disk_ends_no_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the report, so the member retries."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    report = {"member": "m", "partitions": 2, "sources": [PERSON.name]}
    with (
        served(state=tmp_path) as relay,
        contextlib.closing(RelayTransport([f"http://127.0.0.1:{relay.port}"])) as transport,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(ConnectError, match=r"g\.json cannot be written: No space left"):
                transport.post("groups/g", report)
        assert sorted(transport.post("groups/g", report)["partitions"]) == ["0", "1"]
        with pytest.raises(ConfigError, match="has 2 partitions, not 3"):
            transport.post("groups/g", {**report, "partitions": 3})


def test_a_checkpoint_between_client_and_report() -> None:
    tell = threading.Event()
    kept = PartitionCheckpoint(None, tell)

    def begun() -> bool:
        return kept.is_begun

    assert kept.load() is None
    kept.store({"windowScn": 1})
    assert kept.load() == {"windowScn": 1}
    assert begun()
    assert not tell.is_set()
    start = {"consumption_mode": "BOOTSTRAP_SNAPSHOT", "bootstrap_start_scn": 5}
    kept.store(start)
    assert not begun()
    assert tell.wait(0)
    kept.acknowledge({"windowScn": 1})  # what was reported before
    assert not begun()
    kept.acknowledge(start)
    assert begun()
    kept.store({**start, "snapshot_offset": 8})
    assert begun()
    kept.store({**start, "bootstrap_start_scn": 9})  # it has begun again
    assert not begun()
    kept.store({"windowScn": 10})
    assert begun()
