"""Calls one consumer, or several side by side, in order and within a time.

A single consumer without a time limit is called in the client's own thread, and what it answers is known at once. Else
each consumer has a *lane*, a thread that makes its calls in the order in which they were posted; the consumers wait for
each other at a *barrier* only, where the gravest of their answers counts. The client has a barrier before every
checkpoint, so a checkpoint means that all of them have had everything before it. A consumer that said ``ERROR`` is not
called again before the barrier.

Databus does the same with a pool of threads (``MultiConsumerCallback.java``). A callback that takes longer than
its time is an ``ERROR`` there, and it is called again beside the one that still runs; here the client ends instead,
because it could not keep the order of that consumer's calls.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from headgate.databus import Schema
from headgate.errors import RelayConsumerError
from headgate.relay_client._consumer import Consumer, Event, Result, Subscription

__all__ = ["Callbacks", "Rollback", "Runs"]

log = logging.getLogger("headgate")

_EVENTS: Final = ("on_data_event", "on_bootstrap_event")
_OF_SOURCES: Final = (
    "on_start_source",
    "on_end_source",
    "on_start_bootstrap_source",
    "on_end_bootstrap_source",
    *_EVENTS,
)

_Call: TypeAlias = "tuple[str, tuple[Any, ...]] | None"


class Rollback(Exception):
    """A callback said ``ERROR``."""


def _answer(consumer: Consumer, name: str, arguments: tuple[Any, ...]) -> Result:
    """What the callback says; of an exception the consumer hears itself."""
    try:
        result: Result | None = getattr(consumer, name)(*arguments)
    except Exception as error:
        log.warning("a consumer's callback failed", exc_info=True)
        if name == "on_error":
            return Result.ERROR
        return max(Result.ERROR, _answer(consumer, "on_error", (error,)))
    return Result.SUCCESS if result is None else result


def _concerns(subscription: Subscription, name: str, arguments: tuple[Any, ...]) -> bool:
    if subscription.sources is None or name not in _OF_SOURCES:
        return True
    source = arguments[0].source if name in _EVENTS else arguments[0]
    return source in subscription.sources


class _Lane:
    """One consumer's thread."""

    def __init__(self, subscription: Subscription, number: int) -> None:
        self.subscription = subscription
        self.running: tuple[str, float] | None = None
        """The call that runs, and when it began (seconds of the monotonic clock)."""
        self._waiting: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._result = Result.SUCCESS
        self._changed = threading.Condition()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name=f"headgate-consumer-{number}", daemon=True)
        self._thread.start()

    def post(self, name: str, arguments: tuple[Any, ...]) -> None:
        with self._changed:
            self._open += 1
        self._waiting.put((name, arguments))

    def finish(self, limit: float | None) -> Result:
        """Wait until all that was posted is done: the gravest answer.

        :raises RelayConsumerError: a call takes longer than ``limit`` seconds.
        """
        with self._changed:
            while self._open:
                left, running = limit, self.running  # looked at once: the call may end at any time
                if limit is not None and running is not None:
                    name, began = running
                    left = began + limit - time.monotonic()
                    if left <= 0:
                        raise RelayConsumerError(f"{name} has taken longer than {limit:g} s")
                self._changed.wait(left)
            result, self._result = self._result, Result.SUCCESS
            return result

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            if self._result < Result.ERROR:
                self.running = call[0], time.monotonic()
                result = _answer(self.subscription.consumer, *call)
                self.running = None
                self._result = max(self._result, result)
            with self._changed:
                self._open -= 1
                if not self._open:
                    self._changed.notify_all()

    def end(self, *, wait: bool) -> None:
        self._waiting.put(None)
        if wait:
            self._thread.join()


class Callbacks:
    """The consumers of one client, within a ``with`` block. An answer of ``ERROR`` is a :class:`Rollback`, one of
    ``ERROR_FATAL`` and a call that takes too long a :class:`RelayConsumerError`.

    :param limit: seconds that one call may take; None: as long as it likes.
    """

    def __init__(self, subscriptions: Sequence[Subscription], limit: float | None = None) -> None:
        self._subscriptions, self._limit = subscriptions, limit
        self._alone = len(subscriptions) == 1 and limit is None
        self._lanes: list[_Lane] = []

    def __enter__(self) -> Self:
        if not self._alone:
            self._lanes = [_Lane(one, number) for number, one in enumerate(self._subscriptions)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lane in self._lanes:  # one whose time was over may never end
            lane.end(wait=self._limit is None or error is None)
        self._lanes = []

    def post(self, name: str, *arguments: Any) -> None:
        """Call all whom it concerns; what several answer is known at the next barrier only."""
        _heed(self._send(name, arguments))

    def say(self, name: str, *arguments: Any) -> None:
        """The same, and a barrier."""
        _heed(self.call(name, *arguments))

    def ask(self, name: str, *arguments: Any) -> Result:
        """The answer of all, of which only ``ERROR_FATAL`` is heeded here."""
        result = self.call(name, *arguments)
        if result is Result.ERROR_FATAL:
            _heed(result)
        return result

    def settle(self) -> None:
        """The barrier: wait until all consumers have had what they were given."""
        _heed(self._barrier())

    def call(self, name: str, *arguments: Any) -> Result:
        """Call all whom it concerns, and a barrier: everybody's gravest answer."""
        return max(self._send(name, arguments), self._barrier())

    def _send(self, name: str, arguments: tuple[Any, ...]) -> Result:
        """The answer of a single one, else ``SUCCESS`` until the barrier."""
        if self._alone:
            (one,) = self._subscriptions
            return _answer(one.consumer, name, arguments) if _concerns(one, name, arguments) else Result.SUCCESS
        for lane in self._lanes:
            if _concerns(lane.subscription, name, arguments):
                lane.post(name, arguments)
        return Result.SUCCESS

    def _barrier(self) -> Result:
        return max((lane.finish(self._limit) for lane in self._lanes), default=Result.SUCCESS)


def _heed(result: Result) -> None:
    if result is Result.ERROR_FATAL:
        raise RelayConsumerError("a callback ended the consumer")
    if result is Result.ERROR:
        raise Rollback("a callback said ERROR")


class Runs:
    """Gives events to consumers, those of one source in a row between a beginning and an end.

    :param kind: ``""`` or ``"bootstrap_"``, a part of the callbacks' names.
    """

    def __init__(self, callbacks: Callbacks, kind: str = "") -> None:
        self._callbacks = callbacks
        self._start, self._end = f"on_start_{kind}source", f"on_end_{kind}source"
        self._event = "on_bootstrap_event" if kind else "on_data_event"
        self._open: tuple[str, Schema] | None = None

    def give(self, event: Event) -> None:
        source = (event.source, event.schema)
        if source != self._open:
            self.end()
            self._callbacks.post(self._start, *source)
            self._open = source
        self._callbacks.post(self._event, event)

    def end(self) -> None:
        """What comes next is no event of the same source in the same window."""
        if self._open is not None:
            source, self._open = self._open, None
            self._callbacks.post(self._end, *source)

    def forget(self) -> None:
        """What was open is cut short."""
        self._open = None
