"""Raw bytes of an answer, as the socket delivers them: one growing buffer, without Python objects per packet."""

from __future__ import annotations

import ssl
from typing import Final, Protocol

import numpy as np

from headgate.errors import ConnectionLostError
from headgate.kernels import Bytes
from headgate.mysql._errors import foreign_errors

__all__ = ["BUFFER_BYTES", "ByteStream"]

BUFFER_BYTES: Final = 2 << 20
"""Size of a new buffer: some milliseconds of a fast server, and small enough to stay in a core's cache."""
_AT_ONCE: Final = 512 << 10
"""With TLS, bytes that have arrived are read up to here: one call returns a record of 16 KiB at most, and a caller that
handles bytes in small pieces pays for each."""


class Receives(Protocol):
    """A socket or a similar object."""

    def recv_into(self, view: memoryview, /) -> int:
        """Read received bytes into ``view`` and return their number; 0: the end."""


class ByteStream:
    """Bytes that follow a command. The unread ones are ``buf[start:end]``."""

    __slots__ = ("_host", "_port", "_room", "_socket", "_view", "at_once", "buf", "end", "start")

    def __init__(self, sock: Receives, host: str = "", port: int = 0, *, room: int = BUFFER_BYTES) -> None:
        self.buf: Bytes = np.empty(room, np.uint8)
        """uint8[room]; replaced when it must grow."""
        self.start = 0
        """Index of the first unread byte."""
        self.end = 0
        """Index behind the last unread byte."""
        self.at_once = room
        """Most bytes that one call reads, unless more are needed. Reduce it if the first bytes may be enough."""
        self._room = room
        self._socket = sock
        self._view = memoryview(self.buf.data)
        self._host = host
        self._port = port

    def fill(self, at_least: int = 1) -> None:
        """Receive until at least ``at_least`` bytes are unread, and at least one new byte. Moves the unread bytes.

        :raises ConnectionLostError: the connection ended, or no bytes came in time.
        """
        wanted = max(at_least, self.end - self.start + 1)
        self._make_room(wanted)
        while self.end - self.start < wanted:
            try:
                received = self._socket.recv_into(self._view[self.end : self.end + self.at_once])
            except Exception:  # a context manager around each call would cost more than the call
                with foreign_errors(self._host, self._port):
                    raise
            if received == 0:
                raise ConnectionLostError(
                    f"the connection to MySQL at {self._host}:{self._port} ended: the server closed it",
                    host=self._host,
                    port=self._port,
                )
            self.end += received
        if isinstance(self._socket, ssl.SSLSocket):
            self._take_more(self._socket)

    def _take_more(self, sock: ssl.SSLSocket) -> None:
        """Read what has arrived, without waiting. Leave an end or an error to the call that needs bytes."""
        timeout = sock.gettimeout()
        last = min(len(self.buf), self.start + min(self.at_once, _AT_ONCE))
        try:
            sock.setblocking(False)
            while self.end < last:
                received = sock.recv_into(self._view[self.end : last])
                if received == 0:
                    return
                self.end += received
        except OSError:  # nothing more has arrived (SSLWantReadError), or the connection is broken
            return
        finally:
            sock.settimeout(timeout)

    def consume(self, count: int) -> None:
        """Mark the first ``count`` unread bytes as read."""
        if not 0 <= count <= self.end - self.start:
            raise ValueError(f"cannot consume {count} of {self.end - self.start} unread bytes")
        self.start += count

    def hand_over(self) -> Bytes:
        """Return the buffer, which is the caller's from now on. The unread bytes move to a new one."""
        old, view = self.buf, self._view
        unread = self.end - self.start
        self.buf = np.empty(max(self._room, 2 * unread), np.uint8)
        self._view = memoryview(self.buf.data)
        self._view[:unread] = view[self.start : self.end]
        self.start, self.end = 0, unread
        return old

    def _make_room(self, wanted: int) -> None:
        """Make room for ``wanted`` unread bytes, at least one more than there are."""
        if self.start == self.end:
            self.start = self.end = 0
        if self.start + wanted <= len(self.buf):
            return
        unread = self.end - self.start
        if wanted > len(self.buf):
            old = self._view
            self.buf = np.empty(max(wanted, 2 * len(self.buf)), np.uint8)
            self._view = memoryview(self.buf.data)
            self._view[:unread] = old[self.start : self.end]
        else:
            self.buf[:unread] = self.buf[self.start : self.end].copy()
        self.start, self.end = 0, unread
