"""Java archives are fetched once, silently, and a session resolves none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate import archives
from headgate.archives import archives_of, delta_jars, fetch_packages
from headgate.engine import _settings
from headgate.errors import ArchivesUnavailableError, ConfigError

MORE = {"spark.jars.packages": "a:b:1, c:d:2", "spark.jars.excludes": "e:f", "spark.driver.memory": "1g"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "NUMBA_CACHE_DIR", "SPARK_LOCAL_IP"):  # as they were
        monkeypatch.setenv(name, "")
    return tmp_path / "headgate" / "jars"


def test_archives_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def fetch(packages: tuple[str, ...], folder: Path, *, conf: dict[str, str]) -> None:
        fetched.append((packages, conf))
        (folder / f"{packages[0].split(':')[1]}.jar").touch()

    monkeypatch.setattr(archives, "fetch_jars", fetch)
    assert delta_jars() == []
    fetch_packages(MORE)
    fetch_packages(MORE)
    assert fetched == [
        ((archives.DELTA_PACKAGE,), {}), (("a:b:1", "c:d:2"), {"spark.jars.excludes": "e:f"}),
    ]  # fmt: skip
    delta, named = archives_of(MORE)
    assert (delta.are_there, named.are_there) == (True, True)
    assert {path.parent for path in (delta.folder, named.folder)} == {cache}
    settings = _settings.session_settings("x", {**MORE, "spark.master": "local[1]", "spark.jars": "/mine.jar"})
    assert settings["spark.jars"] == f"/mine.jar,{named.folder}/b.jar"
    assert settings["spark.driver.extraClassPath"].endswith("delta-spark_4.2_2.13.jar")
    assert not {"spark.jars.packages", "spark.jars.excludes"} & settings.keys()
    assert [one.are_there for one in archives_of({**MORE, "spark.jars.excludes": "g:h"})] == [True, False]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (
            ArchivesUnavailableError,
            "\t\tunresolved dependency: a#b;1: not found\n\tServer access error at url https://r/ (UnknownHost)",
            "Server access error at url https://r/ (UnknownHost)",
        ),
        (
            ArchivesUnavailableError,
            "SERVER ERROR: Bad Gateway url=https://r/b.pom\n:: a#b;1: not found",
            "SERVER ERROR: Bad Gateway url=https://r/b.pom",
        ),
        (
            ArchivesUnavailableError,
            "\t[FAILED     ] a#b;1!b.jar: Connection reset (12ms)\n\t:: a#b;1!b.jar\ndownload failed: a#b;1!b.jar",
            "[FAILED     ] a#b;1!b.jar: Connection reset (12ms)",
        ),
        (ConfigError, "\t[NOT FOUND  ] a#b;1!b.jar\ndownload failed: a#b;1!b.jar", "download failed: a#b;1!b.jar"),
        (ArchivesUnavailableError, "", "no message"),
        (ConfigError, "\t\tunresolved dependency: a#b;1: not found", "unresolved dependency: a#b;1: not found"),
        (ConfigError, "java.lang.IllegalArgumentException: no coordinates", "java.lang.IllegalArgumentException: no c"),
    ],
)
def test_only_a_repository_that_does_not_answer_is_asked_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], text: str, reason: str
) -> None:
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    message = rf"^the archives of io\.delta:.* could not be fetched: {re.escape(reason)}"
    with pytest.raises(kind, match=message) as caught:
        fetch_packages({})
    assert type(caught.value) is kind
    assert "connect once (headgate prefetch), or copy" in str(caught.value)
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_what_cannot_be_fetched_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConfigError("no network")

    monkeypatch.setattr(archives, "fetch_jars", fail)
    with pytest.raises(ConfigError, match=r"^no network; connect once \(headgate prefetch\), or copy .*/delta-"):
        fetch_packages({})
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == []
