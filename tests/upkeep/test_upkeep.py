"""Upkeep beside batches: what the ledger's rows need stays, the rest goes; small files are folded.

Ledger and tables are written as a pipeline does it, without Spark.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.delta import RETENTION_PROPERTIES, LogFiles, TableLog, data_files_in, worth_checkpoint, write_files
from headgate.delta._log import find_checkpoints
from headgate.lake import PIPELINE, TABLE, Lake, LedgerRow, TableState
from headgate.stores._folder import _StoreFolder
from headgate.upkeep import TableFiles, Upkeep, UpkeepTimes
from headgate.upkeep import _file_removal as file_removal_module
from headgate.upkeep import _table_upkeep as table_upkeep_module
from headgate.upkeep import _upkeep as upkeep_module
from headgate.upkeep._file_removal import FileRemover
from headgate.upkeep._retained_versions import LedgerSpan, RetainedVersions
from headgate.upkeep._table_upkeep import IDLE_FILES, TableUpkeep, load_retained
from tests.delta.commits import commit
from tests.lake.tables import make_table

NAME, STILL = "shop.t", "shop.still"
ROWS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
STATE = pa.struct(
    [("table", pa.string()), ("state", pa.string()), ("version", pa.int64()), ("changelog_version", pa.int64())]
)

LEDGER = pa.schema(
    [
        ("batch_id", pa.int64()), ("epoch", pa.int64()), ("gtid", pa.string()),
        ("committed_at", pa.timestamp("us", "UTC")), ("tables", pa.list_(STATE)),
    ]
)  # fmt: skip
HOUR = 3600.0
BEGUN: list[Upkeep] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Whatever the test leaves open ends with it, threads among it."""
    yield
    while BEGUN:
        BEGUN.pop().close()


AT_ONCE = UpkeepTimes(listing=0.0)


class Written:
    """A lake with tables that batches append to, or whose rows they replace.

    :param path: a URI stands for a store, also one of a folder.
    :param options: with which delta-rs reaches the store.
    """

    def __init__(
        self,
        path: Path | str,
        properties: Mapping[str, str] = RETENTION_PROPERTIES,
        times: UpkeepTimes | None = None,
        options: dict[str, str] | None = None,
        pipeline: str = "shop",
    ) -> None:
        self.times, self.options = times, options
        self.lake = Lake(path) if isinstance(path, str) else Lake.at(path)
        self.states: dict[str, TableState] = {}
        self.rows: list[LedgerRow] = []
        self.expected: dict[tuple[str, int], list[int]] = {}
        """Folder and version → the values."""
        plain = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}  # delta-rs may write them, too
        owned = {**properties, PIPELINE: pipeline, TABLE: "_headgate.ledger"}
        make_table(self.lake.ledger, [], LEDGER, owned, **plain)
        for table in (NAME, STILL):
            make_table(self.lake.current(table), [], ROWS, {"headgate.key": "[]", **properties}, **plain)
            self.expected[self.lake.current(table), 0] = []
            self.states[table] = TableState(table, "live", 0)
        self.restart()

    def restart(self) -> None:
        """A new run, which knows what the ledger says."""
        self.upkeep = Upkeep(self.lake, HOUR, times=self.times)
        BEGUN.append(self.upkeep)

    def write(self, table: str, values: Sequence[int], *, anew: bool = False) -> None:
        folder = self.lake.current(table)
        read = TableLog(folder).refresh()
        rows = pa.table({"id": values, "v": values}, schema=ROWS)
        removed = [file.removal(data_change=True) for file in read.files.values()]
        actions: list[Any] = [*(removed if anew else []), *write_files(rows.to_batches(), folder, ROWS, "snappy")]
        commit(folder, read, actions, "WRITE", {}, blind=not anew)
        self.states[table] = replace(self.states[table], version=read.version + 1)
        before = [] if anew else self.expected.get((folder, read.version), [])
        self.expected[folder, read.version + 1] = sorted([*before, *values])

    def end(self, hours_ago: float = 0.0) -> LedgerRow:
        """The batch's ledger row."""
        states = self.upkeep.commit_pending(self.states, set())
        when = datetime.now(UTC) - timedelta(hours=hours_ago)
        row = LedgerRow(len(self.rows), len(self.rows) + 1, "", when, states)
        read = TableLog(self.lake.ledger).refresh()
        rows = pa.Table.from_pylist([row.columns()], LEDGER)
        added = write_files(rows.to_batches(), self.lake.ledger, LEDGER, "snappy")
        commit(self.lake.ledger, read, [*added], "WRITE", {}, blind=True)
        for state in states.values():
            folder = self.lake.current(state.table)
            if (folder, state.version) not in self.expected:
                self.expected[folder, state.version or 0] = self.expected[folder, self.states[state.table].version or 0]
        self.states, self.rows = states, [*self.rows, row]
        self.upkeep.note(row, read.version + 1)
        return row

    def round(self) -> None:
        for _ in self.upkeep.round():
            pass

    def set_times(self, times: UpkeepTimes, cleaned_at: float | None = None) -> None:
        """Give all tables these intervals, and this time of their last cleaning."""
        for table in self.upkeep._tables.values():
            table.times = times
            if cleaned_at is not None and table._cleaned is not None:
                table._cleaned = cleaned_at, table._cleaned[1]

    def wait_for_folds(self) -> None:
        for prepared in list(self.upkeep.folds._prepared.values()):
            self.upkeep.background.tasks_pace.free_at = 0.0
            prepared.fold.result(60)

    def check(self, rows: Sequence[LedgerRow]) -> None:
        """These rows of the ledger can be read, and are right."""
        for row in rows:
            for state in row.tables.values():
                folder = self.lake.current(state.table)
                table = DeltaTable(folder, version=state.version, storage_options=self.options).to_pyarrow_table()
                assert sorted(table["v"].to_pylist()) == self.expected[folder, state.version or 0]

    def files(self, table: str) -> set[str]:
        return {file.name for file in data_files_in(self.lake.current(table))}


@pytest.mark.parametrize("is_local", [True, False])
def test_the_ledgers_rows_within_the_retention_stay_and_the_one_before(tmp_path: Path, is_local: bool) -> None:
    made = Written(tmp_path / "lake" if is_local else (tmp_path / "lake").as_uri(), times=AT_ONCE)
    made.write(STILL, [7])
    for number in range(8):
        made.write(NAME, [number], anew=True)
        made.end(hours_ago=4.0 - 0.5 * number)  # 4.0 3.5 3.0 2.5 2.0 1.5 1.0 0.5
    made.round()
    kept = made.rows[6:]
    assert len(made.files(NAME)) == 2
    made.check(kept)
    made.round()
    assert made.upkeep.removed.files == 6
    assert made.files(STILL), "which stands for ever"


def test_random_histories(tmp_path: Path) -> None:
    for seed in range(6):
        choice = random.Random(seed)
        made = Written(tmp_path / str(seed) if seed % 2 else (tmp_path / str(seed)).as_uri(), times=AT_ONCE)
        made.write(STILL, [7])
        ago = 3.0
        for number in range(choice.randrange(5, 60)):
            made.write(choice.choice([NAME, NAME, NAME, STILL]), [number], anew=choice.random() < 0.4)
            ago *= choice.choice([1.0, 0.98, 0.8])
            if choice.random() < 0.8:
                made.end(hours_ago=ago)
            if choice.random() < 0.2:
                made.round()
                made.wait_for_folds()
            if choice.random() < 0.05:
                made.upkeep.close()
                made.restart()
        made.end()
        made.round()
        since = datetime.now(UTC) - timedelta(hours=1)
        old = [row for row in made.rows if row.committed_at <= since]
        made.check([*old[-1:], *(row for row in made.rows if row.committed_at > since)])
        made.upkeep.close()


def test_another_programs_optimize_and_vacuum_leave_the_newest_row_readable(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    for number in range(4):
        made.write(STILL, [number])
    made.write(NAME, [1])
    before = made.end()
    made.round()
    theirs = DeltaTable(made.lake.current(STILL))
    theirs.optimize.compact()
    made.round()
    made.write(NAME, [2])
    row = made.end()
    assert (before.tables[STILL].version, row.tables[STILL].version) == (4, 5)
    removed = DeltaTable(made.lake.current(STILL)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(removed) == 4
    made.check([row])
    with pytest.raises(Exception, match=r"not found|No such file"):
        made.check([before])
    made.write(NAME, [3])
    assert made.end().tables[STILL].version == 5


def test_rows_that_another_program_wrote_are_not_adopted(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    for number in range(4):
        made.write(STILL, [number])
    made.end()
    theirs = TableLog(made.lake.current(STILL)).refresh()
    rows = pa.table({"id": [9], "v": [9]}, schema=ROWS)
    added = list(write_files(rows.to_batches(), made.lake.current(STILL), ROWS, "snappy"))
    commit(made.lake.current(STILL), theirs, added, "WRITE", {}, blind=True)
    DeltaTable(made.lake.current(STILL)).optimize.compact()
    made.round()
    made.write(NAME, [1])
    assert made.end().tables[STILL].version == 4
    made.check(made.rows[-1:])


def with_a_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """A table that stands still, whose five files are folded; nothing is committed."""
    made = Written(tmp_path / "lake", times=UpkeepTimes(idle=0.0))
    for number in range(5):
        made.write(STILL, [number])
    made.end()
    made.round()
    made.wait_for_folds()
    return made


def test_a_table_that_stands_still_is_folded_with_the_batch_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_a_fold(tmp_path, monkeypatch)
    assert TableLog(made.lake.current(STILL)).refresh().version == 5, "only the writer commits"
    made.write(NAME, [1])
    row = made.end()
    assert row.tables[STILL].version == 6
    assert len(TableLog(made.lake.current(STILL)).refresh().files) == 1
    values = DeltaTable(made.lake.current(STILL)).to_pyarrow_table()["v"].to_pylist()
    assert values == [0, 1, 2, 3, 4], "in the order of the commits"
    made.check(made.rows)
    made.round()
    made.wait_for_folds()
    assert made.upkeep.folds.ready() == [], "nothing is left to do"
    made.upkeep.close()


def test_the_ledger_is_folded_but_for_its_newest_file(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    for number in range(20):
        made.write(NAME, [number])
        made.end()
    made.round()
    made.wait_for_folds()
    made.write(NAME, [99])
    made.end()

    class Fenced:
        """Stands for the ledger."""

        version = 0

        def fold(self, make: Any) -> None:
            self.version = make()

    fenced: Any = Fenced()
    made.upkeep.commit_pending_internal(fenced)
    ledger = TableLog(made.lake.ledger).refresh()
    assert (fenced.version, ledger.version) == (22, 22)
    assert len(ledger.files) == 2 + 1, "one of 19 rows, the newest when it was prepared, and one since"
    rows = DeltaTable(made.lake.ledger).to_pyarrow_table().sort_by("epoch")
    assert rows["epoch"].to_pylist() == list(range(1, 22))
    kept = RetainedVersions()
    for _ in load_retained(made.lake, time.time() - HOUR, kept):
        pass
    assert kept.oldest(made.lake.current(NAME), time.time() - HOUR) == 1
    made.upkeep.close()


def test_versions_within_the_retention_stay_if_a_clock_was_set_back_meanwhile() -> None:
    kept, rows = RetainedVersions(), [(9, 1), (10, 2), (2, 3), (11, 4)]
    for hour, version in rows:
        kept.add(hour * HOUR, {"t": version}, {})
    assert [kept.oldest("t", hour * HOUR) for hour in (5, 9.5, 11)] == [1, 1, 4]
    kept.forget(5 * HOUR)
    assert kept.oldest("t", 5 * HOUR) == 1


def test_the_newest_version_is_the_one_of_the_last_row_whatever_the_clock_says() -> None:
    kept = RetainedVersions()
    for moment, version in [(1000.0, 5), (500.0, 6)]:
        kept.add(moment, {"t": version}, {"t": version})
    assert kept.newest("t") == (500.0, 6)
    for moment in range(501, 601):
        kept.add(float(moment), {}, {"t": 6})
    assert len(kept._shown["t"]) == 2, "a row that changes nothing adds nothing"


def test_what_a_merged_table_showed_is_kept_for_the_whole_retention() -> None:
    """Its files are needed by rows of the ledger that are newer than the versions of the tables that it shows."""
    kept, loaded = RetainedVersions(), RetainedVersions()
    rows = [(0, 1, 1), (8, 900, 1), (10, 901, 901)]
    for hour, version, shown in rows:
        kept.add(hour * HOUR, {"t": version}, {"t": shown})
    spans = [(hour, version, False) for hour, version, _ in rows] + [(hour, shown, True) for hour, _, shown in rows]
    loaded.load(LedgerSpan(hour * HOUR, "t", version, is_shown) for hour, version, is_shown in reversed(spans))
    for one in (kept, loaded):
        assert [one.oldest("t", hour * HOUR) for hour in (4, 9, 10)] == [1, 1, 901]
    kept.add(11 * HOUR, {}, {})
    kept.add(12 * HOUR, {"t": 902}, {})
    assert kept.oldest("t", 12 * HOUR) == 902
    kept.forget(12 * HOUR)
    assert kept.oldest("t", 0) == 902


def test_a_store_is_not_asked_for_tables_that_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Written((tmp_path / "lake").as_uri())
    for number in range(IDLE_FILES):
        made.write(STILL, [number])
    made.write(NAME, [1])
    made.end()
    made.round()
    paths = set[str]()

    def opened(files: Any, *request: Any) -> Any:
        paths.add(files.path)
        return open_file(files, *request)

    def look() -> set[str]:
        paths.clear()
        made.round()
        return paths & {made.lake.current(NAME), made.lake.current(STILL)}

    open_file = _StoreFolder._open
    monkeypatch.setattr(_StoreFolder, "_open", opened)
    assert look() == set()
    made.write(NAME, [2])
    made.end()
    assert look() == {made.lake.current(NAME)}
    assert look() == set()
    made.set_times(UpkeepTimes(rest=0.0))
    assert look() == {made.lake.current(NAME), made.lake.current(STILL)}
    monkeypatch.undo()
    assert made.upkeep.folds.ready() == []
    made.set_times(UpkeepTimes(rest=1e12, idle=0.0), cleaned_at=1.0)
    made.round()
    made.wait_for_folds()
    assert [folder for folder, _ in made.upkeep.folds.ready()] == [made.lake.current(STILL)], "it stands still now"
    made.upkeep.close()


def test_what_was_prepared_for_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = with_a_fold(tmp_path, monkeypatch)
    assert len(made.files(STILL)) == 6
    made.upkeep.close()
    assert len(made.files(STILL)) == 5
    assert made.upkeep.background._thread is None or not made.upkeep.background._thread.is_alive()


def checkpoints_after(made: Written, commits: int, hours_ago: float = 0.0) -> list[int]:
    """The checkpoints of a table's log after so many more commits."""
    for number in range(commits):
        made.write(NAME, [number])
        made.end(hours_ago)
    wait_for_background(made)
    return sorted(find_checkpoints(made.lake.current(NAME)))


def test_a_checkpoint_is_written_after_fifty_commits(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    assert checkpoints_after(made, 48) == []
    assert [version >= 49 for version in checkpoints_after(made, 3)] == [True]
    made.upkeep.close()


def test_a_checkpoint_of_a_small_table_is_written_after_ten_commits(tmp_path: Path) -> None:
    made = Written(tmp_path / "lake")
    made.write(NAME, [0])
    made.end()
    made.round()
    assert checkpoints_after(made, 7) == []
    assert [version >= 9 for version in checkpoints_after(made, 2)] == [True]
    made.upkeep.close()


def test_a_table_that_appears_is_looked_at_before_the_next_round(tmp_path: Path) -> None:
    """Its log has a checkpoint after ten commits then, as a small table's."""
    made = Written(tmp_path / "lake")
    look(made)  # the first round
    made.write(NAME, [0])
    made.end()
    look(made)
    assert NAME in dict(made.upkeep.files())
    assert checkpoints_after(made, 7) == []
    assert [version >= 9 for version in checkpoints_after(made, 2)] == [True]
    made.upkeep.close()


def test_old_log_files_go_without_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Written(tmp_path / "lake")
    folder = made.lake.current(NAME)
    made.write(NAME, [0], anew=True)
    made.end(9.0)
    made.round()  # which lists the folder, as it does each hour
    monkeypatch.delattr(LogFiles, "old_by_listing")
    with monkeypatch.context() as patch:
        patch.setattr(table_upkeep_module, "time", SimpleNamespace(time=lambda: time.time() - HOUR))
        (checkpoint,) = checkpoints_after(made, 9, hours_ago=0.5)
    made.round()
    assert oldest_commit(folder) == 0, "a version before the checkpoint is still needed"
    made.upkeep._retention = 0.0
    made.round()
    assert oldest_commit(folder) == checkpoint
    made.check(made.rows[-1:])
    made.upkeep.close()


def test_what_nothing_needs_does_not_grow_with_the_rate_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch each second, the retention of a minute: what is above that is removed before the round's turn."""
    made, begun = Written(tmp_path / "lake"), time.time()
    clock = SimpleNamespace(now=begun - HOUR)
    faked = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now)
    for module in (upkeep_module, table_upkeep_module, file_removal_module):
        monkeypatch.setattr(module, "time", faked)
    made.upkeep._retention = 60.0
    above = []
    for number in range(300):
        clock.now += 1.0
        made.write(NAME, [number], anew=True)
        made.end(hours_ago=(begun - clock.now) / HOUR)
        if number % 10 == 9:
            wait_for_background(made)
            look(made)
            folder = Path(made.lake.current(NAME))
            above.append(len([*folder.rglob("*.*")]) - 2 * min(61, number + 2))
    assert max(above) <= 100, "with checkpoints, and commits since the one before the retention"
    assert made.upkeep.files()[0] == (NAME, TableFiles(*counted(folder)))
    made.upkeep.close()


def test_a_table_with_a_damaged_checkpoint_does_not_stop_the_upkeep_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Written(tmp_path / "lake")
    for number in range(3):
        for table in (NAME, STILL):
            made.write(table, [number], anew=True)
        made.end(hours_ago=4.0 - number)
    first, *_ = made.upkeep.retained.folders()
    damaged, other = (NAME, STILL) if first == made.lake.current(NAME) else (STILL, NAME)
    Path(first, "_delta_log", f"{0:020}.checkpoint.parquet").write_bytes(b"x" * 50)
    made.round()
    assert f"upkeep of {first} failed, will retry" in caplog.text
    assert (len(made.files(damaged)), len(made.files(other))) == (3, 1)


def test_files_of_a_table_that_takes_the_place_of_another_at_the_look_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = str(tmp_path / "t"), time.time()

    def make(versions: int, hours_ago: float) -> None:
        make_table(path, [], ROWS, RETENTION_PROPERTIES)
        for number in range(versions):
            read = TableLog(path).refresh()
            rows = pa.table({"id": [number], "v": [number]}, schema=ROWS)
            removed = [file.removal(data_change=True) for file in read.files.values()]
            commit(path, read, [*removed, *write_files(rows.to_batches(), path, ROWS, "snappy")], "W", {}, blind=False)
        for file in Path(path, "_delta_log").iterdir():
            os.utime(file, (now - hours_ago * HOUR,) * 2)

    def replaced(remover: FileRemover, oldest: int) -> Iterator[None]:
        shutil.rmtree(path)
        make(4, hours_ago=0.5)
        monkeypatch.undo()
        yield from remover.follow(oldest)

    make(3, hours_ago=2.0)
    table = TableUpkeep(path, RetainedVersions())
    monkeypatch.setattr(FileRemover, "follow", replaced)
    for _ in table.clean(now - HOUR, None):
        pass
    assert len([*data_files_in(path)]) == 4, "all versions are of the last hour"


def test_what_failed_is_tried_again_at_the_next_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock, tries = Written(tmp_path / "lake"), SimpleNamespace(now=1000.0), list[str]()
    monkeypatch.setattr(upkeep_module, "time", SimpleNamespace(time=time.time, monotonic=lambda: clock.now))

    def failing(table: TableUpkeep, *_: object) -> Iterator[None]:
        tries.append(table.folder)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(TableUpkeep, "clean", failing)
    monkeypatch.setattr(TableUpkeep, "is_behind", lambda *_: True)
    made.write(NAME, [0])
    made.end()
    counts = []
    for _ in range(26):
        look(made)
        clock.now += 5.0
        counts.append(tries.count(made.lake.current(NAME)))
    assert counts == [1] * 24 + [2] * 2
    made.upkeep.close()


def test_nothing_is_removed_until_the_ledgers_rows_were_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store did not answer at the first round: this run knows only its own rows."""
    made, clock = Written(tmp_path / "lake", times=AT_ONCE), SimpleNamespace(now=1000.0)
    monkeypatch.setattr(upkeep_module, "time", SimpleNamespace(time=time.time, monotonic=lambda: clock.now))
    for number in range(3):
        made.write(NAME, [number], anew=True)
        made.end(hours_ago=0.5)
    made.restart()

    def failing(*_: object) -> Iterator[None]:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(upkeep_module, "load_retained", failing)
        with pytest.raises(OSError, match="Input/output"):
            look(made)
    made.write(NAME, [3], anew=True)
    made.end()
    look(made)
    made.check(made.rows)
    clock.now += upkeep_module.ROUND_SECONDS
    look(made)
    made.check(made.rows)
    assert NAME in dict(made.upkeep.files()), "the next round has loaded them"


def test_all_the_time_of_rounds_counts_in_an_object_store(tmp_path: Path) -> None:
    assert Upkeep(Lake("s3://bucket/lake"), HOUR).background.counts_waiting
    assert not Upkeep(Lake.at(tmp_path), HOUR).background.counts_waiting


def look(made: Written) -> None:
    for _ in made.upkeep._look():
        pass


def counted(folder: Path) -> tuple[int, int, int, int]:
    """Data files, deletion vectors, commits and checkpoints in a table's folder, and bytes of the first two."""
    data = [*folder.glob("*.parquet")]
    return len(data), 0, len([*folder.glob("_delta_log/0*")]), sum(file.stat().st_size for file in data)


def wait_for_background(made: Written) -> None:
    made.upkeep.background.tasks_pace.free_at = 0.0
    made.upkeep.background.submit(lambda: None).result(60)


def oldest_commit(folder: str) -> int:
    """The oldest commit that is still in a table's log."""
    return min(int(path.name[:20]) for path in Path(folder, "_delta_log").glob("*[0-9].json"))


@pytest.mark.parametrize(("files", "commits"), [(0, 10), (200, 10), (400, 20), (1000, 50), (50_000, 50), (None, 50)])
def test_a_checkpoint_of_more_files_takes_more_commits(files: int | None, commits: int) -> None:
    assert worth_checkpoint(commits, files)
    assert not worth_checkpoint(commits - 1, files)
