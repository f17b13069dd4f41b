"""Verification of a server's certificate, the same on every Python."""

from __future__ import annotations

import os
import ssl

__all__ = ["client_context"]


def client_context(ca_file: str | os.PathLike[str] | None = None) -> ssl.SSLContext:
    """Return a client's TLS context, which verifies certificate and host name.

    From Python 3.13 on, ``ssl.create_default_context`` sets ``VERIFY_X509_STRICT``. It refuses certificates without key
    identifiers or key usage, such as MySQL generates and ``openssl x509 -req`` signs, so it is always off.

    :param ca_file: PEM file with the certificates to trust; None: the system's.
    :raises OSError: the file cannot be read or has no certificates (``ssl.SSLError``).
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
