"""Copies of equal rows, counted, against a model."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import TargetError
from headgate.sinks._keyless import buckets_of, fold_contents, hashed, number_copies

SEQ = pa.struct({"epoch": pa.int64(), "file": pa.int32(), "pos": pa.int64(), "ordinal": pa.int32()})
SCHEMA = pa.schema([("_op", pa.string()), ("_seq", SEQ), ("n", pa.int32())])


def images(*changes: tuple[str, int]) -> pa.Table:
    lines = [
        {"_op": op, "_seq": {"epoch": 1, "file": 1, "pos": pos, "ordinal": 0}, "n": n}
        for pos, (op, n) in enumerate(changes)
    ]
    return pa.Table.from_batches([hashed(pa.RecordBatch.from_pylist(lines, SCHEMA), ["n"])])


def test_copies_of_many_contents_against_a_model() -> None:
    choice = random.Random(11)
    for _ in range(50):
        changes = [(choice.choice("cdbu"), choice.randrange(8)) for _ in range(choice.randrange(60))]
        net = Counter[int]()
        for op, n in changes:
            net[n] += 1 if op in "cu" else -1
        contents = fold_contents(images(*changes))
        values = contents.rows["n"].to_pylist()
        assert dict(zip(values, contents.net.tolist(), strict=True)) == {n: total for n, total in net.items() if total}
        before = np.array([choice.randrange(5) for _ in values], np.int64)
        added, removed = contents.settle(before)
        copies = sorted(zip(added["n"].to_pylist(), added["_row_copy"].to_pylist(), strict=True))
        after = {n: max(0, held + net[n]) for n, held in zip(values, before.tolist(), strict=True)}
        assert copies == sorted(
            (n, copy) for n, held in zip(values, before.tolist(), strict=True) for copy in range(held, after[n])
        )
        assert removed.tolist() == [max(0, held - after[n]) for n, held in zip(values, before.tolist(), strict=True)]


def test_the_last_image_that_sets_a_row_is_written() -> None:
    rows = fold_contents(images(("c", 1), ("c", 1), ("d", 1), ("d", 2))).rows
    assert [(row["n"], row["_op"], row["_seq"]["pos"]) for row in rows.to_pylist()] == [(1, "c", 1), (2, "d", 3)]


def test_more_copies_are_removed_than_there_are() -> None:
    contents = fold_contents(images(("d", 7), ("d", 7)))
    contents.check(np.array([2]), ["n"], "shop.t")
    with pytest.raises(TargetError, match=r"deletes 2 rows \(n=7\), but the target has 1.*--resnapshot 'shop\.t'"):
        contents.check(np.array([1]), ["n"], "shop.t")


def test_buckets_have_all_rows_and_each_content_once() -> None:
    rows = images(*[("r", n % 9) for n in range(40)])
    parts = list(buckets_of(rows.to_batches()[0], 4))
    assert len({number for number, _ in parts}) == len(parts) > 1
    contents = [{*part["n"].to_pylist()} for _, part in parts]
    assert sum(map(len, contents)) == 9
    numbered = [number_copies(pa.Table.from_batches([part])) for _, part in parts]
    copies = Counter(
        pair for part in numbered for pair in zip(part["n"].to_pylist(), part["_row_copy"].to_pylist(), strict=True)
    )
    assert copies == Counter((n % 9, n // 9) for n in range(40))
