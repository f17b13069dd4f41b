"""A relay's sources, with names and ids: from Databus's files as they are, or from a TOML file.

Databus's own (its example relay's ``sources-or-person.json`` and ``relay_or_person.properties``)::

    {"name": "person", "id": 1, "uri": "mysql://user%2Fpassword@host:3306/<server id>/<log prefix>",
     "sources": [{"id": 40, "name": "com.example.Person", "uri": "or_test.person", "partitionFunction": "constant:1"}]}

A *physical source* is one server's binlog; its id is the physical partition of its events. A *logical source* is a
table, with an id that events carry and a name that its schemas have. The server id and the log prefix of the URI are
ignored: the relay reads the binlog by GTID, under an unused server id.

The same in TOML, with tables by pattern and passwords by reference::

    port = 11115
    schemas = "schemas_registry"
    state = "relay-state"
    [[physical]]
    name = "shop"
    id = 1
    url = "mysql://reader@db1:3306"
    password_file = "/run/secrets/db1"
    [[physical.sources]]
    id = 40
    name = "com.example.shop.Order"
    table = "shop.orders"
    [[physical.sources]]
    id = 1000
    name = "com.example"
    table = "stock.*"          # each of these tables: com.example.stock.<table>, ids from 1000 on

A pattern's tables get ids from the pattern's id on (``_names``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from headgate._policies import ColumnRules, MaskKey, Policies, checked_rules, parse_rules
from headgate.catalog import TablePatterns
from headgate.config import explain
from headgate.errors import ConfigError
from headgate.files import file_errors
from headgate.mysql import ConnectionSettings, Secret
from headgate.parsing import parse_json, parse_toml
from headgate.relay._buffer import BufferLimits
from headgate.relay._events._schemas import Types
from headgate.relay._groups import GroupLimits
from headgate.relay._scn import OF_COLUMNS, Kind
from headgate.relay._tenants import Tenant
from headgate.web import Token

__all__ = ["LARGEST_ID", "LogicalSource", "PhysicalSource", "RelayConfig", "RelayLimits", "RelayTimes", "load_relay"]

_URI_PATH: Final = re.compile(r"/([0-9]+)/[0-9a-zA-Z._-]+")
_OVERWRITES: Final = "OVERWRITE_ON_WRITE"
"""Databus's name of what the buffer does when it is full."""
_CONSTANT: Final = re.compile(r"constant:([0-9]+)")
LARGEST_ID: Final = 2**15 - 1
"""Source and partition ids are signed 16-bit numbers in events; those below 1 are reserved by Databus."""
_LARGEST_PORT: Final = 65535
_WILDCARDS: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class LogicalSource:
    """A table, or the tables of a pattern, with a name and an id."""

    id: int
    name: str
    table: str
    """``db.table``, or a pattern of that form."""
    partition: int = 1
    """The logical partition of its events (``constant:N``)."""

    @property
    def is_pattern(self) -> bool:
        """Whether ``table`` is a pattern."""
        return _WILDCARDS.search(self.table) is not None


@dataclass(frozen=True)
class PhysicalSource:
    """One server's binlog."""

    id: int
    name: str
    settings: ConnectionSettings
    sources: tuple[LogicalSource, ...]
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Its configuration in Databus's form, without the password."""

    @property
    def patterns(self) -> TablePatterns:
        """The followed tables."""
        return TablePatterns([one.table for one in self.sources])


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    """Return a path of a TOML file, which begins at the file's folder; other paths as they are."""
    return path if info.context is None else Path(info.context, path.expanduser())


_FilePath: TypeAlias = Annotated[Path, AfterValidator(_in_folder)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class _TomlSource(_Model):
    id: int = Field(ge=1, le=LARGEST_ID)
    name: str
    table: str
    partition: int = Field(1, ge=0, le=LARGEST_ID)


class _TomlPhysical(_Model):
    id: int = Field(ge=1, le=LARGEST_ID)
    name: str
    url: str
    password_env: str | None = None
    password_file: str | None = None
    sources: tuple[_TomlSource, ...] = Field(min_length=1)


class _Buffer(_Model):
    memory_bytes: int = Field(256 << 20, ge=256 << 10)
    disk_bytes: int = Field(0, ge=0)


class _TomlTenant(_Model):
    name: str
    token_env: str | None = None
    token_file: _FilePath | None = None
    sources: tuple[str, ...] | None = None
    concurrent: int | None = None
    requests_per_second: float | None = None
    bytes_per_second: float | None = None


class _Log(_Model):
    disk_bytes: int = Field(ge=1 << 20)


class _Settings(_Model):
    """Settings under the same names in the TOML file and in :class:`RelayConfig`."""

    port: int = Field(default=11115, ge=0, le=_LARGEST_PORT)
    """By default that of Databus's example relay."""
    host: str = "127.0.0.1"
    schemas: _FilePath | None = None
    """The registry's folder; None: it is in the state folder, or in memory if there is none."""
    state: _FilePath | None = None
    """Folder of positions, ids and the buffer's files; None: a restart begins without them."""
    scn: Kind = "gtid-generation"
    scn_column: str | None = None
    """``column`` or ``db.table.column``: the column that SCNs are made of, for the kinds that need one."""
    generations: _FilePath | None = None
    """The map of generations, if relays share one; else it is in the state folder."""
    groups: _FilePath | None = None
    """The folder of consumer groups, if relays share one; else it is in the state folder."""
    event_version: Literal[1, 2] = 1
    before_images: bool = False
    """Whether updates also hold the before image; event version 2 only."""
    types: Types = "exact"
    zero_dates: Literal["error", "null", "text"] = "error"
    tls_cert: _FilePath | None = None
    """The server's certificate and its chain, PEM; None: no TLS."""
    tls_key: _FilePath | None = None
    """Its key, unless it is in the same file."""


class _Toml(_Settings):
    buffer: _Buffer = Field(default_factory=lambda: _Buffer.model_validate({}))
    log: _Log | None = None
    columns: dict[str, dict[str, Any]] = Field(default_factory=dict)
    mask_key_env: str | None = None
    mask_key_file: _FilePath | None = None
    physical: tuple[_TomlPhysical, ...] = Field(min_length=1)
    tenants: tuple[_TomlTenant, ...] = ()

    _check_rules = field_validator("columns")(checked_rules)

    @model_validator(mode="after")
    def _check_mask_key(self) -> _Toml:
        if self.mask_key_env is not None and self.mask_key_file is not None:
            raise ValueError("mask_key_env and mask_key_file are both set: keep one")
        return self


@dataclass(frozen=True)
class RelayTimes:
    """Intervals of a relay, in seconds."""

    bootstrap_together: float = 10.0
    """Consumers that start a bootstrap within this time get the same start SCN and the same parts."""
    bootstrap_idle: float = 3600.0
    """A bootstrap whose start has left the buffer is deleted after this time without a request."""
    bootstrap_position: float = 0.25
    """How long a bootstrap waits for the feeder's position; then its consumer has to retry."""
    archive_wait: float = 20.0
    """How long a request for the binlog archive waits for content that is not there yet."""


@dataclass(frozen=True)
class RelayLimits:
    """Sizes of a relay's buffers and answers, in bytes, and numbers of clients."""

    buffer: BufferLimits = field(default_factory=BufferLimits)
    answer: int = 16 << 20
    """A larger answer is split into several, whatever is requested, except a single event."""
    clients: int = 1000
    """Most clients with counters, the most recent ones: there may be any number of addresses."""
    groups: GroupLimits = field(default_factory=GroupLimits)
    """Of each tenant."""


class RelayConfig(_Settings):
    """All settings of a relay.

    :raises ConfigError: no source, a repeated id or name, an invalid setting, or no folder for files.
    """

    physical: tuple[InstanceOf[PhysicalSource], ...]
    memory_bytes: int = 256 << 20
    """Of each physical source's buffer."""
    disk_bytes: int = 0
    """Of each buffer's files; 0: memory only."""
    tenants: tuple[InstanceOf[Tenant], ...] = ()
    """Clients with a token; none: every client that reaches the port has access."""
    log_disk_bytes: int = 0
    """Of the binlog archive, for readers that need the whole binlog; 0: no archive."""
    columns: ColumnRules = ()
    """Rules for columns: what they hide is in no event, row, schema or file of the relay."""
    mask_key: MaskKey | None = None
    """The key of ``hash`` rules."""
    times: InstanceOf[RelayTimes] = RelayTimes()
    limits: InstanceOf[RelayLimits] = RelayLimits()

    def changed(self, **settings: Any) -> RelayConfig:
        """Return the configuration with other values of these settings, checked like this one."""
        return RelayConfig(**{**dict(self), **settings})

    @property
    def policies(self) -> Policies:
        """How values are read; odd keys are spelled, because consumers may not miss an event."""
        return Policies(
            zero_dates=self.zero_dates, ambiguous_keys="spell", columns=self.columns, mask_key=self.mask_key
        )

    @model_validator(mode="after")
    def _check(self) -> RelayConfig:
        if not self.physical:
            raise ConfigError("no physical source is configured")
        _check_unique("physical source id", [one.id for one in self.physical])
        logical = [one for physical in self.physical for one in physical.sources]
        _check_unique("source id", [one.id for one in logical])
        _check_unique("source name", [one.name for one in logical])
        if (self.scn in OF_COLUMNS) != (self.scn_column is not None):
            raise ConfigError(f"{' and '.join(OF_COLUMNS)} need scn_column, and no other kind of SCN uses it")
        _check_unique("tenant", [one.name for one in self.tenants])
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigError("tls_key is set, but tls_cert is not")
        if self.disk_bytes and self.state is None:
            raise ConfigError("a buffer on disk needs a state folder")
        if self.log_disk_bytes and self.state is None:
            raise ConfigError("a binlog archive needs a state folder")
        if self.log_disk_bytes and self.policies.hides_values:
            raise ConfigError(
                "the binlog archive has every value as it was logged, and [columns] hides some: remove [log]"
                " (--log-disk-bytes), or serve pipelines by another relay, without these rules"
            )
        return self


def _check_unique(what: str, values: Sequence[Any]) -> None:
    for one in values:
        if values.count(one) > 1:
            raise ConfigError(f"{what} {one} is used twice")


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
        return _from_toml(_text(tomls[0]), tomls[0])
    physical = [one for file in files for one in _physical_sources(file)]
    return _from_databus(physical, {} if properties is None else _properties(_text(properties)))


def _text(file: Path) -> str:
    with file_errors(f"{file} cannot be read"):
        return file.read_text("utf-8-sig")  # some editors write a byte order mark


# --- Databus's files --------------------------------------------------------------------------------------------------


def _physical_sources(file: Path) -> list[PhysicalSource]:
    """Return those of one file, which is an object or a list of them."""
    try:
        value = parse_json(_text(file))
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    try:
        return [_physical(one) for one in (value if isinstance(value, list) else [value])]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{file}: {missing}") from None


def _from_databus(physical: Sequence[PhysicalSource], properties: Mapping[str, str]) -> RelayConfig:
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
        port=_number(settings, "container.httpPort", 11115, _LARGEST_PORT),
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
    return LogicalSource(_id(value["id"]), str(value["name"]), _table(str(value["uri"])), int(constant[1]))


def _table(name: str) -> str:
    db, dot, table = name.partition(".")
    if not (db and dot and table):
        raise ValueError(f"{name!r} is not db.table")
    return name


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


# --- TOML -------------------------------------------------------------------------------------------------------------


def _from_toml(text: str, file: Path) -> RelayConfig:
    try:
        value = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    try:
        parsed = _Toml.model_validate(value, context=file.parent)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error, _Toml)}") from None
    key_file = None if parsed.mask_key_file is None else str(parsed.mask_key_file)
    has_key = key_file is not None or parsed.mask_key_env is not None
    return RelayConfig(
        **{name: getattr(parsed, name) for name in _Settings.model_fields},
        physical=tuple(_toml_physical(one, file) for one in parsed.physical),
        memory_bytes=parsed.buffer.memory_bytes,
        disk_bytes=parsed.buffer.disk_bytes,
        tenants=tuple(_tenant(one, file) for one in parsed.tenants),
        log_disk_bytes=0 if parsed.log is None else parsed.log.disk_bytes,
        columns=parse_rules(parsed.columns),
        mask_key=MaskKey(parsed.mask_key_env, key_file) if has_key else None,
    )


def _tenant(value: _TomlTenant, file: Path) -> Tenant:
    path = value.token_file
    if (path is None) == (value.token_env is None):
        raise ConfigError(f"{file}: the tenant {value.name} needs either token_file or token_env")
    token = Token.from_env(str(value.token_env)) if path is None else Token.from_file(path)
    return Tenant(token=token, **value.model_dump(exclude={"token_env", "token_file"}))


def _toml_physical(value: _TomlPhysical, file: Path) -> PhysicalSource:
    settings = ConnectionSettings.from_url(
        value.url, password_env=value.password_env, password_file=value.password_file
    )
    try:
        sources = tuple(LogicalSource(one.id, one.name, _table(one.table), one.partition) for one in value.sources)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    listed = [
        {"id": one.id, "name": one.name, "uri": one.table, "partitionFunction": f"constant:{one.partition}"}
        for one in sources
    ]
    shown = {"name": value.name, "id": value.id, "uri": settings.url, "sources": listed}
    return PhysicalSource(value.id, value.name, settings, sources, shown)
