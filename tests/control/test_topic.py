"""A signal topic's messages in the inbox: each once and in order, wherever the process ends. Kafka is in memory."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.carrier import SINK_SIGNALS, ControlFolder
from headgate.control import (
    KafkaCluster,
    KafkaTopic,
    NoForwarder,
    SignalForwarder,
    _topic,
    check_topic,
    parse_signal,
    submit,
)
from headgate.errors import ConfigError, ConnectError

pytest.importorskip("confluent_kafka")
from confluent_kafka import KafkaError

TOPIC = KafkaTopic(KafkaCluster("k:9092"), "t", "us")


class Killed(BaseException):
    """The process ends."""


@dataclass
class Broker:
    """One topic; ``low`` is its oldest message's offset."""

    messages: list[tuple[str | None, str]] = field(default_factory=list)
    low: int = 0
    away: bool = False
    problem: ConfigError | None = None

    def connect(self, _topic: KafkaTopic) -> Any:
        if self.problem is not None:
            raise self.problem
        if self.away:
            raise ConnectError("no broker")
        return _Consumer(self)


@dataclass
class _Message:
    offset_: int
    key_: str | None
    value_: str

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return None if self.key_ is None else self.key_.encode()

    def value(self) -> bytes:
        return self.value_.encode()


@dataclass
class _Consumer:
    broker: Broker
    at: int = -1

    def get_watermark_offsets(self, _partition: Any, timeout: float) -> tuple[int, int] | None:
        del timeout
        return None if self.broker.away else (self.broker.low, len(self.broker.messages))

    def assign(self, partitions: list[Any]) -> None:
        self.at = partitions[0].offset

    def consume(self, count: int, timeout: float) -> list[_Message]:
        del timeout
        if self.broker.away:
            return []
        first, self.at = self.at, min(len(self.broker.messages), self.at + count)
        return [_Message(offset, *self.broker.messages[offset]) for offset in range(first, self.at)]

    def close(self) -> None:
        """Nothing is open."""


class Inbox(ControlFolder):
    """The folder. The process may end at one of the writes, before or after it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.dies_in: int | None = None
        self.executed: list[str] = []

    def write(self, name: str, value: dict[str, Any]) -> None:
        for done in (False, True):
            if self.dies_in is not None:
                self.dies_in -= 1
                if self.dies_in < 0:
                    self.dies_in = None
                    raise Killed
            if not done:
                super().write(name, value)

    def plan(self) -> None:
        """Take the signals as the planner does, and remove them when their batch is done."""
        names = list(self.signals())
        self.executed += names
        for name in names:
            self.remove_signal(name)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(_topic, "_connect", broker.connect)
    return broker


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(str(tmp_path))


def begun(inbox: Inbox) -> SignalForwarder:
    forwarder = SignalForwarder(TOPIC, inbox)
    forwarder.forward(wait=True)
    return forwarder


def plan_without(inbox: Inbox) -> None:
    """As a run whose configuration has no topic."""
    inbox.dies_in = None
    NoForwarder(inbox).forward()
    inbox.plan()


def stored(inbox: Inbox) -> Any:
    return (inbox.read("forwarded.json") or {}).get("offset")


def test_messages_become_files(broker: Broker, inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    broker.messages.append(("us", '{"type": "log"}'))
    forwarder = begun(inbox)
    assert (inbox.signals(), stored(inbox)) == ({}, 1), "what was there before is not for this stream"
    broker.messages += [
        ("us", "{}"),
        ("them", "x"),
        (None, "y"),
        ("us", '{"id": "x", "submitted_us": 7}'),
        ("us", "[1"),
    ]
    with caplog.at_level("INFO"):
        forwarder.forward()
    assert "for other pipelines ignored: 2 (them, (none))" in caplog.text
    signals = inbox.signals()
    times = [signal["submitted_us"] for signal in signals.values()]
    assert times == sorted(set(times))
    assert [{**signal, "submitted_us": 0} for signal in signals.values()] == [
        {"submitted_us": 0},
        {"id": "x", "submitted_us": 0},
        {"problem": "a message that is not a JSON object: '[1'", "submitted_us": 0},
    ]
    assert (list(signals), stored(inbox)) == (["kafka-t-1", "kafka-t-4", "kafka-t-5"], 6)
    inbox.plan()
    forwarder.forward()
    assert inbox.signals() == {}, "once"


@pytest.mark.parametrize("kind", SINK_SIGNALS)
def test_requests_of_the_sinks_are_no_signals_from_a_topic(broker: Broker, inbox: Inbox, kind: str) -> None:
    forwarder = begun(inbox)
    broker.messages.append(("us", json.dumps({"type": kind, "gtid": "x:99"})))
    forwarder.forward()
    (signal,) = inbox.signals().values()
    assert {**signal, "submitted_us": 0} == {"problem": f"unknown signal type {kind!r}", "submitted_us": 0}


@pytest.mark.parametrize("away", [False, True], ids=["", "and Kafka does not answer the next process at first"])
@pytest.mark.parametrize("without", [False, True], ids=["", "and the next process has no topic"])
@pytest.mark.parametrize("dies_in", range(2 * 5))
def test_a_kill_between_any_two_steps(broker: Broker, inbox: Inbox, dies_in: int, without: bool, away: bool) -> None:
    """Before and after the range, each of three files, and the position."""
    forwarder = begun(inbox)
    broker.messages += [("us", "{}"), ("them", ""), ("us", "{}"), ("us", "{}"), ("them", "")]
    inbox.dies_in = dies_in
    with pytest.raises(Killed):
        forwarder.forward()
    if without:
        plan_without(inbox)
    forwarder, broker.away = SignalForwarder(TOPIC, inbox), away
    for _ in range(2):
        forwarder.forward(wait=True)
        inbox.plan()
        broker.away = False
    assert (inbox.executed, stored(inbox)) == (["kafka-t-0", "kafka-t-2", "kafka-t-3"], 5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["send", "send", "other", "forward", "plan", "away", "back", 0, 1, 2, 3, 4, 5, 6]), max_size=25
    ),
    st.booleans(),
)
def test_each_message_is_executed_once_in_order_whatever_happens(steps: list[str | int], without: bool) -> None:
    broker, sent = Broker(), list[str]()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(_topic, "_connect", broker.connect)
        inbox = Inbox(folder)
        forwarder = begun(inbox)
        for step in [*steps, "back", "forward", "forward", "plan"]:
            if step == "send":
                sent.append(f"kafka-t-{len(broker.messages)}")
                broker.messages.append(("us", "{}"))
            elif step == "other":
                broker.messages.append(("them", ""))
            elif step == "plan":
                inbox.plan()
            elif step in ("away", "back"):
                broker.away = step == "away"
            else:
                inbox.dies_in = step if isinstance(step, int) else None
                try:
                    forwarder.forward(wait=not broker.away)
                except Killed:
                    if without:
                        plan_without(inbox)
                    forwarder = SignalForwarder(TOPIC, inbox)
                    forwarder.forward(wait=not broker.away)  # as each planning does first
                inbox.dies_in = None
        assert inbox.executed == sent


def test_a_file_that_cannot_be_written_ends_the_planning(
    broker: Broker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file whose position is not stored could be taken, and written again. The next planning continues."""
    forwarder, write = begun(inbox), Inbox.write
    broker.messages += [("us", json.dumps({"id": str(number)})) for number in range(3)]

    def full(self: Inbox, name: str, value: dict[str, Any]) -> None:
        if value.get("id") == "1":
            raise ConnectError("no space left")
        write(self, name, value)

    monkeypatch.setattr(Inbox, "write", full)
    for _ in range(2):
        with pytest.raises(ConnectError, match="no space left"):
            forwarder.forward(wait=True)
    monkeypatch.setattr(Inbox, "write", write)
    forwarder.forward(wait=True)
    inbox.plan()
    assert inbox.executed == ["kafka-t-0", "kafka-t-1", "kafka-t-2"]


def test_a_stream_and_a_topic_begin_at_the_end(broker: Broker, inbox: Inbox) -> None:
    """Also if Kafka answers only later. A stream that begins again, as before its first batch, goes on."""
    broker.messages.append(("us", "{}"))
    broker.away = True
    forwarder = begun(inbox)
    assert stored(inbox) is None
    broker.away = False
    forwarder.forward(wait=True)
    broker.messages.append(("us", "{}"))
    begun(inbox)
    assert list(inbox.signals()) == ["kafka-t-1"]
    inbox.plan()
    inbox.write("forwarded.json", {"topic": "another", "offset": 0, "until": 0})
    SignalForwarder(TOPIC, inbox).forward(wait=True)
    assert (inbox.signals(), stored(inbox)) == ({}, 2)


def test_messages_follow_signals_that_were_sent_before_them(
    broker: Broker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clocks say: one signal waits from a machine whose clock is ahead, then the planner's goes back."""
    forwarder = begun(inbox)
    submit(inbox, parse_signal({"id": "pause", "type": "pause-snapshot"}), time.time_ns() // 1000 + 3_600_000_000)
    broker.messages.append(("us", '{"type": "resume-snapshot"}'))
    forwarder.forward()
    broker.messages += [("us", '{"type": "pause-snapshot"}')] * 2
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    forwarder.forward()
    assert list(inbox.signals()) == ["pause", "kafka-t-0", "kafka-t-1", "kafka-t-2"]


def test_messages_that_are_gone_and_a_topic_that_was_recreated(
    broker: Broker, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    begun(inbox)
    broker.messages += [("us", "{}")] * 4
    broker.low = 2
    SignalForwarder(TOPIC, inbox).forward(wait=True)
    assert "messages 0 to 1 of Kafka's topic t are gone" in caplog.text
    assert list(inbox.signals()) == ["kafka-t-2", "kafka-t-3"]
    inbox.plan()
    broker.messages, broker.low = [("us", "{}")], 0
    SignalForwarder(TOPIC, inbox).forward(wait=True)
    assert "was recreated" in caplog.text
    assert (list(inbox.signals()), stored(inbox)) == (["kafka-t-0"], 1)


def test_a_topic_that_a_broker_does_not_know_delays_a_running_stream(
    broker: Broker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that restarts says so for a moment. Before a run begins, it is a mistake of the configuration."""
    connect, now = _topic._connect, 0.0
    monkeypatch.undo()
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    metadata = SimpleNamespace(topics={"t": SimpleNamespace(error=unknown)})
    client = SimpleNamespace(list_topics=lambda *_, **__: metadata, poll=lambda _: 0, close=lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr("confluent_kafka.Consumer", lambda _: client)
        with pytest.raises(ConfigError, match="topic t does not exist: kafka-topics"):
            check_topic(TOPIC)
        forwarder = SignalForwarder(TOPIC, inbox, clock=lambda: now)
        for _ in range(2):
            forwarder.forward(wait=True)
            now += 60
    (warning,) = caplog.messages
    assert warning == (
        "signals from Kafka are delayed: Kafka's topic t does not exist: kafka-topics --bootstrap-server k:9092"
        " --create --topic t --partitions 1 --config cleanup.policy=delete"
    )
    monkeypatch.setattr(_topic, "_connect", connect)
    forwarder.forward(wait=True)
    broker.messages.append(("us", "{}"))
    forwarder.forward()
    assert list(inbox.signals()) == ["kafka-t-0"]


def test_a_topic_that_cannot_carry_signals_ends_the_planning(broker: Broker, inbox: Inbox) -> None:
    broker.problem = ConfigError("has 3 partitions")
    with pytest.raises(ConfigError, match="3 partitions"):
        begun(inbox)
