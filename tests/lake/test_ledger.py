"""The ledger's columns, and its fence on a pretended Delta table."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headgate.errors import TargetError
from headgate.lake import Ledger, TableState
from headgate.lake._ledger import MergedState, _column_type


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


def test_the_columns_are_those_of_the_records() -> None:
    """A field of a record is a column: what is not written here has not been decided."""
    versions = "version bigint, changelog_version bigint"
    shard = f"struct<table string, shard string, {versions}>"
    assert _column_type(tuple[MergedState, ...]) == (
        f"array<struct<table string, path string, {versions}, reason string, shards array<{shard}>>>"
    )
    assert _column_type(TableState) == (
        f"struct<table string, state string, {versions}, since_epoch bigint, held_epoch bigint, rows_estimate bigint, "
        "chunks_done bigint, chunks_estimate bigint, images bigint, reason string, definition string, "
        "settles_at string, unlogged string, place struct<table string, shard string, column string, path string>, "
        "successor struct<folder string, version bigint>, hook string, "
        "left_out struct<reason string, since string, changes bigint>, ignored string>"
    )


def test_a_fold_notices_rows_of_another_program() -> None:
    table = Table(3)
    ledger = object.__new__(Ledger)
    ledger._version, ledger._delta = 3, cast("Any", table)
    ledger.fold(lambda: None)
    ledger.fold(table.commit)
    assert ledger.version == 4
    with pytest.raises(TargetError, match="two pipelines run on one target"):
        ledger.fold(lambda: table.commit(others=1))
