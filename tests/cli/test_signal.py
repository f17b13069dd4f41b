"""``headgate signal`` writes what the words mean into the pipeline's inbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import app
from headgate.errors import TargetError, error_line
from headgate.lake import Lake
from headgate.status import Status
from tests.cli.test_status import status
from tests.lake.tables import make_ledger


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n[target]\npath = "{tmp_path}/lake"\n'
    )
    return file


def run(*args: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["signal", *args], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def written(pipeline: Path, name: str) -> object:
    folder = pipeline.parent / "lake" / "_headgate" / "inbox" / "signals"
    value = json.loads((folder / f"{name}.json").read_text())
    del value["submitted_us"]
    return value


def test_words_become_a_signal(pipeline: Path) -> None:
    code, out, err = run(
        str(pipeline), "execute-snapshot", "-t", "shop.*", "--condition", "shop.orders: status = 1",
        "--surrogate-key", "code", "--type", "blocking",
    )  # fmt: skip
    assert (code, "pipeline shop is not running; the signal waits" in err) == (0, True)
    name = out.strip()
    assert written(pipeline, name) == {
        "id": name,
        "type": "execute-snapshot",
        "data": {
            "data-collections": [r"shop\..*"],
            "type": "BLOCKING",
            "additional-conditions": [{"data-collection": r"shop\.orders", "filter": "status = 1"}],
            "surrogate-key": "code",
        },
    }


def test_a_signal_for_the_lake_of_another_pipeline_is_refused(pipeline: Path) -> None:
    """The lake's owner is asked, since a status may be missing."""
    lake = Lake(f"{pipeline.parent}/lake")
    make_ledger(lake, [1], pipeline="billing")
    code, out, err = run(str(pipeline), "pause-snapshot")
    assert (code, out, "belongs to pipeline 'billing'" in err) == (3, "", True)
    assert ControlFolder(lake.inbox).signals() == {}


def test_the_other_signals(pipeline: Path) -> None:
    for words in (["stop-snapshot"], ["pause-snapshot"], ["resume-snapshot"], ["log", "at {}"]):
        code, out, _ = run(str(pipeline), *words, "--id", words[0])
        assert (code, out) == (0, f"{words[0]}\n")
        assert isinstance(written(pipeline, words[0]), dict)


def test_json_from_a_file_or_stdin(pipeline: Path, tmp_path: Path) -> None:
    text = json.dumps({"id": "a/b", "type": "stop-snapshot", "data": {"data-collections": ["x.y"]}})
    (tmp_path / "s.json").write_text(text)
    assert run(str(pipeline), "--json", str(tmp_path / "s.json"))[:2] == (0, "a/b\n")
    assert run(str(pipeline), "--json", "-", stdin=text)[0] == 0
    signal = written(pipeline, "a%2Fb")
    assert isinstance(signal, dict)
    assert signal["data"]["data-collections"] == ["x.y"]


def test_json_is_utf_8_in_every_locale(pipeline: Path) -> None:
    condition = {"data-collection": "x.y", "filter": "name = 'Müller'"}
    data = {"data-collections": ["x.y"], "additional-conditions": [condition]}
    text = json.dumps({"id": "a", "type": "execute-snapshot", "data": data}, ensure_ascii=False)
    words = ["signal", str(pipeline), "--json", "-"]
    done = CliRunner(charset="latin-1").invoke(app, words, input=text.encode("utf-8-sig"))
    assert done.exit_code == 0
    signal = written(pipeline, "a")
    assert isinstance(signal, dict)
    assert signal["data"]["additional-conditions"] == [condition]


def test_an_inbox_that_cannot_be_written(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("headgate.stores._folder.write_bytes", refuse)
    code, out, err = run(str(pipeline), "pause-snapshot")
    inbox = pipeline.parent / "lake" / "_headgate" / "inbox"
    remedy = "check what this user may do there, or choose another folder"
    error = TargetError(f"{inbox} cannot be written: Permission denied; {remedy}")
    assert (code, out, err) == (3, "", f"error: {error_line(error)}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a signal (execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log), or use --json"),
        (["dance"], "'dance' is not one of"),
        (["execute-snapshot"], "execute-snapshot needs tables: add --tables PATTERN, such as 'shop.orders'"),
        (["execute-snapshot", "shop.a"], "tables are named with --tables"),
        (["execute-snapshot", "-t", r"a\.b"], "patterns are globs, not regular expressions: shop.orders"),
        (["execute-snapshot", "-t", "a.b", "--condition", "x"], "expected PATTERN:SQL"),
        (["pause-snapshot", "--json", "-"], "leave out action"),
        (["--type", "blocking", "--json", "-"], "leave out type"),
        (["pause-snapshot", "--type", "blocking"], "--type is for execute-snapshot and stop-snapshot"),
        (["--json", "/nowhere/x"], "cannot be read"),
        (["log"], 'no "message"'),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(pipeline: Path, words: list[str], message: str) -> None:
    code, out, err = run(str(pipeline), *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (pipeline.parent / "lake").exists()


@pytest.mark.parametrize(
    ("states", "code", "lines"),
    [
        (["sent", "taken", "running", "done"], 0, ["taken: log", "running: log", "done: log"]),
        (["refused"], 1, ["refused: log: bad"]),
        (["taken", "stopped"], 1, ["taken: log: bad", "stopped: log: bad"]),
    ],
)
def test_wait_ends_with_the_outcome(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, states: list[str], code: int, lines: list[str]
) -> None:
    """An answer to an earlier signal of the same id is none to this one."""
    reason = None if code == 0 else "bad"
    left = iter(states)

    def answered(inbox: ControlFolder) -> Status | None:
        if not inbox.signals():
            return None  # before it is sent
        (signal,) = inbox.signals().values()
        now = {"id": "s", "type": "log", "state": next(left), "reason": reason, "at_us": 1}
        then = {**now, "state": "done", "sent_us": 5}
        return status(signals=[{**now, "sent_us": signal["submitted_us"]}, then])

    monkeypatch.setattr("headgate.status.read_status", answered)
    monkeypatch.setattr("headgate.cli._outcome.time.sleep", lambda _: None)
    done, out, err = run(str(pipeline), "log", "x", "--id", "s", "--wait")
    shown = [line for line in out.splitlines()[1:] if not line.startswith("sent")]
    assert (done, shown, err) == (code, lines, "")


def test_waiting_ends_without_an_answer(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later signal of the same id has replaced the file, or so many came that the answer is no longer kept."""
    kept = {"id": "s", "type": "log", "state": "sent", "at_us": 1, "sent_us": 5}
    monkeypatch.setattr("headgate.status.read_status", lambda _: status(signals=[kept]))
    monkeypatch.setattr("headgate.cli._outcome.time.sleep", lambda _: None)
    code, out, err = run(str(pipeline), "log", "x", "--id", "s", "--wait")
    assert (code, out) == (1, "s\n")
    assert "signal s was replaced, or its answer is no longer kept" in err


def test_an_interrupt_ends_the_waiting_with_1(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headgate.cli._outcome.time.sleep", interrupt)
    code, out, err = run(str(pipeline), "pause-snapshot", "--id", "s", "--wait")
    assert (code, out, "signal s is still under way" in err) == (1, "s\n", True)
