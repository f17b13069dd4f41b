"""Requests that the sinks send to the planner."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.carrier import ControlFolder
from headgate.lake import TableState
from headgate.sinks._answers import PlannerMessages
from headgate.sinks._decide import Decision
from tests.fix_carrier import FakeBatch


@pytest.mark.parametrize("table", ["shop.orders", "!shop.[x]*", "shop." + "т" * 64])
def test_a_re_read_is_requested_of_any_table(table: str, tmp_path: Path) -> None:
    messages = PlannerMessages(ControlFolder(str(tmp_path)))
    decision = Decision(table, TableState(table, "stale"), reread="its columns changed")
    messages.request(FakeBatch(9).described(), [decision], {})
    pending = messages.pending_rereads()
    assert pending is not None
    db, _, name = table.partition(".")
    assert pending.matches(db, name)
    assert not pending.matches(db, f"{name}x")
