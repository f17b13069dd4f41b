"""Lakes that an earlier headgate left behind go on: nothing is read again, nothing is lost, nothing comes twice."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import PipelineConfig, load_config
from headgate.gtid import GtidSet
from headgate.lake import DeltaPath, Lake, ledger_rows, newest_row, verify_table
from headgate.pipeline import Pipeline
from headgate.testing import MySQLServer
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.changelogs import changes_in_lake, changes_in_log
from tests.integration.pipeline.stored.history import FIRST_RUNS, HISTORY, happen
from tests.integration.pipeline.verifying import comparer, newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED = Path(__file__).parent / "stored"
KINDS = (
    "id, tiny, big, wide, CAST(single AS DOUBLE), twice, day, at, CAST(clock AS CHAR), year, choice, some, bits + 0,"
    " bytes, old, CAST(doc AS CHAR)"
)
TABLES = {f"shop.{name}": "*" for name in ("orders", "names", "parts", "notes", "still", "cleared")} | {
    "shop.kinds": KINDS
}
"""And what to ask the server for."""
SNAPSHOT_FILE = 2**31 - 1
"""``_seq.file`` of rows that were read from a table."""


def unpack(name: str, folder: Path, server: MySQLServer) -> PipelineConfig:
    """A stored lake in ``folder``, its pipeline file with today's places in it."""
    with tarfile.open(STORED / f"{name}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(folder)
    file = folder / "pipeline.toml"
    file.write_text(file.read_text().format(url=server.url, lake=folder / "lake"))
    return load_config(file)


def unfinished(lake: Lake) -> set[str]:
    """Batches that Spark planned and did not note as done."""
    planned, done = (
        {path.name for path in (Path(lake.checkpoint) / kind).iterdir() if not path.name.startswith(".")}
        for kind in ("offsets", "commits")
    )
    return planned - done


@pytest.mark.long
@pytest.mark.needs_own_server
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["ended", "killed"])
def test_the_lake_of_an_earlier_headgate_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """``killed`` begins with a batch whose tables are committed and whose ledger row is not."""
    with MySQLServer.start() as server:
        happen(server, 0, FIRST_RUNS)
        executed = happen(server, FIRST_RUNS, len(HISTORY))
        config = unpack(name, tmp_path, server)
        lake = Lake.at(config.target.path or "")
        assert bool(unfinished(lake)) == (name == "killed")
        stored = newest_row(lake)
        before = {table: lake_rows(lake.current(table), version=stored.tables[table].version) for table in TABLES}

        Pipeline(config, spark).run(once=True)

        row = newest(spark, lake)
        assert row.gtid == executed
        rows = ledger_rows(DeltaPath(spark, lake.ledger).read(), limit=99)
        later = [one for one in rows if one.epoch > stored.epoch]
        assert rows[len(later)].epoch == stored.epoch
        assert [one.batch_id for one in reversed(later)] == list(range(stored.batch_id + 1, row.batch_id + 1))
        with comparer("arrow", spark, config) as arrow:
            results = [verify_table(arrow, row, table) for table in TABLES]
        assert {(result.state, result.differences) for result in results} == {("live", 0)}, results
        for table, columns in TABLES.items():
            assert lake_rows(lake.current(table)) == source_rows(server, table, columns)
            assert lake_rows(lake.current(table), version=stored.tables[table].version) == before[table]

        for table in TABLES:
            assert {(one.tables[table].state, one.tables[table].since_epoch) for one in later} == {("live", None)}
            again = f"_seq['file'] = {SNAPSHOT_FILE} AND _seq['epoch'] > {stored.epoch}"
            for folder in (lake.current(table), lake.changelog(table)):
                assert not lake_rows(folder, ["_seq['epoch']"], where=again), "read again"
        wanted = GtidSet.parse(executed) - GtidSet.parse(stored.gtid)
        logged = changes_in_lake(lake, TABLES, after=stored.epoch)
        assert logged == changes_in_log(server, TABLES, wanted, GtidSet.parse(executed))
        assert max(logged.values()) == 1
