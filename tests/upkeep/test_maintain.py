"""The upkeep of a lake at once: what it removes and folds, beside a run or not, and what it tells."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from headgate.delta import Fold, Snapshot, TableLog, creation, new_successor, prepare_fold
from headgate.errors import ConfigError
from headgate.files import try_lock
from headgate.lake import Lake
from headgate.upkeep import Amount, Maintained, Maintenance
from headgate.upkeep import _maintain as maintain_module
from tests.delta.commits import commit
from tests.upkeep.test_upkeep import HOUR, NAME, STILL, Written, ended

__all__ = ["ended"]  # a fixture of all tests here: threads end


def written(path: Path | str, pipeline: str = "shop") -> Written:
    """A table that each batch replaces, in three hours, and one that stands still."""
    made = Written(path if isinstance(path, str) else path / "lake", pipeline=pipeline)
    for number in range(6):
        made.write(STILL, [number])
    for number in range(13):
        made.write(NAME, [number], anew=True)
        made.end(hours_ago=3.0 - 0.25 * number)
    return made


def maintain(made: Written, *, dry: bool = False) -> tuple[Maintenance, dict[str, Maintained]]:
    work = Maintenance(made.lake, HOUR, "snappy", dry=dry)
    return work, {one.name: one for one in work.tables()}


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    made = written(tmp_path)
    _, planned = maintain(made, dry=True)
    assert len(made.files(NAME)) == 13
    work, done = maintain(made)
    assert list(done) == ["shop/still", "shop/t", "_headgate/ledger"]
    assert work.busy is None
    assert len(made.files(NAME)) == 5, "of the last hour, and the one before"
    assert (done["shop/t"].removed, done["shop/t"].after) == (planned["shop/t"].removed, planned["shop/t"].after)
    assert done["shop/t"].removed.files == 8
    assert done["shop/t"].removed + done["shop/t"].after == done["shop/t"].before
    assert (done["shop/still"].folded, planned["shop/still"].folded) == (6, 6)
    assert done["_headgate/ledger"].folded == 12
    made.check(made.rows[-5:])
    assert len(made.files(STILL)) == 7, "the newest ledger row still names the version before"
    made.round()
    made.write(NAME, [99])
    assert made.end().tables[STILL].version == 7, "until the next run adopts the other"
    _, again = maintain(made)
    assert [one.folded for one in again.values()] == [0, 0, 0]
    assert again["shop/t"].removed == Amount()
    made.check(made.rows[-5:])


def test_the_log_of_a_retired_successor_is_counted(tmp_path: Path) -> None:
    made = written(tmp_path)
    successor = f"{made.lake.current(NAME)}/{new_successor(epoch=5)}"
    commit(successor, Snapshot(), creation('{"type": "struct", "fields": []}', {}), "CREATE TABLE", {}, blind=True)
    _, planned = maintain(made, dry=True)
    assert [*Path(successor, "_delta_log").iterdir()]
    _, done = maintain(made)
    assert not [*Path(successor, "_delta_log").iterdir()]
    assert done["shop/t"].removed.files == planned["shop/t"].removed.files == 9
    assert done["shop/t"].removed + done["shop/t"].after == done["shop/t"].before


def test_while_a_run_goes_on_files_are_removed_only(tmp_path: Path) -> None:
    made = written(tmp_path)
    with try_lock(Path(made.lake.lock)):
        work, done = maintain(made)
    assert (work.busy or "").startswith("process ")
    assert {one.folded for one in done.values()} == {0}
    assert done["shop/t"].removed.files == 8
    assert TableLog(made.lake.ledger).refresh().version == 13


def test_in_a_store_files_are_removed_only(tmp_path: Path) -> None:
    made = written((tmp_path / "lake").as_uri())
    _, planned = maintain(made, dry=True)
    assert len(made.files(NAME)) == 13
    work, done = maintain(made)
    assert work.busy is None
    assert {one.folded for one in [*planned.values(), *done.values()]} == {0}
    assert done["shop/t"].removed.files == planned["shop/t"].removed.files == 8
    assert done["shop/t"].removed + done["shop/t"].after == done["shop/t"].before
    assert len(made.files(NAME)) == 5
    made.check(made.rows[-5:])


def test_a_commit_that_another_program_comes_before_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(tmp_path)

    def overtaken(folder: str, *args: Any) -> Fold | None:
        fold = prepare_fold(folder, *args)
        if folder == made.lake.current(STILL):
            made.write(STILL, [100], anew=True)
        return fold

    monkeypatch.setattr(maintain_module, "prepare_fold", overtaken)
    _, done = maintain(made)
    assert done["shop/still"].folded == 0
    assert len(made.files(STILL)) == 7, "the folded file is removed"
    made.check([made.end()])


def test_what_a_week_comes_to(tmp_path: Path) -> None:
    begun = time.time()
    made = Written(tmp_path / "lake")
    for number in range(5):
        made.write(STILL, [number])
        made.write(NAME, [number], anew=True)
        row = made.end(hours_ago=0.8 - 0.2 * number)
        if number == 0:
            for name in made.files(NAME):  # a batch's files are older than its ledger row
                os.utime(Path(made.lake.current(NAME), name), times=(row.committed_at.timestamp() - 1,) * 2)
    work, done = maintain(made, dry=True)
    assert work.batches == 5
    assert 0 <= work.seconds - 2880 <= time.time() - begun, "0.8 hours, and what the test took between two batches"
    table, still = done["shop/t"], done["shop/still"]
    assert table.week is not None
    assert still.week is not None
    assert table.week.files in (13, 14), "one file, and what an hour leaves behind"
    assert 48 <= still.week.files <= 56, "a file with each batch, if they were not folded"


def test_too_little_for_a_week(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    made.write(NAME, [1])
    made.end()
    _, done = maintain(made, dry=True)
    assert done["shop/t"].week is None


def test_a_lake_without_a_batch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no ledger with a batch"):
        Maintenance(Lake.at(tmp_path), HOUR, "snappy", dry=True)
    made = Written(tmp_path / "lake")
    with pytest.raises(ConfigError, match="has no ledger with a batch"):
        maintain(made)
