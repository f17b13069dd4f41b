"""Why headgate cannot write a table, as its log tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.lake import Lake, WriteMethod, refusal
from headgate.lake._write_methods import NO_VECTORS
from tests.lake.tables import make_table

NAME = "shop.orders"
SCHEMA = pa.schema({"id": pa.int64()})
VECTORS = {"delta.enableDeletionVectors": "true"}


def reason(
    tmp_path: Path, properties: dict[str, str], settings: dict[str, str] | None = None, **more: Any
) -> str | None:
    lake = Lake.at(tmp_path / "lake")
    make_table(lake.current(NAME), [], SCHEMA, properties, **more)
    return refusal(lake, NAME, (settings or {}).get)


@pytest.mark.parametrize(
    ("properties", "settings", "protocol", "expected"),
    [
        (VECTORS, {}, {}, None),
        ({**VECTORS, "headgate.key": '["id"]', "delta.checkpointInterval": "50"}, {}, {}, None),
        ({}, {}, {}, NO_VECTORS),
        ({"delta.enableDeletionVectors": "false"}, {}, {}, NO_VECTORS),
        (
            {**VECTORS, "delta.enableChangeDataFeed": "true"}, {}, {},
            "it requires of its writers what headgate does not support: remove delta.enableChangeDataFeed",
        ),
        (
            {**VECTORS, "delta.columnMapping.mode": "id"}, {}, {"writerFeatures": ["deletionVectors", "columnMapping"]},
            "it requires of its writers what headgate does not support: remove delta.columnMapping.mode",
        ),
        (VECTORS, {"spark.sql.parquet.compression.codec": "ZSTD"}, {}, None),
        (
            VECTORS, {"spark.sql.parquet.compression.codec": "brotli"}, {},
            "spark.sql.parquet.compression.codec is brotli: choose one of snappy, zstd, gzip, none, uncompressed",
        ),
    ],
)  # fmt: skip
def test_reasons(
    tmp_path: Path, properties: dict[str, str], settings: dict[str, str], protocol: dict[str, Any], expected: str | None
) -> None:
    assert reason(tmp_path, properties, settings, **protocol) == expected


def test_a_table_that_is_not_there_yet(tmp_path: Path) -> None:
    settings: dict[str, str] = {}
    assert refusal(Lake.at(tmp_path), NAME, settings.get) is None


def test_the_names_of_the_ways_are_those_of_monitors() -> None:
    assert [*WriteMethod] == ["append", "upsert", "overwrite"]
