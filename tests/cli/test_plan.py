"""``headgate run --dry-run``: what its table of tables says of each, from definitions made by hand."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from headgate.catalog import Column, TableDef, TableStats
from headgate.cli._plan import _overview
from headgate.config import parse_config
from headgate.lake import Lake
from tests.lake.tables import make_table

ID = Column("id", "int", nullable=False)
TABLES = [*(TableDef("shop", name, (ID,), (0,)) for name in ("fed", "new", "plain")), TableDef("shop", "t", (ID,))]


def shown(lake: Path, mode: str, more: str = "") -> dict[str, str]:
    """Table → remark."""
    text = f'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n[target]\npath = "{lake}"\n{more}'
    config = parse_config(text.replace("[target]\n", f'[target]\nmode = ["{mode}"]\n'))
    paper = Console(file=io.StringIO(), width=300, color_system=None)
    paper.print(_overview(config, Lake.at(lake), TABLES, {"shop.new": TableStats("InnoDB", rows=7, data_bytes=100)}))
    assert isinstance(paper.file, io.StringIO)
    rows = [line.split("│")[1:-1] for line in paper.file.getvalue().splitlines() if line.startswith("│")]
    return {cells[0].strip(): cells[-1].strip() for cells in rows}


def test_which_tables_cannot_be_written_and_why(tmp_path: Path) -> None:
    lake, schema = Lake.at(tmp_path / "lake"), pa.schema({"id": pa.int32()})
    vectors = {"delta.enableDeletionVectors": "true"}
    make_table(lake.current("shop.plain"), [], schema, vectors)
    make_table(lake.current("shop.fed"), [], schema, {**vectors, "delta.enableChangeDataFeed": "true"})
    assert shown(tmp_path / "lake", "current", '[tables."shop.new"]\ncondition = "id > 3"\n') == {
        "shop.fed": "headgate cannot write its table: "
        "it requires of its writers what headgate does not support: remove delta.enableChangeDataFeed",
        "shop.new": "only rows with id > 3 are read",
        "shop.plain": "",
        "shop.t": "no primary key and no unique key of NOT NULL columns",
    }
    assert set(shown(tmp_path / "lake", "changelog").values()) == {""}, "a changelog is only appended to"
