"""The consumer: callbacks in order, at least once, from a checkpoint that survives."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.errors import ConfigError, RelayConsumerError, RelayDivergedError, ScnNotFoundError
from headgate.relay.client import CheckpointFile, Consumer, Event, RelayClient, Result, Retry
from headgate.relay.databus import Schema, StreamPosition, checkpoint_json, event_fields, parse_position
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import Served, served

GENERATION = 1 << 48
PERSON_SOURCE = "com.linkedin.events.example.or_test.Person"


class Recorder(Consumer):
    """Notes every call; ``answer`` may say something else than success."""

    def __init__(self, windows: int) -> None:
        self.calls: list[Any] = []
        self.client: RelayClient
        self.answer: Callable[[str, Any], Result | None] = lambda _name, _value: None
        self._left = windows

    def _note(self, name: str, value: Any = None) -> Result | None:
        self.calls.append((name, value))
        return self.answer(name, value)

    def on_start_consumption(self) -> Result | None:
        return self._note("start")

    def on_stop_consumption(self) -> Result | None:
        return self._note("stop")

    def on_start_data_event_sequence(self, scn: int) -> Result | None:
        return self._note("window", scn - GENERATION)

    def on_end_data_event_sequence(self, scn: int) -> Result | None:
        return self._note("end window", scn - GENERATION)

    def on_start_source(self, source: str, schema: Schema) -> Result | None:
        return self._note("source", (source, schema.version))

    def on_end_source(self, source: str, schema: Schema) -> Result | None:
        return self._note("end source", (source, schema.version))

    def on_data_event(self, event: Event) -> Result | None:
        return self._note("event", (event.opcode, event.key, event.row["firstName"]))

    def on_checkpoint(self, scn: int) -> Result | None:
        result = self._note("checkpoint", scn - GENERATION)
        if result is None:
            self._left -= 1
            if not self._left:
                self.client.stop()
        return result

    def on_rollback(self, scn: int) -> Result | None:
        return self._note("rollback", scn - GENERATION if scn >= 0 else -1)

    def on_error(self, error: Exception) -> Result | None:
        return self._note("error", str(error))


def consume(relay: Served, recorder: Recorder, checkpoints: CheckpointFile | None = None, **more: Any) -> list[Any]:
    recorder.client = RelayClient(f"http://127.0.0.1:{relay.port}", [PERSON_SOURCE], recorder, checkpoints, **more)
    recorder.client.run()
    return recorder.calls


def kept(checkpoints: CheckpointFile) -> StreamPosition:
    checkpoint = checkpoints.load()
    assert checkpoint is not None
    return parse_position(checkpoint)


def put(relay: Served, *numbers: int) -> None:
    """A transaction of each number, inserting that person and the next one."""
    for n in numbers:
        relay.put(block(people([n, n + 1], gtids=[f"{UUID}:{n}"] * 2, pos=[n * 100] * 2)))


def calls_of(n: int, *, checkpoint: bool = True) -> list[Any]:
    events = [("event", ("UPSERT", one, f"first{one}")) for one in (n, n + 1)]
    inner = [("source", (PERSON_SOURCE, 1)), *events, ("end source", (PERSON_SOURCE, 1))]
    end = [("checkpoint", n)] if checkpoint else []
    return [("window", n), *inner, ("end window", n), *end]


def test_callbacks_in_order() -> None:
    with served() as relay:
        put(relay, 1, 2)
        assert consume(relay, Recorder(2)) == [("start", None), *calls_of(1), *calls_of(2), ("stop", None)]


def test_it_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    with served() as relay:
        put(relay, 1, 2)
        consume(relay, Recorder(1), checkpoints)
        stored = json.loads((tmp_path / "people.current").read_text())
        mark = re.fullmatch(rf"{GENERATION + 1}:\d+:\d+", stored.pop("headgate_window"))
        assert mark is not None
        assert stored == {
            "windowOffset": -1, "snapshot_offset": -1, "prevScn": -1, "windowScn": GENERATION + 1,
            "consumption_mode": "ONLINE_CONSUMPTION",
        }  # fmt: skip
        put(relay, 3)
        assert consume(relay, Recorder(2), checkpoints)[1:-1] == [*calls_of(2), *calls_of(3)]
        assert kept(checkpoints) == StreamPosition(GENERATION + 3)
        assert json.loads((tmp_path / "people.oldcurrent").read_text())["windowScn"] == GENERATION + 2


def test_an_error_rolls_back_and_everything_comes_again(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    recorder = Recorder(3)
    failures = iter([Result.ERROR, None, ValueError("no")])

    def answer(name: str, value: Any) -> Result | None:
        if (name, value) == ("event", ("UPSERT", 3, "first3")):
            failure = next(failures, None)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return None

    recorder.answer = answer
    with served() as relay:
        put(relay, 1, 2, 3)
        calls = consume(relay, recorder, checkpoints)
    assert calls[1:-1] == [
        *calls_of(1), *calls_of(2)[:4], ("rollback", 1), *calls_of(2), *calls_of(3)[:3], ("error", "no"),
        ("rollback", 2), *calls_of(3),
    ]  # fmt: skip


def test_a_checkpoint_that_is_not_agreed_to_is_not_kept(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    recorder = Recorder(1)
    recorder.answer = lambda name, value: Result.SKIP_CHECKPOINT if (name, value) == ("checkpoint", 1) else None
    with served() as relay:
        put(relay, 1, 2)
        consume(relay, recorder, checkpoints)
        assert recorder.calls[1:-1] == [*calls_of(1), *calls_of(2)]
        assert kept(checkpoints) == StreamPosition(GENERATION + 2)
        skipping = Recorder(1)
        skipping.answer = lambda name, _: Result.ERROR_FATAL if name == "end window" else None
        put(relay, 3)
        with pytest.raises(RelayConsumerError, match="ended the consumer"):
            consume(relay, skipping, checkpoints)
        assert skipping.calls[1:] == calls_of(3, checkpoint=False)
        assert kept(checkpoints) == StreamPosition(GENERATION + 2)


def test_an_event_larger_than_what_was_asked_for() -> None:
    recorder = Recorder(1)
    with served() as relay:
        put(relay, 1)
        recorder.client = RelayClient(f"http://127.0.0.1:{relay.port}", [], recorder)
        recorder.client._reader._sizes["stream"] = 100
        recorder.client.run()
    assert recorder.calls[1:-1] == calls_of(1)


def many(relay: Served, n: int, *, rows: int = 10) -> bytes:
    """A transaction of so many persons, whose numbers begin at ``n``."""
    return relay.put(block(people(range(n, n + rows), gtids=[f"{UUID}:{n}"] * rows, pos=[n * 100] * rows)))


def in_pieces(relay: Served, recorder: Recorder, **more: Any) -> RelayClient:
    """A client whose requests give an event or two."""
    recorder.client = RelayClient(
        f"http://127.0.0.1:{relay.port}", [PERSON_SOURCE], recorder, retry=Retry(first_seconds=0.001, **more)
    )
    recorder.client._reader._sizes["stream"] = 200
    return recorder.client


def test_what_fails_in_the_middle_of_a_transaction_again_and_again_is_given_up() -> None:
    """What comes before it succeeds each time, in requests of its own."""
    recorder = Recorder(3)
    errors = iter([1, 2, 3])

    def answer(name: str, value: Any) -> Result | None:
        if name == "event" and (value[1] == 108 or (value[1] == 7 and next(errors, None))):
            return Result.ERROR
        if recorder.calls.count(("rollback", 1)) > 9:
            recorder.client.stop()
        return None

    recorder.answer = answer
    with served() as relay:
        many(relay, 1)
        many(relay, 100)
        with pytest.raises(RelayConsumerError, match="given up after 4 tries: a callback returned ERROR"):
            in_pieces(relay, recorder, tries=3).run()
    rollbacks = [value for name, value in recorder.calls if name == "rollback"]
    assert rollbacks == [-1, -1, -1, 1, 1, 1]  # the fourth of the second window's ended it


def test_a_rollback_to_the_beginning_when_that_is_gone() -> None:
    """What was the oldest when the consumer began is gone meanwhile: it is told, and not given what comes later."""
    recorder = Recorder(2)
    with served(memory_bytes=256 << 10) as relay:
        many(relay, 1)

        def answer(name: str, value: Any) -> Result | None:
            if (name, value) == ("event", ("UPSERT", 8, "first8")):
                for n in (2_000, 4_000, 6_000):
                    many(relay, n, rows=1_000)
                return Result.ERROR
            return None

        recorder.answer = answer
        with pytest.raises(ScnNotFoundError, match="the relay holds what came after"):
            in_pieces(relay, recorder).run()
    assert recorder.calls[-1] == ("rollback", -1)


def test_another_transaction_in_the_middle_of_one() -> None:
    """A relay that would give that has another history."""
    recorder = Recorder(1)
    with served() as relay:
        first, second = many(relay, 1), many(relay, 100)
        client = in_pieces(relay, recorder)
        reader, whole = client._reader, client._reader.stream
        other: dict[str, Any] = {"body": second, "fields": event_fields(np.frombuffer(second, np.uint8))}

        def stream(position: StreamPosition) -> Any:
            return whole(position)._replace(**other if position.offset > 0 else {})

        reader.stream = stream  # type: ignore[method-assign]
        with pytest.raises(RelayDivergedError, match="in the middle of"):
            client.run()
    assert len(first) > 200
    assert [name for name, _ in recorder.calls if "window" in name] == ["window"]


def test_a_connection_that_the_relay_closed_is_made_again() -> None:
    recorder = Recorder(2)

    with served() as relay:

        def answer(name: str, value: Any) -> None:
            connection = recorder.client._reader.transport._connection
            if (name, value) == ("checkpoint", 1) and connection is not None and connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
                put(relay, 2)

        recorder.answer = answer
        put(relay, 1)
        assert consume(relay, recorder)[1:-1] == [*calls_of(1), *calls_of(2)]


def test_too_far_behind(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "people")
    checkpoints.store(checkpoint_json(StreamPosition(5)))
    with served() as relay:
        put(relay, 1)
        with pytest.raises(ScnNotFoundError, match="not what came after 5"):
            consume(relay, Recorder(1), checkpoints)


def test_what_is_refused(tmp_path: Path) -> None:
    with served() as relay, pytest.raises(ConfigError, match=r"has no source x; it has com\.example\.Pet, "):
        RelayClient(f"http://127.0.0.1:{relay.port}", ["x"], Consumer()).run()
    for url in ("127.0.0.1:1", "ftp://127.0.0.1", "http://", "http://user@host:1"):
        with pytest.raises(ConfigError, match="is not a relay"):
            RelayClient(url, [], Consumer())
    (tmp_path / "people.current").write_text('{"consumption_mode":"BOOTSTRAP_SNAPSHOT"}')
    with pytest.raises(ConfigError, match="stored checkpoint is invalid"):
        RelayClient("http://127.0.0.1:1", [], Consumer(), CheckpointFile(tmp_path, "people")).run()


def test_nobody_there_is_tried_again_and_then_given_up() -> None:
    recorder = Recorder(1)
    client = RelayClient("http://127.0.0.1:1", [], recorder, retry=Retry(tries=2))
    with pytest.raises(RelayConsumerError, match="given up after 3 tries: the relay does not answer"):
        client.run()
    assert [name for name, _ in recorder.calls] == ["start", "error", "error", "error"]


def test_checkpoint_files_one_of_which_is_always_whole(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path / "folder", "x")
    assert checkpoints.load() is None
    checkpoints.store(checkpoint_json(StreamPosition(1)))
    checkpoints.store(checkpoint_json(StreamPosition(2, 3)))
    assert kept(checkpoints) == StreamPosition(2, 3)
    # Killed between the two renames.
    (tmp_path / "folder" / "x.current").unlink()
    assert kept(checkpoints) == StreamPosition(1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        CheckpointFile(tmp_path / "file", "x").store(checkpoint_json(StreamPosition(1)))
