"""The pipeline's configuration file, as frozen values.

``pipeline.toml``::

    name = "shop"
    [source]
    url = "mysql://headgate@127.0.0.1:3306"    # password from $HEADGATE_PASSWORD, password_env or password_file
    tables = ["shop.*", "!shop.tmp_*"]          # globs on db.table; ! removes; the last match wins
    server_ids = "5400-5499"
    [target]
    path = "./lake"                             # any path that Spark can write
    mode = "current"                            # or ["current", "changelog"]
    [spark]                                     # any spark.* setting
    [tables."shop.orders"]                      # policies of one table

Every mistake is a ``ConfigError`` of one line that names the key, what is allowed there, and the nearest known key. No
password is ever part of these values: they name where it is. docs/configuration.md is made from the descriptions here
(``tools/generate_configuration.py``).
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headgate._policies import POLICY_VALUES, Bit, Json, Policies, Time, WideDecimals, Window, ZeroDates
from headgate.errors import ConfigError

__all__ = [
    "ConfigFile",
    "KafkaChannelConfig",
    "NotificationsConfig",
    "PipelineConfig",
    "SignalsConfig",
    "SnapshotMode",
    "SourceConfig",
    "TableConfig",
    "TargetConfig",
    "UiConfig",
    "WebhookConfig",
    "check_change",
    "load_config",
    "parse_config",
    "write_config",
]

log = logging.getLogger("headgate")

Mode = Literal["current", "changelog"]
SnapshotMode = Literal["initial", "initial_only", "no_data", "when_needed", "always"]

_MODES: Final[tuple[Mode, ...]] = ("current", "changelog")
_PASSWORD_NAMES: Final = frozenset({"password", "passwd", "pwd", "secret", "pass"})
_SERVER_ID_LIMIT: Final = 1 << 32
"""MySQL's server ids are 32-bit and 0 is nobody's."""
_AS_IN_SOURCE: Final = "as in `[source]`, for this table"
_URL_REMEDY: Final = "leave the password out of the URL: set HEADGATE_PASSWORD, password_env or password_file"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SourceConfig(_Model):
    """The MySQL server that is read, and how."""

    url: str = Field(description="`mysql://user@host:3306/?tls=required`, without a password")
    tables: tuple[str, ...] = Field(
        description="globs (`*`, `?`, `[…]`) on `db.table`, case-sensitive; `!` removes; the last match wins"
    )
    password_env: str | None = Field(
        None, description="environment variable that holds the password; when neither is given: `HEADGATE_PASSWORD`"
    )
    password_file: str | None = Field(
        None, description="file that holds the password; a relative path starts at the working directory"
    )
    server_ids: str | None = Field(
        None, description='server ids that reading the log may use, such as `"5400-5499"`; bounded reads need none'
    )
    chunk_rows: int = Field(250_000, ge=1, description="rows of a snapshot chunk")
    max_rows_per_batch: int | None = Field(
        None, ge=1, description="changes in a batch, roughly; a transaction is never divided"
    )
    poll_ms: int = Field(500, ge=10, le=600_000, description="milliseconds between two questions of an idle stream")
    retry_seconds: int = Field(
        600, ge=0, le=86_400, description="seconds to try again when the server cannot be reached or is behind"
    )
    snapshot_mode: SnapshotMode = Field(
        "initial",
        description="`initial`: the tables are read when the pipeline begins, then followed; `initial_only`: the run"
        " ends when they are read; `no_data`: followed from now on, and read when an `execute-snapshot` signal names"
        " them; `when_needed`: as `initial`, and read again where the server has purged the log that comes next;"
        " `always`: as `when_needed`, and at each start",
    )
    snapshot_new_tables: bool = Field(
        True,
        description="tables that appear later, or that a changed `tables` includes: `true` reads them at once; `false`"
        " follows their changes, and reads them when an `execute-snapshot` signal names them",
    )
    snapshot_cut: Literal["batch", "start"] = Field(
        "batch",
        description="the snapshot that a pipeline begins with: `batch` reads each part as of the batch that brings it,"
        " beside the live changes; `start` reads all of it as of the point in the log where the pipeline began, and"
        " live changes wait until it is done",
    )
    watermark: Literal["gtid", "signal-table", "lock"] = Field(
        "gtid",
        description="what makes the rows that are read exact: `gtid` needs nothing but read access; `lock` also locks"
        " the tables of a chunk, which tables without a key need if they are written all the time; `signal-table`"
        " writes a row to `signal_table`, and does on servers with `gtid_mode=OFF`, too",
    )
    lock_hold: Literal["setup", "read"] = Field(
        "setup", description="tables are locked until a view of them is open (`setup`), or their rows are read (`read`)"
    )
    lock_wait_seconds: int = Field(
        10, ge=1, le=240, description="seconds to wait for a table lock; then the batch is tried again"
    )
    snapshot_locking_mode: Literal["minimal", "extended", "none"] | None = Field(
        None,
        description="the snapshot that a pipeline begins with, in Debezium's words: `minimal` locks tables while a view"
        " of them is opened, `extended` until their rows are read, `none` not at all; when it is not given: as"
        " `watermark` and `lock_hold` say",
    )
    snapshot_share: float = Field(
        1.0,
        ge=0.01,
        le=1,
        description="the part of a batch's time that reading tables may take while there are live changes: with 0.5 a"
        " snapshot makes batches, and so the delay of changes, about twice as long; 1: no limit",
    )
    signal_table: str | None = Field(
        None,
        description="`db.table` with text columns `id`, `type`, `data`: rows inserted there are signals. It need not be"
        " among `tables`; if it is not, nothing of it goes to the target",
    )
    zero_dates: ZeroDates = Field(
        "error",
        description="dates that Spark cannot hold, such as 2024-00-00: `error` stops, `null` makes them NULL (an error"
        " in a key), `text` makes the table's DATE, DATETIME and TIMESTAMP columns strings in MySQL's form",
    )
    window: Window = Field(
        "rewind",
        description="rows that change while a chunk is read: `rewind` turns them back, so that the chunk is exact as of"
        " its batch, which needs `binlog_row_image=FULL`; `keep` leaves them as they were read, and the changes that"
        " follow bring them up to date; `drop` leaves them out, and the changes that follow bring them, which needs"
        " `binlog_row_image=FULL` too",
    )
    wide_decimals: WideDecimals = Field(
        "text", description="DECIMAL of more than 38 digits, which Spark's cannot hold: MySQL's `text`, or an `error`"
    )
    json_: Json = Field(
        "string",
        alias="json",
        description="JSON: a `string` in MySQL's form, or `variant`: Spark's VARIANT, which is quicker to query, but"
        " keeps of a number its value only (1.50 is 1.5), and of one with more than 38 digits a double",
    )
    time: Time = Field("text", description="TIME: MySQL's `text`, or `microseconds` as a bigint")
    bit: Bit = Field("integer", description="BIT(n): an `integer`, or `binary`: its (n + 7) / 8 bytes, big-endian")

    @field_validator("url")
    @classmethod
    def _a_server(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            host, password = parts.hostname, parts.password
        except ValueError:
            raise ValueError("expected mysql://user@host:3306") from None
        if parts.scheme != "mysql" or not host:
            raise ValueError("expected mysql://user@host:3306")
        if password is not None or any(name.lower() in _PASSWORD_NAMES for name, _ in parse_qsl(parts.query)):
            raise ValueError(_URL_REMEDY)
        return url

    @field_validator("tables")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if not any(not pattern.startswith("!") for pattern in patterns):
            raise ValueError('expected at least one pattern that does not begin with !, such as "shop.*"')
        for pattern in patterns:
            if not _is_table(pattern.removeprefix("!")):
                raise ValueError(f'{pattern!r} is no table pattern; expected db.table, such as "shop.*"')
        return patterns

    @field_validator("signal_table")
    @classmethod
    def _a_table(cls, name: str | None) -> str | None:
        if name is not None and not _is_table(name):
            raise ValueError('expected db.table, such as "shop.signals"')
        return name

    @field_validator("password_env")
    @classmethod
    def _a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("expected the name of an environment variable (it names it, it is not the password)")
        return name

    @field_validator("server_ids")
    @classmethod
    def _ids(cls, text: str | None) -> str | None:
        for part in text.split(",") if text is not None else ():
            found = re.fullmatch(r"\s*([0-9]{1,10})(?:-([0-9]{1,10}))?\s*", part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
            if not 0 < first <= last < _SERVER_ID_LIMIT:
                raise ValueError("expected numbers and ranges from 1 to 4294967295, such as 5400-5499")
        return text

    @model_validator(mode="after")
    def _fits_together(self) -> SourceConfig:
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("password_env and password_file are both set; keep one")
        if self.watermark == "signal-table" and self.signal_table is None:
            raise ValueError("watermark is signal-table; signal_table says in which table, db.table")
        return self


class TargetConfig(_Model):
    """Where the tables go: exactly one of `path` and `catalog`."""

    path: str | None = Field(
        None,
        description="folder or URI of the lake, as Spark takes it; a relative path starts at the working directory",
    )
    catalog: str | None = Field(None, description="Spark catalog for named tables (refused for now: not supported yet)")
    mode: tuple[Mode, ...] = Field(
        ("current",),
        description="`current` (each table as it is now), `changelog` (every change), or a list of both",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _as_list(cls, mode: Any) -> Any:
        values = [mode] if isinstance(mode, str) else mode
        if not isinstance(values, (list, tuple)) or not values or any(value not in _MODES for value in values):
            raise ValueError('expected "current", "changelog" or a list of them')
        return tuple(value for value in _MODES if value in values)

    @model_validator(mode="after")
    def _a_place(self) -> TargetConfig:
        if self.path and self.catalog:
            raise ValueError("target.path and target.catalog are both set; keep one")
        if self.catalog is not None:
            raise ValueError("named tables (target.catalog) are not supported yet; set target.path to a folder or URI")
        if not self.path:
            raise ValueError("target.path is missing: a folder or URI that Spark can write")
        return self


class TableConfig(_Model):
    """Policies of one table."""

    schema_changes: Literal["evolve", "strict"] = Field(
        "evolve",
        description="`evolve`: an ALTER that may change rows reads the table again; `strict`: it stops the table",
    )
    condition: str | None = Field(
        None,
        min_length=1,
        description="SQL over the table's columns: readings bring only the rows that fulfil it; changes are followed"
        " for all rows",
    )
    window: Window | None = Field(None, description=_AS_IN_SOURCE)
    zero_dates: ZeroDates | None = Field(None, description=_AS_IN_SOURCE)
    wide_decimals: WideDecimals | None = Field(None, description=_AS_IN_SOURCE)
    json_: Json | None = Field(None, alias="json", description=_AS_IN_SOURCE)
    time: Time | None = Field(None, description=_AS_IN_SOURCE)
    bit: Bit | None = Field(None, description=_AS_IN_SOURCE)
    foreign_keys: Literal["refuse", "accept"] = Field(
        "refuse",
        description="a table whose rows foreign keys change by CASCADE or SET NULL, on a server that does not log this:"
        " `refuse` ends the run before it begins, and stops a table that gets such a key later; `accept` follows what"
        " the log holds, with a warning",
    )


class UiConfig(_Model):
    """A page inside `headgate run` that shows how the pipeline is doing; `headgate ui` is the same beside it."""

    port: int | None = Field(default=None, ge=1, le=65_535, description="port of the page; none: there is no page")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; any but a loopback one needs `token_file`",
    )
    token_file: str | None = Field(
        default=None,
        description="file with a token of 16 characters or more, which allows signals; a relative path starts at the"
        " working directory",
    )


class KafkaChannelConfig(_Model):
    """A Kafka topic; the key of messages is the pipeline's name."""

    bootstrap: str = Field(min_length=1, description="`host:port` of a broker, or several, comma-separated")
    topic: str = Field(min_length=1, description="the topic")
    settings_file: str | None = Field(
        default=None,
        description="file of further settings of librdkafka, `name=value` in each line, passwords among them; a"
        " relative path starts at the working directory",
    )


class WebhookConfig(_Model):
    """A web server for notifications: each is a POST of JSON; 200 to 299 means taken."""

    url: str = Field(description="`https://…` or `http://…`, without a password")
    token_file: str | None = Field(
        default=None,
        description="file with a token, sent as `Authorization: Bearer`; a relative path starts at the working"
        " directory",
    )
    timeout_seconds: int = Field(default=10, ge=1, le=600, description="seconds that one POST may take")

    @field_validator("url")
    @classmethod
    def _a_page(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            known = False
        if not known:
            raise ValueError("expected http://host/path or https://host/path")
        if parts.password is not None:
            raise ValueError("leave the password out of the URL: put a token into token_file")
        return url


class NotificationsConfig(_Model):
    """Where the events of snapshots are told. What a channel does not take is kept in the ledger and sent again."""

    log: bool = Field(default=False, description="into the log of the run, a line of JSON each")
    table: bool = Field(default=False, description="into the Delta table `_headgate/notifications` of the lake")
    kafka: KafkaChannelConfig | None = Field(default=None, description="to a Kafka topic")
    webhook: WebhookConfig | None = Field(default=None, description="to a web server")
    wait_seconds: int = Field(
        default=10, ge=0, le=3600, description="seconds that the end of a run waits for channels that are slow or away"
    )


class SignalsConfig(_Model):
    """Where signals come from, beside the inbox (`headgate signal`, the page) and `source.signal_table`."""

    kafka: KafkaChannelConfig | None = Field(
        default=None,
        description="a topic with one partition; messages whose key is the pipeline's name are its signals",
    )


class PipelineConfig(_Model):
    """One pipeline."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$",
        description="the pipeline's name: letters, digits, `_`, `.` and `-`",
    )
    source: SourceConfig = Field(description="the MySQL server")
    target: TargetConfig = Field(description="where the tables go")
    spark: dict[str, str] = Field(
        default_factory=dict, description='any Spark setting; the prefix may be left out: `master = "local[4]"`'
    )
    signals: SignalsConfig = Field(default_factory=SignalsConfig, description="a Kafka topic with signals")
    ui: UiConfig = Field(default_factory=UiConfig, description="the page, off by default")
    notifications: NotificationsConfig = Field(
        default_factory=NotificationsConfig, description="who is told how snapshots go; nobody by default"
    )
    tables: dict[str, TableConfig] = Field(default_factory=dict, description='policies by table: `[tables."db.table"]`')

    def policies(self) -> Policies:
        """What values become, for all tables and for those with policies of their own."""
        return Policies.make(
            _policy_values(self.source), {name: _policy_values(table) for name, table in self.tables.items()}
        )

    def conditions(self) -> dict[str, str]:
        """By ``db.table``: which rows readings bring, where not all are wanted."""
        return {name: table.condition for name, table in self.tables.items() if table.condition is not None}

    def accepts_cascades(self, table: str) -> bool:
        """Whether ``db.table`` is followed although foreign keys change its rows unseen."""
        return table in self.tables and self.tables[table].foreign_keys == "accept"

    @field_validator("spark", mode="before")
    @classmethod
    def _settings(cls, given: Any) -> Any:
        flat: dict[str, str] = {}
        _flatten(given, "", flat)
        return {key if key.startswith("spark.") else f"spark.{key}": value for key, value in flat.items()}

    @field_validator("tables")
    @classmethod
    def _names(cls, tables: dict[str, TableConfig]) -> dict[str, TableConfig]:
        for name in tables:
            if not _is_table(name):
                raise ValueError(f'{name!r} is no table; expected [tables."db.table"], with the quotes')
        return tables


def _policy_values(model: _Model) -> dict[str, Any]:
    """The policies that a section sets or has by default."""
    values = model.model_dump(by_alias=True, exclude_none=True)
    return {name: values[name] for name in POLICY_VALUES if name in values}


def load_config(path: str | os.PathLike[str]) -> PipelineConfig:
    """Read and check a pipeline file; relative paths in it start at the working directory.

    :raises ConfigError: no such file, not TOML, or a wrong key or value.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; headgate init writes one") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8, so it is not TOML") from None
    return parse_config(text, where=str(file))


class ConfigFile:
    """A pipeline file that may change while its pipeline runs.

    What a running pipeline takes over is ``[source]`` and ``[tables]``; a file that is wrong, or that changes anything
    else, is refused with a warning, once, and the configuration before stays in force.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """:raises ConfigError: as :func:`load_config`."""
        self.path = Path(path)
        self._seen = self._look()
        self.config = load_config(path)

    def reread(self, *, asked: bool = False) -> PipelineConfig | None:
        """The new configuration, if the file has changed and is right; :meth:`take` makes it the one in force.

        :param asked: read the file even if it looks the same.
        """
        now = self._look()
        if now == self._seen and not asked:
            return None
        self._seen = now
        try:
            found = load_config(self.path)
        except ConfigError as error:
            self.refuse(error.message)
            return None
        try:
            check_change(self.config, found)
        except ConfigError as error:
            self.refuse(error.message)
            return None
        return found if found != self.config else None

    def take(self, config: PipelineConfig) -> None:
        """It is in force now."""
        self.config = config
        log.info("%s: the new configuration is in force", self.path)

    def refuse(self, reason: str) -> None:
        """It cannot be followed."""
        log.warning("%s changed and is not followed: %s", self.path, reason)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def check_change(before: PipelineConfig, after: PipelineConfig) -> None:
    """Whether a running pipeline can take over ``after``.

    :raises ConfigError: more than ``[source]`` and ``[tables]`` is different.
    """
    others = [name for name in PipelineConfig.model_fields if name not in ("source", "tables")]
    fixed = [name for name in others if getattr(after, name) != getattr(before, name)]
    if fixed:
        raise ConfigError(f"{fixed[0]} changed: stop the pipeline and run it again for that")


def write_config(path: str | os.PathLike[str], text: str) -> None:
    """Put ``text`` in place of a pipeline file, whole or not at all; its permissions stay.

    :raises OSError: it cannot be written.
    """
    file = Path(path).resolve()  # a link stays one
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file, name)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def parse_config(text: str, *, where: str = "pipeline.toml", folder: Path | None = None) -> PipelineConfig:
    """Check a pipeline file's text.

    :param where: the file's name, for messages.
    :param folder: where relative paths in it start (the working directory).
    :raises ConfigError: not TOML, or a wrong key or value.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    _resolve(value, "target", "path", folder or Path.cwd())
    _resolve(value, "source", "password_file", folder or Path.cwd())
    _resolve(value, "ui", "token_file", folder or Path.cwd())
    for section in ("notifications", "signals"):
        _resolve(value, f"{section}.kafka", "settings_file", folder or Path.cwd())
    _resolve(value, "notifications.webhook", "token_file", folder or Path.cwd())
    try:
        return PipelineConfig.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explain(error)}") from None


def _is_table(text: str) -> bool:
    db, dot, table = text.partition(".")
    return bool(db and dot and table)


def _resolve(value: dict[str, Any], section: str, key: str, folder: Path) -> None:
    """Make a relative path absolute; URIs (``s3://…``, ``file:/…``) stay as they are."""
    table: Any = value
    for name in section.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    path = table.get(key) if isinstance(table, dict) else None
    if isinstance(path, str) and path and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        table[key] = os.path.normpath(folder / os.path.expanduser(path))  # noqa: PTH111 - leaves ~nobody as it is


def _flatten(given: Any, prefix: str, out: dict[str, str]) -> None:
    if not isinstance(given, dict):
        raise ValueError("expected a table of spark.* settings")  # noqa: TRY004 - pydantic takes no other
    for key, value in given.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _flatten(value, f"{name}.", out)
        elif isinstance(value, bool):
            out[name] = str(value).lower()
        else:
            out[name] = str(value)


def _explain(error: ValidationError) -> str:
    """The first mistake, in one line."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = sorted(field.alias or name for name, field in _model_at(place[:-1]).model_fields.items())
        near = difflib.get_close_matches(place[-1], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown key {'.'.join(place)}{hint} (known there: {', '.join(known)})"
    if first["type"] == "missing":
        return f"{'.'.join(place)} is missing: {_description(place)}"
    text = " ".join(first["msg"].removeprefix("Value error, ").split())
    return f"{'.'.join(place)}: {text}" if place else text


def _model_at(place: list[str]) -> type[BaseModel]:
    models: dict[str, type[BaseModel]] = {
        "source": SourceConfig, "target": TargetConfig, "tables": TableConfig, "ui": UiConfig,
        "notifications": NotificationsConfig, "notifications.kafka": KafkaChannelConfig,
        "notifications.webhook": WebhookConfig,
        "signals": SignalsConfig, "signals.kafka": KafkaChannelConfig,
    }  # fmt: skip
    return models.get(".".join(place)) or models.get(place[0], PipelineConfig) if place else PipelineConfig


def _description(place: list[str]) -> str:
    return (_model_at(place[:-1]).model_fields[place[-1]].description or "").replace("`", "")
