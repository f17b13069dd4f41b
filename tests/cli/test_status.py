"""``headgate status``: what it prints of a pipeline's file, and how it ends."""

from __future__ import annotations

import io
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headgate.carrier import ControlFolder, Resnapshot
from headgate.cli import _status, app
from headgate.control import parse_signal, submit
from headgate.errors import TargetError, error_line
from headgate.status import Status, pid_namespace

SRC = str(Path(_status.__file__).parents[2])


def status(**more: Any) -> Status:
    """Written an hour from now, so that it is fresh however long the test takes."""
    now = time.time_ns() // 1000 + 3_600_000_000
    value: dict[str, Any] = {
        "v": 2, "pipeline": "shop", "pid": os.getpid(), "host": platform.node(), "pid_namespace": pid_namespace(),
        "started_us": now, "updated_us": now, "state": "idle", "batches": 3,
        "lag": {"seconds": 1.25, "transactions": 12}, "changes_per_second": 1234.5,
        "tables": {
            "shop.orders": {"state": "live", "changes": 4000, "rows": 10},
            "shop.items": {
                "state": "snapshotting", "rows_read": 750000, "chunks_done": 3, "chunks_estimate": 8,
                "rows_estimate": 2000000,
            },
        },
        "recent": [
            {"batch_id": 3, "epoch": 9, "gtid": "x:1-9", "committed_us": now, "transactions": 5, "rows": 0,
             "changes": 7, "tables": 1, "seconds": 0.5}
        ],
        "warnings": [{"at_us": now, "level": "warning", "text": "shop.old is stopped: [b]DROP"}],
    }  # fmt: skip
    return Status.model_validate({**value, **more})


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'name = "shop"\n[source]\nurl = "mysql://u@127.0.0.1:1"\ntables = ["shop.*"]\n'
        f'[target]\npath = "{tmp_path / "lake"}"\n'
    )
    return file


def put(pipeline: Path, value: Status) -> None:
    ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox")).write("status.json", value.to_dict())


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["status", *args])
    return result.exit_code, result.stdout, result.stderr


def test_the_status_of_another_pipeline_is_refused(pipeline: Path) -> None:
    """The file is a copy with another name, and the same lake."""
    copy = pipeline.with_name("copy.toml")
    copy.write_text(pipeline.read_text().replace('"shop"', '"other"'))
    begun = {"pipeline": "shop", "batch": None}
    put(pipeline, status(**begun))
    assert run(str(copy))[0] == 0, "the lake belongs to none before the first batch"
    (batch,) = status().recent
    put(pipeline, status(batch=batch))
    assert run(str(pipeline))[0] == 0
    code, out, err = run(str(copy))
    assert (code, out) == (3, "")
    assert "belongs to pipeline 'shop', not to pipeline 'other'; choose another target.path or name" in err
    assert CliRunner().invoke(app, ["signal", str(copy), "pause-snapshot"]).exit_code == 3
    assert not ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox")).signals()


def test_plain_lines(pipeline: Path) -> None:
    put(pipeline, status())
    code, out, _ = run(str(pipeline))
    assert code == 0
    assert out.startswith("shop: idle, lag 1.2 s, at least 12 transactions behind, 1,234.5 changes/s, written ")
    assert "  shop.orders live: 4,000 changes, 10 rows read\n" in out
    assert "  shop.items snapshotting: 750,000 of about 2,000,000 rows (37 %), 3 of 8 chunks\n" in out
    assert "shop.old is stopped: [b]DROP" in out


def test_freshness_and_indexes(pipeline: Path) -> None:
    tables = {"shop.orders": {"state": "live", "changes": 4}}
    put(
        pipeline,
        status(
            freshness={"p50": 0.84, "p99": 2.1, "changes": 4}, tables=tables,
            activity={"phase": "waiting", "since_us": 0}, index={"tables_building": 1, "bytes_on_disk": 5_000_000},
            kafka={"messages": 1200, "bytes": 2_345_678, "seconds": 0.5},
        ),
    )  # fmt: skip
    code, out, _ = run(str(pipeline))
    assert code == 0
    assert "12 transactions behind, freshness p50 0.8 s, p99 2.1 s, 1,234.5 changes/s, written " in out
    assert "  building key indexes of 1 table, 5 MB on disk\n  Kafka has 1,200 messages of this run, 2.3 MB\n" in out
    assert "  shop.orders live: 4 changes\n" in out
    assert json.loads(run(str(pipeline), "--json")[1])["freshness"]["p99"] == 2.1


def test_files_and_requests(pipeline: Path) -> None:
    files = {"data": 12, "vectors": 3, "log": 1040, "bytes": 1_250_000}
    requests = {"seconds": 120.0, "put": 5, "get": 20, "list": 5, "delete": 1}
    put(pipeline, status(files=files, requests=requests, tables={"shop.orders": {"state": "live", "files": files}}))
    out = run(str(pipeline))[1]
    assert (
        "  files: 12 of data, 3 of deletion vectors, 1,040 of logs; 1.2 MB\n"
        "  requests: 7,200 PUT and LIST, 14,400 GET a day, as in the last 2 min 0 s\n"
        "  shop.orders live: 0 changes; 1,055 files, 1.2 MB\n"
    ) in out
    value = json.loads(run(str(pipeline), "--json")[1])
    assert (value["files"], value["requests"], value["tables"]["shop.orders"]["files"]) == (files, requests, files)


@pytest.mark.parametrize(
    ("more", "code", "line"),
    [
        ({"state": "running"}, 0, "shop: running"),
        ({"state": "stopped"}, 0, "shop: stopped, written "),
        ({"state": "failed", "error": "no grant"}, 1, "error: no grant"),
        ({"updated_us": 1}, 1, "shop: not running"),
        ({"tables": {"shop.a": {"state": "stale", "reason": "ALTER"}}}, 1, "shop.a stale: ALTER"),
        ({"tables": {"shop.a": {"state": "stopped"}}}, 1, "shop.a: see docs/runbook.md#stopped-table"),
        ({"tables": {"shop.a": {"state": "snapshotting"}}}, 0, "shop.a snapshotting: waits to be read"),
    ],
)
def test_exit_codes(pipeline: Path, more: dict[str, Any], code: int, line: str) -> None:
    put(pipeline, status(**more))
    exit_code, out, _ = run(str(pipeline))
    assert exit_code == code
    assert line in out


def reading() -> dict[str, Any]:
    """Its first batch is being read."""
    now = time.time_ns() // 1000 + 3_600_000_000
    table = {"first": 1, "last": 2, "chunks_estimate": 5, "rows_estimate": 500000, "table_rows_estimate": 1000000}
    doing = {
        "phase": "reading", "since_us": now - 4_000_000, "batch_id": 0, "tables": {"shop.big": table},
        "rows_estimate": 500000, "tasks": 3, "tasks_done": 1, "seconds_left": 7.0, "transactions": 0,
    }  # fmt: skip
    return {"state": "running", "updated_us": now, "activity": doing, "tables": {}, "lag": {}, "rows_per_second": 99.0}


def test_the_reading_of_a_batch_is_seen_before_it_is_done(pipeline: Path) -> None:
    put(pipeline, status(**reading()))
    code, out, _ = run(str(pipeline))
    assert code == 0
    assert out.startswith("shop: running, lag not known yet, 1,234.5 changes/s, 99 rows/s read, written ")
    figures = "about 500,000 rows, 1 of 3 tasks done, 4 s so far, about 7 s left"
    assert f"\n  reading shop.big (chunks 1–2 of 5)\n  {figures}\n" in out  # noqa: RUF001 - a range's dash
    assert "  shop.big snapshotting: 0 of about 1,000,000 rows (0 %)\n" in out
    code, out, _ = run(str(pipeline), "--json")
    doing = json.loads(out)["activity"]
    assert (doing["phase"], doing["tasks_done"], doing["rows_estimate"], doing["seconds_left"]) == (
        "reading", 1, 500000, 7.0,
    )  # fmt: skip


def test_a_run_that_is_gone_does_nothing(pipeline: Path) -> None:
    put(pipeline, status(**{**reading(), "updated_us": 1}))
    code, out, _ = run(str(pipeline))
    assert code == 1
    assert "reading" not in out
    assert "shop.big" not in out
    assert json.loads(run(str(pipeline), "--json")[1])["activity"] is None


def test_before_the_first_run(pipeline: Path) -> None:
    assert run(str(pipeline))[:2] == (1, f"shop: not running; no run has written to {pipeline.parent / 'lake'} yet\n")
    code, out, _ = run(str(pipeline), "--json")
    assert code == 1
    assert json.loads(out) == {"pipeline": "shop", "signals": [], "condition": "not running"}
    assert not (pipeline.parent / "lake").exists()


def test_json_is_the_file_and_the_condition(pipeline: Path) -> None:
    value = status()
    put(pipeline, value)
    code, out, _ = run(str(pipeline), "--json")
    assert code == 0
    assert json.loads(out) == {**value.to_dict(), "condition": "idle"}


def test_misuse(pipeline: Path) -> None:
    assert run("nowhere.toml")[0] == 2
    ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox")).write("status.json", {"v": 7})
    code, _, err = run(str(pipeline))
    assert code == 3
    assert "newer headgate" in err


def test_a_status_that_cannot_be_read(pipeline: Path) -> None:
    """It is an error; --watch shows it and goes on."""
    inbox = pipeline.parent / "lake" / "_headgate" / "inbox"
    (inbox / "status.json").mkdir(parents=True)
    problem = error_line(TargetError(f"{inbox} cannot be read: Is a directory"))
    assert run(str(pipeline)) == (3, "", f"error: {problem}\n")
    screen = Console(file=io.StringIO(), width=400, color_system=None)
    screen.print(_status._picture_now(ControlFolder(str(inbox)), "shop", "lake"))
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == f"shop: {problem}\n"
    assert json.loads(_status._json_problem("shop", TargetError(problem)))["condition"] == "unknown"


def test_the_picture_shows_names_as_they_are() -> None:
    tables = {"shop.[red]x": {"state": "stopped", "reason": "gone [b]"}}
    value = status(state="failed", error="no [b]grant", tables=tables)
    screen = Console(file=io.StringIO(), width=120, color_system=None)
    screen.print(_status._picture(_status._Seen(value, value.signals), "shop", "lake"))
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    for text in ("shop: failed", "no [b]grant", "shop.[red]x", "gone [b]", "5 transactions, 7 changes", "[b]DROP"):
        assert text in shown


def test_nothing_is_cut_on_a_narrow_terminal() -> None:
    name, reason = f"shop.{'long_name_' * 6}", f"gone: {'reason' * 20}"
    value = status(state="failed", error=f"no {'grant' * 30}", tables={name: {"state": "stopped", "reason": reason}})
    screen = Console(file=io.StringIO(), width=80, color_system=None)
    screen.print(_status._picture(_status._Seen(value, value.signals), "shop", "lake"))
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "…" not in shown
    cells = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert "".join(cell[1].strip() for cell in cells) == name
    assert "".join(cell[3].strip() for cell in cells).replace(" ", "") == reason.replace(" ", "")
    assert "grant" * 30 in shown.replace("\n", "")


def test_watching_loads_no_spark_and_ends_with_ctrl_c(pipeline: Path) -> None:
    put(pipeline, status())
    code = (
        "import sys; from headgate.cli import app\n"
        "try: app()\n"
        "finally: assert not {'pyspark', 'numba', 'starlette'} & set(sys.modules)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "status", str(pipeline), "--json", "--watch"],
        env={**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["condition"] == "idle"
        put(pipeline, status(state="stopped"))
        assert json.loads(process.stdout.readline())["condition"] == "stopped"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_signals_and_what_became_of_them(pipeline: Path) -> None:
    """Those that no batch has taken are read from the inbox; one of the same id is another, if it was sent later."""
    now = time.time_ns() // 1000
    answers = [
        {"id": "one", "type": "execute-snapshot", "state": "running", "tables": ["a.b", "a.c", "a.d"], "sent_us": 5,
         "at_us": now},
        {"id": "two", "type": "log", "state": "refused", "reason": "no [b]text", "at_us": now},
    ]  # fmt: skip
    put(pipeline, status(signals=answers))
    inbox = ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox"))
    submit(inbox, parse_signal({"id": "one", "type": "pause-snapshot"}), 5)
    submit(inbox, parse_signal({"id": "two", "type": "pause-snapshot"}), now)
    inbox.send_request("redo-1", Resnapshot(("a.b",), "x"))
    code, out, _ = run(str(pipeline))
    lines = [line for line in out.splitlines() if line.startswith("signal ")]
    assert [line.split(" ago: ")[1] for line in lines] == [
        "pause-snapshot", "execute-snapshot of a.b, a.c and 1 more", "log: no [b]text",
    ]  # fmt: skip
    assert [line.split()[1:3] for line in lines] == [["two", "sent"], ["one", "running"], ["two", "refused"]]
    value = json.loads(run(str(pipeline), "--json")[1])
    assert [one["state"] for one in value["signals"]] == ["sent", "running", "refused"]
    assert code == 0


def test_open_signals_are_shown_first(pipeline: Path) -> None:
    answers = [{"id": f"s{n}", "type": "log", "state": "done", "at_us": 1} for n in range(6)]
    put(pipeline, status(signals=[*answers, {"id": "x", "type": "execute-snapshot", "state": "taken", "at_us": 1}]))
    lines = [line for line in run(str(pipeline))[1].splitlines() if line.startswith("signal ")]
    assert [line.split()[1] for line in lines] == ["x", "s0", "s1", "s2", "s3"]


def test_signals_wait_for_the_first_run(pipeline: Path) -> None:
    inbox = ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox"))
    submit(inbox, parse_signal({"id": "one", "type": "pause-snapshot"}), time.time_ns() // 1000)
    code, out, _ = run(str(pipeline))
    first, second = out.splitlines()
    assert (code, "no run has written" in first, second.startswith("signal one sent ")) == (1, True, True)
    assert [one["id"] for one in json.loads(run(str(pipeline), "--json")[1])["signals"]] == ["one"]
    text = io.StringIO()
    Console(file=text, width=200).print(_status._picture(_status._read(inbox, "shop"), "shop", "lake"))
    assert "signal one sent " in text.getvalue()


def test_a_file_in_the_inbox_that_is_no_signal(pipeline: Path) -> None:
    put(pipeline, status())
    folder = pipeline.parent / "lake" / "_headgate" / "inbox" / "signals"
    folder.mkdir()
    (folder / "x.json").write_text("[1]")
    (folder / "y.json").write_text("{}")
    lines = [line for line in run(str(pipeline))[1].splitlines() if line.startswith("signal ")]
    texts = {line.split()[1]: line.split(" ago: ")[1] for line in lines}
    assert texts["y"] == "not a signal"
    assert texts["x"].startswith("not a signal: ")
    assert "None" not in "".join(lines)


@pytest.mark.parametrize(("state", "code"), [("excluded", 0), ("dropped", 0), ("stale", 1), ("stopped", 1)])
def test_a_table_whose_life_is_over_is_no_problem(pipeline: Path, state: str, code: int) -> None:
    put(pipeline, status(tables={"shop.t": {"state": state, "reason": "why"}}, warnings=[]))
    assert run(str(pipeline))[0] == code
