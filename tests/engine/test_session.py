"""The settings with which a session's JVM starts."""

from __future__ import annotations

import os

import pytest

from headgate.engine import _session
from headgate.engine._session import _prepare_settings

JAVA, INTERVAL = "spark.driver.extraJavaOptions", "spark.cleaner.periodicGC.interval"


def settings_of(**settings: str) -> dict[str, str]:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return _prepare_settings("x", named, quiet=True).conf


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment stays as it was."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
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
    settings = _prepare_settings("x", {JAVA: "-Xms1g -XX:+UseG1GC", INTERVAL: "1h"}, quiet=True).conf
    assert settings[INTERVAL] == "1h"
    options = settings[JAVA].split()
    assert options.index("-Xms1g") > options.index("-Xms192m")
    assert _session._SERIAL_COLLECTOR not in options
