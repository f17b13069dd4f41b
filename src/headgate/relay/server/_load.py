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

from headgate.errors import ConfigError
from headgate.files import file_errors
from headgate.mysql import ConnectionSettings, Secret
from headgate.parsing import parse_json
from headgate.relay.server._sources import (
    LARGEST_ID,
    LARGEST_PORT,
    LogicalSource,
    PhysicalSource,
    RelayConfig,
    check_table,
)
from headgate.relay.server._toml import relay_of_toml

__all__ = ["load_relay"]

_URI_PATH: Final = re.compile(r"/([0-9]+)/[0-9a-zA-Z._-]+")
_OVERWRITES: Final = "OVERWRITE_ON_WRITE"
"""Databus's name of what the buffer does when it is full."""
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
    return _config_of(physical, {} if properties is None else _properties(_read_text(properties)))


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
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{file}: {missing}") from None


def _config_of(physical: Sequence[PhysicalSource], properties: Mapping[str, str]) -> RelayConfig:
    prefix = "databus.relay."
    settings = {name.removeprefix(prefix): one for name, one in properties.items() if name.startswith(prefix)}
    schemas = settings.get("schemaRegistry.fileSystem.schemaDir")
    state = settings.get("dataSources.sequenceNumbersHandler.file.scnDir")
    policy = settings.get("eventBuffer.queuePolicy", _OVERWRITES)
    if policy != _OVERWRITES:
        raise ConfigError(
            f"eventBuffer.queuePolicy is {policy}, but the relay never waits for consumers: set {_OVERWRITES}, and let "
            "those that are too far behind bootstrap"
        )
    return RelayConfig(
        physical=tuple(physical),
        port=_number(settings, "container.httpPort", 11115, LARGEST_PORT),
        schemas=None if schemas is None else Path(schemas),
        state=None if state is None else Path(state),
        memory_bytes=_number(settings, "eventBuffer.maxSize", 256 << 20, 1 << 62),
    )


def _number(properties: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = properties.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise ConfigError(f"{name} is {text!r}, which is not a number from 0 to {most}")
    return int(text)


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
    if not sources:
        raise ValueError("sources is empty")
    shown = {**value, "uri": _without_password(str(value["uri"]))}
    return PhysicalSource(_id(value["id"]), str(value["name"]), _settings(str(value["uri"])), sources, shown)


def _id(value: Any) -> int:
    if not isinstance(value, int) or not 1 <= value <= LARGEST_ID:
        raise ValueError(f"the id {value!r} is not a number from 1 to {LARGEST_ID}")
    return value


def _logical(value: Any) -> LogicalSource:
    function = str(value.get("partitionFunction", "constant:1"))
    constant = _CONSTANT.fullmatch(function)
    if constant is None:
        raise ValueError(f"the partition function {function!r} is not constant:N, the only one for MySQL")
    return LogicalSource(_id(value["id"]), str(value["name"]), check_table(str(value["uri"])), int(constant[1]))


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
