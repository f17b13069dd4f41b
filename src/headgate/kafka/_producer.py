"""A Kafka producer for Arrow columns: librdkafka, the C library in confluent-kafka, without an object for each message.

confluent-kafka's own ``Producer.produce`` takes one message as Python objects, and its ``produce_batch`` a dictionary
for each. Both take three times as long as librdkafka does. So this module calls the library that confluent-kafka's
extension module is linked to. Functions and structs are those of its public ``rdkafka.h``. Errors are
confluent-kafka's.

The library copies keys and values (``RD_KAFKA_MSG_F_COPY``), so a column may go once its messages are queued. Only
failed messages are reported (``delivery.report.only.error``), in the thread that polls.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from headgate.errors import ConfigError

__all__ = ["ANY_PARTITION", "Producer"]

ANY_PARTITION: Final = -1
"""The partitioner chooses."""

_MESSAGE: Final = np.dtype(
    [
        ("err", np.int32), ("rkt", np.uint64), ("partition", np.int32), ("payload", np.uint64), ("len", np.uint64),
        ("key", np.uint64), ("key_len", np.uint64), ("offset", np.int64), ("_private", np.uint64),
    ],
    align=True,
)  # fmt: skip
"""``rd_kafka_message_t``."""

_PRODUCER: Final = 0
_INVALID_ARGUMENT, _QUEUE_FULL, _STOPPED, _PURGED = -186, -184, -197, (-152, -151)
"""``rd_kafka_resp_err_t``; purged in the queue, and on the way."""
_COPY: Final = 0x2
_PURGE_ALL: Final = 0x3
_TEXT_BYTES: Final = 512
_FULL_SECONDS: Final = 0.005
"""Pause while the queue is full."""


class _VariadicUnit(c.Structure):
    """``rd_kafka_vu_t``, without the members of its union that are not used, which has 64 bytes."""

    _fields_ = (
        ("vtype", c.c_int),
        ("first", c.c_void_p),
        ("second", c.c_void_p),
        ("third", c.c_ssize_t),
        ("rest", c.c_char * 40),
    )


_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 1, 3, 4, 5, 7, 9
"""``rd_kafka_vtype_t``."""
_Report: Final = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(c.c_int32), c.c_void_p)
"""Gets a client, a message, whose first member is an error, and the callback's own pointer."""
_SIGNATURES: Final[Mapping[str, tuple[Any, Sequence[Any]]]] = {
    "conf_new": (c.c_void_p, ()),
    "conf_destroy": (None, (c.c_void_p,)),
    "conf_set": (c.c_int, (c.c_void_p, c.c_char_p, c.c_char_p, c.c_char_p, c.c_size_t)),
    "conf_set_dr_msg_cb": (None, (c.c_void_p, _Report)),
    "new": (c.c_void_p, (c.c_int, c.c_void_p, c.c_char_p, c.c_size_t)),
    "destroy": (None, (c.c_void_p,)),
    "topic_new": (c.c_void_p, (c.c_void_p, c.c_char_p, c.c_void_p)),
    "topic_destroy": (None, (c.c_void_p,)),
    "produce_batch": (c.c_int, (c.c_void_p, c.c_int32, c.c_int, c.c_void_p, c.c_int)),
    "produceva": (c.c_void_p, (c.c_void_p, c.POINTER(_VariadicUnit), c.c_size_t)),
    "poll": (c.c_int, (c.c_void_p, c.c_int)),
    "outq_len": (c.c_int, (c.c_void_p,)),
    "purge": (c.c_int, (c.c_void_p, c.c_int)),
    "flush": (c.c_int, (c.c_void_p, c.c_int)),
    "fatal_error": (c.c_int, (c.c_void_p, c.c_char_p, c.c_size_t)),
    "last_error": (c.c_int, ()),
    "init_transactions": (c.c_void_p, (c.c_void_p, c.c_int)),
    "begin_transaction": (c.c_void_p, (c.c_void_p,)),
    "commit_transaction": (c.c_void_p, (c.c_void_p, c.c_int)),
    "abort_transaction": (c.c_void_p, (c.c_void_p, c.c_int)),
    "error_code": (c.c_int, (c.c_void_p,)),
    "error_string": (c.c_char_p, (c.c_void_p,)),
    "error_is_fatal": (c.c_int, (c.c_void_p,)),
    "error_is_retriable": (c.c_int, (c.c_void_p,)),
    "error_destroy": (None, (c.c_void_p,)),
}
"""Functions, without ``rd_kafka_``: result and arguments."""


@cache
def _library() -> Any:
    """Return librdkafka: names are looked up in the extension module and in what it is linked to.

    :raises ConfigError: they are not found there.
    """
    from confluent_kafka import cimpl

    library = c.CDLL(cimpl.__file__)
    for name, (result, arguments) in _SIGNATURES.items():
        try:
            function = library[f"rd_kafka_{name}"]
        except AttributeError:
            raise ConfigError(
                f"confluent-kafka does not show rd_kafka_{name} of its librdkafka: install its wheel from the package"
                " index, or build it with a shared librdkafka"
            ) from None
        function.restype, function.argtypes = result, arguments
        setattr(library, name, function)
    return library


class Producer:
    """A client of librdkafka that sends messages.

    :param settings: librdkafka's (its CONFIGURATION.md).
    :raises KafkaException: it refuses them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._library = _library()
        self._failed: list[int] = []
        self._is_stopped = False
        self._report = _Report(self._delivered)  # the library does not hold it
        self._topics: dict[str, int] = {}
        self._client = self._open({**settings, "delivery.report.only.error": True})

    def _open(self, settings: Mapping[str, Any]) -> int:
        texts = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in settings.items()}
        reason, client = c.create_string_buffer(_TEXT_BYTES), None
        conf = self._library.conf_new()
        self._library.conf_set_dr_msg_cb(conf, self._report)
        if not any(self._library.conf_set(conf, *map(str.encode, one), reason, _TEXT_BYTES) for one in texts.items()):
            client = self._library.new(_PRODUCER, conf, reason, _TEXT_BYTES)
        if client is None:
            self._library.conf_destroy(conf)
            _raise(_INVALID_ARGUMENT, reason.value.decode())
        return int(client)

    def stop(self) -> None:
        """Let :meth:`check` raise from now on: called by another thread than the one that sends."""
        self._is_stopped = True

    def purge(self) -> None:
        """Drop the messages that are queued or on their way."""
        self._library.purge(self._client, _PURGE_ALL)
        self._library.flush(self._client, 0)

    def close(self) -> None:
        """End the client, which must not be used after that."""
        for topic in self._topics.values():
            self._library.topic_destroy(topic)
        self._library.destroy(self._client)

    def __len__(self) -> int:
        """Return the number of messages that the brokers do not have yet."""
        return int(self._library.outq_len(self._client))

    def produce_all(self, topic: str, partition: int, keys: pa.Array, values: pa.Array, rows: Any) -> None:
        """Queue messages of a topic in their order; wait while the queue is full.

        One partition for all: if each message names its own (``RD_KAFKA_MSG_F_PARTITION``), and the client does not
        know the topic yet, librdkafka 2.16 adds partition -1 to the transaction, and brokers refuse that.

        :param partition: -1: the partitioner chooses.
        :param keys: large_binary, none of them empty; null: no key.
        :param values: the same; null: a tombstone.
        :param rows: int[messages]: which keys and values, in which order.
        :raises KafkaException: one is refused at once, or :meth:`check` raises while the queue is full.
        """
        queued = np.zeros(len(rows), _MESSAGE)
        queued["key"], queued["key_len"] = _pointers(keys, rows)
        queued["payload"], queued["len"] = _pointers(values, rows)
        handle = self._topic(topic)
        while len(queued):
            count, queued["err"] = len(queued), 0
            if self._library.produce_batch(handle, partition, _COPY, queued.ctypes.data, count) == count:
                return
            first = int(np.flatnonzero(queued["err"])[0])  # if the queue is full, none after the first is accepted
            error, queued = int(queued["err"][first]), queued[first:]
            self._wait_for_room(error)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        header: tuple[str, bytes] | None = None,
    ) -> None:
        """Queue a message; wait while the queue is full.

        :raises KafkaException: it is refused at once, or :meth:`check` raises while the queue is full.
        """
        from confluent_kafka import KafkaException

        name, content = header or ("", b"")
        texts = topic.encode(), name.encode()  # live until the call has ended
        parts = [
            _VariadicUnit(_TOPIC, _address(texts[0])),
            _VariadicUnit(_PARTITION, partition & 0xFFFFFFFF),
            _VariadicUnit(_VALUE, _address(value), len(value or b"")),
            _VariadicUnit(_KEY, _address(key), len(key or b"")),
            _VariadicUnit(_FLAGS, _COPY),
            _VariadicUnit(_HEADER, _address(texts[1]), _address(content), len(content)),
        ][: None if header else -1]
        while True:
            try:
                self._call("produceva", (_VariadicUnit * len(parts))(*parts), len(parts))
            except KafkaException as error:
                self._wait_for_room(error.args[0].code())
            else:
                return

    def _wait_for_room(self, error: int) -> None:
        """Wait a moment if a message was not queued because the queue is full; raise any other error, or its cause."""
        self.poll(_FULL_SECONDS if error == _QUEUE_FULL else 0)
        self.check()
        if error != _QUEUE_FULL:
            _raise(error)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            handle = self._library.topic_new(self._client, name.encode(), None)
            if handle is None:
                _raise(self._library.last_error())
            self._topics[name] = handle
        return self._topics[name]

    def flush(self, seconds: float) -> None:
        """Send what is queued without waiting for more (``linger.ms``); wait for it, at most so long."""
        self._library.flush(self._client, int(seconds * 1000))

    def poll(self, seconds: float) -> None:
        """Wait for a failed message, at most so long."""
        self._library.poll(self._client, int(seconds * 1000))

    def check(self) -> None:
        """Raise KafkaException if the client cannot be used any more, or a message has failed since the last call."""
        if self._is_stopped:
            _raise(_STOPPED, "the run is ending")
        text = c.create_string_buffer(_TEXT_BYTES)
        fatal = self._library.fatal_error(self._client, text, _TEXT_BYTES)
        if fatal:
            _raise(fatal, text.value.decode(), is_fatal=True)
        failed, self._failed = self._failed, []
        if failed and failed[0] in _PURGED:  # the transaction has failed, and why is the answer to any call about it
            self.begin_transaction()
        if failed:
            _raise(failed[0])

    def _delivered(self, _client: int, message: Any, _opaque: int) -> None:
        self._failed.append(message[0])

    def init_transactions(self, seconds: float) -> None:
        """Fence earlier producers with this ``transactional.id``, and end what they left. Raises KafkaException."""
        self._call("init_transactions", int(seconds * 1000))

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._call("begin_transaction")

    def commit_transaction(self, seconds: float) -> None:
        """Commit the transaction. Raises KafkaException, whose error says whether a retry may mend it."""
        self._call("commit_transaction", int(seconds * 1000))

    def abort_transaction(self, seconds: float) -> None:
        """Abort the transaction. Raises KafkaException."""
        self._call("abort_transaction", int(seconds * 1000))

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns an error object."""
        library = self._library
        error = getattr(library, name)(self._client, *arguments)
        if error is None:
            return
        code, text = library.error_code(error), library.error_string(error).decode()
        flags = bool(library.error_is_fatal(error)), bool(library.error_is_retriable(error))
        library.error_destroy(error)
        _raise(code, text, *flags)


def _pointers(column: pa.Array, rows: Any) -> tuple[Any, Any]:
    """Return the addresses and sizes of values; 0 for null."""
    _, offsets, data = column.buffers()
    if data is None:
        return 0, 0
    bounds, valid = np.frombuffer(offsets, np.int64)[column.offset :], np.asarray(column.is_valid())[rows]
    return (bounds[rows] + data.address) * valid, (bounds[rows + 1] - bounds[rows]) * valid


def _address(data: bytes | None) -> int | None:
    return None if data is None else c.cast(c.c_char_p(data), c.c_void_p).value


def _raise(code: int, text: str | None = None, is_fatal: bool = False, is_retriable: bool = False) -> NoReturn:
    from confluent_kafka import KafkaError, KafkaException

    raise KafkaException(KafkaError(code, text, fatal=is_fatal, retriable=is_retriable))
