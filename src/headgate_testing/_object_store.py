"""A private S3 object store: MinIO, which ends with the process that started it.

A ``minio`` on PATH is used, else one that is built from its source once (some minutes, with Go) and stored in the
user's cache folder. The source comes as a Go module, so the machine's settings for Go modules apply.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.files import cache_folder, make_once
from headgate_testing._owned import OwnedProcesses
from headgate_testing._ports import free_port

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

__all__ = ["ObjectStore", "prepare_object_store"]

MINIO_MODULE = "github.com/minio/minio"
MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
FOLDER_PREFIX = "headgate-minio-"
REGION = "us-east-1"
"""MinIO's region of all its buckets."""


class ObjectStore(OwnedProcesses):
    """A running store on a free port of 127.0.0.1 with random credentials."""

    def __init__(self, program: Path) -> None:
        super().__init__(FOLDER_PREFIX)
        self._port = free_port()
        self.access_key, self.secret_key = secrets.token_hex(8), secrets.token_hex(16)
        with self.stop_on_failure():
            data = self.folder / "data"
            data.mkdir()
            command = [str(program), "server", str(data), "--address", f"127.0.0.1:{self._port}", "--quiet"]
            command += ["--console-address", f"127.0.0.1:{free_port()}"]
            credentials = {
                "MINIO_ROOT_USER": self.access_key,
                "MINIO_ROOT_PASSWORD": self.secret_key,
                "MINIO_BROWSER": "off",
                "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            }
            self.launch("minio", command, self._answers, credentials)

    @classmethod
    def start(cls) -> ObjectStore:
        """Start a store without buckets.

        :raises ConfigError: MinIO is missing, and cannot be built.
        :raises ConnectError: it did not start.
        """
        return cls(prepare_object_store())

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def hadoop_settings(self) -> Mapping[str, str]:
        """Settings of S3A with which Spark reaches it, for ``[spark]`` of a pipeline, secrets included."""
        return {
            "hadoop.fs.s3a.endpoint": self.endpoint,
            "hadoop.fs.s3a.endpoint.region": REGION,
            "hadoop.fs.s3a.access.key": self.access_key,
            "hadoop.fs.s3a.secret.key": self.secret_key,
            "hadoop.fs.s3a.path.style.access": "true",
        }

    @property
    def delta_rs_options(self) -> dict[str, str]:
        """``storage_options`` with which delta-rs reaches it, secrets included."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": REGION,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_allow_http": "true",
        }

    def file_system(self) -> S3FileSystem:
        """Return a client that may create buckets."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=REGION,
            allow_bucket_creation=True,
            scheme="http",
            endpoint_override=f"127.0.0.1:{self._port}",
        )

    def create_bucket(self, name: str) -> str:
        """Create a bucket; return its URI for Spark.

        :param name: three characters or more.
        """
        self.file_system().create_dir(name)
        return f"s3a://{name}"

    def requests(self) -> dict[str, int]:
        """Return the number of S3 requests since the start, by the store's name of their kind, such as ``putobject``.

        The store counts them with a delay of some seconds.
        """
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/minio/v2/metrics/cluster")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        counted: dict[str, int] = {}
        for api, number in re.findall(r'^minio_s3_requests_total\{[^}]*api="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE):
            counted[api] = counted.get(api, 0) + int(float(number))
        return counted

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/minio/health/ready")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def __repr__(self) -> str:
        return f"<ObjectStore {self.endpoint}>"


def prepare_object_store(on_build: Callable[[], None] = lambda: None) -> Path:
    """Return the program; build it if needed.

    :param on_build: called before a build, which takes minutes.
    :raises ConfigError: Go is missing, or the module cannot be built; the message has the compiler's last line.
    """
    program = shutil.which("minio")
    if program is not None:
        return Path(program)
    target = cache_folder("minio", MINIO_VERSION)
    with make_once(target) as folder:
        if folder is not None:
            _build(folder, on_build)
    return target / "minio"


def _build(folder: Path, on_build: Callable[[], None]) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise ConfigError("an object store needs MinIO or Go: install one so that it is on PATH")
    on_build()
    command = [go, "install", f"{MINIO_MODULE}@{MINIO_VERSION}"]
    run = subprocess.run(command, env={**os.environ, "GOBIN": str(folder)}, capture_output=True, text=True, check=False)
    if run.returncode or not (folder / "minio").exists():
        lines = run.stderr.strip().splitlines()
        raise ConfigError(f"{MINIO_MODULE} could not be built: {lines[-1] if lines else 'no message'}")
