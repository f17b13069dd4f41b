"""Rows of a table before a batch, by key: what completes partial images."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.apply import _upsert as upsert_module
from tests.apply.commit_kinds import ONE, OTHERS, Scene, rows, upsert, without_spark

KEYS = pa.table({"id": [19, 3, 99, 20, 0]})
EXPECTED = [(0, 19, 0), (1, 3, 0), (3, 20, 7), (4, 0, 0)]
"""Number of the key, ``id``, ``v``."""


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    without_spark(monkeypatch)
    return Scene(tmp_path, str)


def rows_by_part(scene: Scene, version: int) -> list[list[tuple[int, int, int]]]:
    """By part."""
    parts = scene.upserts.rows_at(scene.delta(), version, KEYS)
    return [
        sorted(zip(numbers.tolist(), part["id"].to_pylist(), part["v"].to_pylist(), strict=True))
        for part, numbers in parts
    ]


@pytest.mark.parametrize(("size", "parts"), [(1, 3), (1 << 20, 1)])
def test_parts_are_bounded_in_bytes(scene: Scene, size: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert_module, "_PART_BYTES", size)
    scene.make(rows(1, *ONE), rows(1, *OTHERS), rows(2, (20, 7)))
    read = rows_by_part(scene, 0)
    assert len(read) == parts
    assert sorted(row for part in read for row in part) == EXPECTED


def test_rows_are_those_of_the_version(scene: Scene) -> None:
    change, _ = upsert(scene)
    before = rows_by_part(scene, 0)
    change()
    assert rows_by_part(scene, 0) == before == [[(0, 19, 0), (1, 3, 0), (4, 0, 0)]]
    assert rows_by_part(scene, scene.delta().version()) == [[(0, 19, 0), (1, 3, 0), (3, 20, 9), (4, 0, 9)]]


def test_no_key_has_no_rows(scene: Scene) -> None:
    scene.make(rows(1, *ONE))
    assert list(scene.upserts.rows_at(scene.delta(), 0, KEYS.slice(0, 0))) == []
