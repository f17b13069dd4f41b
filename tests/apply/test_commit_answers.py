"""Commits of each kind of table whose answers are lost, late or wrong: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from headgate.delta import CommitPlan, Snapshot, TableLog
from headgate.delta import _commit as commit_module
from headgate.delta._commit import CommitOutcome
from headgate.errors import CommitConflictError, CommitUnknownError
from headgate.lake import append_rows
from headgate.stores._folder import _StoreFolder
from headgate.upkeep import UpkeepTimes
from headgate.upkeep._file_removal import FileRemover
from tests.apply.commit_kinds import (
    KINDS,
    Kind,
    Scene,
    as_file_uri,
    create,
    fold,
    ledger,
    merged,
    rows,
    upsert,
    without_spark,
)
from tests.delta.answers import Answer, Faulty

Answers = Callable[[Sequence[Answer]], Faulty]
SETTLED = [[answer] for answer in Answer] + [[Answer.LOST_BEFORE, Answer.LATE, Answer.EXISTS_AFTER]]


@pytest.fixture(params=["local", "store"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    without_spark(monkeypatch)
    monkeypatch.setattr(commit_module, "_RETRY", replace(commit_module._RETRY, first_seconds=0.0))
    return Scene(tmp_path, str if request.param == "local" else as_file_uri)


@pytest.fixture
def answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Answer]], Faulty]:
    """Have commits answered like this from now on."""

    def begin(answers: Sequence[Answer]) -> Faulty:
        if scene.uri is str:
            faulty = Faulty(os.link, answers)
            monkeypatch.setattr(os, "link", faulty)
            return faulty
        faulty = Faulty(_StoreFolder._put_new, answers)
        monkeypatch.setattr(_StoreFolder, "_put_new", partialmethod(faulty))
        return faulty

    return begin


@pytest.mark.parametrize("answers", SETTLED, ids=lambda answers: "-".join(one.name for one in answers))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_commit_is_made_once_whatever_is_answered(
    scene: Scene, answer: Answers, kind: Kind, answers: Sequence[Answer]
) -> None:
    work, expected = kind(scene)
    before = TableLog(scene.uri(scene.path)).refresh().version
    faulty = answer(answers)
    work()
    faulty.arrive()
    scene.check_known()
    assert not faulty.answers
    assert scene.read() == expected
    assert TableLog(scene.uri(scene.path)).refresh().version == before + 1
    scene.check_files(whole=True)
    work()
    assert scene.read() == expected, "also if the batch is repeated"
    scene.check_files(whole=True)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_is_deleted_while_the_outcome_is_unknown(
    scene: Scene, answer: Answers, kind: Kind, arrives: bool
) -> None:
    """A request to a store may arrive long after that; a link to a temporary file that is gone may not."""
    work, expected = kind(scene)
    faulty = answer([Answer.LOST_BEFORE] * 5 + [Answer.LATE if arrives else Answer.LOST_BEFORE])
    with pytest.raises(CommitUnknownError, match="it is unknown whether version"):
        work()
    if arrives and scene.uri is not str:
        faulty.arrive()
        assert scene.read() == expected
        scene.check_files(whole=False)
    work()
    assert scene.read() == expected
    scene.check_files(whole=False)
    keeper = FileRemover(scene.uri(scene.path), UpkeepTimes(listing=0.0, orphan=-60.0))
    for _ in (*keeper.follow(0), *keeper.clean(0, time.time())):
        pass
    assert scene.read() == expected
    scene.check_files(whole=True)


@pytest.mark.parametrize("kind", KINDS[3:], ids=lambda kind: kind.__name__)
def test_a_request_that_arrives_while_the_run_retries(scene: Scene, answer: Answers, kind: Kind) -> None:
    if scene.uri is str:  # a link does not arrive later
        return
    work, expected = kind(scene)
    answer([Answer.LOST_BEFORE] * 5 + [Answer.LATE])
    with pytest.raises(CommitUnknownError):
        work()
    work()
    assert scene.read() == expected
    scene.check_files(whole=False)


def test_another_programs_commit_is_a_conflict_and_only_then_files_go(scene: Scene, answer: Answers) -> None:
    work, expected = upsert(scene)
    faulty = answer([])
    others: list[Snapshot] = []
    link = faulty._create

    def overtaken(*request: Any) -> None:
        if not others:
            others.append(TableLog(scene.uri(scene.path)).refresh())
            faulty._create = link
            scene.delta().set_properties({"headgate.since": "3"})
        link(*request)

    faulty._create = overtaken
    work()
    assert scene.read() == expected
    assert TableLog(scene.uri(scene.path)).refresh().version == 2
    scene.check_files(whole=True)


REPLANNED = [kind for kind in KINDS if kind not in (create, fold, ledger, merged)]
"""Kinds of commits to an existing table that are planned again after a conflict."""


@pytest.mark.parametrize("kind", REPLANNED, ids=lambda kind: kind.__name__)
def test_a_table_that_is_replaced_meanwhile_gets_no_gap_in_its_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """The next version is free in the shorter log, so only a look at the version before it shows that it is another."""
    work, expected = kind(scene)
    log = scene.path / "_delta_log"
    first = {file.name: file.read_bytes() for file in log.iterdir()}
    for number in ("5", "4"):
        scene.delta().set_properties({"headgate.since": number})
    make, replaced = commit_module._make, list[str]()

    def replace_first(folder: str, plan: CommitPlan) -> CommitOutcome:
        if not replaced and folder == scene.uri(scene.path):
            replaced.append(folder)
            for file in log.iterdir():
                file.unlink()
            for name, content in first.items():
                (log / name).write_bytes(content)
        return make(folder, plan)

    monkeypatch.setattr(commit_module, "_make", replace_first)
    work()
    assert replaced
    numbers = sorted(int(file.name[:20]) for file in log.iterdir() if file.name.endswith(".json"))
    assert numbers == list(range(len(numbers)))
    assert scene.read() == expected


def test_rows_that_are_refused_leave_no_file(scene: Scene, answer: Answers) -> None:
    """The ledger's: of two programs that append to one version one is refused."""
    scene.make(rows(1, (1, 0)))
    faulty = answer([])
    link = faulty._create

    def overtaken(*request: Any) -> None:
        faulty._create = link
        scene.delta().set_properties({"headgate.since": "3"})
        link(*request)

    faulty._create = overtaken
    with pytest.raises(CommitConflictError, match="another program committed version"):
        append_rows(scene.delta(), [(2, 0, None)], "", at=0)
    assert scene.read() == [(1, 0)]
    scene.check_files(whole=True)
