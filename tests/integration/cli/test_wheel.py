"""The sdist and the wheel, and the wheel installed into fresh environments outside the checkout: alone, and with each
extra.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
import textwrap
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate_testing import wait_until
from headgate_testing._ports import free_port
from tests.integration.wheels import CONSTRAINTS, ROOT, outside, pip

if TYPE_CHECKING:
    from headgate_testing import KafkaBroker, MySQLServer

REPOSITORY = "https://code.example/owner/headgate"
LONG = pytest.mark.timeout(3000)  # packages come over the network, and every loop is compiled again


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The sdist and the wheel of one build, which has checked both."""
    folder = tmp_path_factory.mktemp("distributions")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    pip(python, "install", "-q", "--upgrade", "pip")
    pip(python, "install", "-q", "--group", f"{ROOT / 'pyproject.toml'}:release")
    command = [python, "-m", "tools.build_distributions", "--repository", REPOSITORY, "--out", str(folder / "out")]
    run = subprocess.run(command, cwd=ROOT, env=outside(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return sorted((folder / "out").iterdir())


@pytest.fixture(scope="module")
def wheel(distributions: list[Path]) -> Path:
    (file,) = (one for one in distributions if one.suffix == ".whl")
    return file


class Installed:
    """headgate in an environment of its own. Nothing of the checkout is in sight."""

    def __init__(self, wheel: Path, folder: Path, extra: str = "") -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        wanted = f"headgate[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        pip(self.program("python"), "install", "-q", "-c", CONSTRAINTS, wanted)
        self.environment = {**outside(), "PATH": f"{folder}/venv/bin:{os.environ['PATH']}"}

    def program(self, name: str) -> str:
        return str(self.folder / "venv/bin" / name)

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [self.program(words[0]), *words[1:]]
        run = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == code, run.stdout + run.stderr
        return run

    @contextmanager
    def process(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A program that runs until the block ends, then until Ctrl-C has ended it."""
        command = [self.program(words[0]), *words[1:]]
        errors = self.folder / "errors"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=stderr, text=True
            ) as process,
        ):
            try:
                yield process
                process.send_signal(signal.SIGINT)
                assert process.wait(120) == 0, errors.read_text()
            finally:
                process.kill()

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, "utf-8")
        return name


@pytest.fixture
def install(
    wheel: Path, tmp_path: Path, mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Installed]:
    monkeypatch.setenv("HEADGATE_PASSWORD", mysql_server._password)
    return lambda extra: Installed(wheel, tmp_path, extra)


def orders(server: MySQLServer, db: str) -> str:
    """A table of two rows; all that was executed before them, as a GTID set."""
    before = server.gtid_executed
    server.execute(f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(9))")
    server.execute(f"INSERT INTO `{db}`.orders VALUES (1, 'Ada'), (2, 'Ben')")
    return before


def pipeline(server: MySQLServer, db: str) -> str:
    return f"""
        name = "shop"
        source = {{ url = "{server.url}", tables = ["{db}.*"] }}
        target = {{ path = "lake" }}
    """


@pytest.mark.slow
@LONG
def test_it_is_headgate_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"headgate"}


@pytest.mark.slow
@LONG
def test_the_sdist_has_what_the_wheel_has(distributions: list[Path]) -> None:
    sdist, wheel = sorted(distributions, key=lambda one: one.suffix)
    with tarfile.open(sdist) as archive:
        members = [name.partition("/")[2] for name in archive.getnames()]
        sources = {name.removeprefix("src/") for name in members if name.startswith("src/headgate/")}
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if name.startswith("headgate/")}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert installed <= sources
    assert {"pyproject.toml", "README.md", "LICENSE"} <= {*members}
    assert [name for name in members if name.startswith(("tests", "docs", "src/headgate_testing"))] == []
    assert f"\nProject-URL: Homepage, {REPOSITORY}\n" in metadata
    assert f"]({REPOSITORY}/raw/v" in metadata
    assert "](docs/" not in metadata


@pytest.mark.slow
@LONG
def test_alone_it_has_the_log_and_snapshots(
    install: Callable[[str], Installed], mysql_server: MySQLServer, mysql_db: str
) -> None:
    here, before = install(""), orders(mysql_server, mysql_db)
    place = here.run("python", "-c", "import headgate; print(headgate.__file__, headgate.__version__)").stdout
    assert place.startswith(str(here.folder))
    assert here.run("headgate", "--version").stdout == f"headgate {place.split()[-1]}\n"
    tables = ("--tables", f"{mysql_db}.*", mysql_server.url)
    logged = here.run("headgate", "tail", "--from", before, "--until-current", *tables).stdout
    assert [line["after"]["name"] for line in map(json.loads, logged.splitlines()) if "after" in line] == ["Ada", "Ben"]
    assert "Ada" in here.run("headgate", "snapshot", *tables).stdout
    file = here.file("pipeline.toml", pipeline(mysql_server, mysql_db))
    message = here.run("headgate", "run", file, code=2).stderr
    assert message == "error: pyspark is not installed. This needs headgate[spark]: pip install 'headgate[spark]'\n"


@pytest.mark.slow
@LONG
@pytest.mark.parametrize("extra", ["spark", "all"])
def test_with_spark_it_keeps_tables(
    install: Callable[[str], Installed], mysql_server: MySQLServer, mysql_db: str, extra: str
) -> None:
    here = install(extra)
    orders(mysql_server, mysql_db)
    file = here.file("pipeline.toml", pipeline(mysql_server, mysql_db))
    here.run("headgate", "run", file, "--snapshot-mode", "initial_only")
    names = """
        import sys, pyarrow
        from deltalake import DeltaTable, QueryBuilder
        table = QueryBuilder().register("orders", DeltaTable(sys.argv[1]))
        print(*pyarrow.table(table.execute("SELECT name FROM orders ORDER BY id"))["name"])
    """
    assert here.run("python", "-c", textwrap.dedent(names), f"lake/{mysql_db}/orders").stdout == "Ada Ben\n"
    assert "equal" in here.run("headgate", "verify", file).stdout
    if extra == "all":
        with here.process("headgate", "ui", file, "--port", "0") as page:
            assert mysql_db in read(f"{first_line(page)}api/status")


@pytest.mark.slow
@LONG
def test_with_ui_it_serves_the_page(
    install: Callable[[str], Installed], mysql_server: MySQLServer, mysql_db: str
) -> None:
    here = install("ui")
    file = here.file("pipeline.toml", pipeline(mysql_server, mysql_db))
    with here.process("headgate", "ui", file, "--port", "0") as page:
        url = first_line(page)
        assert "<title>" in read(url)
        assert "shop" in read(f"{url}api/status")


@pytest.mark.slow
@LONG
def test_with_relay_it_serves_and_consumes(
    install: Callable[[str], Installed], mysql_server: MySQLServer, mysql_db: str
) -> None:
    here, before, port = install("relay"), orders(mysql_server, mysql_db), str(free_port())
    file = here.file(
        "relay.toml",
        f'state = "state"\n[[physical]]\nid = 1\nname = "shop"\nurl = "{mysql_server.url}"\n'
        f'[[physical.sources]]\nid = 40\nname = "shop.Order"\ntable = "{mysql_db}.orders"\n',
    )
    with here.process("headgate", "relay", "--sources", file, "--port", port, "--from", before):
        wait_for(f"http://127.0.0.1:{port}/sources")
        lines = here.run("headgate", "consume", f"http://127.0.0.1:{port}", "--windows", "1").stdout
    assert [line["key"] for line in map(json.loads, lines.splitlines())] == [1, 2]


@pytest.mark.slow
@LONG
def test_with_kafka_it_reads_a_topic(
    install: Callable[[str], Installed], kafka_broker: KafkaBroker, kafka_topic: str
) -> None:
    here = install("kafka")
    code = """
        import sys
        from headgate.control import KafkaCluster, KafkaTopic, check_topic
        check_topic(KafkaTopic(KafkaCluster(sys.argv[1]), sys.argv[2], "k"))
    """
    here.run("python", "-c", textwrap.dedent(code), kafka_broker.bootstrap, kafka_topic)


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for(url: str, seconds: float = 120) -> None:
    """:raises TimeoutError: nothing serves it so long."""

    def is_served() -> bool:
        with suppress(OSError):
            read(url)
            return True
        return False

    wait_until(is_served, f"nothing serves {url}", seconds=seconds, every=0.2)
