"""A consumer of a relay: callbacks in Databus's order, checkpoints, back-off, more than one relay.

The guarantee is *at least once*. Events reach the callbacks in the order of the log. A checkpoint is stored only after
a window's last callback, and only if ``on_checkpoint`` agrees. After a restart or a rollback, everything after the
stored checkpoint is delivered again. An event whose checksum is wrong is never delivered.

Why a client may continue at another relay, or after a restart: Relays that share a map of generations, or whose SCNs
are the application's, give a transaction the same SCN, so a checkpoint of one means the same at the other. Relays that
number independently agree only while they read the same history: a replica that missed a transaction shifts all numbers
after it. Nor does one relay always keep its SCNs: it saves its state after it has served windows, and reads those that
the state does not name again. If it was killed before, and its server has lost them, too, or a counting relay has other
sources now, their SCNs are those of other transactions.

One rule covers all of this. The client keeps the identity of the newest whole window (:class:`Trail`), also in its
checkpoints. When it starts, and after every lost connection, it reads that window again, and continues only if the
relay has it with the same events. All windows before it were delivered, so then only what follows is to come. A
different or missing window raises :class:`RelayDivergedError`. If the relay has not yet reached that window, the client
waits. If the relay no longer holds it, or other events are requested than before, the relay's check of SCNs decides. An
idle connection that the relay has closed is a lost one, too, but no failure.

The order of callbacks is in ``_consumer``, the calls of several consumers are in ``_callbacks``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.errors import (
    ConnectionLostError,
    HeadgateError,
    RelayConsumerError,
    RelayDivergedError,
    ScnNotFoundError,
    Transient,
)
from headgate.relay.client._bootstrap import Bootstrapper
from headgate.relay.client._callbacks import Callbacks, Rollback, Runs
from headgate.relay.client._checkpoints import CheckpointStore, Keeper
from headgate.relay.client._consumer import Consumer, Result, Subscription
from headgate.relay.client._reading import Answer, Reader, Share, Trail
from headgate.relay.client._retry import ClientTuning, ConsumerFailures, Retry, Setbacks
from headgate.relay.client._transport import Access, RelayTransport
from headgate.relay.client.states import ClientState, Outcome, Pause, decide
from headgate.relay.databus import FIRST, BootstrapPoint, StreamPosition, without_schema_ids

__all__ = ["RelayClient"]

log = logging.getLogger("headgate")

_CHECKPOINT_SECONDS: Final = 0.1
"""The default. Replacing and syncing a file after each window limits a consumer to some hundred windows a second."""
_AFTER_BOOTSTRAP: Final = (1.0,)


class RelayClient:
    """Client that pulls from a relay and calls consumers, until :meth:`stop` or :meth:`finish`.

    It looks up the relay's sources, confirms that the relay has the newest consumed window, and streams, or bootstraps
    before that. After a failure it looks up the next relay, after the end of an idle connection the same one. If a
    callback returns ``ERROR``, the stream or the bootstrap is reset to the checkpoint. :meth:`stop` and :meth:`finish`
    end every state.

    :param urls: ``http://host:port``; or several relays that give the same SCNs: if one fails, the next is used.
    :param sources: names of logical sources, all of one physical source; none: all that the relay has, also tables that
        appear later, from their first change on.
    :param consumers: one; or several, called in parallel, each for some of the sources only if it is a
        :class:`Subscription`.
    :param checkpoints: where to continue; None: from the oldest event the relay has, and nothing is stored.
    :param checkpoint_seconds: shortest interval between stored checkpoints, in seconds; one more is stored at the end.
        0: after every window, before the next one; a file takes about a millisecond.
    :param filters: source's name → what the relay sends of it, in Databus's JSON.
    :param share: only this part of the keys, of all sources without a filter.
    :param before_images: take events of version 2, whose updates hold the row before them if the relay keeps it.
    :param callback_seconds: time limit of one callback; None: no limit.
    :param may_deliver: checked before each event, with several consumers or a time limit also in their threads; while
        it returns False, nothing is delivered.
    :param bootstrap: deliver the existing rows first, if there is no checkpoint, or if no relay holds what follows it.
    :param tuning: intervals and sizes of requests.
    :raises ConfigError: a URL is not that of a relay.

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
        checkpoint_seconds: float = _CHECKPOINT_SECONDS,
        filters: Mapping[str, Mapping[str, Any]] | None = None,
        share: Share | None = None,
        before_images: bool = False,
        callback_seconds: float | None = None,
        may_deliver: Callable[[], bool] = lambda: True,
        bootstrap: bool = False,
        tuning: ClientTuning | None = None,
    ) -> None:
        self._tuning = tuning or ClientTuning()
        listed = [consumers] if isinstance(consumers, Consumer) else consumers
        subscriptions = [one if isinstance(one, Subscription) else Subscription(one) for one in listed]
        transport = RelayTransport([urls] if isinstance(urls, str) else urls, access)
        version = 2 if before_images else 0
        self._reader = Reader(transport, sources, filters=filters, share=share, version=version, tuning=self._tuning)
        self._callbacks = Callbacks(subscriptions, callback_seconds, self._may_call)
        self._runs = Runs(self._callbacks)
        self._keeper = Keeper(checkpoints, checkpoint_seconds)
        self._failures = ConsumerFailures(retry or Retry())
        self._setbacks = Setbacks(retry or Retry())
        """Rollbacks, and bootstraps that begin again. Requests in between succeed, so they do not reset this count."""
        self._may_deliver, self._may_bootstrap = may_deliver, bootstrap
        self._stop, self._finish = threading.Event(), threading.Event()
        self._state = ClientState.STARTING
        self._has_answered = False
        """Whether the relay has answered, or delivery was suspended, since the sources were looked up. Only then may
        the end of a connection be that of an idle one."""
        self._rows: Bootstrapper | None = None
        """The bootstrap that must end before the stream continues."""
        self._position = self._first = StreamPosition(-1)
        """``_first`` is where the client began, if that was the relay's oldest event: the oldest event advances."""
        self._trail = Trail()
        self._missing: set[int] = set()
        """Numbers of the relays that do not have the next event, as they answered since one of them had events."""
        self._missing_since = 0.0
        self._last_data_at = time.monotonic()

    def stop(self) -> None:
        """End after the running callback. May be called from any thread."""
        self._stop.set()

    def finish(self) -> None:
        """End when the open window is delivered. May be called from any thread."""
        self._finish.set()

    def _is_over(self) -> bool:
        return self._stop.is_set() or (self._finish.is_set() and self._position.offset < 0)

    def _may_call(self) -> bool:
        return not self._stop.is_set() and self._may_deliver()

    def run(self) -> None:
        """Consume until :meth:`stop` or :meth:`finish`.

        :raises ScnNotFoundError: no relay holds what follows the checkpoint.
        :raises RelayDivergedError: a relay's SCNs mean other transactions than those that were consumed.
        :raises RelayConsumerError: a callback returned ``ERROR_FATAL`` or took too long, or the retries are exhausted.
        :raises ConfigError: the relay has no source of a name, or refuses the request (a filter, a token); or a
            checkpoint cannot be stored.
        """
        with self._callbacks:
            try:
                while not self._is_over():
                    self._step()
                if self._state is not ClientState.STARTING:
                    self._callbacks.call_result("on_stop_consumption")
            finally:
                self._reader.transport.close()
                self._keeper.save(at_once=True)

    # --- states

    def _step(self) -> None:
        """Act as the state demands, go to the state that follows, and pause if something failed."""
        try:
            outcome = self._act_settled()
        except Rollback as rollback:
            outcome = Outcome.INTERRUPTED
            if self._may_call():  # else it only means that posted calls could not begin
                self._setbacks.add_at(rollback, self._progress())
                outcome = Outcome.ROLLED_BACK
            self._roll_back()
        except ScnNotFoundError as error:
            outcome = self._gone(error)
        except ConnectionLostError as error:
            # A relay closes idle connections, and over a new one another relay may answer.
            outcome = Outcome.LOST if self._has_answered else self._failed(error)
        except HeadgateError as error:
            outcome = self._failed(error)
        decision = decide(self._state, outcome)
        if decision.next_relay:
            self._reader.transport.switch()
        self._state = decision.state
        if decision.pause is not Pause.NONE:
            counter = self._failures if decision.pause is Pause.FAILURES else self._setbacks
            self._stop.wait(counter.pause(self._reader.transport.requested_wait_seconds()))

    def _act_settled(self) -> Outcome:
        """Act. If that fails, wait for the posted calls first: some may have failed, or may not have begun."""
        try:
            return self._act()
        except HeadgateError as error:
            if not isinstance(error, RelayConsumerError):
                self._callbacks.wait()
            raise

    def _act(self) -> Outcome:
        if self._state is ClientState.STARTING:
            return self._start()
        if self._state is ClientState.LOOKING_UP:
            return self._look_up()
        if not self._may_deliver():
            self._stop.wait(self._tuning.resume_check)
            outcome = Outcome.WAITED
        elif self._state is ClientState.BOOTSTRAPPING:
            outcome = self._bootstrap()
        elif self._state is ClientState.CONFIRMING:
            outcome = self._confirm()
        else:
            outcome = self._pull()
        if outcome is not Outcome.SAME_HISTORY:  # that alone does not show that the relay has the next event
            self._has_answered = True
            self._failures.clear()
            self._setbacks.clear_beyond(self._progress())
        return outcome

    def _start(self) -> Outcome:
        """Load the checkpoint and call ``on_start_consumption``, both again if one of them fails."""
        checkpoint = self._keeper.load(bootstrap=self._may_bootstrap)
        self._position = checkpoint if isinstance(checkpoint, StreamPosition) else StreamPosition(-1)
        self._trail = Trail.of(self._position)
        if isinstance(checkpoint, BootstrapPoint) or (self._may_bootstrap and checkpoint.scn == -1):
            self._begin_bootstrap(checkpoint if isinstance(checkpoint, BootstrapPoint) else None)
        self._callbacks.call_checked("on_start_consumption")
        return Outcome.LOADED

    def _look_up(self) -> Outcome:
        """Look up the sources. If all are wanted and there are others now, the offset in an open window counts other
        events: begin that one again.
        """
        before, self._has_answered = set(self._reader.sources.values()), False
        self._reader.look_up()
        is_open = self._rows is not None or self._position.offset > 0
        if before and before != set(self._reader.sources.values()) and is_open:
            self._roll_back()
        return Outcome.KNOWN if self._rows is None else Outcome.KNOWN_FOR_ROWS

    def _gone(self, error: ScnNotFoundError) -> Outcome:
        """Return what it means that the relay no longer has the next event. If none has it, begin a bootstrap. A relay
        that does not answer may have it, so the stream waits for that one, if it can bootstrap for a limited time. A
        bootstrap loses nothing where it begins again, so it waits for one round only.
        """
        relay, again, now = self._reader.transport.number, self._rows is not None, time.monotonic()
        if not self._missing:
            self._missing_since = now
        has_waited = again and relay in self._missing
        if self._may_bootstrap and now - self._missing_since > self._tuning.others:
            has_waited = True
        self._missing.add(relay)
        if len(self._missing) < len(self._reader.transport) and not has_waited:
            return Outcome.GONE_HERE
        if not self._may_bootstrap:
            raise error
        if again:  # the bootstrap took longer than the buffer reaches back
            self._setbacks.add_at(error, _AFTER_BOOTSTRAP)
        self._begin_bootstrap()
        return Outcome.GONE

    def _failed(self, error: HeadgateError) -> Outcome:
        """Count a transient error, and tell the consumers."""
        if not isinstance(error, Transient):
            raise error
        if self._callbacks.call("on_error", error) is Result.ERROR_FATAL:
            raise RelayConsumerError(f"a callback ended the consumer after: {error}") from error
        self._failures.add(error)
        return Outcome.FAILED

    def _roll_back(self) -> None:
        if self._rows is not None:
            self._rows.roll_back()
            return
        checkpoint = self._keeper.checkpoint
        assert isinstance(checkpoint, StreamPosition)
        self._position = self._first if checkpoint.scn == -1 else checkpoint
        self._runs.forget()
        self._trail.continue_after(self._position)
        self._callbacks.call_result("on_rollback", 0 if checkpoint == FIRST else checkpoint.scn)

    def _progress(self) -> tuple[float, ...]:
        """Return how far the client is; greater is further. A bootstrap comes before all of the stream."""
        if self._state is ClientState.STARTING:
            return ()
        if self._rows is not None:
            return 0.0, self._rows.turns
        return 1.0, self._position.scn, math.inf if self._position.offset < 0 else self._position.offset

    # --- bootstrap

    def _begin_bootstrap(self, point: BootstrapPoint | None = None) -> None:
        """Begin a bootstrap, from a checkpoint or from the start."""
        if point is None:
            log.info("bootstrapping %s", self._reader.wanted_names)
        self._rows = Bootstrapper(self._reader, self._callbacks, lambda: not self._may_call(), point)
        self._missing.clear()
        self._runs.forget()

    def _bootstrap(self) -> Outcome:
        """Do one step of the bootstrap."""
        rows = self._rows
        assert rows is not None
        # Deliver rows only under a stored start: from an older checkpoint a bootstrap begins again, and never reports
        # which of the delivered rows are deleted by then.
        self._keeper.save()
        end = rows.step()
        self._keeper.checkpoint = rows.checkpoint
        if end is not None:
            self._rows, self._position, self._keeper.checkpoint, self._trail = None, end, end, Trail()
        self._missing.clear()
        self._keeper.save()
        return Outcome.ANSWERED if end is None else Outcome.COMPLETE

    # --- the stream

    def _confirm(self) -> Outcome:
        if self._reader.recognises(self._trail):
            return Outcome.SAME_HISTORY
        outcome = self._idle()
        self._keeper.save()
        return outcome

    def _pull(self) -> Outcome:
        """Make one request, and deliver its events."""
        answer = self._reader.stream(self._position)
        self._missing.clear()
        outcome = Outcome.ANSWERED
        if answer.body:
            self._last_data_at = time.monotonic()
            self._deliver(answer)
        else:
            outcome = self._idle()
        self._keeper.save()
        return outcome

    def _idle(self) -> Outcome:
        """Return what it means that the relay sent nothing: with several relays, check that it is running."""
        if len(self._reader.transport) > 1 and time.monotonic() - self._last_data_at >= self._tuning.stalled:
            self._last_data_at = time.monotonic()
            if self._state is ClientState.CONFIRMING or not self._reader.is_running():
                return Outcome.SILENT
        return Outcome.WAITED

    def _deliver(self, answer: Answer) -> None:
        begin = delivered = 0
        compared = without_schema_ids(answer.body, answer.fields)
        try:
            for _, end, scn, event in self._reader.parsed(answer):
                if self._first.scn < 0:
                    self._first = StreamPosition(scn, 0)
                if self._position.offset > 0 and scn != self._position.scn:
                    raise RelayDivergedError(
                        f"the relay {self._reader.transport.relay} continues with SCN {scn} in the middle of "
                        f"{self._position.scn}: it has another history",
                        scn=self._position.scn,
                    )
                if self._is_over() or not self._may_deliver():
                    break
                delivered = end
                if event is not None:
                    position = self._position.after_next_event(scn)
                    if position.offset == 1:
                        self._callbacks.post("on_start_data_event_sequence", scn)
                    self._runs.deliver(event)
                    self._position = position
                    continue
                rest, begin = compared[begin:end], end
                self._end_window(scn, rest)
        finally:  # also if the request for the next event's schema fails
            self._trail.take(compared[begin:delivered])
        self._callbacks.wait()

    def _end_window(self, scn: int, rest: Any) -> None:
        """:param rest: the window's bytes that are not in the trail yet."""
        if self._position.scn == scn and self._position.offset > 0:  # it had events for this client
            self._runs.end()
            self._callbacks.post("on_end_data_event_sequence", scn)
        self._callbacks.wait()
        self._trail.take(rest)
        self._trail.end(scn, self._reader.choice)
        self._position = StreamPosition(scn)  # with the trail: storing the checkpoint may fail
        if self._callbacks.call_result("on_checkpoint", scn) < Result.SKIP_CHECKPOINT:
            self._keeper.checkpoint = StreamPosition(scn, mark=self._trail.mark)
            self._keeper.save()
