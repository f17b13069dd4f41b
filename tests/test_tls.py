"""Certificates as MySQL and OpenSSL make them are verified on every Python; those of others are not."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headgate.tls import client_context
from tests.certificates import make_certificates


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """A whole handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        try:
            sides[0].do_handshake()
            del sides[0]
        except ssl.SSLWantReadError:
            sides.reverse()


@pytest.fixture
def server(tmp_path: Path) -> ssl.SSLContext:
    _, certificate, key = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_a_certificate_without_key_identifiers_is_verified(tmp_path: Path, server: ssl.SSLContext) -> None:
    context = client_context(tmp_path / "ca.pem")
    shake_hands(context, server, "127.0.0.1")
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_the_strict_check_refuses_it(tmp_path: Path, server: ssl.SSLContext) -> None:
    context = client_context(tmp_path / "ca.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)key identifier|key usage"):
        shake_hands(context, server, "127.0.0.1")


def test_another_host_or_authority_is_not(tmp_path: Path, server: ssl.SSLContext) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(client_context(tmp_path / "ca.pem"), server, "127.0.0.2")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(client_context(), server, "127.0.0.1")
    with pytest.raises(ssl.SSLError):
        client_context(tmp_path / "key.pem")
