"""Versions of tables that Spark has written, read without it: the same rows as Spark reads, at each version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headgate.compare._version import RowGroup, TableVersion, open_version
from headgate.errors import TargetError
from headgate.lake import DeltaPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id INT, d DATE, at TIMESTAMP, n TIMESTAMP_NTZ, x DECIMAL(20,2), b BINARY, l ARRAY<FLOAT>"
PROPERTIES = "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3'"


def rows(version: TableVersion, batch_rows: int) -> list[str]:
    """All rows, read at once and part by part."""

    def read(parts: Sequence[RowGroup]) -> list[str]:
        batches = version.batches(parts, version.schema.names, rows=batch_rows)
        return [line for batch in batches for line in lines(pa.Table.from_batches([batch]), version.schema.names)]

    whole = sorted(read(version.parts))
    assert len(whole) == version.rows
    assert sorted(line for part in version.parts for line in read([part])) == whole
    return whole


def lines(table: pa.Table, names: list[str]) -> list[str]:
    """Rows as text, timestamps as microseconds; columns that are not there are null."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            assert field.type.unit == "us"
            table = table.set_column(i, field.name, table.column(i).cast(pa.timestamp("us")).cast(pa.int64()))
    return [repr({name: line.get(name) for name in names}) for line in table.to_pylist()]


MAPPED = "'delta.columnMapping.mode' = 'name'"


@pytest.mark.long
@pytest.mark.parametrize(
    "mapped", ["later", *(pytest.param(when, marks=pytest.mark.slow) for when in ("never", "always"))]
)
def test_what_spark_writes(spark: SparkSession, tmp_path: Path, mapped: str) -> None:
    """Deletion vectors of DELETE, UPDATE and MERGE, again and again on the same files and across row groups; days and
    times that nanoseconds cannot hold; a column that came later; checkpoints of the log; OPTIMIZE. With names that
    files do not have, from the start or from a version on, a column is renamed, and another one takes its name.
    """
    path = str(tmp_path / "t%20a.b")
    table = f"delta.`{path}`"
    first = (
        "SELECT CAST(id AS INT) AS id, date_add(DATE'1000-01-01', CAST(id * 300 AS INT)) AS d,"
        " timestamp_micros(id * 20000000000000 - 30000000000000000) AS at,"
        " CAST(timestamp_micros(id * 100000000000000 - 62135596800000000) AS TIMESTAMP_NTZ) AS n,"
        " CAST(id AS DECIMAL(20,2)) / 3 AS x, CAST(CAST(id AS STRING) AS BINARY) AS b,"
        " IF(id % 7 = 0, NULL, array(CAST(id AS FLOAT))) AS l FROM range(0, 3000, 1, 2)"
    )
    merge = (
        f"MERGE INTO {table} t USING (SELECT CAST(id AS INT) AS id FROM range(2500, 3500, 5)) s ON t.id = s.id"
        " WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET added = 'merged'"
        " WHEN NOT MATCHED THEN INSERT (id, added) VALUES (s.id, 'new')"
    )
    properties = f"{PROPERTIES}, {MAPPED}" if mapped == "always" else PROPERTIES
    mapping = [f"ALTER TABLE {table} SET TBLPROPERTIES ({MAPPED})"]
    renaming = [f"ALTER TABLE {table} RENAME COLUMN d TO `the day`", f"ALTER TABLE {table} ADD COLUMNS (d STRING)"]
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING delta TBLPROPERTIES ({properties})")
    spark.conf.set("parquet.block.size", "16384")  # several row groups
    try:
        for statement in [
            f"INSERT INTO {table} {first}",
            f"DELETE FROM {table} WHERE id % 10 = 3",
            f"DELETE FROM {table} WHERE id % 10 = 4 OR id > 2900",
            f"UPDATE {table} SET x = -1 WHERE id % 100 = 5",
            f"ALTER TABLE {table} ADD COLUMNS (added STRING)",
            *(mapping if mapped == "later" else ()),
            merge,
            *(renaming if mapped != "never" else ()),
            f"DELETE FROM {table} WHERE id < 1000",
            f"OPTIMIZE {table}",
        ]:
            spark.sql(statement)
    finally:
        spark.conf.unset("parquet.block.size")
    delta = DeltaPath(spark, path)
    versions = [open_version(path, number) for number in range(delta.version() + 1)]
    for number, version in enumerate(versions):
        expected = sorted(lines(delta.read(number).toArrow(), version.schema.names))
        for batch_rows in (100, 1 << 14):
            assert rows(version, batch_rows) == expected
    assert [version.rows for version in versions[:3]] == [0, 3000, 2700]
    assert max(part.group for part in versions[1].parts) > 0, "there are several row groups in a file"
    vectors = [any(file.vector for file in version.table.files.values()) for version in versions]
    assert all(vectors[2:-1]), "there are deletion vectors"
    assert not vectors[-1], "OPTIMIZE has done away with them"
    assert [delta.count(number) for number in range(len(versions))] == [version.rows for version in versions]


def test_column_mapping_by_id_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    mapped = "'delta.columnMapping.mode' = 'id'"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, v STRING) USING delta TBLPROPERTIES ({mapped})")
    with pytest.raises(TargetError, match="column mapping by id"):
        open_version(path, 0)
