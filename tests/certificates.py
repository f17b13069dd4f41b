"""A certificate for 127.0.0.1 and the authority that signed it."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

__all__ = ["make_certificates"]


def make_certificates(folder: Path) -> tuple[str, str, str]:
    """An authority and a certificate for 127.0.0.1, good as server's and client's; paths of ca, cert, key."""
    authority, server = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("test ca", "test server")]
    now = dt.datetime.now(dt.UTC)

    def certificate(subject: x509.Name, public: rsa.RSAPublicKey, extension: x509.ExtensionType) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(names[0])
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(authority, hashes.SHA256())
        )

    local = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    parts = {
        "ca.pem": certificate(names[0], authority.public_key(), x509.BasicConstraints(ca=True, path_length=None)),
        "cert.pem": certificate(names[1], server.public_key(), local),
    }
    for name, part in parts.items():
        (folder / name).write_bytes(part.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem")
