"""Pipelines on a standalone cluster: a master and two workers, each a process, which run the same pipeline file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from headgate_testing import MySQLServer, ObjectStore, Proxy, SparkCluster, s3_jars, wait_until
from tests.integration.elsewhere import Elsewhere, with_jars
from tests.integration.outside import lake_rows, operations, source_rows


def settings_of(cluster: SparkCluster) -> Mapping[str, str]:
    return {"master": cluster.master, "executor.memory": "1g", "executor.cores": "1", "driver.host": "127.0.0.1"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_in_a_folder_that_all_share(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    settings = settings_of(spark_cluster)
    Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), settings).follow()
    assert operations(str(tmp_path / "lake" / mysql_db / "bare"))[-1] == "STREAMING UPDATE"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_on_s3(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster, object_store: ObjectStore
) -> None:
    """Executors have no variable of AWS: what reaches the store comes from the pipeline file alone."""
    settings = {**settings_of(spark_cluster), **with_jars(*s3_jars()), **object_store.hadoop_settings}
    bucket = object_store.create_bucket("lake-of-cluster")
    output = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/lake", settings).follow()
    assert object_store.secret_key not in output


HOOK = """\
import pyarrow as pa
import pyarrow.compute as pc


def shouted(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("shouted", pc.utf8_upper(rows["v"]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hook_whose_file_spark_ships(
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    spark_cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Executors get the file from the driver. If only the driver has it, the run ends with an error that says so."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/shipped_hooks.py").write_text(HOOK)
    settings = settings_of(spark_cluster)
    hook = f'[tables."{mysql_db}.numbers"]\nhook = "shipped_hooks:shouted"\n'
    lake = tmp_path / "lake"
    only_here = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), settings, hook)
    only_here.fill()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path / 'hooks'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        output = only_here.command("run", "--once", code=3)
    assert "the hook shipped_hooks:shouted cannot be imported: ModuleNotFoundError" in output
    assert "for the driver and the executors" in output
    shipped = {**settings, "submit.pyFiles": str(tmp_path / "hooks/shipped_hooks.py")}
    everywhere = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), shipped, hook)
    everywhere.command("run", "--once")
    everywhere.change()
    everywhere.command("run", "--once")
    assert "all 3 tables are equal" in everywhere.command("verify")
    rows = lake_rows(str(lake / mysql_db / "numbers"), ["id", "v", "shouted"])
    assert rows == source_rows(mysql_server, f"{mysql_db}.numbers", "id, v, UPPER(v)")


WRITES = Path(__file__).with_name("waiting_writes.py")
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
SPECULATIVE = {"speculation": "true", "speculation.quantile": "0.5", "speculation.multiplier": "1.2"}
ALL_AT_ONCE = {
    "scheduler.minRegisteredResourcesRatio": "1.0", "scheduler.maxRegisteredResourcesWaitingTime": "120s",
}  # fmt: skip
"""No task begins before all executors are there."""
LESS_TASKS = {"databricks.delta.snapshotPartitions": "1"}


def executors(cluster: SparkCluster) -> set[int]:
    """The processes of the cluster's executors."""
    running = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, folder = (process / "cmdline").read_bytes(), (process / "cwd").readlink()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and folder.is_relative_to(cluster.folder):
            running.add(int(process.name))
    return running


def kill_executors(cluster: SparkCluster) -> int:
    """``kill -9`` of all executors of the cluster; how many there were."""
    killed = executors(cluster)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not killed & executors(cluster), "executors live")
    return len(killed)


def run_without_executors(output: Elsewhere, steps: Path, lose: Callable[[], int], meanwhile: Iterable[str]) -> str:
    """``headgate run --once``: whenever a batch was read, executors are lost before it is written.

    :param lose: makes them go; returns how many there were.
    :param meanwhile: statements after the first batch was read.
    """
    steps.mkdir()
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "STEPS": str(steps)}
    command = [sys.executable, str(WRITES), "run", "--once", str(output.file)]
    number = 0
    with (steps / "log").open("wb") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as process:

        def goes_on() -> bool:
            return (steps / f"read-{number}").exists() or process.poll() is not None

        try:
            while wait_until(goes_on, "no batch was read", seconds=600) and process.poll() is None:
                output.do(*(meanwhile if number == 0 else ()))
                assert lose() or number
                (steps / f"write-{number}").touch()
                number += 1
        finally:
            process.terminate()
    text = (steps / "log").read_text()
    assert process.returncode == 0, text
    assert number, text
    return text


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("on_s3", [False, True], ids=["folder", "s3"])
@pytest.mark.parametrize("mode", ["current", "history"])
def test_executors_killed_between_reading_and_writing(
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    spark_cluster: SparkCluster,
    object_store: ObjectStore,
    mode: str,
    on_s3: bool,
) -> None:
    """What they read is not read again: the source would give other rows."""
    settings = {**settings_of(spark_cluster), **SPECULATIVE, **LESS_TASKS}
    lake = str(tmp_path / "lake")
    if on_s3:
        settings |= {**with_jars(*s3_jars()), **object_store.hadoop_settings}
        lake = f"{object_store.create_bucket(f'killed-{mode}')}/lake"
    else:
        settings |= with_jars()
    output = Elsewhere(mysql_server, mysql_db, tmp_path, lake, settings)
    text = output.file.read_text().replace("chunk_rows = 100", "chunk_rows = 2500")
    output.file.write_text(text if mode == "current" else text.replace('"current", "changelog"', '"history"'))
    tables = ["keyed", "emptied", *(["bare"] if mode == "current" else [])]
    output.do(
        "SET SESSION cte_max_recursion_depth = 10000",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t VARCHAR(200))" for name in tables[:2]),
        *(f"CREATE TABLE {name} (id INT, v INT, t VARCHAR(200))" for name in tables[2:]),
        *(f"INSERT INTO {name} {ROWS} SELECT i, i, REPEAT('x', 200) FROM n" for name in tables),
    )
    ddl = ["ALTER TABLE keyed ADD COLUMN extra INT", "TRUNCATE TABLE emptied"]

    def lose() -> int:
        return kill_executors(spark_cluster)

    run_without_executors(
        output, tmp_path / "first", lose, [*ddl, *(f"INSERT INTO {t} VALUES (0, 0, 'y')" for t in tables[2:])]
    )
    output.do("INSERT INTO emptied SELECT id, v, t FROM keyed")
    changes = [f"UPDATE {name} SET v = v + 1, t = REPEAT('z', 200) WHERE id % 3 > 0" for name in tables]
    partial = ["SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE keyed SET v = 7 WHERE id % 100 = 5"]
    output.do(*changes, *(partial if mode == "current" else []))
    run_without_executors(output, tmp_path / "second", lose, ["ALTER TABLE keyed COMMENT 'x'"])
    output.command("run", "--once")
    assert f"all {len(tables)} tables are equal" in output.command("verify")
    if not on_s3:
        where = "true" if mode == "current" else "_is_current"
        for name in tables:
            rows = lake_rows(f"{lake}/{mysql_db}/{name}", ["id", "v", "t"], where=where)
            assert rows == source_rows(mysql_server, f"{mysql_db}.{name}", "id, v, t")
        assert not (tmp_path / "lake/_headgate/images").exists()


# --- a worker is killed, a task stands still, executors leave


@contextlib.contextmanager
def behind_a_proxy(output: Elsewhere) -> Iterator[Proxy]:
    """The pipeline reads its server through a proxy, in chunks that take as long as the proxy makes them."""
    with Proxy(output.server.host, output.server.port) as proxy:
        text = output.file.read_text().replace(output.server.url, proxy.url).replace("_rows = 100", "_rows = 2000")
        output.file.write_text(text)
        yield proxy


def readers(cluster: SparkCluster, proxy: Proxy) -> list[psutil.Process]:
    """The executors' Python processes that are connected to the server."""
    connected = []
    for executor in executors(cluster):
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(executor).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if proxy.port in {port for one in process.net_connections("tcp") for port in one.raddr[1:]}:
                        connected.append(process)
    return connected


@contextlib.contextmanager
def running(output: Elsewhere, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``headgate run --once``, which has to end by itself with 0."""
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "headgate.cli", "run", "--once", str(output.file)]
    log = folder / "run.log"
    with log.open("wb") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out) as process:
        try:
            yield process
            assert process.wait(600) == 0, log.read_text()
        finally:
            process.kill()


def fill(output: Elsewhere) -> None:
    output.do(
        "SET SESSION cte_max_recursion_depth = 10000",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t VARCHAR(500))" for name in ("one", "two")),
        *(f"INSERT INTO {name} {ROWS} SELECT i, i, REPEAT('x', 500) FROM n" for name in ("one", "two")),
    )


def check(output: Elsewhere, lake: Path) -> None:
    """All rows are in the lake, each change once in the changelog, and no images are left."""
    assert "all 2 tables are equal" in output.command("verify")
    for name in ("one", "two"):
        rows = lake_rows(str(lake / output.db / name), ["id", "v", "t"])
        assert rows == source_rows(output.server, f"{output.db}.{name}", "id, v, t")
        logged = Counter(lake_rows(str(lake / "_changelog" / output.db / name), ["_op", "id", "v"]))
        assert {*logged.values()} == {1}, logged.most_common(3)
        assert {(row[1], row[2]) for row in logged} >= {(row[0], row[1]) for row in rows}
    assert not (lake / "_headgate/images").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_killed_while_a_batch_is_read_and_before_it_is_written(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    """Their executors go with them. Another worker takes over; it may come later."""
    lake = tmp_path / "lake"
    with SparkCluster.start(workers=2) as cluster:
        output = Elsewhere(
            mysql_server, mysql_db, tmp_path, str(lake), {**settings_of(cluster), **ALL_AT_ONCE, **with_jars()}
        )
        fill(output)
        with behind_a_proxy(output) as proxy:
            proxy.limit(200_000)
            with running(output, tmp_path):
                wait_until(lambda: len(readers(cluster, proxy)) == 2, "no tasks read", seconds=300, every=0.1)
                before = executors(cluster)
                cluster.kill_worker(0)
                wait_until(lambda: len(before & executors(cluster)) == 1, "its executor lives")
                proxy.limit(None)
            cluster.start_worker()
            output.do(
                "UPDATE one SET v = v + 1", "DELETE FROM two WHERE id % 3 = 0", "INSERT INTO two VALUES (0, 0, 'y')"
            )
            workers = iter([1])

            def lose() -> int:
                before = executors(cluster)
                for number in workers:
                    cluster.kill_worker(number)
                    wait_until(lambda: len(before & executors(cluster)) < len(before), "its executor lives")
                return len(before)

            run_without_executors(output, tmp_path / "steps", lose, ["UPDATE one SET v = v + 1 WHERE id < 50"])
            output.command("run", "--once")
            check(output, lake)
