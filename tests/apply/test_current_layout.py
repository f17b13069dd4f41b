"""Layout of a current table while a batch is applied, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

from headgate.apply import CurrentTable
from headgate.carrier import CarriedColumn, Definition
from headgate.decide import actions as do
from headgate.lake import DeltaPath, TableLayout, Target
from headgate.lake import _delta as delta_module
from tests.lake.test_delta_path import session


def test_rows_after_a_new_column_have_statistics_of_the_clustering_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of the columns with statistics by default moves behind them."""
    monkeypatch.setattr(delta_module, "_kind_of", lambda _: "long")
    names = [f"c{number}" for number in range(32)]
    layout, delta = TableLayout({}, ("c31",)), DeltaPath(session(), str(tmp_path / "t"))
    columns = StructType()
    for name in names:
        columns = columns.add(name, LongType())
    delta.create(columns, {}, layout)
    types = dict.fromkeys(["first", *names], "bigint")
    definition = Definition(
        "shop.t", ("c0",), tuple(CarriedColumn(name, kind, "bigint") for name, kind in types.items())
    )
    seen = []

    def actions() -> Iterator[Any]:
        yield do.AddColumns(definition, ("first",), Target.of(types, {}))
        seen.append(delta.snapshot().indexed_leaves)

    upserts: Any = None
    CurrentTable(delta, "shop", "shop.t", upserts, layout=layout).apply(actions(), 2)
    assert delta.schema().fieldNames() == ["first", *names]
    assert seen == [33], "before the next action writes rows"
    assert delta.snapshot().clustering == ("c31",)
