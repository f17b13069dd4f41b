"""From images to windows: whole transactions in the order of the log, however the log was cut into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import UnsupportedError
from headgate.relay.databus import event_fields
from headgate.relay.server import Assembler, Finished, LogicalSource, Scn
from headgate.relay.server import _assemble as module
from headgate.relay.server.events import Registry
from headgate.replication import ABSENT_FIELD, ImageBatch
from tests.relay.server.rows import UUID, block, image

TABLES = [TableDef("d", f"t{n}", (Column("id", "int", nullable=False),), (0,)) for n in range(3)]


def source_of(db: str, table: str) -> LogicalSource:
    return LogicalSource(1 + int(table[1:]), f"test.{table}", f"{db}.{table}")


def assembler() -> Assembler:
    return Assembler(source_of, Registry(None), Scn("gtid-generation"), partition=1)


def rows(table: int, ids: list[int], gtids: list[int], ordinals: list[int], **more: Any) -> ImageBatch:
    pos = [gtid * 1000 + ordinal for gtid, ordinal in zip(gtids, ordinals, strict=True)]
    names = [f"{UUID}:{gtid}" for gtid in gtids]
    return image(TABLES[table], {"id": ids}, ops="c" * len(ids), gtids=names, pos=pos, ordinals=ordinals, **more)


def windows(finished: Sequence[Finished | None]) -> list[tuple[int, list[tuple[int, int]]]]:
    """``(number of the GTID, [(source, key)])`` of each."""
    out: list[tuple[int, list[tuple[int, int]]]] = []
    for one in finished:
        if one is None:
            continue
        fields = event_fields(one.windows.data)
        current: list[tuple[int, int]] = []
        numbers = []
        for scn, source, key in zip(
            *(array.tolist() for array in (fields.scn, fields.source, fields.long_key)), strict=True
        ):
            if source < 0:
                out.append((scn & (1 << 48) - 1, current))
                numbers.append(f"{UUID}:{scn & (1 << 48) - 1}")
                current = []
            else:
                current.append((source, key))
        assert numbers == list(one.gtids)
        assert one.windows.ends[-1] == len(one.windows.data)
        assert sum(count for count, _, _ in one.counts.values()) == int((fields.source >= 0).sum())
    return out


LOGS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=30)
@given(LOGS, st.sets(st.integers(1, 40)), st.data())
def test_however_the_log_is_cut(log: list[list[int]], cuts: set[int], data: Any) -> None:
    changes = [(txn + 1, ordinal, table) for txn, tables in enumerate(log) for ordinal, table in enumerate(tables)]
    expected = [
        (txn + 1, [(1 + table, 100 * (txn + 1) + ordinal) for ordinal, table in enumerate(tables)])
        for txn, tables in enumerate(log)
    ]
    one, finished, start = assembler(), [], 0
    for end in [*sorted(cut for cut in cuts if cut < len(changes)), len(changes)]:
        part = changes[start:end]
        images = []
        for table in data.draw(st.permutations(range(3))):
            of_table = [change for change in part if change[2] == table]
            if of_table:
                ids = [100 * txn + ordinal for txn, ordinal, _ in of_table]
                images.append(
                    rows(table, ids, [txn for txn, _, _ in of_table], [ordinal for _, ordinal, _ in of_table])
                )
        finished.append(one.add(block(*images)))
        # What is out is whole; what is whole and followed by another is out.
        done = [number for number, _ in windows(finished)]
        assert done == list(range(1, changes[end - 1][0]))
        start = end
    finished.append(one.flush())
    assert windows(finished) == expected
    assert one.flush() is None


def test_a_long_transaction_is_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    really = module.Ordered.of

    def in_order(images: list[tuple[int, ImageBatch]]) -> module.Ordered:
        counted.append(len(images))
        return really(images)

    monkeypatch.setattr(module.Ordered, "of", in_order)
    one = assembler()
    for number in range(50):
        assert one.add(block(rows(0, [number], [1], [number]))) is None
    assert counted == []
    (window,) = windows([one.flush()])
    assert window == (1, [(1, number) for number in range(50)])
    assert counted == [50]


def test_a_transaction_that_another_server_continues() -> None:
    """Its log has smaller file numbers; what came first is first all the same, also within what waits on."""
    one = assembler()
    assert one.add(block(rows(0, [0, 1], [1, 1], [0, 1], file=10))) is None
    begun = one.add(block(rows(0, [2, 10], [1, 2], [2, 0], file=3), rows(1, [11], [2], [1], file=3)))
    assert windows([begun]) == [(1, [(1, 0), (1, 1), (1, 2)])]
    third = one.add(block(rows(0, [12, 20], [2, 3], [2, 0], file=1)))
    assert windows([third, one.flush()]) == [(2, [(1, 10), (2, 11), (1, 12)]), (3, [(1, 20)])]


@pytest.mark.parametrize("version", [1, 2])
def test_a_part_of_windows_has_its_own_counts(version: int) -> None:
    ids, gtids, ordinals = [10, 20, 21, 30], [1, 2, 2, 3], [0, 0, 1, 0]
    images = block(rows(0, ids, gtids, ordinals), rows(1, ids[1:3], [2, 2], [2, 3]))
    made = Assembler(source_of, Registry(None), Scn("gtid-generation"), partition=1, version=version)
    finished = made.add(replace(images, whole=True))
    assert finished is not None
    assert finished.part(0, 3) is finished
    parts = [finished.part(n, n + 1) for n in range(3)]
    assert windows(parts) == windows([finished])
    assert [one.counts[1][0] for one in parts] == [1, 2, 1]
    for source in finished.counts:
        sums = np.array([one.counts.get(source, (0, 0, 0)) for one in parts]).sum(axis=0)
        assert tuple(sums.tolist()) == finished.counts[source]


def test_what_is_whole_behind_a_position_in_an_open_transaction() -> None:
    one = assembler()
    assert one.add(block(rows(0, [10], [1], [0]))) is None
    assert windows([one.flush(f"{UUID}:2")]) == [(1, [(1, 10)])]  # 2 has no image yet
    assert one.add(block(rows(0, [20], [2], [0]))) is None
    assert one.flush(f"{UUID}:2") is None
    assert windows([one.add(block(rows(0, [21, 30], [2, 3], [1, 0])))]) == [(2, [(1, 20), (1, 21)])]
    assert one.flush(f"{UUID}:3") is None
    assert windows([one.flush()]) == [(3, [(1, 30)])]


def test_a_partial_image_is_refused() -> None:
    batch = rows(0, [1], [1], [0])
    absent = np.array([0], np.int32)
    column = pa.DictionaryArray.from_arrays(pa.array(absent), pa.array(['["id"]']))
    schema = batch.batch.schema.insert(4, ABSENT_FIELD)
    columns = [*batch.batch.columns[:4], column, *batch.batch.columns[4:]]
    partial = ImageBatch(batch.table, pa.RecordBatch.from_arrays(columns, schema=schema))
    one = assembler()
    one.add(block(partial))
    with pytest.raises(UnsupportedError, match=r"binlog_row_image.*table=d\.t0"):
        one.flush()


def test_a_truncate_has_no_event(caplog: pytest.LogCaptureFixture) -> None:
    batch = rows(0, [1], [1], [0])
    truncate = ImageBatch(batch.table, batch.batch.select(range(4)))
    one = assembler()
    assert one.add(block(truncate)) is None
    assert one.flush() is None
    assert "d.t0 was truncated" in caplog.text
