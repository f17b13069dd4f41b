"""A consumer of a relay: callbacks in Databus's order, checkpoints, back-off, more than one relay.

What it guarantees: *at least once*. Every event is given to the callbacks in the order of the log; a checkpoint is kept
only after a window's last callback, and only if ``on_checkpoint`` agrees; what came after the kept one is given again
after a restart or a rollback. An event whose checksum is wrong is never given.

Why a client may go on at another relay. Relays that share a map of generations, or whose SCNs are the application's,
give a transaction the same SCN, so a checkpoint of one means the same at the other. Relays that number by themselves
do so only while they read the same history: a replica that missed a transaction shifts all numbers after it. So after
every lost connection the client reads the newest window that it has had whole once more, and goes on only if it is
there with the same bytes (:class:`Trail`); another one, or none, is a :class:`RelayDivergedError`. A relay that has
not come so far yet is waited for; of one that no longer holds that window nothing can be said, and its own check of
SCNs decides.

The order of callbacks is in ``_consumer``, how several consumers are called in ``_callbacks``.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.databus import FIRST, BootstrapPoint, Place
from headgate.errors import HeadgateError, RelayConsumerError, RelayDivergedError, ScnNotFoundError, Transient
from headgate.relay_client._bootstrap import Bootstrapper
from headgate.relay_client._callbacks import Callbacks, Rollback, Runs
from headgate.relay_client._checkpoints import CheckpointStore, Keeper
from headgate.relay_client._consumer import Consumer, Result, Subscription
from headgate.relay_client._reading import Reader, Share, Trail, Wanted
from headgate.relay_client._retry import Failures, Retry, Setbacks
from headgate.relay_client._transport import Access, Transport

__all__ = ["CHECKPOINT_SECONDS", "ClientState", "RelayClient"]

log = logging.getLogger("headgate")

CHECKPOINT_SECONDS: Final = 0.1
"""By default; a file that is replaced and synchronised after each window holds a consumer at some hundred a second."""
_HELD_SECONDS: Final = 0.05
"""How often it is asked whether it may deliver again."""
_STALLED_SECONDS: Final = 10.0
"""With several relays: one that gives nothing for so long is asked whether it is well."""
_AFTER_BOOTSTRAP: Final = (1.0,)


class ClientState(enum.Enum):
    """What a client does next."""

    STARTING = enum.auto()
    """Tell the consumers that it begins."""
    LOOKING_UP = enum.auto()
    """Ask the relay which sources it has."""
    CONFIRMING = enum.auto()
    """See whether the relay's newest window that was consumed is the same."""
    STREAMING = enum.auto()
    """Ask for events and give them."""
    BOOTSTRAPPING = enum.auto()
    """Ask for rows and events, and give them."""


class _Signal(enum.Enum):
    STARTED = enum.auto()
    FOUND = enum.auto()
    FOUND_FOR_ROWS = enum.auto()
    RECOGNISED = enum.auto()
    TOO_FAR_BEHIND = enum.auto()
    ROWS_DONE = enum.auto()
    LOST = enum.auto()


_TRANSITIONS: Final[Mapping[ClientState, Mapping[_Signal, ClientState]]] = {
    ClientState.STARTING: {_Signal.STARTED: ClientState.LOOKING_UP},
    ClientState.LOOKING_UP: {
        _Signal.FOUND: ClientState.CONFIRMING,
        _Signal.FOUND_FOR_ROWS: ClientState.BOOTSTRAPPING,
        _Signal.LOST: ClientState.LOOKING_UP,
    },
    ClientState.CONFIRMING: {_Signal.RECOGNISED: ClientState.STREAMING, _Signal.LOST: ClientState.LOOKING_UP},
    ClientState.STREAMING: {_Signal.TOO_FAR_BEHIND: ClientState.BOOTSTRAPPING, _Signal.LOST: ClientState.LOOKING_UP},
    ClientState.BOOTSTRAPPING: {
        _Signal.TOO_FAR_BEHIND: ClientState.BOOTSTRAPPING,
        _Signal.ROWS_DONE: ClientState.STREAMING,
        _Signal.LOST: ClientState.LOOKING_UP,
    },
}


class RelayClient:
    """Pulls from a relay and calls consumers, until :meth:`stop` or :meth:`finish`.

    Its states, and what leads from one to the next::

        STARTING       the consumers agree               LOOKING_UP
        LOOKING_UP     the relay has the sources         CONFIRMING, or BOOTSTRAPPING if rows come first
        CONFIRMING     the newest window is the same     STREAMING
        STREAMING      no relay has what comes next      BOOTSTRAPPING
        BOOTSTRAPPING  all rows and changes are given    STREAMING
        BOOTSTRAPPING  no relay has what comes next      BOOTSTRAPPING, from its start
        all but the first one: the relay fails           LOOKING_UP, at the next relay

    A callback that said ``ERROR`` leads back in the stream, or in the bootstrap, and changes no state. :meth:`stop` and
    :meth:`finish` end each of them.

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
        listed = [consumers] if isinstance(consumers, Consumer) else consumers
        subscriptions = [one if isinstance(one, Subscription) else Subscription(one) for one in listed]
        wanted = Wanted(list(sources), dict(filters or {}), share, 2 if before_images else 0)
        self._reader = Reader(Transport([urls] if isinstance(urls, str) else urls, access), wanted)
        self._callbacks = Callbacks(subscriptions, callback_seconds)
        self._runs = Runs(self._callbacks)
        self._keeper = Keeper(checkpoints, checkpoint_seconds)
        self._failures = Failures(retry or Retry())
        self._setbacks = Setbacks(retry or Retry())
        """Rollbacks, and bootstraps that begin again: requests in between succeed, whatever comes of them."""
        self._may_deliver, self._may_bootstrap = may_deliver, bootstrap
        self._stop, self._finish = threading.Event(), threading.Event()
        self._state = ClientState.STARTING
        self._rows: Bootstrapper | None = None
        """The bootstrap that has to come to its end before the stream goes on."""
        self._place = self._first = Place(-1)
        """The second: where it began, if that was with the oldest that the relay had: what is oldest moves on."""
        self._trail = Trail()
        self._misses = 0
        """Relays in a row that do not have what comes next."""
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
        at = self._keeper.load(bootstrap=self._may_bootstrap)
        self._place = at if isinstance(at, Place) else Place(-1)
        self._trail.go_on(self._place)
        if isinstance(at, BootstrapPoint) or (self._may_bootstrap and at.scn == -1):
            self._begin_bootstrap(at if isinstance(at, BootstrapPoint) else None)
        with self._callbacks:
            try:
                while not self._is_over():
                    self._step()
                if self._state is not ClientState.STARTING:
                    self._callbacks.ask("on_stop_consumption")
            finally:
                self._reader.transport.close()
                self._keeper.save(at_once=True)

    # --- states

    def _move(self, signal: _Signal) -> None:
        self._state = _TRANSITIONS[self._state][signal]

    def _step(self) -> None:
        """One request, or what has to be done instead; then wait, if it failed."""
        failed: Failures | None = None
        try:
            self._work()
            self._failures.clear()
            self._setbacks.come_to(self._progress())
        except Rollback as back:
            self._setbacks.add_at(back, self._progress())
            failed = self._setbacks
            self._roll_back()
        except ScnNotFoundError as error:
            failed = self._not_found(error)
        except HeadgateError as error:
            failed = self._failed(error)
        if failed is not None:
            self._stop.wait(failed.pause(self._reader.transport.seconds_until_asked()))

    def _work(self) -> None:
        if self._state is ClientState.STARTING:
            self._callbacks.say("on_start_consumption")
            self._move(_Signal.STARTED)
        if self._state is ClientState.LOOKING_UP:
            self._reader.look_up()
            self._move(_Signal.FOUND if self._rows is None else _Signal.FOUND_FOR_ROWS)
        if not self._may_deliver():
            self._stop.wait(_HELD_SECONDS)
        elif self._rows is not None:
            self._bootstrap(self._rows)
        else:
            self._pull()

    def _not_found(self, error: ScnNotFoundError) -> Failures | None:
        """The relay does not have what comes next: ask the others; if none has it, rows come first."""
        self._misses += 1
        if self._misses < len(self._reader.transport):
            self._switch()
            return None
        if not self._may_bootstrap or _Signal.TOO_FAR_BEHIND not in _TRANSITIONS[self._state]:
            raise error
        again = self._rows is not None  # it took longer than the buffer reaches back
        if again:
            self._setbacks.add_at(error, _AFTER_BOOTSTRAP)
        self._begin_bootstrap()
        self._move(_Signal.TOO_FAR_BEHIND)
        return self._setbacks if again else None

    def _failed(self, error: HeadgateError) -> Failures:
        """The next relay is asked, if it may help."""
        if not isinstance(error, Transient):
            raise error
        if self._callbacks.call("on_error", error) is Result.ERROR_FATAL:
            raise RelayConsumerError(f"a callback ended the consumer after: {error}") from error
        self._switch()
        self._failures.add(error)
        return self._failures

    def _switch(self) -> None:
        self._reader.transport.switch()
        self._move(_Signal.LOST)

    def _roll_back(self) -> None:
        if self._rows is not None:
            self._rows.roll_back()
            return
        kept = self._keeper.at
        assert isinstance(kept, Place)
        self._place = self._first if kept.scn == -1 else kept
        self._runs.forget()
        self._trail.go_on(self._place)
        self._callbacks.ask("on_rollback", 0 if kept == FIRST else kept.scn)

    def _progress(self) -> tuple[float, ...]:
        """How far it is; the greater is the further: a bootstrap comes before all of the stream."""
        if self._state is ClientState.STARTING:
            return ()
        if self._rows is not None:
            return 0.0, self._rows.turns
        return 1.0, self._place.scn, math.inf if self._place.offset < 0 else self._place.offset

    # --- bootstrap

    def _begin_bootstrap(self, point: BootstrapPoint | None = None) -> None:
        """From a checkpoint, or from the start."""
        if point is None:
            log.info("bootstrapping %s", self._reader.wanted_names)
        self._rows = Bootstrapper(
            self._reader, self._callbacks, lambda: self._stop.is_set() or not self._may_deliver(), point
        )
        self._misses = 0
        self._runs.forget()

    def _bootstrap(self, rows: Bootstrapper) -> None:
        """One step of it."""
        before, end = self._keeper.at, rows.step()
        self._keeper.at = rows.kept
        # Rows may be given only under a start that is kept: from an older checkpoint a bootstrap begins again, and
        # never brings which of the rows that were given are deleted by then.
        began = not isinstance(before, BootstrapPoint) or before.start != rows.kept.start
        if end is not None:
            self._rows, self._place, self._keeper.at, self._trail = None, end, end, Trail()
            self._move(_Signal.ROWS_DONE)
        self._misses = 0
        self._keeper.save(at_once=began)

    # --- the stream

    def _pull(self) -> None:
        """One request, and the callbacks of what it gave."""
        if self._state is ClientState.CONFIRMING and self._reader.recognises(self._trail):
            self._move(_Signal.RECOGNISED)
        body = b""
        if self._state is ClientState.STREAMING:
            body = self._reader.stream(self._place)
            self._misses = 0
        if body:
            self._news_at = time.monotonic()
            self._deliver(body)
        elif len(self._reader.transport) > 1 and time.monotonic() - self._news_at >= _STALLED_SECONDS:
            self._news_at = time.monotonic()
            if self._state is ClientState.CONFIRMING or not self._reader.is_running():
                self._switch()
        self._keeper.save()

    def _deliver(self, body: bytes) -> None:
        begin = had = 0
        try:
            for at, end, scn, event in self._reader.parsed(body):
                if self._first.scn < 0:
                    self._first = Place(scn, 0)
                if self._place.offset > 0 and scn != self._place.scn:
                    raise RelayDivergedError(
                        f"the relay {self._reader.transport.relay} goes on with SCN {scn} in the middle of "
                        f"{self._place.scn}: it has another history",
                        scn=self._place.scn,
                    )
                if self._is_over() or not self._may_deliver():
                    break
                had = end
                if event is not None:
                    place = self._place.after_event(scn)
                    if place.offset == 1:
                        self._callbacks.post("on_start_data_event_sequence", scn)
                    self._runs.give(event)
                    self._place = place
                    continue
                self._end_window(scn)
                self._trail.take(body[begin:at])
                self._trail.end(scn)
                begin = end
        finally:  # also if the next event's schema cannot be asked for now
            self._trail.take(body[begin:had])
        self._callbacks.settle()

    def _end_window(self, scn: int) -> None:
        if self._place.scn == scn and self._place.offset > 0:  # it had events for us
            self._runs.end()
            self._callbacks.post("on_end_data_event_sequence", scn)
        self._callbacks.settle()
        self._place = Place(scn)
        if self._callbacks.ask("on_checkpoint", scn) < Result.SKIP_CHECKPOINT:
            self._keeper.at = self._place
            self._keeper.save()
