"""Pipelines on a standalone cluster: a master and two workers, each a process, which run the same pipeline file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from headgate_testing import MySQLServer, ObjectStore, Proxy, SparkCluster, s3_jars, wait_until
from headgate_testing._ports import free_port
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
    "cores.max": "2", "scheduler.minRegisteredResourcesRatio": "1.0",
    "scheduler.maxRegisteredResourcesWaitingTime": "120s",
}  # fmt: skip
"""No task begins before all executors are there: a standalone cluster counts them only against ``cores.max``."""
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


class Steps:
    """A run that waits after each batch was read."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self._folder = process, folder
        self.written = 0
        """How many batches were let go on."""

    def has_read(self) -> bool:
        """Wait until the next batch was read; False: the run has ended."""
        file = self._folder / f"read-{self.written}"
        wait_until(lambda: file.exists() or self._process.poll() is not None, "no batch was read", seconds=600)
        return self._process.poll() is None

    def write(self) -> None:
        """Let the batch be written."""
        (self._folder / f"write-{self.written}").touch()
        self.written += 1

    def write_all(self) -> None:
        """Let this and all later batches be written."""
        while self.has_read():
            self.write()


@contextlib.contextmanager
def stepwise(output: Elsewhere, folder: Path) -> Iterator[Steps]:
    """``headgate run --once`` in steps. The block writes all batches; the run has to end by itself with 0."""
    folder.mkdir()
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "STEPS": str(folder)}
    command = [sys.executable, str(WRITES), "run", "--once", str(output.file)]
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out) as process:
        try:
            steps = Steps(process, folder)
            yield steps
            assert process.wait(600) == 0, log.read_text()
            assert steps.written, log.read_text()
        finally:
            process.kill()


def run_without_executors(output: Elsewhere, steps: Path, lose: Callable[[], int], meanwhile: Iterable[str]) -> None:
    """``headgate run --once``: whenever a batch was read, executors are lost before it is written.

    :param lose: makes them go; returns how many there were.
    :param meanwhile: statements after the first batch was read.
    """
    with stepwise(output, steps) as run:
        while run.has_read():
            output.do(*(meanwhile if run.written == 0 else ()))
            assert lose() or run.written
            run.write()


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


HOSTS = "127.0.0.1", "127.0.0.2"
"""Of the workers: Spark starts no second attempt of a task on the host of the first."""


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[SparkCluster]:
    """A cluster whose two workers have two hosts."""
    with SparkCluster.start(hosts=HOSTS) as cluster:
        yield cluster


class Attempts:
    """The tasks of a running driver, by its REST API (Spark's documentation, "Monitoring and Instrumentation")."""

    def __init__(self) -> None:
        self._port = free_port()

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the driver, without their prefix."""
        return {"ui.enabled": "true", "ui.port": str(self._port)}

    def have_begun(self) -> bool:
        """Whether a task runs; none does while the driver starts, which answers with a page of text."""
        try:
            return any(one["status"] == "RUNNING" for _, one in self._tasks())
        except (OSError, ValueError):
            return False

    def on(self, executor: str) -> list[tuple[int, int]]:
        """Stages and numbers of the tasks that run on an executor, as far as its driver knows."""
        tasks = self._tasks()
        return [task for task, one in tasks if one["executorId"] == executor and one["status"] == "RUNNING"]

    def second(self, executor: str) -> list[str]:
        """States of the second attempts of these tasks."""
        first = {*self.on(executor)}
        return [one["status"] for task, one in self._tasks() if task in first and one["speculative"]]

    def _tasks(self) -> list[tuple[tuple[int, int], dict[str, Any]]]:
        applications = [one["id"] for one in self._get("")]
        stages = [stage for one in applications for stage in self._get(f"/{one}/stages?details=true")]
        return [((one["stageId"], task["index"]), task) for one in stages for task in one.get("tasks", {}).values()]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/applications{path}") as answer:
            return json.load(answer)


def executor_of(process: psutil.Process) -> psutil.Process:
    """The executor's process, of one of its Python processes."""
    return next(one for one in process.parents() if "--executor-id" in one.cmdline())


def name_of(executor: psutil.Process) -> str:
    words = executor.cmdline()
    return words[words.index("--executor-id") + 1]


class Stopped:
    """Processes that stand still until the block ends, or earlier."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._processes = [*processes]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.suspend()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()

    def go_on(self, *, but: psutil.Process | None = None) -> None:
        """Let them go on, but for one."""
        for process in self._processes:
            if process != but:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()


def speculating(cluster: SparkCluster, attempts: Attempts) -> Mapping[str, str]:
    """Settings with which a task that stands still is started again, also one that is its stage's only one."""
    return {
        **settings_of(cluster), **SPECULATIVE, **ALL_AT_ONCE, **LESS_TASKS, **with_jars(), **attempts.settings,
        "speculation.task.duration.threshold": "3s", "network.timeout": "600s",
    }  # fmt: skip


def soon(look: Callable[[], object], problem: str) -> None:
    """Look now and then, because looking takes the processor time of what is waited for."""
    wait_until(look, problem, seconds=600, every=0.2)


def slow_reader(cluster: SparkCluster, proxy: Proxy, attempts: Attempts) -> psutil.Process:
    """Wait until both tasks of the first batch read, slowly; return one's Python process. Planning was not slow."""
    soon(attempts.have_begun, "no task begins")
    proxy.limit(200_000)
    soon(lambda: len(readers(cluster, proxy)) == 2, "no tasks read")
    return readers(cluster, proxy)[0]


CHANGES = "UPDATE one SET v = v + 1", "UPDATE two SET v = v + 1 WHERE id % 2 = 0", "DELETE FROM two WHERE id % 5 = 1"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("goes_on", [False, True], ids=["stands-still", "goes-on"])
def test_a_task_that_stands_still_is_read_a_second_time(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, two_hosts: SparkCluster, goes_on: bool
) -> None:
    """One attempt counts, also if both read at the same time: each sees another window, because the server changes."""
    lake, attempts = tmp_path / "lake", Attempts()
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), speculating(two_hosts, attempts))
    fill(output)
    with behind_a_proxy(output) as proxy:
        with stepwise(output, tmp_path / "steps") as run:
            process = slow_reader(two_hosts, proxy, attempts)
            executor = name_of(executor_of(process))
            with Stopped([process]) as stopped:
                output.do(*CHANGES)
                soon(lambda: "RUNNING" in attempts.second(executor), "no second attempt")
                output.do(*CHANGES)
                if goes_on:
                    stopped.go_on()
                proxy.limit(None)
                assert run.has_read()
                soon(lambda: not attempts.on(executor), "the attempt that does not count is not ended")
            run.write_all()
        output.command("run", "--once")
        check(output, lake)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("while_writing", [False, True], ids=["reading", "writing"])
def test_tasks_that_go_on_after_their_batch(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, two_hosts: SparkCluster, while_writing: bool
) -> None:
    """What an executor holds stands still, as on a machine that sleeps, until its tasks have been done elsewhere and
    their batch is committed. What it writes then belongs to nothing.
    """
    lake, attempts = tmp_path / "lake", Attempts()
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), speculating(two_hosts, attempts))
    fill(output)
    with behind_a_proxy(output) as proxy:
        with stepwise(output, tmp_path / "steps") as run:
            process = slow_reader(two_hosts, proxy, attempts)
            executor = executor_of(process)
            if while_writing:
                proxy.limit(None)
                assert run.has_read()
            with Stopped([executor, *executor.children(recursive=True)]) as stopped:
                output.do(*CHANGES)
                proxy.limit(None)
                assert run.has_read()
                run.write()
                assert run.has_read(), "there is no second batch"
                left = attempts.on(name_of(executor))
                assert left, "no task stood still"
                stopped.go_on(but=executor)
                soon(lambda: process not in readers(two_hosts, proxy), "its Python does not go on")
                stopped.go_on()
                soon(lambda: not {*left} & {*attempts.on(name_of(executor))}, "attempts do not end")
            run.write_all()
        output.command("run", "--once")
        check(output, lake)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_that_leave_between_reading_and_writing(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    """By dynamic allocation: all that were idle for a while leave. Others come for the tasks that write, or read."""
    lake, allocation = tmp_path / "lake", "dynamicAllocation"
    settings = {
        **settings_of(spark_cluster), **with_jars(), f"{allocation}.enabled": "true",
        f"{allocation}.shuffleTracking.enabled": "true", f"{allocation}.minExecutors": "0",
        f"{allocation}.maxExecutors": "2", f"{allocation}.executorIdleTimeout": "3s",
        f"{allocation}.shuffleTracking.timeout": "3s", f"{allocation}.cachedExecutorIdleTimeout": "3s",
    }  # fmt: skip
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), settings)
    fill(output)
    text = output.file.read_text().replace("chunk_rows = 100", "chunk_rows = 2000")
    output.file.write_text(text)
    came = list[set[int]]()

    def lose() -> int:
        came.append(executors(spark_cluster))
        wait_until(lambda: not executors(spark_cluster), "executors do not leave", seconds=120, every=0.1)
        return len(came[-1])

    run_without_executors(output, tmp_path / "first", lose, ["UPDATE one SET v = v + 1 WHERE id < 50"])
    assert len(came) > 1, "one batch: nobody had to come again"
    assert all(came)
    assert not came[0] & came[1]
    output.do(*CHANGES, "INSERT INTO two VALUES (0, 0, 'y')")
    run_without_executors(output, tmp_path / "second", lose, ["UPDATE two SET v = v + 1 WHERE id < 50"])
    output.command("run", "--once")
    check(output, lake)
