"""What a user sees when ``headgate run`` cannot begin: one line, the right exit code, and nothing written."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import app
from headgate.config import parse_config
from headgate.errors import ServerSettingError, SparkFailedError, error_line
from headgate.lake import Lake
from headgate.pipeline import check_source
from headgate.status import read_status
from headgate_testing import UNLOGGED_CASCADES, KafkaBroker, MySQLServer
from tests.logged import logged_here

CONFIG = """\
name = "errors"
[source]
url = "{url}"
password_env = "HEADGATE_ERRORS_PASSWORD"
tables = ["{tables}"]
{more}
[target]
path = "{lake}"
[spark]
master = "local[1]"
"""
PASSWORD = "secret-7"
GRANTS = "REPLICATION SLAVE, REPLICATION CLIENT"


class Runs:
    """``headgate run`` with one thing wrong at a time."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.config = folder / "pipeline.toml"
        self.lake = folder / "lake"
        self._patch = patch
        patch.setenv("HEADGATE_ERRORS_PASSWORD", PASSWORD)

    def text(self, url: str, more: str = "", tables: str = "e.*") -> str:
        return CONFIG.format(url=url, tables=tables, more=more, lake=self.lake)

    def plan(self, text: str, *options: str) -> Any:
        """``headgate run --dry-run`` of a file with this text."""
        self.config.write_text(text)
        return CliRunner().invoke(app, ["run", "--dry-run", *options, str(self.config)])

    def run(
        self, url: str, *, tables: str = "e.*", more: str = "", password: str = PASSWORD, command: str = "run --once",
        alone: bool = False,
    ) -> tuple[int, str]:  # fmt: skip
        """Exit code and the line on stderr.

        :param alone: in a separate process, which starts a JVM before it looks at anything; else in this one, which
            must not get as far as Spark.
        """
        self.config.write_text(self.text(url, more, tables))
        self._patch.setenv("HEADGATE_ERRORS_PASSWORD", password)
        words = [*command.split(), str(self.config)]
        code, out, err = (run_alone if alone else self._run_here)(words)
        assert out == ""
        lines = [line for line in err.splitlines() if " INFO " not in line]  # once Spark is started, there are
        assert len(lines) == 1, err
        assert lines[0].startswith("error: ")
        assert PASSWORD not in err
        return code, lines[0]

    def _run_here(self, words: list[str]) -> tuple[int, str, str]:
        def fail(*_: object, **__: object) -> NoReturn:
            raise AssertionError("it got as far as Spark")

        with self._patch.context() as patch:
            patch.setattr("headgate.engine.prestart_session", lambda *_: contextlib.nullcontext())
            patch.setattr("headgate.pipeline._run.build_session", fail)
            done = CliRunner().invoke(app, words)
        return done.exit_code, done.stdout, done.stderr

    def nothing_written(self) -> bool:
        """Whether there is no lake at all."""
        return not self.lake.exists()


def run_alone(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process."""
    command = [sys.executable, "-m", "headgate.cli", *words]
    folder = Path(words[-1]).parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def fill(server: MySQLServer) -> str:
    """A table, a user who may follow it; the user's URL."""
    server.execute("DROP DATABASE IF EXISTS e", "DROP USER IF EXISTS reader@'%'", "CREATE DATABASE e")
    server.execute("CREATE TABLE e.t (id INT PRIMARY KEY, v INT)", "INSERT INTO e.t VALUES (1, 1)")
    server.execute(f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'", "GRANT SELECT ON e.* TO reader@'%'")
    server.execute(f"GRANT {GRANTS} ON *.* TO reader@'%'")
    return url_of(server)


def url_of(server: MySQLServer) -> str:
    return f"mysql://reader@{server.host}:{server.port}"


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as mysql:
        fill(mysql)
        yield mysql


pytestmark = pytest.mark.needs_own_server


def test_wrong_password(server: MySQLServer, runs: Runs) -> None:
    code, line = runs.run(url_of(server), password="wrong-1", alone=True)
    assert code == 3
    assert "reader" in line
    assert "wrong-1" not in line
    assert runs.nothing_written()


def test_there_is_no_java(server: MySQLServer, runs: Runs) -> None:
    runs.config.write_text(runs.text(url_of(server)))
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "run", str(runs.config)],
        env={**os.environ, "JAVA_HOME": str(runs.config.parent)}, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"error: Spark needs Java, and there is no {runs.config.parent}/bin/java")
    assert "install Java 17" in error
    assert runs.nothing_written()


def test_verify_of_nothing_and_with_a_wrong_password(server: MySQLServer, runs: Runs) -> None:
    code, line = runs.run(url_of(server), command="verify")
    assert (code, "no pipeline has written there" in line) == (2, True)
    (runs.lake / "_headgate" / "ledger").mkdir(parents=True)
    code, line = runs.run(url_of(server), command="verify", password="wrong-1", alone=True)
    assert (code, "reader" in line) == (3, True)
    code, line = runs.run(url_of(server), command="verify")
    assert (code, "no pipeline has written there" in line) == (2, True)


def test_no_such_host_or_port(runs: Runs) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        began = time.monotonic()
        code, line = runs.run(f"mysql://reader@127.0.0.1:{port}", command="run")
    assert code == 3
    assert f"127.0.0.1:{port}" in line
    assert time.monotonic() - began < 120, "a run that cannot begin does not try for its retry_seconds"
    assert runs.nothing_written()


def test_tables_that_are_not_there(server: MySQLServer, runs: Runs) -> None:
    code, line = runs.run(url_of(server), tables="e.none", alone=True)
    assert (code, "e.none" in line) == (2, True)
    code, line = runs.run(url_of(server), tables="nowhere.*")
    assert (code, "nowhere.*" in line) == (2, True)
    assert runs.nothing_written()


def test_what_is_to_be_read_again_and_is_not_there(server: MySQLServer, runs: Runs) -> None:
    code, line = runs.run(url_of(server), command="run --once --resnapshot e.* --resnapshot e.T")
    assert (code, "no table of this pipeline matches e.T: check the spelling" in line) == (2, True)
    done = runs.plan(runs.text(url_of(server)), "--resnapshot", "e.T")
    assert (done.exit_code, done.stderr) == (2, f"{line}\n")
    assert runs.nothing_written()


def test_policies_of_a_table_that_is_not_there(
    server: MySQLServer, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    tables = ['[tables."e.t"]\ntime = "text"\n', '[tables."e.T"]\ntime = "text"\n']
    assert check_source(parse_config(runs.text(url_of(server)) + "".join(tables))) == ["e.t"]
    messages = [record.getMessage() for record in logged_here(caplog)]
    assert messages == ['[tables."e.T"] matches no followed table: check the spelling (case counts)']


def test_a_dry_run_tells_what_a_run_would_end_with(server: MySQLServer, runs: Runs) -> None:
    for more, code, message in (
        ("", 0, ""), ('[tables."e.t"]\ncondition = "x > 3"\n', 2, 'the condition of [tables."e.t"] is refused'),
        ('[tables."e.t"]\nrows = "x > 3"\n', 2, "rows of e.t: the table has no column x"),
        ('[tables."e.t"]\nkey = ["v"]\n', 2, "key of e.t: the table has the key (id): remove `key`"),
        ('[ui]\nport = 8321\nhost = "0.0.0.0"\n', 2, "a page on 0.0.0.0 can be reached from elsewhere"),
    ):  # fmt: skip
        done = runs.plan(runs.text(url_of(server)) + more)
        assert (done.exit_code, "files of the last" in done.stdout) == (code, True), "the plan is shown in any case"
        assert message in done.stderr
        assert (f"nothing prevents a run; next: headgate run {runs.config}" in done.stdout) == (code == 0)
    assert runs.nothing_written()


def test_a_table_that_cannot_be_read_exactly(server: MySQLServer, runs: Runs) -> None:
    """Its engine is an error before a run, unless no table is to be read."""
    text = runs.text(url_of(server))
    server.execute("CREATE TABLE e.old (id INT PRIMARY KEY) ENGINE = MyISAM")
    try:
        with pytest.raises(ServerSettingError, match=r"engine of e\.old is MyISAM, but InnoDB is needed: ALTER TABLE"):
            check_source(parse_config(text))
        assert check_source(parse_config(text), known=["e.old"]) == ["e.old", "e.t"]
        follows = text.replace("[target]", 'snapshot_mode = "no_data"\n[target]')
        assert check_source(parse_config(follows)) == ["e.old", "e.t"]
        for options, code in (([], 3), (["--snapshot-mode", "no_data"], 0)):
            assert runs.plan(text, *options).exit_code == code
    finally:
        server.execute("DROP TABLE e.old")


def test_a_signal_topic_that_is_compacted(
    server: MySQLServer, runs: Runs, kafka_broker: KafkaBroker, kafka_topic: str
) -> None:
    topic = f"{kafka_topic}-compacted"
    kafka_broker.create_topic(topic, settings={"cleanup.policy": "compact"})
    more = f'[signals.kafka]\nbootstrap = "{kafka_broker.bootstrap}"\ntopic = "{topic}"'
    code, line = runs.run(url_of(server), more=more)
    assert code == 2
    assert f"--entity-name {topic} --add-config cleanup.policy=delete" in line
    done = runs.plan(runs.text(url_of(server), more))
    assert (done.exit_code, "files of the last" in done.stdout) == (2, True), "the plan is shown in any case"
    assert done.stderr == f"{line}\n"
    assert runs.nothing_written()


def test_cascades_that_the_server_does_not_log(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    """Refused before a JVM starts, or accepted for one table with a warning; a restart that logs them mends it."""
    with MySQLServer.start(UNLOGGED_CASCADES) as server:
        url = fill(server)
        rule = "FOREIGN KEY (p) REFERENCES e.t (id) ON DELETE"
        server.execute(
            f"CREATE TABLE e.child (id INT PRIMARY KEY, p INT, {rule} CASCADE)",
            f"CREATE TABLE e.orphan (id INT PRIMARY KEY, p INT, {rule} SET NULL)",
            f"CREATE TABLE e.strict (id INT PRIMARY KEY, p INT, {rule} RESTRICT)",
        )
        code, line = runs.run(url)
        assert code == 3
        assert "foreign keys of e.child is child_ibfk_1: ON UPDATE NO ACTION ON DELETE CASCADE" in line
        assert 'foreign_keys = "accept" in [tables."e.child"]' in line
        assert "1 more" in line
        assert runs.nothing_written()
        text = runs.text(url)
        accepted = [f'[tables."e.{name}"]\nforeign_keys = "accept"\n' for name in ("child", "orphan")]
        with pytest.raises(ServerSettingError, match=r"e\.orphan"):
            check_source(parse_config(text + accepted[0]))
        caplog.clear()
        assert check_source(parse_config(text + "".join(accepted))) == ["e.child", "e.orphan", "e.strict", "e.t"]
        warnings = [record for record in caplog.records if "change its rows unseen" in record.getMessage()]
        assert [record.levelname for record in warnings] == ["WARNING", "WARNING"]
        assert "e.child change its rows unseen" in caplog.text
        server.restart(dict.fromkeys(UNLOGGED_CASCADES, False))
        if server.logs_cascades:
            assert check_source(parse_config(text)) == ["e.child", "e.orphan", "e.strict", "e.t"]


@pytest.mark.parametrize(
    ("name", "wrong", "right"), [("binlog_format", "MIXED", "ROW"), ("binlog_row_image", "MINIMAL", "FULL")]
)
def test_a_log_without_whole_rows(server: MySQLServer, runs: Runs, name: str, wrong: str, right: str) -> None:
    server.execute(f"SET GLOBAL {name} = {wrong}")
    try:
        code, line = runs.run(url_of(server))
        filtered = '[tables."e.t"]\nwindow = "keep"\nrows = "v > 1"'
        assert ("or remove `rows` of e.t" in runs.run(url_of(server), more=filtered)[1]) == (name == "binlog_row_image")
    finally:
        server.execute(f"SET GLOBAL {name} = {right}")
    assert code == 3
    assert f"{name} is {wrong}, but {right} is needed: SET PERSIST {name} = {right};" in line
    assert ('or set window = "keep" for e.t' in line) == (name == "binlog_row_image")
    assert runs.nothing_written()


def test_files_of_somebody_else_in_the_way(server: MySQLServer, runs: Runs) -> None:
    folder = runs.lake / "e" / "t"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    code, line = runs.run(url_of(server))
    assert code == 3
    assert str(folder) in line
    assert "choose another target.path" in line
    assert [path.name for path in runs.lake.rglob("*") if path.is_file()] == ["notes.txt"]


def test_a_target_that_cannot_be_a_folder(server: MySQLServer, runs: Runs) -> None:
    runs.lake.write_text("a file")
    code, line = runs.run(url_of(server))
    assert code == 3
    assert str(runs.lake) in line
    assert runs.lake.read_text() == "a file"


def test_a_delta_table_of_somebody_else(server: MySQLServer, runs: Runs) -> None:
    """The one case that needs Spark to tell: a Delta table whose properties are not ours."""
    log = runs.lake / "e" / "t" / "_delta_log"
    log.mkdir(parents=True)
    schema = '{\\"type\\":\\"struct\\",\\"fields\\":[]}'
    (log / "00000000000000000000.json").write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
        f'{{"metaData":{{"id":"x","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{schema}",'
        '"partitionColumns":[],"configuration":{},"createdTime":1}}\n'
    )
    code, line = runs.run(url_of(server), alone=True)
    assert code == 3
    assert "is a Delta table that headgate did not make" in line
    written = {path.relative_to(runs.lake).as_posix() for path in runs.lake.rglob("*") if path.is_file()}
    assert written == {
        "_headgate/lock", "_headgate/inbox/status.json", "e/t/_delta_log/00000000000000000000.json",
    }  # fmt: skip
    status = read_status(ControlFolder(Lake.at(str(runs.lake)).inbox))
    assert status is not None
    assert (status.condition(), f"error: {status.error}") == ("failed", line)


def jvm_of(process: subprocess.Popen[str]) -> int | None:
    """The process id of the JVM that a run has started, if there is one yet."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return next((int(one) for one in children if Path(f"/proc/{one}/comm").read_text() == "java\n"), None)


@contextlib.contextmanager
def process_group(words: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process and all that it starts, which are killed at the end."""
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def following(
    server: MySQLServer, runs: Runs, *options: str
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """``headgate run`` as a process of its own."""
    runs.config.write_text(runs.text(url_of(server)))
    words = [sys.executable, "-m", "headgate.cli", "run", str(runs.config), *options]
    return process_group(words)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    assert any(text in line for line in process.stderr)


def test_ctrl_c_while_spark_starts_leaves_no_jvm() -> None:
    code = "import contextlib, examples.demo.run as x\nwith contextlib.suppress(KeyboardInterrupt): x.start_spark()"
    with process_group([sys.executable, "-c", code], cwd=Path(__file__).parents[3]) as process:
        deadline = time.monotonic() + 120
        while jvm_of(process) is None:
            assert process.poll() is None
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[1]  # the JVM holds the pipe's other end, too
    assert (process.returncode, output) == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("all_at_once", [True, False])
def test_a_jvm_that_ends(server: MySQLServer, runs: Runs, all_at_once: bool) -> None:
    """With the run, as systemd ends a service: no failure, whatever the JVM says of it. By itself: one
    line that says so.
    """
    with following(server, runs) as process:
        wait_for_line(process, " INFO batch ")
        if all_at_once:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            jvm = jvm_of(process)
            assert jvm is not None
            os.kill(jvm, signal.SIGKILL)
        last = [line for line in process.communicate(timeout=120)[1].splitlines() if " INFO " not in line]
    if all_at_once:
        assert (process.returncode, [line for line in last if line.startswith(("error", "Traceback"))]) == (0, [])
    else:
        error = SparkFailedError("Spark failed: its JVM has ended: killed, or out of memory")
        assert (process.returncode, last) == (3, [f"error: {error_line(error)}"])


@pytest.mark.long
@pytest.mark.parametrize("once", [True, False])
def test_a_signal_to_all_processes_before_anything_was_applied(server: MySQLServer, runs: Runs, once: bool) -> None:
    """As of ``timeout``, while Spark starts: it was stopped, which is no success, and not Spark's failure."""
    with following(server, runs, *(["--once"] if once else [])) as process:
        wait_for_line(process, "starting Spark")
        os.killpg(process.pid, signal.SIGTERM)
        last = process.communicate(timeout=120)[1].splitlines()
    applied = "everything" if once else "anything"
    assert process.returncode == 3
    errors = [line for line in last if line.startswith(("error", "Traceback"))]
    assert errors == [f"error: stopped before {applied} was applied; run it again"]
