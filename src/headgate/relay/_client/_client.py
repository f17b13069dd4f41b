"""A consumer of a relay: callbacks in Databus's order, checkpoints, back-off, more than one relay.

What it guarantees: *at least once*. Every event is given to the callbacks in the order of the log; a checkpoint is kept
only after a window's last callback, and only if ``on_checkpoint`` agrees; what came after the kept one is given again
after a restart or a rollback. An event whose checksum is wrong is never given.

Why a client may go on at another relay. Relays that share a map of generations, or whose SCNs are the application's,
give a transaction the same SCN, so a checkpoint of one means the same at the other. Relays that number by themselves
do so only while they read the same history: a replica that missed a transaction shifts all numbers after it. So after
every lost connection the client reads the newest window that it has had whole once more, and goes on only if it is
there with the same bytes (:class:`_Trail`); another one, or none, is a :class:`RelayDivergedError`. A relay that has
not come so far yet is waited for; of one that no longer holds that window nothing can be said, and its own check of
SCNs decides.

The order of callbacks is in ``_client._consumer``, how several consumers are called in
``_client._callbacks``.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from headgate.errors import (
    ConfigError,
    HeadgateError,
    ProtocolError,
    RelayConsumerError,
    RelayDivergedError,
    ScnNotFoundError,
    Transient,
)
from headgate.relay._bootstrap._points import BootstrapPoint, bootstrap_of
from headgate.relay._buffer import FIRST, Place
from headgate.relay._checkpoints import CheckpointStore, checkpoint_json
from headgate.relay._client._bootstrap import Bootstrapper, Means
from headgate.relay._client._callbacks import Callbacks
from headgate.relay._client._consumer import Consumer, Event, Result, Subscription
from headgate.relay._client._retry import Failures, Retry
from headgate.relay._client._transport import Access, Transport
from headgate.relay._events._binary import EOP_SOURCE, sound
from headgate.relay._events._fields import event_fields
from headgate.relay._events._schemas import Schema
from headgate.relay._http._requests import place_of

__all__ = ["CHECKPOINT_SECONDS", "RelayClient", "Share"]

log = logging.getLogger("headgate")

CHECKPOINT_SECONDS: Final = 0.1
"""By default; a file that is replaced and synchronised after each window holds a consumer at some hundred a second."""
_FIRST_SIZE: Final = 1 << 20
_LARGEST_SIZE: Final = 256 << 20
"""A single event is smaller than MySQL's largest packet, 1 GiB; one of this size is refused rather than held."""
_WAIT_MS: Final = 1000
_HELD_SECONDS: Final = 0.05
"""How often it is asked whether it may deliver again."""
_STALLED_SECONDS: Final = 10.0
"""With several relays: one that gives nothing for so long is asked whether it is well."""


class Share(NamedTuple):
    """A part of the keys: those whose HASH bucket is ``bucket`` of ``buckets``; every key is in exactly one."""

    bucket: int
    buckets: int

    @property
    def filter(self) -> dict[str, Any]:
        """As the relay takes it. Databus's MOD has no bucket for the key −2⁶³, and is uneven where keys go in steps."""
        span = {"start": self.bucket, "end": self.bucket + 1}
        return {"partitionType": "HASH", "filters": [{"numBuckets": self.buckets, "bktRange": span}]}


class _Rollback(Exception):
    """A callback said ``ERROR``."""


class _Trail:
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


class RelayClient:
    """Pulls from a relay and calls consumers, until :meth:`stop` or :meth:`finish`.

    :param urls: ``http://host:port``; or several relays that give the same SCNs, the next of which is asked when one
        fails.
    :param sources: names of logical sources, all of one physical source; none: all that the relay has when it is first
        asked.
    :param consumers: one; or several, called side by side, perhaps each for some of the sources only.
    :param checkpoints: where to go on; None: from the oldest event the relay has, and nothing is kept.
    :param checkpoint_seconds: how often at most a checkpoint is kept, in seconds, and at the end; 0: after every
        window, before the next one: a file takes about a millisecond.
    :param filters: source's name → what the relay sends of it, in Databus's JSON.
    :param share: only this part of the keys, of all sources.
    :param before_images: take events of version 2, whose updates hold the row before them if the relay keeps it.
    :param callback_seconds: how long one callback may take; None: as long as it likes.
    :param may_deliver: asked before each event; as long as it says no, nothing is delivered.
    :param bootstrap: give the rows there are first, where there is no checkpoint, or no relay holds what comes after
        it.
    :raises ConfigError: a URL is none of a relay.

    >>> class Names(headgate.Consumer):
    ...     def on_data_event(self, event):
    ...         print(event.opcode, event.row["firstName"])
    ...
    ...     def on_checkpoint(self, scn):
    ...         client.stop()
    >>> source = "com.linkedin.events.example.or_test.Person"
    >>> client = headgate.RelayClient("http://relay1:11115", [source], Names())
    >>> client.run()
    UPSERT first1
    UPSERT first2
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        sources: Sequence[str],
        consumers: Consumer | Sequence[Consumer | Subscription],
        checkpoints: CheckpointStore | None = None,
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        filters: Mapping[str, Mapping[str, Any]] | None = None,
        share: Share | None = None,
        before_images: bool = False,
        callback_seconds: float | None = None,
        may_deliver: Callable[[], bool] = lambda: True,
        bootstrap: bool = False,
    ) -> None:
        self._transport = Transport([urls] if isinstance(urls, str) else urls, access)
        listed = [consumers] if isinstance(consumers, Consumer) else consumers
        subscriptions = [one if isinstance(one, Subscription) else Subscription(one) for one in listed]
        self._callbacks = Callbacks(subscriptions, callback_seconds)
        self._names, self._checkpoints, self._checkpoint_seconds = list(sources), checkpoints, checkpoint_seconds
        self._filters, self._share, self._newest = dict(filters or {}), share, 2 if before_images else 0
        self._failures = Failures(retry or Retry())
        self._setbacks = Failures(retry or Retry())
        """Rollbacks, and bootstraps that begin again: requests in between succeed, whatever comes of them."""
        self._begun = False
        self._stop, self._finish, self._may_deliver = threading.Event(), threading.Event(), may_deliver
        self._ids: dict[int, str] = {}
        self._schemas: dict[bytes, Schema] = {}
        self._size = _FIRST_SIZE
        self._place = Place(-1)
        self._first = Place(-1)
        """Where it began, if that was with the oldest that the relay had: that is another place by and by."""
        self._got_over: Callable[[], bool] = lambda: True
        """Whether what set it back last has succeeded since."""
        self._kept: Place | BootstrapPoint = self._place
        self._stored: Place | BootstrapPoint = self._place
        self._stored_at = -math.inf  # the monotonic clock may begin when the machine does
        self._may_bootstrap = bootstrap
        self._bootstrapper: Bootstrapper | None = None
        self._source: tuple[str, Schema] | None = None
        self._trail = _Trail()
        self._sure = True
        self._not_found = 0
        self._news_at = time.monotonic()

    def stop(self) -> None:
        """End after the callback that runs; from any thread."""
        self._stop.set()

    def finish(self) -> None:
        """End when the window that was begun has been given whole; from any thread."""
        self._finish.set()

    def _is_over(self) -> bool:
        return self._stop.is_set() or (self._finish.is_set() and self._place.offset < 0)

    def run(self) -> None:
        """Consume until :meth:`stop`.

        :raises ScnNotFoundError: no relay holds what comes after the checkpoint.
        :raises RelayDivergedError: a relay's SCNs mean other transactions than those that were consumed.
        :raises RelayConsumerError: a callback said ``ERROR_FATAL`` or took too long, or the tries are over.
        :raises ConfigError: the relay has no source of a name, or refuses what is asked (a filter, a token); or a
            checkpoint cannot be kept.
        """
        self._load()
        with self._callbacks:
            try:
                while not self._is_over():
                    self._step()
                if self._begun:
                    self._ask("on_stop_consumption")
            finally:
                self._transport.close()
                self._store(at_once=True)

    def _step(self) -> None:
        """One request, or what has to be done instead."""
        failed: Failures | None = None
        try:
            if not self._begun:
                self._say("on_start_consumption")
                self._begun = True
            if not self._ids:
                self._look_up()
            if self._bootstrapper is None:
                self._pull()
            else:
                self._bootstrap(self._bootstrapper)
            self._failures.clear()
            if self._got_over():
                self._setbacks.clear()
        except _Rollback as back:
            failed = self._setbacks
            failed.add(back)
            self._got_over = self._further()
            self._roll_back()
        except ScnNotFoundError as error:
            self._not_found += 1
            if self._not_found < len(self._transport):
                self._switch()
            elif not self._may_bootstrap:
                raise
            else:
                if self._bootstrapper is not None:  # it took longer than the buffer reaches back
                    failed = self._setbacks
                    failed.add(error)
                    self._got_over = lambda: self._bootstrapper is None
                self._begin_bootstrap()
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            if self._callbacks.call("on_error", error) is Result.ERROR_FATAL:
                raise RelayConsumerError(f"a callback ended the consumer after: {error}") from error
            self._switch()
            failed = self._failures
            failed.add(error)
        if failed is not None:
            self._stop.wait(failed.pause(self._transport.seconds_until_asked()))

    def _further(self) -> Callable[[], bool]:
        """Says whether the client has come further than it is now: what comes before that succeeds once more."""
        if not self._begun:
            return lambda: True
        bootstrapper, kept, here = self._bootstrapper, self._kept, _order(self._place)
        if bootstrapper is not None:
            return lambda: self._bootstrapper is not bootstrapper or self._kept != kept
        return lambda: _order(self._place) > here

    def _switch(self) -> None:
        self._transport.switch()
        self._sure, self._ids = False, {}

    def _roll_back(self) -> None:
        if self._bootstrapper is not None:
            self._bootstrapper.roll_back()
            return
        assert isinstance(self._kept, Place)
        self._place, self._source = self._first if self._kept.scn == -1 else self._kept, None
        self._trail.go_on(self._place)
        self._ask("on_rollback", 0 if self._kept == FIRST else self._kept.scn)

    # --- bootstrap

    def _begin_bootstrap(self, point: BootstrapPoint | None = None) -> None:
        """From a checkpoint, or anew."""
        means = Means(
            get=lambda path, asked, scn: self._transport.get(path, asked, scn=scn), stream=self._stream,
            parse=self._events, sources=lambda: self._ids, filters=self._filters_json, post=self._post, say=self._say,
            ask=self._ask, settle=self._settle,
            stopped=lambda: self._stop.is_set() or not self._may_deliver(),
            damaged=lambda: self._transport.failure("events of the relay are damaged"),
        )  # fmt: skip
        if point is not None:
            self._bootstrapper = Bootstrapper(means, point)
        else:
            log.info("bootstrapping %s", ", ".join(self._names) or "all sources")
            self._bootstrapper = Bootstrapper.anew(means)
        self._not_found, self._source = 0, None

    def _bootstrap(self, bootstrapper: Bootstrapper) -> None:
        """One step of it."""
        if not self._may_deliver():
            self._stop.wait(_HELD_SECONDS)
            return
        before, end = self._kept, bootstrapper.step()
        self._kept = kept = bootstrapper.kept
        # Rows may be given only under a start that is kept: whoever goes on from an older checkpoint begins anew, and
        # nobody tells him which of the rows that were given are deleted by then.
        began = not isinstance(before, BootstrapPoint) or before.start != kept.start
        if end is not None:
            self._bootstrapper, self._place, self._kept = None, end, end
            self._trail, self._sure = _Trail(), True
        self._not_found = 0
        self._store(at_once=began)

    # --- checkpoints

    def _load(self) -> None:
        found = None if self._checkpoints is None else self._checkpoints.load()
        try:
            point = bootstrap_of(found) if found is not None and self._may_bootstrap else None
            self._place = Place(-1) if found is None or point is not None else place_of(found)
        except ValueError as error:
            raise ConfigError(f"what is kept is no checkpoint that can be followed: {error}") from None
        self._kept = self._stored = self._place if point is None else point
        self._trail.go_on(self._place)
        if point is not None or (self._may_bootstrap and self._place.scn == -1):
            self._begin_bootstrap(point)

    def _store(self, *, at_once: bool = False) -> None:
        if self._checkpoints is None or self._stored == self._kept:
            return
        now = time.monotonic()
        if at_once or now - self._stored_at >= self._checkpoint_seconds:
            kept = self._kept
            self._checkpoints.store(checkpoint_json(kept) if isinstance(kept, Place) else kept.to_json())
            self._stored, self._stored_at = self._kept, now

    # --- the relay

    def _look_up(self) -> None:
        found = {one["name"]: one["id"] for one in self._transport.json("sources")}
        names = self._names or list(found)
        missing = [name for name in (*names, *self._filters) if name not in found]
        if missing:
            raise ConfigError(f"the relay has no source {missing[0]}; it has {', '.join(sorted(found)) or 'none'}")
        if not names:
            raise self._transport.failure("the relay has no sources yet")
        wanted = {found[name]: name for name in names}
        where = [
            name
            for name, sources in self._transport.json("physicalBuffers").items()
            if any(one["id"] in wanted for one in sources)
        ]
        if len(where) > 1:
            raise ConfigError(
                f"{', '.join(names)} are in different physical sources ({', '.join(where)}), each with SCNs of its "
                "own: take a client for the sources of each"
            )
        self._ids = wanted

    def _schema(self, digest: bytes) -> Schema:
        if digest not in self._schemas:
            asked = {"sources": self._id_list(), "protocolVersion": "4"}
            for one in self._transport.json("register", asked)["sourceSchemas"]:
                schema = Schema(self._ids[one["id"]], one["version"], one["schema"], json.loads(one["schema"]))
                self._schemas[schema.digest] = schema
        if digest not in self._schemas:
            raise self._transport.failure(f"the relay does not know the schema {digest.hex()} of its own event")
        return self._schemas[digest]

    def _id_list(self) -> str:
        return ",".join(str(one) for one in self._ids)

    def _filters_json(self) -> str | None:
        filters = {
            str(one): self._filters.get(name) or (self._share.filter if self._share else None)
            for one, name in self._ids.items()
        }
        given = {one: value for one, value in filters.items() if value}
        return json.dumps(given) if given else None

    def _stream(self, place: Place) -> bytes:
        """Events from ``place`` on; none: there are none for now, or more has to be asked for."""
        point = json.dumps(checkpoint_json(place), separators=(",", ":"))
        asked = {
            "sources": self._id_list(), "size": str(self._size), "output": "binary", "checkPoint": point,
            "wait": str(_WAIT_MS), "maxev": str(self._newest),
        }  # fmt: skip
        filters = self._filters_json()
        if filters is not None:
            asked["filters"] = filters
        body, headers = self._transport.get("stream", asked, scn=place.scn)
        pending = headers.get("x-dbus-pending-event-size")
        if pending is not None:
            self._size = int(pending)
            if self._size > _LARGEST_SIZE:
                raise ProtocolError(f"an event of {pending} bytes is larger than {_LARGEST_SIZE}")
        if not sound(np.frombuffer(body, np.uint8)):
            raise self._transport.failure("events of the relay are damaged")
        return body

    def _pull(self) -> None:
        """One request, and the callbacks of what it gave."""
        if not self._may_deliver():
            self._stop.wait(_HELD_SECONDS)
            return
        if not self._sure:
            self._sure = self._confirm()
        body = b""
        if self._sure:
            body = self._stream(self._place)
            self._not_found = 0
        if body:
            self._news_at = time.monotonic()
            self._deliver(body)
        elif len(self._transport) > 1 and time.monotonic() - self._news_at >= _STALLED_SECONDS:
            self._news_at = time.monotonic()
            if not self._sure or self._transport.json("admin/status").get("status") != "RUNNING":
                self._switch()
        self._store()

    def _confirm(self) -> bool:
        """Whether the newest whole window is the relay's, too; False: the relay has not come so far.

        :raises RelayDivergedError: it is not.
        """
        scn, seen, place = self._trail.scn, _Trail(), Place(self._trail.scn, 0)
        while scn >= 0 and seen.scn < 0:
            try:
                body = self._stream(place)
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
        if (seen.scn, seen.crc) != (scn, self._trail.crc if scn >= 0 else 0):
            raise RelayDivergedError(
                f"the relay {self._transport.relay} has another history: the transaction of SCN {scn}, the newest that "
                "was consumed, is not there or is another one",
                scn=scn,
            )
        return True

    # --- the callbacks

    def _events(self, body: bytes) -> Iterator[tuple[int, Event | None]]:
        """``(SCN, event)`` of data events, ``(SCN, None)`` of ends of windows."""
        for _, _, scn, event in self._parsed(body):
            yield scn, event

    def _parsed(self, body: bytes) -> Iterator[tuple[int, int, int, Event | None]]:
        """The same, with where each begins and ends."""
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
                    self._ids[source], scn, "DELETE" if attributes & 2 else "UPSERT",
                    number if key < 0 else body[key : key + key_size], stamp, self._schema(body[digest : digest + 16]),
                    body[value : value + value_size], None if before < 0 else body[before : before + before_size],
                )  # fmt: skip
                yield at, at + size, scn, event
            at += size

    def _deliver(self, body: bytes) -> None:
        begin = had = 0
        try:
            for at, end, scn, event in self._parsed(body):
                if self._first.scn < 0:
                    self._first = Place(scn, 0)
                if self._place.offset > 0 and scn != self._place.scn:
                    raise RelayDivergedError(
                        f"the relay {self._transport.relay} goes on with SCN {scn} in the middle of {self._place.scn}: "
                        "it has another history", scn=self._place.scn,
                    )  # fmt: skip
                if self._is_over() or not self._may_deliver():
                    break
                had = end
                if event is not None:
                    self._give(event)
                    continue
                self._end_window(scn)
                self._trail.take(body[begin:at])
                self._trail.end(scn)
                begin = end
        finally:  # also if the next event's schema cannot be asked for now
            self._trail.take(body[begin:had])
        self._settle()

    def _give(self, event: Event) -> None:
        place = self._place.after_event(event.scn)
        if place.offset == 1:
            self._post("on_start_data_event_sequence", event.scn)
        source = (event.source, event.schema)
        if source != self._source:
            self._end_source()
            self._post("on_start_source", *source)
            self._source = source
        self._post("on_data_event", event)
        self._place = place

    def _end_source(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self._post("on_end_source", *source)

    def _end_window(self, scn: int) -> None:
        if self._place.scn == scn and self._place.offset > 0:  # it had events for us
            self._end_source()
            self._post("on_end_data_event_sequence", scn)
        self._settle()
        self._place = Place(scn)
        if self._ask("on_checkpoint", scn) < Result.SKIP_CHECKPOINT:
            self._kept = self._place
            self._store()

    def _post(self, name: str, *arguments: Any) -> None:
        self._heed(self._callbacks.post(name, *arguments))

    def _say(self, name: str, *arguments: Any) -> None:
        self._heed(self._callbacks.call(name, *arguments))

    def _ask(self, name: str, *arguments: Any) -> Result:
        """The answer of all, of which only ``ERROR_FATAL`` is heeded here."""
        result = self._callbacks.call(name, *arguments)
        if result is Result.ERROR_FATAL:
            raise _ended()
        return result

    def _settle(self) -> None:
        """Wait until all consumers have had what they were given."""
        self._heed(self._callbacks.barrier())

    @staticmethod
    def _heed(result: Result) -> None:
        if result is Result.ERROR_FATAL:
            raise _ended()
        if result is Result.ERROR:
            raise _Rollback("a callback said ERROR")


def _order(place: Place) -> tuple[int, float]:
    """The greater is the further."""
    return place.scn, math.inf if place.offset < 0 else place.offset


def _ended() -> RelayConsumerError:
    return RelayConsumerError("a callback ended the consumer")
