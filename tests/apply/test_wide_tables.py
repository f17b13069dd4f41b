"""Tables with more columns than statistics cover: files can still be left out of look-ups, whatever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headgate.delta import DataFile, TableLog, prepare_fold
from headgate.lake import SEEN, VALID_TO, ColumnsAfter, Fill, Form, Marker, append, reshape_files
from headgate.upkeep import fold_layout
from tests.apply.commit_kinds import (
    HISTORY,
    KEYED,
    ROWS,
    TIME,
    Scene,
    ending,
    rows,
    version_changes,
    versions,
    without_spark,
)
from tests.lake.tables import make_table

WIDE = pa.schema([*((f"c{number}", pa.int64()) for number in range(32)), *HISTORY])


def wide(narrow: pa.Table) -> pa.Table:
    """These rows; columns that they do not have are null."""
    names = {*narrow.column_names}
    columns = [narrow[one.name] if one.name in names else pa.nulls(len(narrow), one.type) for one in WIDE]
    return pa.table(columns, schema=WIDE)


def append_rows(scene: Scene) -> None:
    def in_task(run: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]], _ddl: str) -> Any:
        actions = [text for batch in run(iter([])) for text in batch["action"].to_pylist()]
        return SimpleNamespace(collect=lambda: [(text,) for text in actions])

    frame: Any = SimpleNamespace(mapInArrow=in_task)
    batches = wide(versions(2, (7, 1))).to_batches()
    append(scene.delta(), frame, lambda _: iter(batches), "", WIDE.names, Marker("p/t", 2))


def apply_versions(scene: Scene) -> None:
    image = rows(2, (3, 9)).append_column("_op", pa.array(["c"]))
    meta = {"_gtid": pa.array(["u:1"]), "_ts": pa.array([7], TIME)}
    images = wide(pa.table({**{name: image[name] for name in ROWS.names}, **meta})).select([*WIDE.names[:37]])
    scene.upserts.apply_versions(scene.delta(), version_changes(images.append_column("_op", image["_op"]), 2))


def end(scene: Scene) -> None:
    scene.upserts.change_rows(scene.delta(), ending(2, 7), ("id",))


def fill(scene: Scene) -> None:
    scene.upserts.fill(scene.delta(), Fill({"v": "7"}, "v bigint", 3, open_only=True))


def reshape(scene: Scene) -> None:
    reshape_files(scene.delta(), ColumnsAfter(dropped=["c0"]))


def fold(scene: Scene) -> None:
    table = TableLog(str(scene.path)).refresh()
    layout = fold_layout(table, "snappy")
    assert layout is not None
    folded = prepare_fold(str(scene.path), [*table.files.values()], layout)
    assert folded is not None
    scene.delta().commit(lambda: folded.plan(table))


@pytest.mark.parametrize("write", [append_rows, apply_versions, end, fill, reshape, fold])
def test_each_new_file_tells_its_keys_and_epochs(
    write: Callable[[Scene], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    scene = Scene(tmp_path, str)
    scene.path.mkdir(parents=True)
    before = [wide(versions(1, *((number, 0) for number in part))) for part in (range(5), range(5, 10))]
    make_table(str(scene.path), before, WIDE, {**KEYED, **Form.HISTORY.properties})
    first = scene.delta().snapshot(files=True).files
    write(scene)
    files = [file for path, file in scene.delta().snapshot(files=True).files.items() if path not in first]
    assert files
    assert not any(known(file) for file in first.values()), "there are statistics of the first columns alone"
    assert all(known(file) for file in files)


def known(file: DataFile) -> bool:
    paths = ("id",), ("_seq", "epoch"), (SEEN,)
    return None not in [*(file.bounds(path, pa.int64()) for path in paths), file.statistics.null_count((VALID_TO,))]
