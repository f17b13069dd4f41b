from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headgate.apply._row_changes import Ending, Marking
from headgate.delta import DataFile
from headgate.lake import DELETED, END_GTID, END_SEQ, IS_CURRENT, SEEN, VALID_FROM, VALID_TO, Form

SEQ = pa.struct([("epoch", pa.int64()), ("file", pa.int32()), ("pos", pa.int64()), ("ordinal", pa.int64())])
TIME = pa.timestamp("us", "UTC")
MARKING = Marking(3, 6, (7, 0, 0, 0))


def seq(epoch: int) -> dict[str, int]:
    return {"epoch": epoch, "file": 1, "pos": 4, "ordinal": 0}


def rows(*states: tuple[int, bool | None]) -> pa.Table:
    """(epoch, deleted) of each row."""
    return pa.table(
        {
            "id": pa.array(range(len(states)), pa.int64()),
            "_seq": pa.array([seq(epoch) for epoch, _ in states], SEQ),
            "_gtid": pa.array(["u:1"] * len(states), pa.string()),
            "_ts": pa.array([1] * len(states), TIME),
            DELETED: pa.array([deleted for _, deleted in states], pa.bool_()),
        }
    )


def file(statistics: dict[str, Any] | None) -> DataFile:
    return DataFile({"path": "a.parquet", "size": 1, "stats": None if statistics is None else json.dumps(statistics)})


def test_rows_of_the_epochs_are_marked() -> None:
    table = rows((2, False), (3, False), (5, True), (5, False), (6, False), (4, None))
    chosen = [MARKING.chosen(batch).tolist() for batch in table.to_batches()]
    assert chosen == [[False, True, False, True, False, False]]


def test_a_marked_row_keeps_its_values_and_no_replay_marks_it_again() -> None:
    marked = MARKING.apply(rows((3, False), (5, False)))
    assert marked.schema == rows().schema
    assert marked["id"].to_pylist() == [0, 1]
    expected = {"_seq": {"epoch": 7, "file": 0, "pos": 0, "ordinal": 0}, "_gtid": None, "_ts": None, DELETED: True}
    assert [{name: row[name] for name in expected} for row in marked.to_pylist()] == [expected] * 2
    assert not any(MARKING.chosen(batch).any() for batch in marked.to_batches())


def test_no_rows_are_marked() -> None:
    assert MARKING.chosen(pa.RecordBatch.from_pylist([], rows().schema)).tolist() == []
    assert MARKING.apply(rows()).num_rows == 0


@pytest.mark.parametrize(
    ("epochs", "touches"), [((1, 2), False), ((1, 3), True), ((5, 9), True), ((6, 9), False), (None, True)]
)
def test_files_are_left_alone_by_their_epochs(epochs: tuple[int, int] | None, *, touches: bool) -> None:
    bounds = None
    if epochs is not None:
        low, high = epochs
        bounds = {"numRecords": 2, "minValues": {"_seq": {"epoch": low}}, "maxValues": {"_seq": {"epoch": high}}}
    assert MARKING.touches(file(bounds)) is touches


def test_closed_versions_are_left_alone() -> None:
    ending = Ending(0, 6, (7, 1, 2, 3), "u:9", 50)
    whole = {"numRecords": 2, "nullCount": {VALID_TO: 0}, "minValues": {SEEN: 1}, "maxValues": {SEEN: 2}}
    assert not ending.touches(file(whole))
    assert ending.touches(file({**whole, "nullCount": {VALID_TO: 1}}))
    table = pa.table(
        {
            VALID_FROM: pa.array([10, 90], TIME),
            VALID_TO: pa.nulls(2, TIME),
            IS_CURRENT: pa.array([True, False]),
            END_SEQ: pa.nulls(2, SEQ),
            END_GTID: pa.nulls(2, pa.string()),
            SEEN: pa.array([5, 5], pa.int64()),
        }
    )
    assert [ending.chosen(batch).tolist() for batch in table.to_batches()] == [[True, False]]
    ended = ending.apply(table).to_pylist()
    assert [row[END_SEQ] for row in ended] == [{"epoch": 7, "file": 1, "pos": 2, "ordinal": 3}] * 2
    assert [row[VALID_TO].microsecond for row in ended] == [50, 90], "no version ends before it begins"
    assert Form.HISTORY.of_source(ending.apply(table)).num_rows == 0
