"""TLS with certificates that a server should not have, and with those that it requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.errors import AccessError, ConfigError, ConnectError
from headgate.mysql import Connection, ConnectionSettings
from headgate_testing import MySQLServer, wait_until
from tests.certificates import Authority

pytestmark = pytest.mark.needs_own_server


class Secured:
    """A server that presents what it is given."""

    def __init__(self, server: MySQLServer, authority: Authority, certificate: str) -> None:
        self.server, self.authority, self.certificate = server, authority, certificate

    def present(self, **how: Any) -> None:
        """Present another certificate from now on: :meth:`Authority.issue`."""
        self.authority.issue("server-", **how)
        self.server.execute("ALTER INSTANCE RELOAD TLS")

    def open(self, tls: str = "verify_identity", user: str = "root", **settings: Any) -> Connection:
        where = f"mysql://{user}@{self.server.host}:{self.server.port}"
        return Connection.open(ConnectionSettings.from_url(where, tls=tls, tls_ca=self.authority.ca, **settings))

    def refusal(self, tls: str) -> str:
        """Why the certificate is refused; "": it is not."""
        try:
            self.open(tls).close()
        except ConfigError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    certificate, key = authority.issue("server-")
    with MySQLServer.start({"ssl_ca": authority.ca, "ssl_cert": certificate, "ssl_key": key}) as server:
        yield Secured(server, authority, certificate)


@pytest.mark.parametrize("host", ["db.example", "127.0.0.2"])
def test_a_certificate_of_another_name_is_refused(secured: Secured, host: str) -> None:
    secured.present(host=host)
    message = r"\(IP address mismatch.*\): connect by the name in the certificate, or use tls=verify_ca$"
    with pytest.raises(ConfigError, match=rf"TLS: the certificate of 127.0.0.1:\d+ cannot be verified {message}"):
        secured.open()
    secured.open("verify_ca").close()
    secured.present()
    with secured.open() as connection:
        assert connection.encrypted


def test_an_expired_certificate_is_refused(secured: Secured) -> None:
    """The server would not load one that has expired already."""
    secured.present(days=10 / 86_400)
    for tls in ("verify_identity", "verify_ca"):
        error = wait_until(lambda tls=tls: secured.refusal(tls))  # type: ignore[misc]
        assert error.endswith("(certificate has expired): renew the server's certificate")
    secured.open("required").close()


def test_a_revoked_certificate_is_refused(secured: Secured) -> None:
    secured.present()
    secured.open(tls_crl=secured.authority.revoke()).close()
    secured.open(tls_crl=secured.authority.revoke(secured.authority.issue("other-")[0])).close()
    with pytest.raises(ConfigError, match=r"\(certificate revoked\): the authority has revoked it"):
        secured.open(tls_crl=secured.authority.revoke(secured.certificate))
    with pytest.raises(ConfigError, match=r"\(CRL has expired\): renew the list of revoked certificates in tls_crl"):
        secured.open(tls_crl=secured.authority.revoke(days=-1))
    with pytest.raises(ConfigError, match=r"cannot use the TLS files .*server-key.pem"):
        secured.open(tls_crl=secured.certificate.replace("cert", "key"))


def test_a_list_of_another_authority_does_not_count(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> None:
    secured.present()
    with pytest.raises(ConfigError, match=r"\(unable to get certificate CRL\): give the list of revoked"):
        secured.open(tls_crl=Authority(tmp_path_factory.mktemp("other"), "other ca").revoke())


def test_an_account_that_requires_a_certificate(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> None:
    secured.present()
    secured.server.execute("CREATE USER IF NOT EXISTS carrier REQUIRE ISSUER '/CN=test ca' SUBJECT '/CN=test server'")

    def log_in(authority: Authority, **how: Any) -> None:
        certificate, key = authority.issue("client-", **how)
        with secured.open(user="carrier", tls_cert=certificate, tls_key=key) as connection:
            assert connection.query("SELECT 1") == [(1,)]

    log_in(secured.authority)
    with pytest.raises(AccessError, match="Access denied"):
        secured.open(user="carrier")
    with pytest.raises(ConnectError):
        log_in(secured.authority, days=-1)
    with pytest.raises(ConnectError):
        log_in(Authority(tmp_path_factory.mktemp("forged")))
