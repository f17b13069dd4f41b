"""Pipelines that ``spark-submit`` starts, and a cluster whose machines have none of headgate's packages.

``deploy/spark/pack`` makes an archive of them, which Spark unpacks in each executor's folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.archives import delta_jars
from headgate_testing import MySQLServer, SparkCluster
from headgate_testing._jars import spark_home
from tests.integration.elsewhere import Elsewhere
from tests.integration.wheels import CONSTRAINTS, ROOT, build_wheel, outside, run_with_index

PROGRAM = ROOT / "deploy/spark/run_headgate.py"


def submit(options: Mapping[str, str], *words: str, folder: Path, env: Mapping[str, str], code: int = 0) -> str:
    """What ``spark-submit`` and its program print; it has to end with this exit code."""
    settings = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(spark_home() / "bin/spark-submit"), *settings, str(PROGRAM), *words]
    variables = {**outside(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home()), **env}
    run = subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert run.returncode == code, run.stdout
    return run.stdout


@pytest.mark.long
def test_spark_submit_in_one_process(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """Its options count, its JVM is the only one, and its exit code is headgate's."""
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), {})
    output.file.write_text(output.file.read_text().partition("[spark]")[0])
    output.do("CREATE TABLE numbers (id INT PRIMARY KEY)", "INSERT INTO numbers VALUES (1), (2)")
    env = {name: os.environ[name] for name in ("PYTHONPATH", "NUMBA_CACHE_DIR") if name in os.environ}
    env["PYSPARK_PYTHON"] = sys.executable
    words = "run", "--once", str(output.file)
    text = submit({"master": "local[1]"}, *words, folder=tmp_path, env=env, code=2)
    assert "error: Spark has no Delta: run spark-submit with --packages io.delta:" in text
    options = {
        "master": "local[1]",
        "jars": ",".join(delta_jars()),
        "driver-memory": "700m",
        "conf": "spark.ui.enabled=false",
    }
    submit(options, *words, folder=tmp_path, env=env)
    assert "1 table is equal" in output.command("verify")
    with output.file.open("a") as file:
        file.write('[spark]\n"driver.memory" = "2g"\n')
    text = submit(options, *words, folder=tmp_path, env=env, code=2)
    assert "driver.memory in [spark] comes too late" in text


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, of this checkout."""
    folder = tmp_path_factory.mktemp("packages")
    wheel, archive = build_wheel(folder), folder / "headgate-packages.tar.gz"
    wanted = "-c", str(CONSTRAINTS), f"headgate[spark] @ {wheel.as_uri()}"
    run_with_index([ROOT / "deploy/spark/pack", archive, *wanted], {**outside(), "PYTHON": sys.executable})
    return archive


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of this version that has its standard library alone."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python3"
    code = "import importlib.util as u; print([n for n in ('headgate', 'pyarrow', 'pyspark') if u.find_spec(n)])"
    assert subprocess.run([python, "-c", code], env=outside(), capture_output=True, check=True).stdout == b"[]\n"
    return python


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[SparkCluster]:
    with SparkCluster.start(bare=True) as cluster:
        yield cluster


def shipped(packages: Path, python: Path) -> dict[str, str]:
    """Settings by which executors get the packages."""
    return {
        "archives": f"{packages}#packages",
        "executorEnv.PYTHONPATH": "./packages",
        "pyspark.python": str(python),
        "executor.memory": "1g",
        "executor.cores": "1",
    }


def write_settings(folder: Path, settings: Mapping[str, str]) -> str:
    """A file of settings for ``spark-submit``."""
    file = folder / "settings"
    file.write_text("".join(f"spark.{name} {value}\n" for name, value in settings.items()))
    return str(file)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_executors_without_packages(
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    bare_cluster: SparkCluster,
    bare_python: Path,
    packages: Path,
) -> None:
    """``headgate run`` is the driver, with packages of its own; the file has the settings."""
    settings = {"master": bare_cluster.master, "driver.host": "127.0.0.1", **shipped(packages, bare_python)}
    missing = {name: value for name, value in settings.items() if name != "archives"}
    without = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), missing)
    without.do("CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO numbers VALUES (1, 'x')")
    assert "No module named" in without.command("run", "--once", code=3), "executors have the packages anyway"
    without.do("DROP TABLE numbers")
    shutil.rmtree(tmp_path / "lake")
    Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), settings).follow()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_spark_submit_with_packages_that_nobody_has(
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    bare_cluster: SparkCluster,
    bare_python: Path,
    packages: Path,
) -> None:
    """The driver has them from the archive, too, unpacked where the command starts."""
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), {})
    output.file.write_text(output.file.read_text().partition("[spark]")[0])
    output.fill()
    with tarfile.open(packages) as archive:
        archive.extractall(tmp_path / "packages", filter="tar")
    settings = write_settings(tmp_path, {**shipped(packages, bare_python), "driver.host": "127.0.0.1"})
    options = {"master": bare_cluster.master, "jars": ",".join(delta_jars()), "properties-file": settings}
    env = {"PYTHONPATH": "packages", "PYSPARK_DRIVER_PYTHON": str(bare_python)}
    words = "run", "--once", str(output.file)
    submit(options, *words, folder=tmp_path, env=env)
    output.change()
    submit(options, *words, folder=tmp_path, env=env)
    assert "all 3 tables are equal" in output.command("verify")
    refused = submit({**options, "deploy-mode": "cluster"}, *words, folder=tmp_path, env=env, code=1)
    assert "not supported for python applications on standalone clusters" in refused
