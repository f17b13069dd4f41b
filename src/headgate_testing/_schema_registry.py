"""A private schema registry with Confluent's REST API: Apicurio Registry, in memory.

Maven (``mvn`` on PATH) fetches its archive, which stays in the user's cache folder. Version 2.6 is the last that runs
on Java 17. Confluent's API is below ``/apis/ccompat/v7`` (Apicurio's documentation, "Supported APIs").
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from headgate.errors import ConfigError, ConnectError
from headgate.files import cache_folder, make_once
from headgate_testing._kafka import java_program
from headgate_testing._owned import OwnedProcesses
from headgate_testing._ports import free_port, try_ports

__all__ = ["RegistryServer"]

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:zip:all"
PATH = "/apis/ccompat/v7"
JSON = "application/json"
FOLDER_PREFIX = "headgate-registry-"
JAVA_FLAGS = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ANSWER_SECONDS = 30.0


class RegistryServer(OwnedProcesses):
    """A running registry on a free port of 127.0.0.1. A context manager that stops it."""

    def __init__(self) -> None:
        self._runner = _prepared()
        super().__init__(FOLDER_PREFIX)
        self._port = 0
        with self.stop_on_failure():
            try_ports(self._launch, "already in use")

    @classmethod
    def start(cls) -> RegistryServer:
        """Start an empty registry.

        :raises ConfigError: Java or Maven is missing, or the archive cannot be fetched.
        :raises ConnectError: it did not start; the message ends with the end of its log.
        """
        return cls()

    @property
    def url(self) -> str:
        """The URL of Confluent's API."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    def schema(self, number: int) -> Any:
        """Return a schema by its number, parsed."""
        return json.loads(self._ask(f"/schemas/ids/{number}")["schema"])

    def subjects(self) -> list[str]:
        """Return the names of all subjects, sorted."""
        return sorted(self._ask("/subjects"))

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set which changes of a subject's schema are accepted, such as ``BACKWARD``."""
        self._ask(f"/config/{subject}", {"compatibility": level})

    def _ask(self, target: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET" if data is None else "PUT", PATH + target, data, {"content-type": JSON})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ConnectError(f"the schema registry answers {response.status}: {content.decode(errors='replace')}")
        return json.loads(content)

    def _launch(self) -> None:
        self._port = free_port()
        variables = {"QUARKUS_HTTP_PORT": str(self._port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
        self.launch("registry", [java_program(), *JAVA_FLAGS, "-jar", str(self._runner)], self._answers, variables)

    def _answers(self) -> bool:
        try:
            self._ask("/subjects")
        except (OSError, http.client.HTTPException, ConnectError):
            return False
        return True


def _prepared() -> Path:
    """Return the program."""
    program = cache_folder("registry", VERSION)
    with make_once(program) as folder:
        if folder is not None:
            _fetch(folder)
    return next(program.glob("*-runner.jar"))


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("a schema registry needs Maven: there is no mvn on PATH")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:copy"
    command = [maven, "-B", "-q", goal, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.zip"))
    if run.returncode or not archives:
        lines = [line for line in run.stdout.splitlines() if "ERROR" in line] or ["no message"]
        raise ConfigError(f"{ARTIFACT} could not be fetched: {lines[0]}")
    with zipfile.ZipFile(archives[0]) as archive:
        archive.extractall(folder)
    archives[0].unlink()
