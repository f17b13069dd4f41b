"""What a batch reads, by the offset in Spark's checkpoint: never an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import OffsetFormatError
from headgate.offsets import ChunkSpec, ReadState, SnapshotProgress, SnapshotState, SourceOffset, TableRead
from headgate.spark import BatchPlan, Notes, PlannedTable, TablesToRead

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
T = "shop.orders"


def offset(gtid: str, epoch: int = 9, **notes: object) -> SourceOffset:
    chunks = (ChunkSpec(T, 2), ChunkSpec(T, 3), ChunkSpec("shop.again", 7))
    progress = SnapshotProgress(5, chunks_done=4, chunks_estimate=3, rows_estimate=900)
    signals = Notes(reads={T: 200}, **notes).to_dict()  # type: ignore[arg-type]
    return SourceOffset(
        gtid, epoch, snapshot=SnapshotState((TableRead(T, ReadState.READING, progress),), chunks), signals=signals
    )


def checkpoint(folder: Path, batch_id: int, *lines: str) -> None:
    """A file of Spark's offset log."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch_id)).write_text("\n".join(["v1", '{"batchWatermarkMs":0,"conf":{}}', *lines]))


def test_the_plan_of_a_batch_is_in_the_checkpoint(tmp_path: Path) -> None:
    def plan(batch_id: int) -> BatchPlan | None:
        return BatchPlan.read(str(tmp_path / "checkpoint"), batch_id)

    assert plan(3) is None, "there is no such batch"
    checkpoint(tmp_path, 3, offset(f"{UUID}:1-9", behind=4).to_json())
    tables = {T: PlannedTable(3, 4, 200, 4, 900), "shop.again": PlannedTable(8, 8, 0, 8, 0)}
    assert plan(3) == BatchPlan(9, tables, None, 4), "the batch before is not there any more"
    checkpoint(tmp_path, 2, offset(f"{UUID}:1-7", 8).to_json())
    assert plan(3) == BatchPlan(9, tables, 2, 4)
    for text in ("-", "{}", "", offset(f"{UUID}:1-9").to_json()[:-5]):
        checkpoint(tmp_path, 4, text)
        assert plan(4) is None
    assert BatchPlan.read("nowhere://bucket/checkpoint", 0) is None, "Arrow knows no such store"


def test_what_a_stream_has_left_to_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    assert TablesToRead.read(folder) == TablesToRead(), "no stream has begun"
    checkpoint(tmp_path, 9, offset(f"{UUID}:1-9", paused=True).to_json())
    checkpoint(tmp_path, 10, offset(f"{UUID}:1-9").to_json())
    assert TablesToRead.read(folder) == TablesToRead((T,))
    checkpoint(tmp_path, 11, offset(f"{UUID}:1-9", paused=True).to_json())
    assert TablesToRead.read(folder) == TablesToRead((T,), paused=True)
    checkpoint(tmp_path, 12, SourceOffset(f"{UUID}:1-9", 9).to_json())
    assert TablesToRead.read(folder) == TablesToRead()
    checkpoint(tmp_path, 13, "{")
    with pytest.raises(OffsetFormatError):
        TablesToRead.read(folder)


def test_without_gtids_transactions_are_not_counted() -> None:
    from headgate.positions import LogPlace

    start, end = (offset(str(LogPlace.before(UUID, 3, pos)), pos, behind=None) for pos in (4, 900))
    plan = BatchPlan.of(start, end)
    assert (plan.transactions, plan.behind) == (None, None)
