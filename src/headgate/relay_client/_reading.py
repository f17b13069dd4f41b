"""What a client asks a relay for: sources, schemas, and events, which are checked and taken apart here."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import Any, Final, NamedTuple

import numpy as np

from headgate.databus import EOP_SOURCE, BootstrapPoint, Place, Schema, checkpoint_json, event_fields, sound
from headgate.errors import ConfigError, ProtocolError, RelayDivergedError, ScnNotFoundError
from headgate.relay_client._consumer import Event
from headgate.relay_client._transport import Transport

__all__ = ["Reader", "Share", "Trail", "Wanted"]

_STREAM_SIZE: Final = 1 << 20
_ROWS_SIZE: Final = 2 << 20
"""Bytes that are asked for at first, of the stream and of a bootstrap's rows; for a larger event as many as it has."""
_LARGEST_SIZE: Final = 256 << 20
"""A single event is smaller than MySQL's largest packet, 1 GiB; one of this size is refused rather than held."""
_WAIT_MS: Final = 1000
_PENDING: Final = "x-dbus-pending-event-size"
"""The next event does not fit: its size."""


class Share(NamedTuple):
    """A part of the keys: those whose HASH bucket is ``bucket`` of ``buckets``; every key is in exactly one."""

    bucket: int
    buckets: int

    @property
    def filter(self) -> dict[str, Any]:
        """As the relay takes it. Databus's MOD has no bucket for the key −2⁶³, and is uneven where keys go in steps."""
        span = {"start": self.bucket, "end": self.bucket + 1}
        return {"partitionType": "HASH", "filters": [{"numBuckets": self.buckets, "bktRange": span}]}


@dataclass(frozen=True)
class Wanted:
    """What a client wants of a relay."""

    names: Sequence[str]
    """Logical sources; none: all that the relay has when it is first asked."""
    filters: Mapping[str, Mapping[str, Any]]
    """By source, in Databus's JSON."""
    share: Share | None
    """Of the keys of all other sources; None: all."""
    version: int
    """The newest version of events that is understood; 0: the relay's own choice."""


class Trail:
    """What the newest whole window was, by which it is recognised: its SCN and a CRC-32 of its data events."""

    def __init__(self) -> None:
        self.scn, self.crc = -1, 0
        self._open, self._whole = 0, True

    def take(self, part: Any) -> None:
        """More bytes of the window that is open."""
        self._open = zlib.crc32(part, self._open)

    def end(self, scn: int) -> None:
        """The open window has ended."""
        self.scn, self.crc = (scn, self._open) if self._whole else (-1, 0)
        self._open, self._whole = 0, True

    def go_on(self, place: Place) -> None:
        """What comes next is behind a place: within a window, of which then too little is known."""
        self._open, self._whole = 0, place.offset <= 0


class Reader:
    """Asks a relay, or one of several that give the same SCNs."""

    def __init__(self, transport: Transport, wanted: Wanted) -> None:
        self.transport, self._wanted = transport, wanted
        self.sources: Mapping[int, str] = {}
        """Names by ids, which are the current relay's."""
        self._schemas: dict[bytes, Schema] = {}
        self._sizes: dict[str, int] = {}

    @property
    def wanted_names(self) -> str:
        """The sources, for people."""
        return ", ".join(self._wanted.names) or "all sources"

    def is_running(self) -> bool:
        """Whether the relay says that it is well."""
        return bool(self.transport.json("admin/status").get("status") == "RUNNING")

    def look_up(self) -> None:
        """Ask which sources there are.

        :raises ConfigError: not those that are wanted.
        """
        found = {one["name"]: one["id"] for one in self.transport.json("sources")}
        names = self._wanted.names or list(found)
        missing = [name for name in (*names, *self._wanted.filters) if name not in found]
        if missing:
            raise ConfigError(f"the relay has no source {missing[0]}; it has {', '.join(sorted(found)) or 'none'}")
        if not names:
            raise self.transport.failure("the relay has no sources yet")
        wanted = {found[name]: name for name in names}
        where = [
            name
            for name, sources in self.transport.json("physicalBuffers").items()
            if any(one["id"] in wanted for one in sources)
        ]
        if len(where) > 1:
            raise ConfigError(
                f"{', '.join(names)} are in different physical sources ({', '.join(where)}), each with SCNs of its "
                "own: take a client for the sources of each"
            )
        self.sources = wanted

    def stream(self, place: Place) -> bytes:
        """Events from a place on; none: there are none for now, or more has to be asked for."""
        more = {"checkPoint": _text(checkpoint_json(place)), "wait": str(_WAIT_MS), "maxev": str(self._wanted.version)}
        body, _ = self._events("stream", "size", _STREAM_SIZE, more, place.scn)
        return body

    def rows(self, point: BootstrapPoint) -> tuple[bytes, bool] | None:
        """Rows of a bootstrap, and whether they are the source's last; None: more has to be asked for."""
        more = {"checkPoint": _text(point.to_json())}
        body, headers = self._events("bootstrap", "batchSize", _ROWS_SIZE, more, point.start)
        return None if _PENDING in headers else (body, headers.get("PhaseCompleted") == "TRUE")

    def scn(self, command: str, more: Mapping[str, str], point: BootstrapPoint) -> int:
        """The SCN with which ``startSCN`` or ``targetSCN`` answers."""
        body, _ = self.transport.get(command, {**more, "checkPoint": _text(point.to_json())}, scn=point.start)
        try:
            return int(json.loads(body))
        except (ValueError, TypeError):
            raise ProtocolError(f"/{command} gave no SCN: is this a relay?") from None

    def _events(
        self, command: str, size_name: str, size: int, more: Mapping[str, str], scn: int
    ) -> tuple[bytes, HTTPMessage]:
        """:param scn: what errors name."""
        asked = {
            "sources": self._ids(),
            size_name: str(self._sizes.get(command, size)),
            "output": "binary",
            **more,
            **self._filters(),
        }
        body, headers = self.transport.get(command, asked, scn=scn)
        pending = headers.get(_PENDING)
        if pending is not None:
            self._sizes[command] = int(pending)
            if int(pending) > _LARGEST_SIZE:
                raise ProtocolError(f"an event of {pending} bytes is larger than {_LARGEST_SIZE}")
        if not sound(np.frombuffer(body, np.uint8)):
            raise self.transport.failure("events of the relay are damaged")
        return body, headers

    def _ids(self) -> str:
        return ",".join(str(one) for one in self.sources)

    def _filters(self) -> dict[str, str]:
        of_share = None if self._wanted.share is None else self._wanted.share.filter
        found = {str(one): self._wanted.filters.get(name) or of_share for one, name in self.sources.items()}
        given = {one: value for one, value in found.items() if value}
        return {"filters": json.dumps(given)} if given else {}

    def parsed(self, body: bytes) -> Iterator[tuple[int, int, int, Event | None]]:
        """``(begin, end, SCN, event)`` of data events, ``body[begin:end]``; without an event: a window ends there."""
        fields = event_fields(np.frombuffer(body, np.uint8))
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
            asked = {"sources": self._ids(), "protocolVersion": "4"}
            for one in self.transport.json("register", asked)["sourceSchemas"]:
                schema = Schema(self.sources[one["id"]], one["version"], one["schema"], json.loads(one["schema"]))
                self._schemas[schema.digest] = schema
        if digest not in self._schemas:
            raise self.transport.failure(f"the relay does not know the schema {digest.hex()} of its own event")
        return self._schemas[digest]

    def recognises(self, trail: Trail) -> bool:
        """Whether the newest whole window is the relay's, too; False: the relay has not come so far. Of one that no
        longer holds it nothing can be said, and its own check of SCNs decides.

        :raises RelayDivergedError: it is not.
        """
        scn, seen, place = trail.scn, Trail(), Place(trail.scn, 0)
        while scn >= 0 and seen.scn < 0:
            try:
                body = self.stream(place)
            except ScnNotFoundError:
                return True
            if not body:
                return False
            fields = event_fields(np.frombuffer(body, np.uint8))
            if int(fields.scn[0]) != scn:
                break
            mine = int((fields.scn == scn).sum())
            ends = np.concatenate(([0], np.cumsum(fields.size)))
            ended = bool(fields.source[mine - 1] == EOP_SOURCE)
            seen.take(body[: int(ends[mine - ended])])
            place = Place(scn, place.offset + mine - ended)
            if ended:
                seen.end(scn)
        if (seen.scn, seen.crc) != (scn, trail.crc if scn >= 0 else 0):
            raise RelayDivergedError(
                f"the relay {self.transport.relay} has another history: the transaction of SCN {scn}, the newest that "
                "was consumed, is not there or is another one",
                scn=scn,
            )
        return True


def _text(checkpoint: Mapping[str, Any]) -> str:
    return json.dumps(checkpoint, separators=(",", ":"))
