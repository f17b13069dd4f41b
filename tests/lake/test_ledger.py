"""The ledger's fence, on a pretended Delta table."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headgate.errors import TargetError
from headgate.lake import Ledger


class Table:
    path = "/lake/_headgate/ledger"

    def __init__(self, version: int) -> None:
        self.newest = version

    def version(self) -> int:
        return self.newest

    def commit(self, others: int = 0) -> int:
        """Our commit, after some of another program."""
        self.newest += others + 1
        return self.newest


def test_a_fold_notices_rows_of_another_program() -> None:
    table = Table(3)
    ledger = object.__new__(Ledger)
    ledger._version, ledger._delta = 3, cast("Any", table)
    ledger.fold(lambda: None)
    ledger.fold(table.commit)
    assert ledger.version == 4
    with pytest.raises(TargetError, match="two pipelines run on one target"):
        ledger.fold(lambda: table.commit(others=1))
