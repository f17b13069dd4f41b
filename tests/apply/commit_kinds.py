"""A table of each kind, and a commit to it: without Spark, in a local folder or in a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.apply import Upserts
from headgate.apply import _upsert as upsert_module
from headgate.apply._counted import CountedChanges
from headgate.apply._row_changes import Ending
from headgate.apply._staged_rows import Changes
from headgate.apply._version_changes import VersionChanges
from headgate.apply._versions import Versions, fold_versions
from headgate.delta import FoldLayout, TableLog, data_files_in, keys_of, prepare_fold, snapshot_at
from headgate.delta.vectors import vector_file
from headgate.lake import (
    END_GTID,
    END_SEQ,
    IS_CURRENT,
    ROW_HASH,
    SEEN,
    VALID_FROM,
    VALID_TO,
    CommitBase,
    DeltaPath,
    Fill,
    Form,
    Lake,
    Marker,
    MergedTables,
    Place,
    TableState,
    append_rows,
    begin_successor,
    table_schema,
    take_over,
)
from headgate.lake import _append as append_module
from headgate.lake import _delta as delta_module
from headgate.lake import _replace as replace_module
from headgate.lake._replace import keep_until
from headgate.upkeep import Folds
from headgate.upkeep._folds import _Prepared
from tests.fix_carrier import SEQ
from tests.lake.tables import make_table

TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("_seq", SEQ)])
HISTORY = pa.schema(
    [
        *ROWS, ("_gtid", pa.string()), ("_ts", TIME), (VALID_FROM, TIME), (VALID_TO, TIME), (IS_CURRENT, pa.bool_()),
        (END_SEQ, SEQ), (END_GTID, pa.string()), (SEEN, pa.int64()),
    ]
)  # fmt: skip
BAG = pa.schema([*ROWS, (ROW_HASH, pa.binary())])
KEYED = {"headgate.key": '["id"]', "delta.enableDeletionVectors": "true"}


def rows(epoch: int, *values: tuple[int, int]) -> pa.Table:
    """``(id, v)`` as of an epoch."""
    seqs = [{"epoch": epoch, "file": 1, "pos": 4 + pos, "ordinal": 0} for pos, _ in enumerate(values)]
    return pa.table({"id": [i for i, _ in values], "v": [v for _, v in values], "_seq": pa.array(seqs, SEQ)}, ROWS)


def versions(epoch: int, *values: tuple[int, int]) -> pa.Table:
    """Open versions of these rows."""
    open_rows = rows(epoch, *values)
    columns = {name: open_rows[name] for name in ROWS.names}
    count = len(values)
    more = {VALID_FROM: [1] * count, IS_CURRENT: [True] * count, SEEN: [epoch] * count}
    return pa.table({one.name: columns.get(one.name, more.get(one.name, [None] * count)) for one in HISTORY}, HISTORY)


def version_changes(images: pa.Table, epoch: int) -> VersionChanges:
    """The changes of a batch's images to a history."""
    marker = Marker("p/t/history", epoch)
    return VersionChanges("", HISTORY.names, ("id",), ("id", "v"), lambda: [fold_versions(images, ["id"])], marker)


def ending(epoch: int, at_us: int) -> Ending:
    """The end of all open versions, at a time."""
    return Ending(0, epoch + 1, (epoch, 9, 9, 0), None, at_us)


def in_process(work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _ddl: str) -> Any:
    """What Spark's tasks return, one file a task."""
    batches = work(iter([pa.record_batch({"id": range(1)})]))
    return SimpleNamespace(toArrow=lambda: pa.Table.from_batches(list(batches)))


SPARK: Any = SimpleNamespace(
    conf=SimpleNamespace(getAll={}, get=lambda *_: "snappy"), range=lambda *_: SimpleNamespace(mapInArrow=in_process)
)


@dataclass
class Scene:
    """A lake, and the way in which its commits are put."""

    folder: Path
    uri: Callable[[Path], str]
    folds: Folds = field(default_factory=Folds)

    def __post_init__(self) -> None:
        self.upserts = Upserts(self.folder / "cache", self.folds)
        self.path = self.folder / "lake" / "shop" / "t"
        self.lake = Lake(self.uri(self.folder / "lake"))

    def delta(self, path: Path | None = None) -> DeltaPath:
        return DeltaPath(SPARK, self.uri(path or self.path))

    def make(self, *files: pa.Table, path: Path | None = None, schema: pa.Schema = ROWS) -> None:
        (path or self.path).mkdir(parents=True)
        form = Form.HISTORY if schema is HISTORY else Form.PLAIN
        make_table(self.uri(path or self.path), files, schema, {**KEYED, **form.properties})

    def read(self, path: Path | None = None, where: str = "true") -> list[tuple[int, int]]:
        table = DeltaTable(path or self.path)
        result = QueryBuilder().register("t", table).execute(f"SELECT id, v FROM t WHERE {where}").read_all()
        return sorted((row["id"], row["v"]) for row in pa.table(result).to_pylist())

    def check_known(self) -> None:
        """What a process that committed knows of the table is what another one reads."""
        known, read = self.delta().known(), TableLog(self.uri(self.path)).refresh()
        assert known == (read if known.files else dataclasses.replace(read, files={}))

    def all_files(self) -> set[Path]:
        """All files of the lake."""
        return {path for path in (self.folder / "lake").rglob("*") if path.is_file()}

    def check_files(self, *, whole: bool) -> None:
        """All files of all versions exist; with ``whole``, there are no others."""
        folder, named = self.uri(self.path), set[str]()
        for version in range(TableLog(folder).refresh().version + 1):
            for file in snapshot_at(folder, version).files.values():
                named.add(file.name)
                if file.vector is not None and file.vector["storageType"] == "u":
                    named.add(vector_file(file.vector))
        assert all((self.path / name).exists() for name in named)
        if whole:
            assert {unquote(file.name) for file in data_files_in(folder)} <= named


def as_file_uri(path: Path) -> str:
    return f"file://{path}"


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a commit is planned on read without Spark."""

    def inspect(delta: DeltaPath, *_: Any, **which: bool) -> CommitBase:
        snapshot = delta.writable(**which)
        schema = table_schema(snapshot.schema_json)
        assert schema is not None
        return CommitBase(snapshot, schema, "snappy")

    for module in (append_module, replace_module, upsert_module):
        monkeypatch.setattr(module, "inspect_base", inspect)
    monkeypatch.setattr(append_module, "spark_schema", lambda _: SimpleNamespace(fieldNames=lambda: ROWS.names))
    monkeypatch.setattr(delta_module, "share_access", lambda *_: None)


BEGUN = [(i, 0) for i in range(20)]
ONE, OTHERS = BEGUN[:10], BEGUN[10:]
Expected = list[tuple[int, int]]
Kind = Callable[[Scene], tuple[Callable[[], object], Expected]]
"""Makes a table. Returns what commits to it, and may be repeated; and the rows afterwards, without those at first."""


def create(scene: Scene) -> tuple[Callable[[], object], Expected]:
    columns = scene.folder / "columns"
    scene.make(path=columns)
    schema, delta = scene.delta(columns).schema(), scene.delta()
    return lambda: None if delta.exists() else delta.create(schema, {"headgate.table": "t"}), []


def append(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *BEGUN))
    values = [tuple(row.values()) for row in rows(2, (20, 1)).to_pylist()]
    return lambda: append_rows(scene.delta(), values, "", Marker("p/t", 2)), [*BEGUN, (20, 1)]


def ledger(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """A row of a ledger goes to one version. A program that finds its row there does not write it again."""
    scene.make(rows(1, *BEGUN))
    values = [tuple(row.values()) for row in rows(2, (20, 1)).to_pylist()]
    delta = scene.delta()
    return lambda: None if delta.version() else append_rows(delta, values, "", at=0), [*BEGUN, (20, 1)]


def upsert(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *ONE), rows(1, *OTHERS))
    images = rows(2, (0, 9), (11, 9), (20, 9), (5, 9)).append_column("_op", pa.array(["u", "u", "c", "d"]))
    changes = Changes("", ROWS.names, ("id",), lambda one: one, images.to_batches())
    expected = [(0, 9), *((i, 9 if i == 11 else 0) for i in range(1, 20) if i != 5), (20, 9)]
    return lambda: scene.upserts.apply(scene.delta(), changes), expected


def copies(epoch: int, *values: tuple[int, int]) -> pa.Table:
    """Rows of a table without a key: the hash is of ``id`` alone."""
    return rows(epoch, *values).append_column(ROW_HASH, pa.array([b"%d" % i for i, _ in values])).cast(BAG)


def counts(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """A copy of content 0 is added, one of content 1 is removed, and all of content 2."""
    scene.make(copies(1, *BEGUN, (1, 0)), copies(1, (2, 0), (1, 0)), schema=BAG)

    def check(missing: Any) -> None:
        assert missing.tolist() == [0, 0], "counted once, on a version without the change"

    changes = CountedChanges(
        "",
        BAG.names,
        copies(2, (0, 1)).to_batches(),
        Marker("p/t/counted", 2),
        removes=keys_of([pa.array([b"1", b"2"])]),
        removed=np.array([1, 2]),
        check=check,
    )
    expected = sorted([*(pair for pair in BEGUN if pair[0] != 2), (1, 0), (0, 1)])
    return lambda: scene.upserts.apply_counts(scene.delta(), changes), expected


def emptied(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(copies(1, *ONE), copies(1, *OTHERS), schema=BAG)
    values = [(3, 0), (3, 1), (7, 0)]
    marker = Marker("p/t/counted", 2)
    changes = CountedChanges("", BAG.names, copies(2, *values).to_batches(), marker, empties=True)
    return lambda: scene.upserts.apply_counts(scene.delta(), changes), values


def history(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """In pieces, of which two end versions in one file."""
    scene.make(versions(1, *ONE), versions(1, *OTHERS), schema=HISTORY)

    def pieces() -> Iterator[Versions]:
        for number in (3, 4, 12):
            image = rows(2, (number, 9)).append_column("_op", pa.array(["c"]))
            meta = {"_gtid": pa.array(["u:1"]), "_ts": pa.array([7], TIME)}
            yield fold_versions(pa.table({**{name: image[name] for name in image.column_names}, **meta}), ["id"])

    changes = VersionChanges("", HISTORY.names, ("id",), ("id", "v"), pieces, Marker("p/t/history", 2))
    expected = [*((i, 0) for i in range(20)), (3, 9), (4, 9), (12, 9)]
    return lambda: scene.upserts.apply_versions(scene.delta(), changes), sorted(expected)


def ends(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """Also shows that what is read is of the newest version: no row is open."""
    scene.make(versions(1, *ONE), versions(1, *OTHERS), schema=HISTORY)
    ending = Ending(0, 2, (2, 0, 0, 0), "u:1", 7)
    return lambda: scene.upserts.change_rows(scene.delta(), ending, ("id",)), BEGUN


def clear(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *ONE), rows(3, *OTHERS))
    return lambda: scene.upserts.clear(scene.delta(), (2, 0, 0, 0), ("id",)), OTHERS


def strays(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """Of some epochs only; one file has rows of others, too."""
    scene.make(pa.concat_tables([rows(1, *ONE), rows(2, (20, 0))]), rows(2, (21, 0)), rows(3, *OTHERS))
    return lambda: scene.upserts.clear(scene.delta(), (3, 0, 0, 0), ("id",), since=2), BEGUN


def later_rows(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """One file has rows of earlier batches, too; one has none of them."""
    scene.make(pa.concat_tables([rows(1, *ONE), rows(3, (20, 0))]), rows(2, *OTHERS), rows(4, (21, 0)))
    return lambda: keep_until(scene.delta(), 2, "_seq"), BEGUN


def fill_open(scene: Scene) -> tuple[Callable[[], object], Expected]:
    """A version that has ended stays as it was."""
    ended = Ending(0, 9, (2, 1, 4, 0), "u:1", 7).apply(versions(1, *OTHERS))
    scene.make(versions(1, *ONE), ended, schema=HISTORY)
    change = Fill({"v": "7"}, "v bigint", 3, open_only=True)
    return lambda: scene.upserts.fill(scene.delta(), change), [*((i, 7) for i, _ in ONE), *OTHERS]


def fill(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *BEGUN))
    change = Fill({"v": "7"}, "v bigint", 3)
    return lambda: scene.upserts.fill(scene.delta(), change), [(i, 7) for i, _ in BEGUN]


def fold(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *ONE), rows(1, *OTHERS))
    path = scene.uri(scene.path)

    def prepare_and_finish() -> None:
        read = TableLog(path).refresh()
        files = list(read.files.values())
        prepared: Future[Any] = Future()
        prepared.set_result(prepare_fold(path, files, FoldLayout(ROWS, "snappy", ("id",))) if len(files) > 1 else None)
        scene.folds._prepared[path] = _Prepared(("id",), frozenset(file.path for file in files), prepared)
        scene.folds.finish(path, read, ("id",))

    return prepare_and_finish, BEGUN


def replace(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *BEGUN))
    successor = begin_successor(scene.delta(), 2)
    path = scene.path / successor.path.rpartition("/")[2]
    scene.make(rows(2, (1, 2)), rows(2, (3, 4)), path=path)
    return lambda: take_over(scene.delta(), successor), [(1, 2), (3, 4)]


def merged(scene: Scene) -> tuple[Callable[[], object], Expected]:
    states = {}
    for name, values in (("a", ONE), ("b", OTHERS)):
        place = Place("shop.t", name, "part")
        scene.make(rows(1, *values), path=scene.path / (place.folder or ""))
        states[f"{name}.t"] = TableState(f"{name}.t", "live", 0, place=place)
    return lambda: MergedTables(scene.lake, "p").show(states, (), 1), BEGUN


def properties(scene: Scene) -> tuple[Callable[[], object], Expected]:
    scene.make(rows(1, *BEGUN))
    return lambda: scene.delta().set_properties({"headgate.since": "3"}), BEGUN


KINDS: list[Kind] = [
    create,
    append,
    ledger,
    upsert,
    history,
    ends,
    clear,
    strays,
    later_rows,
    fill,
    fill_open,
    fold,
    replace,
    merged,
    properties,
    counts,
    emptied,
]
