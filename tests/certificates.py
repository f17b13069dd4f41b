"""An authority, the certificates that it signs, and its list of revoked ones."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

__all__ = ["Authority", "make_certificates"]

PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority, whose files are in a folder. ``ca`` is the path of its certificate."""

    def __init__(self, folder: Path, name: str = "test ca") -> None:
        self.folder = folder
        self.ca = str(folder / "ca.pem")
        self._key = rsa.generate_private_key(65537, 2048)
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        Path(self.ca).write_bytes(self._certificate(self._name, self._key.public_key(), basic, 1).public_bytes(PEM))

    def issue(self, prefix: str = "", *, host: str = "127.0.0.1", days: float = 1) -> tuple[str, str]:
        """Write a certificate, good as server's and client's, and its key; return their paths.

        :param days: how long it is valid from now on; below 0, it has expired.
        """
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test server")])
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        key = rsa.generate_private_key(65537, 2048)
        certificate = self._certificate(subject, key.public_key(), x509.SubjectAlternativeName([name]), days)
        paths = self.folder / f"{prefix}cert.pem", self.folder / f"{prefix}key.pem"
        paths[0].write_bytes(certificate.public_bytes(PEM))
        paths[1].write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return str(paths[0]), str(paths[1])

    def revoke(self, *certificates: str, days: float = 1) -> str:
        """Write the list of revoked certificates, with these paths; return its path.

        :param days: until the next list.
        """
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - dt.timedelta(days=2)).next_update(now + dt.timedelta(days=days))
        for path in certificates:
            serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - dt.timedelta(days=1))
            builder = builder.add_revoked_certificate(one.build())
        crl = self.folder / "crl.pem"
        crl.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        return str(crl)

    def _certificate(
        self, subject: x509.Name, public: rsa.RSAPublicKey, extension: x509.ExtensionType, days: float
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=2))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def make_certificates(folder: Path) -> tuple[str, str, str]:
    """An authority and a certificate for 127.0.0.1, good as server's and client's; paths of ca, cert, key."""
    authority = Authority(folder)
    return authority.ca, *authority.issue()
