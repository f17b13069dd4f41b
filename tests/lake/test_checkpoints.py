"""Checkpoints in a Delta table: whole, of one owner, among others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.errors import TargetError
from headgate.lake import CheckpointTable


def at(scn: int) -> dict[str, Any]:
    return {"windowOffset": -1, "windowScn": scn}


def rows(path: Path) -> list[tuple[Any, ...]]:
    lines = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted((one["consumer"], one["partition"], one["generation"], one["scn"]) for one in lines)


def test_a_row_for_each_consumer_and_partition(tmp_path: Path) -> None:
    table = CheckpointTable(str(tmp_path / "t"))
    name = 'it\'s "me"'
    for partition in (0, 1):
        one = table.of(name, partition)
        assert one.load() is None
        one.store(at(5 + partition))
        one.store(at(7 + partition))
    other = table.of("other")
    other.load()
    assert rows(tmp_path / "t") == [(name, 0, 1, 7), (name, 1, 1, 8), ("other", 0, 1, None)]
    assert table.of(name, 1).load() == at(8)


def test_who_began_last_goes_on(tmp_path: Path) -> None:
    table = CheckpointTable(str(tmp_path / "t"))
    first, second = table.of("c"), table.of("c")
    first.load()
    first.store(at(1))
    assert second.load() == at(1)
    with pytest.raises(TargetError, match="was claimed by another program"):
        first.store(at(2))
    second.store(at(3))
    # As a partition of a group: the generation is the group's.
    later, zombie = table.of("g", 3, generation=7), table.of("g", 3, generation=6)
    assert later.load() is None
    with pytest.raises(TargetError, match="partition 3"):
        zombie.load()
    later.store(at(9))
    assert rows(tmp_path / "t") == [("c", 0, 2, 3), ("g", 3, 7, 9)]


def test_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    errors: list[Exception] = []

    def work(partition: int) -> None:
        try:
            # The one that loses to all others waits for all of them.
            one = CheckpointTable(str(path), conflict_seconds=600).of("c", partition)
            one.load()
            for scn in range(5):
                one.store(at(scn))
        except Exception as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert rows(path) == [("c", n, 1, 4) for n in range(4)]


def test_what_is_something_else(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    with pytest.raises(TargetError, match="not a table of checkpoints"):
        CheckpointTable(str(tmp_path / "t")).of("c").load()
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetError, match="cannot store checkpoints"):
        CheckpointTable(str(tmp_path / "file" / "t")).of("c").load()
    with pytest.raises(TargetError, match="without %"):
        CheckpointTable(str(tmp_path / "a%2Eb"))
