"""``[target]``."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args

from pydantic import Field, field_validator

from headgate.config._layout import TableProperties
from headgate.config._model import Conflict, FilePath, KafkaClient, Model, VariableName, split_url

__all__ = ["Deletes", "KafkaTargetConfig", "TargetConfig"]

Mode = Literal["current", "history", "changelog", "kafka"]
Deletes = Literal["remove", "mark"]

_MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class KafkaTargetConfig(KafkaClient):
    """Messages in Debezium's format, for the mode `kafka`: see [Kafka](kafka.md)."""

    topic_prefix: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="first part of the names of topics, and `source.name` of messages, as Debezium's `topic.prefix`;"
        " by default the pipeline's name: letters, digits, `_`, `.` and `-`",
    )
    topic: str = Field(
        "{prefix}.{db}.{table}",
        description="name of a table's topic; a character that Kafka does not allow becomes `_`",
    )
    format: Literal["json", "json-schema", "avro"] = Field(
        "json",
        description="`json`: keys and values alone; `json-schema`: each with Kafka Connect's schema, as"
        " `{schema, payload}`, which makes messages several times as large; `avro`: Avro in Confluent's wire format,"
        " with the schemas in `registry`",
    )
    registry: str | None = Field(
        None,
        description='URL of a schema registry with Confluent\'s REST API, for `format = "avro"`, such as'
        " `https://registry:8081`",
    )
    registry_auth_env: VariableName | None = Field(
        None, description="environment variable that holds `user:password` for the registry"
    )
    registry_ca_file: FilePath | None = Field(
        None,
        description="PEM file with the certificates to trust, for a registry with `https`; by default the system's; a"
        " relative path starts at the working directory",
    )
    tombstones: bool = Field(
        True, description="after the message of a deleted row, send one with its key and no value, for compacted topics"
    )
    truncates: bool = Field(
        False,
        description="send a message without a key for a TRUNCATE (`op` is `t`), which compacted topics refuse;"
        " Debezium's default leaves them out, too",
    )
    transactions: bool = Field(
        False,
        description="number the changes in their transaction (`transaction` in messages), and send its begin and end to"
        " the topic `<topic_prefix>.transaction`, as Debezium's `provide.transaction.metadata`; needs `gtid_mode=ON`",
    )
    schema_changes_topic: bool = Field(
        False,
        description="send a message for each DDL statement on a followed table to the topic `<topic_prefix>`, as"
        " Debezium's `include.schema.changes`",
    )
    heartbeat_ms: int = Field(
        0,
        ge=0,
        le=86_400_000,
        description="milliseconds between heartbeats to the topic `__debezium-heartbeat.<topic_prefix>`, which say that"
        " the pipeline lives, as Debezium's `heartbeat.interval.ms`; 0: none",
    )
    delivery: Literal["at-least-once", "exactly-once"] = Field(
        "at-least-once",
        description="`at-least-once`: a batch is sent again if the run is killed before its end; `exactly-once`: a"
        " batch is one Kafka transaction, which consumers with `isolation.level=read_committed` see once",
    )
    timeout_seconds: int = Field(
        60, ge=1, le=900, description="seconds in which the brokers must accept a message, or the batch fails"
    )

    @field_validator("registry")
    @classmethod
    def _check_registry(cls, url: str | None) -> str | None:
        parts = split_url(url or "http://host", "http", "https")
        if parts is None or parts.username is not None:
            raise ValueError(
                "expected http://host:port or https://…, without a user: registry_auth_env names its variable"
            )
        return url

    def _conflicts(self) -> Iterator[Conflict]:
        if self.format == "avro" and self.registry is None:
            yield "format registry", 'format = "avro" needs registry, the URL of a schema registry'
        for name in ("registry", "registry_auth_env", "registry_ca_file") if self.format != "avro" else ():
            if getattr(self, name) is not None:
                yield f"format {name}", f'{name} is for format = "avro", not "{self.format}"'

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, pattern: str) -> str:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
        except ValueError:
            names = []
        if not {"table"} <= {*names} <= {"prefix", "db", "table"}:
            raise ValueError("expected a name with {table}, and perhaps {prefix} and {db}")
        return pattern


class TargetConfig(Model):
    """Where the tables go."""

    path: FilePath | None = Field(
        None,
        description="folder of the lake, or a URI of S3, GCS or Azure, such as `s3a://bucket/lake` (see"
        " [object stores](../how-to/object-stores.md)); a relative path starts at the working directory",
    )
    catalog: str | None = Field(
        None,
        min_length=1,
        description="Spark catalog in which the tables get names: `<catalog>.<db>.<table>`, and"
        " `<catalog>.<db>_changelog.<table>` for changelogs. Their files stay in `path`. See"
        " [named tables](../how-to/name-tables.md)",
    )
    mode: tuple[Mode, ...] = Field(
        ("current",),
        description="`current` (each table as it is now), [`history`](../how-to/shaping-tables/history.md) instead of"
        " it (every version of each row, with the time for which it was valid), `changelog` (every change), `kafka`"
        " (every change as a message), or a list of them. With `kafka` alone the lake holds no tables, but still"
        " headgate's own files. If `current` or `history` is added later, the tables are read again; a `changelog`"
        " begins with the changes from then on. If it was left out for a time, tables that were read are read again,"
        " and their rows follow the gap; of tables that are only followed (`no_data`, `snapshot_new_tables = false`) it"
        " lacks the changes of that time, and nothing says so",
    )
    kafka: KafkaTargetConfig | None = Field(None, description="the brokers and topics of the mode `kafka`")

    deletes: Deletes = Field(
        "remove",
        description="a row that is deleted in MySQL: `remove` deletes it in the `current` table; `mark` keeps it there,"
        " with its last values and `_deleted = true`, which needs a key. If this changes, a table is read again when"
        " its next changes come",
    )

    properties: TableProperties = Field(
        default_factory=dict,
        description="[properties of the Delta tables](../how-to/shaping-tables/layout.md#properties), current ones,"
        ' histories and changelogs: `[target.properties]` has lines such as `team = "sales"`. The next run follows a'
        " change",
    )

    freshness_ms: int | None = Field(
        None,
        ge=0,
        le=3_600_000,
        description="milliseconds after its commit in which a row should be visible: a batch waits for as many changes"
        " as this allows, because each batch adds files to the tables that it changes. By default 1000, in an object"
        " store 10000; 0: as soon as possible. See"
        " [files and requests](../explanation/performance.md#files-and-requests)",
    )

    retention_hours: float = Field(
        6,
        ge=0.05,
        le=87_600,
        description="hours for which old batches stay readable, such as 0.5: headgate removes the files that only older"
        " batches need. The newest batch always stays readable. A program that streams one of the tables may pause for"
        " so long. See [upkeep](../how-to/maintain-the-lake.md) for its cost",
    )

    @property
    def has_tables(self) -> bool:
        """Whether each source table has a table with its rows: the current ones, or their history."""
        return "current" in self.mode or "history" in self.mode

    @field_validator("mode", mode="before")
    @classmethod
    def _as_list(cls, mode: Any) -> Any:
        values = [mode] if isinstance(mode, str) else mode
        if not isinstance(values, (list, tuple)) or not values or any(value not in _MODES for value in values):
            raise ValueError('expected "current", "history", "changelog", "kafka" or a list of them')
        if {"current", "history"} <= {*values}:
            raise ValueError(
                'expected "current" or "history", not both: the rows of a history with _is_current are the current ones'
            )
        return tuple(value for value in _MODES if value in values)

    def _conflicts(self) -> Iterator[Conflict]:
        if not self.path:
            yield "path", "target.path is missing: a folder or URI that Spark can write"
        if "kafka" in self.mode and self.kafka is None:
            yield "mode kafka", 'mode has "kafka", but [target.kafka] with bootstrap is missing'
        if "kafka" not in self.mode and self.kafka is not None:
            yield "mode kafka", '[target.kafka] needs "kafka" in target.mode'
