"""``headgate forget``: what it refuses, what it sends, and what it deletes."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import app
from headgate.lake import LedgerRow, Place, TableState
from headgate.status import Status, pid_namespace

STATES = {
    "shop.orders": TableState("shop.orders", "live", version=3),
    "shop.stopped": TableState("shop.stopped", "stopped", version=3),
    "shop.old": TableState("shop.old", "dropped", version=3, changelog_version=2),
    "shop.named": TableState("shop.named", "dropped", version=3),
    "shop.part": TableState("shop.part", "dropped", version=3, place=Place("other.all", shard="a")),
    "shop.new": TableState("shop.new", "dropped"),
    "other.t": TableState("other.t", "excluded", version=1),
}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'name = "shop"\n[source]\nurl = "mysql://u@127.0.0.1:1"\ntables = ["shop.*", "shop.named"]\n'
        f'[target]\npath = "{tmp_path / "lake"}"\n'
    )

    def newest_row(_: object) -> LedgerRow:
        forgotten = {name for one in inbox(file).signals().values() for name in one["data"]["data-collections"]}
        states = {name: state for name, state in STATES.items() if re.escape(name) not in forgotten}
        return LedgerRow(1, 9, "u:1", None, states)  # type: ignore[arg-type]

    monkeypatch.setattr("headgate.lake.newest_row", newest_row)
    monkeypatch.setattr("headgate.cli._outcome.time.sleep", lambda _: None)
    return file


def inbox(pipeline: Path) -> ControlFolder:
    return ControlFolder(str(pipeline.parent / "lake" / "_headgate" / "inbox"))


def run(*args: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["forget", *args], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def running(monkeypatch: pytest.MonkeyPatch, state: str, reason: str | None = None) -> None:
    """A pipeline runs, and each signal is in this state."""

    def read(folder: ControlFolder) -> Status:
        now = time.time_ns() // 1000
        answers: list[dict[str, Any]] = [
            {"id": one["id"], "type": one["type"], "state": state, "reason": reason, "sent_us": one["submitted_us"],
             "at_us": now, "tables": ["shop.old"]}
            for one in folder.signals().values()
        ]  # fmt: skip
        return Status.model_validate(
            {"pipeline": "shop", "pid": os.getpid(), "host": platform.node(), "pid_namespace": pid_namespace(),
             "started_us": now, "updated_us": now, "state": "idle", "signals": answers}
        )  # fmt: skip

    monkeypatch.setattr("headgate.status.read_status", read)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("old", "old is no table's name: write db.table"),
        ("shop.what", "has no table shop.what; it has other.t, shop.named, shop.new, shop.old, shop.orders and 2"),
        ("shop.orders", 'the pipeline follows it: leave it out first ("!shop.orders"), then repeat'),
        ("shop.stopped", "shop.stopped is in source.tables"),
        ("shop.named", "shop.named is in source.tables"),
        ("shop.part", "the rows of shop.part are part of other.all in the lake"),
    ],
)
def test_what_is_refused_at_once(pipeline: Path, table: str, problem: str) -> None:
    code, out, err = run(str(pipeline), table)
    assert (code, out) == (2, "")
    assert problem in err
    assert inbox(pipeline).signals() == {}


def test_the_pipeline_forgets_it(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, "done")
    assert run(str(pipeline), "shop.old") == (0, "done: forget-table of shop.old\n", "")
    (signal,) = inbox(pipeline).signals().values()
    assert (signal["type"], signal["data"]) == ("forget-table", {"data-collections": [r"shop\.old"]})


def test_it_waits_for_a_run(pipeline: Path) -> None:
    code, out, err = run(str(pipeline), "other.t")
    assert (code, out) == (0, "")
    assert "pipeline shop is not running; it forgets other.t with the first batch of its next run" in err
    assert len(inbox(pipeline).signals()) == 1


def test_a_pipeline_that_refuses(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, "refused", "it is live")
    (pipeline.parent / "lake" / "shop" / "old").mkdir(parents=True)
    code, out, _ = run(str(pipeline), "shop.old", "--delete-data", "--yes")
    assert (code, out) == (1, "refused: forget-table of shop.old: it is live\n")
    assert (pipeline.parent / "lake" / "shop" / "old").is_dir()


@pytest.mark.parametrize("answer", ["y\n", "n\n", None])
def test_data_are_deleted_after_a_question(pipeline: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    running(monkeypatch, "done")
    folders = [pipeline.parent / "lake" / "shop" / "old", pipeline.parent / "lake" / "_changelog" / "shop" / "old"]
    for folder in folders:
        (folder / "_delta_log").mkdir(parents=True)
        (folder / "_delta_log" / "0.json").write_text("{}")
        (folder / "a.parquet").write_text("x")
    yes = ["--yes"] if answer is None else []
    code, out, _ = run(str(pipeline), "shop.old", "--delete-data", *yes, stdin=answer)
    deleted = answer != "n\n"
    assert ([folder.exists() for folder in folders], code) == ([not deleted] * 2, 0 if deleted else 1)
    assert (f"deleted: {folders[1]}" in out) == deleted
    assert bool(inbox(pipeline).signals()) == deleted


def test_data_of_a_table_that_came_back_are_not_deleted(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline forgot it, and follows a new table of this name, in the same folder, before the deletion."""
    running(monkeypatch, "done")
    row = LedgerRow(2, 10, "u:2", None, STATES)  # type: ignore[arg-type]
    monkeypatch.setattr("headgate.lake.newest_row", lambda _: row)
    folder = pipeline.parent / "lake" / "shop" / "old"
    (folder / "_delta_log").mkdir(parents=True)
    code, out, err = run(str(pipeline), "shop.old", "--delete-data", "--yes")
    assert (code, out) == (1, "done: forget-table of shop.old\n")
    assert "shop.old has come back meanwhile, as a new table: nothing is deleted" in err
    assert folder.is_dir()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_question_without_an_answer_deletes_nothing(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    running(monkeypatch, "done")
    monkeypatch.setattr("headgate.cli._forget.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: terminal)))
    code, _, err = run(str(pipeline), "shop.old", "--delete-data", stdin="")
    assert (code, "add --yes" in err) == (1, not terminal)
    assert inbox(pipeline).signals() == {}


def test_a_folder_that_is_gone_counts_as_deleted(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, "done")
    folder = pipeline.parent / "lake" / "shop" / "old"
    (folder / "_delta_log").mkdir(parents=True)
    code, out, err = run(str(pipeline), "shop.old", "--delete-data", "--yes")
    gone = pipeline.parent / "lake" / "_changelog" / "shop" / "old"
    assert (code, out.splitlines()[1:], err) == (0, [f"deleted: {folder}", f"deleted: {gone}"], "")


def test_a_table_without_a_version_has_no_folders(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, "done")
    assert run(str(pipeline), "shop.new", "--delete-data")[:2] == (
        0,
        "done: forget-table of shop.old\nno folders to delete\n",
    )


@pytest.mark.parametrize(("error", "code"), [(PermissionError(13, "Permission denied"), 3), (KeyboardInterrupt(), 1)])
def test_folders_that_a_failed_deletion_leaves_are_named(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    running(monkeypatch, "done")
    deleted: list[str] = []

    def delete(folder: str, **_: object) -> None:
        if deleted:
            raise error
        deleted.append(folder)

    monkeypatch.setattr("shutil.rmtree", delete)
    ended, out, err = run(str(pipeline), "shop.old", "--delete-data", "--yes")
    left = pipeline.parent / "lake" / "_changelog" / "shop" / "old"
    assert (ended, out.splitlines()[1:]) == (code, [f"deleted: {deleted[0]}"])
    assert f"what is left of {left} can be removed by hand" in err


def test_folders_of_a_table_that_was_forgotten_are_named(pipeline: Path) -> None:
    lake = pipeline.parent / "lake"
    for name in ("other/gone", "other/all", "shop/begun"):
        (lake / name / "_delta_log").mkdir(parents=True)
    code, _, err = run(str(pipeline), "other.gone", "--delete-data")
    assert (code, f"has no table other.gone; {lake / 'other' / 'gone'} can be removed by hand" in err) == (2, True)
    assert "by hand" not in run(str(pipeline), "other.all")[2], "shop.part is in it"
    assert "by hand" not in run(str(pipeline), "shop.begun")[2], "its first batch may be under way"


def test_an_interrupt_ends_the_waiting_with_1(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    running(monkeypatch, "taken")
    monkeypatch.setattr("headgate.cli._outcome.time.sleep", interrupt)
    code, _, err = run(str(pipeline), "shop.old")
    assert (code, "is still under way" in err) == (1, True)


def test_data_are_deleted_only_beside_a_run(pipeline: Path) -> None:
    code, _, err = run(str(pipeline), "shop.old", "--delete-data", "--yes")
    assert (code, "--delete-data needs pipeline shop to run" in err) == (2, True)
    assert inbox(pipeline).signals() == {}
