"""The example in ``examples/declarative``: the typed stream as a source of Spark's declarative pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.declarative.run import USER, Declarative, walk
from headgate_testing import MySQLServer


@pytest.fixture
def pipeline(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Iterator[Declarative]:
    pipeline = Declarative(mysql_server, tmp_path, mysql_db)
    pipeline.create()
    yield pipeline
    mysql_server.execute(f"DROP USER {USER}@'%'")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_view_over_the_typed_stream_equals_the_table_after_each_run(pipeline: Declarative) -> None:
    walk(pipeline, print)
