"""Callbacks of a relay's consumer, and their results, as in Databus (``DatabusStreamConsumer.java``,
``ConsumerCallbackResult.java``).

The callbacks of a window::

    on_start_data_event_sequence(scn)
        on_start_source(source, schema)          whenever the source changes
            on_data_event(event)                 for each event
        on_end_source(source, schema)
    on_end_data_event_sequence(scn)
    on_checkpoint(scn)

``on_start_consumption`` comes before all of them, ``on_stop_consumption`` after. Results: ``SUCCESS`` (or None) and
``CHECKPOINT`` (the same) continue. After ``ERROR``, ``on_rollback(scn)`` is called, and everything after the stored
checkpoint comes again. ``ERROR_FATAL`` ends the consumer. If ``on_checkpoint`` returns ``SKIP_CHECKPOINT`` or
``ERROR``, the checkpoint is not stored, and the stream continues. An exception is reported to ``on_error``, then counts
as ``ERROR``.

A bootstrap has separate callbacks, as in Databus::

    on_start_bootstrap()
        on_start_bootstrap_sequence(scn)             the start's SCN
            on_start_bootstrap_source(source, schema)
                on_bootstrap_event(event)            rows, and changes since, by turns
            on_end_bootstrap_source(source, schema)
            on_bootstrap_checkpoint(scn)
        on_end_bootstrap_sequence(scn)               everything is as of this SCN now
    on_stop_bootstrap()

All its events have the start's SCN or a greater one. So a consumer that held rows before, because it was too far
behind, may delete at the end those that it last set under a smaller SCN: they no longer exist. Or it empties its tables
at the start.

A rollback, the start of a bootstrap and the consumer's end interrupt open sequences: their ``on_end_…`` do not come.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro

from headgate.relay.databus import Schema

__all__ = ["Consumer", "Event", "Result", "Subscription"]


class Result(IntEnum):
    """Result of a callback; the greater is the more severe."""

    SUCCESS = 0
    CHECKPOINT = 100
    SKIP_CHECKPOINT = 150
    ERROR = 200
    ERROR_FATAL = 300


@dataclass(frozen=True)
class Event:
    """A changed row."""

    source: str
    """Name of the logical source."""
    scn: int
    opcode: str
    """``UPSERT`` or ``DELETE``."""
    key: int | bytes
    stamp_ns: int
    """Commit time of the transaction, ns since 1970."""
    schema: Schema
    payload: bytes
    """The row in Avro."""
    before: bytes | None = None
    """For an update, the row before it, in Avro by the same schema, if relay and client have enabled it."""

    @property
    def row(self) -> dict[str, Any]:
        """The row as Python values, by Avro names."""
        return self._decoded(self.payload)

    @property
    def row_before(self) -> dict[str, Any] | None:
        """The row before an update, as Python values; None: not available."""
        return None if self.before is None else self._decoded(self.before)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        record: Any = fastavro.schemaless_reader(io.BytesIO(data), _parsed(self.schema.text), None)
        return dict(record)


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    """Return a schema in fastavro's form. Parsing takes longer than decoding a row."""
    return fastavro.parse_schema(json.loads(schema))


class Consumer:
    """Callbacks of a :class:`RelayClient`, to be overridden. Each returns a :class:`Result`, or None for ``SUCCESS``.

    >>> class Counter(headgate.Consumer):
    ...     events = 0
    ...
    ...     def on_data_event(self, event):
    ...         self.events += 1
    ...
    ...     def on_checkpoint(self, scn):
    ...         client.stop()
    >>> counter = Counter()
    >>> client = headgate.RelayClient("http://relay1:11115", [], counter)
    >>> client.run()
    >>> counter.events
    2
    """

    def on_start_consumption(self) -> Result | None:
        """Handle the start, before all other callbacks except ``on_error``."""

    def on_stop_consumption(self) -> Result | None:
        """Handle the end, after all other callbacks."""

    def on_start_data_event_sequence(self, scn: int) -> Result | None:
        """Handle the start of a window."""

    def on_end_data_event_sequence(self, scn: int) -> Result | None:
        """Handle the end of a window."""

    def on_start_source(self, source: str, schema: Schema) -> Result | None:
        """Prepare for events of a source."""

    def on_end_source(self, source: str, schema: Schema) -> Result | None:
        """Handle the end of a run of events of a source."""

    def on_data_event(self, event: Event) -> Result | None:
        """Handle a changed row."""

    def on_checkpoint(self, scn: int) -> Result | None:
        """Decide whether a checkpoint is stored. Everything up to ``scn`` has been delivered."""

    def on_rollback(self, scn: int) -> Result | None:
        """Handle a rollback: everything after ``scn`` (-1: all) will come again."""

    def on_start_bootstrap(self) -> Result | None:
        """Handle the start of a bootstrap, or its continuation after an interruption."""

    def on_stop_bootstrap(self) -> Result | None:
        """Handle the end of the bootstrap; windows follow."""

    def on_start_bootstrap_sequence(self, scn: int) -> Result | None:
        """Handle the start's SCN: all events of the bootstrap have this SCN or a greater one."""

    def on_end_bootstrap_sequence(self, scn: int) -> Result | None:
        """Handle the end of the rows and changes: together they are what the server held at ``scn``."""

    def on_start_bootstrap_source(self, source: str, schema: Schema) -> Result | None:
        """Prepare for events of a source."""

    def on_end_bootstrap_source(self, source: str, schema: Schema) -> Result | None:
        """Handle the end of a run of events of a source."""

    def on_bootstrap_event(self, event: Event) -> Result | None:
        """Handle a row or a change; by default call ``on_data_event``."""
        return self.on_data_event(event)

    def on_bootstrap_checkpoint(self, scn: int) -> Result | None:
        """Decide whether a checkpoint is stored. Rows and the stream up to ``scn`` have been delivered."""

    def on_bootstrap_rollback(self, scn: int) -> Result | None:
        """Handle a rollback: everything after the stored checkpoint, whose stream was at ``scn``, will come again."""

    def on_error(self, error: Exception) -> Result | None:
        """Handle an error. The client retries."""


class Subscription(NamedTuple):
    """One of several consumers of a client, and its share of the client's sources."""

    consumer: Consumer
    sources: Collection[str] | None = None
    """Names. For others, callbacks with a source or an event are not called. None: all."""
