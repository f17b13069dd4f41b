"""Rows that stand in new files before it is known whether they count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.apply import _shares
from headgate.apply._images import fold
from headgate.apply._shares import Shares, unpacked
from headgate.apply._staged_rows import Changes, Written, _join, write_changes
from headgate.delta import CommitPlan, Snapshot, TableLog, commit
from headgate.delta.vectors import read_vector, rows_of
from headgate.lake import CommitBase
from tests.fix_carrier import SEQ

SCHEMA = pa.schema([("id", pa.string()), ("_seq", SEQ)])
NAMES = ("epoch", "file", "pos", "ordinal")


def images(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    """``(op, key, pos)``."""
    seqs = [dict(zip(NAMES, (1, 1, pos, 0), strict=True)) for _, _, pos in rows]
    return pa.table({"id": [key for _, key, _ in rows], "_seq": pa.array(seqs, SEQ), "_op": [op for op, _, _ in rows]})


def changes(here: pa.Table | None) -> Changes:
    last: Callable[[pa.Table], pa.Table] = partial(fold, key=["id"])
    frame: Any = None
    return Changes("", ("id", "_seq"), ("id",), last, Shares(frame, iter) if here is None else here.to_batches())


def base() -> CommitBase:
    return CommitBase(Snapshot(0), SCHEMA, "zstd")


def written(batch_changes: Changes, folder: Path) -> Written:
    files = write_changes(batch_changes, base(), str(folder))
    assert files is not None
    return files


def share(folder: Path, rows: Sequence[tuple[str, str, int]]) -> tuple[list[str], pa.Table]:
    """What a task gives, of a record batch."""
    last = fold(images(rows), ["id"])
    files = written(changes(last), folder)
    return [json.dumps({"add": add}) for add in files.adds], last


def counted(folder: Path, actions: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    """Key and position of the rows that count."""
    kept: list[tuple[str, int]] = []
    for action in actions:
        add = action["add"]
        rows = [(row["id"], row["_seq"]["pos"]) for row in pq.read_table(folder / add["path"]).to_pylist()]
        vector = add.get("deletionVector")
        void = set() if vector is None else set(rows_of(read_vector(str(folder), vector)).tolist())
        assert json.loads(add["stats"])["tightBounds"] is (vector is None)
        kept += [row for place, row in enumerate(rows) if place not in void]
    return sorted(kept)


def test_a_later_image_in_another_share_takes_the_place_of_a_row(tmp_path: Path) -> None:
    parts = [
        share(tmp_path, [("u", "a", 10), ("u", "b", 20), ("d", "c", 30)]),
        share(tmp_path, [("c", "c", 40), ("u", "a", 5), ("d", "b", 50)]),
    ]
    joined = _join(parts, changes(None), SCHEMA, str(tmp_path))
    assert joined is not None
    assert joined.keys.count == 3
    assert counted(tmp_path, joined.actions(np.zeros(3, np.bool_))) == [("a", 10), ("c", 40)]


def test_rows_that_the_table_has_as_new_are_marked_and_an_empty_file_is_left_out(tmp_path: Path) -> None:
    files = written(changes(images([("u", "a", 10), ("d", "x", 15), ("u", "b", 20)])), tmp_path)
    assert counted(tmp_path, files.actions(np.array([True, False, False]))) == [("b", 20)]
    assert counted(tmp_path, files.actions(np.zeros(3, np.bool_))) == [("a", 10), ("b", 20)], (
        "a second look begins again"
    )
    assert files.actions(np.array([True, True, True])) == []


@pytest.mark.parametrize("all_count", [True, False])
def test_only_files_that_a_commit_names_stay(tmp_path: Path, all_count: bool) -> None:
    files = written(changes(images([("u", "a", 10)])), tmp_path)
    plan = CommitPlan(Snapshot(), files.actions(np.array([not all_count])), "WRITE", {})
    commit(TableLog(str(tmp_path)), lambda: plan, staged=files.files)
    assert len(list(tmp_path.glob("*.parquet"))) == int(all_count)


def test_no_images_are_no_changes(tmp_path: Path) -> None:
    assert write_changes(changes(images([])), base(), str(tmp_path)) is None
    assert _join([], changes(None), SCHEMA, str(tmp_path)) is None


def test_deletions_alone_write_no_file(tmp_path: Path) -> None:
    files = written(changes(images([("d", "a", 10), ("b", "c", 20)])), tmp_path)
    assert files.keys.count == 2
    assert files.actions(np.zeros(2, np.bool_)) == []
    assert not list(tmp_path.iterdir())


@dataclass
class Tasks:
    """A frame of Spark, of whose tasks each has a share."""

    shares: Sequence[pa.Table]
    returned: list[pa.RecordBatch] = field(default_factory=list)

    def mapInArrow(  # noqa: N802 - Spark's name
        self, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _ddl: str
    ) -> Self:
        self.returned = [batch for one in self.shares for batch in run(iter(one.to_batches(max_chunksize=7)))]
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - as above
        return pa.Table.from_batches(self.returned)


def test_a_task_holds_and_returns_the_keys_of_its_share_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So neither it nor a value that passes through the JVM grows with the batch."""
    monkeypatch.setattr(_shares, "_PACKED_TOGETHER", 20)
    rows = [("d" if pos % 5 == 0 else "u", f"key {pos}", pos) for pos in range(300)]
    tasks: Any = Tasks([images(rows[:200]), images(rows[200:])])
    last: Callable[[pa.Table], pa.Table] = partial(fold, key=["id"])
    files = written(Changes("", ("id", "_seq"), ("id",), last, Shares(lambda: tasks, iter)), tmp_path)
    groups = [unpacked(value.as_buffer()) for batch in tasks.returned for value in batch["images"]]
    assert max(group.num_rows for group in groups) < 20 + 7
    assert sum(group.num_rows for group in groups) == 300
    assert sum(len(names) for batch in tasks.returned for names in batch["files"].to_pylist()) == 2
    assert counted(tmp_path, files.actions(np.zeros(300, np.bool_))) == sorted((k, p) for op, k, p in rows if op == "u")


@given(
    rows=st.lists(st.tuples(st.sampled_from("bcdur"), st.sampled_from("abcdef")), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 29), max_size=4),
    skipped=st.frozensets(st.sampled_from("abcdef")),
)
def test_shares_give_what_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], cuts: list[int], skipped: frozenset[str]
) -> None:
    """If a batch is divided in another way, the same rows count."""
    folder = tmp_path_factory.mktemp("shares")
    numbered = [(op, key, pos) for pos, (op, key) in enumerate(rows)]
    bounds = [0, *sorted({cut for cut in cuts if cut < len(rows)}), len(rows)]
    parts = [share(folder, numbered[start:end]) for start, end in pairwise(bounds)]
    joined = _join(parts, changes(None), SCHEMA, str(folder))
    assert joined is not None
    last = {key: (op, pos) for op, key, pos in numbered}
    at = {pos: key for key, (_, pos) in last.items()}
    left_out = np.array([at[int(pos)] in skipped for pos in joined.sequences.pos])
    expected = sorted((key, pos) for key, (op, pos) in last.items() if op not in "bd" and key not in skipped)
    assert counted(folder, joined.actions(left_out)) == expected
