"""A TCP proxy with the faults of networks: cut, cut after so many bytes, slow, delayed.

It runs in a thread between a client and a server on 127.0.0.1, and changes no byte that it forwards. Faults apply to
open and new connections from the moment the call that sets them returns. :meth:`Proxy.cut` returns when every forwarded
connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["Proxy"]

T = TypeVar("T")

_RECEIVED_TRIES = 30_000
_CALL_SECONDS = 120

PIECE = 64 * 1024
"""Bytes read at a time. With a limit, they are forwarded in pieces of a tenth of a second, so that they flow evenly."""


@dataclass(frozen=True)
class _Faults:
    """What the proxy does to connections, besides forwarding."""

    cut: bool = False
    rate: float | None = None  # bytes a second, per connection and direction
    delay: float = 0.0  # seconds, of each piece
    cut_after: int | None = None  # bytes to clients until all connections are dropped once


class Proxy:
    """A TCP proxy from ``proxy.host:proxy.port`` to a server.

    A context manager; opened when created. All methods may be called from any thread.

    :param host, port: the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._faults = _Faults()
        self._forwarded = [0, 0]
        self._accepted = self._broken = 0
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headgate-proxy", daemon=True)
        self._thread.start()
        self._server = self._call(self._listen())

    @property
    def url(self) -> str:
        """``mysql://root@127.0.0.1:PORT``."""
        return f"mysql://root@{self.host}:{self.port}"

    @property
    def accepted(self) -> int:
        """Connections accepted so far, those refused by a cut included."""
        return self._accepted

    @property
    def open_connections(self) -> int:
        """Connections of clients that are open now."""
        return len(self._links)

    @property
    def broken(self) -> int:
        """Connections that faults have closed or refused so far."""
        return self._broken

    @property
    def forwarded(self) -> tuple[int, int]:
        """Bytes forwarded so far (to the server, to clients)."""
        return self._forwarded[0], self._forwarded[1]

    def cut(self, *, reset: bool = False) -> None:
        """Close all connections, and every new one at once, until :meth:`restore`.

        :param reset: with a TCP reset instead of an orderly close.
        """
        self._call(self._do_cut(reset=reset))

    def drop(self, *, reset: bool = False) -> None:
        """Close all connections; new ones are served."""
        self._call(self._do_drop(reset=reset))

    def restore(self) -> None:
        """Remove all faults: cut, planned cut, limit and delay."""
        self._call(self._do_set(**vars(_Faults())))

    def aim(self, host: str, port: int) -> None:
        """Forward new connections to another server."""
        self._target = (host, port)

    def limit(self, bytes_per_second: float | None) -> None:
        """Forward at most so many bytes a second per connection and direction; None: no limit."""
        self._call(self._do_set(rate=bytes_per_second))

    def delay(self, seconds: float) -> None:
        """Delay every piece of data by so much, in both directions."""
        self._call(self._do_set(delay=seconds))

    def cut_after(self, to_client_bytes: int) -> None:
        """Drop all connections once, after so many more bytes to clients, even in the middle of a packet."""
        self._call(self._do_set(cut_after=to_client_bytes))

    def close(self) -> None:
        """Close the proxy and all its connections. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._call(self._do_close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- in the loop's thread ---------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=_CALL_SECONDS)

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, self.host, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        link = _Link(writer)
        self._links.add(link)  # before waiting for the server, so that a cut meanwhile finds it
        server = None if self._faults.cut else await self._connect()
        if server is not None:
            link.writers.append(server[1])
        if server is None or link not in self._links:
            self._broken += self._faults.cut and link in self._links
            self._links.discard(link)
            await link.close(reset=True)
            return
        server_reader, server_writer = server
        link.tasks = [
            asyncio.create_task(self._forward(link, reader, server_writer, 0)),
            asyncio.create_task(self._forward(link, server_reader, writer, 1)),
        ]
        await asyncio.wait(link.tasks, return_when=asyncio.FIRST_COMPLETED)
        self._links.discard(link)
        await link.close(reset=False)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            return await asyncio.open_connection(*self._target)
        except OSError:
            return None

    async def _forward(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                while data:  # in pieces for the present limit
                    rate = self._faults.rate
                    size = len(data) if rate is None else max(1, min(len(data), int(rate / 10)))
                    piece, data = data[:size], data[size:]
                    await asyncio.sleep(self._faults.delay + (size / rate if rate else 0.0))
                    if await self._send(link, writer, piece, direction):
                        return

    async def _send(self, link: _Link, writer: asyncio.StreamWriter, piece: bytes, direction: int) -> bool:
        """Forward one piece; return whether it was the last one before a planned cut."""
        left = self._faults.cut_after if direction == 1 else None
        if left is not None:
            piece = piece[:left]
            self._faults = replace(self._faults, cut_after=left - len(piece) or None)
        writer.write(piece)
        await writer.drain()
        self._forwarded[direction] += len(piece)
        if left is None or left > len(piece):
            return False
        await _wait_received(writer)
        await self._do_drop(reset=False, spare=link)
        return True

    async def _do_cut(self, *, reset: bool) -> None:
        self._faults = replace(self._faults, cut=True)
        await self._do_drop(reset=reset)

    async def _do_drop(self, *, reset: bool, spare: _Link | None = None) -> None:
        links = [link for link in self._links if link is not spare]
        self._broken += len(self._links)
        self._links.clear()
        for link in links:
            await link.close(reset=reset)

    async def _do_set(self, **faults: Any) -> None:
        self._faults = replace(self._faults, **faults)

    async def _do_close(self) -> None:
        self._server.close()
        await self._do_cut(reset=False)
        this_task = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not this_task]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Link:
    """A client's connection, and the proxy's connection to the server for it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.writers = [client]
        self.tasks: list[asyncio.Task[None]] = []

    async def close(self, *, reset: bool) -> None:
        this_task = asyncio.current_task()
        for task in self.tasks:
            if task is not this_task:
                task.cancel()
        try:
            for writer in self.writers:
                await _end(writer, reset=reset)
        finally:  # the waiting task may be cancelled, when the proxy closes
            for writer in self.writers:
                writer.close()


async def _wait_received(writer: asyncio.StreamWriter) -> None:
    """Wait until the other end's system has all that was written, half a minute at most. If a connection is closed
    while data of the other end is unread, it is reset, and unsent data is dropped (RFC 1122, 4.2.2.13).
    """
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        for _ in range(_RECEIVED_TRIES):
            queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
            if not writer.transport.get_write_buffer_size() and not int.from_bytes(queued, sys.byteorder):
                return
            await asyncio.sleep(0.001)


async def _end(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Close a connection now; with ``reset``, its buffered data is lost."""
    if reset:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # already closed
            # Linger for 0 s: close(2) sends RST (socket(7), SO_LINGER).
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
