"""A client of a schema registry with Confluent's REST API, such as Confluent's, Apicurio's or Karapace's.

Source: Confluent Platform's documentation, "Schema Registry API Reference": ``POST /subjects/{subject}/versions``
registers a schema, or finds it, and returns its number; 409: it is not compatible with the subject's earlier schemas;
422: it is no schema. A number always means the same schema, so numbers are kept for the life of the client.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from headgate.errors import ConfigError, ConnectError, TargetError
from headgate.parsing import parse_json
from headgate.retrying import Failures, RetryPolicy
from headgate.web import WebServer, is_retryable, seconds_to_wait

if TYPE_CHECKING:
    from headgate.config import KafkaTargetConfig

__all__ = ["SchemaRegistry"]

_NAME: Final = "the schema registry"
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RETRY: Final = RetryPolicy(0.2)
_INCOMPATIBLE: Final = 409
_NOT_ALLOWED: Final = (401, 403)


class SchemaRegistry:
    """Numbers of schemas. Thread-safe.

    :param url: ``http://`` or ``https://``, and perhaps a path.
    :param auth_env: name of the environment variable with ``user:password``, read for each request; None: none.
    :param ca_file: certificates to trust; None: the system's.
    :param timeout_seconds: how long a request is repeated while the registry does not answer.
    """

    def __init__(self, url: str, auth_env: str | None, ca_file: str | None, timeout_seconds: float) -> None:
        self._server = WebServer.of(url, _NAME, ca_file, "target.kafka.registry_ca_file")
        self._path = urlsplit(url).path.rstrip("/")
        self._auth_env, self._timeout = auth_env, timeout_seconds
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, config: KafkaTargetConfig) -> SchemaRegistry:
        """Return the client of a configuration with ``format = "avro"``."""
        assert config.registry is not None
        return cls(config.registry, config.registry_auth_env, config.registry_ca_file, config.timeout_seconds)

    def schema_id(self, subject: str, schema: str) -> int:
        """Return the number of an Avro schema; register it if the subject does not have it.

        :raises ConnectError: the registry does not answer, or has an error of its own.
        :raises TargetError: it refuses the schema.
        :raises ConfigError: it refuses the user, or its certificate cannot be verified.
        """
        with self._lock:
            known = self._ids.get((subject, schema))
            if known is None:
                answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema}, subject)
                known = self._ids[subject, schema] = int(answer["id"])
        return known

    def check(self) -> None:
        """Check that the registry answers; errors as :meth:`schema_id`."""
        self._ask("GET", "/subjects", None, None)

    def _ask(self, method: str, target: str, body: dict[str, str] | None, subject: str | None) -> Any:
        """Send a request until it is answered; return the answer's JSON."""
        failures = Failures(replace(_RETRY, deadline_seconds=self._timeout))
        failures.begin()
        while True:
            requested = 0.0
            try:
                status, headers, content = self._request(method, target, body)
            except ConnectError as error:
                failures.add(error)
            else:
                if not is_retryable(status):
                    return self._answer(status, content, subject)
                failures.add(ConnectError(f"{_NAME} answers {status}", host=self._server.host, port=self._server.port))
                requested = seconds_to_wait(status, headers)
            failures.wait(requested)

    def _request(
        self, method: str, target: str, body: dict[str, str] | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"accept": f"{_CONTENT_TYPE}, application/json"}
        if body is not None:
            headers["content-type"] = _CONTENT_TYPE
        if self._auth_env is not None:
            headers["authorization"] = f"Basic {base64.b64encode(self._secret(self._auth_env).encode()).decode()}"
        connection = self._server.connect()
        try:
            with self._server.convert_errors():
                connection.request(method, self._path + target, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                return response.status, response.headers, response.read()
        finally:
            connection.close()

    @staticmethod
    def _secret(name: str) -> str:
        secret = os.environ.get(name)
        if not secret or ":" not in secret:
            raise ConfigError(f"target.kafka.registry_auth_env: {name} is not set to user:password")
        return secret

    @staticmethod
    def _answer(status: int, content: bytes, subject: str | None) -> Any:
        try:
            answer = parse_json(content)
        except ValueError:
            answer = None
        if status == http.client.OK and answer is not None:
            return answer
        reason = str(answer.get("message", "")) if isinstance(answer, dict) else ""
        if status in _NOT_ALLOWED:
            raise ConfigError(
                f"{_NAME} refuses the user ({status}): target.kafka.registry_auth_env names the variable with"
                " user:password"
            )
        if status == _INCOMPATIBLE:
            raise TargetError(
                f"{_NAME} refuses the schema of {subject}: it is not compatible with the earlier one ({reason}): give"
                " the subject another compatibility, such as NONE, or change target.kafka.topic"
            )
        raise TargetError(f"{_NAME} answers {status} for {subject or 'its subjects'}: {reason or 'no message'}")
