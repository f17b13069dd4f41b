"""How often a run looks whether a changelog has changes that the ledger's row does not name, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.apply import ChangelogTable
from headgate.lake import Lake, State, TableState
from headgate.sinks import BatchWriter
from tests.fix_carrier import FakeBatch

CONF = {"spark.sql.parquet.compression.codec": "snappy"}
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(getAll=CONF, get=lambda name, other=None: CONF.get(name, other)))
QUEUED = TableState("shop.orders", State.SNAPSHOTTING)
LOGGED = replace(QUEUED, changelog_version=0)


@pytest.mark.parametrize(
    ("rows", "answer", "looks"),
    [
        ([QUEUED, QUEUED, QUEUED], False, 1),  # it waits to be read, and each batch's header names it
        ([LOGGED, LOGGED], False, 0),
        ([QUEUED, None, QUEUED], False, 2),  # forgotten, and followed again: its changelog may have changes now
        ([QUEUED, QUEUED], True, 2),
    ],
)
def test_a_store_is_read_once_for_the_changelog_of_a_waiting_table(
    rows: list[TableState | None], answer: bool, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []

    def has_changes_until(_: ChangelogTable, epoch: int) -> bool:
        looked_at.append(epoch)
        return answer

    monkeypatch.setattr(ChangelogTable, "has_changes_until", has_changes_until)
    writer = BatchWriter(SESSION, Lake(str(tmp_path)), "shop", ["current", "changelog"])
    ledger: Any = SimpleNamespace(last=SimpleNamespace(epoch=8), table=lambda _: None)
    writer.ledger = ledger
    batch = FakeBatch(9).about("shop.orders", state="queued").described()
    for row in rows:
        before = writer._table_before(SESSION, batch, "shop.orders", row, reread_requested=False)
        assert before.is_log_outdated == (answer and row is not None)
    assert looked_at == [8] * looks
