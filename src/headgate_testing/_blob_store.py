"""A private Azure Blob Storage: Azurite, which ends with the process that started it.

It is installed once with npm into the user's cache folder, 190 MB; the machine's settings for npm apply. Azurite has
Blob Storage's interface but not that of Data Lake Storage Gen2, which Hadoop's ABFS uses: Spark does not reach it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

from headgate.errors import ConfigError
from headgate_testing._npm import npm_file
from headgate_testing._owned import OwnedProcesses
from headgate_testing._ports import free_port

__all__ = ["BlobStore", "prepare_blob_store"]

AZURITE_VERSION = "3.37.0"
FOLDER_PREFIX = "headgate-azurite-"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, which its documentation names."""
_PROGRAM = "dist/src/blob/main.js"
_API_VERSION = "2021-08-06"


class BlobStore(OwnedProcesses):
    """A running store on a free port of 127.0.0.1."""

    def __init__(self, program: Path) -> None:
        super().__init__(FOLDER_PREFIX)
        self._port = free_port()
        with self.stop_on_failure():
            data = self.folder / "data"
            command = [_node(), str(program), "--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
            command += ["--location", str(data), "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
            self.launch("azurite", command, self._answers, {})

    @classmethod
    def start(cls) -> BlobStore:
        """Start a store without containers.

        :raises ConfigError: Node.js is missing, or Azurite cannot be installed.
        :raises ConnectError: it did not start.
        """
        return cls(prepare_blob_store())

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._port}"

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """Return variables that direct clients of Azure to it.

        :param endpoint: of a proxy before it.
        """
        return {"AZURE_STORAGE_ENDPOINT": f"{endpoint or self.endpoint}/{ACCOUNT}"}

    @property
    def hadoop_settings(self) -> Mapping[str, str]:
        """Settings of ABFS with its credentials."""
        return {f"fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net": ACCOUNT_KEY}

    def create_container(self, name: str) -> str:
        """Create a container; return its URI.

        :param name: three characters or more.
        """
        date = formatdate(usegmt=True)
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_API_VERSION}\n"
        signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        key = base64.b64decode(ACCOUNT_KEY)
        signature = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": _API_VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.CREATED:
                raise ConfigError(f"no container {name}: {answer.read().decode()}")
        finally:
            connection.close()
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
        except OSError:
            return False
        return True

    def __repr__(self) -> str:
        return f"<BlobStore 127.0.0.1:{self._port}>"


def prepare_blob_store() -> Path:
    """Return the program; install it if needed.

    :raises ConfigError: Node.js is missing, or npm fails; the message has its last line.
    """
    _node()
    return npm_file("azurite", AZURITE_VERSION, _PROGRAM)


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise ConfigError("a blob store needs Node.js: install it so that it is on PATH")
    return node
