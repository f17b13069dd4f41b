"""What a consumer of a relay is called with, and what it answers: Databus's callbacks and results
(``DatabusStreamConsumer.java``, ``ConsumerCallbackResult.java``).

The callbacks of a window::

    on_start_data_event_sequence(scn)
        on_start_source(source, schema)          whenever the source changes
            on_data_event(event)                 for each event
        on_end_source(source, schema)
    on_end_data_event_sequence(scn)
    on_checkpoint(scn)

before all of them ``on_start_consumption``, after them ``on_stop_consumption``. What they return: ``SUCCESS`` (or
None), ``CHECKPOINT`` (the same), ``ERROR``: ``on_rollback(scn)`` is called and everything after the kept checkpoint
comes again, ``ERROR_FATAL``: the consumer ends. After ``SKIP_CHECKPOINT`` or ``ERROR`` of ``on_checkpoint`` the
checkpoint is not kept, and the stream goes on. An exception is an ``ERROR`` of which ``on_error`` hears first.

A bootstrap has callbacks of its own, as in Databus::

    on_start_bootstrap()
        on_start_bootstrap_sequence(scn)             where it begins: rows come from there on
            on_start_bootstrap_source(source, schema)
                on_bootstrap_event(event)            rows, and changes since, by turns
            on_end_bootstrap_source(source, schema)
            on_bootstrap_checkpoint(scn)
        on_end_bootstrap_sequence(scn)               everything is as of this SCN now
    on_stop_bootstrap()

All its events have SCNs from the start's on. So a consumer that held rows before, because it was too far behind, may
delete at the end those that it last set under a smaller SCN: they are gone. Or it empties its tables at the start.

A rollback, a bootstrap that begins, and the consumer's end cut short what was open: its ``on_end_…`` do not come.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import fastavro

from headgate.databus import Schema

__all__ = ["Consumer", "Event", "Result", "Subscription"]


class Result(IntEnum):
    """What a callback says; the greater is the graver."""

    SUCCESS = 0
    CHECKPOINT = 100
    SKIP_CHECKPOINT = 150
    ERROR = 200
    ERROR_FATAL = 300


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
    before: bytes | None = None
    """Of an update the row before it, in Avro by the same schema, if the relay keeps it and the client asks for it."""

    @property
    def row(self) -> dict[str, Any]:
        """The row as Python values, by Avro names."""
        return self._decoded(self.payload)

    @property
    def row_before(self) -> dict[str, Any] | None:
        """The row before an update, likewise; None: there is none."""
        return None if self.before is None else self._decoded(self.before)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        parsed = fastavro.parse_schema(dict(self.schema.value))
        found: Any = fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
        return dict(found)


class Consumer:
    """Callbacks of a :class:`RelayClient`, to be overridden; each returns a :class:`Result`, or None for ``SUCCESS``.

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

    def on_start_bootstrap(self) -> Result | None:
        """A bootstrap begins, or goes on after an interruption."""

    def on_stop_bootstrap(self) -> Result | None:
        """The bootstrap is over; windows follow."""

    def on_start_bootstrap_sequence(self, scn: int) -> Result | None:
        """All events of the bootstrap have this SCN or a greater one."""

    def on_end_bootstrap_sequence(self, scn: int) -> Result | None:
        """Everything that was given makes what the server held at ``scn``."""

    def on_start_bootstrap_source(self, source: str, schema: Schema) -> Result | None:
        """Events of a source follow."""

    def on_end_bootstrap_source(self, source: str, schema: Schema) -> Result | None:
        """No more events of it for now."""

    def on_bootstrap_event(self, event: Event) -> Result | None:
        """A row, or a change; by default the same as ``on_data_event``."""
        return self.on_data_event(event)

    def on_bootstrap_checkpoint(self, scn: int) -> Result | None:
        """Rows were given and the stream up to ``scn``; may it be kept?"""

    def on_bootstrap_rollback(self, scn: int) -> Result | None:
        """What came after the kept checkpoint, whose stream was at ``scn``, will come again."""

    def on_error(self, error: Exception) -> Result | None:
        """Something went wrong; it is tried again."""


class Subscription(NamedTuple):
    """One of several consumers of a client, and what it wants of the client's sources."""

    consumer: Consumer
    sources: Collection[str] | None = None
    """Names; of others it gets no ``on_start_source``, ``on_data_event`` and ``on_end_source``. None: all."""
