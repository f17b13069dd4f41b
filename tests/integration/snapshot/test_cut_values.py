"""Values that MySQL cuts with a warning: no road to the rows takes them for values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headgate import verify
from headgate.carrier import UnreadableRows
from headgate.cli import app
from headgate.errors import CutValueError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.offsets import ChunkSpec
from headgate_testing import MySQLServer
from tests.integration.bootstraps import first_part
from tests.integration.changes import Log
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server

LARGE = "CONCAT('[', REPEAT('-100000,', 118000), '1]')"
"""A document of 0.9 MB, whose text in MySQL's form exceeds a megabyte."""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start({"max_allowed_packet": 1 << 20}) as server:
        yield server


@pytest.fixture
def db(server: MySQLServer) -> Iterator[str]:
    """With a table whose row 2 has a large document, and a table without one."""
    name = f"cut{next(_numbers)}"
    server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.docs (id INT PRIMARY KEY, doc JSON)",
        f"INSERT INTO {name}.docs VALUES (1, '{{}}'), (2, {LARGE}), (3, NULL), (4, 'null'), (5, '\"\"')",
        f"CREATE TABLE {name}.plain (id INT PRIMARY KEY, doc JSON)",
        f"INSERT INTO {name}.plain VALUES (1, '[1]')",
    )
    yield name
    server.execute(f"DROP DATABASE {name}")


def read(server: MySQLServer, *tables: str, **options: Any) -> list[Any]:
    log = Log(server, "", create=False)
    return log.chunks([ChunkSpec(table, 0, None, None) for table in tables], **options)


def check_reason(text: str) -> None:
    for part in ("JSON", "max_allowed_packet", "doc", "id = 2", "LENGTH(`doc`) = 0"):
        assert part in text


def test_a_chunk_names_table_column_key_and_setting(server: MySQLServer, db: str) -> None:
    with pytest.raises(CutValueError) as caught:
        read(server, f"{db}.docs")
    check_reason(caught.value.message)
    fields = caught.value.fields
    assert (fields["table"], fields["column"], fields["setting"]) == (f"{db}.docs", "doc", "max_allowed_packet")
    stop, rows = read(server, f"{db}.docs", f"{db}.plain", ambiguous="stop")  # in one task: the connection stays usable
    assert isinstance(stop, UnreadableRows)
    assert stop.table == f"{db}.docs"
    check_reason(stop.reason)
    assert rows.batch.column("doc").to_pylist() == ["[1]"]
    server.execute(f"ALTER TABLE {db}.docs DROP PRIMARY KEY")
    with pytest.raises(CutValueError, match="a row without a key"):
        read(server, f"{db}.docs")
    server.execute(f"DELETE FROM {db}.docs WHERE id = 2")
    (rows,) = read(server, f"{db}.docs")
    assert sorted(map(str, rows.batch.column("doc").to_pylist())) == ['""', "None", "null", "{}"]


@pytest.mark.parametrize("expression", ["CONCAT(t, t)", "REPEAT(t, 2)", "GROUP_CONCAT(t, t)"])
def test_the_warnings_of_any_result_decide(server: MySQLServer, db: str, expression: str) -> None:
    source = "(SELECT REPEAT('x', 1000000) AS t UNION ALL SELECT 'y') AS s"
    with Connection.open(ConnectionSettings.from_url(server.url)) as connection:
        for _ in range(2):  # the connection stays usable
            with pytest.raises(CutValueError, match=r"max_allowed_packet|group_concat|GROUP_CONCAT"):
                connection.query(f"SELECT LENGTH({expression}) FROM {source}")
            with pytest.raises(CutValueError) as caught:
                list(select_blocks(connection, f"SELECT LENGTH({expression}) FROM {source}"))
            assert caught.value.setting in ("max_allowed_packet", "group_concat_max_len")
        # Other warnings are not about values.
        assert connection.query("SELECT 'abc' + 0, _utf8mb3 X'61'") == [(0.0, "a")]


def test_a_virtual_column_that_warns_is_read(server: MySQLServer, db: str) -> None:
    server.execute(
        f"CREATE TABLE {db}.warns (id INT PRIMARY KEY, t VARCHAR(9))",
        f"INSERT INTO {db}.warns VALUES (1, 'abc'), (2, '7')",
        f"ALTER TABLE {db}.warns ADD v INT AS (CAST(t AS SIGNED)) VIRTUAL",
    )
    (rows,) = read(server, f"{db}.warns")
    assert rows.batch.column("v").to_pylist() == [0, 7]


def test_the_command_and_a_bootstrap_refuse_the_table(server: MySQLServer, db: str) -> None:
    result = CliRunner().invoke(app, ["snapshot", server.url, "-t", f"{db}.*"])
    assert result.exit_code != 0
    check_reason(result.stderr)
    with pytest.raises(CutValueError) as caught:
        first_part(ConnectionSettings.from_url(server.url), f"{db}.docs", GtidSet.parse(server.gtid_executed))
    check_reason(caught.value.message)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["string", "variant"])
def test_a_pipeline_stops_the_table_and_follows_the_others(
    spark: SparkSession, server: MySQLServer, db: str, tmp_path: Path, kind: str
) -> None:
    runs = Runs(spark, server, db, tmp_path)
    runs.reads = f'json = "{kind}"'
    runs.run()
    assert runs.state(f"{db}.plain") == "live"
    row = runs.reports[-1].tables[f"{db}.docs"]
    assert row.state == "stopped"
    check_reason(row.reason or "")
    # From the log the document is whole. A later read of the table, by a signal or by verify, is refused again.
    server.execute(f"DELETE FROM {db}.docs WHERE id = 2")
    runs.signal("execute-snapshot", "docs")
    runs.run()
    assert runs.state(f"{db}.docs") == "live"
    server.execute(f"INSERT INTO {db}.docs VALUES (2, {LARGE})")
    runs.run()
    assert runs.state(f"{db}.docs") == "live"
    docs, plain = verify(runs.config())
    assert (docs.state, plain.state, plain.equal, plain.differences) == ("undecided", "live", 1, 0)
    check_reason(docs.remark or "")
    runs.signal("execute-snapshot", "docs")
    runs.run()
    assert runs.state(f"{db}.docs") == "stopped"
