"""Why headgate cannot write a table, as its log tells it; such a table is refused before anything is written to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.delta import FoldLayout, TableLog, prepare_fold
from headgate.errors import TargetError
from headgate.lake import Lake, UnenteredBatches, WriteMethod, batch_marker, refusal
from tests.apply import commit_kinds as kinds
from tests.apply.altered import remove_requirement, require_more
from tests.apply.commit_kinds import Kind, Scene, rows, without_spark
from tests.delta.commits import commit
from tests.lake.tables import make_table

NAME = "shop.orders"
SCHEMA = pa.schema({"id": pa.int64()})
VECTORS = {"delta.enableDeletionVectors": "true"}
RAISE_PROTOCOL = (
    "set delta.minReaderVersion to 3 and delta.minWriterVersion to 7, then drop the features that headgate still names"
)
NO_VECTORS = "it has no deletion vectors: set delta.enableDeletionVectors to true"


def reason(
    tmp_path: Path, properties: dict[str, str], settings: dict[str, str] | None = None, **more: Any
) -> str | None:
    lake = Lake.at(tmp_path / "lake")
    make_table(lake.current(NAME), [], SCHEMA, properties, **more)
    return refusal(lake, NAME, (settings or {}).get)


@pytest.mark.parametrize(
    ("properties", "settings", "protocol", "expected"),
    [
        (VECTORS, {}, {}, None),
        ({**VECTORS, "headgate.key": '["id"]', "delta.checkpointInterval": "50"}, {}, {}, None),
        ({}, {}, {}, NO_VECTORS),
        ({"delta.enableDeletionVectors": "false"}, {}, {}, NO_VECTORS),
        (
            {**VECTORS, "delta.enableChangeDataFeed": "true"}, {}, {},
            "it requires of its writers what headgate does not support: remove delta.enableChangeDataFeed",
        ),
        (
            {**VECTORS, "delta.columnMapping.mode": "id"}, {}, {"writerFeatures": ["deletionVectors", "columnMapping"]},
            "it requires of its writers what headgate does not support: remove delta.columnMapping.mode",
        ),
        (
            {}, {}, {"minReaderVersion": 2, "minWriterVersion": 5},
            f"it has protocol (2, 5), which does not name its table features: {RAISE_PROTOCOL}",
        ),
        (
            {}, {}, {"minReaderVersion": 4, "minWriterVersion": 8},
            "it has protocol (4, 8), which does not name its table features: only a later headgate can write it",
        ),
        (VECTORS, {"spark.sql.parquet.compression.codec": "ZSTD"}, {}, None),
        (
            VECTORS, {"spark.sql.parquet.compression.codec": "brotli"}, {},
            "spark.sql.parquet.compression.codec is brotli: choose one of snappy, zstd, gzip, none, uncompressed",
        ),
    ],
)  # fmt: skip
def test_reasons(
    tmp_path: Path, properties: dict[str, str], settings: dict[str, str], protocol: dict[str, Any], expected: str | None
) -> None:
    assert reason(tmp_path, properties, settings, **protocol) == expected


def test_a_table_that_is_not_there_yet(tmp_path: Path) -> None:
    settings: dict[str, str] = {}
    assert refusal(Lake.at(tmp_path), NAME, settings.get) is None


def test_the_names_of_the_ways_are_those_of_monitors() -> None:
    assert [*WriteMethod] == ["append", "upsert", "overwrite"]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    without_spark(monkeypatch)
    return Scene(tmp_path, str)


REFUSED = (
    "headgate cannot write this table: it requires of its writers what headgate does not support: remove rowTracking"
)
WRITES = [one for one in kinds.KINDS if one not in (kinds.create, kinds.ledger, kinds.fold, kinds.merged)]


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
def test_a_table_is_refused_before_anything_is_written(scene: Scene, kind: Kind) -> None:
    work, expected = kind(scene)
    require_more(scene.path)
    before = scene.all_files()
    with pytest.raises(TargetError, match=REFUSED):
        work()
    assert scene.all_files() == before
    remove_requirement(scene.path)
    work()
    assert scene.read() == expected


def test_a_successor_is_refused(scene: Scene) -> None:
    work, expected = kinds.replace(scene)
    (successor,) = scene.path.glob("_successor_*")
    require_more(successor)
    before = scene.all_files()
    with pytest.raises(TargetError, match=f"{successor.name}: {REFUSED}"):
        work()
    assert scene.all_files() == before
    remove_requirement(successor)
    work()
    assert scene.read() == expected


def test_a_merged_table_is_refused(scene: Scene) -> None:
    """Its partitions are ours."""
    work, expected = kinds.merged(scene)
    work()
    require_more(scene.path)
    before = scene.all_files()
    with pytest.raises(TargetError, match=REFUSED):
        work()
    assert scene.all_files() == before
    remove_requirement(scene.path)
    work()
    assert scene.read() == expected


def test_small_files_are_folded_only_where_nothing_more_is_required(scene: Scene) -> None:
    scene.make(rows(1, (1, 0)), rows(2, (2, 0)))
    path = scene.uri(scene.path)
    log = TableLog(path)
    fold = prepare_fold(path, [*log.refresh().files.values()], FoldLayout(kinds.ROWS, "snappy", ("id",)))
    assert fold is not None
    require_more(scene.path)
    assert fold.plan(log.refresh()) is None
    remove_requirement(scene.path)
    assert fold.plan(log.refresh()) is not None


@pytest.mark.parametrize("version", [0, None])
def test_a_table_is_refused_while_a_lost_batch_is_undone(scene: Scene, version: int | None) -> None:
    scene.make(rows(1, (1, 0)), rows(2, (2, 0)))
    log = TableLog(scene.uri(scene.path))
    commit(log.folder, log.refresh(), [batch_marker("shop", 2).action()], "WRITE", {}, blind=True)
    delta, lost = scene.delta(), UnenteredBatches("shop", newest=1, epoch=5)
    require_more(scene.path)
    delta.snapshot()
    before = scene.all_files()
    with pytest.raises(TargetError, match=REFUSED):
        lost.restored(delta, version)
    assert scene.all_files() == before
    remove_requirement(scene.path)
    lost.restored(delta, version)
    assert scene.read() == ([(1, 0)] if version is None else [(1, 0), (2, 0)])
