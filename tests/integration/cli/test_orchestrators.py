"""The Airflow DAG and the Dagster asset of ``deploy/``, run by Airflow and Dagster, each in an environment of its own.

Both run ``headgate`` of this checkout as a process, as users run the installed one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_testing import MySQLServer
from headgate_testing._ports import free_port
from tests.integration.elsewhere import Elsewhere
from tests.integration.wheels import ROOT, environment_of, outside

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

AIRFLOW = """
import json, os
import headgate_shop
from airflow.sdk.exceptions import AirflowException, AirflowFailException
{code}
"""
DAGSTER = """
import json, os
import dagster as dg
import headgate_shop
{code}
"""


class Orchestrated(Elsewhere):
    """A pipeline, and Python code that runs in the environment of a tool, which imports its file of ``deploy/``."""

    def __init__(self, server: MySQLServer, db: str, folder: Path, tool: str) -> None:
        super().__init__(server, db, folder, str(folder / "lake"), {"master": "local[2]"})
        text = self.file.read_text()
        self.file.write_text(re.sub(r"^password_file.*\n", "", text, flags=re.MULTILINE))
        self._tool, self._folder, self._password = tool, folder, server._password
        self._program = folder / "headgate"
        lines = ("#!/bin/sh", f'PYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m headgate.cli "$@"')
        self._program.write_text("\n".join(lines) + "\n")
        self._program.chmod(0o755)

    def python(self, code: str, **variables: str) -> str:
        """What the code prints after its last line ``answer``."""
        python = environment_of(self._tool)
        env = {
            **outside(),
            "PYTHONPATH": str(ROOT / "deploy" / self._tool),
            "HEADGATE_PROGRAM": str(self._program),
            "HEADGATE_PIPELINE": str(self.file),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **self.variables(),
            **variables,
        }
        run = subprocess.run(
            [python, "-c", code], env=env, cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout.rpartition("answer ")[2].strip()

    def variables(self) -> dict[str, str]:
        """The tool's settings, its folder, and the password as it takes it."""
        home = self._folder / self._tool
        home.mkdir(exist_ok=True)
        if self._tool == "dagster":
            return {"DAGSTER_HOME": str(home), "HEADGATE_PASSWORD": self._password}
        return {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "deploy/airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_HEADGATE_SHOP": json.dumps({"conn_type": "generic", "password": self._password}),
        }

    def is_equal(self) -> bool:
        """Whether `headgate verify` finds no difference."""
        return "all 3 tables are equal" in self.command("verify")


@pytest.fixture
def secret(mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password for the commands that the test itself runs."""
    monkeypatch.setenv("HEADGATE_PASSWORD", mysql_server._password)


@pytest.fixture
def airflow(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, secret: None) -> Orchestrated:
    return Orchestrated(mysql_server, mysql_db, tmp_path, "airflow")


@pytest.fixture
def dagster(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, secret: None) -> Orchestrated:
    return Orchestrated(mysql_server, mysql_db, tmp_path, "dagster")


AIRFLOW_RUN = AIRFLOW.format(
    code="""
from airflow.models.dagbag import DagBag
from airflow.utils.db import initdb
initdb()
names = os.environ["DAGS"].split()
states = {}
for name in names:
    run = getattr(headgate_shop, name).test()
    states[name] = {one.task_id: [one.state, one.try_number] for one in run.get_task_instances()}
print("answer", json.dumps(states))
"""
)
AIRFLOW_ERROR = AIRFLOW.format(
    code="""
task = headgate_shop.shop.get_task("run")
try:
    task.execute({})
except AirflowException as error:
    print("answer", type(error).__name__, error)
"""
)


def test_airflow_runs_the_dags(airflow: Orchestrated) -> None:
    airflow.fill()
    states = json.loads(airflow.python(AIRFLOW_RUN, DAGS="shop"))
    assert states == {"shop": {"run": ["success", 1]}}
    airflow.change()
    states = json.loads(airflow.python(AIRFLOW_RUN, DAGS="shop daily"))
    assert states["daily"] == {"maintain": ["success", 1], "verify": ["success", 1]}
    assert airflow.is_equal()


def test_airflow_tries_again_only_what_may_pass(airflow: Orchestrated) -> None:
    """Without a wait: the exception decides."""
    text = airflow.file.read_text()
    airflow.file.write_text(text.replace("chunk_rows", "chunk_row"))
    assert airflow.python(AIRFLOW_ERROR).startswith("AirflowFailException headgate run ended with exit code 2: error: ")
    airflow.file.write_text(re.sub(r"(mysql://\S*:)\d+", rf"\g<1>{free_port()}", text))
    assert airflow.python(AIRFLOW_ERROR).startswith("AirflowException headgate run ended with exit code 3: error: ")
    airflow.file.write_text(text)
    denied = {"AIRFLOW_CONN_HEADGATE_SHOP": json.dumps({"conn_type": "generic", "password": "another"})}
    answer = airflow.python(AIRFLOW_ERROR, **denied)
    assert answer.startswith("AirflowFailException headgate run ended with exit code 3: error: ")
    assert "#access-denied" in answer


DAGSTER_RUN = DAGSTER.format(
    code="""
assets = [headgate_shop.shop_lake]
with dg.DagsterInstance.get() as instance:
    done = dg.materialize([*assets, headgate_shop.equal_to_the_source], instance=instance)
    (made,) = done.asset_materializations_for_node("shop_lake")
    (check,) = done.get_asset_check_evaluations()
values = {name: value.value for name, value in made.metadata.items() if name not in ("tables", "as_of")}
tables = [record.data for record in made.metadata["tables"].records]
print("answer", json.dumps([values, tables, check.passed, check.description]))
"""
)
DAGSTER_ERROR = DAGSTER.format(
    code="""
try:
    headgate_shop.shop_lake(dg.build_asset_context())
except dg.Failure as error:
    print("answer", error.allow_retries, error.description)
"""
)


def test_dagster_materializes_the_asset(dagster: Orchestrated) -> None:
    dagster.fill()
    dagster.python(DAGSTER_RUN)
    dagster.change()
    values, tables, passed, text = json.loads(dagster.python(DAGSTER_RUN))
    assert passed
    assert "all 3 tables are equal" in text
    assert {table["table"].rpartition(".")[2]: table["state"] for table in tables} == dict.fromkeys(
        ("bare", "names", "numbers"), "live"
    )
    assert values["changes"] > 0
    assert values["gtid"]
    assert dagster.is_equal()


def test_dagster_tries_again_only_what_may_pass(dagster: Orchestrated) -> None:
    text = dagster.file.read_text()
    dagster.file.write_text(text.replace("chunk_rows", "chunk_row"))
    assert dagster.python(DAGSTER_ERROR).startswith("False headgate run ended with exit code 2: error: ")
    dagster.file.write_text(re.sub(r"(mysql://\S*:)\d+", rf"\g<1>{free_port()}", text))
    assert dagster.python(DAGSTER_ERROR).startswith("True headgate run ended with exit code 3: error: ")
    dagster.file.write_text(text)
    assert dagster.python(DAGSTER_ERROR, HEADGATE_PASSWORD="another").startswith("False headgate run ended")
