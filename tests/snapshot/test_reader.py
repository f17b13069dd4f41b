"""The parts of the reader that need no server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import Column, TableDef
from headgate.errors import ChunkRetryError, ConnectionLostError, DefiniteServerError, ProtocolError, SchemaChangedError
from headgate.mysql import Connection
from headgate.offsets import ChunkSpec
from headgate.replication import ImageBatch, LogBlock, canonical_schema, op_array, seq_array
from headgate.snapshot import _reader
from headgate.snapshot._reader import _Task
from headgate.snapshot._task_log import _by_table, _in_order

TABLE = TableDef("d", "t", (Column("k", "int"),), key=(0,))


def batch(ops: str, pos: list[int], keys: list[int]) -> pa.RecordBatch:
    n = len(pos)
    gtids = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([f"g{pos[0]}"]))
    columns = [
        op_array(np.frombuffer(ops.encode(), np.uint8)),
        seq_array(1, 1, np.array(pos, np.int64), np.zeros(n, np.int64)),
        gtids,
        pa.array([0] * n, pa.timestamp("us", "UTC")),
        pa.array(keys, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=canonical_schema(TABLE, [pa.field("k", pa.int32())]))


def test_batches_of_one_table_are_put_into_log_order() -> None:
    batches = _in_order([batch("bud", [10, 10, 40], [1, 2, 3]), batch("cbu", [20, 30, 30], [4, 5, 6])])
    assert [op for one in batches for op in one.column("_op").to_pylist()] == ["b", "u", "c", "b", "u", "d"]
    assert [key for one in batches for key in one.column("k").to_pylist()] == [1, 2, 4, 5, 6, 3]


def test_a_single_batch_is_left_alone() -> None:
    one = batch("c", [10], [1])
    assert _in_order([one])[0] is one
    assert _in_order([]) == []


def test_a_block_is_sorted_by_table() -> None:
    other = TableDef("d", "u", TABLE.columns, key=(0,))
    one, two, three = batch("c", [1], [1]), batch("c", [2], [2]), batch("c", [3], [3])
    by_table = _by_table(LogBlock([ImageBatch(TABLE, one), ImageBatch(other, two), ImageBatch(TABLE, three)]))
    assert by_table == {"d.t": [one, three], "d.u": [two]}


def test_an_error_after_which_the_connection_is_closed_is_given_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be asked there any more; it would look like a connection that was lost, and be tried for ever."""

    def closed(*_: object) -> TableDef:
        raise ConnectionLostError("closed")

    monkeypatch.setattr(_Task, "_load", closed)
    task = object.__new__(_Task)
    task._explain(ChunkSpec("d.t", 0, None, None), TABLE, ProtocolError("a row does not match its columns"))
    with pytest.raises(ConnectionLostError):
        task._explain(ChunkSpec("d.t", 0, None, None), TABLE, DefiniteServerError("no", code=1, sqlstate="HY000"))


def test_a_key_that_is_renamed_while_the_definition_is_loaded_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(*_: object) -> None:
        raise SchemaChangedError("the table has no column k")

    monkeypatch.setattr(_reader, "load_table", renamed)
    task = object.__new__(_reader._Task)
    with pytest.raises(_reader._RetryChunk, match="no column k"):
        task._load("d.t", cast("Connection", SimpleNamespace(query=None)))


@pytest.mark.parametrize(("key", "surrogate", "text"), [
    ((0,), None, "a chunk took longer than 600 s to read: use smaller chunks"),
    ((), "k", "a chunk took longer than 600 s to read: use smaller chunks"),
    ((), None, "a chunk took longer than 604800 s to read"),
])  # fmt: skip
def test_a_select_that_takes_too_long(key: tuple[int, ...], surrogate: str | None, text: str) -> None:
    """A table without a key is one chunk, which cannot be smaller."""
    task = object.__new__(_Task)
    error = DefiniteServerError("interrupted", code=3024, sqlstate="HY000")
    with pytest.raises(ChunkRetryError) as caught:
        task._explain(ChunkSpec("d.t", 0, None, None, surrogate=surrogate), replace(TABLE, key=key), error)
    assert caught.value.message == text
