"""Rows of a signal table: inserts become files of the inbox, whatever they hold."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from headgate.carrier import SINK_SIGNALS
from headgate.control import inbox_files, inserted_rows
from headgate.replication import seq_array

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def images(
    *rows: tuple[str, int, int, Any, Any, Any], names: tuple[str, ...] = ("id", "type", "data"), kind: Any = None
) -> pa.RecordBatch:
    """Images as (op, transaction, ordinal, id, type, data), committed a second after each other."""
    numbers = pa.array([number for _, number, *_ in rows], pa.int64())
    ordinals = pa.array([ordinal for _, _, ordinal, *_ in rows], pa.int64())
    arrays = [
        pa.array([row[0] for row in rows], pa.string()),
        seq_array(1, 7, numbers.to_numpy(), ordinals.to_numpy()),
        pa.array([f"{UUID}:{number}" for _, number, *_ in rows]).dictionary_encode(),
        pa.array([number * 1_000_000 for _, number, *_ in rows], pa.timestamp("us", "UTC")),
        *(pa.array([row[3 + i] for row in rows], kind or pa.string()) for i in range(len(names))),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["_op", "_seq", "_gtid", "_ts", *names])


def test_only_inserts_are_signals() -> None:
    rows = inserted_rows(
        images(
            ("c", 1, 0, "one", "log", '{"message": "x"}'),
            ("b", 2, 0, "one", "log", None),
            ("u", 2, 0, "one", "pause-snapshot", None),
            ("d", 3, 0, "one", "pause-snapshot", None),
            ("r", 3, 1, "old", "pause-snapshot", None),
            ("c", 4, 2, None, None, None),
        )
    )
    assert rows == [
        {"gtid": f"{UUID}:1", "seq": [7, 1, 0], "ts_us": 1_000_000}
        | {"id": "one", "type": "log", "data": '{"message": "x"}'},
        {"gtid": f"{UUID}:4", "seq": [7, 4, 2], "ts_us": 4_000_000} | dict.fromkeys(("id", "type", "data")),
    ]


def test_marks_of_watermarks_are_no_signals() -> None:
    rows = [("c", 1, n, str(n), f"snapshot-window-{what}", None) for n, what in enumerate(("open", "close", "ajar"))]
    assert [row["type"] for row in inserted_rows(images(*rows))] == ["snapshot-window-ajar"]


@pytest.mark.parametrize(
    ("names", "kind", "cells", "expected"),
    [
        (("id", "type", "payload"), None, ("a", "log", "{}"), {"problem": "the signal table has no column data"}),
        (("ID", "Data", "TYPE"), None, ("a", "{}", "log"), {"id": "a", "type": "log", "data": "{}"}),
        (("id", "type", "data"), pa.binary(), (b"a", b"log", b"{}"), {"id": "a", "type": "log", "data": "{}"}),
        (("id", "type", "data"), pa.binary(), (b"a", b"\xff", b"{}"), {"problem": "type is not UTF-8"}),
        (("id", "type", "data"), pa.int64(), (7, 8, None), {"id": "7", "type": "8", "data": None}),
    ],
)
def test_columns_of_other_names_and_types(
    names: tuple[str, ...], kind: Any, cells: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    (row,) = inserted_rows(images(("c", 1, 0, *cells), names=names, kind=kind))
    assert {name: value for name, value in row.items() if name not in ("gtid", "seq", "ts_us")} == expected


def test_files_are_named_by_the_insert_and_sorted_by_the_log() -> None:
    rows = inserted_rows(images(*(("c", 1 + n // 3, n % 3, "same", "log", None) for n in range(9))))
    for number, row in enumerate(rows):
        row["ts_us"] = 5 - number  # clocks of several servers
    files = inbox_files(rows)
    shuffled = [*rows]
    random.shuffle(shuffled)
    assert inbox_files(shuffled) == files
    assert [name for name, _ in files[:4]] == [
        f"signals/table-{UUID}%3A{number}-{ordinal}.json" for number, ordinal in ((1, 0), (1, 1), (1, 2), (2, 0))
    ]
    times = [value.pop("submitted_us") for _, value in files]
    assert times == sorted(set(times))
    assert all(value == {"id": "same", "type": "log", "data": None} for _, value in files)
    without = [name for name, _ in inbox_files([{**row, "gtid": None} for row in rows])]
    assert without[:2] == ["signals/table-7-1-0.json", "signals/table-7-1-1.json"]
    assert len(set(without)) == len(rows)
    ((_, value),) = inbox_files([{**rows[0], "problem": "what it is"}])
    assert value == {"problem": "what it is", "submitted_us": rows[0]["ts_us"]}


@pytest.mark.parametrize("kind", SINK_SIGNALS)
def test_requests_of_the_sinks_are_no_signals_from_outside(kind: str) -> None:
    """They would end each run, or have a table read that nobody follows."""
    row = {"gtid": f"{UUID}:1", "seq": [7, 1, 0], "ts_us": 5, "id": "x", "type": kind, "data": "{}"}
    problem = f"unknown signal type {kind!r}"
    ((_, value),) = inbox_files([row])
    assert value == {"problem": problem, "submitted_us": 5}
