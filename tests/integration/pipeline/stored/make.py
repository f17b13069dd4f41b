"""Make the stored lakes: what a pipeline of the headgate that runs this leaves behind.

    git worktree add /tmp/then f643b94
    PYTHONPATH=/tmp/then/src:. python -m tests.integration.pipeline.stored.make tests/integration/pipeline/stored

``ended.tar.gz`` is a lake with its Spark checkpoint, its inbox and its pipeline file after two runs; ``killed.tar.gz``
is the same lake after a third that ended between the commits of its tables and the ledger's.
"""

from __future__ import annotations

import gzip
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.config import load_config
from headgate.engine import build_session
from headgate.errors import HeadgateError
from headgate.lake import Ledger
from headgate.pipeline import Pipeline
from headgate.testing import MySQLServer
from tests.integration.pipeline.stored.history import FIRST_RUNS, happen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
name = "stored"
[source]
url = "{url}"
tables = ["shop.*"]
chunk_rows = 4
[target]
path = "{lake}"
mode = ["current", "changelog"]
"""


class Killed(Exception):
    """Stands for a driver that dies before it writes a batch's ledger row."""


def kill(*_arguments: object, **_options: object) -> None:
    raise Killed


def pack(folder: Path, target: Path, **places: str) -> None:
    """What the pipeline left in ``folder``, with names in its file instead of this machine's places."""
    text = (folder / "pipeline.toml").read_text()
    for name, place in places.items():
        text = text.replace(place, f"{{{name}}}")
    (folder / "stored.toml").write_text(text)
    files = sorted(path for path in (folder / "lake").rglob("*") if path.is_file() and path.name != "lock")
    with gzip.GzipFile(target, "wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w|") as archive:
        archive.add(folder / "stored.toml", "pipeline.toml")
        for file in files:
            archive.add(file, file.relative_to(folder))


def make(spark: SparkSession, folder: Path, target: Path) -> None:
    with MySQLServer.start() as server:
        file, lake = folder / "pipeline.toml", str(folder / "lake")
        file.write_text(PIPELINE.format(url=server.url, lake=lake))
        for number in range(FIRST_RUNS):
            happen(server, number, number + 1)
            if number < FIRST_RUNS - 1:
                Pipeline(load_config(file), spark).run(once=True)
        pack(folder, target / "ended.tar.gz", url=server.url, lake=lake)
        Ledger.append = kill  # type: ignore[method-assign]
        try:
            Pipeline(load_config(file), spark).run(once=True)
        except HeadgateError as error:
            if Killed.__name__ not in error.message:
                raise
            pack(folder, target / "killed.tar.gz", url=server.url, lake=lake)
        else:
            raise SystemExit("the last run found nothing to write")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        session = build_session("stored", {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, quiet=True)
        make(session, Path(name), Path(sys.argv[1]))
        session.stop()
