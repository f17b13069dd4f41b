"""Consumers of a relay, as light as can be: many in one process, which asks, reads and counts.

Each is a connection that asks ``/stream`` in binary for what comes after the last event it has, as soon as it has the
answer to its last request. A compiled loop walks the events of an answer: it counts them, checks that they come in
order, and takes each one's delay, from the commit time that the event carries (the server's clock, in microseconds,
before the commit is written) to the moment when the last byte of the answer was read. Both clocks are this machine's.
"""

from __future__ import annotations

import json
import multiprocessing
import selectors
import socket
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["Consumed", "Consumers"]

_SIZE = 1 << 20
_WAIT_MS = 1000
_ROOM = _SIZE + (64 << 10)
_PATIENCE_SECONDS = 600.0
_LAST_CHUNK = b"\r\n0\r\n\r\n"
"""What follows a body of one chunk. The relay sends larger answers so, each as one."""
_MOST_DELAYS = 20_000_000
_SCN, _DONE, _EVENTS, _DISORDER = range(4)


@dataclass
class Consumed:
    """What the consumers of one process had."""

    events: list[int]
    """Of each."""
    bytes: int
    seconds: float
    """From the first request to the last byte."""
    cpu_seconds: float
    disorder: int
    """Events that came before an earlier one; more than 0 is a fault."""
    delays_ms: npt.NDArray[np.float64] = field(repr=False)
    """Of all events of all consumers since ``measured_from``."""


class Consumers:
    """A process with some consumers, for as long as the block is open.

    :param since: where they begin: the relay's newest window, or its oldest.
    :param sources: their ids, as ``/stream`` takes them.
    :param until: events that each is to have; None: they go on until the block ends.
    :param warm: seconds in which delays do not count yet.
    """

    def __init__(
        self, port: int, count: int, *, sources: str = "1", since: str = "newest", until: int | None = None,
        warm: float = 0.0,
    ) -> None:  # fmt: skip
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_consume, args=(port, count, sources, since, until, warm, self._stop, theirs), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        if not self._answer.poll(_PATIENCE_SECONDS) or self._answer.recv() != "ready":
            raise RuntimeError("the consumers did not start")
        return self

    def result(self) -> Consumed:
        """What they had; ends them unless they end by themselves."""
        if not self._answer.poll(_PATIENCE_SECONDS):
            raise RuntimeError("the consumers did not say what they had")
        consumed: Consumed = self._answer.recv()
        return consumed

    def stop(self) -> Consumed:
        """End them now."""
        self._stop.set()
        return self.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._process.join(10)
        self._process.kill()


# --- in their process -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _number(buf: Any, at: Any, size: int) -> Any:
    value = np.int64(0)
    for k in range(size):
        value = value << 8 | np.int64(buf[at + k])
    return value


@njit(cache=True, nogil=True)
def _walk(buf: Any, begin: Any, end: Any, now: Any, state: Any, delays: Any, used: Any) -> Any:
    """Events of version 1; ``state``: the last window, its events so far, all events, those out of order."""
    at = begin
    while at < end:
        scn = _number(buf, at + 11, 8)
        if scn < state[_SCN] or (scn == state[_SCN] and state[_DONE] < 0):
            state[_DISORDER] += 1
        if scn != state[_SCN]:
            state[_SCN], state[_DONE] = scn, 0
        if buf[at + 31] & 0x80:
            state[_DONE] = -1
        else:
            state[_DONE] += 1
            state[_EVENTS] += 1
            if used < delays.shape[0]:
                delays[used] = now - _number(buf, at + 23, 8)
                used += 1
        at += _number(buf, at + 5, 4)
    return used


class _Consumer:
    def __init__(self, port: int, sources: str, since: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.state = np.array([-1, -1, 0, 0], np.int64)
        self._sources, self._latest = sources, since == "newest"
        self._buffer = bytearray(_ROOM)
        self._array = np.frombuffer(self._buffer, np.uint8)
        self._view = memoryview(self._buffer)
        self._used = 0
        self._body, self._end, self._trailer = 0, 0, 0

    def ask(self) -> None:
        scn, done = int(self.state[_SCN]), int(self.state[_DONE])
        point = json.dumps({"windowScn": scn, "windowOffset": done}, separators=(",", ":"))
        latest = "&streamFromLatestScn=true" if self._latest and scn < 0 else ""
        target = f"/stream?sources={self._sources}&size={_SIZE}&output=binary&wait={_WAIT_MS}&checkPoint={quote(point)}"
        self.socket.sendall(f"GET {target}{latest} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        self._used = self._body = 0

    def read(self) -> tuple[int, int] | None:
        """Where the answer's body begins and ends, once it is there."""
        received = self.socket.recv_into(self._view[self._used :])
        if not received:
            raise RuntimeError("the relay closed a connection")
        self._used += received
        if not self._body and not self._parse_head():
            return None
        return (self._body, self._end) if self._used >= self._end + self._trailer else None

    def _parse_head(self) -> bool:
        """Find the body's begin and end: it has a length, or is one chunk. False: the head has not arrived in full."""
        head = self._buffer.find(b"\r\n\r\n", 0, self._used)
        if head < 0:
            return False
        lines = bytes(self._view[:head]).lower().split(b"\r\n")
        if b" 200 " not in lines[0]:
            raise RuntimeError(bytes(self._view[: self._used]).decode("utf-8", "replace"))
        length = next((line for line in lines if line.startswith(b"content-length:")), None)
        if length is not None:
            self._body, self._trailer = head + 4, 0
            self._end = self._body + int(length.partition(b":")[2])
            return True
        line = self._buffer.find(b"\r\n", head + 4, self._used)
        if line < 0:
            return False
        self._body, self._trailer = line + 2, len(_LAST_CHUNK)
        self._end = self._body + int(self._view[head + 4 : line].tobytes(), 16)
        return True

    def take(self, begin: int, end: int, delays: Any, used: int) -> int:
        return int(_walk(self._array, begin, end, time.time_ns(), self.state, delays, used))


def _consume(
    port: int, count: int, sources: str, since: str, until: int | None, warm: float, stop: Event, answer: Connection
) -> None:
    delays = np.empty(_MOST_DELAYS if until is None else 0, np.int64)
    _walk(np.zeros(64, np.uint8), 0, 0, 0, np.zeros(4, np.int64), delays, 0)
    consumers = [_Consumer(port, sources, since) for _ in range(count)]
    selector = selectors.DefaultSelector()
    for one in consumers:
        selector.register(one.socket, selectors.EVENT_READ, one)
    answer.send("ready")
    begun, cpu = time.monotonic(), time.process_time()
    for one in consumers:
        one.ask()
    used, size, left = 0, 0, count
    nothing = np.empty(0, np.int64)
    while left and not stop.is_set():
        for key, _ in selector.select(0.1):
            one = key.data
            body = one.read()
            if body is None:
                continue
            size += body[1] - body[0]
            if time.monotonic() - begun < warm:
                one.take(*body, nothing, 0)
            else:
                used = one.take(*body, delays, used)
            if until is not None and one.state[_EVENTS] >= until:
                selector.unregister(one.socket)
                left -= 1
            else:
                one.ask()
    events = [int(one.state[_EVENTS]) for one in consumers]
    disorder = sum(int(one.state[_DISORDER]) for one in consumers)
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    answer.send(Consumed(events, size, seconds, cpu, disorder, delays[:used] / 1e6))
