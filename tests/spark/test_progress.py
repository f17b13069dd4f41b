"""What tasks say of their reading, and what the driver makes of it: never an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.offsets import ChunkSpec, SnapshotProgress, SnapshotState, SourceOffset
from headgate.spark import BatchPlan, BatchProgress
from headgate.spark._notes import Notes
from headgate.spark._progress import PlannedTable, TaskProgress

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
T = "shop.orders"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def driver(folder: Path) -> BatchProgress:
    progress = BatchProgress(str(folder / "inbox"), str(folder / "checkpoint"))
    progress.begin()
    return progress


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "inbox" / "progress").iterdir())


def test_tasks_say_what_they_have_read_now_and_then(tmp_path: Path) -> None:
    progress, clock = driver(tmp_path), Clock()
    task = TaskProgress(tmp_path / "inbox" / "progress" / "9-0.json", clock)
    seen = []
    for _ in range(40):
        clock.now += 0.1
        task.rows(T, 10)
        task.changes(T, 1)
        seen.append(progress.read(9))
    assert seen[:4] == [None] * 4, "a short task writes nothing"
    assert seen[6] == ({T: 60}, {T: 5}) or seen[6] == ({T: 50}, {T: 4})
    assert 6 <= len({str(reading) for reading in seen}) <= 9, "twice a second at most, in four seconds"
    assert progress.read(8) is None, "of another batch"
    assert names(tmp_path) == ["9-0.json"]


def test_several_tasks_make_one_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = driver(tmp_path)
    for number, table in enumerate((T, T, "shop.items")):
        with TaskProgress.of(str(tmp_path / "inbox"), 9, number, interval=0.0) as task:
            task.rows(table, 100 + number)
            task.changes(T, 1)
    assert progress.read(9) == ({T: 201, "shop.items": 102}, {T: 3})
    with TaskProgress.of(str(tmp_path / "inbox"), 9, 0, interval=0.0) as task:
        task.rows(T, 7)
    assert progress.read(9) == ({T: 108, "shop.items": 102}, {T: 2}), "a task that is tried again begins at 0"
    progress.clear()
    assert progress.read(9) is None
    assert names(tmp_path) == []


def test_the_last_word_has_everything(tmp_path: Path) -> None:
    progress = driver(tmp_path)
    with TaskProgress.of(str(tmp_path / "inbox"), 9, 0) as task:
        task._written -= 1
        task.rows(T, 1)
        task.rows(T, 2)
    assert progress.read(9) == ({T: 3}, {})


@pytest.mark.parametrize("path", [None, "s3://bucket/lake/_headgate/inbox", "nowhere/inbox"])
def test_where_the_driver_shares_no_folder_nothing_is_written(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with TaskProgress.of(path, 9, 0, interval=0.0) as task:
        task.rows(T, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken_away_stops_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = driver(tmp_path)
    folder = tmp_path / "inbox" / "progress"
    with TaskProgress.of(str(tmp_path / "inbox"), 9, 0, interval=0.0) as task:
        task.rows(T, 1)
        progress.clear()
        folder.rmdir()
        task.rows(T, 1)
    assert not folder.exists()
    assert progress.read(9) is None
    progress.clear()


def test_what_is_not_what_it_should_be_counts_nothing(tmp_path: Path) -> None:
    progress = driver(tmp_path)
    folder = tmp_path / "inbox" / "progress"
    for number, text in enumerate(("{", "[]", "3", '{"rows": 1, "changes": 2}', '{"rows": {}}', "")):
        (folder / f"9-{number}.json").write_text(text)
    (folder / "9-7.json").write_text(json.dumps({"rows": {T: 4}, "changes": {}}))
    assert progress.read(9) == ({T: 4}, {})
    assert BatchProgress(str(tmp_path / "file"), "").plan(0) is None
    (tmp_path / "file").write_text("")
    taken = BatchProgress(str(tmp_path / "file"), "")
    taken.begin()
    assert taken.read(9) is None


def test_a_remote_folder_is_left_alone() -> None:
    progress = BatchProgress("s3://bucket/inbox", "/nowhere")
    progress.begin()
    progress.clear()
    assert progress.read(9) is None


def offset(gtid: str, epoch: int = 9, **notes: object) -> SourceOffset:
    chunks = (ChunkSpec(T, 2), ChunkSpec(T, 3), ChunkSpec("shop.again", 7))
    active = {T: SnapshotProgress(5, chunks_done=4, chunks_estimate=3, rows_estimate=900)}
    signals = Notes(reads={T: 200}, **notes).to_dict()  # type: ignore[arg-type]
    return SourceOffset(gtid, epoch, snapshot=SnapshotState(active, chunks), signals=signals)


def checkpoint(folder: Path, batch_id: int, *lines: str) -> None:
    """A file of Spark's offset log."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch_id)).write_text("\n".join(["v1", '{"batchWatermarkMs":0,"conf":{}}', *lines]))


def test_the_plan_of_a_batch_is_in_the_checkpoint(tmp_path: Path) -> None:
    progress = driver(tmp_path)
    assert progress.plan(3) is None, "there is no such batch"
    checkpoint(tmp_path, 3, offset(f"{UUID}:1-9", behind=4).to_json())
    tables = {T: PlannedTable(3, 4, 200, 4, 900), "shop.again": PlannedTable(8, 8, 0, 8, 0)}
    assert progress.plan(3) == BatchPlan(9, tables, None, 4), "the batch before is not there any more"
    checkpoint(tmp_path, 2, offset(f"{UUID}:1-7", 8).to_json())
    assert progress.plan(3) == BatchPlan(9, tables, 2, 4)
    for text in ("-", "{}", "", offset(f"{UUID}:1-9").to_json()[:-5]):
        checkpoint(tmp_path, 4, text)
        assert progress.plan(4) is None


def test_without_gtids_transactions_are_not_counted() -> None:
    from headgate.binlog_positions import positions_before

    start, end = (offset(str(positions_before(UUID, 3, pos)), pos) for pos in (4, 900))
    plan = BatchPlan.of(start, end)
    assert (plan.transactions, plan.behind) == (None, None)
