"""What a run refuses, and what it warns of, before it begins: the server's settings, grants and tables."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from headgate.config import PipelineConfig, parse_config
from headgate.errors import AccessError, ConfigError, DefiniteServerError, HeadgateError, ServerSettingError
from headgate.pipeline import check_config, check_source
from tests.logged import logged_here
from tests.snapshot.selectable import SelectableServer, connected, ready, variables

Change = Callable[[SelectableServer], object]


def config(source: str = "", sections: str = "", *, tables: str = '"d.*"', target: str = "") -> PipelineConfig:
    return parse_config(
        f'name = "p"\n[source]\nurl = "mysql://reader@h"\ntables = [{tables}]\n{source}\n'
        f'[target]\npath = "/nowhere/lake"\n{target}\n{sections}'
    )


def checked(server: SelectableServer, pipeline: PipelineConfig, known: Collection[str] = ()) -> list[str]:
    with connected(server) as network:
        tables = check_source(pipeline, known)
    assert network.open == 0
    return tables


def answer(begin: str, rows: list[tuple[Any, ...]] | Exception) -> Change:
    return lambda server: server.answers.update({begin: rows})


def tables(*names: str) -> Change:
    return lambda server: setattr(server, "tables", [*names])


def settings(**changed: str) -> Change:
    return lambda server: variables(server, **changed)


def keyless(server: SelectableServer) -> None:
    server.is_keyed = False


CASCADE = answer("SELECT CONSTRAINT_SCHEMA", [("d", "t", "fk", "RESTRICT", "CASCADE")])
UNLOGGED = settings(innodb_native_foreign_keys="ON")
MYISAM: Change = lambda server: setattr(server, "engine", "MyISAM")  # noqa: E731 - one of many
UNKNOWN_COLUMN = DefiniteServerError("Unknown column 'x'", code=1054)


def test_a_server_that_has_all(caplog: pytest.LogCaptureFixture) -> None:
    server = ready()
    assert checked(server, config()) == ["d.t"]
    assert logged_here(caplog) == []
    assert not any("MAX_EXECUTION_TIME" in sql or sql.startswith(("INSERT", "SET")) for sql in server.statements)


@pytest.mark.parametrize(
    ("changes", "pipeline", "kind", "message"),
    [
        (
            [settings(binlog_format="MIXED", binlog_order_commits="OFF")],
            config(),
            ServerSettingError,
            "is MIXED, but ROW is needed: SET PERSIST binlog_format = ROW; (1 more: headgate check mysql://reader@h:3306)",
        ),
        (
            [answer("SHOW REPLICAS", AccessError("denied", code=1227))],
            config(),
            AccessError,
            "REPLICATION SLAVE is not granted: GRANT REPLICATION SLAVE ON *.* TO 'reader'@'%';",
        ),
        (
            [answer("SELECT `id`, `v` FROM `d`.`t` LIMIT 0", AccessError("denied", code=1142))],
            config(),
            AccessError,
            "SELECT on d.t is not granted: GRANT SELECT ON `d`.`t` TO 'reader'@'%';",
        ),
        (
            [answer("SELECT `headgate: no such column`", AccessError("denied", code=1143))],
            config(),
            AccessError,
            "GRANT SELECT ON `d`.`t`",
        ),
        ([MYISAM], config(), ServerSettingError, "engine of d.t is MyISAM, but InnoDB is needed: ALTER TABLE"),
        ([CASCADE, UNLOGGED], config(), ServerSettingError, "foreign keys of d.t is fk: ON UPDATE RESTRICT ON DELETE"),
        # row images that leave columns out
        (
            [settings(binlog_row_image="MINIMAL")],
            config(),
            ServerSettingError,
            'SET PERSIST binlog_row_image = FULL; or set window = "keep" for d.t',
        ),
        (
            [settings(binlog_row_image="MINIMAL")],
            config('window = "keep"', '[tables."d.t"]\nrows = "v > 1"'),
            ServerSettingError,
            "SET PERSIST binlog_row_image = FULL; or remove `rows` of d.t",
        ),
        (
            [settings(binlog_row_image="MINIMAL")],
            config('window = "keep"', target='mode = "history"'),
            ServerSettingError,
            "SET PERSIST binlog_row_image = FULL;: a history needs whole rows",
        ),
        # names of tables
        ([], config(tables='"d.t", "d.odrers"'), ConfigError, "there is no table d.odrers on the server, or the user"),
        (
            [],
            config(tables='"d.(t|u)"'),
            ConfigError,
            'patterns are globs, not regular expressions: "shop.*", "shop.order_?"',
        ),
        ([], config(tables='"shop.*", "!d.*"'), ConfigError, "no table on the server matches shop.*, !d.*"),
        # conditions
        (
            [answer("SELECT 1 FROM `d`.`t` WHERE (x > 1) LIMIT 0", UNKNOWN_COLUMN)],
            config(sections='[tables."d.t"]\ncondition = "x > 1"'),
            ConfigError,
            "the condition of [tables.\"d.t\"] is refused by the server: Unknown column 'x'",
        ),
        (
            [keyless],
            config(sections='[tables."d.t"]\ncondition = "v > 1"'),
            ConfigError,
            'the condition of [tables."d.t"] cannot be used: a table without a key is read whole, in one piece',
        ),
        # tables without a key
        (
            [keyless, tables("t", "u")],
            config(target='deletes = "mark"'),
            ConfigError,
            'deletes = "mark" cannot mark rows of d.t, and of 1 more tables: there is no primary key',
        ),
        ([keyless], config('skip = ["delete"]'), ConfigError, "skip cannot keep removed rows of d.t: there is no"),
        (
            [keyless, tables("t", "u")],
            config(target='mode = "history"'),
            ConfigError,
            'mode "history" needs a key, and d.t (and 1 more) has no primary key',
        ),
        # the signal table
        (
            [],
            config('signal_table = "d.signals"'),
            ConfigError,
            "the signal table d.signals is missing, or the user has no SELECT on it: CREATE TABLE d.signals (id",
        ),
        ([tables("T", "t")], config('signal_table = "d.t"'), ConfigError, "the signal table d.t has no column type"),
        (
            [tables("Signals")],
            config('signal_table = "d.signals"'),
            ConfigError,
            "the signal table d.signals is d.Signals on the server: use that name",
        ),
    ],
)
def test_what_is_refused(
    changes: list[Change], pipeline: PipelineConfig, kind: type[HeadgateError], message: str
) -> None:
    server = ready()
    for change in changes:
        change(server)
    with pytest.raises(kind) as caught:
        checked(server, pipeline)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "pipeline", "known"),
    [
        ([settings(binlog_row_image="MINIMAL")], config('window = "keep"'), []),
        ([settings(gtid_mode="OFF")], config('watermark = "signal-table"\nsignal_table = "d.signals"'), []),
        ([MYISAM], config('snapshot_mode = "no_data"'), []),
        ([MYISAM], config(), ["d.t"]),
        ([CASCADE], config(), []),
        (
            [answer("SELECT `headgate: no such column`", AccessError("denied", code=1143))],
            config('snapshot_mode = "no_data"'),
            [],
        ),
        ([keyless], config(), []),
    ],
)
def test_what_is_accepted(changes: list[Change], pipeline: PipelineConfig, known: list[str]) -> None:
    server = ready()
    for change in changes:
        change(server)
    if pipeline.source.signal_table is not None:
        server.tables.append("signals")
        server.columns = ["id", "type", "data"]
        server.answers["SELECT `id`"] = []
    assert "d.t" in checked(server, pipeline, known)


@pytest.mark.parametrize(
    ("changes", "pipeline", "message"),
    [
        ([], config(sections='[tables."d.T"]\nrows = "v > 1"'), '[tables."d.T"] matches no followed table: check'),
        ([], config(sections='[columns."d.t"]\nw = "exclude"'), "the rule for d.t.w in [columns] matches no column"),
        (
            [],
            config(sections='[tables."d.t"]\ncluster_by = ["w"]'),
            'cluster_by in [tables."d.t"]: column w is not in the table: check the spelling (case counts)',
        ),
        (
            [answer("SELECT SCHEMA_NAME", [("d.x",), ("e.x",)])],
            config(tables='"d.*", "d?x.*"'),
            'database d.x is not followed: its name has a dot; exclude it by "!d?x.*"',
        ),
        ([tables("t", "_t_gho")], config(), "left out: d._t_gho, named as gh-ost or pt-online-schema-change names"),
        (
            [CASCADE, UNLOGGED],
            config(sections='[tables."d.t"]\nforeign_keys = "accept"'),
            "foreign keys of d.t change its rows unseen (fk: ON UPDATE RESTRICT ON DELETE CASCADE); the target will",
        ),
    ],
)
def test_what_a_run_warns_of(
    changes: list[Change], pipeline: PipelineConfig, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = ready()
    for change in changes:
        change(server)
    assert checked(server, pipeline) == ["d.t"]
    (line,) = logged_here(caplog)
    assert (line.levelname, message in line.getMessage()) == ("WARNING", True), line.getMessage()


def test_a_table_that_was_followed_may_be_gone(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, after changes of other tables that come first."""
    server = ready()
    assert checked(server, config(tables='"d.t", "d.gone"'), ["d.gone"]) == ["d.t"]
    assert [line.getMessage() for line in logged_here(caplog)] == [
        "there is no table d.gone on the server, or the user has no SELECT on it; the log is still followed"
    ]


# --- the tables' places in the lake


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (
            '"d.*" = "all.rows"',
            "d.t and d.u would both be all.rows in the lake: to merge them, give the route a shard that differs",
        ),
        ('"d.t" = "d.u"', "d.t and d.u would both be d.u in the lake"),
        ('"d.t" = { to = "d.u", shard = "{table}" }', "where [routes] merges other tables: choose another name"),
        (
            '"d.t" = { to = "all.rows", shard = "t" }\n"d.u" = { to = "all.rows", shard = "u", column = "origin" }',
            "the routes to all.rows name two columns, _shard and origin: keep one",
        ),
        (
            '"d.*" = { to = "all.rows", shard = "{table}", path = "s3a://bucket/lake" }',
            "must both be local folders, or both in an object store",
        ),
    ],
)
def test_routes_that_would_mix_tables(routes: str, message: str) -> None:
    server = ready()
    server.tables = ["t", "u"]
    server.answers["SELECT `id`, `v` FROM `d`.`u` LIMIT 0"] = []
    with connected(server), pytest.raises(ConfigError) as caught:
        check_config(config(sections=f"[routes]\n{routes}"))
    assert message in str(caught.value)


def test_routes_of_a_merged_table(tmp_path: Path) -> None:
    server = ready()
    server.tables = ["t", "u"]
    server.answers["SELECT `id`, `v` FROM `d`.`u` LIMIT 0"] = []
    merged = '[routes]\n"d.*" = { to = "all.rows", shard = "{table}" }'
    pipeline = config(sections=merged)
    pipeline = pipeline.model_copy(update={"target": pipeline.target.model_copy(update={"path": str(tmp_path)})})
    with connected(server):
        assert check_config(pipeline) == ["d.t", "d.u"]
