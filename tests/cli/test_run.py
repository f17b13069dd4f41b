"""What ``headgate run`` does around the pipeline, which is another one here: it loads, logs, and reloads."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import pkgutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import app
from headgate.preload import PRELOAD, preload

TEXT = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["a.*"]\n[target]\npath = "/nowhere/lake"\n'
Run = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Run a pipeline file with this at the end of it; ``work`` gets the pipeline in place of a run of it."""
    file, root = tmp_path / "p.toml", logging.getLogger("headgate")
    logs = [(one, one.handlers[:], one.level, one.propagate) for one in (root, root.getChild("notifications"))]

    def run(more: str = "", work: Callable[[Pipeline], object] = id, start: Callable[[], object] = int) -> int:
        class Made(Pipeline):
            def run(self, **_: Any) -> bool:
                work(self)
                return self.completed

        @contextlib.contextmanager
        def started(*_: Any) -> Iterator[None]:
            start()
            yield

        file.write_text(TEXT + more)
        monkeypatch.setattr("headgate.pipeline.Pipeline", Made)
        monkeypatch.setattr("headgate.engine.prestart_session", started)
        return app(["run", str(file)], standalone_mode=False) or 0

    yield run
    gc.unfreeze()
    for log, handlers, level, propagate in logs:
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


class Pipeline:
    """Counts how often its file is to be read again."""

    completed, unread = True, ""

    def __init__(self, config: Any, **_: Any) -> None:
        self.config, self.reloads = config, 0

    def reload(self) -> None:
        self.reloads += 1


def test_garbage_is_not_collected_while_modules_load(command: Run) -> None:
    """What follows collects, even if that failed, and leaves alone what was loaded."""

    def fail_to_load() -> None:
        assert not gc.isenabled()
        raise ImportError

    with contextlib.suppress(ImportError):
        command(start=fail_to_load)
    assert gc.isenabled()
    assert gc.get_freeze_count()


@pytest.mark.parametrize(
    ("unread", "error"),
    [
        ("", "stopped before anything was applied; run it again"),
        ("d.t: waiting to be read; start again", "d.t: waiting to be read; start again"),
    ],
)
def test_a_run_that_leaves_tables_to_read_says_so(
    command: Run, capsys: pytest.CaptureFixture[str], unread: str, error: str
) -> None:
    def leave(pipeline: Pipeline) -> None:
        pipeline.completed, pipeline.unread = False, unread

    assert command(work=leave) == 3
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {error}"


def test_what_a_run_preloads_is_a_function() -> None:
    """By name: Spark starts before that room is loaded."""
    assert pkgutil.resolve_name(PRELOAD) is preload


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_notifications_are_logged_beside_the_live_view(
    command: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    command("[notifications]\nlog = true\n")
    logging.getLogger("headgate.notifications").debug("a line")
    assert capsys.readouterr().err == "a line\n"


@pytest.mark.parametrize(("before", "reloads"), [(signal.SIG_DFL, 1), (signal.SIG_IGN, 0)], ids=["plain", "nohup"])
def test_hangup_has_the_file_read_again(command: Run, before: Any, reloads: int) -> None:
    seen = []

    def hang_up(pipeline: Pipeline) -> None:
        signal.raise_signal(signal.SIGHUP)
        seen.append(pipeline.reloads)

    present = signal.signal(signal.SIGHUP, before)
    try:
        assert command(work=hang_up) == 0
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, present)
    assert seen == [reloads]
