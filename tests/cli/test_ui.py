"""``headgate ui``: a page until Ctrl-C, and what it refuses before it begins."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli import _run, app
from headgate.config import PipelineConfig, parse_config
from headgate.errors import ConfigError

SRC = str(Path(_run.__file__).parents[2])


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'name = "shop"\n[source]\nurl = "mysql://u@127.0.0.1:1"\ntables = ["shop.*"]\n'
        f'[target]\npath = "{tmp_path / "lake"}"\n'
    )
    return file


def test_a_page_until_ctrl_c(pipeline: Path) -> None:
    other = pipeline.with_name("other.toml")
    other.write_text(pipeline.read_text().replace('"shop"', '"billing"'))
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "ui", str(pipeline), str(other), "--port", "0"],
        env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}api/status", timeout=60) as answer:
            value = json.load(answer)
        assert [one["pipeline"] for one in value["pipelines"]] == ["shop", "billing"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--host", "0.0.0.0"], "needs a token: --token-file FILE"),
        (["--token-file", "nowhere"], "the token file nowhere cannot be read"),
        (["--host", "192.0.2.1", "--token-file", "TOKEN"], "cannot listen on 192.0.2.1"),
        (["PIPELINE"], "two pipelines are named shop"),
        (["nothing.toml"], "nothing.toml cannot be read"),
    ],
)
def test_what_is_refused(pipeline: Path, more: list[str], message: str) -> None:
    token = pipeline.with_name("token")
    token.write_text("0123456789abcdef\n")
    words = [{"TOKEN": str(token), "PIPELINE": str(pipeline)}.get(word, word) for word in more]
    result = CliRunner().invoke(app, ["ui", str(pipeline), "--port", "0", *words])
    assert result.exit_code == 2
    assert message in result.stderr


def test_inside_a_run_it_is_off_unless_asked_for(pipeline: Path) -> None:
    with _run._page(parse_config(pipeline.read_text()), pipeline) as page:
        assert page is None
    assert parse_config(pipeline.read_text() + "[ui]\nport = 8321\n").ui.host == "127.0.0.1"
    pipeline.write_text(pipeline.read_text() + '[ui]\nport = 8321\nhost = "0.0.0.0"\n')
    result = CliRunner().invoke(app, ["run", str(pipeline)])
    assert result.exit_code == 2
    assert "needs a token" in result.stderr


def test_inside_a_run(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is there while the pipeline runs, and not after it."""
    from headgate.pipeline import _run as wiring
    from headgate.web import serving

    pages: list[socket.socket] = []
    seen = []
    taken = serving._listen

    def listen(host: str, _port: int) -> socket.socket:
        pages.append(taken(host, 0))
        return pages[-1]

    monkeypatch.setattr(serving, "_listen", listen)

    def run(*_: object, **__: object) -> bool:
        port = pages[0].getsockname()[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status", timeout=60) as answer:
            seen.append(json.load(answer)["pipelines"][0]["pipeline"])
        return True

    monkeypatch.setattr(wiring.Pipeline, "run", run)
    pipeline.write_text(pipeline.read_text() + "[ui]\nport = 8321\n")
    result = CliRunner().invoke(app, ["run", str(pipeline)])
    assert (result.exit_code, seen) == (0, ["shop"])
    assert pages[0].fileno() == -1


def test_inside_a_run_the_file_can_be_replaced(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.pipeline import _run as wiring
    from headgate.web import serving

    ports: list[int] = []
    taken = serving._listen

    def listen(host: str, _port: int) -> socket.socket:
        listener = taken(host, 0)
        ports.append(listener.getsockname()[1])
        return listener

    def check(config: PipelineConfig) -> list[str]:
        if "gone.*" in config.source.tables:
            raise ConfigError("no table on the server matches gone.*")
        return []

    token = pipeline.with_name("token")
    token.write_text("0123456789abcdef\n")
    before = pipeline.read_text() + f'[ui]\nport = 8321\ntoken_file = "{token}"\n'
    pipeline.write_text(before)
    pipeline.chmod(0o640)
    answers = []

    def put(text: str) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{ports[0]}/config", text.encode(), {"authorization": "Bearer 0123456789abcdef"},
            method="PUT",
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers.append((answer.status, json.load(answer)))
        except urllib.error.HTTPError as error:
            with error:
                answers.append((error.code, json.load(error)["problem"]))

    tables = parse_config(before).source.tables

    def run(self: wiring.Pipeline, *_: object, **__: object) -> bool:
        put(before.replace(tables[0], "gone.*"))
        assert not self.reloaded()
        assert pipeline.read_text() == before
        put(before.replace(tables[0], "more.*"))
        assert self.reloaded()
        assert self.config.source.tables[0] == "more.*"
        edited = pipeline.read_text().replace('/lake"', '/other"')  # the next run's, not this one's
        pipeline.write_text(edited)
        put(edited.replace("more.*", "less.*"))
        assert pipeline.read_text() == edited
        return True

    monkeypatch.setattr(serving, "_listen", listen)
    for place in ("headgate.pipeline", "headgate.pipeline._run"):
        monkeypatch.setattr(f"{place}.check_config", check)
    monkeypatch.setattr(wiring.Pipeline, "run", run)
    result = CliRunner().invoke(app, ["run", str(pipeline)])
    assert result.exit_code == 0, result.output
    assert answers == [
        (400, "no table on the server matches gone.*"),
        (202, {"pipeline": "shop"}),
        (400, "target changed: restart the pipeline to apply it"),
    ]
    assert pipeline.stat().st_mode & 0o777 == 0o640
