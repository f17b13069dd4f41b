"""Names in a catalog, with a session that answers as Spark does."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from headgate.errors import ConfigError
from headgate.lake import Lake, LedgerRow, MergedState, Place, TableState
from headgate.pipeline import names_of
from headgate.pipeline._catalog_names import CatalogNames, check_catalog

LAKE = Lake("/data/lake")
ORDERS = TableState(table="shop.orders", state="live", version=3, changelog_version=1)
ITEMS = TableState(table="shop.items", state="live", version=0)


class FakeSession:
    """Spark's catalog: names and locations. ``refused`` has names that it does not allow."""

    def __init__(self, *refused: str) -> None:
        self.tables: dict[str, str] = {}
        self.schemas: list[str] = []
        self.refused = refused
        self.down = False

    def sql(self, text: str) -> Any:
        if self.down:
            raise ConnectionError("no metastore\nat java")
        if match := re.fullmatch(r"CREATE DATABASE IF NOT EXISTS (.+)", text):
            self.schemas.append(match[1])
            return None
        if match := re.fullmatch(r"CREATE TABLE IF NOT EXISTS (.+) USING delta LOCATION '(.+)'", text):
            if match[1] in self.refused:
                raise AnalysisException(f"[INVALID_NAME] {match[1]}\nand more")
            self.tables.setdefault(match[1], f"file:{match[2]}")
            return None
        match = re.fullmatch(r"DESCRIBE DETAIL (.+)", text)
        assert match is not None, text
        rows = [(self.tables[match[1]],)]
        return SimpleNamespace(select=lambda _column: SimpleNamespace(collect=lambda: rows))


def row(*states: TableState, merged: tuple[MergedState, ...] = ()) -> LedgerRow:
    return LedgerRow(1, 1, "", datetime.now(UTC), {state.table: state for state in states}, merged=merged)


def warnings_of(session: FakeSession, *states: TableState) -> list[str]:
    """The warnings of a run whose newest ledger row has these tables."""
    warnings: list[str] = []
    names = CatalogNames(session, "lake", LAKE, warnings.append)  # type: ignore[arg-type]
    names.finish(row(*states))
    names.close()
    return warnings


def test_tables_and_changelogs_get_names() -> None:
    session = FakeSession()
    unread = TableState(table="shop.unread", state="snapshotting")
    assert warnings_of(session, ORDERS, ITEMS, unread) == []
    assert session.schemas == ["`lake`.`shop`", "`lake`.`shop_changelog`"]
    assert session.tables == {
        "`lake`.`shop`.`orders`": "file:/data/lake/shop/orders",
        "`lake`.`shop_changelog`.`orders`": "file:/data/lake/_changelog/shop/orders",
        "`lake`.`shop`.`items`": "file:/data/lake/shop/items",
    }
    assert warnings_of(session, ORDERS) == [], "a later run finds its names"


def test_a_name_of_another_table_is_left_to_it() -> None:
    session = FakeSession()
    session.tables["`lake`.`shop`.`items`"] = "file:/data/mine"
    (warning,) = warnings_of(session, ITEMS)
    assert (
        warning == "`lake`.`shop`.`items` in the catalog is the table at /data/mine; /data/lake/shop/items gets no name"
    )
    assert session.tables["`lake`.`shop`.`items`"] == "file:/data/mine"


def test_a_refused_name_does_not_stop_the_next() -> None:
    session = FakeSession("`lake`.`shop`.`orders`")
    (warning,) = warnings_of(session, ORDERS, ITEMS)
    assert warning == "`lake`.`shop`.`orders` cannot be a name in the catalog: [INVALID_NAME] `lake`.`shop`.`orders`"
    assert "`lake`.`shop`.`items`" in session.tables


def test_a_catalog_that_is_down_is_asked_again() -> None:
    session, warnings = FakeSession(), list[str]()
    names = CatalogNames(session, "lake", LAKE, warnings.append)  # type: ignore[arg-type]
    session.down = True
    for _ in range(3):
        names.finish(row(ITEMS))
    session.down = False
    names.finish(row(ITEMS))
    names.close()
    assert warnings == ["the catalog gave no name to /data/lake/shop/items: no metastore; it is asked again later"]
    assert list(session.tables) == ["`lake`.`shop`.`items`"]


def test_routed_and_merged_tables_have_their_names_in_the_lake() -> None:
    session = FakeSession()
    routed = replace(ITEMS, place=Place("sales.things"))
    shards = [
        TableState(f"shop{n}.orders", "live", version=3, place=Place("shop.orders", str(n), "_shard")) for n in (1, 2)
    ]
    names = CatalogNames(session, "lake", LAKE, [].append)  # type: ignore[arg-type]
    names.finish(row(routed, *shards, merged=(MergedState("shop.orders", version=4),)))
    names.close()
    assert session.tables == {
        "`lake`.`sales`.`things`": "file:/data/lake/sales/things",
        "`lake`.`shop`.`orders`": "file:/data/lake/shop/orders",
    }


def test_names_are_quoted() -> None:
    assert names_of("c", "a`b.t.u")[0] == "`c`.`a``b`.`t.u`"


@pytest.mark.parametrize(
    ("catalog", "settings", "problem"),
    [
        ("spark_catalog", {}, "would forget its names"),
        ("spark_catalog", {"spark.sql.catalogImplementation": "hive"}, None),
        ("main", {}, "is no catalog of the Spark session"),
        ("main", {"spark.sql.catalog.main": "a.b.Catalog"}, None),
    ],
)
def test_which_catalogs_keep_names(catalog: str, settings: dict[str, str], problem: str | None) -> None:
    session: Any = SimpleNamespace(conf=settings)
    if problem is None:
        check_catalog(session, catalog)
    else:
        with pytest.raises(ConfigError, match=problem):
            check_catalog(session, catalog)
