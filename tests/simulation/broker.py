"""The simulated brokers of a pipeline, and the producer in place of ``headgate.kafka._producer``.

What is sent, in which order and when it counts as sent, is headgate's (``headgate.kafka.KafkaTarget``); messages are
those of its JSON. Simulated are partitions, a producer that keeps the order of each, and transactions as KIP-98 has
them: a new producer of a ``transactional.id`` aborts what the earlier ones left, and fences them.

A flush, and a commit, have the outcomes of requests to the store (``store``). ``lost``: it was done, and the client
gets an error. ``failed``: a part of each partition's messages was accepted, or the commit was not made. ``late``: none
was accepted; a commit is made when it is tried again. ``repeated``: done, because producers are idempotent.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.kafka import KafkaTarget
from tests.simulation.rooms import ANY_PARTITION, SentBatch, batches_topic
from tests.simulation.world import World

__all__ = ["Broker", "Message", "Producer", "Serial", "Topics", "newest_sent"]

_PARTITIONS: Final = 2


class Message(NamedTuple):
    """A message in a partition."""

    key: bytes | None
    value: bytes | None
    producer: int
    """Number of the producer that sent it: later ones have greater ones."""


class Broker:
    """The brokers, as far as one pipeline uses them."""

    current: ClassVar[Broker]
    """Of the pipeline that runs now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partitions: dict[tuple[str, int], list[Message]] = {}
        """What consumers read, with ``isolation.level=read_committed``."""
        self.producers = 0
        self.owner = 0
        """Number of the newest producer that has called ``init_transactions``."""

    def append(self, topic: str, partition: int, message: Message) -> None:
        self.partitions.setdefault((topic, partition), []).append(message)


class Producer:
    """A producer of the brokers.

    :param settings: librdkafka's.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._broker = broker = Broker.current
        broker.producers += 1
        self._number, self._is_transactional = broker.producers, "transactional.id" in settings
        self._queue: list[tuple[str, int, Message]] = []
        self._open: list[tuple[str, int, Message]] | None = None
        """Messages of the open transaction that the brokers have."""
        self._error: KafkaError | None = None
        self._is_late = False

    def __len__(self) -> int:
        return len(self._queue)

    # --- messages

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        header: tuple[str, bytes] | None = None,
    ) -> None:
        del header
        if partition == ANY_PARTITION:
            partition = zlib.crc32(key or b"") % _PARTITIONS
        self._queue.append((topic, partition, Message(key, value, self._number)))

    def produce_all(self, topic: str, partition: int, keys: pa.Array, values: pa.Array, rows: Any) -> None:
        for row in rows.tolist():
            self.produce(topic, values[row].as_py(), keys[row].as_py(), partition)

    def poll(self, seconds: float) -> None:
        """Send some messages in the background."""
        del seconds
        world = self._broker.world
        world.pause()
        if world.heat and world.choose.one_in(4):
            self._send(lambda queued: world.choose.below(queued + 1))

    def flush(self, seconds: float) -> None:
        del seconds
        world = self._broker.world
        world.pause()
        self._check_owner()
        outcome = world.answer()
        if outcome in ("ok", "repeated", "lost"):
            self._send(lambda queued: queued)
        elif outcome == "failed":
            self._send(lambda queued: world.choose.below(queued + 1))
        if outcome in ("lost", "failed", "late"):
            self._queue, self._error = [], KafkaError(KafkaError._MSG_TIMED_OUT)
        world.pause()

    def _send(self, count: Callable[[int], int]) -> None:
        """Let the brokers accept the first messages of each partition.

        :param count: number of queued messages → how many.
        """
        queued = Counter((topic, partition) for topic, partition, _ in self._queue)
        left = {where: count(number) for where, number in queued.items()}
        waiting = []
        for topic, partition, message in self._queue:
            if not left[topic, partition]:
                waiting.append((topic, partition, message))
                continue
            left[topic, partition] -= 1
            if self._open is not None:
                self._open.append((topic, partition, message))
            else:
                self._broker.append(topic, partition, message)
            self._broker.world.count("message accepted")
        self._queue = waiting

    def check(self) -> None:
        if self._error is not None:
            raise KafkaException(self._error)

    def stop(self) -> None:
        self._error = KafkaError(KafkaError._DESTROY, "the run is ending")

    def purge(self) -> None:
        self._queue = []

    def close(self) -> None:
        self._open = None

    # --- transactions

    def _check_owner(self) -> None:
        if self._is_transactional and self._number < self._broker.owner:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))

    def init_transactions(self, seconds: float) -> None:
        del seconds
        self._broker.world.pause()
        self._broker.producers += 1
        self._number = self._broker.owner = self._broker.producers
        self._broker.world.pause()

    def begin_transaction(self) -> None:
        self._check_owner()
        self._open = []

    def commit_transaction(self, seconds: float) -> None:
        del seconds
        world = self._broker.world
        world.pause()
        self._check_owner()
        assert self._open is not None
        outcome = "ok" if self._is_late else world.answer()
        if outcome == "late":
            self._is_late = True
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", retriable=True))
        if outcome != "failed":
            self._send(lambda queued: queued)
            for sent in self._open:
                self._broker.append(*sent)
            self._open, self._is_late = None, False
            world.count("Kafka transaction committed")
        if outcome in ("failed", "lost"):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        world.pause()

    def abort_transaction(self, seconds: float) -> None:
        del seconds
        self._check_owner()
        if self._open is None:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._open = None


class Topics:
    """Stand for ``headgate.kafka._cluster.Topics``."""

    def __init__(self, *about: Any) -> None:
        del about

    def create(self, *about: Any, **more: Any) -> None:
        del about, more
        Broker.current.world.pause()


def newest_sent(target: KafkaTarget) -> SentBatch | None:
    """Stand for ``KafkaTarget._newest_sent``: a consumer of the committed messages about batches."""
    sent = Broker.current.partitions.get((batches_topic(target._pipeline), 0))
    return None if not sent else SentBatch.from_json(sent[-1].value or b"")


class _Done(NamedTuple):
    """The result of work that is done."""

    value: Any

    def result(self) -> Any:
        return self.value


class Serial:
    """Stand for a thread pool: work is done at once."""

    def __init__(self, *_: Any, **more: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)

    def submit(self, work: Callable[..., Any], *about: Any) -> _Done:
        return _Done(work(*about))
