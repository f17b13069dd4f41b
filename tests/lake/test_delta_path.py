"""One Delta table by path: whose it is, and changes of its definition, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from headgate.errors import CommitConflictError, TargetError
from headgate.lake._delta import DeltaPath, commit_errors, schema_of
from headgate.lake._properties import PIPELINE, TABLE
from tests.lake.tables import make_table

ROWS = pa.schema([("id", pa.int64())])
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))


def test_a_path_that_is_free(tmp_path: Path) -> None:
    delta = DeltaPath(SESSION, str(tmp_path / "t"))
    assert (delta.exists(), delta.occupied(), delta.version()) == (False, False, -1)
    assert delta.check_ours("shop", "shop.t") is None
    assert delta.inside("x").path == f"{tmp_path}/t/x"
    assert delta.sql == f"delta.`{tmp_path}/t`"


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


def test_a_conflict_of_spark_names_the_table(tmp_path: Path) -> None:
    from delta.exceptions import ConcurrentAppendException

    make_table(str(tmp_path), [], ROWS, {})
    message = f"{tmp_path}: another program committed at the same time: files"
    with pytest.raises(CommitConflictError, match=message), commit_errors(str(tmp_path)):
        raise ConcurrentAppendException("files were added\nin detail")
    with commit_errors(str(tmp_path)):
        pass
