"""Batches that the ledger lacks are undone: what a table has after that, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.delta import CommitPlan, write_files
from headgate.errors import TargetError
from headgate.lake import DeltaPath, Marker, TableState, UnenteredBatches, batch_marker, followed_log
from tests.lake.tables import make_table

ROWS = pa.schema([("id", pa.int64())])
PLAIN = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
"""So that delta-rs reads the tables by Arrow, too."""
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}, get=lambda _, other: other))


def table(path: Path, epoch: int | None = None) -> DeltaPath:
    """A table, for a batch of this epoch."""
    delta = DeltaPath(SESSION, str(path), None if epoch is None else batch_marker("shop", epoch))
    delta.snapshot()  # as the check of the targets looks at each table
    return delta


def new_files(delta: DeltaPath, *values: int) -> list[dict[str, Any]]:
    """The actions that add rows."""
    batches = pa.table({"id": values}, schema=ROWS).to_batches()
    return [*map(json.loads, write_files(batches, delta.path, ROWS, "snappy"))]


def write(delta: DeltaPath, *values: int) -> None:
    """Append rows."""
    files = new_files(delta, *values)
    delta.commit(lambda: CommitPlan(delta.writable(files=True), files, "WRITE", {}, blind=True))


def values(delta: DeltaPath) -> list[int]:
    return sorted(DeltaTable(delta.path).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table that batch 1 wrote."""
    path = tmp_path / "t"
    make_table(str(path), [], ROWS, {"a": "b"}, **PLAIN)
    write(table(path, 1), 1)
    return path


def test_a_lost_batch_is_undone_and_the_next_one_is_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(table(folder, 2), 2)
    current = table(folder, 5)
    lost = UnenteredBatches("shop", newest=1, epoch=5)
    assert lost.restored(current, 1) == 3
    assert "batch 2 is not in the ledger" in caplog.text
    assert values(current) == [1]
    assert lost.restored(current, 3) == 3, "nothing is left to undo"
    with pytest.raises(TargetError, match="in batch 5, after batch 2: two pipelines run on one target"):
        write(table(folder, 2), 2)
    write(current, 5)
    assert lost.restored(current, 3) == 3, "a replay of the batch keeps what it wrote"
    assert values(current) == [1, 5]


def test_a_table_that_this_process_does_not_know_any_more_is_looked_at(folder: Path) -> None:
    """A process follows a limited number of logs; an error may end the look at one."""
    write(table(folder, 2), 2)
    followed_log.cache_clear()
    assert UnenteredBatches("shop", newest=1, epoch=5).restored(DeltaPath(SESSION, str(folder)), 1) == 3
    assert values(table(folder)) == [1]


def test_a_driver_that_another_one_has_overtaken_neither_writes_nor_undoes(folder: Path) -> None:
    write(table(folder, 5), 5)
    with pytest.raises(TargetError, match="in batch 5, after batch 2"):
        write(table(folder, 2), 2)
    with pytest.raises(TargetError, match="in batch 5, after batch 2"):
        UnenteredBatches("shop", newest=1, epoch=2).restored(table(folder), 1)
    assert values(table(folder)) == [1, 5]


def test_what_another_driver_has_restored_meanwhile_stays(folder: Path) -> None:
    """Both write the same batch; this one has looked at the table before."""
    write(table(folder, 2), 2)
    looked, lost = table(folder), UnenteredBatches("shop", newest=1, epoch=5)
    other = replace(looked, marker=batch_marker("shop", 5))
    commit = DeltaPath.commit

    def restored(delta: DeltaPath, plan: Any, **more: Any) -> Any:
        monkeypatch.undo()
        assert lost.restored(looked, 1) == 3
        write(other, 5)
        return commit(delta, plan, **more)

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(DeltaPath, "commit", restored)
    assert lost.restored(looked, 1) == 1
    assert values(looked) == [1, 5]


def test_a_version_of_which_files_are_gone_is_not_restored(folder: Path) -> None:
    """Another program has compacted the table, and removed what its newest version does not need."""
    lost, current = table(folder, 2), table(folder, 5)
    removed = [file.removal(data_change=True) for file in lost.snapshot(files=True).files.values()]
    files = new_files(lost, 1, 2)
    lost.commit(lambda: CommitPlan(lost.writable(files=True), [*removed, *files], "WRITE", {}))
    gone = Path(lost.path, removed[0]["remove"]["path"])
    aside = gone.rename(gone.with_suffix(".aside"))
    undo = UnenteredBatches("shop", newest=1, epoch=5)
    with pytest.raises(TargetError, match=f"version 1 cannot be restored: {gone.name} is gone.* reads the table again"):
        undo.restored(current, 1)
    state = TableState("shop.t", "live", 1, changelog_version=1)
    with pytest.raises(TargetError, match="move the folder away, and the next change begins a new changelog"):
        undo.undo(state, None, current)
    with pytest.raises(TargetError, match="removed it; it stays as that batch left it"):
        undo.undo(state, None, current, is_followed=False)
    assert current.version() == 2
    aside.rename(gone)
    assert undo.restored(current, 1) == 3
    assert values(current) == [1]


def test_what_the_ledger_has_stays(folder: Path) -> None:
    current = table(folder, 2)
    assert UnenteredBatches("shop", newest=1, epoch=2).restored(current, 1) == 1
    assert UnenteredBatches("other", newest=0, epoch=2).restored(current, 1) == 1, "another pipeline's marker"
    assert values(current) == [1]


def test_both_tables_of_a_source_table(folder: Path, tmp_path: Path) -> None:
    changelog = tmp_path / "log"
    make_table(str(changelog), [], ROWS, {}, **PLAIN)
    for one in (folder, changelog):
        write(table(one, 2), 2)
    state = TableState("shop.t", "live", 1, changelog_version=0)
    lost = UnenteredBatches("shop", newest=1, epoch=5)
    after = lost.undo(state, table(folder, 5), table(changelog, 5))
    assert (after.version, after.changelog_version) == (3, 2)
    assert (values(table(folder)), values(table(changelog))) == ([1], [])
    assert lost.undo(state, None, None) == state


def test_columns_come_back(folder: Path) -> None:
    current = table(folder, 2)
    current.set_properties({"a": "c", "d": "e"})
    assert current.snapshot().properties == {"a": "c", "d": "e"}
    again = table(folder, 5)
    assert UnenteredBatches("shop", newest=1, epoch=5).restored(again, 1) == 3
    assert again.snapshot().properties == {"a": "b"}


def test_markers() -> None:
    assert Marker("a", 1).action() == {"txn": {"appId": "a", "version": 1}}
    assert batch_marker("shop", 7) == Marker("headgate/shop/batch", 7)
