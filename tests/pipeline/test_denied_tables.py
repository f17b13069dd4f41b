"""Which tables of the log a query is made about, and which answers stop one."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.decide import Divergence
from headgate.errors import AccessError, DefiniteServerError
from headgate.pipeline.divergence import DeniedTables, _denied_tables
from tests.fix_carrier import FakeBatch, FakeTable

DENIED = Divergence(
    "the account may not SELECT from shop.b, so its earlier rows are missing: GRANT SELECT ON `shop`.`b` to the account"
)
HIDDEN = Divergence("the account could not see it when its first changes were planned", over=True)


class Detection:
    """A detector in whose ledger is ``shop.known``; the server answers queries about others with ``error``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.queries: list[str] = []

        def query(sql: str, _args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            self.queries.append(sql)
            if error is not None:
                raise error
            return []

        opened = contextlib.nullcontext(SimpleNamespace(query=query))
        monkeypatch.setattr(_denied_tables, "Connection", SimpleNamespace(open=lambda _: opened))
        writer: Any = SimpleNamespace(ledger=SimpleNamespace(tables=lambda: {"shop.known": None}))
        self.detector = DeniedTables(writer, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "stopped"),
    [
        (AccessError("SELECT command denied", code=1142), {"shop.b": DENIED}),
        (AccessError("SELECT command denied for column", code=1143), {}),  # another detector's
        (DefiniteServerError("no such table", code=1146), {}),  # created and dropped meanwhile
        (None, {"shop.b": HIDDEN}),
    ],
)
def test_the_answers(monkeypatch: pytest.MonkeyPatch, error: Exception | None, stopped: dict[str, Divergence]) -> None:
    detection = Detection(monkeypatch, error)
    batch = FakeBatch(9).images(FakeTable("shop.b"), [("c", 1, 1, "x")]).described()
    assert detection.detector.unseen(batch) == stopped
    assert len(detection.queries) == 1


def test_tables_that_somebody_knows_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    detection = Detection(monkeypatch, AccessError("denied", code=1142))
    fake = FakeBatch(9).images(FakeTable("shop.known"), [("c", 1, 1, "x")])
    fake.snapshot("shop.read", 9, append=True, first=True).chunk(FakeTable("shop.read"), [(1, "x")])
    assert detection.detector.unseen(fake.described()) == {}
    assert detection.queries == []


@pytest.mark.parametrize(("only_if_absent", "number"), [(False, 0), (True, 1)])
def test_a_table_that_the_batch_creates_lacks_no_rows(
    monkeypatch: pytest.MonkeyPatch, only_if_absent: bool, number: int
) -> None:
    """CREATE TABLE IF NOT EXISTS may have met one."""
    detection = Detection(monkeypatch, AccessError("denied", code=1142))
    fake = FakeBatch(9).ddl("shop.b", "CREATE TABLE b ...", "create", 1, adds=() if only_if_absent else None)
    batch = fake.images(FakeTable("shop.b"), [("c", 2, 1, "x")]).described()
    assert detection.detector.unseen(batch) == ({"shop.b": DENIED} if only_if_absent else {})
    assert len(detection.queries) == number
