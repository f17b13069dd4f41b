"""One Delta table by path: whose it is, and changes of its definition, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from headgate.errors import CommitConflictError, TargetError
from headgate.lake import PIPELINE, TABLE, DeltaPath, schema_of
from tests.lake.tables import make_table

ROWS = pa.schema([("id", pa.int64())])
DEFAULTS = "spark.databricks.delta.properties.defaults."


def session(**settings: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(getAll=settings, get=settings.get))


SESSION = session()


def test_a_path_that_is_free(tmp_path: Path) -> None:
    delta = DeltaPath(SESSION, str(tmp_path / "t"))
    assert (delta.exists(), delta.occupied(), delta.version()) == (False, False, -1)
    assert delta.check_ours("shop", "shop.t") is None
    assert delta.inside("x").path == f"{tmp_path}/t/x"


def test_files_that_are_no_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("x")
    with pytest.raises(TargetError, match="holds files that are not a table of pipeline 'shop'"):
        DeltaPath(SESSION, str(tmp_path / "t")).check_ours("shop", "shop.t")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "is a Delta table that headgate did not make"),
        ({PIPELINE: "other", TABLE: "shop.t"}, "belongs to pipeline 'other', table 'shop.t'"),
        ({PIPELINE: "shop", TABLE: "shop.u"}, "belongs to pipeline 'shop', table 'shop.u'"),
    ],
)
def test_tables_of_others_are_refused(tmp_path: Path, properties: dict[str, str], message: str) -> None:
    make_table(str(tmp_path), [], ROWS, properties)
    with pytest.raises(TargetError, match=message):
        DeltaPath(SESSION, str(tmp_path)).check_ours("shop", "shop.t")


def test_a_table_is_created_and_counted(tmp_path: Path) -> None:
    delta = DeltaPath(SESSION, str(tmp_path / "t"))
    schema = StructType().add("id", LongType()).add("name", StringType())
    delta.create(schema, {PIPELINE: "shop", TABLE: "shop.t"})
    owned = delta.check_ours("shop", "shop.t")
    assert owned is not None
    assert schema_of(owned) == delta.schema() == schema
    assert (delta.version(), delta.count(0)) == (0, 0)
    with pytest.raises(CommitConflictError):
        delta.create(schema, {})


def test_properties_that_a_table_has_make_no_commit(tmp_path: Path) -> None:
    make_table(str(tmp_path), [pa.table({"id": [1, 2]})], ROWS, {"a": "b"})
    delta = DeltaPath(SESSION, str(tmp_path))
    delta.set_properties({"a": "b"})
    assert (delta.version(), delta.count(0)) == (0, 2)
    delta.set_properties({"c": "d"})
    assert (delta.version(), delta.snapshot().properties) == (1, {"a": "b", "c": "d"})
    assert delta.count(0) == 2, "of an earlier version"


def test_new_tables_get_the_properties_of_the_session(tmp_path: Path) -> None:
    schema = StructType().add("id", LongType())
    settings = {f"{DEFAULTS}checkpointInterval": "7", f"{DEFAULTS}enableDeletionVectors": "true", "other": "x"}
    settings[f"{DEFAULTS}minWriterVersion"] = "2"
    delta = DeltaPath(session(**settings), str(tmp_path / "t"))
    delta.create(schema, {"delta.checkpointInterval": "50"})
    made = delta.writable(deletes=True)
    assert made.properties["delta.checkpointInterval"] == "50", "those of headgate come first"
    assert "deletionVectors" in (made.features or ())
    assert "delta.minWriterVersion" not in made.properties, "it is no property"


def test_properties_of_the_session_that_headgate_does_not_support_are_refused(tmp_path: Path) -> None:
    delta = DeltaPath(session(**{f"{DEFAULTS}enableChangeDataFeed": "true"}), str(tmp_path / "t"))
    with pytest.raises(TargetError, match=f"does not support: remove {DEFAULTS}enableChangeDataFeed"):
        delta.create(StructType().add("id", LongType()), {})
    assert not (tmp_path / "t").exists()


def test_a_table_that_is_gone_is_not_written(tmp_path: Path) -> None:
    delta = DeltaPath(SESSION, str(tmp_path / "t"))
    with pytest.raises(TargetError, match="another program has removed it"):
        delta.set_properties({"a": "b"})
