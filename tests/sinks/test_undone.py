"""What a run does with tables of batches that the ledger lacks, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headgate.decide import Policy
from headgate.errors import TargetError
from headgate.lake import DeltaPath, Lake, State, TableLayout, TableState, UnenteredBatches, batch_marker
from headgate.sinks import BatchWriter
from tests.lake.tables import make_table

CONF = {"spark.sql.parquet.compression.codec": "snappy"}
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(getAll=CONF, get=lambda name, other=None: CONF.get(name, other)))
ROWS = pa.schema([("id", pa.int64())])
OURS = {"headgate.pipeline": "shop", "headgate.table": "shop.t", "delta.enableDeletionVectors": "true"}


def test_a_table_whose_layout_was_undone_gets_it_again(tmp_path: Path) -> None:
    """The lost batch had given it the layout."""
    lake, layout = Lake(str(tmp_path)), TableLayout({"team": "sales"})
    policy = replace(Policy.of(["current"]), layout=layout)
    path = tmp_path / "shop" / "t"
    path.mkdir(parents=True)
    make_table(str(path), [], ROWS, OURS)
    DeltaPath(SESSION, str(path), batch_marker("shop", 1)).set_properties({"by": "batch 1"})
    DeltaPath(SESSION, str(path), batch_marker("shop", 2)).arrange(layout)
    state = TableState("shop.t", State.LIVE, 1)
    writer = BatchWriter(SESSION, lake, "shop", ["current"], policy=lambda _: policy)
    ledger: Any = SimpleNamespace(
        entered_epoch=lambda: 1, table=lambda _: state, tables=lambda: {"shop.t": state}, last=None
    )
    writer.ledger = ledger
    batch: Any = SimpleNamespace(parts={"shop.t": ()}, header=SimpleNamespace(epoch=5))
    assert writer._without_unentered(SESSION, batch, {"shop.t": state})["shop.t"].version == 3
    assert "team" not in DeltaPath(SESSION, str(path)).snapshot().properties
    assert writer._arranges(state)


def test_no_batch_is_older_than_the_ledgers_beginning(tmp_path: Path) -> None:
    """The first batch wrote no table and was lost, then the clock went back: a later loss is still a later batch."""
    writer = BatchWriter(SESSION, Lake(str(tmp_path)), "shop", ["current"])
    ledger: Any = SimpleNamespace(entered_epoch=lambda: 6, tables=dict, last=None)
    writer.ledger = ledger
    assert writer.newest_epoch(SESSION) == 6


def test_a_table_that_the_run_leaves_out_and_that_cannot_be_restored_does_not_stop_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program has compacted it, and removed the files of the ledger's version."""
    writer = BatchWriter(SESSION, Lake(str(tmp_path)), "shop", ["current"])
    path = tmp_path / "shop" / "gone"
    path.mkdir(parents=True)
    make_table(str(path), [], ROWS, {**OURS, "headgate.table": "shop.gone"})
    DeltaPath(SESSION, str(path), batch_marker("shop", 9)).set_properties({"by": "batch 9"})
    states = {"shop.gone": TableState("shop.gone", State.LIVE, 0)}
    ledger: Any = SimpleNamespace(entered_epoch=lambda: 1, table=states.get, tables=lambda: states, last=None)
    writer.ledger = ledger
    batch: Any = SimpleNamespace(parts={}, header=SimpleNamespace(epoch=10))

    def fail(*_: object, **__: object) -> None:
        raise TargetError(f"{path}: version 0 cannot be restored")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UnenteredBatches, "restored", fail)
        assert writer._without_unentered(SESSION, batch, states) == states
    assert f"shop.gone: batches that are not in the ledger cannot be undone: {path}: version 0" in caplog.text
    writer._has_written = True
    batch = SimpleNamespace(parts={"shop.gone": ()}, header=SimpleNamespace(epoch=11))
    assert writer._without_unentered(SESSION, batch, states)["shop.gone"].version == 2, "it has come to the run"


def test_lost_batches_are_undone_in_tables_that_the_run_leaves_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a table that was excluded, or dropped at the source, no later batch would do it."""
    lake, policy = Lake(str(tmp_path)), Policy.of(["current"])
    writer = BatchWriter(SESSION, lake, "shop", ["current"], policy=lambda _: policy)
    states = {}
    for table, state in (("shop.t", State.LIVE), ("shop.gone", State.LIVE), ("shop.left_out", State.EXCLUDED)):
        path = tmp_path / "shop" / table.removeprefix("shop.")
        path.mkdir(parents=True)
        make_table(str(path), [], ROWS, {**OURS, "headgate.table": table})
        DeltaPath(SESSION, str(path), batch_marker("shop", 1)).set_properties({"by": "batch 1"})
        DeltaPath(SESSION, str(path), batch_marker("shop", 9)).set_properties({"by": "batch 9"})
        states[table] = TableState(table, state, 1)
    states["shop.nowhere"] = TableState("shop.nowhere", State.SNAPSHOTTING)
    ledger: Any = SimpleNamespace(entered_epoch=lambda: 1, table=states.get, tables=lambda: states, last=None)
    writer.ledger = ledger
    writer.check_targets(SESSION, ["shop.t"])
    assert writer.newest_epoch(SESSION) == 9
    batch: Any = SimpleNamespace(parts={}, header=SimpleNamespace(epoch=10))
    after = writer._without_unentered(SESSION, batch, states)
    assert {table: state.version for table, state in after.items()} == {
        "shop.t": 3, "shop.gone": 3, "shop.left_out": 1, "shop.nowhere": None,
    }  # fmt: skip
    gone = DeltaPath(SESSION, str(tmp_path / "shop" / "gone"))
    assert gone.snapshot().properties["by"] == "batch 1", "readers of the newest version see no part of a batch"
    assert writer._without_unentered(SESSION, batch, after) == after, "a replay restores nothing"
    writer._has_written = True
    caplog.clear()
    returned: Any = SimpleNamespace(parts={"shop.gone": ()}, header=SimpleNamespace(epoch=11))
    assert writer._without_unentered(SESSION, returned, after) == after
    assert "undone" not in caplog.text, "the run's first batch, which the ledger has, has looked at it"
    ledger.entered_epoch = lambda: 10
    batch = SimpleNamespace(parts={"shop.left_out": ()}, header=SimpleNamespace(epoch=11))
    writer._without_unentered(SESSION, batch, after)
    left_out = DeltaPath(SESSION, str(tmp_path / "shop" / "left_out"))
    assert left_out.snapshot().properties["by"] == "batch 1", "a table that comes to the run, whose lost batch was 9"
