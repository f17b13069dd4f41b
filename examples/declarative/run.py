"""A table of MySQL in one of Spark's declarative pipelines: its changes, and its rows as of the newest change.

The pipeline is in this folder: ``spark-pipeline.yml``, ``conf/spark-defaults.conf`` and ``transformations/``. Spark's
own ``spark-pipelines run`` runs it three times, and MySQL changes in between: rows are inserted, updated and deleted, a
key changes, and then the table is truncated. After each run the materialized view equals the table.

Run it from the repository, after ``scripts/test`` has set up ``.venv`` once::

    .venv/bin/python -m examples.declarative.run

It starts a MySQL server and Spark on this machine, and leaves nothing but a folder that it names. The same way is a
test: ``tests/integration/reading/test_declarative.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from deltalake import DeltaTable

from headgate.archives import DELTA_PACKAGE, delta_jars
from headgate_testing import MySQLServer

HERE = Path(__file__).parent
PATIENCE_SECONDS = 300
USER, PASSWORD = "headgate_declarative", "only-here"


class Declarative:
    """A table ``orders`` and the pipeline that reads it.

    :param folder: empty; for the pipeline's files with this machine's places, its tables and its catalog.
    :param db: the database's name; it is there, and empty.
    """

    def __init__(self, server: MySQLServer, folder: Path, db: str) -> None:
        self.server, self.folder, self.db = server, folder, db

    def create(self) -> None:
        """The table with three rows, a user that may follow it, and the pipeline's files."""
        self.server.execute(
            f"CREATE TABLE `{self.db}`.orders (id INT PRIMARY KEY, customer VARCHAR(20), total DECIMAL(10,2))",
            f"INSERT INTO `{self.db}`.orders VALUES (1, 'Ada', 12.50), (2, 'Grace', 8.00), (3, 'Edsger', 30.25)",
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {USER}@'%'",
            f"GRANT SELECT ON `{self.db}`.* TO {USER}@'%'",
        )
        places = {
            "/data/declarative": str(self.folder),
            "mysql://headgate@db:3306": f"mysql://{USER}@{self.server.host}:{self.server.port}",
            "shop.orders": f"{self.db}.orders",
        }
        jars = delta_jars()
        if jars:  # fetched before, so that nothing is downloaded
            places[f"spark.jars.packages                {DELTA_PACKAGE}"] = (
                f"spark.driver.extraClassPath {os.pathsep.join(jars)}"
            )
        for name in ("spark-pipeline.yml", "conf/spark-defaults.conf", "transformations/order_changes.py"):
            _copy(HERE / name, self.folder / name, places)
        shutil.copy(HERE / "transformations" / "orders.sql", self.folder / "transformations")

    def run(self) -> str:
        """Run the pipeline up to what MySQL has executed; its output.

        :raises RuntimeError: the run failed; the text is its output.
        """
        home = Path(pyspark.__file__).parent
        places = {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(self.folder / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"}
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        spec = str(self.folder / "spark-pipeline.yml")
        run = subprocess.run(
            ["bash", str(home / "bin" / "spark-pipelines"), "run", "--spec", spec, "--remote", "local[2]"],
            cwd=self.folder,
            env={**os.environ, **places, **pythons, "HEADGATE_PASSWORD": PASSWORD},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        if run.returncode:
            raise RuntimeError(run.stdout)
        return run.stdout

    def operations(self) -> str:
        """``_op`` of all rows of the streaming table, sorted."""
        return "".join(sorted(str(row["_op"]) for row in self._rows("order_changes")))

    def rows(self) -> list[tuple[object, ...]]:
        """What the materialized view has."""
        return sorted((row["id"], row["customer"], row["total"]) for row in self._rows("orders"))

    def source(self) -> list[tuple[object, ...]]:
        """What the server has."""
        return list(self.server.query(f"SELECT id, customer, total FROM `{self.db}`.orders ORDER BY id"))

    def _rows(self, table: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = (
            DeltaTable(str(self.folder / "warehouse" / table)).to_pyarrow_table().to_pylist()
        )
        return rows


def _copy(source: Path, target: Path, places: dict[str, str]) -> None:
    text = source.read_text("utf-8")
    for there, here in places.items():
        text = text.replace(there, here)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8")


def walk(pipeline: Declarative, say: Callable[[str], None]) -> None:
    """All three runs; after each the view equals the table (AssertionError)."""
    orders = f"`{pipeline.db}`.orders"
    steps: list[tuple[str, tuple[str, ...], str]] = [
        ("the first run reads the table", (), "rrr"),
        (
            "an order changes, one is deleted, one is new, and then gets another key",
            (
                f"UPDATE {orders} SET total = 13 WHERE id = 1",
                f"DELETE FROM {orders} WHERE id = 2",
                f"INSERT INTO {orders} VALUES (9, 'Barbara', 5)",
                f"UPDATE {orders} SET id = 10 WHERE id = 9",
            ),
            "cddrrruu",
        ),
        ("the table is truncated", (f"TRUNCATE {orders}", f"INSERT INTO {orders} VALUES (3, 'Alan', 1)"), "ccddrrrtuu"),
    ]
    for what, statements, operations in steps:
        say(what)
        if statements:
            pipeline.server.execute(*statements)
        output = pipeline.run()
        assert "Run is COMPLETED." in output, output
        assert pipeline.operations() == operations
        assert pipeline.rows() == pipeline.source()
        say(f"  order_changes has {len(operations)} rows; orders equals the source: {pipeline.rows()}")


def main() -> int:
    """On a server of its own."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-declarative-"))
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE shop")
        pipeline = Declarative(server, folder, "shop")
        pipeline.create()
        walk(pipeline, lambda text: print(text, flush=True))
    print(f"the pipeline and its tables are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
