"""``headgate run --dry-run``: what its table of tables says of each, from definitions made by hand."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.carrier import ControlFolder
from headgate.catalog import Column, TableDef, TableStats
from headgate.cli import app
from headgate.lake import Lake
from headgate.mysql import Connection
from tests.lake.tables import make_table
from tests.ui.status import put

ID = Column("id", "int", nullable=False)
TABLES = [*(TableDef("shop", name, (ID,), (0,)) for name in ("fed", "new", "plain")), TableDef("shop", "t", (ID,))]
Shown = Callable[..., dict[str, str]]
Printed = Callable[..., str]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """The plan, in a mode of the target."""
    stats = {"shop.new": TableStats("InnoDB", rows=7, data_bytes=100)}
    monkeypatch.setattr(Connection, "open", lambda _: contextlib.nullcontext(Server()))
    for name, value in {"load_tables": TABLES, "load_stats": stats, "check_config": []}.items():
        monkeypatch.setattr(f"headgate.cli._plan.{name}", lambda *_, value=value: value)
    monkeypatch.setattr("headgate.engine.check_java", lambda: None)
    file = tmp_path / "shop.toml"

    def print_plan(mode: str, more: str = "", *options: str) -> str:
        source = 'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n'
        file.write_text(f'{source}[target]\nmode = ["{mode}"]\npath = "{tmp_path}/lake"\n{more}')
        assert not app(["run", str(file), "--dry-run", *options], standalone_mode=False)
        return capsys.readouterr().out

    return print_plan


@pytest.fixture
def shown(printed: Printed) -> Shown:
    """Table → remarks, in a mode of the target."""

    def remarks(mode: str, more: str = "") -> dict[str, str]:
        lines = printed(mode, more).splitlines()
        assert not any(line.startswith("column ") for line in lines)
        rows = [re.fullmatch(r"table ([^:]+): (?:no )?key.*?; about .*? chunk;? ?(.*)", line) for line in lines]
        return {row[1]: row[2] for row in rows if row is not None}

    return remarks


class Server:
    query = None


def test_which_tables_cannot_be_written_and_why(shown: Shown, tmp_path: Path) -> None:
    lake, schema = Lake.at(tmp_path / "lake"), pa.schema({"id": pa.int32()})
    vectors = {"delta.enableDeletionVectors": "true"}
    make_table(lake.current("shop.plain"), [], schema, vectors)
    make_table(lake.current("shop.fed"), [], schema, {**vectors, "delta.enableChangeDataFeed": "true"})
    assert shown("current", '[tables."shop.new"]\ncondition = "id > 3"\n') == {
        "shop.fed": "headgate cannot write its table: "
        "it requires of its writers what headgate does not support: remove delta.enableChangeDataFeed",
        "shop.new": "only rows with id > 3 are read",
        "shop.plain": "",
        "shop.t": "no primary key and no unique key of NOT NULL columns",
    }
    assert set(shown("changelog").values()) == {""}, "a changelog is only appended to"


def test_columns_that_the_file_shapes_are_shown(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of a type that is not supported; with an option all of them."""
    odd = TableDef("shop", "odd", (ID, Column("n", "bigint unsigned", unsigned=True), Column("v", "strange")), (0,))
    wide = TableDef("shop", "wide", (ID, *(Column(f"c{number}", "int") for number in range(60))), (0,))
    monkeypatch.setattr("headgate.cli._plan.load_tables", lambda *_: [*TABLES, odd, wide])

    def columns(more: str = "", *options: str) -> tuple[list[str], list[str]]:
        lines = printed("current", more, *options).splitlines()
        return [line for line in lines if line.startswith("column ")], [
            line for line in lines if line.startswith("columns of ")
        ]

    shown, rest = columns()
    assert [line.partition(":")[0] for line in shown] == [
        "column shop.odd.id",
        "column shop.odd.n",
        "column shop.odd.v",
    ]
    assert rest == ["columns of 5 tables are as in MySQL (--log-level debug prints them)"]
    shown, rest = columns('[columns]\n"shop.plain" = { id = { rename = "number" } }\n')
    assert "column shop.plain.id: int as int32 (named number)" in shown
    assert rest == ["columns of 4 tables are as in MySQL (--log-level debug prints them)"]
    shown, rest = columns("", "--log-level", "debug")
    assert (len(shown), rest) == (4 + 3 + 61, [])


def test_what_the_tables_cost(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = "files of the last 6 h (target.retention_hours)"
    lines = printed("current").splitlines()
    begin = lines.index(f"{kept}, with a batch every 1.0 s:")
    assert lines[begin + 1 : begin + 4] == [
        "  if one table changes in each batch: at most 108,000, of 184 MB or more",
        "  if all 4 tables change in each batch: at most 302,400, of 514 MB or more",
        "  tables that fewer batches change have fewer files",
    ]
    monkeypatch.setattr(Lake, "is_local", False)
    monkeypatch.setattr(Lake, "check_root", lambda _lake: None)
    out = printed("current")
    assert f"{kept}, with a batch every 10 s:\n  if one table changes in each batch: at most 10,800, of " in out
    assert "at most 30,240, of 51 MB or more; a day 362,016 PUT and LIST, 566,784 GET\n" in out


def test_a_run_that_goes_on_prevents_another(printed: Printed, tmp_path: Path) -> None:
    assert printed("current").splitlines()[-1].startswith("nothing prevents a run; next: headgate run ")
    put(ControlFolder(str(tmp_path / "lake/_headgate/inbox")))
    verdict = f"nothing but the present run prevents one: end it, then headgate run {tmp_path}/shop.toml"
    assert printed("current").splitlines()[-1] == verdict
