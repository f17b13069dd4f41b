"""The Python and SQL of docs/reference/spark.md, of how-to pages and of README.md, run as they stand there.

Only places are others: hosts, folders and the database's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fix_spark import once_its_source_starts
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import MySQLServer

ROOT = Path(__file__).parents[3]


def blocks(page: str, language: str = "python") -> list[str]:
    """The page's examples in this language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


class Reader:
    """Types in what a page says, from top to bottom, in one session."""

    def __init__(self, places: Mapping[str, str], **names: Any) -> None:
        self.places, self.names = places, names
        self.typed: list[str] = []

    def placed(self, text: str) -> str:
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def run(self, block: str) -> Any:
        """Everything of a block; what its last line gives, if that is an expression."""
        import ast

        *lines, last = ast.parse(self.placed(block)).body
        self.typed.append(block)
        if not isinstance(last, ast.Expr):
            lines.append(last)
        exec(compile(ast.Module(lines, []), "docs", "exec"), self.names)
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), "docs", "eval"), self.names)


@pytest.fixture
def before(mysql_server: MySQLServer) -> str:
    """All that other tests have done on this server, as a GTID set."""
    return mysql_server.gtid_executed


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, before: str) -> Runs:
    """Two tables, ``orders`` of 150 rows and ``items`` of 20."""
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    for name, rows in (("orders", 150), ("items", 20)):
        runs.table(name, rows)
    return runs


def started_again(query: Any) -> Any:
    """All that there is, by a query of the page that would go on for ever."""
    return once_its_source_starts(lambda: query.trigger(availableNow=True).start().awaitTermination(300))


def test_the_page_of_the_source(runs: Runs, tmp_path: Path, before: str) -> None:
    spark, server, db = runs.spark, runs.server, runs.db
    gtid_set = server.query("SELECT @@global.gtid_executed")[0][0]
    seen: list[dict[str, Any]] = []
    host = runs.server.url.partition("://")[2]
    places = {
        "headgate@db:3306/": f"{host}/", "/run/secrets/mysql": str(tmp_path / "secret"), "shop.": f"{db}.",
        "/data/checkpoints": str(tmp_path / "checkpoints"), "earliest": before, "/data/b": f"{tmp_path}/b",
        "/data/{": f"{tmp_path}/saved/{{",
        "frame.show()": "seen.extend(frame.toArrow().to_pylist())", "print(": "shown.append(",
    }  # fmt: skip
    shown: list[Any] = []
    page = Reader(places, spark=spark, gtid_set=gtid_set, seen=seen, shown=shown)
    register, options, now, then, stream, part, relayed, available, carrier, show, save, declared = blocks(
        "docs/reference/spark.md"
    )
    for block in (register, options):
        page.run(block)
    runs.do("DELETE FROM orders WHERE id <= 10", "UPDATE orders SET v = 77 WHERE id = 11")

    page.run(now)
    assert page.names["orders"].columns == ["id", "v", "n"]
    assert page.names["orders"].count() == 140
    page.run(then)
    assert page.names["then"].count() == 150
    assert page.names["then"].where("v = 77").count() == 0

    query = page.run(stream)
    changes = page.names["changes"]
    query.processAllAvailable()
    assert (len(seen), {row["_op"] for row in seen}) == (140, {"r"})
    runs.do("UPDATE orders SET id = 1 WHERE id = 150")
    query.processAllAvailable()
    query.stop()
    assert [(row["_op"], row["id"]) for row in seen[140:]] == [("d", 150), ("u", 1)]

    page.run(part)
    assert page.names["part"].where("_op = 'c'").count() == 150
    assert page.names["part"].where("_op = 'd'").count() == 0

    page.run(relayed)  # nothing is asked of a relay before the stream starts
    assert page.names["items"].isStreaming

    runs.do("DELETE FROM orders WHERE id = 20")
    assert page.names["changes"] is changes
    page.run(available)
    assert [(row["_op"], row["id"]) for row in seen[142:]] == [("d", 20)]

    runs.do("CREATE TABLE tmp_x (id INT PRIMARY KEY)", "INSERT INTO tmp_x VALUES (1)")
    page.run(carrier)
    page.run(show)
    page.run(save)
    pairs: list[tuple[str, str]] = []

    def both(frame: DataFrame, batch: int) -> None:
        page.names["show"](frame, batch)
        page.names["save"](frame, batch)
        pairs.extend((row["_kind"], row["_table"]) for row in frame.toArrow().to_pylist())

    frame = page.names["stream"].writeStream.foreachBatch(both)
    started_again(frame.option("checkpointLocation", str(tmp_path / "carrier")))
    assert {table for kind, table in pairs if kind == "chunk"} == {f"{db}.orders", f"{db}.items"}
    assert sum(images.num_rows for images in shown) == 139
    assert spark.read.parquet(f"{tmp_path}/saved/{db}.orders").count() == 139
    assert page.typed == blocks("docs/reference/spark.md")[:-1]
    file = Path("examples/declarative/transformations/order_changes.py").read_text("utf-8")
    assert {*declared.splitlines()} <= {*file.splitlines()}, "test_declarative.py runs it"


def test_the_readme(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_PASSWORD", runs.server._password)
    page = Reader({"headgate@db:3306": runs.server.url.partition("://")[2], "shop.": f"{runs.db}."}, spark=runs.spark)
    for block in blocks("README.md"):
        page.run(block)
    assert page.names["changes"].columns[-3:] == ["id", "v", "n"]


def test_grants_readers_and_signals_of_a_pipeline(runs: Runs, tmp_path: Path) -> None:
    """The user, the lake as of one moment, in Python and in SQL, and a signal by INSERT."""
    places = {"/data/lake": runs.lake.path, "/shop/": f"/{runs.db}/", "shop.": f"{runs.db}.", "shop[": f"{runs.db}["}
    page = Reader({**places, '"order_id"': '"id"'}, spark=runs.spark)
    (grants,) = blocks("docs/how-to/set-up-mysql.md", "sql")
    *_, reading = blocks("docs/how-to/read-tables.md", "sql")
    (signals,) = blocks("docs/how-to/send-signals.md", "sql")
    runs.do(*filter(str.strip, page.placed(grants).split(";")))
    (tmp_path / "secret").write_text("…", encoding="utf-8")
    runs._template_values["url"] = runs.server.url.replace("root@", "headgate@")
    table, signal = page.placed(signals).split("\n", 1)
    runs.do(table)
    runs.reads = f'signal_table = "{runs.db}.signals"'
    runs.run()

    *_, block = blocks("docs/how-to/read-tables.md")
    assert page.run(block).count() == 20
    ledger, past = page.placed(reading).split(";\n\n")
    tables = {row["table"]: row for row in runs.spark.sql(ledger).collect()}
    assert {name: row["state"] for name, row in tables.items()} == dict.fromkeys(page.names["tables"], "live")
    version = tables[f"{runs.db}.orders"]["version"]
    at_version = past.strip().rstrip(";").replace("VERSION AS OF 42", f"VERSION AS OF {version}")
    assert runs.spark.sql(at_version).count() == 150

    runs.do(signal)
    runs.run()
    runs.do("DROP USER headgate@'%'")
    assert sum(report.rows.get(f"{runs.db}.orders", 0) for report in runs.reports) == 150
    assert not any(f"{runs.db}.items" in report.rows for report in runs.reports)
