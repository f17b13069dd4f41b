"""A consumer whom something goes wrong with at the worst moment; each was found by ``test_model``, or beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from headgate.errors import CommitConflictError, ProtocolError, RelayConsumerError, RelayDivergedError, ScnNotFoundError
from headgate.relay.client import ClientTuning, Consumer, Event, Reader, RelayClient, RelayTransport, Result, Retry
from headgate.relay.databus import FIRST, StreamPosition, checkpoint_json, parse_position
from headgate.web.serving import Serving
from headgate_testing import Proxy
from tests.relay.client.story import switch
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PERSON, PET, Served, served
from tests.relay.server.test_app import pets
from tests.relay.server.test_bootstrap import GENERATION, Shelf, bootstrap, point, put, serving, start, taken

QUICK = Retry(first_seconds=0.001, longest_seconds=0.001)


class Calls(Consumer):
    """Notes names of callbacks and keys; ``answer`` is asked first, with how often it was this call's turn."""

    def __init__(self, answer: Callable[[Any, int], Any] = lambda _what, _turn: None) -> None:
        self.calls: list[Any] = []
        self.client: RelayClient
        self._answer = answer

    def note(self, what: Any) -> Result | None:
        self.calls.append(what)
        answer = self._answer(what, self.calls.count(what))
        if answer == "stop":
            self.client.stop()
        return answer if isinstance(answer, Result) else None

    @property
    def keys(self) -> list[int]:
        return [one for one in self.calls if isinstance(one, int)]


def _callback(name: str) -> Any:
    def call(self: Calls, *arguments: Any) -> Result | None:
        if not isinstance(arguments and arguments[0], Event):
            return self.note(name)
        key = arguments[0].key
        return self.note(key if isinstance(key, int) else int(key.partition(b"\t")[0]))

    return call


for _name in [one for one in vars(Consumer) if one.startswith("on_")]:
    setattr(Calls, _name, _callback(_name))


class Memory:
    """A store of checkpoints."""

    def __init__(self, value: Mapping[str, Any] | None = None) -> None:
        self.value = value

    def load(self) -> Mapping[str, Any] | None:
        return self.value

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        self.value = checkpoint


def run(relays: Served | list[Any], *consumers: Calls, store: Memory | None = None, **more: Any) -> None:
    listed = [relays] if isinstance(relays, Served) else relays
    arguments = {"sources": [PERSON.name], "retry": QUICK, **more}
    client = RelayClient(
        [f"http://127.0.0.1:{one.port}" for one in listed],
        arguments.pop("sources"),
        list(consumers),
        store,
        **arguments,
    )
    for one in consumers:
        one.client = client
    client.run()


def fail_once(monkeypatch: pytest.MonkeyPatch, fails: Callable[[str, int], bool]) -> None:
    """No answer to some requests, by their paths and numbers."""
    really, count = RelayTransport.get, {"n": 0}

    def get(self: RelayTransport, path: str, *more: Any, **named: Any) -> Any:
        count["n"] += 1
        if fails(path, count["n"]):
            raise self.failure("the relay does not answer")
        return really(self, path, *more, **named)

    monkeypatch.setattr(RelayTransport, "get", get)


# --- what consumers answer


def test_an_error_of_one_of_several_while_rows_are_given() -> None:
    """It is not passed over, nor taken for an answer about the checkpoint: that row comes again."""
    failing = Calls(lambda what, turn: Result.ERROR if (what, turn) == (7, 1) else None)
    other = Calls(lambda what, _: "stop" if what == "on_stop_bootstrap" else None)
    with serving(Shelf([7, 8], [9])) as relay:
        put(relay, 1)
        run(relay, other, failing, bootstrap=True)
    assert failing.keys == [7, 7, 8, 9]
    assert other.keys == [7, 8, 7, 8, 9]
    assert failing.calls.count("on_bootstrap_rollback") == other.calls.count("on_bootstrap_rollback") == 1


@pytest.mark.parametrize("turn", [1, 2])
def test_a_consumer_that_ends_at_a_bootstraps_checkpoint(turn: int) -> None:
    ending = Calls(lambda what, n: Result.ERROR_FATAL if (what, n) == ("on_bootstrap_checkpoint", turn) else None)
    with serving(Shelf([7])) as relay:
        put(relay, 1)
        with pytest.raises(RelayConsumerError, match="a callback ended the consumer"):
            run(relay, ending, bootstrap=True)
    assert ending.keys == [7] * (turn - 1)


def test_an_error_at_the_start_is_tried_again_and_one_at_the_end_changes_nothing() -> None:
    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_start_consumption", 1) or what == "on_stop_consumption":
            return Result.ERROR
        return "stop" if what == "on_checkpoint" else None

    consumer = Calls(answer)
    with served() as relay:
        put(relay, 1)
        run(relay, consumer)
    assert consumer.calls[:3] == ["on_start_consumption", "on_rollback", "on_start_consumption"]
    assert consumer.keys == [1]


def test_no_callback_begins_while_rows_may_not_be_given() -> None:
    """The lease of a group's member may be over, and the partition another's."""
    held, begun, may = list[int](), list[Any](), True

    def ask() -> bool:
        nonlocal may
        may = consumer.keys != [7] or bool(held)
        held.extend([] if may else [1])
        return may

    def answer(what: Any, _: int) -> Any:
        begun.append((what, may))
        return "stop" if what == "on_stop_bootstrap" else None

    consumer = Calls(answer)
    with serving(Shelf([7, 8])) as relay:
        put(relay, 1)
        run(relay, consumer, bootstrap=True, may_deliver=ask)
    assert [what for what, might in begun if not might] == []
    assert consumer.keys == [7, 7, 8]


def test_hiccups_on_the_way_back_to_where_a_callback_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not in a row, so a few tries are enough, however long the way is."""
    streams = itertools.count()
    fail_once(monkeypatch, lambda path, _: path == "stream" and next(streams) % 2 == 1)

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == (8, 1):
            return Result.ERROR
        return "stop" if what == "on_checkpoint" else None

    consumer = Calls(answer)
    with served() as relay:
        relay.put(block(people(range(1, 11), gtids=[f"{UUID}:1"] * 10, pos=[100] * 10)))
        run(relay, consumer, retry=Retry(0.001, 1.0, 0.001, tries=2), tuning=ClientTuning(stream_bytes=200))
    assert consumer.keys == [*range(1, 9), *range(1, 11)]
    assert consumer.calls.count("on_error") > 5


def test_what_fails_at_a_transactions_beginning_again_and_again_is_given_up() -> None:
    """Also where the one before comes again and is done each time, in a request of its own."""

    def answer(what: Any, turn: int) -> Any:
        if what == 2:
            return "stop" if turn > 9 else Result.ERROR
        return Result.SKIP_CHECKPOINT if what == "on_checkpoint" else None

    consumer = Calls(answer)
    with served() as relay:
        first = relay.put(block(people([1], gtids=[f"{UUID}:1"], pos=[100])))
        put(relay, 2)
        tuning = ClientTuning(stream_bytes=len(first))
        with pytest.raises(RelayConsumerError, match="given up after 4 tries: a callback returned ERROR"):
            run(relay, consumer, retry=Retry(0.001, 1.0, 0.001, tries=3), tuning=tuning)
    assert consumer.keys == [1, 2] * 4


def test_a_rollback_to_before_the_first_transaction() -> None:
    """It is told under the SCN that the bootstrap ended with."""
    rollbacks: list[int] = []

    def answer(what: Any, turn: int) -> Any:
        if what == "on_stop_bootstrap":
            put(relay, 1)
        if (what, turn) == (1, 1):
            return Result.ERROR
        return "stop" if what == "on_checkpoint" else None

    consumer = Calls(answer)
    consumer.on_rollback = rollbacks.append  # type: ignore[assignment, method-assign]
    with serving(Shelf([7])) as relay:
        run(relay, consumer, bootstrap=True)
    assert consumer.keys == [7, 1, 1]
    assert rollbacks == [0]


def test_a_rollback_to_before_a_first_transaction_that_is_gone() -> None:
    """What comes after it is not given in its place."""

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_start_consumption", 1):
            return Result.ERROR
        return "stop" if isinstance(what, int) else None

    consumer = Calls(answer)
    with served(memory_bytes=256 << 10) as relay:
        for n in (1, 2):
            relay.put(block(people(range(4_000), gtids=[f"{UUID}:{n}"] * 4_000, pos=[n * 100] * 4_000)))
        with pytest.raises(ScnNotFoundError, match="no longer holds its first windows"):
            run(relay, consumer, store=Memory(checkpoint_json(FIRST)))
    assert consumer.keys == []


# --- stores that fail


class Failing(Memory):
    """A store whose first calls fail, so many of each kind."""

    def __init__(self, stores: int = 0, loads: int = 0) -> None:
        super().__init__()
        self._left = {"store": stores, "load": loads}

    def _fail(self, call: str) -> None:
        self._left[call] -= 1
        if self._left[call] >= 0:
            raise CommitConflictError("commits keep conflicting")

    def load(self) -> Mapping[str, Any] | None:
        self._fail("load")
        return super().load()

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        self._fail("store")
        super().store(checkpoint)


def test_a_checkpoint_that_cannot_be_stored_and_a_lost_connection() -> None:
    """The transaction after it is still known by its own bytes when it is compared."""

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_checkpoint", 2):
            switch(consumer.client)
            put(relay, 3)
        return "stop" if (what, turn) == ("on_checkpoint", 3) else None

    consumer, store = Calls(answer), Failing(stores=1)
    with served() as relay:
        put(relay, 1, 2)
        run(relay, consumer, store=store, checkpoint_seconds=0.0)
    assert consumer.keys == [1, 2, 3]
    assert consumer.calls.count("on_error") == 1
    assert parse_position(store.value) == StreamPosition(GENERATION + 3)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_no_row_is_given_while_the_start_of_its_bootstrap_cannot_be_stored(seconds: float) -> None:
    """Also if the connection is looked up again in between."""
    stored: list[Any] = []

    def answer(what: Any, _: int) -> Any:
        if isinstance(what, int):
            stored.append(store.value)
        return "stop" if what == "on_stop_bootstrap" else None

    consumer, store = Calls(answer), Failing(stores=2)
    with serving(Shelf([7], [8])) as relay:
        put(relay, 1)
        run(relay, consumer, store=store, bootstrap=True, checkpoint_seconds=seconds)
    assert consumer.keys == [7, 8]
    assert [one["bootstrap_start_scn"] for one in stored] == [GENERATION + 1] * 2
    assert consumer.calls.count("on_error") == 2
    assert consumer.calls.count("on_start_bootstrap") == 1


def test_a_checkpoint_that_cannot_be_loaded_at_once() -> None:
    """A row of a table may be claimed by several programs at a time."""
    consumer, store = Calls(lambda what, _: "stop" if what == "on_checkpoint" else None), Failing(loads=2)
    store.value = checkpoint_json(StreamPosition(GENERATION + 1))
    with served() as relay:
        put(relay, 1, 2)
        run(relay, consumer, store=store)
    assert consumer.calls[:3] == ["on_error", "on_error", "on_start_consumption"]
    assert consumer.keys == [2]


# --- connections that end


def test_another_relay_behind_the_same_address() -> None:
    """A balancer leads there, or the relay has restarted without a state, while a callback runs."""

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_checkpoint", 2):
            proxy.aim("127.0.0.1", second.port)
            proxy.drop()
        return "stop" if what == 3 else None

    consumer = Calls(answer)
    with served() as first, served() as second, Proxy("127.0.0.1", first.port) as proxy:
        put(first, 1, 2)
        put(second, 1)
        second.put(block(people([7], gtids=[f"{UUID}:2"], pos=[200])))
        put(second, 3)
        with pytest.raises(RelayDivergedError, match="has another history"):
            run([proxy], consumer)
    assert consumer.keys == [1, 2]


def test_an_idle_connection_that_is_closed_is_no_failure() -> None:
    """Not one that ends the client, if a single one does."""

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_checkpoint", 1):
            put(relay, 2)
            proxy.drop()
        return "stop" if (what, turn) == ("on_checkpoint", 2) else None

    consumer = Calls(answer)
    with served() as relay, Proxy("127.0.0.1", relay.port) as proxy:
        put(relay, 1)
        run([proxy], consumer, retry=Retry(tries=0))
    assert consumer.keys == [1, 2]
    assert "on_error" not in consumer.calls


def test_connections_that_end_with_each_answer_are_a_failure() -> None:
    """Whose answers they are is not known; and the client does not look the relay up without end."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await relay.app(scope, receive, send_and_close)

    consumer = Calls(lambda what, _: "stop" if what == 1 else None)
    with served() as relay, Serving(closing, "127.0.0.1", 0) as server:
        put(relay, 1)
        with pytest.raises(RelayConsumerError, match="given up after 3 tries: the relay has closed the connection"):
            run([server], consumer, retry=Retry(0.001, 1.0, 0.001, tries=2))
    assert consumer.calls.count("on_error") == 3
    assert consumer.keys == []


# --- relays that forget


def test_a_quiet_relay_that_holds_what_the_other_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it fails for a moment, the other one has nothing again; that does not say that none has."""
    streams = itertools.count(1)
    fail_once(monkeypatch, lambda path, _: path == "stream" and next(streams) == 3)

    def answer(what: Any, _: int) -> Any:
        if what == "on_error":
            put(second, 40)
        return "stop" if what == "on_checkpoint" else None

    consumer = Calls(answer)
    with served() as first, served() as second:
        put(first, 60, 61)
        put(second, *range(1, 40))
        store = Memory(checkpoint_json(StreamPosition(GENERATION + 39)))
        run([first, second], consumer, store=store, tuning=ClientTuning(wait=0.001))
    assert consumer.keys == [40]
    assert consumer.calls.count("on_error") == 1


@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_relay_that_restarts_holds_what_the_other_does_not(
    monkeypatch: pytest.MonkeyPatch, *, bootstrap: bool
) -> None:
    """The other one says so each time, but it does not speak for both."""
    really, requests = RelayTransport.get, itertools.count()

    def get(self: RelayTransport, path: str, *more: Any, **named: Any) -> Any:
        if self.number == 1 and next(requests) < 3:
            raise self.failure("the relay does not answer")
        return really(self, path, *more, **named)

    monkeypatch.setattr(RelayTransport, "get", get)
    consumer = Calls(lambda what, _: "stop" if what == "on_checkpoint" else None)
    with served() as first, served() as second:
        put(first, 60, 61)
        put(second, *range(1, 41))
        store = Memory(checkpoint_json(StreamPosition(GENERATION + 39)))
        run([first, second], consumer, store=store, bootstrap=bootstrap)
    assert consumer.keys == [40]
    assert consumer.calls.count("on_error") == 3
    assert "on_start_bootstrap" not in consumer.calls


def test_a_bootstrap_does_not_wait_for_ever_for_a_relay_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    really = RelayTransport.get

    def get(self: RelayTransport, path: str, *more: Any, **named: Any) -> Any:
        if self.number == 1:
            raise self.failure("the relay does not answer")
        return really(self, path, *more, **named)

    monkeypatch.setattr(RelayTransport, "get", get)
    consumer = Calls(lambda what, _: "stop" if what == "on_stop_bootstrap" else None)
    with serving(Shelf([7])) as first, served() as gone:
        put(first, 60, 61)
        store = Memory(checkpoint_json(StreamPosition(GENERATION + 39)))
        tuning = ClientTuning(wait=0.001, others=0.0)
        run([first, gone], consumer, store=store, bootstrap=True, tuning=tuning)
    assert 7 in consumer.keys
    assert consumer.calls.count("on_start_bootstrap") == 1


def test_a_schema_that_cannot_be_asked_for_within_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was had of the transaction counts when it is compared after the next lost connection."""
    registers = 0

    def fails(path: str, _: int) -> bool:
        nonlocal registers
        registers += path == "register"
        return path == "register" and registers == 2

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_checkpoint", 2):
            switch(consumer.client)
            put(relay, 3)
        return "stop" if (what, turn) == ("on_checkpoint", 3) else None

    consumer = Calls(answer)
    with served() as relay:
        put(relay, 1)
        really = Reader._schema

        def schema(self: Reader, digest: bytes) -> Any:
            if 102 not in consumer.keys and consumer.keys[-1:] == [2]:
                self._schemas.clear()  # as if the table had been altered
            return really(self, digest)

        monkeypatch.setattr(Reader, "_schema", schema)
        fail_once(monkeypatch, fails)
        common: dict[str, Any] = {"gtids": [f"{UUID}:2"], "pos": [200]}
        relay.put(block(people([2], **common), pets([102], ordinals=[1], **common)))
        run(relay, consumer, sources=[PERSON.name, PET.name])
    assert registers > 1
    assert consumer.keys == [1, 2, 102, 3]


def test_a_callback_that_failed_before_a_request_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result is known only after the request: the transaction comes again."""
    really, digests = Reader._schema, list[bytes]()

    def schema(self: Reader, digest: bytes) -> Any:
        if digest not in digests:
            digests.append(digest)
            if len(digests) == 2:
                raise self.transport.failure("the relay does not answer")
        return really(self, digest)

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == (2, 1):
            return Result.ERROR
        return "stop" if what == "on_checkpoint" else None

    monkeypatch.setattr(Reader, "_schema", schema)
    consumer, other = Calls(answer), Calls()
    with served() as relay:
        common: dict[str, Any] = {"gtids": [f"{UUID}:1"], "pos": [100]}
        relay.put(block(people([2], **common), pets([102], ordinals=[1], **common)))
        run(relay, consumer, other, sources=[PERSON.name, PET.name])
    assert len(digests) == 2
    assert consumer.keys == [2, 2, 102]
    assert other.keys[-2:] == [2, 102]


def test_a_transaction_that_was_begun_by_another_client_and_a_lost_connection() -> None:
    """Of a checkpoint within a window, as Databus's client keeps it, too little is known to compare that one."""

    def answer(what: Any, turn: int) -> Any:
        if (what, turn) == ("on_checkpoint", 1):
            switch(consumer.client)
            put(relay, 3)
        return "stop" if (what, turn) == ("on_checkpoint", 2) else None

    consumer = Calls(answer)
    with served() as relay:
        relay.put(block(people([1, 2], gtids=[f"{UUID}:1"] * 2, pos=[100] * 2)))
        run(relay, consumer, store=Memory(checkpoint_json(StreamPosition(GENERATION + 1, 1))))
    assert consumer.keys == [2, 3]


def test_an_event_of_a_schema_that_the_relay_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have restarted since it gave the event."""
    really, empty = RelayTransport.json, iter([True])

    def forgetful(self: RelayTransport, path: str, *more: Any) -> Any:
        return {"sourceSchemas": []} if path == "register" and next(empty, False) else really(self, path, *more)

    monkeypatch.setattr(RelayTransport, "json", forgetful)
    consumer = Calls(lambda what, _: "stop" if what == "on_checkpoint" else None)
    with served() as relay:
        put(relay, 1)
        run(relay, consumer)
    assert consumer.keys == [1]
    assert consumer.calls.count("on_error") == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sources", {"status": "ok"}),
        ("sources", [{"id": 40}]),
        ("sources", 5),
        ("physicalBuffers", ["person"]),
        ("physicalBuffers", {"person": [{"name": PERSON.name}]}),
        ("register", {"status": "ok"}),
        ("register", {"sourceSchemas": [{"id": 40, "version": 1, "schema": "{"}]}),
        ("admin/status", ["RUNNING"]),
        ("admin/status", {}),
    ],
)
def test_json_that_is_no_answer_of_a_relay(monkeypatch: pytest.MonkeyPatch, path: str, value: Any) -> None:
    """Another program may be at the URL."""
    really = RelayTransport.json

    def json(self: RelayTransport, requested: str, *more: Any) -> Any:
        return value if requested == path else really(self, requested, *more)

    monkeypatch.setattr(RelayTransport, "json", json)
    consumer, tuning = Calls(), ClientTuning(wait=0.001, stalled=0.0)
    with served() as relay:
        put(relay, 1)
        with pytest.raises(ProtocolError, match=f"^/{path} gave another answer than a relay's"):
            run([relay, relay], consumer, tuning=tuning)
    assert "on_error" not in consumer.calls


def test_an_event_of_a_source_that_was_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay is looked up again."""
    really, ids = Reader._ids, iter(["40,41"])
    monkeypatch.setattr(Reader, "_ids", lambda self: next(ids, None) or really(self))
    consumer = Calls(lambda what, _: "stop" if what == "on_checkpoint" else None)
    with served() as relay:
        common: dict[str, Any] = {"gtids": [f"{UUID}:1"], "pos": [100]}
        relay.put(block(people([1], **common), pets([102], ordinals=[1], **common)))
        run(relay, consumer)
    assert consumer.keys == [1]
    assert consumer.calls.count("on_error") == 1


# --- changes that are all there


def test_a_bootstrap_that_goes_on_at_a_relay_that_has_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another were given, so it gives rows, too; and it comes to an end."""
    down: set[int] = set()
    really_open, really_get = RelayTransport._open, RelayTransport.get

    def open_connection(self: RelayTransport) -> Any:
        if self.number in down:
            raise ConnectionRefusedError("down")
        return really_open(self)

    def get(self: RelayTransport, path: str, *more: Any, **named: Any) -> Any:
        if (self.number, path) == (0, "stream") and not down:
            raise ScnNotFoundError("it does not have all yet")
        return really_get(self, path, *more, **named)

    monkeypatch.setattr(RelayTransport, "_open", open_connection)
    monkeypatch.setattr(RelayTransport, "get", get)

    def answer(what: Any, turn: int) -> Any:
        if what == 7 and not down:
            down.add(1)
            consumer.client._reader.transport.close()
        return "stop" if what == "on_stop_bootstrap" else None

    consumer = Calls(answer)
    with serving(Shelf([7], [8]), memory_bytes=2000) as small, serving(Shelf([7], [8])) as whole:
        put(small, *range(1, 40))
        put(whole, *range(1, 40))
        store = Memory(checkpoint_json(StreamPosition(GENERATION + 1)))
        run([whole, small], consumer, store=store, bootstrap=True, retry=Retry(0.001, 1.0, 0.001, tries=30))
    assert consumer.calls.count("on_start_bootstrap") == 2
    assert {7, 8} <= set(consumer.keys)
    assert store.value == checkpoint_json(StreamPosition(GENERATION + 39))


def test_a_bootstrap_that_goes_on_with_other_sources_begins_again() -> None:
    """Its checkpoint knows the number of a source, and the rows of all before that count as delivered."""
    consumer = Calls(lambda what, _: "stop" if what == "on_stop_bootstrap" else None)
    with serving(Shelf([7])) as relay:
        put(relay, 1)
        scn = start(relay)
        at_pets = {"bootstrap_snapshot_source_index": 1, "snapshot_source": PET.name}
        store = Memory(point(bootstrap_start_scn=scn, windowScn=scn, **at_pets))
        run(relay, consumer, store=store, sources=[PET.name, PERSON.name], bootstrap=True)
    assert consumer.calls.count("on_start_bootstrap") == 2
    assert consumer.keys == [7]


def test_the_target_of_a_consumer_that_needs_no_rows() -> None:
    """As Databus's client asks, whose last SCN the buffer reaches back to."""
    with serving(Shelf([7])) as relay:
        put(relay, 1, 2)
        start_answer = relay.get("startSCN", sources="40", checkPoint=point(bootstrap_since_scn=GENERATION + 1))
        assert int(start_answer.json) == GENERATION + 1
        at = point(bootstrap_since_scn=GENERATION + 1, bootstrap_start_scn=GENERATION + 1, windowScn=GENERATION + 1)
        assert taken(bootstrap(relay, at)) == ([], None)
        put(relay, 3)
        answer = relay.get("targetSCN", source="40", checkPoint={**at, "snapshot_offset": -1})
        assert (answer.status, answer.json) == (200, str(GENERATION + 3))
