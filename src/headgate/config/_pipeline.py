"""The whole pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import Field, field_validator

from headgate.config._interfaces import NotificationsConfig, SignalsConfig, UiConfig
from headgate.config._model import Conflict, Model, RulesByTable, is_table
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

    def _conflicts(self) -> Iterator[Conflict]:
        yield from self._conflicts_of_deletes()
        yield from self._conflicts_of_layout()
        yield from self._conflicts_of_schema_changes()
        yield from self._conflicts_of_keys()
        yield from self._conflicts_of_skips()
        yield from self._conflicts_of_messages()
        hashes = any(rule.kind == "hash" for _, rules in parse_rules(self.columns) for _, rule in rules)
        if hashes and self.source.mask_key is None:
            needs = '[columns] has the rule "hash", which needs source.mask_key_env or source.mask_key_file'
            yield "columns source.mask_key_env source.mask_key_file", needs
        if self.routes and self.target.mode == ("kafka",):
            none = "[routes] names tables of the lake, and mode kafka has none there: see target.kafka.topic"
            yield "routes target.mode", none
        signals = self.source.signal_table or ""
        for name in ("rows", "hook"):
            if signals in self.tables and self.tables[signals].policy(name) is not None:
                yield (
                    "tables source.signal_table",
                    f'{name} in [tables."{signals}"] is for a signal table, whose rows are signals',
                )

    def _conflicts_of_deletes(self) -> Iterator[Conflict]:
        if "current" in self.target.mode:
            return
        settings = {"target": self.target.deletes} | {
            f'tables."{name}"': table.deletes for name, table in self.tables.items()
        }
        for section, deletes in settings.items():
            if deletes == "mark":
                about = f'deletes = "mark" in [{section}] is about current tables: add "current" to target.mode'
                yield "tables target.deletes target.mode", about

    def _conflicts_of_layout(self) -> Iterator[Conflict]:
        for name, table in self.tables.items():
            if table.cluster_by and not self.target.has_tables:
                about = f'cluster_by in [tables."{name}"] is about its current table or history'
                yield "tables target.mode", f'{about}: add "current" or "history" to target.mode'

    def _conflicts_of_schema_changes(self) -> Iterator[Conflict]:
        if self.target.has_tables:
            return
        add = 'add "current" or "history" to target.mode'
        if self.schema_changes != SchemaChangesConfig():
            yield "schema_changes target.mode", f"[schema_changes] is about current tables and histories: {add}"
        for name, table in self.tables.items():
            if table.schema_changes == "strict":
                about = f'schema_changes = "strict" in [tables."{name}"] is about its current table or history'
                yield "tables target.mode", f"{about}: {add}"

    def _conflicts_of_keys(self) -> Iterator[Conflict]:
        chosen = [name for name, table in self.tables.items() if table.policy("key")]
        if chosen and "history" in self.target.mode:
            reason = "versions of rows do not prove a key"
            yield "tables target.mode", f'key and target.mode "history" do not go together: {reason}'
        for name in chosen if "current" in self.target.mode else ():
            if self.skips(name) or self.marks_deletes(name):
                needs = f'key in [tables."{name}"] needs a table with exactly the source\'s rows'
                remedy = 'set skip = [] and deletes = "remove" for it'
                yield "tables source.skip target.deletes target.mode", f"{needs}: {remedy}"

    def _conflicts_of_skips(self) -> Iterator[Conflict]:
        for table in ("", *self.tables):
            if "history" in self.target.mode and self.skips(table):
                reason = "a history has every change"
                yield "tables source.skip target.mode", f'skip and target.mode "history" do not go together: {reason}'
            if self._policy(table, "window") == "drop" and not {"insert", "update"}.isdisjoint(self.skips(table)):
                left = 'window = "drop" leaves rows to the inserts and updates that follow, which skip leaves out'
                yield "tables source.skip source.window", f'{left}: use "rewind" or "keep"'
            if self.marks_deletes(table) and self.keeps_removed(table):
                section = f'tables."{table}"' if table else "source"
                both = f'skip in [{section}] leaves out what deletes = "mark" marks: keep one of the two'
                yield "tables source.skip target.deletes", both

    def _conflicts_of_messages(self) -> Iterator[Conflict]:
        if "kafka" not in self.target.mode:
            return
        if "text" in (one.policy("zero_dates") for one in (self.source, *self.tables.values())):
            numbers = 'target.mode "kafka" sends dates as numbers: set zero_dates to "error" or "null"'
            yield "tables source.zero_dates target.mode", numbers
        if self.target.kafka and self.target.kafka.transactions and self.source.watermark == "signal-table":
            needs = "target.kafka.transactions needs GTIDs, which watermark = signal-table does without"
            yield "target.kafka source.watermark", needs

    @field_validator("spark", mode="before")
    @classmethod
    def _flat_settings(cls, settings: Any) -> Any:
        flat: dict[str, str] = {}
        _flatten(settings, "", flat)
        twice = [key for key in flat if f"spark.{key}" in flat]
        if twice:
            raise ValueError(f"spark.{twice[0]} is set twice, with its prefix and without it")
        return {key if key.startswith("spark.") else f"spark.{key}": value for key, value in flat.items()}

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
