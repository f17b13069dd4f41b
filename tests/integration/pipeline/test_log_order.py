"""Images of a batch that reach the driver in the order of the log, fetched as they arrive or sorted by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from headgate.sinks import _log_order
from headgate.sinks._log_order import TableImages, fetch_slices
from tests.fix_carrier import FakeBatch, FakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.carrier import Part

TABLES = (FakeTable("shop.orders"), FakeTable("shop.items", (("n", "bigint"), ("text", "string")), ("n",)))
SLICE = 8 << 20
"""Bytes of the log after which Spark begins another slice."""


def turns(server: int) -> list[tuple[Any, ...]]:
    """Changes of one of two servers, whose transactions take turns in one log; some updates of keys."""
    images: list[tuple[Any, ...]] = []
    for number in range(40):
        pos = (2 * number + server) * (SLICE // 7) + 4
        if number % 5 == 3:
            images += [("b", pos, number, "old"), ("u", pos, number + 100, "new")]
        else:
            images.append(("c", pos, number, "x"))
    return images


@pytest.mark.parametrize("held_bytes", [0, 1 << 30])
def test_two_servers_that_take_turns_in_one_log(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    """Each task has the transactions of one server, so its images wait for the other's, unless Spark sorts them."""
    sorts, fetch_sorted = list[str](), _log_order.fetch_sorted

    def noted(frame: DataFrame, tables: Mapping[str, Sequence[Part]]) -> Iterator[list[TableImages]]:
        sorts.extend(tables)
        return fetch_sorted(frame, tables)

    monkeypatch.setattr(_log_order, "fetch_sorted", noted)
    batch = FakeBatch(3).live(TABLES[0].name).live(TABLES[1].name)
    for file in (1, 2):
        for server, table in enumerate(TABLES):
            batch.images(table, turns(server), file=file)
    batch.chunk(TABLES[1], [(n, "row") for n in range(5)], start=1)
    batch.chunk(TABLES[1], [(n, "row") for n in range(5, 9)], start=6)
    frame = batch.frame(spark).persist()
    try:
        slices = list(fetch_slices(frame, batch.described().parts, held_bytes))
    finally:
        frame.unpersist()
    assert sorts == ([] if held_bytes else [table.name for table in TABLES])
    rows = list[tuple[Any, ...]]()
    for images in slices:
        of_slice = [
            (*row["_seq"].values(), number, one.definition.table, row["_op"])
            for one in images
            for number, row in enumerate(one.images.to_pylist())
        ]
        rows += sorted(of_slice)
    places = [row[:4] for row in rows]
    assert places == sorted(places), "one slice after the other"
    log = [(file, server, image[0]) for file in (1, 2) for server in (0, 1) for image in turns(server)]
    assert len(rows) == len(log) + 9
    assert [row[5] for row in rows if row[1] == 1][:3] == ["shop.orders", "shop.items", "shop.orders"]
    pairs = [(before[-1], after[-1]) for before, after in pairwise(rows) if before[-1] == "b"]
    assert pairs == [("b", "u")] * (2 * 2 * 8), "an update stays whole, in one slice"
    assert len(slices) > 10 or held_bytes
