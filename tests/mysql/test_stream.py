"""The growing buffer: what is asked for arrives, what is unread stays."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ConnectionLostError
from headgate.mysql import ByteStream
from tests.mysql.test_result import Pieces


@pytest.fixture
def tls_pair(tmp_path: Path) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """A connection with TLS, its client's end first."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "db")])
    begin = datetime.now(UTC) - timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(begin).not_valid_after(begin + timedelta(days=2))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    file = tmp_path / "both.pem"
    file.write_bytes(pem + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(file)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    one, other = socket.socketpair()
    accepted: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: accepted.append(server.wrap_socket(other, server_side=True)))
    thread.start()
    with client.wrap_socket(one) as ours:
        thread.join()
        with accepted[0] as theirs:
            yield ours, theirs


@settings(max_examples=200)
@given(st.data())
def test_the_stream_is_the_bytes_in_order(data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=1, max_size=500))
    pieces = Pieces(content, data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5)))
    stream = ByteStream(cast("Any", pieces), room=data.draw(st.integers(1, 64)))
    seen = b""
    while len(seen) < len(content):
        unread = stream.end - stream.start
        left = len(content) - len(seen)
        if unread == left or (unread and data.draw(st.booleans())):
            count = data.draw(st.integers(1, unread))
            seen += stream.buf[stream.start : stream.start + count].tobytes()
            stream.consume(count)
        elif data.draw(st.booleans()) and unread:
            old = stream.hand_over()
            assert old is not stream.buf
        else:
            wanted = data.draw(st.integers(1, left))
            stream.fill(wanted)
            assert stream.end - stream.start >= max(wanted, unread + 1)
    assert seen == content


def test_consuming_more_than_there_is_is_a_mistake() -> None:
    stream = ByteStream(cast("Any", Pieces(b"abc")))
    stream.fill()
    with pytest.raises(ValueError, match="cannot consume 4 of 3"):
        stream.consume(4)


def test_an_end_and_a_silence_are_lost_connections() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        stream = ByteStream(ours, "db", 3306)
        with pytest.raises(ConnectionLostError, match=r"db:3306 ended: no answer in time"):
            stream.fill()
        theirs.sendall(b"ab")
        stream.fill(2)
        theirs.close()
        with pytest.raises(ConnectionLostError, match=r"db:3306 ended: the server closed it") as caught:
            stream.fill()
        assert (caught.value.host, caught.value.port) == ("db", 3306)
        assert stream.buf[stream.start : stream.end].tobytes() == b"ab"


def test_with_tls_all_that_is_there_comes_at_once(tls_pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    ours, theirs = tls_pair
    ours.settimeout(60)
    content = np.random.default_rng(1).bytes(100_000)  # seven records
    theirs.sendall(content)
    stream = ByteStream(ours, room=1 << 20)
    stream.fill()
    assert stream.end - stream.start > 16 << 10
    assert ours.gettimeout() == 60
    while stream.end - stream.start < len(content):
        stream.fill()
    assert stream.buf[stream.start : stream.end].tobytes() == content
    theirs.sendall(b"the last words")
    theirs.close()
    stream.consume(len(content))
    stream.fill()
    assert stream.buf[stream.start : stream.end].tobytes() == b"the last words"
    with pytest.raises(ConnectionLostError):
        stream.fill()
