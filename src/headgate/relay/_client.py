"""A consumer of a relay: callbacks in Databus's order, checkpoints, back-off.

What it guarantees: *at least once*. Every event is given to the callbacks in the order of the log; a checkpoint is kept
only after a window's last callback, and only if ``on_checkpoint`` agrees; what came after the kept one is given again
after a restart or a rollback. An event whose checksum is wrong is never given.

The callbacks of a window, as in Databus (``DatabusStreamConsumer.java``)::

    on_start_data_event_sequence(scn)
        on_start_source(source, schema)          whenever the source changes
            on_data_event(event)                 for each event
        on_end_source(source, schema)
    on_end_data_event_sequence(scn)
    on_checkpoint(scn)

before all of them ``on_start_consumption``, after them ``on_stop_consumption``. What they return: ``SUCCESS`` (or
None), ``CHECKPOINT`` (the same), ``SKIP_CHECKPOINT`` (of ``on_checkpoint``: do not keep it), ``ERROR``:
``on_rollback(scn)`` is called and everything after the kept checkpoint comes again, ``ERROR_FATAL``: the consumer ends.
An exception is an ``ERROR`` of which ``on_error`` hears first.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np

from headgate.errors import (
    ConfigError,
    ConnectError,
    HeadgateError,
    ProtocolError,
    RelayConsumerError,
    ScnNotFoundError,
    Transient,
)
from headgate.relay._buffer import Place
from headgate.relay._checkpoints import CheckpointFile, checkpoint_json
from headgate.relay._events import EOP_SOURCE, sound
from headgate.relay._fields import event_fields
from headgate.relay._schemas import Schema

__all__ = ["Consumer", "Event", "RelayClient", "Result"]

log = logging.getLogger("headgate")

_FIRST_SIZE: Final = 1 << 20
_LARGEST_SIZE: Final = 256 << 20
"""A single event is smaller than MySQL's largest packet, 1 GiB; one of this size is refused rather than held."""
_WAIT_MS: Final = 1000
_FIRST_PAUSE_SECONDS: Final = 0.1
_PAUSE_FACTOR: Final = 1.1
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Databus begins at 100 ms and grows by 1.1, too, without an end."""
_TIMEOUT_SECONDS: Final = 60.0


class Result(Enum):
    """What a callback says."""

    SUCCESS = "success"
    CHECKPOINT = "checkpoint"
    SKIP_CHECKPOINT = "skip checkpoint"
    ERROR = "error"
    ERROR_FATAL = "fatal error"


@dataclass(frozen=True)
class Event:
    """A changed row."""

    source: str
    """The logical source's name."""
    scn: int
    opcode: str
    """``UPSERT`` or ``DELETE``."""
    key: int | bytes
    stamp_ns: int
    """The transaction's commit, ns since 1970."""
    schema: Schema
    payload: bytes
    """The row in Avro."""

    @property
    def row(self) -> dict[str, Any]:
        """The row as Python values, by Avro names."""
        import fastavro

        parsed = fastavro.parse_schema(dict(self.schema.value))
        found: Any = fastavro.schemaless_reader(io.BytesIO(self.payload), parsed, None)
        return dict(found)


class Consumer:
    """Callbacks, to be overridden; each returns a :class:`Result`, or None for ``SUCCESS``."""

    def on_start_consumption(self) -> Result | None:
        """Before everything else."""

    def on_stop_consumption(self) -> Result | None:
        """After everything else."""

    def on_start_data_event_sequence(self, scn: int) -> Result | None:
        """A window begins."""

    def on_end_data_event_sequence(self, scn: int) -> Result | None:
        """A window has ended."""

    def on_start_source(self, source: str, schema: Schema) -> Result | None:
        """Events of a source follow."""

    def on_end_source(self, source: str, schema: Schema) -> Result | None:
        """No more events of it for now."""

    def on_data_event(self, event: Event) -> Result | None:
        """A changed row."""

    def on_checkpoint(self, scn: int) -> Result | None:
        """Everything up to ``scn`` has been given; may it be kept?"""

    def on_rollback(self, scn: int) -> Result | None:
        """What came after ``scn`` (-1: all) will come again."""

    def on_error(self, error: Exception) -> Result | None:
        """Something went wrong; it is tried again."""


class _Rollback(Exception):
    """A callback said ``ERROR``."""


class RelayClient:
    """Pulls from a relay and calls a consumer, until :meth:`stop`.

    :param url: ``http://host:port``.
    :param sources: names of logical sources; none: all that the relay has when it is first asked.
    :param checkpoints: where to go on; None: from the oldest event the relay has, and nothing is kept.
    :param retries: tries in a row that fail before it gives up; None: never.
    :raises ConfigError: the URL is none of a relay.
    """

    def __init__(
        self,
        url: str,
        sources: Sequence[str],
        consumer: Consumer,
        checkpoints: CheckpointFile | None = None,
        *,
        retries: int | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(f"{url} is no relay; it should look like http://host:11115")
        self._host, self._port = parts.hostname, parts.port or 80
        self._names, self._consumer, self._checkpoints, self._retries = list(sources), consumer, checkpoints, retries
        self._stop = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._ids: dict[int, str] = {}
        self._schemas: dict[bytes, Schema] = {}
        self._size = _FIRST_SIZE
        self._kept = Place(-1)
        self._place = Place(-1)
        self._source: tuple[str, Schema] | None = None

    def stop(self) -> None:
        """End after the callback that runs; from any thread."""
        self._stop.set()

    def run(self) -> None:
        """Consume until :meth:`stop`.

        :raises ScnNotFoundError: the relay no longer holds what comes after the checkpoint.
        :raises RelayConsumerError: a callback said ``ERROR_FATAL``, or the tries are over.
        :raises ConfigError: the relay has no source of a name, or a checkpoint cannot be kept.
        """
        self._kept = (self._checkpoints.load() if self._checkpoints is not None else None) or Place(-1)
        self._place = self._kept
        failed, pause = 0, _FIRST_PAUSE_SECONDS
        self._call(self._consumer.on_start_consumption)
        try:
            while not self._stop.is_set():
                try:
                    self._pull()
                    failed, pause = 0, _FIRST_PAUSE_SECONDS
                except _Rollback as back:
                    failed += 1
                    self._roll_back(failed, back)
                except HeadgateError as error:
                    if not isinstance(error, Transient):
                        raise
                    failed += 1
                    self._disconnect()
                    self._tell(error)
                    self._give_up(failed, error)
                if failed:
                    self._stop.wait(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * _PAUSE_FACTOR, _LONGEST_PAUSE_SECONDS)
            self._call(self._consumer.on_stop_consumption)
        finally:
            self._disconnect()

    def _give_up(self, failed: int, error: Exception) -> None:
        if self._retries is not None and failed > self._retries:
            raise RelayConsumerError(f"given up after {failed} tries: {error}") from error

    def _roll_back(self, failed: int, back: Exception) -> None:
        self._give_up(failed, back)
        self._place, self._source = self._kept, None
        if self._consumer.on_rollback(self._kept.scn) is Result.ERROR_FATAL:
            raise RelayConsumerError("a callback ended the consumer")

    # --- the relay

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
        """The answer, which has to be read.

        :raises ConnectError: there was none.
        """
        query = "&".join(f"{name}={quote(value)}" for name, value in (parameters or {}).items())
        target = f"/{path}?{query}" if query else f"/{path}"
        try:
            if self._connection is not None:
                # The relay closes connections that were idle for some seconds; then a new one is as good.
                with contextlib.suppress(ConnectionError):
                    return self._ask(self._connection, target)
                self._disconnect()
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
            return self._ask(self._connection, target)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectError(f"the relay does not answer: {error}", host=self._host, port=self._port) from None

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, target: str) -> http.client.HTTPResponse:
        connection.request("GET", target)
        return connection.getresponse()

    def _read(self, path: str, parameters: Mapping[str, str] | None = None) -> tuple[bytes, http.client.HTTPMessage]:
        """Body and headers of a good answer.

        :raises ScnNotFoundError: the relay no longer holds what was asked for.
        :raises ConfigError: the relay refuses the request.
        """
        response = self._get(path, parameters)
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectError(f"the relay's answer broke off: {error}", host=self._host, port=self._port) from None
        if response.status == 200:
            return body, response.headers
        message = response.headers.get("x-dbus-error-message") or f"status {response.status}"
        if (response.headers.get("x-dbus-error-cause") or "").endswith("ScnNotFoundException"):
            raise ScnNotFoundError(message, scn=self._place.scn)
        if (response.headers.get("x-dbus-error") or "").endswith("InvalidRequestParamValueException"):
            raise ConfigError(f"the relay refuses the request: {message}")
        raise ConnectError(f"the relay cannot answer: {message}", host=self._host, port=self._port)

    def _json(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        body, _ = self._read(path, parameters)
        try:
            return json.loads(body)
        except ValueError:
            raise ProtocolError(f"/{path} is not JSON: is this a relay?") from None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look_up(self) -> None:
        found = {one["name"]: one["id"] for one in self._json("sources")}
        names = self._names or list(found)
        missing = [name for name in names if name not in found]
        if missing:
            raise ConfigError(f"the relay has no source {missing[0]}; it has {', '.join(sorted(found)) or 'none'}")
        self._ids = {found[name]: name for name in names}
        if not names:
            raise ConnectError("the relay has no sources yet", host=self._host, port=self._port)

    def _schema(self, digest: bytes) -> Schema:
        if digest not in self._schemas:
            for one in self._json("register", {"sources": self._id_list(), "protocolVersion": "4"})["sourceSchemas"]:
                schema = Schema(self._ids[one["id"]], one["version"], one["schema"], json.loads(one["schema"]))
                self._schemas[schema.digest] = schema
        if digest not in self._schemas:
            raise ProtocolError(f"the relay does not know the schema {digest.hex()} of its own event")
        return self._schemas[digest]

    def _id_list(self) -> str:
        return ",".join(str(one) for one in self._ids)

    def _pull(self) -> None:
        """One request, and the callbacks of what it gave."""
        if not self._ids:
            self._look_up()
        point = json.dumps(checkpoint_json(self._place), separators=(",", ":"))
        asked = {
            "sources": self._id_list(), "size": str(self._size), "output": "binary", "checkPoint": point,
            "wait": str(_WAIT_MS),
        }  # fmt: skip
        body, headers = self._read("stream", asked)
        pending = headers.get("x-dbus-pending-event-size")
        if pending is not None:
            self._size = int(pending)
            if self._size > _LARGEST_SIZE:
                raise ProtocolError(f"an event of {pending} bytes is larger than {_LARGEST_SIZE}")
            return
        data = np.frombuffer(body, np.uint8)
        if not sound(data):
            raise ConnectError("events of the relay are damaged", host=self._host, port=self._port)
        self._deliver(body, data)

    # --- the callbacks

    def _deliver(self, body: bytes, data: Any) -> None:
        fields = event_fields(data)
        columns = (
            fields.scn, fields.source, fields.attributes, fields.digest, fields.long_key, fields.key, fields.key_size,
            fields.value, fields.value_size, fields.stamp,
        )  # fmt: skip
        for scn, source, attributes, digest, number, key, key_size, value, value_size, stamp in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            if self._stop.is_set():
                return
            if source == EOP_SOURCE:
                self._end_window(scn)
            elif source >= 0:
                event = Event(
                    self._ids[source], scn, "DELETE" if attributes & 2 else "UPSERT",
                    number if key < 0 else body[key : key + key_size], stamp, self._schema(body[digest : digest + 16]),
                    body[value : value + value_size],
                )  # fmt: skip
                self._give(event)

    def _give(self, event: Event) -> None:
        inside = self._place.scn == event.scn and self._place.offset > 0
        if not inside:
            self._call(self._consumer.on_start_data_event_sequence, event.scn)
        source = (event.source, event.schema)
        if source != self._source:
            self._end_source()
            self._call(self._consumer.on_start_source, *source)
            self._source = source
        self._call(self._consumer.on_data_event, event)
        self._place = Place(event.scn, self._place.offset + 1 if inside else 1)

    def _end_source(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self._call(self._consumer.on_end_source, *source)

    def _end_window(self, scn: int) -> None:
        if self._place.scn == scn and self._place.offset > 0:  # it had events for us
            self._end_source()
            self._call(self._consumer.on_end_data_event_sequence, scn)
        self._place = Place(scn)
        if self._call(self._consumer.on_checkpoint, scn) is not Result.SKIP_CHECKPOINT:
            if self._checkpoints is not None:
                self._checkpoints.store(self._place)
            self._kept = self._place

    def _tell(self, error: Exception) -> None:
        if self._consumer.on_error(error) is Result.ERROR_FATAL:
            raise RelayConsumerError(f"a callback ended the consumer after: {error}") from error

    def _call(self, callback: Callable[..., Result | None], *arguments: Any) -> Result | None:
        try:
            result = callback(*arguments)
        except Exception as error:
            log.warning("a consumer's callback failed", exc_info=True)
            self._tell(error)
            result = Result.ERROR
        if result is Result.ERROR_FATAL:
            raise RelayConsumerError("a callback ended the consumer")
        if result is Result.ERROR:
            raise _Rollback("a callback said ERROR")
        return result
