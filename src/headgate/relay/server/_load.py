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
from typing import Annotated, Any, Final
from urllib.parse import unquote

from pydantic import BaseModel, BeforeValidator, Field, InstanceOf, TypeAdapter, ValidationError

from headgate.config import Mistakes, RelaySettings, checked, explain, split_url
from headgate.errors import ConfigError
from headgate.files import file_errors
from headgate.mysql import ConnectionSettings, Secret
from headgate.parsing import parse_json
from headgate.relay.server._sources import Id, LogicalSource, Partition, PhysicalSource, RelayConfig, TablePattern
from headgate.relay.server._toml import relay_of_toml

__all__ = ["load_relay"]

_URI_PATH: Final = re.compile(r"/([0-9]+)/[0-9a-zA-Z._-]+")
_OVERWRITES: Final = "OVERWRITE_ON_WRITE"
"""Databus's name of what the buffer does when it is full."""
_PREFIX: Final = "databus.relay."
_PROPERTIES: Final = {
    "port": "container.httpPort",
    "memory_bytes": "eventBuffer.maxSize",
    "schemas": "schemaRegistry.fileSystem.schemaDir",
    "state": "dataSources.sequenceNumbersHandler.file.scnDir",
}
"""Databus's names of settings, without the prefix."""
_CONSTANT: Final = re.compile(r"constant:([0-9]+)")


def load_relay(files: Sequence[Path], properties: Path | None = None) -> RelayConfig:
    """Load a relay's configuration: one TOML file, by its suffix, or any number of Databus's JSON files, each with one
    physical source or a list of them, and the relay's ``.properties``, if any.

    :raises ConfigError: all files that cannot be read, and all invalid settings in the others.
    """
    tomls = [file for file in files if file.suffix == ".toml"]
    if tomls:
        if properties is not None:
            raise ConfigError(f"{tomls[0]} has all the relay's settings: do not give properties")
        if len(files) > 1:
            raise ConfigError(f"{tomls[0]} has all sources: do not give other files")
        return relay_of_toml(_read_text(tomls[0]), tomls[0])
    mistakes, physical, values = Mistakes(), list[PhysicalSource](), dict[str, str]()
    for file in files:
        with mistakes:
            physical += _physical_sources(file)
    if properties is not None:
        with mistakes:
            values = _settings_of(properties)
            checked(RelaySettings, values, where=f"{properties}: ", name_of=lambda key: f"{_PREFIX}{_PROPERTIES[key]}")
    mistakes.check()
    return checked(RelayConfig, {**values, "physical": physical})


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
        parsed = _PHYSICAL.validate_python(value) if isinstance(value, list) else [_Physical.model_validate(value)]
    except ValidationError as error:
        raise ConfigError.of(explain(error, _Physical), f"{file}: ") from None
    return [one.source(raw) for one, raw in zip(parsed, value if isinstance(value, list) else [value], strict=True)]


def _settings_of(file: Path) -> dict[str, str]:
    """Return the settings in a properties file, by their names here."""
    properties = _properties(_read_text(file))
    settings = {name.removeprefix(_PREFIX): one for name, one in properties.items() if name.startswith(_PREFIX)}
    policy = settings.get("eventBuffer.queuePolicy", _OVERWRITES)
    if policy != _OVERWRITES:
        raise ConfigError(
            f"{file}: {_PREFIX}eventBuffer.queuePolicy is {policy}, but the relay never waits for consumers: set"
            f" {_OVERWRITES}, and let those that are too far behind bootstrap"
        )
    return {key: settings[name] for key, name in _PROPERTIES.items() if name in settings}


def _properties(text: str) -> dict[str, str]:
    """Parse Java properties: ``name=value``, ``#`` or ``!`` begins a comment, a backslash continues a line."""
    properties = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = stripped.partition("=")
            properties[name.strip()] = value.strip()
    return properties


def _settings(uri: str) -> ConnectionSettings:
    """Parse ``mysql://user%2Fpassword@host:port/<server id>/<log prefix>``; errors never contain text of the URI."""
    parts = split_url(str(uri), "mysql")
    if parts is None or (parts.path.strip("/") and not _URI_PATH.fullmatch(parts.path)):
        raise ValueError("expected mysql://user%2Fpassword@host:port/<server id>/<log prefix>")
    user, slash, password = unquote(parts.username or "").partition("/")
    if parts.password is not None:
        password, slash = unquote(parts.password), "/"
    secret = Secret(value=password) if slash else Secret()
    return ConnectionSettings(host=parts.hostname or "", port=parts.port or 3306, user=user, secret=secret)


def _without_password(uri: str) -> str:
    head, at, rest = uri.rpartition("@")
    scheme, slashes, credentials = head.partition("://")
    user = re.split(r"%2[Ff]|[:/]", credentials)[0]
    return f"{scheme}{slashes}{user}%2F***{at}{rest}" if at else uri


def _partition_of(function: str) -> str:
    constant = _CONSTANT.fullmatch(str(function))
    if constant is None:
        raise ValueError(f"{function!r} is not constant:N, the only partition function for MySQL")
    return constant[1]


class _Logical(BaseModel):
    """One of ``sources``. Other keys are ignored: Databus has more."""

    id: Id
    name: str
    uri: TablePattern
    partition: Annotated[Partition, BeforeValidator(_partition_of)] = Field(default=1, alias="partitionFunction")

    def source(self) -> LogicalSource:
        return LogicalSource(self.id, self.name, self.uri, self.partition)


class _Physical(BaseModel):
    """One server. Other keys are ignored: Databus has more."""

    id: Id
    name: str
    settings: Annotated[InstanceOf[ConnectionSettings], BeforeValidator(_settings)] = Field(alias="uri")
    sources: Annotated[tuple[_Logical, ...], Field(min_length=1)]

    def source(self, raw: Mapping[str, Any]) -> PhysicalSource:
        shown = {**raw, "uri": _without_password(raw["uri"])}
        return PhysicalSource(self.id, self.name, self.settings, tuple(one.source() for one in self.sources), shown)


_PHYSICAL: Final = TypeAdapter(list[_Physical])
