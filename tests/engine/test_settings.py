"""The settings of Spark sessions."""

from __future__ import annotations

import pytest

from headgate.engine._settings import session_settings, without_secrets

JAVA = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize(
    ("master", "made"),
    [("local", "local[1,4]"), ("local[3]", "local[3,4]"), ("local[2,9]", "local[2,4]"), ("yarn", "yarn")],
)
def test_the_users_settings_win(master: str, made: str) -> None:
    settings = session_settings("x", {"spark.master": master, "spark.driver.memory": "3g", "spark.sql.other": "1"})
    assert (settings["spark.master"], settings["spark.driver.memory"], settings["spark.sql.other"]) == (made, "3g", "1")
    assert settings["spark.app.name"] == "headgate x"
    assert ("spark.driver.bindAddress" in settings) == master.startswith("local")


def test_java_options_stand_beside_those_that_keep_it_quiet() -> None:
    assert JAVA not in session_settings("x", {})
    assert session_settings("x", {JAVA: "-Xss4m"})[JAVA] == "-Xss4m"
    quiet = session_settings("x", {JAVA: "-Xss4m"}, quiet=True)
    assert quiet[JAVA].startswith("-Dlog4j2.configurationFile=file:")
    assert quiet[JAVA].endswith(" -Xss4m")
    assert session_settings("x", {"spark.log.level": "INFO"}, quiet=True)["spark.log.level"] == "INFO"


def test_hadoops_secrets_are_not_for_the_command_line() -> None:
    plain = {"spark.master": "local[2]", "spark.hadoop.fs.s3a.endpoint": "e", "spark.ssl.keyPassword": "Spark's own"}
    secrets = {
        "fs.s3a.access.key": "a", "fs.s3a.bucket.b.secret.key": "s", "fs.s3a.session.token": "t",
    }  # fmt: skip
    assert without_secrets({**plain, **{f"spark.hadoop.{key}": value for key, value in secrets.items()}}) == (
        plain, secrets,
    )  # fmt: skip


@pytest.mark.parametrize(("master", "setting"), [("local[2]", "driver.extraClassPath"), ("yarn", "jars")])
def test_archives_of_the_user_stand_beside_deltas(monkeypatch: pytest.MonkeyPatch, master: str, setting: str) -> None:
    monkeypatch.setattr("headgate.engine._settings.delta_jars", lambda: ["/delta.jar"])
    settings = session_settings("x", {"spark.master": master, f"spark.{setting}": "/mine.jar"})
    assert settings[f"spark.{setting}"].replace(":", ",") == "/mine.jar,/delta.jar"
