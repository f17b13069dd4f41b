"""Requests to a relay for sources, schemas and events, and the check and parsing of events."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPMessage
from typing import Any, Final, NamedTuple

import numpy as np

from headgate.errors import ConfigError, ProtocolError, RelayDivergedError, ScnNotFoundError
from headgate.parsing import parse_json
from headgate.relay.client._consumer import Event
from headgate.relay.client._retry import ClientTuning
from headgate.relay.client._transport import RelayTransport, valid_answer
from headgate.relay.databus import (
    EOP_SOURCE,
    PENDING_EVENT_SIZE,
    PHASE_COMPLETED,
    BootstrapPoint,
    EventFields,
    Schema,
    StreamPosition,
    checkpoint_json,
    event_fields,
    is_intact,
    without_schema_ids,
)

__all__ = ["Answer", "Reader", "Share", "Trail"]

_MARK: Final = re.compile(r"(\d{1,19}):(\d{1,10}):(\d{1,10})", re.ASCII)


class Share(NamedTuple):
    """A part of the keys: HASH bucket ``bucket`` of ``buckets``. Every key is in exactly one bucket."""

    bucket: int
    buckets: int

    @property
    def filter(self) -> dict[str, Any]:
        """The relay's form. Databus's MOD has no bucket for the key −2⁶³, and is uneven if keys grow in steps."""
        span = {"start": self.bucket, "end": self.bucket + 1}
        return {"partitionType": "HASH", "filters": [{"numBuckets": self.buckets, "bktRange": span}]}


class Trail:
    """Identity of the newest whole window: its SCN, a CRC-32 of its events, as ``without_schema_ids`` has them, and the
    ``Reader.choice`` under which they came. A relay that begins without a schema registry numbers the versions of a
    schema from 1. A window without events of these sources and keys has its end, which tells when it was committed.

    A checkpoint has it as text (:attr:`mark`), so that a client that restarts knows it.
    """

    def __init__(self) -> None:
        self.scn, self.crc, self.choice = -1, 0, 0
        self._open, self._whole = 0, True

    @property
    def mark(self) -> str:
        """Text of the identity; empty: it is unknown."""
        return "" if self.scn < 0 else f"{self.scn}:{self.crc}:{self.choice}"

    @classmethod
    def of(cls, checkpoint: StreamPosition) -> Trail:
        """Return the trail up to a checkpoint. If another client moved it since, the mark is of an older window."""
        trail = cls()
        match = _MARK.fullmatch(checkpoint.mark)
        if match is not None and int(match[1]) == checkpoint.scn and checkpoint.offset < 0:
            trail.scn, trail.crc, trail.choice = map(int, match.groups())
        trail.continue_after(checkpoint)
        return trail

    def take(self, part: Any) -> None:
        """Add bytes of the open window."""
        self._open = zlib.crc32(part, self._open)

    def end(self, scn: int, choice: int) -> None:
        """End the open window."""
        self.scn, self.crc, self.choice = (scn, self._open, choice) if self._whole else (-1, 0, 0)
        self._open, self._whole = 0, True

    def continue_after(self, position: StreamPosition) -> None:
        """Continue after a position. A window that is open there gets no identity, because its beginning is unknown."""
        self._open, self._whole = 0, position.offset <= 0


class Answer(NamedTuple):
    """Events that a relay sent, whole and undamaged."""

    body: bytes
    fields: EventFields
    of_all: bool = False
    """All sources were requested, so some may be unknown as yet."""


class Reader:
    """Requests to a relay, or to one of several that give the same SCNs.

    :param names: logical sources; none: all that the relay has, also tables that appear later.
    :param filters: by source, in Databus's JSON.
    :param share: of the keys of all sources without a filter; None: all.
    :param version: newest version of events that the client understands; 0: the relay chooses.
    """

    def __init__(
        self,
        transport: RelayTransport,
        names: Sequence[str] = (),
        *,
        filters: Mapping[str, Mapping[str, Any]] | None = None,
        share: Share | None = None,
        version: int = 0,
        tuning: ClientTuning | None = None,
    ) -> None:
        self.transport, self._names, self._filters, self._share = transport, list(names), filters or {}, share
        self._version, self._tuning = version, tuning or ClientTuning()
        self.sources: Mapping[int, str] = {}
        """Names by the current relay's ids."""
        self.choice = 0
        """Identity of what is requested: the sources, their filters, the version of events."""
        self._physical = -1
        """Id of their physical source."""
        self._schemas: dict[bytes, Schema] = {}
        self._sizes: dict[str, int] = {}

    @property
    def wanted_names(self) -> str:
        """The sources, for messages."""
        return ", ".join(self._names) or "all sources"

    def is_running(self) -> bool:
        """Return whether the relay reports that it is running."""
        with valid_answer("admin/status"):
            return bool(self.transport.json("admin/status")["status"] == "RUNNING")

    def look_up(self) -> None:
        """Look up the ids of the wanted sources. If all are wanted, new ones come behind those that are known: a
        bootstrap reads them in this order.

        :raises ConfigError: the relay lacks a source, or they are in different physical sources.
        """
        with valid_answer("sources"):
            ids = {str(one["name"]): int(one["id"]) for one in self.transport.json("sources")}
        known = [name for name in self.sources.values() if name in ids]
        names = self._names or list(dict.fromkeys((*known, *ids)))
        missing = [name for name in (*names, *self._filters) if name not in ids]
        if missing:
            raise ConfigError(f"the relay has no source {missing[0]}; it has {', '.join(sorted(ids)) or 'none'}")
        if not names:
            raise self.transport.failure("the relay has no sources yet")
        wanted = {ids[name]: name for name in names}
        with valid_answer("physicalBuffers"):
            physical_sources = [
                name
                for name, sources in self.transport.json("physicalBuffers").items()
                if any(one["id"] in wanted for one in sources)
            ]
            physical = int(physical_sources[-1].rpartition(":")[2])
        if len(physical_sources) > 1:
            raise ConfigError(
                f"{', '.join(names)} are in different physical sources ({', '.join(physical_sources)}), each with its "
                "own SCNs. Use one client per physical source"
            )
        self.sources, self._physical = wanted, physical
        choice = [sorted(names), self._filters, self._share, self._version]
        self.choice = zlib.crc32(json.dumps(choice, sort_keys=True).encode())

    def stream(self, position: StreamPosition) -> Answer:
        """Return events from a position on; none: none are ready, or the next request must be larger."""
        more = {
            **self._stream_sources(),
            "checkPoint": _text(checkpoint_json(position)),
            "wait": str(max(1, round(1000 * self._tuning.wait))),
            "maxev": str(self._version),
        }
        answer, _ = self._events("stream", "size", self._tuning.stream_bytes, more, position.scn)
        return answer._replace(of_all=not self._names)

    def rows(self, point: BootstrapPoint) -> tuple[Answer, bool] | None:
        """Return rows of a bootstrap, and whether they are the source's last; None: the next request must be larger."""
        more = {"sources": self._ids(), "checkPoint": _text(point.to_json())}
        answer, headers = self._events("bootstrap", "batchSize", self._tuning.rows_bytes, more, point.start)
        return None if PENDING_EVENT_SIZE in headers else (answer, headers.get(PHASE_COMPLETED) == "TRUE")

    def scn(self, command: str, more: Mapping[str, str], point: BootstrapPoint) -> int:
        """Return the SCN with which ``startSCN`` or ``targetSCN`` answers."""
        body, _ = self.transport.get(command, {**more, "checkPoint": _text(point.to_json())}, scn=point.start)
        try:
            return int(parse_json(body))
        except (ValueError, TypeError):
            raise ProtocolError(f"/{command} gave no SCN: is this a relay?") from None

    def _events(
        self, command: str, size_name: str, size: int, more: Mapping[str, str], scn: int
    ) -> tuple[Answer, HTTPMessage]:
        """:param scn: the SCN that errors name."""
        parameters = {
            size_name: str(self._sizes.get(command, size)),
            "output": "binary",
            **more,
            **self._filters_sent(),
        }
        body, headers = self.transport.get(command, parameters, scn=scn)
        pending = headers.get(PENDING_EVENT_SIZE)
        if pending is not None:
            self._sizes[command] = int(pending)
            if int(pending) > (largest := self._tuning.largest_bytes):
                raise ProtocolError(f"an event of {pending} bytes is larger than {largest}")
        events = np.frombuffer(body, np.uint8)
        if not is_intact(events):
            raise self.transport.failure("the relay sent damaged events")
        return Answer(body, event_fields(events)), headers

    def _stream_sources(self) -> dict[str, str]:
        """Return the parameter for the sources of a stream. The relay applies ``subs`` to each window, so all sources
        include those that it discovers while a request waits.
        """
        if self._names:
            return {"sources": self._ids()}
        everything = {"logicalPartition": {"source": {"id": -1}}, "physicalPartition": {"id": self._physical}}
        return {"subs": json.dumps([everything])}

    def _ids(self) -> str:
        return ",".join(str(one) for one in self.sources)

    def _filters_sent(self) -> dict[str, str]:
        of_share = None if self._share is None else self._share.filter
        filters = {str(one): self._filters.get(name) or of_share for one, name in self.sources.items()}
        used = {one: value for one, value in filters.items() if value}
        return {"filters": json.dumps(used)} if used else {}

    def parsed(self, answer: Answer) -> Iterator[tuple[int, int, int, Event | None]]:
        """Yield ``(begin, end, SCN, event)`` of data events, ``body[begin:end]``; event None: a window ends there. End
        before the first change of a table that was unknown: no filter has chosen from its events, so the next request
        brings them.
        """
        body, fields = answer.body, answer.fields
        columns = (
            fields.size, fields.scn, fields.source, fields.attributes, fields.digest, fields.long_key, fields.key,
            fields.key_size, fields.value, fields.value_size, fields.stamp, fields.before,
            fields.before_size,
        )  # fmt: skip
        at = 0
        for (
            size, scn, source, attributes, digest, number, key, key_size, value, value_size, stamp, before, before_size,
        ) in zip(*(column.tolist() for column in columns), strict=True):  # fmt: skip
            if source == EOP_SOURCE:
                yield at, at + size, scn, None
            elif source >= 0:
                if source not in self.sources:
                    if answer.of_all:
                        self.look_up()
                    if source in self.sources:
                        return
                    raise self.transport.failure(f"the relay sent an event of source {source}, which was not requested")
                event = Event(
                    self.sources[source],
                    scn,
                    "DELETE" if attributes & 2 else "UPSERT",
                    number if key < 0 else body[key : key + key_size],
                    stamp,
                    self._schema(body[digest : digest + 16]),
                    body[value : value + value_size],
                    None if before < 0 else body[before : before + before_size],
                )
                yield at, at + size, scn, event
            at += size

    def _schema(self, digest: bytes) -> Schema:
        if digest not in self._schemas:
            parameters = {"sources": self._ids(), "protocolVersion": "4"}
            with valid_answer("register"):
                for one in self.transport.json("register", parameters)["sourceSchemas"]:
                    schema = Schema(self.sources[one["id"]], one["version"], one["schema"], parse_json(one["schema"]))
                    self._schemas[schema.digest] = schema
        if digest not in self._schemas:
            raise self.transport.failure(f"the relay does not know the schema {digest.hex()} of its own event")
        return self._schemas[digest]

    def recognises(self, trail: Trail) -> bool:
        """Return whether the relay has the newest whole window; False: the relay has not reached it yet. If it cannot
        be compared, return True: other events were chosen than now, or the relay no longer holds it, and the relay's
        check of SCNs decides.

        :raises RelayDivergedError: the relay has another transaction there, or none.
        """
        if trail.scn < 0 or trail.choice != self.choice:
            return True
        scn, seen, position = trail.scn, Trail(), StreamPosition(trail.scn, 0)
        while seen.scn < 0:
            try:
                answer = self.stream(position)
            except ScnNotFoundError:
                return True
            if not answer.body:
                return False
            fields = answer.fields
            if int(fields.scn[0]) != scn:
                break
            mine = int((fields.scn == scn).sum())
            seen.take(without_schema_ids(answer.body, fields)[: int(fields.size[:mine].sum())])
            if fields.source[mine - 1] == EOP_SOURCE:
                seen.end(scn, trail.choice)
            position = StreamPosition(scn, position.offset + mine)
        if (seen.scn, seen.crc) != (scn, trail.crc):
            raise RelayDivergedError(
                f"the relay {self.transport.relay} has another history: SCN {scn}, the newest consumed "
                "transaction, is missing there or different",
                scn=scn,
            )
        return True


def _text(checkpoint: Mapping[str, Any]) -> str:
    return json.dumps(checkpoint, separators=(",", ":"))
