"""``headgate doctor``: what its archive has, without secrets, also if nothing can be reached."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import _doctor_parts, app
from headgate.lake import Lake, TableState
from tests.cli.test_status import status
from tests.lake.tables import make_ledger

USER, ACCOUNT = "r%20eader", "'r eader'@'%'"
SECRETS = {
    name: f'{name}-ü"s3cret/@{number}'
    for number, name in enumerate(("password", "mask", "ui", "relay", "webhook", "spark", "azure", "kafka", "registry"))
}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline with every kind of secret; its server does not answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_LOGIN", SECRETS["password"])
    monkeypatch.setenv("SHOP_MASKS", SECRETS["mask"])
    monkeypatch.setenv("SHOP_REGISTRY", f"registrar:{SECRETS['registry']}")
    for name in ("ui", "relay", "webhook"):
        (tmp_path / f"{name}.txt").write_text(f"{SECRETS[name]}\n", "utf-8")
    (tmp_path / "kafka.txt").write_text(f"sasl.username=broker\nsasl.password={SECRETS['kafka']}\n", "utf-8")
    file = tmp_path / "pipeline.toml"
    file.write_text(f"""
        name = "shop"
        [source]
        url = "mysql://{USER}@127.0.0.1:1"
        password_env = "SHOP_LOGIN"
        mask_key_env = "SHOP_MASKS"
        relay = "http://127.0.0.1:2"
        relay_token_file = "relay.txt"
        tables = ["shop.*"]
        [columns."shop.*"]
        email = "hash"
        [target]
        path = "{tmp_path}/lake"
        mode = ["current", "kafka"]
        [target.kafka]
        bootstrap = "127.0.0.1:3"
        settings_file = "kafka.txt"
        format = "avro"
        registry = "http://127.0.0.1:4"
        registry_auth_env = "SHOP_REGISTRY"
        [ui]
        port = 8321
        token_file = "ui.txt"
        [notifications.webhook]
        url = "https://127.0.0.1:5/services/{quote(SECRETS["webhook"], safe="")}"
        token_file = "webhook.txt"
        [spark]
        "hadoop.fs.s3a.secret.key" = {json.dumps(SECRETS["spark"])}
        "hadoop.fs.azure.account.key.shop" = {json.dumps(SECRETS["azure"])}
    """)
    return file


def doctor(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["doctor", *args])
    return result.exit_code, result.stdout, result.stderr


def members(archive: Path) -> dict[str, str]:
    """Texts of the archive's files, by their names."""
    with tarfile.open(archive) as opened:
        read = {one.name.partition("/")[2]: opened.extractfile(one) for one in opened.getmembers()}
        return {name: file.read().decode() for name, file in read.items() if file is not None}


def values(archive: Path) -> dict[str, Any]:
    """JSON values of the archive's parts."""
    return {name.removesuffix(".json"): json.loads(text) for name, text in members(archive).items() if "json" in name}


def fill(lake: Lake) -> None:
    """What a run leaves, with secrets where a text may have one."""
    error = (
        f"cannot log in as {ACCOUNT} with {SECRETS['password']} at mysql://{USER}:{quote(SECRETS['password'])}@db:3306"
    )
    tables = {"shop.orders": {"state": "stopped", "reason": "Authorization: Bearer abcdefgh12345678"}}
    ControlFolder(lake.inbox).write("status.json", status(state="failed", error=error, tables=tables).to_dict())
    make_ledger(lake, [1, 2, 3], [4, 5], gtid="u:1-5", states=[TableState("shop.orders", "stopped", 3)])
    for name in (*(f"offsets/{number}" for number in range(12)), "commits/9", "commits/10"):
        file = Path(lake.checkpoint, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'v1\n{{"gtid": "{name}"}}\n')


def test_no_secret_is_in_the_archive(pipeline: Path, tmp_path: Path) -> None:
    fill(Lake.at(tmp_path / "lake"))
    log = tmp_path / "run.log"
    lines = [f"INFO {name} is {value}, {json.dumps(value)}, {quote(value, safe='')}" for name, value in SECRETS.items()]
    lines.append("jdbc:mysql://root:other7@h/ with password=hidden7 and token: 'strange7'")
    log.write_text("\n".join(lines), "utf-8")
    out = tmp_path / "report.tar.gz"
    code, text, err = doctor(str(pipeline), "--log", str(log), "--output", str(out))
    assert (code, err) == (0, "")
    everything = "\n".join([*members(out).values(), text])
    hidden = ["r eader", f"{USER}@", "abcdefgh12345678", "other7", "hidden7", "strange7"]
    for secret in [*SECRETS.values(), *hidden]:
        for spelled in (secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1]):
            assert spelled not in everything, spelled
    assert everything.count("***") > len(SECRETS)
    configuration = values(out)["configuration"]
    assert configuration["source"]["password_env"] == "SHOP_LOGIN"
    assert configuration["ui"]["token_file"] == str(tmp_path / "ui.txt")
    assert configuration["spark"] == {
        "spark.hadoop.fs.s3a.secret.key": "***", "spark.hadoop.fs.azure.account.key.shop": "***"
    }  # fmt: skip


def test_what_a_run_has_left(pipeline: Path, tmp_path: Path) -> None:
    fill(Lake.at(tmp_path / "lake"))
    code, text, _ = doctor(str(pipeline), "--batches", "3")
    (out,) = tmp_path.glob("headgate-doctor-shop-*.tar.gz")
    assert (code, stat.S_IMODE(out.stat().st_mode)) == (0, 0o600)
    assert f"wrote {out.name} (" in text
    read = values(out)
    assert read["status"]["condition"] == "failed"
    assert [row["epoch"] for row in read["ledger"]] == [5, 4, 3]
    assert read["ledger"][0]["tables"][0]["state"] == "stopped"
    assert {area: list(files) for area, files in read["checkpoint"].items()} == {
        "offsets": ["11", "10", "9"], "commits": ["10", "9"]
    }  # fmt: skip
    assert read["sizes"]["folders"]["_headgate/checkpoint/offsets"]["files"] == 12
    assert read["sizes"]["disk"]["free"] > 0
    assert read["limits"]["limits"]["RLIMIT_NOFILE"][0] > 0
    assert {"headgate", "python", "delta", "java"} <= read["versions"].keys()
    assert read["versions"]["packages"]["pyspark"]
    summary = members(out)["summary.txt"]
    assert "checkpoint:    the newest offset is 11, the newest commit 10" in summary
    assert text.startswith(summary)


@pytest.mark.parametrize(
    ("text", "shown"), [("max", "no limit"), (str((1 << 63) - 4096), "no limit"), ("1073741824", "1048576 kB")]
)
def test_the_limit_of_a_control_group_is_said_as_people_read_it(
    text: str, shown: str, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 has the word ``max`` for none, version 1 the largest whole number of pages."""
    name = "memory.max" if text == "max" else "memory/memory.limit_in_bytes"
    monkeypatch.setattr(_doctor_parts, "_control_groups", lambda: [(name, text)])
    assert f" of memory, {shown} for the cgroup" in doctor(str(pipeline))[1]


def test_each_part_that_cannot_be_read_has_its_error(pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file in its place")
    out = tmp_path / "report.tar.gz"
    code, text, err = doctor(str(pipeline), "-o", str(out), "--log", str(tmp_path / "nowhere.log"))
    assert (code, err) == (0, "")
    read = values(out)
    failed = {name for name, value in read.items() if isinstance(value, dict) and "type" in value}
    assert failed >= {"log", "status", "ledger", "server", "check", "tables"}
    assert "cannot connect to MySQL" in read["server"]["error"]
    assert "server:        error: cannot connect to MySQL" in text
    assert "(see docs/runbook.md#server-away)" in text
    assert read["configuration"]["name"] == "shop"


@pytest.mark.parametrize("content", [None, "name = 1", "[source"])
def test_a_file_that_no_pipeline_can_run_with(tmp_path: Path, content: str | None) -> None:
    file, out = tmp_path / "pipeline.toml", tmp_path / "report.tar.gz"
    if content is not None:
        file.write_text(content)
    assert doctor(str(file), "-o", str(out))[0] == 0
    read = values(out)
    assert read.keys() == {"versions", "limits", "configuration"}
    assert read["configuration"]["type"] == "ConfigError"


def test_an_archive_that_cannot_be_written(pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    code, out, err = doctor(str(pipeline), "-o", str(tmp_path / "taken" / "report.tar.gz"))
    assert (code, out) == (2, "")
    assert "report.tar.gz cannot be written: " in err
