"""Calls of one consumer, or of several in parallel, in order and within a time limit.

A single consumer without a time limit is called in the client's thread, and its result is known at once. Otherwise each
consumer has a *lane*, a thread that makes its calls in the order in which they were posted. The consumers wait for each
other only at a *barrier*, where the most severe of their results counts. The client has a barrier before every
checkpoint, so a checkpoint means that all of them have processed everything before it. A consumer that returned
``ERROR`` is not called again before the barrier. When the turn of a posted call comes, delivery may have been stopped,
or a lease may be over: then the call does not begin, and counts as ``ERROR``.

Databus does the same with a pool of threads (``MultiConsumerCallback.java``). A callback that exceeds its time is an
``ERROR`` there, and it is called again in parallel with the one that still runs. Here the client ends instead, because
it could not keep the order of that consumer's calls.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from headgate.errors import RelayConsumerError
from headgate.relay.client._consumer import Consumer, Event, Result, Subscription
from headgate.relay.databus import Schema

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

_Call: TypeAlias = "tuple[str, tuple[Any, ...], Callable[[], bool]] | None"
"""A callback's name, its arguments, and whether it may begin; None: the lane's end."""


def _always() -> bool:
    return True


class Rollback(Exception):
    """A callback returned ``ERROR``."""


def _call_consumer(consumer: Consumer, name: str, arguments: tuple[Any, ...]) -> Result:
    """Return the callback's result; report an exception to the consumer's ``on_error``."""
    try:
        result: Result | None = getattr(consumer, name)(*arguments)
    except Exception as error:
        log.warning("a consumer's callback failed", exc_info=True)
        if name == "on_error":
            return Result.ERROR
        return max(Result.ERROR, _call_consumer(consumer, "on_error", (error,)))
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
        """The running call and its start (seconds of the monotonic clock)."""
        self._waiting: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._result = Result.SUCCESS
        self._changed = threading.Condition()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name=f"headgate-consumer-{number}", daemon=True)
        self._thread.start()

    def post(self, name: str, arguments: tuple[Any, ...], may_begin: Callable[[], bool] = _always) -> None:
        with self._changed:
            self._open += 1
        self._waiting.put((name, arguments, may_begin))

    def finish(self, limit: float | None) -> Result:
        """Wait until all posted calls are done, and return the most severe result.

        :raises RelayConsumerError: a call takes longer than ``limit`` seconds.
        """
        with self._changed:
            while self._open:
                left, running = limit, self.running  # read once: the call may end at any time
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
                self._result = max(self._result, self._make(*call))
            with self._changed:
                self._open -= 1
                if not self._open:
                    self._changed.notify_all()

    def _make(self, name: str, arguments: tuple[Any, ...], may_begin: Callable[[], bool]) -> Result:
        """Return a call's result, whatever it raises: the barrier waits for it."""
        try:
            if not may_begin():
                return Result.ERROR
            self.running = name, time.monotonic()
            return _call_consumer(self.subscription.consumer, name, arguments)
        except BaseException:  # sys.exit() would end this thread, and nothing else
            log.warning("a consumer's callback failed", exc_info=True)
            return Result.ERROR_FATAL
        finally:
            self.running = None

    def end(self, *, wait: bool) -> None:
        self._waiting.put(None)
        if wait:
            self._thread.join()


class Callbacks:
    """The consumers of one client, within a ``with`` block. ``ERROR`` raises :class:`Rollback`; ``ERROR_FATAL`` and a
    call over the limit raise :class:`RelayConsumerError`.

    :param limit: seconds that one call may take; None: no limit.
    :param may_deliver: checked before each posted call, in the consumers' threads.
    """

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        limit: float | None = None,
        may_deliver: Callable[[], bool] = _always,
    ) -> None:
        self._subscriptions, self._limit, self._may_deliver = subscriptions, limit, may_deliver
        self._is_inline = len(subscriptions) == 1 and limit is None
        self._lanes: list[_Lane] = []

    def __enter__(self) -> Self:
        if not self._is_inline:
            self._lanes = [_Lane(one, number) for number, one in enumerate(self._subscriptions)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lane in self._lanes:  # a call over its limit may never end
            lane.end(wait=self._limit is None or error is None)
        self._lanes = []

    def post(self, name: str, *arguments: Any) -> None:
        """Call all consumers concerned, while delivery lasts. The results of several are known at the next barrier."""
        _raise_for(self._send(name, arguments, self._may_deliver))

    def call_checked(self, name: str, *arguments: Any) -> None:
        """Call all consumers concerned, and wait at the barrier."""
        _raise_for(self.call(name, *arguments))

    def call_result(self, name: str, *arguments: Any) -> Result:
        """Return the most severe result of all. Only ``ERROR_FATAL`` raises."""
        result = self.call(name, *arguments)
        if result is Result.ERROR_FATAL:
            _raise_for(result)
        return result

    def wait(self) -> None:
        """Wait at the barrier until all consumers have processed their calls."""
        _raise_for(self._barrier())

    def call(self, name: str, *arguments: Any) -> Result:
        """Call all consumers concerned, wait at the barrier, and return the most severe result."""
        return max(self._send(name, arguments, _always), self._barrier())

    def _send(self, name: str, arguments: tuple[Any, ...], may_begin: Callable[[], bool]) -> Result:
        """Return the result of a single consumer, else ``SUCCESS`` until the barrier.

        :param may_begin: checked when the turn of the call comes; for a single consumer, the client has just done so.
        """
        if self._is_inline:
            (one,) = self._subscriptions
            return _call_consumer(one.consumer, name, arguments) if _concerns(one, name, arguments) else Result.SUCCESS
        for lane in self._lanes:
            if _concerns(lane.subscription, name, arguments):
                lane.post(name, arguments, may_begin)
        return Result.SUCCESS

    def _barrier(self) -> Result:
        return max((lane.finish(self._limit) for lane in self._lanes), default=Result.SUCCESS)


def _raise_for(result: Result) -> None:
    if result is Result.ERROR_FATAL:
        raise RelayConsumerError("a callback ended the consumer")
    if result is Result.ERROR:
        raise Rollback("a callback returned ERROR")


class Runs:
    """Delivery of events, those of one source in a run between a start and an end callback.

    :param kind: ``""`` or ``"bootstrap_"``, a part of the callbacks' names.
    """

    def __init__(self, callbacks: Callbacks, kind: str = "") -> None:
        self._callbacks = callbacks
        self._start, self._end = f"on_start_{kind}source", f"on_end_{kind}source"
        self._event = "on_bootstrap_event" if kind else "on_data_event"
        self._open: tuple[str, Schema] | None = None

    def deliver(self, event: Event) -> None:
        source = (event.source, event.schema)
        if source != self._open:
            self.end()
            self._callbacks.post(self._start, *source)
            self._open = source
        self._callbacks.post(self._event, event)

    def end(self) -> None:
        """End the open run: the next event is of another source or window."""
        if self._open is not None:
            source, self._open = self._open, None
            self._callbacks.post(self._end, *source)

    def forget(self) -> None:
        """Drop the open run without its end callback."""
        self._open = None
