"""Options of the ``mysql-cdc`` source: strings from the user, checked, as one frozen value.

Each option is declared once, with its type, range, default and meaning: those that are keys of ``[source]``, too, in
``headgate.config.SourceSettings``, policies in ``headgate.policies.Policies``, all others as fields of
:class:`Options`. docs/reference/spark.md is made from these declarations.

Spark shows options in its UI, in plans and in event logs, so no option is a secret. Options name an environment
variable or a file, which is read when a connection is opened.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator, Field, InstanceOf, PlainValidator, ValidationInfo, field_validator

from headgate.config import PASSWORD_NAMES, Conflict, Mistakes, SignalTopicConfig, SourceSettings, checked
from headgate.control import check_filter
from headgate.errors import ConfigError
from headgate.offsets import SinkPosition
from headgate.parsing import parse_json
from headgate.policies import DEFAULT, MaskKey, Policies
from headgate.positions import NamedStart, parse_position, parse_start
from headgate.spark._policy_options import POLICY_HELP, parse_policies

if TYPE_CHECKING:
    from headgate.mysql import ConnectionSettings
    from headgate.relay.archive import LogOfRelay
    from headgate.snapshot import TableLocks

__all__ = ["OPTION_HELP", "Options"]

_LOCKING_MODES: Final[Mapping[str, Literal["setup", "read"] | None]] = {
    "minimal": "setup",
    "extended": "read",
    "none": None,
}
"""Debezium's ``snapshot.locking.mode``, and how long a lock is held."""


def _by(read: Callable[[str], Any]) -> PlainValidator:
    """Return what reads the text of an option by a function that raises a ConfigError or a ValueError."""

    def reading(text: str) -> Any:
        try:
            return read(text)
        except ConfigError as error:
            raise ValueError(error.message) from None

    return PlainValidator(reading)


def _patterns(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return parse_json(text)
    except ValueError:
        if text.rstrip().endswith('"]'):
            raise ValueError(f"not a JSON list of patterns: {text}") from None
        return _patterns(f",{text}")  # a pattern may begin with a bracket


def _start(text: str) -> str:
    if text.lower() == "snapshot":
        return "snapshot"
    return start.value if isinstance(start := parse_start(text), NamedStart) else text


def _conditions(text: str) -> Mapping[str, str]:
    conditions = parse_json(text)
    if not isinstance(conditions, dict) or not all(isinstance(one, str) for one in conditions.values()):
        raise ValueError('expected a JSON object such as {"db.t": "id > 5"}')
    return {table: check_filter(condition) for table, condition in conditions.items()}


_Gtids = Annotated[str, _by(lambda text: str(parse_position(text)))]


class Options(SourceSettings):
    """The parsed options. :meth:`parse` reports all that is wrong with them."""

    tables: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = Field(
        (),
        description="patterns on db.table, comma-separated or a JSON list; wildcards also select working tables of"
        " gh-ost and pt-online-schema-change, which a pipeline leaves out",
    )
    table: str | None = Field(None, description="one table, typed columns")
    control_path: str | None = Field(
        None, description="folder of JSON files by which sinks and commands reach the planner"
    )
    conditions: Annotated[Mapping[str, str], _by(_conditions)] = Field(
        default_factory=dict,
        description="SQL conditions by table, as a JSON object: only rows that fulfil them are read; changes are"
        " followed for all rows",
    )
    slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        description="tasks of a batch; by default the driver's number of processors",
    )
    images: Literal["all", "keys"] = Field(
        "all",
        description="`all` before-images, or `keys`: only those of updates that change the key, which is the default"
        " with `table`",
    )
    images_path: str | None = Field(
        None,
        description="carrier: folder or URI for large record batches, which rows then name instead of having them; all"
        " tasks must reach it, and the consumer removes the files",
    )
    mask_key_mark: str | None = Field(
        None,
        description="mark of the key of rules `hash` at a pipeline's start: a task that finds another key ends with an"
        " error",
    )
    policies: InstanceOf[Policies] = DEFAULT
    start: Annotated[str, _by(_start)] | None = Field(
        None,
        description="`snapshot`, the default; `current`; `earliest`; a time such as 2026-01-02T03:04:05Z;"
        " `file:position` of a server without GTIDs; or a GTID set: everything already read",
    )
    end: _Gtids | None = Field(
        None, description="batch reads of changes: the GTID set at which they end; default: everything executed now"
    )
    as_of: _Gtids | None = Field(
        None, description="batch reads: the GTID set to read the tables at; default: everything executed now"
    )
    applied: Annotated[SinkPosition, _by(SinkPosition.from_json)] | None = Field(
        None,
        description="what the sinks have applied (the ledger's newest row), as JSON: where a stream without a"
        " checkpoint resumes",
    )
    epoch: int = Field(
        0, ge=0, description="epoch of the newest batch that the sinks have applied (the ledger's newest)"
    )
    written_epoch: int = Field(0, ge=0, description="epoch of the newest batch that wrote to a sink, applied or not")
    meta: bool = Field(True, description="batch reads of one table: `false` leaves out _op, _seq, _gtid, _ts, _table")
    append: bool = Field(True, description="leave out changes of key ranges that the first snapshot has not read yet")
    snapshot_mode: Literal["initial", "initial_only", "no_data"] | None = Field(
        None,
        description="`initial`, the default; `initial_only`: changes only as long as tables are being read; or"
        " `no_data`: follow changes, read on a signal. For streams that start with a snapshot, or have this and a"
        " start",
    )
    signal_topic: Annotated[SignalTopicConfig, BeforeValidator(parse_json)] | None = Field(
        None,
        description='signals from a Kafka topic: {"bootstrap": …, "topic": …, "key": …, "settings_file": …}; the file'
        " is optional and holds settings of librdkafka, name=value in each line; needs control_path",
    )
    partial_rows: Literal["error", "tell"] = Field(
        "error",
        description="batch reads of one table: rows that change meanwhile with partial row images are an `error`, or"
        " `tell`: a column _absent lists the unknown columns of a row (JSON)",
    )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Parse Spark's options.

        :raises ConfigError: all of unknown options, invalid values, and passwords.
        """
        texts = {name.lower(): value for name, value in options.items()}
        values = {name: text for name, text in texts.items() if name in cls.model_fields and name in OPTION_HELP}
        if "table" in values:
            values.setdefault("images", "keys")
        mistakes, policies = Mistakes(), DEFAULT
        parsed: Options | None = None
        mistakes.add(_wrong_names(texts))
        with mistakes:
            parsed = checked(cls, values, name_of='option "{}"'.format)
        with mistakes:
            known = (None, None) if parsed is None else (parsed.signal_table, parsed.mask_key)
            policies = parse_policies(texts, *known)
        mistakes.check()
        assert parsed is not None
        return parsed.model_copy(update={"policies": policies})._check_policies()

    @field_validator("*", mode="before")
    @classmethod
    def _lower_choice(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        is_choice = any(get_origin(one) is Literal for one in (kind, *get_args(kind)))
        return value.lower() if is_choice and isinstance(value, str) else value

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        if self.table is None and not self.tables:
            yield "tables table", 'option "tables" (patterns such as shop.*) or "table" (one typed table) is missing'
        if self.table is not None and self.tables:
            both = "both options table and tables are set"
            yield "tables table", f"{both}; table is for one typed table, tables for many"
        if self.signal_topic is not None and self.control_path is None:
            needs = 'option "signal_topic" needs option "control_path"'
            yield "signal_topic control_path", f"{needs}: signals are forwarded to that folder"
        if self.table is not None and self.signal_table is not None and self.watermark != "signal-table":
            many = 'option "signal_table" is for streams of many tables, whose sinks pass signals on'
            yield "table signal_table watermark", many

    def _check_policies(self) -> Options:
        policies = self.policies.of(self.table or "")
        if self.partial_rows == "tell" and (self.table is None or policies.window != "rewind"):
            raise ConfigError('option "partial_rows" = "tell" needs option "table", and window = "rewind"')
        if self.table is not None and policies.json == "variant":
            raise ConfigError(
                'option "json" is "variant", which a data source in Python cannot pass to Spark: leave it out, and use '
                "parse_json(column) on the text; in a pipeline the sinks do this"
            )
        return self

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns on ``db.table``; with ``table``, only that one."""
        from headgate.catalog import exact_pattern

        return self.tables if self.table is None else (exact_pattern(self.table),)

    @property
    def mask_key(self) -> MaskKey | None:
        """Where the key of rules ``hash`` is, and its mark."""
        return MaskKey.of(self.mask_key_env, self.mask_key_file, self.mask_key_mark)

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

        return ConnectionSettings.from_url(self.url, **self.passwords, log=self.log_of_relay())

    def log_of_relay(self) -> LogOfRelay | None:
        """Return the relay from which the log is read; None: it is read from the server."""
        if self.relay is None:
            return None
        from headgate.relay.archive import LogOfRelay

        return LogOfRelay(
            self.relay, self.relay_source, self.relay_token_file, self.relay_ca_file, falls_back=self.relay_fallback
        )


OPTION_HELP: Final[Mapping[str, str]] = {
    **{name: option.description for name, option in Options.model_fields.items() if option.description},
    **POLICY_HELP,
}
"""Option → what it means. Names are in lower case, as Spark passes them."""


def _wrong_names(names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each name that is no option."""
    for name in names:
        if name in OPTION_HELP:
            continue
        if name in PASSWORD_NAMES:
            yield (
                f"option {name} is refused: Spark shows options in its UI, plans and event logs; put the password into"
                ' an environment variable or a file and name it with option "password_env" or "password_file", or let a'
                ' command print it: "password_command"'
            )
            continue
        near = difflib.get_close_matches(name, OPTION_HELP, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known options: {', '.join(sorted(OPTION_HELP))}"
        yield f"unknown option {name}{hint}"
