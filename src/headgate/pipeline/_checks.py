"""Checks of what a run needs, before it begins; those of source and lake also when its file changes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.carrier import ABSENT, check_names
from headgate.config import Mistakes, PipelineConfig, SourceConfig
from headgate.control import check_filter
from headgate.errors import AccessError, BinlogPurgedError, ConfigError, ConnectError, DefiniteServerError
from headgate.extras import require_extra
from headgate.lake import Lake, Place, Places, find_newest
from headgate.names import lower_name, quote_name
from headgate.positions import check_kind, parse_position, parse_start, read_executed

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.catalog import TableDef
    from headgate.mysql import Connection, ConnectionSettings, Prerequisite
    from headgate.policies import Policies

__all__ = [
    "check_config",
    "check_interfaces",
    "check_log",
    "check_patterns",
    "check_resnapshot",
    "check_source",
    "check_texts",
    "connection_settings",
    "find_hooks",
    "followed_tables",
]

log = logging.getLogger("headgate")


def check_config(config: PipelineConfig) -> list[str]:
    """Return the tables to read, if the source has all that a run needs and their folders in the lake are free or ours.

    :raises HeadgateError: as :func:`check_source`; a table's folder holds something else; two tables share a topic.
    """
    lake = Lake.of(config)
    tables = check_source(config, followed_tables(lake))
    places = _check_routes(config, tables)
    for table in tables:
        if config.target.has_tables:
            lake.check_folder(lake.current(table, places.get(table)), table)
        if "changelog" in config.target.mode:
            lake.check_folder(lake.changelog(table, places.get(table)), table)
    if config.target.kafka is not None:
        from headgate.kafka import TopicNames

        TopicNames.make(config.target.kafka, config.name).distinct(tables, {})
    return tables


def _check_routes(config: PipelineConfig, tables: Collection[str]) -> dict[str, Place]:
    """Return the places of the tables that routes give other names. Warn of routes that match no table.

    :raises ConfigError: two tables would have one folder; a merged table has the name of another table, or two shard
        columns; tables would be merged where only Spark writes files, or in another kind of place than the lake's.
    """
    from headgate.catalog import TablePatterns

    for pattern in TablePatterns(config.routes).unmatched(tables):
        log.warning(
            'the route of "%s" in [routes] matches no followed table: check the spelling (case counts)', pattern
        )
    lake, places = Lake.of(config), Places(config.routes)
    placed = {table: place for table in tables if (place := places.of(table)) is not None}
    merged: dict[str, Place] = {}
    for place in placed.values():
        if place.shard is not None:
            first = merged.setdefault(lake.current(place.table, Place(place.table, path=place.path)), place)
            if first.column != place.column:
                raise ConfigError(
                    f"the routes to {place.table} name two columns, {first.column} and {place.column}: keep one"
                )
    owners: dict[str, str] = {}
    for table in tables:
        place = placed.get(table)
        folder = lake.current(table, place)
        other = owners.setdefault(folder, table)
        if other != table:
            raise ConfigError(
                f"{other} and {table} would both be {place.table if place else table} in the lake: to merge them, give"
                ' the route a shard that differs, such as shard = "{db}"'
            )
        if folder in merged:
            raise ConfigError(f"{table} would be at {folder}, where [routes] merges other tables: choose another name")
    for place in merged.values():
        root = lake if place.path is None else Lake.at(place.path)
        if root.is_local != lake.is_local:
            raise ConfigError(
                f"[routes]: {root.path} and {lake.path} must both be local folders, or both in an object store"
            )
    return placed


def check_interfaces(config: PipelineConfig) -> None:
    """Check what a pipeline needs of Kafka: for its signals, its messages and its notifications. If Kafka is
    unreachable, only warn.

    :raises HeadgateError: the topic of signals does not keep them all, in order; messages cannot be sent with this
        configuration; a package is missing.
    """
    if config.notifications.kafka is not None:
        require_extra("kafka")
    _check_signal_topic(config)
    _check_messages(config)


def _check_messages(config: PipelineConfig) -> None:
    from headgate.kafka import check_brokers

    if config.target.kafka is None:
        return
    try:
        check_brokers(config.target.kafka)
    except ConnectError as error:
        log.warning("%s: batches are delayed", error)


def followed_tables(lake: Lake) -> Collection[str]:
    """Return the tables that pipelines into this lake have followed, by the ledger; without Spark.

    :raises TargetError: the ledger cannot be read.
    """
    row = find_newest(lake)
    return () if row is None else row.tables.keys()


def check_texts(config: PipelineConfig) -> None:
    """Check what the file says in languages that its sections do not know; query nothing.

    :raises ConfigError: all mistakes in the URL's options, the start, conditions, `rows`, and names of columns.
    """
    from headgate.columns import parse_expression

    mistakes = Mistakes()
    with mistakes:
        connection_settings(config)
    if config.source.first_position is not None:
        with mistakes:
            parse_start(config.source.first_position)
    for name, condition in config.conditions().items():
        with mistakes:
            _safe_condition(name, condition)
    for name, table in config.tables.items():
        rows = table.policy("rows")
        try:
            if rows is not None:
                parse_expression(rows)
        except ValueError as error:
            mistakes.add([f"rows of {name}: {error}"])
    mistakes.add(_reserved_names(config.policies()))
    mistakes.check()


def check_source(config: PipelineConfig, known: Collection[str] = ()) -> list[str]:
    """Return the tables to read, if the server has all that a run needs; query only the server, without Spark.

    :param known: tables that were followed before: see :func:`check_patterns`.
    :raises HeadgateError: the server cannot be reached or refuses the login; a named table does not exist; a rule is
        not for its column, `rows`, `key` or a hook not for its table; a setting or a privilege is missing: the first
        one, and how many more there are.
    """
    from headgate.catalog import TablePatterns, check_visible, hides_columns, load_tables
    from headgate.columns import check_chosen_keys, check_row_filters, check_rules, excluded_by_name, with_chosen_key
    from headgate.mysql import Connection, cascades, kinds_of_watermark, prerequisites, try_select

    check_texts(config)
    settings = connection_settings(config)
    with Connection.open(settings) as connection:
        patterns = TablePatterns.following(config.source.tables)
        tables = load_tables(connection.query, patterns)
        names = [table.full_name for table in tables]
        _warn_of_tables(connection, config.source, names, known)
        if config.source.signal_table is not None:
            _check_signal_table(connection, config.source.signal_table)
        kinds = kinds_of_watermark(config.source.watermark)
        rows = prerequisites(connection, kinds=kinds)
        if config.source.relay is not None:
            rows.append(_relay(connection, config))
        _check_conditions(connection, config.conditions(), tables)
        policies = config.policies()
        check_chosen_keys(policies, tables)
        tables = [with_chosen_key(table, policies.of(table.full_name)) for table in tables]
        _check_deletes(config, tables)
        _check_history(config, tables)
        check_row_filters(policies, tables)
        _check_hooks(config, tables)
        _warn_of_clustering(config, tables)
        for pattern in check_rules(policies, tables, lambda one: hides_columns(connection.query, one.db, one.name)):
            log.warning("the rule for %s in [columns] matches no column: check the spelling", pattern)
        reads = (try_select(connection, table.db, table.name, [c.name for c in table.columns]) for table in tables)
        rows += [row for row in reads if row is not None]
        if config.source.snapshot_mode != "no_data":
            for table in tables:
                check_visible(connection.query, table.db, table.name, excluded_by_name(policies, table))
        accepted = [table for table in tables if config.accepts_cascades(table.full_name)]
        for name in sorted({*config.tables} - {*names}):
            log.warning('[tables."%s"] matches no followed table: check the spelling (case counts)', name)
        rows += cascades(connection, [(table.db, table.name) for table in tables if table not in accepted])
        rows += _engines(connection, config, {*names} - {*known})
        for row in cascades(connection, [(table.db, table.name) for table in accepted]):
            log.warning("%s change its rows unseen (%s); the target will differ from the source", row.name, row.actual)
    rows += _unreadable(config, names, rows)
    _raise_first([row for row in rows if row.status == "fail"], settings.url)
    return names


def check_log(config: PipelineConfig, lake: Lake) -> None:
    """Check that the server has the log that comes after the newest batch, if the next run continues there: it does so
    if the lake has a checkpoint. Of a lake in a local folder; of another one, and with a relay, the run finds out.

    :raises BinlogPurgedError: the server has purged some of it.
    """
    from headgate.delta import files_of
    from headgate.mysql import Connection

    is_read_again = config.source.snapshot_mode in ("when_needed", "always")
    if is_read_again or config.source.relay is not None:
        return
    if not all(files_of(folder).has_folder("") for folder in (lake.checkpoint, lake.ledger)):
        return
    row = find_newest(lake)
    if row is None:
        return
    had = parse_position(row.gtid)
    with Connection.open(connection_settings(config)) as connection:
        executed = read_executed(connection)
        check_kind(had, executed.executed)
        purged = executed.purged(connection)
    lost = purged - had
    if lost:
        raise BinlogPurgedError(
            "the server has purged log that was not read yet: --snapshot-mode when_needed has all tables read again",
            needed=str(lost),
            purged=str(purged),
        )


def _warn_of_tables(connection: Connection, source: SourceConfig, names: Sequence[str], known: Collection[str]) -> None:
    """Log what a user may miss among the tables that the patterns select."""
    from headgate.catalog import HELPERS_LEFT_OUT, TablePatterns, databases_with_dots, load_stats

    patterns = TablePatterns(source.tables)
    for db in databases_with_dots(connection.query, patterns):
        pattern = f"!{db.replace('.', '?')}.*"
        log.warning('database %s is not followed: its name has a dot; exclude it by "%s"', db, pattern)
    if left_out := patterns.left_out(sorted(load_stats(connection.query, patterns))):
        log.warning("left out: %s, %s", ", ".join(left_out), HELPERS_LEFT_OUT)
    for warning in check_patterns(source.tables, names, known):
        log.warning("%s; the log is still followed", warning)


def _engines(connection: Connection, config: PipelineConfig, new: Collection[str]) -> Iterator[Prerequisite]:
    """Yield the new tables whose engine has no consistent reads, if tables are read."""
    from headgate.catalog import TablePatterns, load_stats
    from headgate.mysql import check_engine

    if config.source.snapshot_mode == "no_data":
        return
    for name, stats in load_stats(connection.query, TablePatterns.following(config.source.tables)).items():
        row = check_engine(name, stats.engine)
        if name in new and row is not None:
            yield row


def find_hooks(config: PipelineConfig) -> None:
    """Let this process import hooks from the files of Spark's setting ``spark.submit.pyFiles``, also without Spark."""
    if not any(table.policy("hook") for table in config.tables.values()):
        return
    for file in map(Path, filter(None, config.spark.get("spark.submit.pyFiles", "").split(","))):
        folder = str((file.parent if file.suffix == ".py" else file).absolute())
        if folder not in sys.path:
            sys.path.append(folder)


def _check_hooks(config: PipelineConfig, tables: Sequence[TableDef]) -> None:
    """Call each hook with an empty batch.

    :raises HookError: it cannot be imported, raised an exception, or returned columns that no target can have.
    :raises SchemaChangedError: it returned a column with a name that headgate uses itself.
    :raises ConfigError: it returned columns that messages cannot have.
    """
    from headgate.columns import TableCodec, hooked_table

    find_hooks(config)
    policies = config.policies()
    codecs = [TableCodec(table, policies) for table in tables if policies.of(table.full_name).hook is not None]
    hooks = [hook for one in codecs if (hook := hooked_table(one.table, one.fields, policies)) is not None]
    for hook in hooks:
        check_names(hook.table.full_name, [field.name for field in hook.fields], [ABSENT])
    for hook in hooks if "kafka" in config.target.mode else ():
        for field in hook.fields:
            if field.type.num_fields and field.name not in hook.sources:
                raise ConfigError(
                    f"the hook of {hook.table.full_name} returns column {field.name} of type {field.type}, which has no"
                    " form in messages: return JSON text"
                )


def _warn_of_clustering(config: PipelineConfig, tables: Sequence[TableDef]) -> None:
    """Warn of columns by which a table cannot be clustered as its section says: it has no such column, perhaps no
    longer, or one of a type without an order.
    """
    from headgate.delta import is_ordered

    for table in tables:
        names = config.clustering(table.full_name)
        types = _types_in_lake(table, config.policies()) if names else {}
        for name in names:
            if name not in types:
                problem = "is not in the table: check the spelling (case counts)"
            elif not is_ordered(types[name]):
                problem = "has no order"
            else:
                continue
            log.warning('cluster_by in [tables."%s"]: column %s %s', table.full_name, name, problem)


def _types_in_lake(table: TableDef, policies: Policies) -> dict[str, pa.DataType]:
    """Return the columns of a table as it is written."""
    from headgate.columns import TableCodec, hooked_table

    codec = TableCodec(table, policies)
    hook = hooked_table(codec.table, codec.fields, policies)
    return {field.name: field.type for field in (codec.fields if hook is None else hook.fields)}


def _relay(connection: Connection, config: PipelineConfig) -> Prerequisite:
    from headgate.relay.archive import LogOfRelay, relay_prerequisite

    source = config.source
    relay = LogOfRelay(source.relay or "", source.relay_source, source.relay_token_file, source.relay_ca_file)
    return relay_prerequisite(connection, relay)


def _check_signal_topic(config: PipelineConfig) -> None:
    from headgate.control import KafkaTopic, check_topic

    topic = config.signals.topic(config.name)
    try:
        if topic is not None:
            check_topic(KafkaTopic.of(topic))
    except ConnectError as error:
        log.warning("%s: signals from the topic are delayed", error)


def _check_signal_table(connection: Connection, name: str) -> None:
    """Raise ``ConfigError`` unless the signal table exists with its columns, spelled as the log will name it."""
    from headgate.catalog import TablePatterns, exact_patterns, load_stats, load_table
    from headgate.control import SIGNAL_COLUMNS

    db, _, table = name.partition(".")
    loaded = load_table(connection.query, db, table)
    columns = {lower_name(column.name) for column in loaded.table.columns} if loaded is not None else set()
    for spelled in load_stats(connection.query, TablePatterns(["*.*"])) if loaded is None else ():
        if lower_name(spelled) == lower_name(name):
            raise ConfigError(f"the signal table {name} is {spelled} on the server: use that name")
    if loaded is not None and not exact_patterns([name]).matches(db, table):
        raise ConfigError(f"the signal table {name} is in a system database, which is not followed: use another one")
    missing = [column for column in SIGNAL_COLUMNS if column not in columns]
    if missing:
        problem = f"has no column {missing[0]}" if loaded is not None else "is missing, or the user has no SELECT on it"
        raise ConfigError(
            f"the signal table {name} {problem}: CREATE TABLE {name} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT"
            " NULL, data VARCHAR(2048))"
        )


def _unreadable(config: PipelineConfig, tables: Sequence[str], rows: Sequence[Prerequisite]) -> list[Prerequisite]:
    """Return a failure if row images are partial: chunks that rewind or drop, ``rows``, and hooks need whole ones."""
    partial = [
        replace(row, expected="FULL", status="fail")
        for row in rows
        if row.name == "binlog_row_image" and row.status != "ok"
    ]
    policies = config.policies()
    filtered = [("`rows`", table) for table in tables if policies.of(table).rows]
    filtered += [("`hook`", table) for table in tables if policies.of(table).hook is not None]
    rewound = [table for table in tables if policies.of(table).window != "keep"]
    if partial and "history" in config.target.mode:
        return [replace(partial[0], remedy=f"{partial[0].remedy}: a history needs whole rows")]
    if not partial or not (filtered or rewound):
        return []
    another = f"remove {filtered[0][0]} of {filtered[0][1]}" if filtered else f'set window = "keep" for {rewound[0]}'
    return [replace(partial[0], remedy=f"{partial[0].remedy} or {another}")]


def _safe_condition(table: str, condition: str) -> None:
    try:
        check_filter(condition)
    except ConfigError as error:
        raise ConfigError(f'the condition of [tables."{table}"]: {error.message}') from None


def _check_conditions(connection: Connection, conditions: Mapping[str, str], tables: Sequence[TableDef]) -> None:
    """Check that the server accepts the conditions of these tables, which are safe, and that they can be read so."""
    for table in tables:
        condition = conditions.get(table.full_name)
        if condition is None:
            continue
        where = f'the condition of [tables."{table.full_name}"]'
        if not table.key:
            raise ConfigError(f"{where} cannot be used: a table without a key is read whole, in one piece")
        quoted_table = f"{quote_name(table.db)}.{quote_name(table.name)}"
        try:
            connection.query(f"SELECT 1 FROM {quoted_table} WHERE ({condition}) LIMIT 0")
        except DefiniteServerError as error:
            raise ConfigError(f"{where} is refused by the server: {error.message}") from None


def _reserved_names(policies: Policies) -> Iterator[str]:
    """Yield the rules that give a column a name that headgate uses in its tables and messages."""
    from headgate.decide import RESERVED_ANYWHERE

    for pattern, rules in policies.columns:
        for column, rule in rules:
            if rule.name.lower() in RESERVED_ANYWHERE:
                yield (
                    f"[columns] renames {pattern}.{column} to {rule.name}, a name that headgate uses itself: choose"
                    " another one"
                )


def _check_deletes(config: PipelineConfig, tables: Sequence[TableDef]) -> None:
    """Raise ``ConfigError`` if deleted rows of a table without a key would have to be marked, or kept."""
    if "current" not in config.target.mode:
        return
    for keeps, problem, setting in (
        (config.marks_deletes, 'deletes = "mark" cannot mark', 'deletes = "remove"'),
        (config.keeps_removed, "skip cannot keep removed", "skip = []"),
    ):
        keyless = [table.full_name for table in tables if not table.key and keeps(table.full_name)]
        if keyless:
            more = f", and of {len(keyless) - 1} more tables" if len(keyless) > 1 else ""
            raise ConfigError(
                f"{problem} rows of {keyless[0]}{more}: there is no primary key and no unique key of NOT NULL columns."
                f' Add a key, or set {setting} in [tables."{keyless[0]}"]'
            )


def _check_history(config: PipelineConfig, tables: Sequence[TableDef]) -> None:
    """Raise ``ConfigError`` if a table whose history is wanted has no key."""
    keyless = [table.full_name for table in tables if not table.key]
    if keyless and "history" in config.target.mode:
        more = f" (and {len(keyless) - 1} more)" if len(keyless) > 1 else ""
        raise ConfigError(
            f'mode "history" needs a key, and {keyless[0]}{more} has no primary key and no unique key of NOT NULL'
            f' columns. Add a key, or leave the table out: "!{keyless[0]}" in source.tables'
        )


def _raise_first(failed: Sequence[Prerequisite], url: str) -> None:
    if not failed:
        return
    from headgate.mysql import setting_error

    first = failed[0]
    more = f" ({len(failed) - 1} more: headgate check {url})" if len(failed) > 1 else ""
    if first.expected == "granted":
        raise AccessError(f"{first.name} is not granted: {first.remedy}{more}")
    raise setting_error(first, more=more)


def check_patterns(patterns: Sequence[str], tables: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Return what is missing of the tables that were followed before. They were dropped meanwhile, and the log shows
    that, perhaps after changes of other tables that must be applied first.

    :param tables: matching tables on the server.
    :param known: tables that were followed before.
    :raises ConfigError: a named table does not exist and was not followed, or nothing matches and nothing was followed.
    """
    missing = []
    for pattern in patterns:
        if not pattern.startswith("!") and not set("*?[") & set(pattern) and pattern not in tables:
            missing.append(
                f"there is no table {pattern} on the server, or the user has no SELECT on it{_globs(pattern)}"
            )
            if pattern not in known:
                raise ConfigError(missing[-1])
    if not tables and not missing:
        hint = _globs("".join(patterns))
        missing = [f"no table on the server matches {', '.join(patterns)}, or the user has no SELECT on any{hint}"]
        if not known:
            raise ConfigError(missing[0])
    return missing


def _globs(pattern: str) -> str:
    """Return a hint for patterns that look like regular expressions, which other tools take."""
    looks_so = not set(r"\|()^$+").isdisjoint(pattern)
    return '; patterns are globs, not regular expressions: "shop.*", "shop.order_?"' if looks_so else ""


def check_resnapshot(patterns: Sequence[str], tables: Sequence[str]) -> None:
    """Raise ``ConfigError`` if a pattern of tables to read again matches none of the pipeline's tables."""
    from headgate.catalog import TablePatterns

    if patterns and all(pattern.startswith("!") for pattern in patterns):
        raise ConfigError(f"{patterns[0]} only removes tables: name those to read again, too, such as 'shop.*'")
    for pattern in TablePatterns(patterns).unmatched(tables):
        raise ConfigError(f"no table of this pipeline matches {pattern}: check the spelling (case counts)")


def connection_settings(config: PipelineConfig) -> ConnectionSettings:
    """Return the settings to connect to the source."""
    from headgate.mysql import ConnectionSettings

    return ConnectionSettings.from_url(config.source.url, **config.source.passwords)
