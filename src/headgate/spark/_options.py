"""Options of the ``mysql-cdc`` source: strings from the user, checked, as one frozen value.

Each option is declared once: a field of :class:`Options` with its help and what reads its text; options that together
make another value, the policies or the patterns, are in a mapping of their own. An option that is a key of
``[source]``, too, has its help there. docs/spark.md has the help texts.

Spark shows options in its UI, in plans and in event logs, so no option is a secret. Options name an environment
variable or a file, which is read when a connection is opened.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

from headgate.control import KafkaTopic
from headgate.errors import ConfigError
from headgate.parsing import parse_json
from headgate.policies import DEFAULT, Policies
from headgate.positions import parse_position, parse_start
from headgate.spark._policy_options import POLICY_HELP, parse_policies

if TYPE_CHECKING:
    from headgate.mysql import ConnectionSettings
    from headgate.relay.archive import LogOfRelay
    from headgate.snapshot import TableLocks

__all__ = ["OPTION_HELP", "Options"]

log = logging.getLogger("headgate")

_PASSWORD_NAMES: Final = frozenset({"password", "passwd", "pwd", "secret", "pass"})
_LOCKING_MODES: Final[Mapping[str, Literal["setup", "read"] | None]] = {
    "minimal": "setup",
    "extended": "read",
    "none": None,
}
"""Debezium's ``snapshot.locking.mode``, and how long a lock is held."""


# --- what reads the text of an option: (its name, the text) → its value; ConfigError if the text is wrong


def _text(name: str, text: str) -> str:
    del name
    return text


def _number(least: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < least:
            raise ConfigError(f'option "{name}" is {text!r}; expected a whole number of at least {least}')
        return int(text)

    return read


def _limit(name: str, text: str) -> int | None:
    return _number(0)(name, text) or None


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        value = text.lower()
        if value not in allowed:
            raise ConfigError(f'option "{name}" is {value!r}; expected {" or ".join(allowed)}')
        return value

    return read


def _flag(name: str, text: str) -> bool:
    return _choice("true", "false")(name, text) == "true"


def _share(name: str, text: str) -> float:
    if not re.fullmatch(r"[01]|[01]?\.[0-9]{1,9}", text.strip()) or not 0 < float(text) <= 1:
        raise ConfigError(f'option "{name}" is {text!r}; expected a number above 0, at most 1')
    return float(text)


def _table(name: str, text: str) -> str:
    if not all(text.partition(".")):
        raise ConfigError(f'option "{name}" is {text!r}; expected db.table')
    return text


def _gtids(name: str, text: str) -> str:
    del name
    return str(parse_position(text))


def _start(name: str, text: str) -> str:
    del name
    if text.lower() in ("snapshot", "current", "earliest"):
        return text.lower()
    parse_start(text)
    return text


def _url(name: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.password is not None or any(
        part.split("=")[0].lower() in _PASSWORD_NAMES for part in parts.query.split("&")
    ):
        raise ConfigError(
            f'option "{name}" holds a password, and Spark shows options in its UI, plans and event logs; put it into an'
            ' environment variable or a file and name it with option "secret_env" or "secret_file"'
        )
    if parts.scheme != "mysql" or not parts.hostname:
        shown = f"{parts.scheme}://{unquote(parts.hostname or '')}"
        raise ConfigError(f'option "{name}" is {shown!r}; expected mysql://user@host:3306')
    return text


def _variable(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ConfigError(
            f'option "{name}" is not the name of an environment variable (it names it, it is not the password)'
        )
    return text


def _relay(name: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.username is not None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f'option "{name}" is not the address of a relay, such as http://host:11115')
    return text


def _topic(name: str, text: str) -> KafkaTopic:
    try:
        return KafkaTopic.from_json(text)
    except ConfigError as error:
        raise ConfigError(f'option "{name}": {error.message}') from None


def _conditions(name: str, text: str) -> Mapping[str, str]:
    from headgate.control import check_filter

    try:
        conditions = parse_json(text)
    except ValueError:
        conditions = None
    if not isinstance(conditions, dict) or not all(isinstance(one, str) for one in conditions.values()):
        raise ConfigError(f'option "{name}" is not a JSON object such as {{"db.t": "id > 5"}}')
    return {table: check_filter(condition) for table, condition in conditions.items()}


def _option(read: Callable[[str, str], Any], help_text: str = "", default: Any = None) -> Any:
    """Return a field whose name is the option's.

    :param help_text: what it means; ``""``: the same as the key of ``[source]`` with its name.
    :param default: the value without the option; a function returns it.
    """
    metadata = {"read": read, "help": help_text}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """The parsed options. :meth:`parse` reports what is wrong with them in one line."""

    url: str = _option(_url, "mysql://user@host:3306/?tls=required, without a password", "")
    secret_env: str | None = _option(_variable, "environment variable that holds the password (HEADGATE_PASSWORD)")
    secret_file: str | None = _option(_text, "file that holds the password")
    patterns: tuple[str, ...] = ()
    """Patterns on ``db.table``; with ``table``, only that one."""
    table: str | None = _option(_text, "one table, typed columns")
    control_path: str | None = _option(_text, "folder of JSON files by which sinks and commands reach the planner")
    conditions: Mapping[str, str] = _option(
        _conditions,
        "SQL conditions by table, as a JSON object: only rows that fulfil them are read; changes are followed for all "
        "rows",
        dict,
    )
    chunk_rows: int = _option(_number(1), default=250_000)
    slots: int = _option(
        _number(1), "tasks of a batch (the driver's number of processors)", lambda: os.cpu_count() or 1
    )
    max_rows_per_batch: int | None = _option(_limit)
    images: Literal["all", "keys"] = _option(
        _choice("all", "keys"),
        '"keys": before-images only where a key changed; "all" (default: keys with `table`, else all)',
        "all",
    )
    images_path: str | None = _option(
        _text,
        "carrier: folder or URI for large record batches, which rows then name instead of having them; all tasks must "
        "reach it, and the consumer removes the files",
    )
    policies: Policies = DEFAULT
    poll_ms: int = _option(_number(1), default=500)
    retry_seconds: int = _option(_number(0), default=600)
    start: str | None = _option(
        _start,
        '"snapshot" (default), "current", "earliest", a time such as 2026-01-02T03:04:05Z, "file:position" of a '
        "server without GTIDs, or a GTID set: everything already read",
    )
    end: str | None = _option(
        _gtids, "batch reads of changes: the GTID set at which they end; default: everything executed now"
    )
    as_of: str | None = _option(
        _gtids, "batch reads: the GTID set to read the tables at; default: everything executed now"
    )
    applied: str | None = _option(
        _gtids,
        "GTID set that the sinks have applied (the ledger's newest): where a stream without a checkpoint resumes",
    )
    epoch: int = _option(_number(0), "epoch of the newest batch that the sinks have applied (the ledger's newest)", 0)
    written_epoch: int = _option(_number(0), "epoch of the newest batch that wrote to a sink, applied or not", 0)
    meta: bool = _option(_flag, 'batch reads of one table: "false" leaves out _op, _seq, _gtid, _ts, _table', True)
    append: bool = _option(
        _flag, 'leave out changes of key ranges that the first snapshot has not read yet ("true")', True
    )
    new_tables: Literal["read", "wait"] = _option(
        _choice("read", "wait"),
        '"read" (default) or "wait" for an execute-snapshot signal: tables that appear later',
        "read",
    )
    snapshot_cut: Literal["batch", "start"] = _option(_choice("batch", "start"), default="batch")
    snapshot_locking_mode: Literal["minimal", "extended", "none"] | None = _option(_choice(*_LOCKING_MODES))
    watermark: Literal["gtid", "signal-table", "lock"] = _option(
        _choice("gtid", "signal-table", "lock"), default="gtid"
    )
    lock_hold: Literal["setup", "read"] = _option(_choice("setup", "read"), default="setup")
    lock_wait_seconds: int = _option(_number(1), default=10)
    snapshot_mode: Literal["initial", "initial_only", "no_data"] | None = _option(
        _choice("initial", "initial_only", "no_data"),
        '"initial" (default), "initial_only" (changes only as long as tables are being read) or "no_data" (follow '
        "changes, read on a signal): streams that start with a snapshot, or have this and a start",
    )
    signal_table: str | None = _option(_table)
    signal_topic: KafkaTopic | None = _option(  # noqa: RUF009 - a field of the dataclass
        _topic,
        'signals from a Kafka topic: {"bootstrap": …, "topic": …, "key": …, "settings_file": …}; the file is optional '
        "and holds settings of librdkafka, name=value in each line; needs control_path",
    )
    snapshot_share: float = _option(_share, default=1.0)
    partial_rows: Literal["error", "tell"] = _option(
        _choice("error", "tell"),
        'batch reads of one table: rows that change meanwhile with partial row images: "error" (default) or "tell": a '
        "column _absent lists the unknown columns of a row (JSON)",
        "error",
    )
    relay: str | None = _option(_relay)
    relay_source: str | None = _option(_text)
    relay_token_file: str | None = _option(_text)
    relay_ca_file: str | None = _option(_text)
    relay_fallback: bool = _option(_flag, default=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Parse Spark's options.

        :raises ConfigError: an unknown option, an invalid value, a password.
        """
        texts = {name.lower(): value for name, value in options.items()}
        for name in texts:
            _check_name(name)
        if not texts.get("url"):
            raise ConfigError('option "url" is missing, such as mysql://user@host:3306')
        declared = {one.name: one.metadata["read"] for one in fields(cls) if one.metadata}
        values = {name: declared[name](name, text) for name, text in texts.items() if name in declared}
        if "table" in values:
            values.setdefault("images", "keys")
        parsed = cls(**values, patterns=_patterns(texts), policies=parse_policies(texts, values.get("signal_table")))
        parsed._check_together(texts)
        return parsed

    def _check_together(self, texts: Mapping[str, str]) -> None:
        """Check options that depend on each other."""
        if self.secret_env is not None and self.secret_file is not None:
            raise ConfigError(
                "both options secret_env and secret_file are given; keep the one that names your password"
            )
        if self.watermark == "signal-table" and self.signal_table is None:
            raise ConfigError('option "watermark" is "signal-table", which needs option "signal_table", db.table')
        if self.signal_topic is not None and self.control_path is None:
            raise ConfigError('option "signal_topic" needs option "control_path": signals are forwarded to that folder')
        self._check_relay(texts)
        policies = self.policies.of(self.table or "")
        if self.partial_rows == "tell" and (self.table is None or policies.window != "rewind"):
            raise ConfigError('option "partial_rows" = "tell" needs option "table", and window = "rewind"')
        if self.table is None:
            return
        if self.signal_table is not None and self.watermark != "signal-table":
            raise ConfigError('option "signal_table" is for streams of many tables, whose sinks pass signals on')
        if policies.json == "variant":
            raise ConfigError(
                'option "json" is "variant", which a data source in Python cannot pass to Spark: leave it out, and use '
                "parse_json(column) on the text; in a pipeline the sinks do this"
            )

    def _check_relay(self, texts: Mapping[str, str]) -> None:
        if self.relay is None:
            for name in ("relay_source", "relay_token_file", "relay_ca_file", "relay_fallback"):
                if name in texts:
                    raise ConfigError(f'option "{name}" needs option "relay", such as http://host:11115')
        elif self.watermark == "signal-table":
            raise ConfigError(
                'options "relay" and "watermark=signal-table" do not go together: a relay\'s log has GTIDs'
            )

    @property
    def follows_tables(self) -> bool:
        """Whether the stream has states of tables, to read them now or on a signal."""
        return self.start in (None, "snapshot") or self.snapshot_mode is not None

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
        from headgate.relay.archive import LogOfRelay

        return LogOfRelay(
            self.relay, self.relay_source, self.relay_token_file, self.relay_ca_file, falls_back=self.relay_fallback
        )


def _check_name(name: str) -> None:
    if name in OPTION_HELP:
        return
    if name in _PASSWORD_NAMES:
        raise ConfigError(
            f"option {name} is refused: Spark shows options in its UI, plans and event logs; put the password into an "
            'environment variable or a file and name it with option "secret_env" or "secret_file"'
        )
    near = difflib.get_close_matches(name, OPTION_HELP, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; known options: {', '.join(sorted(OPTION_HELP))}"
    raise ConfigError(f"unknown option {name}{hint}")


_PATTERN_HELP: Final = {"tables": "patterns on db.table, comma-separated or a JSON list"}

OPTION_HELP: Final[Mapping[str, str]] = {
    **{one.name: one.metadata["help"] for one in fields(Options) if one.metadata},
    **_PATTERN_HELP,
    **POLICY_HELP,
}
"""Option → what it means; ``""``: what the key of ``[source]`` with its name means.
Names are in lower case, as Spark passes them."""


def _patterns(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of the options ``table`` and ``tables``."""
    from headgate.catalog import TablePatterns, exact_pattern

    table, text = texts.get("table"), texts.get("tables")
    if table is not None:
        if text is not None:
            raise ConfigError("both options table and tables are given; table is for one typed table, tables for many")
        return (exact_pattern(_table("table", table)),)
    if text is None or not text.strip():
        raise ConfigError('option "tables" (patterns such as shop.*) or "table" (one typed table) is missing')
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    if text.lstrip().startswith("["):
        try:
            parsed = parse_json(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, list) and parsed and all(isinstance(item, str) for item in parsed):
            patterns = parsed
        elif text.rstrip().endswith('"]') or parsed is not None:
            raise ConfigError(f'option "tables" is not a JSON list of patterns: {text}')
    return TablePatterns(tuple(patterns)).patterns
