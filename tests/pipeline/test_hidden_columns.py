"""When a query finds out whether the server hides a column that the log has."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import PipelineConfig
from headgate.pipeline.divergence import HiddenColumns, _hidden_columns
from tests.fix_carrier import FakeBatch, FakeTable

ORDERS = FakeTable()
WIDER = FakeTable(columns=(*ORDERS.columns, ("Pin", "int")))
RENAMED = FakeTable(columns=(("id", "bigint"), ("thing", "string")), names={"thing": "item"})


class Detection:
    """A detector, and the tables about which it queried; the server hides columns of all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **targets: Any) -> None:
        self.tables: list[str] = []

        def hides(_query: Any, _db: str, table: str) -> bool:
            self.tables.append(table)
            return True

        monkeypatch.setattr(_hidden_columns, "hides_columns", hides)
        opened = contextlib.nullcontext(SimpleNamespace(query=None))
        monkeypatch.setattr(_hidden_columns, "Connection", SimpleNamespace(open=lambda _: opened))
        config = PipelineConfig.model_validate(
            {
                "name": "p",
                "source": {"url": "mysql://u@h", "tables": ["shop.*"]},
                "target": {"path": "/lake"},
                "columns": {"shop.orders": {"ssn": "exclude"}},
            }
        )
        writer: Any = SimpleNamespace(targets={f"shop.{name}": target for name, target in targets.items()})
        self.detector = HiddenColumns(config, writer, None)  # type: ignore[arg-type]

    def stops(self, batch: FakeBatch) -> bool:
        self.tables.clear()
        stopped = self.detector.unseen(batch.described())
        assert [f"shop.{table}" for table in self.tables] == list(stopped)
        return bool(stopped)


def test_a_column_that_no_select_showed(monkeypatch: pytest.MonkeyPatch) -> None:
    detection = Detection(monkeypatch)
    assert not detection.stops(FakeBatch(1).chunk(ORDERS, [(1, "a")]))
    assert not detection.stops(FakeBatch(2).images(ORDERS, [("c", 1, 2, "b")]))
    assert detection.stops(FakeBatch(3).images(WIDER, [("c", 1, 3, "c", 7)]))
    assert not detection.stops(FakeBatch(4).images(WIDER, [("c", 1, 3, "c", 7)])), "once: the table is stopped"


def test_what_explains_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    added = FakeBatch(2).images(WIDER, [("c", 9, 3, "c", 7)]).ddl(ORDERS.name, "ALTER …", "alter", 5)
    detection = Detection(monkeypatch, orders=ORDERS.target())
    assert not detection.stops(added), "a statement"
    assert not detection.stops(FakeBatch(3).images(WIDER, [("c", 1, 4, "c", 7)]))
    detection = Detection(monkeypatch, orders=RENAMED.target())
    assert not detection.stops(FakeBatch(2).images(RENAMED, [("c", 1, 2, "b")])), "a rule that renames it"
    assert not detection.stops(FakeBatch(3).images(ORDERS, [("c", 1, 2, "b")]))
    detection = Detection(monkeypatch)
    assert not detection.stops(FakeBatch(2).images(WIDER, [("c", 1, 3, "c", 7)])), "nothing is known of the table"
    other = FakeTable("shop.other", WIDER.columns)
    assert not Detection(monkeypatch, other=ORDERS.target()).stops(FakeBatch(2).images(other, [("c", 1, 3, "c", 7)]))


def test_a_log_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = FakeBatch(2).stop(ORDERS.name, "it has 3 columns", unknown="it has 3 columns")
    assert Detection(monkeypatch).stops(batch)
