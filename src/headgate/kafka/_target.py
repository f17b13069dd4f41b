"""``kafka``: a message for each change, in Debezium's format, to a topic for each table.

What is sent, and when it counts as sent, is part of applying a batch. So this module, ``_cluster`` and
``_producer`` import ``confluent_kafka``, like ``control/`` and ``testing/``.

**Order.** One producer in the driver sends a batch: first the log's changes, then the chunks' rows, which are as of the
batch's end. It sends a slice of the log after the other, and those of a slice topic by topic, each in log order. DDL
statements are sent at their position in the log, to a topic of one partition. A key belongs to one partition
(``murmur2``, as Java's producers divide keys), and an idempotent producer keeps the order of a partition. Messages
without a key go to partition 0. So a consumer sees the changes of a row in their order.

**At least once.** The brokers have all messages of a batch, from all replicas in sync (``acks=all``), before the
ledger has its row. If the run is killed in between, the next one sends the whole batch again, in the same order.

**Exactly once** (``delivery = "exactly-once"``). A batch is one Kafka transaction (KIP-98), which ends with a message
about the batch in a topic of the pipeline's own, ``headgate-batches.<pipeline>``: epoch, planning time and GTID set,
which a replay has, too. The first batch of a run opens the producer: ``init_transactions`` aborts or completes what the
previous producer of this pipeline left, and fences that producer, so an old driver that is still alive cannot commit.
Then the newest committed message of that topic tells whether the batch was sent: if so, it is not sent again.

* Killed before the commit: the transaction is aborted; the replay sends the batch.
* Killed after it, before the ledger row: the replay finds its message and sends nothing.
* The result of the commit is unknown (a time-out): the batch fails, and its retry finds out as after a kill.
* Overtaken by another driver before the producer is open: that driver's producer is fenced, so the ledger is looked at
  then. Else an old batch would be sent behind later ones.

**Heartbeats** (``heartbeat_ms``) are sent apart from batches, by ``_heartbeats``.

**Memory and time.** The driver converts images, those of one slice of the log at a time (``_log_order``): no row is a
Python object (``_producer``). One thread fetches and converts a slice while the one before it is sent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import Batch, Part
from headgate.control import KafkaCluster
from headgate.errors import KafkaUnavailableError
from headgate.extras import require_extra
from headgate.kafka._cluster import HeartbeatSender, Topics, failure
from headgate.kafka._heartbeats import Heartbeats
from headgate.kafka._log_order import log_order, slices_in_order
from headgate.kafka._producer import ANY_PARTITION, Producer
from headgate.kafka._topic_names import TopicNames, batches_topic
from headgate.kafka.debezium.avro import AvroForm
from headgate.kafka.debezium.ddl import SchemaChange, interleaved, schema_changes
from headgate.kafka.debezium.envelope import ORDER, Envelope, MessageForm
from headgate.kafka.debezium.json import JsonForm
from headgate.kafka.debezium.schema import SCHEMA_CHANGE_KEY, SCHEMA_CHANGE_VALUE, TRANSACTION_KEY, TRANSACTION_VALUE
from headgate.kafka.debezium.source import Source
from headgate.kafka.debezium.transactions import TransactionEnd, TransactionNumbers
from headgate.kafka.schema_registry import SchemaRegistry
from headgate.replication import SNAPSHOT_FILE
from headgate.status import KafkaStatus

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from headgate.config import KafkaTargetConfig

__all__ = ["KafkaTarget"]

log = logging.getLogger("headgate")

_QUEUED_MESSAGES: Final = 200_000
_QUEUED_KILOBYTES: Final = 16 << 10
"""So few that queued messages stay in the processor's cache until they are sent."""
_POLL_SECONDS: Final = 0.01
_ABORT_SECONDS: Final = 10.0
_TRANSACTION_SECONDS: Final = 900
"""``transaction.timeout.ms``, which also is the brokers' greatest by default (``transaction.max.timeout.ms``)."""


@dataclass(frozen=True)
class SentBatch:
    """Identity of a batch, the same in a replay, in the message that its transaction ends with."""

    epoch: int
    planned_us: int  # tells batches apart that have the same epoch, because the lake was removed in between
    gtid: str

    @classmethod
    def of(cls, batch: Batch) -> SentBatch:
        """Return the identity of a batch."""
        return cls(batch.header.epoch, batch.header.planned_us, batch.header.gtid)

    def to_json(self) -> bytes:
        """Return the message's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, value: bytes | str) -> SentBatch:
        """Parse the value of :meth:`to_json`; a later headgate may have more keys."""
        known = json.loads(value)
        return cls(*(known[one.name] for one in fields(cls)))


@cache
def _version() -> str:
    """Return headgate's version: a field of each message's source."""
    return version("headgate")


class KafkaTarget:
    """Producer of one pipeline's messages; one per run. It connects when it sends the first batch."""

    def __init__(self, config: KafkaTargetConfig, pipeline: str) -> None:
        require_extra("kafka")
        self._config = config
        self._cluster = KafkaCluster(config.bootstrap, config.settings_file)
        self._names = TopicNames.make(config, pipeline)
        self._registry = SchemaRegistry.of(config) if config.format == "avro" else None
        self._tables: dict[str, str] = {}  # topic → table
        self._topics = Topics(self._cluster, config.timeout_seconds)
        self._pipeline = pipeline
        self._transactional = config.delivery == "exactly-once"
        self._sent_topic = batches_topic(pipeline)
        self._sent: SentBatch | None = None  # the newest batch of a committed transaction
        self._producer: Producer | None = None
        self._transaction_begun: float | None = None  # s since 1970 UTC: the machine may sleep in it
        self._transaction_seconds = float(_TRANSACTION_SECONDS)  # after which Kafka aborts it
        self._sending = threading.Lock()
        self._is_stopped = False
        self._queued, self._queued_bytes = 0, 0  # of the batch that is being sent
        self._heartbeats: Heartbeats | None = None
        if config.heartbeat_ms:
            sender = HeartbeatSender(config, self._names.heartbeats, self._form(""))
            self._heartbeats = Heartbeats(self._names.prefix, config.heartbeat_ms / 1000, sender)
        self.status = KafkaStatus()

    def start(self) -> None:
        """Start the heartbeats, if there are any, until :meth:`close`."""
        if self._heartbeats is not None:
            self._heartbeats.start()

    def check(self, messages: Mapping[str, Sequence[Part]]) -> None:
        """Check that changes can be sent. This asks nobody, so it comes before anything of their batch is written.

        :param messages: table → its images.
        :raises TargetError: a table has no topic of its own, or a column no name of its own in Avro.
        :raises UnsupportedError: a column has no form in messages.
        """
        self._tables = self._names.distinct(messages, self._tables)
        form = self._form("")
        for definition in {part.schema: part.definition for parts in messages.values() for part in parts}.values():
            form.check(definition)

    def send(self, batch: Batch, messages: Mapping[str, Sequence[Part]], check: Callable[[], None]) -> None:
        """Send the changes of a batch; return when the brokers have them.

        :param messages: table → its images, which :meth:`check` has seen.
        :param check: raises an error if another driver has written the batch. Called when the producer is open, so that
            no other one can commit any more.
        :raises KafkaUnavailableError: the brokers cannot be reached, or did not accept all messages in time.
        :raises TargetError: they refused a message.
        """
        with self._sending:
            self._send(batch, messages, check)

    def _send(self, batch: Batch, messages: Mapping[str, Sequence[Part]], check: Callable[[], None]) -> None:
        from confluent_kafka import KafkaException

        changes = self._schema_changes(batch)
        if not messages and not changes:
            return
        self._queued, self._queued_bytes, begun = 0, 0, time.monotonic()
        try:
            more = {self._names.transactions} if self._config.transactions else set()
            self._topics.create({self._names.of(table) for table in messages} | more)
            if changes:
                self._topics.create({self._names.schema_changes}, partitions=1)
            self._open()
            check()
            envelope = Envelope(self._form(_log_base(batch)), self._config.tombstones, self._config.truncates)
            with ThreadPoolExecutor(1, "headgate-kafka") as thread:
                records = _ahead(thread, _records(envelope, messages))
                self._produce(SentBatch.of(batch), envelope, interleaved(records, changes))
        except KafkaException as error:
            overdue = self._overdue_seconds()
            self._drop_unsent()
            raise failure(error.args[0], overdue_seconds=overdue) from None
        except BaseException:
            self._drop_unsent()
            raise
        before = self.status
        self.status = KafkaStatus(
            messages=before.messages + self._queued,
            bytes=before.bytes + self._queued_bytes,
            seconds=round(before.seconds + time.monotonic() - begun, 3),
        )

    def _schema_changes(self, batch: Batch) -> list[SchemaChange]:
        if not self._config.schema_changes_topic:
            return []
        return schema_changes(batch.ddl, self._source(_log_base(batch)))

    def _source(self, log_base: str) -> Source:
        return Source(self._names.prefix, _version(), log_base)

    def _form(self, log_base: str) -> MessageForm:
        source = self._source(log_base)
        if self._registry is not None:
            return AvroForm(source, self._registry, self._names.of)
        return JsonForm(source, self._config.format == "json-schema")

    def stop(self) -> None:
        """Let a batch that another thread sends fail, as soon as librdkafka returns."""
        self._is_stopped = True
        producer = self._producer
        if producer is not None:
            producer.stop()

    def close(self) -> None:
        """Stop the heartbeats, and drop the producer and its unsent messages.

        A thread that still sends, because Spark has failed beside it, drops them itself: librdkafka's client must not
        go while it is used.
        """
        self.stop()
        if self._heartbeats is not None:
            self._heartbeats.stop()
        if self._sending.acquire(timeout=_ABORT_SECONDS):
            try:
                self._drop_unsent()
            finally:
                self._sending.release()

    def _drop_unsent(self) -> None:
        """Drop the producer and its unsent messages: they must not arrive next to those of a retry."""
        producer, self._producer = self._producer, None
        self._transaction_begun = None
        if producer is None:
            return
        producer.purge()
        if self._transactional:
            with contextlib.suppress(Exception):  # no transaction is open, or its commit is under way
                producer.abort_transaction(_ABORT_SECONDS)
        producer.close()

    def _overdue_seconds(self) -> float:
        """Return how much longer than allowed the present transaction has lasted; 0 without one."""
        if self._transaction_begun is None:
            return 0.0
        return max(0.0, time.time() - self._transaction_begun - self._transaction_seconds)

    def _settings(self) -> dict[str, Any]:
        milliseconds = self._config.timeout_seconds * 1000
        defaults = {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "compression.type": "lz4",
            "message.timeout.ms": milliseconds,
            "queue.buffering.max.messages": _QUEUED_MESSAGES,
        }
        if self._transactional:
            defaults |= {
                "transactional.id": f"headgate-{self._pipeline}",
                "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
            }
        settings = {**defaults, **self._cluster.settings()}
        largest = str(settings.get("message.max.bytes", 0))
        kilobytes = max(_QUEUED_KILOBYTES, 2 * int(largest) >> 10 if largest.isdecimal() else 0)
        return {"queue.buffering.max.kbytes": kilobytes, **settings}

    def _open(self) -> Producer:
        if self._producer is None:
            settings = self._settings()
            self._producer = Producer(settings)
            if self._is_stopped:
                self._producer.stop()
            if self._transactional:
                self._transaction_seconds = float(settings["transaction.timeout.ms"]) / 1000
                self._topics.create({self._sent_topic}, partitions=1, settings={"cleanup.policy": "compact"})
                self._producer.init_transactions(self._config.timeout_seconds)
                self._sent = self._newest_sent()
        return self._producer

    def _newest_sent(self) -> SentBatch | None:
        """Return the newest batch whose transaction was committed. Only this pipeline's producers write the topic."""
        from confluent_kafka import Consumer, TopicPartition

        reading = {"group.id": f"headgate-{self._pipeline}", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self._cluster.settings(), **reading, "isolation.level": "read_committed"})
        partition, span = TopicPartition(self._sent_topic, 0), 100
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=self._config.timeout_seconds)
            while True:
                start = max(low, high - span)
                newest = (
                    self._last_value(consumer, TopicPartition(self._sent_topic, 0, start)) if start < high else None
                )
                if newest is not None or start <= low:
                    return None if newest is None else SentBatch.from_json(newest)
                span *= 10
        finally:
            consumer.close()

    def _last_value(self, consumer: Consumer, start: Any) -> bytes | str | None:
        """Return the last message's value from a position on."""
        from confluent_kafka import KafkaError, KafkaException

        consumer.assign([start])
        deadline, value = time.monotonic() + self._config.timeout_seconds, None
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return value
            if error is not None:
                raise KafkaException(error)
            value = message.value() if message is not None else value
        raise KafkaUnavailableError(f"Kafka: the end of topic {self._sent_topic} was not reached in time")

    def _produce(self, sent: SentBatch, envelope: Envelope, batches: Iterator[pa.RecordBatch | SchemaChange]) -> None:
        producer = self._open()
        if self._transactional:
            if self._sent == sent:
                log.info("Kafka has the messages of batch %d; it is not sent again", sent.epoch)
                return
            producer.begin_transaction()
            self._transaction_begun = time.time()
        numbers = TransactionNumbers() if self._config.transactions else None
        for batch in batches:
            if isinstance(batch, SchemaChange):
                self._produce_schema_change(producer, envelope.form, batch)
                continue
            values, ends = batch["value"], list[TransactionEnd]()
            if numbers is not None and batch.num_rows and batch["file"][0].as_py() != SNAPSHOT_FILE:
                places, ends = numbers.number(batch)
                values = envelope.numbered(values, places)
            self._produce_batch(producer, batch, values)
            self._produce_ends(producer, envelope.form, ends)
        if numbers is not None:
            self._produce_ends(producer, envelope.form, numbers.rest())
        if self._transactional:
            producer.produce(self._sent_topic, sent.to_json(), self._pipeline.encode(), 0)
        self._flush(producer)
        if self._transactional:
            self._commit(producer)
            self._sent, self._transaction_begun = sent, None

    def _commit(self, producer: Producer) -> None:
        """Commit the transaction; retry while Kafka says that this is safe."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._config.timeout_seconds
        while True:
            try:
                producer.commit_transaction(max(1.0, deadline - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _produce_ends(self, producer: Producer, form: MessageForm, ends: Iterable[TransactionEnd]) -> None:
        """Produce the begins and ends of transactions."""
        topic = self._names.transactions
        for end in ends:
            key = form.message(f"{topic}-key", TRANSACTION_KEY, end.key())
            for value in end.values():
                self._produce_one(producer, topic, key, form.message(f"{topic}-value", TRANSACTION_VALUE, value))

    def _produce_schema_change(self, producer: Producer, form: MessageForm, change: SchemaChange) -> None:
        """Produce a DDL statement; all are in partition 0, so they have one order."""
        topic = self._names.schema_changes
        key = form.message(f"{topic}-key", SCHEMA_CHANGE_KEY, change.key)
        self._produce_one(producer, topic, key, form.message(f"{topic}-value", SCHEMA_CHANGE_VALUE, change.value), 0)

    def _produce_one(
        self, producer: Producer, topic: str, key: bytes, value: bytes, partition: int = ANY_PARTITION
    ) -> None:
        producer.produce(topic, value, key, partition)
        self._queued, self._queued_bytes = self._queued + 1, self._queued_bytes + len(value) + len(key)

    def _produce_batch(self, producer: Producer, batch: pa.RecordBatch, values: pa.Array) -> None:
        """Produce messages, those of each topic in their order.

        :param values: the value of each.
        """
        keys, tables = batch["key"], batch["table"].dictionary_encode()
        topics, codes = [self._names.of(table) for table in tables.dictionary.to_pylist()], np.asarray(tables.indices)
        self._queued += batch.num_rows
        self._queued_bytes += sum(pc.sum(pc.binary_length(one)).as_py() or 0 for one in (keys, values))
        rows = np.argsort(codes, kind="stable")
        has_key, has_header = (np.asarray(batch[name].is_valid())[rows] for name in ("key", "header"))
        begins = np.flatnonzero(np.diff(codes[rows]) | np.diff(has_key) | has_header[1:] | has_header[:-1]) + 1
        for start, end in pairwise([0, *begins.tolist(), len(rows)]):
            topic, row = topics[codes[rows[start]]], int(rows[start])
            if has_header[start]:
                cells = {name: batch[name][row].as_py() for name in ("key", "header", "other_key")}
                header = cells["header"], cells["other_key"]
                producer.produce(topic, values[row].as_py(), cells["key"], ANY_PARTITION, header)
            else:
                partition = ANY_PARTITION if has_key[start] else 0
                producer.produce_all(topic, partition, keys, values, rows[start:end])
        producer.poll(0)
        producer.check()

    def _flush(self, producer: Producer) -> None:
        """Wait until the brokers have all messages; each fails after its time limit, so this ends."""
        deadline = time.monotonic() + self._config.timeout_seconds + 30
        while len(producer) and time.monotonic() < deadline:
            producer.flush(_POLL_SECONDS)
            producer.check()
        producer.check()
        if len(producer):
            raise KafkaUnavailableError("Kafka did not accept all messages in time")


def _log_base(batch: Batch) -> str:
    """Return the name of the log files before their number, with the dot."""
    base = batch.ends[0].file.rpartition(".")[0] if batch.ends else ""
    return f"{base}." if base else ""


def _records(envelope: Envelope, messages: Mapping[str, Sequence[Part]]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a batch: the log's in their order, then those of chunks."""
    for images in slices_in_order(messages):
        yield from log_order([envelope.records(*one) for one in images], ORDER)


_T = TypeVar("_T")


def _ahead(thread: ThreadPoolExecutor, source: Iterator[_T]) -> Iterator[_T]:
    """Yield what ``source`` yields; ``thread`` takes the next one meanwhile.

    The caller ends the thread: the garbage collector closes a generator that an error has left, in whatever thread it
    runs, and a join there can wait for a lock of :mod:`threading` that the same thread holds.
    """
    waiting = thread.submit(next, source, None)
    while (one := waiting.result()) is not None:
        waiting = thread.submit(next, source, None)
        yield one
