"""What ``check`` prints and ``init`` writes, without a server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from headgate.catalog import Column, TableDef, TablePatterns, TableStats, exact_pattern
from headgate.cli import _check, _init, app
from headgate.config import PipelineConfig, load_config, parse_config
from headgate.errors import AccessError, DefiniteServerError
from headgate.mysql import Connection, ConnectionSettings, Prerequisite, ServerFacts
from tests.snapshot.selectable import SelectableServer, connected, ready, variables

ROWS = [
    Prerequisite("log_bin", "ON", "ON", "ok"),
    Prerequisite("binlog_format", "ROW", "MIXED", "fail", "SET PERSIST binlog_format = ROW;"),
    Prerequisite("key of [red]x", "one", "none", "warn", "add [one]"),
]

OF_MYSQL = ("information_schema", "mysql", "performance_schema", "sys")


def test_plain_lines() -> None:
    assert list(_check._lines(ROWS)) == [
        "ok    log_bin        ON",
        "FAIL  binlog_format  MIXED (expected: ROW)",
        "                     -> SET PERSIST binlog_format = ROW;",
        "WARN  key of [red]x  none (expected: one)",
        "                     -> add [one]",
        "1 failed, 1 warning, 1 ok",
    ]


def test_a_terminal_sees_a_table_with_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, highlight=False)
    monkeypatch.setattr(_check, "console", lambda: screen)
    _check._show(ROWS)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" in text
    for word in ("SET PERSIST binlog_format = ROW;", "key of [red]x", "add [one]", "1 failed, 1 warning, 1 ok"):
        assert word in text


def test_nothing_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80, highlight=False)
    monkeypatch.setattr(_check, "console", lambda: screen)
    remedy = f"SET PERSIST {'a_long_name_of_a_setting_' * 5}= ON;"
    rows = [*ROWS, Prerequisite("a setting", "ON", "OFF", "fail", remedy)]
    _check._show(rows)
    assert screen.file.getvalue().splitlines() == [*_check._lines(rows)]  # type: ignore[attr-defined]


NAME = st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name)
ODD = st.text("!.?*[]a\"'\\\n#", min_size=1, max_size=5)


def written(tables: list[TableDef], chosen: list[str], target: str = "./lake") -> PipelineConfig:
    url = "mysql://u@h"
    server = ConnectionSettings.from_url(url)
    stats = {table.full_name: TableStats("InnoDB", 5, 10) for table in tables}
    text = "".join(
        [
            _init._head(server, ServerFacts({"version": "9.7.4"})),
            _init._source(url, server, chosen),
            _init._table_list(tables, stats, TablePatterns(chosen)),
            _init._target(target),
            _init._rest(tables),
        ]
    )
    return parse_config(text)


@settings(max_examples=200)
@given(
    names=st.lists(
        st.tuples((NAME | ODD).filter(lambda db: "." not in db), NAME | ODD), min_size=1, max_size=4, unique=True
    ),
    target=st.text(min_size=1, max_size=20).filter(lambda path: "\0" not in path),
    keyed=st.booleans(),
)
def test_any_names_make_a_file_that_reads_back(names: list[tuple[str, str]], target: str, keyed: bool) -> None:
    columns = (Column("id", "int", nullable=False),)
    tables = [TableDef(db, name, columns, (0,) if keyed else ()) for db, name in names]
    chosen = [f"{exact_pattern(db)}.*" for db, _ in names]
    config = written(tables, chosen, target)
    patterns = TablePatterns(config.source.tables)
    assert all(patterns.matches(db, name) or db.lower() in OF_MYSQL for db, name in names)


def test_a_target_that_begins_with_a_tilde_of_nobody() -> None:
    table = TableDef("db", "t", (Column("id", "int"),), (0,))
    assert str(written([table], ["db.*"], "~nobody_of_this_name/lake").target.path).endswith(
        "~nobody_of_this_name/lake"
    )


def test_many_tables_do_not_bury_the_settings() -> None:
    tables = [TableDef("db", f"t{n}", (Column("id", "int"),), (0,)) for n in range(100)]
    listed = _init._table_list(tables, {}, TablePatterns(["db.*"]))
    assert listed.count("\n") == 2 + _init._LISTED + 1
    assert "and 60 more" in listed


def test_tables_that_a_pipeline_leaves_out_are_noted() -> None:
    tables = [TableDef("db", name, (Column("id", "int"),), (0,)) for name in ("t", "_t_gho", "_u_new")]
    patterns = TablePatterns(["db.*", "db._u_new"])
    listed = _init._table_list(tables, {}, patterns)
    assert "# Left out: db._t_gho, named as gh-ost or" in listed
    server = cast("Connection", Server())
    (row,) = [row for row in _check._patterns(server, patterns, tables) if row.status == "info"]
    assert (row.actual, "to follow one, name it in source.tables" in row.remedy) == ("db._t_gho", True)
    assert [row.status for row in _check._patterns(server, TablePatterns(["db._*"]), tables)] == ["ok"]


@pytest.mark.parametrize(
    ("pattern", "actual", "remedy"),
    [
        ("shop.*", "none visible: no SELECT, or misspelt (case counts)", "GRANT SELECT ON `shop`.* TO 'h'@'%';"),
        ("*.*", "none visible: no SELECT, or misspelt (case counts)", "GRANT SELECT ON `…`.* TO 'h'@'%';"),
        ("db.odrers", "none", "check the spelling: names are case-sensitive"),
    ],
)
def test_a_pattern_without_a_match_names_the_missing_grant(pattern: str, actual: str, remedy: str) -> None:
    """The account may read the database ``db``."""
    (row,) = _check._patterns(cast("Connection", Server()), TablePatterns([pattern]), [])
    assert (row.status, row.actual, row.remedy) == ("fail", actual, remedy)


class Server:
    """A server on which an account may read one database, and which has no table."""

    def query(self, statement: str) -> list[tuple[str, ...]]:
        if statement == "SELECT CURRENT_USER()":
            return [("h@%",)]
        if statement.startswith("SELECT 1 FROM `db`."):
            raise DefiniteServerError("no such table", code=1146)
        raise AccessError("SELECT command denied", code=1142)


# --- the commands


def run(server: SelectableServer, *words: str) -> tuple[int, str, str]:
    with connected(server) as network:
        result = CliRunner().invoke(app, [words[0], "mysql://reader@pretended", *words[1:]])
    assert network.open == 0
    return result.exit_code, result.stdout, result.stderr


def report(server: SelectableServer, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, out, err = run(server, "check", "--format", "json", *words)
    assert err == ""
    return code, {row["name"]: row for row in json.loads(out)}


def test_a_server_that_passes_all_checks() -> None:
    code, rows = report(ready(), "-t", "d.*")
    assert (code, {row["status"] for row in rows.values()}) == (0, {"ok"})
    assert {
        name: row["actual"] for name, row in rows.items() if name.startswith(("tables", "keys", "SELECT", "en"))
    } == {
        "tables d.*": "1",
        "engines": "InnoDB (1 table)",
        "keys": "primary or unique, NOT NULL (1 table)",
        "SELECT": "granted (1 table)",
        "enforce_gtid_consistency": "ON",
    }
    assert run(ready(), "check")[1].splitlines()[-1] == f"0 failed, 0 warnings, {len(rows)} ok"


def test_all_faults_are_reported_with_their_remedies() -> None:
    server = ready()
    variables(server, binlog_format="MIXED", innodb_native_foreign_keys="ON")
    server.is_keyed, server.engine = False, "MyISAM"
    server.answers |= {
        "SELECT `id`, `v` FROM `d`.`t` LIMIT 0": AccessError("denied", code=1142),
        "SELECT CONSTRAINT_SCHEMA": [("d", "t", "fk", "CASCADE", "RESTRICT")],
        "LOCK TABLES `d`.`headgate: no such table` READ": AccessError("denied", code=1044),
    }
    code, rows = report(server, "-t", "d.*", "-t", "d.gone")
    assert (code, {name: row["remedy"] for name, row in rows.items() if row["status"] == "fail"}) == (
        1,
        {
            "binlog_format": "SET PERSIST binlog_format = ROW;",
            "engine of d.t": "ALTER TABLE `d`.`t` ENGINE = InnoDB;",
            "SELECT on d.t": "GRANT SELECT ON `d`.`t` TO 'reader'@'%';",
            "tables d.gone": "check the spelling: names are case-sensitive",
            "foreign keys of d.t": rows["foreign keys of d.t"]["remedy"],
        },
    )
    assert rows["key of d.t"]["status"] == "warn"
    assert rows["watermark gtid"]["actual"] == "not usable: see binlog_format"
    assert rows["watermark lock"]["actual"].startswith("needs GRANT LOCK TABLES ON `d`.* TO 'reader'@'%'; not usable")
    assert {"engines", "keys", "SELECT"}.isdisjoint(rows)
    assert run(server, "check")[0] == 1


def test_a_grant_on_some_columns_is_not_enough() -> None:
    server = ready()
    server.answers["SELECT `headgate: no such column`"] = AccessError("denied", code=1143)
    code, rows = report(server)
    assert (code, rows["SELECT on d.t"]["actual"]) == (1, "granted on some columns only")


def test_init_writes_a_file_that_a_run_takes(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    server = ready()
    server.tables = ["t", "u"]
    words = ["init", "-o", str(file), "--target", str(tmp_path / "lake"), "--password-file", str(tmp_path / "pw")]
    code, out, err = run(server, *words)
    assert (code, out.splitlines()[0], err) == (0, f"wrote {file}: 2 tables", "")
    config = load_config(file)
    assert (config.source.url, config.source.tables) == ("mysql://reader@pretended:3306", ("d.*",))
    assert (config.source.password_file, config.target.path) == (str(tmp_path / "pw"), str(tmp_path / "lake"))
    written = file.read_text()
    code, _, err = run(server, *words)
    assert (code, f"{file} exists already; --force overwrites it" in err) == (2, True)
    assert run(server, *words, "--force", "-t", "d.u")[0] == 0
    assert (load_config(file).source.tables, file.read_text() == written) == (("d.u",), False)
    code, out, err = run(server, *words, "--force", "-t", "d.u", "-t", "e.*")
    assert (code, err) == (0, "warning: no table matches e.* yet: check the spelling (case counts) and the grants\n")
    assert load_config(file).source.tables == ("d.u", "e.*")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-t", "shop.*"],
            "no table matches shop.*: the account lacks SELECT: GRANT SELECT ON `shop`.* TO 'reader'@'%';",
        ),
        (["-o", "none/p.toml"], "none/p.toml cannot be written"),
        (["-t", "nodot"], "not a table pattern"),
    ],
)
def test_init_writes_no_file_that_would_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(ready(), "init", *words)
    assert (code, out, message in err) == (2, "", True), err
    assert [*tmp_path.iterdir()] == []
