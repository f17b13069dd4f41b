"""Power fails at some moment of a commit: each kind of table can be read afterwards, and has what was acknowledged."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.delta import RETENTION_PROPERTIES, TableLog, checkpointed_version, write_checkpoint, write_files
from headgate_testing import PowerLoss
from tests.apply.commit_kinds import KINDS, ROWS, Kind, Scene, append, without_spark
from tests.delta.commits import commit
from tests.lake.tables import make_table


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    without_spark(monkeypatch)
    (tmp_path / "all").mkdir()
    return Scene(tmp_path / "all", str)


class Failures:
    """The states that a loss of power may leave, and what a table has in them."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self.power = scene, PowerLoss(scene.folder)
        self._numbers = itertools.count()

    def read(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Version and rows of the table in each state."""
        for all_names in (False, True):
            to = self._scene.folder.with_name(f"left {next(self._numbers)}")
            self.power.leave(to, all_names=all_names)
            path = to / self._scene.path.relative_to(self._scene.folder)
            version = TableLog(str(path)).refresh().version
            yield version, self._scene.read(path) if version >= 0 else []


@pytest.fixture
def failures(scene: Scene, request: pytest.FixtureRequest) -> Iterator[list[Failures]]:
    del request, scene
    made: list[Failures] = []
    yield made
    for one in made:
        one.power.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_commit_is_whole_or_not_there(scene: Scene, failures: list[Failures], kind: Kind) -> None:
    work, expected = kind(scene)
    (scene.folder / "lake").mkdir(exist_ok=True)
    before = TableLog(str(scene.path)).refresh().version
    rows_before = scene.read() if before >= 0 else []
    failures.append(Failures(scene))
    seen = set()

    def check() -> None:
        for version, rows in failures[0].read():
            seen.add(version)
            assert rows == (expected if version > before else rows_before)

    with failures[0].power.recording(check):
        work()
    assert seen == {before, before + 1}
    assert [*failures[0].read()] == [(before + 1, expected)] * 2, "what was acknowledged is there"


@pytest.mark.parametrize("missing", range(4), ids=["data", "commit", "name of the data", "name of the commit"])
def test_a_missing_sync_is_noticed(
    scene: Scene, failures: list[Failures], monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """One sync of a commit is taken out: then some state does not have what was acknowledged."""
    work, expected = append(scene)
    failures.append(Failures(scene))
    calls = itertools.count()
    with failures[0].power.recording(), monkeypatch.context() as without:
        sync = os.fsync
        without.setattr(os, "fsync", lambda file: sync(file) if next(calls) != missing else None)
        work()
    assert next(calls) == 4
    try:
        left = [*failures[0].read()]
    except Exception:  # noqa: BLE001 - no reader of the table can read it
        return
    assert left != [(1, expected)] * 2


def test_a_checkpoint_is_whole_before_it_is_named(scene: Scene, failures: list[Failures]) -> None:
    make_table(str(scene.path), [], ROWS, RETENTION_PROPERTIES, readerFeatures=[], writerFeatures=[])
    for number in range(3):
        rows = pa.table({"id": [number], "v": [0], "_seq": pa.nulls(1, ROWS.field("_seq").type)}, schema=ROWS)
        read = TableLog(str(scene.path)).refresh()
        commit(
            str(scene.path),
            read,
            [*write_files(rows.to_batches(), str(scene.path), ROWS, "snappy")],
            "",
            {},
            blind=True,
        )
    failures.append(Failures(scene))

    def check() -> None:
        assert [*failures[0].read()] == [(3, [(0, 0), (1, 0), (2, 0)])] * 2

    with failures[0].power.recording(check):
        write_checkpoint(str(scene.path))
    check()
    assert checkpointed_version(str(scene.path)) == 3
