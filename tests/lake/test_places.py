"""Places of tables in the lake, by routes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.lake import Lake, Place, Places

TEXT = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["*.*"]\n[target]\npath = "/lake"\n'
ROUTES = """
[routes]
"shop.*" = "sales.{table}_of_{db}"
"shop.orders" = "sales.orders"
"shop_*.orders" = { to = "shop.orders", shard = "{db}" }
"shared_?.*" = { to = "all.{table}", shard = "x-{db}", column = "origin", path = "/shared" }
"""
LAKE = Lake.at("/lake")


@pytest.mark.parametrize(
    ("table", "place", "folder"),
    [
        ("other.orders", None, "/lake/other/orders"),
        ("shop.items", Place("sales.items_of_shop"), "/lake/sales/items_of_shop"),
        ("shop.a.b", Place("sales.a.b_of_shop"), "/lake/sales/a-002eb_of_shop"),
        ("shop.orders", Place("sales.orders"), "/lake/sales/orders"),
        ("Shop.orders", None, "/lake/Shop-u1/orders"),
        ("shop_1.orders", Place("shop.orders", "shop_1", "_shard"), "/lake/shop/orders/_shards/_shard=shop_1"),
        ("shared_1.t", Place("all.t", "x-shared_1", "origin", "/shared"), "/shared/all/t/_shards/origin=x-shared_1"),
    ],
)
def test_the_last_route_that_matches_gives_the_place(table: str, place: Place | None, folder: str) -> None:
    assert Places(parse_config(TEXT + ROUTES).routes).of(table) == place
    assert LAKE.current(table, place) == folder
    assert LAKE.changelog(table, place) == folder.replace("/lake", "/lake/_changelog").replace(
        "/shared/", "/shared/_changelog/"
    )


def test_folders_of_shards_are_distinct_and_need_no_encoding() -> None:
    values = [
        "a",
        "A",
        "a b",
        "a-b",
        "ä",
        "a%20b",
        "..",
        ".",
        "x" * 300,
        "x" * 301,
        "a/b",
        "a=b",
        "_shards",
        "$",
        "",
        "aB",
        "-",
    ]
    folders = [Place("d.t", value, "c").folder or "" for value in values]
    assert len({folder.lower() for folder in folders}) == len(values)
    assert all(re.fullmatch(r"_shards(/[A-Za-z0-9_-][A-Za-z0-9._=-]*){1,2}", folder) for folder in folders)
    assert max(map(len, folders)) < 255
    assert Place("d.t", "aB", "c").folder == "_shards/aB-u2/c=aB"


@pytest.mark.parametrize(("shard", "is_value"), [("x" * 190, True), ("x" * 191, False), ("X" * 191, False)])
def test_folders_of_shards_can_be_made(tmp_path: Path, shard: str, is_value: bool) -> None:
    folder = Place("d.t", shard, "c" * 64).folder
    assert folder is not None
    (tmp_path / folder).mkdir(parents=True)
    assert folder.endswith(f"={shard}") == is_value


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ('"shop.*" = "orders"', r"routes.*expected a name of the form db\.table"),
        ('"shop.*" = "a.{schema}"', r"expected a name, perhaps with \{db\} and \{table\}"),
        ('"shop.*" = "a.{table"', r"expected a name, perhaps with \{db\} and \{table\}"),
        ('"shop" = "a.b"', r"'shop' is not a table pattern"),
        ('"!shop.*" = "a.b"', r"'!shop\.\*' is not a table pattern"),
        ('"shop.*" = { to = "a.b", path = "/x" }', "path is for merged tables: set shard, too"),
        ('"shop.*" = { to = "a.b", shard = "{x}" }', "expected a name, perhaps with"),
        ('"shop.*" = { to = "a.b", shard = "s", column = "a b" }', "expected letters, digits and _"),
        ('"shop.*" = { shard = "s" }', "to"),
    ],
)
def test_mistakes(route: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(f"{TEXT}[routes]\n{route}\n")
