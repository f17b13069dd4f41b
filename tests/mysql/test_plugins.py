"""A server that requests the password itself: it gets it over TLS only."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Self

import pytest

from headgate.errors import ConnectError, ServerSettingError
from headgate.mysql import Connection, ConnectionSettings, Secret, TlsMode
from tests.certificates import make_certificates

WORD = "s3cr3t!"
PROTOCOL_41, SSL, SECURE, PLUGIN_AUTH = 0x200, 0x800, 0x8000, 0x80000


def packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


class Curious:
    """Greets as MySQL does, and requests another authentication method; ``received`` is all that comes.

    :param tls: what it wraps its connection in, if the client wants that; None: it offers none.
    """

    def __init__(self, plugin: str, tls: ssl.SSLContext | None) -> None:
        self.plugin, self.tls, self.received = plugin, tls, b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            peer = stack.enter_context(self._listening.accept()[0])
            peer.settimeout(60)
            flags = PROTOCOL_41 | SECURE | PLUGIN_AUTH | (0 if self.tls is None else SSL)
            head = b"\x0a8.4.0\0" + struct.pack("<I", 1) + b"saltsalt\0"
            flags_low, flags_high = flags & 0xFFFF, flags >> 16
            head += struct.pack("<HBHHB", flags_low, 45, 2, flags_high, 21) + bytes(10) + b"saltsaltsalt\0"
            peer.sendall(packet(0, head + b"caching_sha2_password\0"))
            with contextlib.suppress(OSError):
                number = self._packet(peer)
                if self.tls is not None:
                    peer = stack.enter_context(self.tls.wrap_socket(peer, server_side=True))
                    number = self._packet(peer)
                peer.sendall(packet(number + 1, b"\xfe" + self.plugin.encode() + b"\0"))
                self._packet(peer)

    def _packet(self, peer: socket.socket) -> int:
        """Receive a packet; return its number."""
        head = self._exactly(peer, 4)
        self.received += self._exactly(peer, int.from_bytes(head[:3], "little"))
        return head[3]

    def _exactly(self, peer: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = peer.recv(size - len(data))
            if not part:
                raise OSError("the client has gone")
            data += part
        return data

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listening.close()


def open_at(server: Curious, tls: TlsMode, ca: str | None = None) -> None:
    Connection.open(ConnectionSettings("127.0.0.1", server.port, "u", Secret(value=WORD), tls, ca))


@pytest.fixture
def certified(tmp_path: Path) -> tuple[str, ssl.SSLContext]:
    ca, certificate, key = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return ca, context


@pytest.mark.parametrize("tls", ["disabled", "preferred"])
def test_without_tls_no_password_is_sent(tls: TlsMode) -> None:
    for plugin in ("mysql_clear_password", "dialog", "mysql_old_password"):
        message = r"requests .* nothing was sent; use tls=verify_identity"
        with Curious(plugin, None) as server, pytest.raises(ServerSettingError, match=message) as caught:
            open_at(server, tls)
        assert WORD.encode() not in server.received
        assert server.received, "the login with the usual method"
        assert WORD not in repr(caught.value)


def test_over_tls_clear_text_is_sent(certified: tuple[str, ssl.SSLContext]) -> None:
    with Curious("mysql_clear_password", certified[1]) as server, pytest.raises(ConnectError):
        open_at(server, "verify_identity", certified[0])  # this server ends after that
    assert server.received.endswith(WORD.encode() + b"\0")
    with Curious("dialog", certified[1]) as server, pytest.raises(ServerSettingError, match="nothing was sent"):
        open_at(server, "verify_identity", certified[0])
    assert WORD.encode() not in server.received
