"""Loads a relay's configuration: from a TOML file, or from Databus's files as they are.

Databus's own (its example relay's ``sources-or-person.json`` and ``relay_or_person.properties``)::

    {"name": "person", "id": 1, "uri": "mysql://user%2Fpassword@host:3306/<server id>/<log prefix>",
     "sources": [{"id": 40, "name": "com.example.Person", "uri": "or_test.person", "partitionFunction": "constant:1"}]}

The server id and the log prefix of the URI are ignored: the relay reads the binlog by GTID, under an unused server id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from headgate.config import checked, explain
from headgate.errors import ConfigError
from headgate.files import file_errors
from headgate.mysql import ConnectionSettings, Secret
from headgate.parsing import parse_json
from headgate.relay.server._sources import LogicalSource, PhysicalSource, RelayConfig
from headgate.relay.server._toml import relay_of_toml

__all__ = ["load_relay"]

_URI_PATH: Final = re.compile(r"/([0-9]+)/[0-9a-zA-Z._-]+")
_OVERWRITES: Final = "OVERWRITE_ON_WRITE"
"""Databus's name of what the buffer does when it is full."""
_PROPERTIES: Final = {
    "container.httpPort": "port",
    "eventBuffer.maxSize": "memory_bytes",
    "schemaRegistry.fileSystem.schemaDir": "schemas",
    "dataSources.sequenceNumbersHandler.file.scnDir": "state",
}
"""Databus's names of settings."""
_CONSTANT: Final = re.compile(r"constant:([0-9]+)")


def load_relay(files: Sequence[Path], properties: Path | None = None) -> RelayConfig:
    """Load a relay's configuration: one TOML file, by its suffix, or any number of Databus's JSON files, each with one
    physical source or a list of them, and the relay's ``.properties``, if any.

    :raises ConfigError: a file cannot be read, or has an invalid setting.
    """
    tomls = [file for file in files if file.suffix == ".toml"]
    if tomls:
        if properties is not None:
            raise ConfigError(f"{tomls[0]} has all the relay's settings: do not give properties")
        if len(files) > 1:
            raise ConfigError(f"{tomls[0]} has all sources: do not give other files")
        return relay_of_toml(_read_text(tomls[0]), tomls[0])
    physical = [one for file in files for one in _physical_sources(file)]
    if properties is None:
        return checked(RelayConfig, {"physical": physical})
    values = _settings_of(_properties(_read_text(properties)))
    return checked(RelayConfig, {**values, "physical": physical}, where=f"{properties}: ")


def _read_text(file: Path) -> str:
    with file_errors(f"{file} cannot be read"):
        return file.read_text("utf-8-sig")  # some editors write a byte order mark


def _physical_sources(file: Path) -> list[PhysicalSource]:
    """Return those of one file, which is an object or a list of them."""
    try:
        value = parse_json(_read_text(file))
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    try:
        return [_physical(one) for one in (value if isinstance(value, list) else [value])]
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error, PhysicalSource)}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{file}: {missing}") from None


def _settings_of(properties: Mapping[str, str]) -> dict[str, str]:
    prefix = "databus.relay."
    settings = {name.removeprefix(prefix): one for name, one in properties.items() if name.startswith(prefix)}
    policy = settings.get("eventBuffer.queuePolicy", _OVERWRITES)
    if policy != _OVERWRITES:
        raise ConfigError(
            f"eventBuffer.queuePolicy is {policy}, but the relay never waits for consumers: set {_OVERWRITES}, and let "
            "those that are too far behind bootstrap"
        )
    return {key: settings[name] for name, key in _PROPERTIES.items() if name in settings}


def _properties(text: str) -> dict[str, str]:
    """Parse Java properties: ``name=value``, ``#`` or ``!`` begins a comment, a backslash continues a line."""
    properties = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = stripped.partition("=")
            properties[name.strip()] = value.strip()
    return properties


def _physical(value: Any) -> PhysicalSource:
    sources = tuple(_logical(one) for one in value["sources"])
    shown = {**value, "uri": _without_password(str(value["uri"]))}
    settings = _settings(str(value["uri"]))
    return PhysicalSource(id=value["id"], name=value["name"], settings=settings, sources=sources, shown=shown)


def _logical(value: Any) -> LogicalSource:
    function = str(value.get("partitionFunction", "constant:1"))
    constant = _CONSTANT.fullmatch(function)
    if constant is None:
        raise ValueError(f"the partition function {function!r} is not constant:N, the only one for MySQL")
    return LogicalSource(id=value["id"], name=value["name"], table=value["uri"], partition=int(constant[1]))


def _settings(uri: str) -> ConnectionSettings:
    """Parse ``mysql://user%2Fpassword@host:port/<server id>/<log prefix>``; errors never contain text of the URI."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise ValueError("the uri is not a MySQL URI") from None
    if parts.scheme != "mysql" or not parts.hostname or (parts.path.strip("/") and not _URI_PATH.fullmatch(parts.path)):
        raise ValueError("the uri is not mysql://user%2Fpassword@host:port/<server id>/<log prefix>")
    user, slash, password = unquote(parts.username or "").partition("/")
    if parts.password is not None:
        password, slash = unquote(parts.password), "/"
    secret = Secret(value=password) if slash else Secret()
    return ConnectionSettings(host=parts.hostname, port=3306 if port is None else port, user=user, secret=secret)


def _without_password(uri: str) -> str:
    head, at, rest = uri.rpartition("@")
    scheme, slashes, credentials = head.partition("://")
    user = re.split(r"%2[Ff]|[:/]", credentials)[0]
    return f"{scheme}{slashes}{user}%2F***{at}{rest}" if at else uri
