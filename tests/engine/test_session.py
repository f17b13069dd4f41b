"""The settings with which a session's JVM starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import headgate
from headgate.engine import _session, prestart_session
from headgate.engine._session import _prepare_settings
from headgate.errors import ConfigError

JAVA, INTERVAL = "spark.driver.extraJavaOptions", "spark.cleaner.periodicGC.interval"


def settings_of(**settings: str) -> dict[str, str]:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return conf_of(named)


def conf_of(settings: dict[str, str], *, quiet: bool = True) -> dict[str, str]:
    return _prepare_settings("x", settings, quiet=quiet).conf


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment stays as it was."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("cores", [2, 16])
def test_a_heap_of_the_default_size_returns_memory(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    settings = settings_of(master="local[2]")
    assert settings[INTERVAL] == "2min"
    assert "-Xms192m" in settings[JAVA]
    assert (_session._SERIAL_COLLECTOR in settings[JAVA]) == (cores == 2)


def test_a_heap_of_another_size_is_left_alone() -> None:
    settings = settings_of(driver_memory="8g")
    assert INTERVAL not in settings
    assert "-Xms" not in settings[JAVA]
    assert _session._SERIAL_COLLECTOR not in settings[JAVA]


def test_a_cluster_is_left_alone() -> None:
    settings = settings_of(master="yarn")
    assert INTERVAL not in settings
    assert "-Xms" not in settings[JAVA]


def test_the_users_own_settings_win() -> None:
    """Java takes the last one of two options of a name."""
    settings = conf_of({JAVA: "-Xms1g -XX:+UseG1GC", INTERVAL: "1h"})
    assert settings[INTERVAL] == "1h"
    options = settings[JAVA].split()
    assert options.index("-Xms1g") > options.index("-Xms192m")
    assert _session._SERIAL_COLLECTOR not in options


@pytest.mark.parametrize(
    ("master", "made"),
    [("local", "local[1,4]"), ("local[3]", "local[3,4]"), ("local[2,9]", "local[2,4]"), ("yarn", "yarn")],
)
def test_the_users_settings_win(master: str, made: str) -> None:
    settings = conf_of({"spark.master": master, "spark.driver.memory": "3g", "spark.sql.other": "1"})
    assert (settings["spark.master"], settings["spark.driver.memory"], settings["spark.sql.other"]) == (made, "3g", "1")
    assert settings["spark.app.name"] == "headgate x"
    assert ("spark.driver.bindAddress" in settings) == master.startswith("local")


def test_java_options_stand_beside_those_that_keep_it_quiet() -> None:
    on_a_cluster = {"spark.master": "yarn"}
    assert JAVA not in conf_of(on_a_cluster, quiet=False)
    assert conf_of({**on_a_cluster, JAVA: "-Xss4m"}, quiet=False)[JAVA] == "-Xss4m"
    quiet = conf_of({**on_a_cluster, JAVA: "-Xss4m"})
    assert quiet[JAVA].startswith("-Dlog4j2.configurationFile=file:")
    assert quiet[JAVA].endswith(" -Xss4m")
    assert conf_of({"spark.log.level": "INFO"})["spark.log.level"] == "INFO"


def test_hadoops_secrets_are_not_for_the_command_line() -> None:
    plain = {"spark.hadoop.fs.s3a.endpoint": "e", "spark.ssl.keyPassword": "Spark's own"}
    secrets = {"fs.s3a.access.key": "a", "fs.s3a.bucket.b.secret.key": "s", "fs.s3a.session.token": "t"}
    settings = _prepare_settings(
        "x", {**plain, **{f"spark.hadoop.{key}": value for key, value in secrets.items()}}, quiet=True
    )
    assert settings.secrets == secrets
    assert plain.items() <= settings.conf.items()
    assert not any(value in ("a", "s", "t") for value in settings.conf.values())


@pytest.mark.parametrize(("master", "setting"), [("local[2]", "driver.extraClassPath"), ("yarn", "jars")])
def test_archives_of_the_user_stand_beside_deltas(monkeypatch: pytest.MonkeyPatch, master: str, setting: str) -> None:
    monkeypatch.setattr("headgate.engine._settings.delta_jars", lambda: ["/delta.jar"])
    settings = conf_of({"spark.master": master, f"spark.{setting}": "/mine.jar"})
    assert settings[f"spark.{setting}"].replace(":", ",") == "/mine.jar,/delta.jar"


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_the_python_of_the_settings_runs(master: str) -> None:
    """PySpark itself ignores the setting if ``spark-submit`` has not started it."""
    settings_of(master=master, pyspark_python=sys.executable)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_python_that_only_executors_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the driver cannot run \./environment/bin/python, .*pyspark\.python"):
        settings_of(master="yarn", pyspark_python="./environment/bin/python")


def test_on_a_cluster_the_drivers_processes_have_its_packages() -> None:
    """Spark starts them with the executors' Python, which has a standard library of its own."""
    settings_of(master="yarn")
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    assert str(Path(headgate.__path__[0]).parent) in paths
    assert str(Path(os.__file__).parent) not in paths


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings with which ``spark-submit`` has started this process; they may be changed."""
    settings = {"spark.master": "yarn", "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "7"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(_session, "submitted_settings", lambda: settings)
    monkeypatch.setattr(_session, "check_delta", lambda _package: None)
    return settings


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_settings_of_spark_submit_stand_between_the_files_and_headgates(submitted: dict[str, str], master: str) -> None:
    submitted["spark.master"] = master
    settings = conf_of({"spark.sql.shuffle.partitions": "3"})
    assert settings["spark.master"].startswith(master.rstrip("]"))
    assert (settings["spark.driver.memory"], settings["spark.sql.shuffle.partitions"]) == ("4g", "3")
    assert settings["spark.sql.session.timeZone"] == "UTC"
    of_the_start = {JAVA, INTERVAL, "spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"}
    assert not of_the_start & settings.keys(), "the JVM runs already"


@pytest.mark.usefixtures("submitted")
def test_what_the_jvm_of_spark_submit_cannot_change_is_refused() -> None:
    for late in ("master", "driver_memory", "jars_packages"):
        with pytest.raises(ConfigError, match=rf"{late.replace('_', '[.]')} in \[spark\] comes too late"):
            settings_of(**{late: "other"})
    assert settings_of(master="yarn", driver_memory="4g")["spark.driver.memory"] == "4g"


@pytest.mark.usefixtures("submitted")
def test_no_second_jvm_starts_beside_that_of_spark_submit() -> None:
    with prestart_session("x", {}):
        assert _session._starting is None
