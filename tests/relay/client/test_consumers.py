"""One client and several consumers, several relays, limits of time; checkpoints as Databus writes them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from headgate.config import ScnKind
from headgate.errors import ConfigError, RelayConsumerError, RelayDivergedError, ScnNotFoundError
from headgate.relay.client import (
    CheckpointFile,
    Consumer,
    Event,
    Reader,
    RelayClient,
    Result,
    Retry,
    Share,
    Subscription,
    _checkpoints,
)
from headgate.relay.client._callbacks import _Lane
from headgate.relay.databus import StreamPosition, checkpoint_json, parse_position
from headgate.relay.server import LogicalSource, PhysicalSource
from headgate.retrying import Failures
from headgate_testing import wait_until
from tests.relay.client.story import switch
from tests.relay.server.rows import PERSON as TABLE
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, PET, Served, physical, served
from tests.relay.server.test_app import pets

NUMBER = 1 << 48
COUNTING: tuple[ScnKind, ...] = ("relay-generated", "binlog-offset")
"""Kinds of SCN that count transactions, or are places in the log."""
PETS = range(101, 110)


class Keys(Consumer):
    """Notes keys; ends the client after so many windows."""

    def __init__(self, windows: int = 0, hook: Callable[[str, Any], Any] = lambda _n, _v: None) -> None:
        self.keys: list[Any] = []
        self.callbacks: list[str] = []
        self.client: RelayClient
        self._left, self._hook = windows, hook

    def _say(self, name: str, value: Any) -> Result | None:
        self.callbacks.append(name)
        answer = self._hook(name, value)
        return answer if isinstance(answer, Result) else None

    def on_data_event(self, event: Event) -> Result | None:
        key = event.key if isinstance(event.key, int) else int(event.key.partition(b"\t")[0])
        self.keys.append(key)
        return self._say("event", key)

    def on_checkpoint(self, scn: int) -> Result | None:
        self._left -= 1
        if not self._left:
            self.client.stop()
        return self._say("checkpoint", scn)

    def on_rollback(self, scn: int) -> Result | None:
        return self._say("rollback", scn)

    def on_error(self, error: Exception) -> Result | None:
        return self._say("error", error)


def url(relay: Served) -> str:
    return f"http://127.0.0.1:{relay.port}"


def run(
    urls: Any, consumers: Any, checkpoints: CheckpointFile | None = None, *, sources: Any = (), **more: Any
) -> RelayClient:
    client = RelayClient(urls, sources, consumers, checkpoints, **more)
    for one in [consumers] if isinstance(consumers, Consumer) else consumers:
        consumer = one.consumer if isinstance(one, Subscription) else one
        assert isinstance(consumer, Keys)
        consumer.client = client
    client.run()
    return client


def put(relay: Served, *numbers: int) -> None:
    """A transaction of each number: that person and pet."""
    for n in numbers:
        common: dict[str, Any] = {"gtids": [f"{UUID}:{n}"], "pos": [n * 100]}
        relay.put(block(people([n], **common), pets([100 + n], ordinals=[1], **common)))


# --- several consumers


def test_consumers_side_by_side() -> None:
    """Both are inside a callback at the same time; a subscription to one source gets no other."""
    meet = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    everything = Keys(2, lambda name, value: meet.wait() if (name, value) == ("event", 1) else None)
    some = Keys(hook=lambda name, value: meet.wait() if (name, value) == ("event", 101) else None)
    with served() as relay:
        put(relay, 1, 2)
        run(url(relay), [everything, Subscription(some, [PET.name])])
    assert everything.keys == [1, 101, 2, 102]
    assert some.keys == [101, 102]


def test_one_of_several_rolls_all_back() -> None:
    """The gravest answer counts, and a checkpoint means that all have had everything."""
    failing = iter([Result.ERROR])
    first, second = Keys(2), Keys(hook=lambda name, value: next(failing, None) if (name, value) == ("event", 2) else 0)
    with served() as relay:
        put(relay, 1, 2)
        run(url(relay), [first, second], sources=[PERSON.name])
    assert first.keys == [1, 2, 2]
    assert second.keys == [1, 2, 2]
    assert first.callbacks.count("rollback") == second.callbacks.count("rollback") == 1


def test_one_that_will_not_checkpoint_keeps_it_for_all(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "c")
    first = Keys(2)
    second = Keys(hook=lambda name, value: Result.SKIP_CHECKPOINT if (name, value) == ("checkpoint", NUMBER + 2) else 0)
    with served() as relay:
        put(relay, 1, 2)
        run(url(relay), [first, second], checkpoints)
    assert parse_position(checkpoints.load()) == StreamPosition(NUMBER + 1)


def test_an_error_at_a_checkpoint_does_not_keep_it_and_goes_on(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "c")

    def hook(name: str, value: Any) -> Result | None:
        if (name, value) == ("checkpoint", NUMBER + 2):
            raise ValueError("no")
        return Result.ERROR if (name, value) == ("checkpoint", NUMBER + 3) else None

    consumer = Keys(3, hook)
    with served() as relay:
        put(relay, 1, 2, 3)
        run(url(relay), consumer, checkpoints, sources=[PERSON.name])
    assert consumer.keys == [1, 2, 3]
    assert "rollback" not in consumer.callbacks
    assert parse_position(checkpoints.load()) == StreamPosition(NUMBER + 1)


def test_a_callback_that_takes_too_long_ends_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes in that callback only, so that no other one takes long."""
    release, now = threading.Event(), [1000.0]
    monkeypatch.setattr("headgate.relay.client._callbacks.time", SimpleNamespace(monotonic=lambda: now[0]))
    checkpoints = CheckpointFile(tmp_path, "c")

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("event", 2):
            now[0] += 2
            release.wait(PATIENCE_SECONDS)

    slow = Keys(hook=hook)
    with served() as relay:
        put(relay, 1, 2)
        with pytest.raises(RelayConsumerError, match=r"on_data_event has taken longer than 2 s"):
            run(url(relay), slow, checkpoints, sources=[PERSON.name], callback_seconds=2)
        release.set()
        assert parse_position(checkpoints.load()) == StreamPosition(NUMBER + 1)
        quick = Keys(1)
        run(url(relay), quick, checkpoints, sources=[PERSON.name], callback_seconds=60)
    assert quick.keys == [2]


def test_a_callback_may_end_while_its_time_is_looked_at() -> None:
    begun, looked = threading.Event(), threading.Event()

    class Ending(_Lane):
        """One whose call ends just after its beginning was looked up."""

        def __getattribute__(self, name: str) -> Any:
            attribute = super().__getattribute__(name)
            if name == "running" and attribute is not None:
                looked.set()
                running = super().__getattribute__
                wait_until(lambda: running(name) is None)
            return attribute

    def hook(name: str, value: Any) -> None:
        begun.set()
        looked.wait(PATIENCE_SECONDS)

    lane = Ending(Subscription(Keys(hook=hook)), 0)
    lane.post("on_checkpoint", (1,))
    assert begun.wait(PATIENCE_SECONDS)
    assert lane.finish(PATIENCE_SECONDS) is Result.SUCCESS
    lane.end(wait=True)


@pytest.mark.parametrize("lease", [False, True])
def test_posted_calls_do_not_begin_after_the_end(*, lease: bool) -> None:
    """The first callback stops the client, or the lease is over then. All other calls of the window wait in the
    consumers' threads. With a lease again, the window comes from its start, and no failure is counted.
    """
    may, ended, before = threading.Event(), threading.Event(), list[Any]()
    may.set()

    def end(scn: int) -> None:
        if not ended.is_set():
            wait_until(lambda: all(lane._open == 104 for lane in first.client._callbacks._lanes))
            if lease:
                may.clear()
            else:
                first.client.stop()
            ended.set()

    def hook(name: str, value: Any) -> None:
        if name == "rollback":
            before.append((list(first.keys), list(second.keys)))
            may.set()

    def wait(scn: int) -> None:
        ended.wait(PATIENCE_SECONDS)

    first, second = Keys(1, hook), Keys()
    first.on_start_data_event_sequence = end  # type: ignore[method-assign]
    second.on_start_data_event_sequence = wait  # type: ignore[method-assign]
    with served() as relay:
        relay.put(block(people(range(1, 101), gtids=[f"{UUID}:1"] * 100, pos=[100] * 100)))
        run(url(relay), [first, second], sources=[PERSON.name], may_deliver=may.is_set, retry=Retry(tries=0))
    assert before == [([], [])]
    assert first.keys == second.keys == (list(range(1, 101)) if lease else [])


@pytest.mark.parametrize("others", [0, 1])
def test_a_callback_that_exits_ends_the_client(others: int) -> None:
    """Its thread goes on, so that the client does not wait for it without end."""

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("event", 1):
            sys.exit(5)

    with served() as relay:
        put(relay, 1)
        with pytest.raises(RelayConsumerError, match="a callback ended the consumer"):
            run(url(relay), [Keys(hook=hook), *(Keys() for _ in range(others))], callback_seconds=PATIENCE_SECONDS)


def test_on_error_may_end_it() -> None:
    consumer = Keys(hook=lambda name, _: Result.ERROR_FATAL if name == "error" else None)
    with pytest.raises(RelayConsumerError, match="ended the consumer after: the relay does not answer"):
        run("http://127.0.0.1:1", consumer)
    assert consumer.callbacks == ["error"]


def test_a_deadline_for_failures() -> None:
    consumer = Keys()
    with pytest.raises(RelayConsumerError, match="given up after"):
        run("http://127.0.0.1:1", consumer, retry=Retry(first_seconds=0.01, deadline_seconds=0.3))
    assert consumer.callbacks.count("error") >= 2
    pauses = [0.1 * 1.1**n for n in range(60)]
    failures = Failures(Retry())
    actual = []
    for _ in pauses:
        failures.add(ValueError())
        actual.append(failures.pause())
    assert all(min(pause, 10) / 2 <= one <= min(pause, 10) for pause, one in zip(pauses, actual, strict=True))
    failures.clear()
    assert failures.pause() <= 0.1


def test_a_share_of_the_keys() -> None:
    with served() as relay:
        put(relay, *range(1, 10))
        shares = [Keys(9) for _ in range(3)]
        for bucket, consumer in enumerate(shares):
            run(url(relay), consumer, sources=[PERSON.name], share=Share(bucket, 3))
            assert consumer.keys == sorted(consumer.keys) != []
        assert sorted(key for one in shares for key in one.keys) == list(range(1, 10))
        span = {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 2, "end": 4}}]}
        consumer = Keys(9)
        run(url(relay), consumer, filters={PERSON.name: span})
        assert [key for key in consumer.keys if key not in PETS] == [2, 3]
        assert [key for key in consumer.keys if key in PETS] == list(PETS)


@pytest.mark.parametrize(
    ("more", "kept"),
    [({}, [1, 5]), ({"checkpoint_seconds": 3600}, [1, 5]), ({"checkpoint_seconds": 0}, [1, 2, 3, 4, 5])],
)
def test_checkpoints_no_more_often_than_asked_for(
    more: dict[str, Any], kept: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default some in a second, however many windows; the clock stands still here."""
    since_the_machine_started = SimpleNamespace(monotonic=lambda: 5.0)
    monkeypatch.setattr("headgate.relay.client._checkpoints.time", since_the_machine_started)
    stored: list[int] = []

    class Counting(CheckpointFile):
        def store(self, checkpoint: Any) -> None:
            stored.append(checkpoint["windowScn"] - NUMBER)
            super().store(checkpoint)

    with served() as relay:
        put(relay, *range(1, 6))
        run(url(relay), Keys(5), Counting(tmp_path, "c"), **more)
    assert stored == kept


def test_sources_of_two_servers_are_refused() -> None:
    other = LogicalSource(50, "other.T", "d.t")
    with (
        served(physical(1, "person", PERSON), physical(2, "other", other)) as relay,
        pytest.raises(ConfigError, match="are in different physical sources"),
    ):
        run(url(relay), Keys())


# --- checkpoints as Databus has them


def test_a_stored_checkpoint_survives_a_crash_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names are synced once, when all are final. A kill leaves no file that the next one does not replace."""
    synced: list[tuple[Path, dict[str, Any]]] = []

    def files() -> dict[str, Any]:
        return {one.name: json.loads(one.read_text()) for one in tmp_path.iterdir()}

    def refuse(*_: Any) -> None:
        raise OSError("killed")

    monkeypatch.setattr(_checkpoints, "sync", lambda folder: synced.append((folder, files())))
    file, expected = CheckpointFile(tmp_path, "x"), list[tuple[Path, dict[str, Any]]]()
    for scn, names in enumerate((["x.current"], ["x.oldcurrent", "x.current"])):
        file.store({"windowScn": scn})
        expected.append((tmp_path, {name: {"windowScn": n} for n, name in enumerate(names)}))
    assert synced == expected
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(ConfigError):
            file.store({"windowScn": 2})
    assert set(files()) == {"x.oldcurrent", "x.current", "x.newcurrent"}
    file.store({"windowScn": 3})
    assert set(files()) == {"x.oldcurrent", "x.current"}


def test_checkpoint_files_as_databus_writes_them(tmp_path: Path) -> None:
    """Names by ``calcStreamId``, one line of ``Checkpoint.toString()``; what Databus wrote is gone on from."""
    names = ["com.linkedin.events.example.or_test.Person", "a-b"]
    file = CheckpointFile.of_sources(tmp_path, names)
    file.store(checkpoint_json(StreamPosition(5984508975840)))
    assert (tmp_path / "cp_com_linkedin_events_example_or_test_Person-a_b.current").read_bytes() == (
        b'{"windowOffset":-1,"snapshot_offset":-1,"prevScn":-1,"windowScn":5984508975840,'
        b'"consumption_mode":"ONLINE_CONSUMPTION"}\n'
    )
    CheckpointFile.of_sources(tmp_path, [f"com.linkedin.events.a.S{n}" for n in range(5)]).store({"windowScn": 1})
    assert (tmp_path / "cp_a_S0-a_S1-a_S2-a_S3-a_S4.current").exists()
    CheckpointFile.of_sources(tmp_path, ["x" * 300]).store({"windowScn": 1})
    assert (tmp_path / f"cp_{'x' * 237}.current").exists()
    with served() as relay:
        put(relay, 1, 2)
        (tmp_path / "theirs.current").write_text(
            f'{{"prevScn":{NUMBER + 1},"windowScn":{NUMBER + 1},"tsNsecs":-1,"windowOffset":-1,'
            '"consumption_mode":"ONLINE_CONSUMPTION","snapshot_offset":-1,"bootstrap_since_scn":0}\n'
        )
        consumer = Keys(1)
        run(url(relay), consumer, CheckpointFile(tmp_path, "theirs"))
        assert consumer.keys == [2, 102]
        (tmp_path / "inside.current").write_text(
            f'{{"windowScn":{NUMBER + 1},"windowOffset":1,"consumption_mode":"ONLINE_CONSUMPTION"}}\n'
        )
        consumer = Keys(2)
        run(url(relay), consumer, CheckpointFile(tmp_path, "inside"))
        assert consumer.keys == [101, 2, 102]


# --- several relays


def test_a_consumer_switches_between_relays_of_one_map(tmp_path: Path) -> None:
    """The first relay goes in the middle; the second goes on, and nothing is lost, repeated or out of order."""
    shared = tmp_path / "generations.json"
    consumer = Keys(4)
    with served(generations=shared) as second:
        put(second, 1, 2, 3, 4)
        with served(generations=shared) as first:
            put(first, 1, 2)
            urls = [url(first), url(second)]
            consumer._hook = lambda name, value: first_ends.set() if (name, value) == ("checkpoint", NUMBER + 2) else 0
            first_ends = threading.Event()
            client = RelayClient(urls, [], consumer)
            consumer.client = client
            thread = threading.Thread(target=client.run)
            thread.start()
            assert first_ends.wait(PATIENCE_SECONDS)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert consumer.keys == [1, 101, 2, 102, 3, 103, 4, 104]
    assert "error" in consumer.callbacks


def a_pattern() -> PhysicalSource:
    return physical(1, "p", LogicalSource(40, "b", "or_test.*"))


def test_a_table_that_appears_later_where_all_are_wanted() -> None:
    """Its first changes come, too, although nobody knew it when the relay was connected to."""

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("checkpoint", NUMBER + 1):
            relay.put(block(pets([7], gtids=[f"{UUID}:2"], pos=[200])))
        if (name, value) == ("checkpoint", NUMBER + 2):
            switch(consumer.client)
            relay.put(block(pets([8], gtids=[f"{UUID}:3"], pos=[300])))

    consumer = Keys(3, hook)
    with served(a_pattern()) as relay:
        write(relay, 1, 100)
        run(url(relay), consumer)
    assert consumer.keys == [1, 7, 8]
    assert not {"error", "rollback"} & {*consumer.callbacks}


def test_shares_of_a_table_that_appears_later() -> None:
    """Members of a group get each of its first changes once."""
    ids = list(range(7, 27))

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("checkpoint", NUMBER + 1) and relay.relay.partitions[1].buffer.reached_scn == NUMBER + 1:
            relay.put(block(pets(ids, gtids=[f"{UUID}:2"] * 20, pos=[200] * 20, ordinals=list(range(20)))))

    members = [Keys(2, hook), Keys(2, hook)]
    with served(a_pattern()) as relay:
        write(relay, 1, 100)
        for number, consumer in enumerate(members):
            run(url(relay), consumer, share=Share(number, 2))
    shares = [[one for one in consumer.keys if one in ids] for consumer in members]
    assert sorted(shares[0] + shares[1]) == ids
    assert all(shares)


def test_a_table_that_appears_in_an_open_window() -> None:
    """Also over a new connection, in the middle of the window."""

    def hook(name: str, value: Any) -> None:
        gtid = f"{UUID}:2"
        if (name, value) == ("checkpoint", NUMBER + 1):
            ids = list(range(11, 20))
            persons = people(ids, gtids=[gtid] * 9, pos=[200] * 9, ordinals=list(range(1, 10)))
            relay.put(block(pets([7], gtids=[gtid], pos=[200]), persons))
        if (name, value) == ("event", 11) and "rollback" not in consumer.callbacks:
            switch(consumer.client)

    consumer = Keys(2, hook)
    with served(a_pattern()) as relay:
        write(relay, 1, 100)
        consumer.client = RelayClient(url(relay), [], consumer)
        consumer.client._reader._sizes["stream"] = 200
        consumer.client.run()
    assert consumer.keys == [1, 7, *range(11, 20)]


def test_a_relay_that_is_behind_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, checkpoints = tmp_path / "generations.json", CheckpointFile(tmp_path, "c")
    consumer = Keys(3)
    with served(generations=shared) as ahead, served(generations=shared) as behind:
        put(ahead, 1, 2)
        put(behind, 1)

        def hook(name: str, value: Any) -> None:
            if (name, value) == ("checkpoint", NUMBER + 2):
                switch(consumer.client)

        really, waits = Reader.recognises, iter([True])

        def confirm(reader: Reader, trail: Any) -> bool:
            recognised = really(reader, trail)
            if not recognised and next(waits, False):
                put(behind, 2, 3)
            return recognised

        monkeypatch.setattr(Reader, "recognises", confirm)
        consumer._hook = hook
        run([url(ahead), url(behind)], consumer, checkpoints, sources=[PERSON.name])
    assert consumer.keys == [1, 2, 3]
    assert list(waits) == []


def test_too_far_behind_everywhere(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "c")
    checkpoints.store(checkpoint_json(StreamPosition(NUMBER + 1)))
    with served() as one, served() as other:
        put(one, 5)
        put(other, 7)
        with pytest.raises(ScnNotFoundError):
            run([url(one), url(other)], Keys(), checkpoints)
        with served() as third:
            put(third, 1, 2)
            consumer = Keys(1)
            run([url(one), url(other), url(third)], consumer, checkpoints, sources=[PERSON.name])
            assert consumer.keys == [2]


def write(relay: Served, n: int, pos: int, *, key: int | None = None) -> None:
    """Transaction n, at a place in the server's log; the key is also what SCNs of columns are made of."""
    relay.put(block(people([n if key is None else key], gtids=[f"{UUID}:{n}"], pos=[pos])))


def config_of(kind: ScnKind, tmp_path: Path) -> dict[str, Any]:
    column = {"scn_column": "or_test.person.id"} if kind in ("application", "source-generated") else {}
    shared = {"generations": tmp_path / "generations.json"} if kind.endswith("generation") or "source" in kind else {}
    return {"scn": kind, **column, **shared}


def switching(first: Served, second: Served, sources: Any = (PERSON.name,)) -> Keys:
    """Consume what the first relay has, then go on at the second until transaction 9."""
    newest = first.relay.partitions[1].buffer.info().max_scn
    consumer = Keys()

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("checkpoint", newest):
            switch(consumer.client)
        if (name, value) == ("event", 9):
            consumer.client.finish()

    consumer._hook = hook
    run([url(first), url(second)], consumer, sources=sources)
    return consumer


@pytest.mark.parametrize("version", [1, 2])
def test_relays_that_number_the_versions_of_a_schema_differently(version: int) -> None:
    """One has been there since before an ALTER TABLE, the other has begun after it, without a registry."""
    with served(event_version=version) as first, served(event_version=version) as second:
        second.relay.registry.schema_of(PERSON.name, replace(TABLE, columns=TABLE.columns[:2]))
        for relay, numbers in (first, (1, 2, 3)), (second, (1, 2, 3, 9)):
            for n in numbers:
                write(relay, n, 100 * n)
        assert switching(first, second).keys == [1, 2, 3, 9]


FIRST_LOG = [(1, 100), (2, 200), (3, 300)]
HISTORIES: dict[str, tuple[list[tuple[int, int]], dict[int, int], list[int], Any]] = {
    "the same, and more": ([*FIRST_LOG, (9, 900)], {}, [1, 2, 3, 9], ()),
    "without transaction 2": ([(1, 100), (3, 200), (4, 300), (9, 400)], {}, [1, 2, 3, 4, 9], COUNTING),
    "another row under a number": ([*FIRST_LOG, (9, 900)], {3: 7}, [], get_args(ScnKind)),
    "without the newest": ([(1, 100), (2, 200), (9, 400)], {}, [], get_args(ScnKind)),
}
"""Of the second relay: transactions and their places; keys that differ from the number; what a consumer gets of both
relays; the kinds of SCN with which the relays have different histories."""


@pytest.mark.parametrize("kind", get_args(ScnKind))
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("sources", [(), (PERSON.name,)])
def test_a_consumer_goes_on_only_where_the_history_is_the_same(
    kind: ScnKind, history: str, sources: Any, tmp_path: Path
) -> None:
    """A replica may have missed a transaction, been written to, or be restored from an image.

    SCNs that are made of the transaction stay right without transaction 2: the consumer had it from the first relay.
    Those that count, or are places in the log, mean others from there on: that is told, before anything is left out or
    repeated.
    """
    config, (log, odd, keys, diverging) = config_of(kind, tmp_path), HISTORIES[history]
    with served(**config) as first, served(**config) as second:
        for n, pos in FIRST_LOG:
            write(first, n, pos)
        for n, pos in log:
            write(second, n, pos, key=odd.get(n))
        if kind not in diverging:
            assert switching(first, second, sources).keys == keys
            return
        with pytest.raises(RelayDivergedError, match="has another history") as caught:
            switching(first, second, sources)
        assert caught.value.fields["scn"] == first.relay.partitions[1].buffer.info().max_scn


def at_scn(folder: Path, scn: int) -> Path:
    """A state as a relay keeps it: transaction ``scn`` is the last one had."""
    folder.mkdir()
    value = {"v": 1, "kind": "relay-generated", "gtid": f"{UUID}:1-{scn}", "scn": scn}
    value |= {"last": None, "server_uuid": ""}
    (folder / "partition-1.json").write_text(json.dumps(value))
    return folder


def test_the_two_relays_of_the_article(tmp_path: Path) -> None:
    """R1 begins with (FN=10, FO=1000, SCN=100), R2, at another replica, with (50, 4, 100); 100 transactions later they
    are at (10, 11000, 200) and (50, 10004, 200), and a consumer of one may go on at the other.
    """
    with (
        served(scn="relay-generated", state=at_scn(tmp_path / "r1", 100)) as one,
        served(scn="relay-generated", state=at_scn(tmp_path / "r2", 100)) as other,
    ):

        def feed(relay: Served, numbers: range) -> None:
            file, offset = (10, 1000) if relay is one else (50, 4)
            for n in numbers:
                relay.put(block(people([n], gtids=[f"{UUID}:{100 + n}"], pos=[offset + 100 * (n - 1)], file=file)))

        feed(one, range(1, 51))
        feed(other, range(1, 101))
        consumer = Keys(100, lambda name, value: switch(consumer.client) if (name, value) == ("checkpoint", 150) else 0)
        run([url(one), url(other)], consumer, sources=[PERSON.name])
        assert consumer.keys == list(range(1, 101))
        feed(one, range(51, 101))
        assert [relay.relay.partitions[1].buffer.info().max_scn for relay in (one, other)] == [200, 200]
        parameters: dict[str, Any] = {
            "sources": "40",
            "size": "1000000",
            "output": "binary",
            "checkPoint": {"windowScn": 150},
        }
        assert one.get("stream", **parameters).body == other.get("stream", **parameters).body != b""
