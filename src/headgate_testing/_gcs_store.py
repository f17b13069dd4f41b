"""Google Cloud Storage's XML API in front of MinIO, for tests.

That API is S3's with other headers (Google Cloud's documentation: "XML API", "Interoperability with other storage
providers"), so MinIO stores, lists, and assembles uploads. This proxy translates the two differences of which clients
make use: a condition on an object's generation, and the signature. It accepts unsigned requests.

``fake-gcs-server`` 1.56.1, which has the JSON API, does not serve obstore: it refuses plain PUTs and uploads in parts
of the XML API.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headgate_testing._lossy_store import Answer, LossyStore
from headgate_testing._object_store import REGION, ObjectStore

__all__ = ["GcsStore"]

_CONDITION: Final = "x-goog-if-generation-match"
_NO_OBJECT: Final = "0"
"""The generation that only an object which does not exist has."""
_DROPPED: Final = frozenset({"authorization", "host", _CONDITION})
_PAYLOAD: Final = "UNSIGNED-PAYLOAD"


class GcsStore(LossyStore):
    """A proxy that is also a store with faults. A context manager; opened when created.

    :param store: what carries the requests out.
    :param seed: of the choice of lost requests.
    """

    def __init__(self, store: ObjectStore, seed: int = 0) -> None:
        super().__init__(store.endpoint, seed)
        self._store = store

    def create_bucket(self, name: str) -> str:
        """Create a bucket; return its URI.

        :param name: three characters or more.
        """
        self._store.create_bucket(name)
        return f"gs://{name}"

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Have MinIO carry a request out.

        :raises ValueError: it has a condition that is not translated.
        """
        kept = {name: value for name, value in headers.items() if name.lower() not in _DROPPED}
        conditions = {value for name, value in headers.items() if name.lower() == _CONDITION}
        if conditions - {_NO_OBJECT}:
            raise ValueError(f"{_CONDITION}: {', '.join(conditions)}")
        if conditions:
            kept["If-None-Match"] = "*"
        parts = urlsplit(path)
        pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
        where = quote(unquote(parts.path), safe="/-_.~")
        signed = self._signature(method, where, query)
        return super().forward(method, f"{where}?{query}" if query else where, {**kept, **signed}, body)

    def _signature(self, method: str, path: str, query: str) -> dict[str, str]:
        """Return the headers of AWS's signature, version 4 (Amazon S3's documentation: "Authenticating Requests")."""
        now = datetime.now(UTC)
        date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": urlsplit(self._store.endpoint).netloc, "x-amz-content-sha256": _PAYLOAD, "x-amz-date": date}
        names, scope = ";".join(headers), f"{day}/{REGION}/s3/aws4_request"
        lines = [method, path, query, *(f"{name}:{value}" for name, value in headers.items()), "", names, _PAYLOAD]
        request = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        key = f"AWS4{self._store.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), hashlib.sha256)
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{request}".encode()
        signature = hmac.digest(key, text, hashlib.sha256).hex()
        credential = f"{self._store.access_key}/{scope}"
        authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "Authorization": authorization}
