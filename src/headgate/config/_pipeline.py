"""The whole pipeline file."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from headgate.config._interfaces import NotificationsConfig, SignalsConfig, UiConfig
from headgate.config._model import Model, RulesByTable, is_table
from headgate.config._routes import RouteConfig
from headgate.config._schema_changes import SchemaChangesConfig
from headgate.config._source import SourceConfig, TableConfig
from headgate.config._target import TargetConfig
from headgate.policies import Operation, Policies, parse_rules

__all__ = ["PipelineConfig"]

_NO_POLICIES: Final = TableConfig.model_validate({})


class PipelineConfig(Model):
    """Configuration of one pipeline.

    docs/reference/configuration.md has all keys. Values are frozen. They never hold a password, only where it is.

    >>> values = {
    ...     "name": "shop",
    ...     "source": {"url": "mysql://headgate@db:3306", "tables": ["shop.*"]},
    ...     "target": {"path": "/data/lake"},
    ... }
    >>> config = headgate.PipelineConfig.model_validate(values)
    >>> config.target.mode, config.source.watermark
    (('current',), 'gtid')
    """

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
    ui: UiConfig = Field(default_factory=UiConfig, description="the status page, off by default")
    notifications: NotificationsConfig = Field(
        default_factory=NotificationsConfig, description="channels for the progress of snapshots; by default none"
    )
    columns: RulesByTable = Field(
        default_factory=dict,
        description='[rules for columns](../how-to/shaping-tables/columns.md): `[columns."shop.*"]` has lines such as'
        ' `email = "hash"`; names of tables and columns may have wildcards, and the last match counts',
    )
    routes: dict[str, RouteConfig] = Field(
        default_factory=dict,
        description="[names in the lake](../how-to/shaping-tables/routes.md): `[routes]` has lines such as"
        ' `"shop.orders" = "sales.orders"` and `"shop_*.orders" = { to = "shop.orders", shard = "{db}" }`; names may'
        " have wildcards, and the last match counts",
    )
    schema_changes: SchemaChangesConfig = Field(
        default_factory=SchemaChangesConfig, description="what ALTERs of columns do; by default they are applied"
    )
    tables: dict[str, TableConfig] = Field(default_factory=dict, description='policies by table: `[tables."db.table"]`')

    def policies(self) -> Policies:
        """Return how values are converted, for all tables and for those with their own policies."""
        rules = {"columns": parse_rules(self.columns), "mask_key": self.source.mask_key}
        return Policies.make(
            {**self.source.policies(), **rules}, {name: table.policies() for name, table in self.tables.items()}
        )

    def conditions(self) -> dict[str, str]:
        """Return the filter of a table's snapshot by ``db.table``, for tables that have one."""
        return {name: table.condition for name, table in self.tables.items() if table.condition is not None}

    def skips(self, table: str) -> tuple[Operation, ...]:
        """Return the operations that are left out of the changes of ``db.table``."""
        skip: tuple[Operation, ...] = self._policy(table, "skip")
        return skip

    def keeps_removed(self, table: str) -> bool:
        """Return whether the current table of ``db.table`` keeps rows that a DELETE or TRUNCATE removed in MySQL."""
        return not {"delete", "truncate"}.isdisjoint(self.skips(table))

    def accepts_cascades(self, table: str) -> bool:
        """Return whether ``db.table`` is followed although foreign keys change its rows without logging it."""
        return self._of(table).foreign_keys == "accept"

    def marks_deletes(self, table: str) -> bool:
        """Return whether rows of ``db.table`` that are deleted in MySQL stay in the current table, marked."""
        return (self._of(table).deletes or self.target.deletes) == "mark"

    def table_properties(self, table: str) -> dict[str, str]:
        """Return the properties of the Delta tables of ``db.table``."""
        return {**self.target.properties, **self._of(table).properties}

    def clustering(self, table: str) -> tuple[str, ...]:
        """Return the columns by which the table of ``db.table`` is clustered."""
        return self._of(table).cluster_by

    def _of(self, table: str) -> TableConfig:
        return self.tables.get(table, _NO_POLICIES)

    def _policy(self, table: str, name: str) -> Any:
        value = self._of(table).policy(name)
        return self.source.policy(name) if value is None else value

    @model_validator(mode="after")
    def _check_deletes(self) -> PipelineConfig:
        if "current" in self.target.mode:
            return self
        settings = {"target": self.target.deletes} | {
            f'tables."{name}"': table.deletes for name, table in self.tables.items()
        }
        for place, deletes in settings.items():
            if deletes == "mark":
                raise ValueError(f'deletes = "mark" in [{place}] is about current tables: add "current" to target.mode')
        return self

    @model_validator(mode="after")
    def _check_layout(self) -> PipelineConfig:
        for name, table in self.tables.items():
            if table.cluster_by and not self.target.has_tables:
                raise ValueError(
                    f'cluster_by in [tables."{name}"] is about its current table or history: add "current" or'
                    ' "history" to target.mode'
                )
        return self

    @model_validator(mode="after")
    def _check_chosen_keys(self) -> PipelineConfig:
        if "history" in self.target.mode and any(table.policy("key") for table in self.tables.values()):
            raise ValueError('key and target.mode "history" do not go together: versions of rows do not prove a key')
        if "current" in self.target.mode:
            for name, table in self.tables.items():
                if table.policy("key") and (self.skips(name) or self.marks_deletes(name)):
                    raise ValueError(
                        f'key in [tables."{name}"] needs a table with exactly the source\'s rows: set skip = [] and'
                        ' deletes = "remove" for it'
                    )
        return self

    @model_validator(mode="after")
    def _check_skip(self) -> PipelineConfig:
        for table in ("", *self.tables):
            if "history" in self.target.mode and self.skips(table):
                raise ValueError('skip and target.mode "history" do not go together: a history has every change')
            if self._policy(table, "window") == "drop" and not {"insert", "update"}.isdisjoint(self.skips(table)):
                raise ValueError(
                    'window = "drop" leaves rows to the inserts and updates that follow, which skip leaves out: use'
                    ' "rewind" or "keep"'
                )
            if self.marks_deletes(table) and self.keeps_removed(table):
                place = f'tables."{table}"' if table else "source"
                raise ValueError(f'skip in [{place}] leaves out what deletes = "mark" marks: keep one of the two')
        return self

    @field_validator("spark", mode="before")
    @classmethod
    def _flat_settings(cls, settings: Any) -> Any:
        flat: dict[str, str] = {}
        _flatten(settings, "", flat)
        twice = [key for key in flat if f"spark.{key}" in flat]
        if twice:
            raise ValueError(f"spark.{twice[0]} is set twice, with its prefix and without it")
        return {key if key.startswith("spark.") else f"spark.{key}": value for key, value in flat.items()}

    @model_validator(mode="after")
    def _check_mask_key(self) -> PipelineConfig:
        hashes = any(rule.kind == "hash" for _, rules in parse_rules(self.columns) for _, rule in rules)
        if hashes and self.source.mask_key is None:
            raise ValueError('[columns] has the rule "hash", which needs source.mask_key_env or source.mask_key_file')
        return self

    @field_validator("tables")
    @classmethod
    def _check_names(cls, tables: dict[str, TableConfig]) -> dict[str, TableConfig]:
        for name in tables:
            if not is_table(name):
                raise ValueError(f'{name!r} is not a table; expected [tables."db.table"], with the quotes')
        return tables

    @field_validator("routes")
    @classmethod
    def _check_routes(cls, routes: dict[str, RouteConfig]) -> dict[str, RouteConfig]:
        for pattern in routes:
            if pattern.startswith("!") or not is_table(pattern):
                raise ValueError(f'{pattern!r} is not a table pattern; expected db.table, such as "shop_*.orders"')
        return routes

    @model_validator(mode="after")
    def _check_routed(self) -> PipelineConfig:
        if self.routes and self.target.mode == ("kafka",):
            raise ValueError("[routes] names tables of the lake, and mode kafka has none there: see target.kafka.topic")
        return self

    @model_validator(mode="after")
    def _check_signal_table(self) -> PipelineConfig:
        table = self.tables.get(self.source.signal_table or "")
        for name in ("rows", "hook"):
            if table is not None and table.policy(name) is not None:
                raise ValueError(
                    f'{name} in [tables."{self.source.signal_table}"] is for a signal table, whose rows are signals'
                )
        return self

    @model_validator(mode="after")
    def _check_kafka(self) -> PipelineConfig:
        if "kafka" not in self.target.mode:
            return self
        if "text" in (one.policy("zero_dates") for one in (self.source, *self.tables.values())):
            raise ValueError('target.mode "kafka" sends dates as numbers: set zero_dates to "error" or "null"')
        if self.target.kafka and self.target.kafka.transactions and self.source.watermark == "signal-table":
            raise ValueError("target.kafka.transactions needs GTIDs, which watermark = signal-table does without")
        return self


def _flatten(settings: Any, prefix: str, out: dict[str, str]) -> None:
    if not isinstance(settings, dict):
        raise ValueError("expected a table of spark.* settings")  # noqa: TRY004 - pydantic accepts no TypeError
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            _flatten(value, f"{name}.", out)
        elif isinstance(value, bool):
            out[name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            out[name] = str(value)
        else:
            raise ValueError(f"{name}: expected text, a number, true or false")  # noqa: TRY004 - as above
