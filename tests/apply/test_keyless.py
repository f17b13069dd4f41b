"""Contents of keyless tables, counted, against a multiset."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.apply import Upserts
from headgate.apply._counted import CountedChanges
from headgate.apply._images import drop_before
from headgate.apply._keyless import Contents
from headgate.carrier import Seq
from headgate.errors import TargetError
from headgate.lake import ROW_HASH, Marker
from tests.apply.commit_kinds import Scene, without_spark
from tests.fix_carrier import SEQ

TABLE = pa.schema([("a", pa.int32()), ("b", pa.string()), ("_seq", SEQ)])
SCHEMA = pa.schema([("_op", pa.string()), *TABLE])
BAG = TABLE.append(pa.field(ROW_HASH, pa.binary()))
Row: TypeAlias = tuple[int | None, str | None]
Image: TypeAlias = tuple[str, Row]


def contents_of(images: Sequence[Image], per: int = 3, order: Sequence[int] = (), bound: Seq | None = None) -> Contents:
    """Images at positions 0, 1, …; some of them in each record batch.

    :param order: numbers of images, in which they are stored; by default their own.
    """
    lines = [
        {"_op": op, "_seq": {"epoch": 1, "file": 1, "pos": pos, "ordinal": 0}, "a": row[0], "b": row[1]}
        for pos, (op, row) in enumerate(images)
    ]
    stored = [lines[number] for number in order] if order else lines
    batches = [pa.RecordBatch.from_pylist(stored[at : at + per], SCHEMA) for at in range(0, len(stored), per)]
    return Contents.of(lambda: [drop_before(batch, bound) for batch in batches], ["a", "b"])


def positions(contents: Contents) -> list[int]:
    return sorted(row["_seq"]["pos"] for batch in contents.added() for row in batch.to_pylist())


def test_the_last_images_that_set_a_content_are_written() -> None:
    one, two = (1, "x"), (2, None)
    images = [("c", one), ("c", one), ("d", one), ("c", one), ("d", two), ("c", two), ("d", two)]
    for order in ([], [6, 1, 0, 5, 3, 2, 4]):
        contents = contents_of(images, order=order)
        assert positions(contents) == [1, 3]
        assert contents.removed.tolist() == [1]
    assert positions(contents_of(images, bound=(1, 1, 2, 0))) == [3]
    assert positions(contents_of([])) == []


def test_more_copies_are_removed_than_there_are() -> None:
    contents = contents_of([("c", (1, "x")), ("d", (7, "y")), ("d", (7, "y"))], per=2)
    contents.check(np.array([0]), ["a", "b"], "shop.t")
    with pytest.raises(TargetError, match=r"deletes 2 rows \(a=7, b='y'\), .*has 1.*--resnapshot 'shop\.t'"):
        contents.check(np.array([1]), ["a", "b"], "shop.t")


class Table:
    """A keyless table, and the multiset that it should be."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.rows, self.epochs = scene, Counter[Row](), count(2)
        scene.make(schema=BAG)

    def apply(self, epoch: int, contents: Contents, *, empties: bool = False) -> int:
        """Apply a batch; return the number of commits."""
        version = self.scene.delta().version()
        changes = CountedChanges(
            "",
            BAG.names,
            contents.added(),
            Marker("p/t/counted", epoch),
            empties,
            contents.removed_keys,
            contents.removed,
            lambda missing: contents.check(missing, ["a", "b"], "shop.t"),
        )
        self.scene.upserts.apply_counts(self.scene.delta(), changes)
        return self.scene.delta().version() - version

    def restart(self) -> None:
        self.scene.upserts = Upserts(self.scene.folder / "cache", self.scene.folds)

    def check(self) -> None:
        query = QueryBuilder().register("t", DeltaTable(self.scene.path)).execute("SELECT * FROM t")
        stored = pa.table(query.read_all()).to_pylist()
        assert Counter((row["a"], row["b"]) for row in stored) == +self.rows
        hashes = {(row["a"], row["b"]): row[ROW_HASH] for row in stored}
        assert len(set(hashes.values())) == len(hashes)
        assert all(row[ROW_HASH] == hashes[row["a"], row["b"]] for row in stored)


ROWS = st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, "", "1"]))


CHANGES = st.lists(st.tuples(st.sampled_from("cud"), ROWS, st.integers(0, 99)), max_size=25)
BATCHES = st.lists(st.tuples(CHANGES, st.none() | st.integers(0, 40), st.randoms()), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(drawn=BATCHES)
def test_random_batches_and_replays_against_a_multiset(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[list[tuple[str, Row, int]], int | None, random.Random]]
) -> None:
    """Each batch is applied again after a kill, with its images at other positions."""
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        table = Table(Scene(tmp_path_factory.mktemp("keyless"), str))
        for changes, truncated, shuffle in drawn:
            images: list[Image] = []
            bound: Seq | None = None
            for number, (op, new, which) in enumerate(changes):
                if number == truncated:
                    bound = (1, 1, len(images) - 1, 0)
                    table.rows.clear()
                held = sorted(table.rows.elements(), key=repr)
                if op != "c" and held:
                    old = held[which % len(held)]
                    table.rows[old] -= 1
                    images.append(("d" if op == "d" else "b", old))
                if op != "d":
                    table.rows[new] += 1
                    images.append((op, new))
            epoch = next(table.epochs)
            for attempt in range(2):
                order = shuffle.sample(range(len(images)), len(images))
                made = contents_of(images, shuffle.randrange(1, 9), order, bound)
                assert table.apply(epoch, made, empties=bound is not None) <= 1 - attempt
                table.check()
                table.restart()
