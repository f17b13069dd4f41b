"""Options of the ``mysql-cdc`` source: strings from the user, checked, as one frozen value.

Spark shows options in its UI, in plans and in event logs, so no option is a secret. Options name an environment
variable or a file, which is read when a connection is opened.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from headgate._policies import (
    DEFAULT,
    KEEP,
    OPERATIONS,
    POLICY_VALUES,
    ColumnRules,
    Hook,
    MaskKey,
    Operation,
    Policies,
    is_function,
    ordered_operations,
    parse_rules,
)
from headgate.binlog_positions import parse_start
from headgate.control import KafkaTopic
from headgate.errors import ConfigError
from headgate.gtid import GtidSet

if TYPE_CHECKING:
    from headgate.archive import LogOfRelay
    from headgate.mysql import ConnectionSettings
    from headgate.snapshot import TableLocks

__all__ = ["OPTION_NAMES", "Options"]

log = logging.getLogger("headgate")

_HELP = {
    "append": 'carrier: leave out changes of key ranges that the first snapshot has not read yet ("true")',
    "as_of": "batch reads: the GTID set to read the tables at; default: everything executed now",
    "bit": '"integer" (default) or "binary": BIT; by table as zero_dates',
    "chunk_rows": "rows of a snapshot chunk (250000)",
    "columns": "rules for columns, as a JSON object: pattern on db.table, pattern on columns, rule: "
    '{"*.*": {"password": "exclude", "email": "hash"}}',
    "conditions": "SQL conditions by table, as a JSON object: only rows that fulfil them are read; changes are "
    "followed for all rows",
    "control_path": "folder of JSON files by which sinks and commands reach the planner",
    "decimals": '"decimal" (default), "text" or "double" (may round; not in keys): DECIMAL; by table as zero_dates',
    "end": "batch reads of changes: the GTID set at which they end; default: everything executed now",
    "epoch": "lowest epoch of the next batch (the ledger's highest)",
    "hooks": "functions that make a table's columns (docs/hooks.md), by table as a JSON object: "
    """{"db.t": {"function": "module:function", "version": "1"}}""",
    "images": '"keys": before-images only where a key changed; "all" (default: keys with `table`, else all)',
    "images_path": "carrier: folder on this machine for large record batches, which rows then name instead of having "
    "them; all tasks must run here, and the consumer removes the files",
    "json": '"string" (default) or, for the sinks of a pipeline, "variant"; by table as zero_dates',
    "keys": "columns that identify the rows of a table without a key, by table as a JSON object: "
    """{"db.t": ["a", "b"]}; a sink has to prove that no two rows have the same""",
    "lock_hold": 'with table locks: until the view of a chunk is open ("setup", default), or its rows read ("read")',
    "lock_wait_seconds": "longest wait for a table lock (10)",
    "mask_key_env": 'environment variable that holds the key of rules "hash"',
    "mask_key_file": 'file that holds the key of rules "hash"',
    "max_rows_per_batch": "changes in a batch, roughly; a transaction is never divided",
    "meta": 'batch reads of one table: "false" leaves out _op, _seq, _gtid, _ts, _table',
    "new_tables": '"read" (default) or "wait" for an execute-snapshot signal: tables that appear later',
    "partial_rows": 'batch reads of one table: rows that change meanwhile with partial row images: "error" (default) '
    'or "tell": a column _absent lists the unknown columns of a row (JSON)',
    "poll_ms": "shortest time between two queries of an idle stream (500)",
    "relay": "http://host:port of a relay; the log is read from there instead of the server",
    "relay_ca_file": "PEM file with the certificates to trust, for a relay with https; else the system's",
    "relay_fallback": 'log that the relay no longer has: "false" (default): an error; "true": it is read from the '
    "server",
    "relay_source": "the relay's physical source, by name, if it has several",
    "relay_token_file": "file that holds the token that the relay requires",
    "retry_seconds": "how long the planner retries when the server cannot be reached or is behind (600)",
    "rows": "which rows belong to a table, by table as a JSON object; an update in or out is an insert or delete: "
    """{"db.t": "country = 'DE' AND amount > 10"}""",
    "secret_env": "environment variable that holds the password (HEADGATE_PASSWORD)",
    "secret_file": "file that holds the password",
    "signal_table": "db.table with columns id, type, data; rows inserted there are signals, and watermark writes there",
    "signal_topic": 'signals from a Kafka topic: {"bootstrap": …, "topic": …, "key": …, "settings_file": …}; the file '
    "is optional and holds settings of librdkafka, name=value in each line",
    "skip": "operations of a stream to leave out, as a JSON list of insert, update, delete, truncate; or by table: "
    """{"*": ["truncate"], "db.t": ["delete", "truncate"]}""",
    "slots": "tasks of a batch (the driver's number of processors)",
    "snapshot_cut": 'the snapshot that a stream begins with: each batch exact at its own end ("batch", default), or '
    'all of it at the stream\'s beginning ("start"), while live changes wait',
    "snapshot_locking_mode": 'the snapshot that a stream begins with, in Debezium\'s words: "minimal" (lock tables '
    'while a view is opened), "extended" (until rows are read), "none" (no locks); default: by watermark',
    "snapshot_mode": '"initial" (default), "initial_only" (changes only as long as tables are being read) or "no_data" '
    "(follow changes, read on a signal): streams that start with a snapshot, or have this and a start",
    "snapshot_share": "the part of a batch's time that reading chunks may take, next to live changes (1: no limit)",
    "start": '"snapshot" (default), "current", "earliest", a time such as 2026-01-02T03:04:05Z, "file:position" '
    "of a server without GTIDs, or a GTID set: everything already read",
    "table": "one table, typed columns",
    "tables": "patterns on db.table, comma-separated or a JSON list",
    "unsigned_bigint": '"decimal" (default: 20 digits) or "bigint" (larger values are an error): BIGINT UNSIGNED; '
    "by table as zero_dates",
    "url": "mysql://user@host:3306/?tls=required, without a password",
    "time": '"text" (default) or "microseconds" (bigint): TIME; by table as zero_dates',
    "watermark": 'what makes a chunk exact: GTIDs alone ("gtid", default), table locks in addition ("lock"), or a row '
    'written to signal_table ("signal-table"), for which gtid_mode may be OFF',
    "wide_decimals": '"text" (default) or "error": DECIMAL of more than 38 digits; by table as zero_dates',
    "window": 'rows that change while a chunk is read: "rewind" (default), "keep" or "drop"; by table as zero_dates',
    "zero_dates": '"error" (default), "null" or "text" (dates become strings): dates that Spark cannot hold; '
    'by table as a JSON object: {"*": …, "db.t": …}',
}
OPTION_NAMES = tuple(sorted(_HELP))
"""Every option, in lower case as Spark passes them."""

_PASSWORD_NAMES = frozenset({"password", "passwd", "pwd", "secret", "pass"})
_LOCKING_MODES: Mapping[str, Literal["setup", "read"] | None] = {"minimal": "setup", "extended": "read", "none": None}
"""Debezium's ``snapshot.locking.mode``, and how long a lock is held."""


@dataclass(frozen=True)
class Options:
    """The parsed options. :meth:`parse` reports what is wrong with them in one line."""

    url: str
    secret_env: str | None = None
    secret_file: str | None = None
    patterns: tuple[str, ...] = ()
    """Patterns on ``db.table``; with ``table``, only that one."""
    table: str | None = None
    control_path: str | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By ``db.table``."""
    chunk_rows: int = 250_000
    slots: int = field(default_factory=lambda: os.cpu_count() or 1)
    max_rows_per_batch: int | None = None
    images: Literal["all", "keys"] = "all"
    images_path: str | None = None
    policies: Policies = DEFAULT
    poll_seconds: float = 0.5
    retry_seconds: float = 600.0
    start: str | None = None
    """``snapshot``, ``current``, ``earliest`` or a GTID set; None: not given."""
    end: str | None = None
    as_of: str | None = None
    epoch: int = 0
    meta: bool = True
    append: bool = True
    new_tables: Literal["read", "wait"] = "read"
    snapshot_cut: Literal["batch", "start"] = "batch"
    snapshot_locking_mode: Literal["minimal", "extended", "none"] | None = None
    watermark: Literal["gtid", "signal-table", "lock"] = "gtid"
    lock_hold: Literal["setup", "read"] = "setup"
    lock_wait_seconds: int = 10
    snapshot_mode: Literal["initial", "initial_only", "no_data"] = "initial"
    follows_tables: bool = True
    """Whether the stream has states of tables, to read them now or on a signal."""
    signal_table: str | None = None
    signal_topic: KafkaTopic | None = None
    snapshot_share: float = 1.0
    partial_rows: Literal["error", "tell"] = "error"
    relay: str | None = None
    relay_source: str | None = None
    relay_token_file: str | None = None
    relay_ca_file: str | None = None
    relay_fallback: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Parse Spark's options.

        :raises ConfigError: an unknown option, an invalid value, a password.
        """
        values = {name.lower(): value for name, value in options.items()}
        for name in values:
            _check_name(name)
        table = values.get("table")
        patterns = (_exact(table),) if table is not None else _patterns(values.get("tables"))
        if table is not None and "tables" in values:
            raise ConfigError("both options table and tables are given; table is for one typed table, tables for many")
        if table is not None and "signal_table" in values and _watermark(values) != "signal-table":
            raise ConfigError('option "signal_table" is for streams of many tables, whose sinks pass signals on')
        policies = _policies(values)
        report_absent = _choice(values, "partial_rows", "error", ("error", "tell")) == "tell"
        if report_absent and (table is None or policies.of(table).window != "rewind"):
            raise ConfigError('option "partial_rows" = "tell" needs option "table", and window = "rewind"')
        if table is not None and policies.of(table).json == "variant":
            raise ConfigError(
                'option "json" is "variant", which a data source in Python cannot pass to Spark: leave it out, and use '
                "parse_json(column) on the text; in a pipeline the sinks do this"
            )
        return cls(
            url=_url(values.get("url")),
            secret_env=_secret_env(values),
            secret_file=values.get("secret_file"),
            patterns=patterns,
            table=table,
            control_path=values.get("control_path"),
            conditions=_conditions(values.get("conditions")),
            chunk_rows=_number(values, "chunk_rows", 250_000, 1),
            slots=_number(values, "slots", os.cpu_count() or 1, 1),
            max_rows_per_batch=_number(values, "max_rows_per_batch", 0, 0) or None,
            images=_choice(values, "images", "all" if table is None else "keys", ("all", "keys")),  # type: ignore[arg-type]
            images_path=values.get("images_path"),
            policies=policies,
            poll_seconds=_number(values, "poll_ms", 500, 1) / 1000,
            retry_seconds=float(_number(values, "retry_seconds", 600, 0)),
            start=_start(values.get("start")),
            end=_gtids(values, "end"),
            as_of=_gtids(values, "as_of"),
            epoch=_number(values, "epoch", 0, 0),
            meta=_choice(values, "meta", "true", ("true", "false")) == "true",
            append=_choice(values, "append", "true", ("true", "false")) == "true",
            new_tables=_choice(values, "new_tables", "read", ("read", "wait")),  # type: ignore[arg-type]
            snapshot_cut=_choice(values, "snapshot_cut", "batch", ("batch", "start")),  # type: ignore[arg-type]
            snapshot_locking_mode=_locking_mode(values),
            watermark=_watermark(values),
            lock_hold=_choice(values, "lock_hold", "setup", ("setup", "read")),  # type: ignore[arg-type]
            lock_wait_seconds=_number(values, "lock_wait_seconds", 10, 1),
            snapshot_mode=_choice(  # type: ignore[arg-type]
                values, "snapshot_mode", "initial", ("initial", "initial_only", "no_data")
            ),
            follows_tables=(values.get("start") or "snapshot") == "snapshot" or bool(values.get("snapshot_mode")),
            signal_table=_signal_table(values.get("signal_table")),
            signal_topic=_signal_topic(values.get("signal_topic")),
            snapshot_share=_share(values.get("snapshot_share")),
            partial_rows="tell" if report_absent else "error",
            relay=_relay(values),
            relay_source=values.get("relay_source"),
            relay_token_file=values.get("relay_token_file"),
            relay_ca_file=values.get("relay_ca_file"),
            relay_fallback=_choice(values, "relay_fallback", "false", ("true", "false")) == "true",
        )

    def locks(self, *, initial: bool) -> TableLocks | None:
        """Return how chunks lock their tables; None: no locks.

        :param initial: whether they belong to the stream's first snapshot.
        """
        from headgate.snapshot import TableLocks

        if initial and self.snapshot_locking_mode is not None:
            hold = _LOCKING_MODES[self.snapshot_locking_mode]
        else:
            hold = self.lock_hold if self.watermark == "lock" else None
        return None if hold is None else TableLocks(hold, self.lock_wait_seconds)

    def settings(self) -> ConnectionSettings:
        """Return how to connect; holds the name of the secret, not the secret."""
        from headgate.mysql import ConnectionSettings

        return ConnectionSettings.from_url(
            self.url, password_env=self.secret_env, password_file=self.secret_file, log=self.log_of_relay()
        )

    def log_of_relay(self) -> LogOfRelay | None:
        """Return the relay from which the log is read; None: it is read from the server."""
        if self.relay is None:
            return None
        from headgate.archive import LogOfRelay

        return LogOfRelay(
            self.relay, self.relay_source, self.relay_token_file, self.relay_ca_file, falls_back=self.relay_fallback
        )


def _check_name(name: str) -> None:
    if name in _HELP:
        return
    if name == "server_ids":  # a data source's dumps have no id
        log.warning("option server_ids does nothing; remove it")
        return
    if name in _PASSWORD_NAMES:
        raise ConfigError(
            f"option {name} is refused: Spark shows options in its UI, plans and event logs; put the password into an "
            'environment variable or a file and name it with option "secret_env" or "secret_file"'
        )
    near = difflib.get_close_matches(name, OPTION_NAMES, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; known options: {', '.join(OPTION_NAMES)}"
    raise ConfigError(f"unknown option {name}{hint}")


def _url(url: str | None) -> str:
    if not url:
        raise ConfigError('option "url" is missing, such as mysql://user@host:3306')
    parts = urlsplit(url)
    if parts.password is not None or any(
        part.split("=")[0].lower() in _PASSWORD_NAMES for part in parts.query.split("&")
    ):
        raise ConfigError(
            'option "url" holds a password, and Spark shows options in its UI, plans and event logs; put it into an '
            'environment variable or a file and name it with option "secret_env" or "secret_file"'
        )
    if parts.scheme != "mysql" or not parts.hostname:
        shown = f"{parts.scheme}://{unquote(parts.hostname or '')}"
        raise ConfigError(f'option "url" is {shown!r}; expected mysql://user@host:3306')
    return url


def _relay(values: Mapping[str, str]) -> str | None:
    url = values.get("relay")
    if url is None:
        for name in ("relay_source", "relay_token_file", "relay_ca_file", "relay_fallback"):
            if name in values:
                raise ConfigError(f'option "{name}" needs option "relay", such as http://host:11115')
        return None
    parts = urlsplit(url)
    if parts.username is not None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError('option "relay" is not the address of a relay, such as http://host:11115')
    if _watermark(values) == "signal-table":
        raise ConfigError('options "relay" and "watermark=signal-table" do not go together: a relay\'s log has GTIDs')
    return url


def _secret_env(values: Mapping[str, str]) -> str | None:
    name = values.get("secret_env")
    if name is None:
        return None
    if "secret_file" in values:
        raise ConfigError("both options secret_env and secret_file are given; keep the one that names your password")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(
            'option "secret_env" is not the name of an environment variable (it names it, it is not the password)'
        )
    return name


def _patterns(text: str | None) -> tuple[str, ...]:
    if text is None or not text.strip():
        raise ConfigError('option "tables" (patterns such as shop.*) or "table" (one typed table) is missing')
    if text.lstrip().startswith("["):
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, list) and parsed and all(isinstance(item, str) for item in parsed):
            return _checked(tuple(parsed))
        if text.rstrip().endswith('"]') or parsed is not None:
            raise ConfigError(f'option "tables" is not a JSON list of patterns: {text}')
    return _checked(tuple(part.strip() for part in text.split(",") if part.strip()))


def _checked(patterns: tuple[str, ...]) -> tuple[str, ...]:
    from headgate.catalog import TablePatterns

    return TablePatterns(patterns).patterns


def _exact(table: str) -> str:
    """Return a pattern for one table."""
    from headgate.catalog import exact_pattern

    db, dot, name = table.partition(".")
    if not (db and dot and name):
        raise ConfigError(f'option "table" is {table!r}; expected db.table')
    return exact_pattern(table)


def _signal_table(name: str | None) -> str | None:
    if name is not None and not all(name.partition(".")):
        raise ConfigError(f'option "signal_table" is {name!r}; expected db.table')
    return name


def _share(text: str | None) -> float:
    if text is None:
        return 1.0
    if not re.fullmatch(r"[01]|[01]?\.[0-9]{1,9}", text.strip()) or not 0 < float(text) <= 1:
        raise ConfigError(f'option "snapshot_share" is {text!r}; expected a number above 0, at most 1')
    return float(text)


def _signal_topic(text: str | None) -> KafkaTopic | None:
    if text is None:
        return None
    try:
        return KafkaTopic.from_json(text)
    except ConfigError as error:
        raise ConfigError(f'option "signal_topic": {error.message}') from None


def _number(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < least:
        raise ConfigError(f'option "{name}" is {text!r}; expected a whole number of at least {least}')
    return int(text)


def _choice(values: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = values.get(name, default).lower()
    if value not in allowed:
        raise ConfigError(f'option "{name}" is {value!r}; expected {" or ".join(allowed)}')
    return value


def _watermark(values: Mapping[str, str]) -> Literal["gtid", "signal-table", "lock"]:
    watermark = _choice(values, "watermark", "gtid", ("gtid", "signal-table", "lock"))
    if watermark == "signal-table" and not values.get("signal_table"):
        raise ConfigError('option "watermark" is "signal-table", which needs option "signal_table", db.table')
    return watermark  # type: ignore[return-value]


def _locking_mode(values: Mapping[str, str]) -> Literal["minimal", "extended", "none"] | None:
    if "snapshot_locking_mode" not in values:
        return None
    return _choice(values, "snapshot_locking_mode", "none", tuple(_LOCKING_MODES))  # type: ignore[return-value]


def _policies(values: Mapping[str, str]) -> Policies:
    """Return the policies of the options: a value for all tables, or ``{"*": value, "db.table": value}``."""
    default: dict[str, str] = {}
    tables: dict[str, dict[str, Any]] = {}
    for name, allowed in POLICY_VALUES.items():
        text = values.get(name, allowed[0]).strip()
        try:
            by_table = json.loads(text) if text.startswith("{") else {"*": text}
        except ValueError:
            by_table = {}
        if not by_table or any(str(value).lower() not in allowed for value in by_table.values()):
            example = f'{{"*": "{allowed[0]}", "db.t": "{allowed[1]}"}}'
            raise ConfigError(f'option "{name}" is {text!r}; expected {" or ".join(allowed)}, or by table: {example}')
        chosen = {table: value.lower() for table, value in by_table.items()}
        default[name] = chosen.pop("*", allowed[0])
        for table, value in chosen.items():
            tables.setdefault(table, {})[name] = value
    skips = _skips(values)
    more = {"columns": _column_rules(values), "mask_key": _mask_key(values), "skip": skips.pop("*", ())}
    for table, text in _rows(values).items():
        tables.setdefault(table, {})["rows"] = text
    for table, hook in _hooks(values).items():
        tables.setdefault(table, {})["hook"] = hook
    for table, key in _keys(values).items():
        tables.setdefault(table, {})["key"] = key
    for table, operations in skips.items():
        tables.setdefault(table, {})["skip"] = operations
    return Policies.make({**default, **more}, tables)


def _rows(values: Mapping[str, str]) -> dict[str, str]:
    """Return the expressions of the option ``rows`` by table."""
    if "rows" not in values:
        return {}
    from headgate.columns import parse_expression

    try:
        rows = json.loads(values["rows"])
        if not isinstance(rows, dict) or not all(isinstance(one, str) for one in rows.values()):
            raise ValueError("""expected expressions by table, such as {"shop.orders": "amount > 10"}""")
        for text in rows.values():
            parse_expression(text)
    except ValueError as error:
        raise ConfigError(f'option "rows": {error}') from None
    if _signal_table(values.get("signal_table")) in rows:
        raise ConfigError('option "rows" names the signal table, whose rows are signals: leave it out')
    return rows


def _hooks(values: Mapping[str, str]) -> dict[str, Hook]:
    """Return the hooks of the option ``hooks`` by table."""
    try:
        given = json.loads(values.get("hooks", "{}"))
        if not all(is_function(one["function"]) and isinstance(one.get("version", ""), str) for one in given.values()):
            raise ValueError
        hooks = {table: Hook(**one) for table, one in given.items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ConfigError(
            """option "hooks" is not a JSON object of functions by table, such as {"db.t": {"function":"""
            """ "module:function", "version": "1"}}"""
        ) from None
    if _signal_table(values.get("signal_table")) in hooks:
        raise ConfigError('option "hooks" names the signal table, whose rows are signals: leave it out')
    return hooks


def _keys(values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the keys of the option ``keys`` by table."""
    try:
        keys = json.loads(values.get("keys", "{}"))
    except ValueError:
        keys = None
    if not isinstance(keys, dict) or not all(
        isinstance(one, list) and one and all(isinstance(name, str) for name in one) for one in keys.values()
    ):
        raise ConfigError("""option "keys" is not a JSON object of columns by table, such as {"db.t": ["a", "b"]}""")
    return {table: tuple(names) for table, names in keys.items()}


def _skips(values: Mapping[str, str]) -> dict[str, tuple[Operation, ...]]:
    """Return the operations of the option ``skip`` by table, ``*`` for all others."""
    try:
        given = json.loads(values.get("skip", "[]"))
        by_table = given if isinstance(given, dict) else {"*": given}
        if not all(isinstance(one, list) and {*one} <= {*OPERATIONS} for one in by_table.values()):
            raise ValueError
    except (ValueError, TypeError):
        raise ConfigError(
            f'option "skip" is {values["skip"]!r}; expected a JSON list of {", ".join(OPERATIONS)}, or such lists by'
            """ table: {"*": ["truncate"], "db.t": ["delete"]}"""
        ) from None
    return {table: ordered_operations(chosen) for table, chosen in by_table.items()}


def _column_rules(values: Mapping[str, str]) -> ColumnRules:
    """Return the rules for columns. The signal table has none: signals are read from its columns."""
    text = values.get("columns", "{}")
    try:
        rules = parse_rules(json.loads(text))
    except ValueError as error:
        raise ConfigError(f'option "columns": {error}') from None
    signal_table = _signal_table(values.get("signal_table"))
    if not rules or signal_table is None:
        return rules
    from headgate.catalog import exact_pattern

    return (*rules, (exact_pattern(signal_table), (("*", KEEP),)))


def _mask_key(values: Mapping[str, str]) -> MaskKey | None:
    env, file = values.get("mask_key_env"), values.get("mask_key_file")
    if env is not None and file is not None:
        raise ConfigError("both options mask_key_env and mask_key_file are given; keep one")
    return MaskKey(env, file) if env or file else None


def _conditions(text: str | None) -> Mapping[str, str]:
    from headgate.control import check_filter

    if text is None:
        return {}
    try:
        conditions = json.loads(text)
    except ValueError:
        conditions = None
    if not isinstance(conditions, dict) or not all(isinstance(one, str) for one in conditions.values()):
        raise ConfigError('option "conditions" is not a JSON object such as {"db.t": "id > 5"}')
    return {table: check_filter(condition) for table, condition in conditions.items()}


def _start(text: str | None) -> str | None:
    if text is None or text.lower() in ("snapshot", "current", "earliest"):
        return None if text is None else text.lower()
    parse_start(text)
    return text


def _gtids(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name)
    return None if text is None else str(GtidSet.parse(text))
