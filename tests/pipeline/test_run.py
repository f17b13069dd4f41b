"""How a run ends or goes on after a failure."""

from __future__ import annotations

import contextlib
import os
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from headgate import errors
from headgate.carrier import ControlFolder, Trouble, Waiting
from headgate.config import ConfigFile, PipelineConfig, SnapshotMode, SourceSettings, parse_config
from headgate.engine import find_error, spark_failure
from headgate.errors import (
    AccessError,
    BinlogPurgedError,
    ConfigError,
    ConnectionLostError,
    Definite,
    EngineError,
    HeadgateError,
    MissingExtraError,
    ServerSettingError,
    SparkFailedError,
    StorageError,
    TargetError,
    Transient,
)
from headgate.files import try_lock
from headgate.lake import PIPELINE, TABLE, Lake
from headgate.pipeline import (
    Pipeline,
    _checks,
    _files,
    check_interfaces,
    check_patterns,
    check_resnapshot,
    followed_tables,
    read_source,
)
from headgate.pipeline import _run as _pipeline
from headgate.pipeline._files import lake_lock
from headgate.pipeline._retry_budget import RetryBudget
from headgate.pipeline._run import _Run, rest_seconds
from headgate.sinks import BatchReport
from headgate.status import read_status
from tests.lake.tables import make_table
from tests.ui.status import put

LOST = ConnectionLostError("the connection ended")
LEAVES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadgateError)]
LEAVES = [kind for kind in LEAVES if not any(other is not kind and issubclass(other, kind) for other in LEAVES)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("watermark", ["signal-table", "lock"])
def test_a_comparison_reads_with_the_settings_of_its_watermarks(tmp_path: Path, watermark: str) -> None:
    """Locks of the snapshot have their waiting time, which is none of the comparison."""
    lines = f"""
        name = "shop"
        [source]
        url = "mysql://u@h"
        tables = ["shop.*"]
        signal_table = "shop.signals"
        watermark = "{watermark}"
        snapshot_locking_mode = "minimal"
        lock_wait_seconds = 3
        [target]
        path = "{tmp_path}"
    """
    read = read_source(parse_config(textwrap.dedent(lines)))._parsed("shop.orders")
    waits = 3 if watermark == "lock" else SourceSettings.model_fields["lock_wait_seconds"].default
    assert (read.watermark, read.lock_wait_seconds) == (watermark, waits)


def test_waits_grow_and_end() -> None:
    clock = Clock()
    budget = RetryBudget(300, clock)
    waits = []
    while True:
        budget.begin()
        clock.now += 5
        wait = budget.pause(LOST, moved=False)
        if wait is None:
            break
        waits.append(wait)
        clock.now += wait
    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert max(waits) == 60
    assert 300 <= clock.now - 105 < 300 + 65


def test_a_batch_or_a_long_life_makes_it_young_again() -> None:
    clock = Clock()
    budget = RetryBudget(300, clock)
    for _ in range(4):
        budget.begin()
        wait = budget.pause(LOST, moved=False)
    assert wait == 8
    assert budget.pause(LOST, moved=True) == 1
    assert budget.pause(LOST, moved=False) == 2
    budget.begin()
    clock.now += 1000  # nothing to do, but the planner would have failed earlier
    assert budget.pause(LOST, moved=False) == 1


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_a_run_does_with_each_error_what_its_marker_says(kind: type[HeadgateError]) -> None:
    assert issubclass(kind, Transient) is not issubclass(kind, Definite)
    assert (RetryBudget(300).pause(kind("x"), moved=True) is not None) is issubclass(kind, Transient)


def test_an_error_without_a_marker_is_not_retried() -> None:
    assert RetryBudget(300).pause(OSError(), moved=True) is None


def test_a_planner_that_failed_for_as_long_has_used_the_time_up() -> None:
    """Another query would retry as long again; with a batch that is read meanwhile, for ever."""
    budget = RetryBudget(300, Clock())
    assert budget.pause(LOST, moved=False, unplanned=299) == 1
    assert budget.pause(LOST, moved=True, unplanned=300) is None


def test_a_clock_that_steps_ahead_does_not_use_the_time_up(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def pause(_budget: RetryBudget, _error: BaseException, *, moved: bool, unplanned: float) -> None:
        counted.append((moved, unplanned))

    now = time.time
    monkeypatch.setattr(FakeRun, "until_end", lambda *_: LOST)
    monkeypatch.setattr(RetryBudget, "pause", pause)
    monkeypatch.setattr(ControlFolder, "trouble", lambda _: Trouble("gone", time.time_ns() // 1000, 7.0))
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    with pytest.raises(type(LOST)):
        Pipeline(file.config, file=file)._follow(None, None, [], False, [], None)  # type: ignore[arg-type]
    assert counted == [(False, 7.0)]


def test_no_budget_still_gives_one_more_try() -> None:
    budget = RetryBudget(0, Clock())
    assert budget.pause(LOST, moved=False) == 1
    assert budget.pause(LOST, moved=False) is None


FROM_A_WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "a.py", line 1, in write
    raise OSError: no
OSError: [Errno 28] No space left on device
\tat org.apache.spark.X: y
"""


WORKER_GONE = "[STREAM_FAILED] Query [id = 1] terminated with exception: {} SQLSTATE: XXKST"
STREAM_FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: the proxy failed: \
Traceback (most recent call last):
  File "a.py", line 1, in call
    return f(x)
           ~^^^
{}
 SQLSTATE: XXKST
"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "Job aborted\n  org.apache.spark.SparkException: Python worker failed to connect back.\n",
            EngineError,
            "connect",
        ),
        ("rpc: Cannot find endpoint: spark://CoarseGrainedScheduler@127.0.0.1:1", EngineError, "Cannot find endpoint"),
        ("\n  the disk is full\n at x.y", SparkFailedError, "Spark failed: the disk is full"),
        (
            FROM_A_WORKER,
            StorageError,
            "checkpoint or temporary files cannot be used: No space left on device; make room",
        ),
        (
            FROM_A_WORKER.replace("device\n\t", "device: '/lake/a/part-1.parquet'\n\t"),
            StorageError,
            "/lake/a/part-1.parquet cannot be used: No space left on device; make room on its disk",
        ),
        (
            FROM_A_WORKER.replace(
                "OSError: [Errno 28] No space left on device", "PermissionError: [Errno 13] No: '/a'"
            ),
            TargetError,
            "/a cannot be used: No; check what this user may do there, or choose another folder",
        ),
        (
            "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat a.b(C.java:1)",
            StorageError,
            "checkpoint or temporary files cannot be used: No space left on device; make room on its disk",
        ),
        (
            "java.io.FileNotFoundException: /tmp/blockmgr-1/0a/x (Read-only file system)\n\tat a.b(C.java:1)",
            TargetError,
            "/tmp/blockmgr-1/0a/x cannot be used: Read-only file system; its file system is mounted for reading only",
        ),
        (
            STREAM_FAILED.format("OSError: [Errno 116] Stale file handle: '/lake/a'"),
            StorageError,
            "/lake/a cannot be used: Stale file handle",
        ),
        (
            "java.io.IOException: Stale file handle\n\tat a.b(C.java:1)",
            StorageError,
            "cannot be used: Stale file handle",
        ),
        (STREAM_FAILED.format("TimeoutError: [Errno 110] Connection timed out"), SparkFailedError, "timed out"),
        (STREAM_FAILED.format("SystemExit: 143"), SparkFailedError, "Spark failed: SystemExit: 143"),
        (STREAM_FAILED.format("KeyboardInterrupt"), SparkFailedError, "Spark failed: KeyboardInterrupt"),
        (STREAM_FAILED.format("a.b.Odd: no"), SparkFailedError, "Spark failed: a.b.Odd: no"),
        (STREAM_FAILED.format("").split("  File")[0], SparkFailedError, "terminated with exception: the proxy failed:"),
        (
            textwrap.indent(STREAM_FAILED.format("ValueError: x"), "    "),
            SparkFailedError,
            "Spark failed: ValueError: x",
        ),
        ("", SparkFailedError, "Spark failed: without a message"),
        (WORKER_GONE.format("Connection reset"), EngineError, "for now: Connection reset"),
        (WORKER_GONE.format("").replace("  ", " "), EngineError, "for now: terminated with exception: SQLSTATE"),
        (
            "An error occurred while calling o219.load.\n: java.io.IOException: Stream closed\n\tat java.lang.A.b",
            EngineError,
            "for now: IOException: Stream closed",
        ),
    ],
)
def test_failures_of_spark_are_one_line(text: str, kind: type[HeadgateError], message: str) -> None:
    error = spark_failure(text, "checkpoint or temporary files")
    assert type(error) is kind
    assert message in str(error)
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)


def test_the_last_error_of_a_traceback_is_found_again() -> None:
    text = "Traceback\nheadgate.errors.ConnectError: no\nthen\nheadgate.errors.AccessError: wrong password\n  at java"
    error = find_error(text)
    assert isinstance(error, AccessError)
    assert str(error) == "wrong password"
    assert find_error("java.lang.Exception: headgate.errors.Unheard: no") is None


def test_tables_that_are_not_there() -> None:
    check_patterns(["shop.*", "!shop.x", "shop.a"], ["shop.a"])
    for regular in (r"shop\.orders", "shop.(a|b)", r"shop\..*"):
        with pytest.raises(ConfigError, match="patterns are globs, not regular expressions"):
            check_patterns([regular], [])
    with pytest.raises(ConfigError, match=r"no table shop\.b"):
        check_patterns(["shop.b", "shop.*"], ["shop.a"])
    with pytest.raises(ConfigError, match="no table on the server matches"):
        check_patterns(["shop.*"], [])


def test_tables_that_are_there_no_more() -> None:
    """A run that has followed them has to come to their DROP; one that is misspelt is still told."""
    assert check_patterns(["shop.*"], ["shop.a"], ["shop.a", "shop.b"]) == []
    assert check_patterns(["shop.a", "shop.b"], ["shop.a"], ["shop.b"]) == [
        "there is no table shop.b on the server, or the user has no SELECT on it"
    ]
    assert len(check_patterns(["shop.b"], [], ["shop.b"])) == 1
    assert "no table on the server matches" in check_patterns(["shop.*"], [], ["shop.b"])[0]
    with pytest.raises(ConfigError, match=r"no table shop\.c"):
        check_patterns(["shop.b", "shop.c"], [], ["shop.b"])


def test_a_lake_without_a_ledger_has_followed_no_tables(tmp_path: Path) -> None:
    assert list(followed_tables(Lake.at(tmp_path))) == []


TEXT = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["a.*"]\n[target]\npath = "/nowhere/lake"\n'


class FakeRun:
    """A query that ends when the configuration changes, or at once."""

    begun: ClassVar[list[tuple[str, ...]]] = []
    warned: ClassVar[list[int]] = []
    open: ClassVar[list[FakeRun]] = []

    def __init__(self, pipeline: Pipeline, *_: Any) -> None:
        self.begun.append(pipeline.config.source.tables)
        self.pipeline, self.writer, self.batches, self.superseded, self.ended = pipeline, self, 0, False, False
        self.open.append(self)

    def close(self) -> None:
        self.open.remove(self)

    def warn_of_stopped(self) -> None:
        self.warned.append(len(self.begun))

    def check_targets(self, _spark: Any, tables: list[str]) -> None:
        self.begun.append(tuple(tables))

    def resume(self) -> None:
        pass

    def until_end(self, _once: bool, _stop: Any, reloaded: Callable[[], bool]) -> None:
        self.superseded = reloaded()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigFile:
    path = tmp_path / "pipeline.toml"
    path.write_text(TEXT)

    def check(config: PipelineConfig) -> list[str]:
        if "x.*" in config.source.tables:
            raise ServerSettingError("x is not set up")
        return [f"{pattern}!" for pattern in config.source.tables]

    monkeypatch.setattr(_pipeline, "check_config", check)
    monkeypatch.setattr(_pipeline, "_Run", FakeRun)
    monkeypatch.setattr(_pipeline, "_courier", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(_pipeline, "image_folder", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(FakeRun, "begun", [])
    monkeypatch.setattr(FakeRun, "warned", [])
    monkeypatch.setattr(FakeRun, "open", [])
    return ConfigFile(path)


def test_a_changed_configuration_begins_another_query_with_its_tables(file: ConfigFile) -> None:
    pipeline = Pipeline(file.config, file=file)
    file.path.write_text(TEXT.replace('"a.*"', '"a.*", "b.*"'))
    pipeline._follow(None, None, ["a.*!"], False, [], None)  # type: ignore[arg-type]
    assert FakeRun.begun == [("a.*",), ("a.*!",), ("a.*", "b.*"), ("a.*!", "b.*!")]
    assert pipeline.config is file.config
    assert FakeRun.warned == [1], "what is stopped is said when the run begins"


@pytest.mark.parametrize(
    ("once", "ended", "batches", "idle", "completed"),
    [
        (True, True, 0, False, True),
        (True, False, 3, True, False),
        (False, False, 0, False, False),
        (False, False, 0, True, True),
        (False, False, 1, False, True),
    ],
)
def test_a_run_that_is_stopped_early_says_so(
    file: ConfigFile,
    monkeypatch: pytest.MonkeyPatch,
    once: bool,
    ended: bool,
    batches: int,
    idle: bool,
    completed: bool,
) -> None:
    class Run(FakeRun):
        def until_end(self, *_: Any) -> None:
            self.batches, self.ended = batches, ended
            self.pipeline.stop()

    monkeypatch.setattr(_pipeline, "_Run", Run)
    monkeypatch.setattr(_pipeline, "store_class_archive", lambda: None)
    since_us = time.time_ns() // 1000 + 10**9 if idle else 1
    monkeypatch.setattr(ControlFolder, "waiting", lambda _: Waiting(1, since_us, False))
    pipeline = Pipeline(file.config, file=file)
    status: Any = SimpleNamespace(warns=None)
    assert pipeline._follow(None, status, ["a.*"], once, [], None) is completed  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), EngineError("its JVM exited")])
def test_a_failure_of_spark_that_comes_before_the_signal_is_a_stop(
    file: ConfigFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One signal goes to all processes of a run, and Spark's may get it first."""

    class Stopping(threading.Event):
        signal = True

        def wait(self, timeout: float | None = None) -> bool:
            if self.signal:
                self.set()
            return self.is_set() if timeout else False

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(_pipeline, "build_session", fail)
    monkeypatch.setattr(_pipeline, "check_interfaces", lambda _: None)
    monkeypatch.setattr(_pipeline, "Lake", SimpleNamespace(of=lambda _: Lake.at(tmp_path / "lake")))
    pipeline = Pipeline(file.config, file=file)
    pipeline._stop = Stopping()
    assert pipeline.run() is False
    pipeline._stop = Stopping()
    pipeline._stop.signal = False
    with pytest.raises(type(error)):
        pipeline.run()


def test_a_store_that_does_not_answer_when_a_query_begins_is_asked_again(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a first query has to do is left out by the one that begins at last."""
    problems: list[list[HeadgateError | None]] = [
        [StorageError("no answer")], [None, StorageError("no answer")], [None, None, StorageError("no answer")],
        [None, None, None],
    ]  # fmt: skip
    done: list[str] = []

    class Run(FakeRun):
        ledger = SimpleNamespace(last=SimpleNamespace(epoch=1))

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.problems, self.inbox = problems.pop(0), self
            self.step()

        def step(self) -> None:
            problem = self.problems.pop(0)
            if problem is not None:
                raise problem

        def check_targets(self, *_: Any) -> None:
            self.step()

        def send_request(self, _name: str, request: Any) -> None:
            done.append(f"reads {request.tables}")

        def close(self) -> None:
            done.append("closed")

        def until_end(self, *_: Any) -> None:
            self.step()
            self.ended = True

    waits: list[float] = []
    monkeypatch.setattr(_pipeline, "_Run", Run)
    pipeline = Pipeline(file.config, snapshot_mode="always")
    monkeypatch.setattr(pipeline._stop, "wait", waits.append)
    status: Any = SimpleNamespace(tries_again=lambda error: done.append(str(error)), warns=None)
    assert pipeline._follow(None, status, ["a.*"], True, ["a.b"], None)  # type: ignore[arg-type]
    assert waits == [1, 2, 4]
    again = "no answer"
    assert done == [again, "closed", again, "reads ('a.*', 'a.b')", "closed", again, "closed"]
    assert Run.warned == [2, 3]
    problems.append([TargetError("not ours")])
    with pytest.raises(TargetError):
        pipeline._follow(None, status, ["a.*"], True, [], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("once", [True, False])
def test_only_a_run_that_is_to_end_ends_with_its_query(once: bool) -> None:
    """Spark ends a query without an error, too, if another program stops it, or its session ends."""
    run = _pipeline._Run.__new__(_pipeline._Run)
    run.superseded = run.ended = False
    query: Any = SimpleNamespace(awaitTermination=lambda _seconds: True)
    error = run._watch(query, once, threading.Event(), lambda: False)
    assert isinstance(error, EngineError) != once
    assert run.ended == once


class Purged:
    """Queries whose position the server has purged, some of them after a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *batches: int) -> None:
        self.left, self.forgotten, self.requests = list(batches), 0, [dict[str, Any]()]
        self.reload = False
        purged = self

        class Run(FakeRun):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                self.ledger = SimpleNamespace(last=SimpleNamespace(epoch=1))
                self.inbox = SimpleNamespace(
                    send_request=lambda _name, request: purged.requests.append(asdict(request))
                )

            def until_end(self, once: bool, *more: Any) -> BinlogPurgedError | None:  # type: ignore[override]
                purged.requests.append({"once": once})
                self.superseded = purged.reload and more[1]()
                if self.superseded:
                    return None
                if not purged.left:
                    return None
                self.batches = purged.left.pop(0)
                return BinlogPurgedError("purged")

        def forget(*_: Any) -> None:
            self.forgotten += 1

        monkeypatch.setattr(_pipeline, "_Run", Run)
        monkeypatch.setattr(_pipeline, "forget_position", forget)

    def follow(self, file: ConfigFile, mode: SnapshotMode) -> None:
        status: Any = SimpleNamespace(tries_again=lambda _error: None)
        Pipeline(file.config, snapshot_mode=mode)._follow(None, status, [], False, [], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["when_needed", "always"])
def test_a_purged_position_is_given_up_where_the_mode_says_so(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch, mode: SnapshotMode
) -> None:
    purged = Purged(monkeypatch, 0, 5, 3)
    purged.follow(file, mode)
    assert purged.forgotten == 3
    requests = [value for value in purged.requests if "tables" in value]
    assert requests == ([{"tables": ("a.*",), "reason": None}] if mode == "always" else [])


def test_a_purged_position_ends_a_run_that_gets_nowhere(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    purged = Purged(monkeypatch, 0, 0)
    with pytest.raises(BinlogPurgedError):
        purged.follow(file, "when_needed")
    assert purged.forgotten == 1
    for mode in ("initial", "no_data", "initial_only"):
        purged = Purged(monkeypatch, 4)
        with pytest.raises(BinlogPurgedError):
            purged.follow(file, mode)
        assert purged.forgotten == 0
        assert purged.requests[-1] == {"once": mode == "initial_only"}


def test_a_configuration_that_the_server_does_not_allow_is_refused(
    file: ConfigFile, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(file.config, file=file)
    before = pipeline.config
    file.path.write_text(TEXT.replace('"a.*"', '"a.*", "x.*"'))  # of another size: a clock may tick once in 10 ms
    assert not pipeline.reloaded()
    assert "is not followed: x is not set up" in caplog.text
    assert pipeline.config is file.config is before
    assert not pipeline.reloaded(), "until it changes again"
    pipeline.reload()
    assert not pipeline.reloaded()
    assert caplog.text.count("is not followed") == 2, "or a signal asks"


def test_a_changed_configuration_is_checked_again_when_the_server_is_back(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[list[str] | Exception] = [LOST, LOST, ["a.b"]]

    def check(_: PipelineConfig) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(_pipeline, "check_config", check)
    pipeline = Pipeline(file.config, file=file)
    file.path.write_text(TEXT.replace('"a.*"', '"a.*", "b.*"'))
    assert not pipeline.reloaded()
    assert not pipeline.reloaded()
    assert len(answers) == 2, "it waits a while"
    pipeline._recheck_at = 0.0
    assert not pipeline.reloaded()
    pipeline._recheck_at = 0.0
    assert pipeline.reloaded()
    assert caplog.text.count("the connection ended; it is checked again") == 1
    assert pipeline.config.source.tables == ("a.*", "b.*")


def test_a_changed_snapshot_mode_is_in_effect(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the one of the command line stays."""
    for mode, after in ((None, "when_needed"), ("no_data", "no_data")):
        file.path.write_text(TEXT)
        pipeline = Pipeline(parse_config(TEXT), file=ConfigFile(file.path), snapshot_mode=mode)  # type: ignore[arg-type]
        file.path.write_text(TEXT.replace("[target]", 'snapshot_mode = "when_needed"\nretry_seconds = 7\n[target]'))
        purged = Purged(monkeypatch)
        purged.reload, purged.left = True, [0]
        status: Any = SimpleNamespace(tries_again=lambda _error: None)
        with contextlib.nullcontext() if mode is None else pytest.raises(BinlogPurgedError):
            pipeline._follow(None, status, [], False, [], None)  # type: ignore[arg-type]
        assert pipeline.config.source.snapshot_mode == after
        assert pipeline.config.source.retry_seconds == 7
        assert purged.forgotten == (mode is None)


def test_a_mode_that_does_not_fit_the_file_is_refused() -> None:
    text = TEXT.replace("[target]", 'snapshot_mode = "no_data"\nstart = "earliest"\n[target]')
    with pytest.raises(ConfigError, match=r"^snapshot_mode when_needed: start is for snapshot_mode no_data"):
        Pipeline(parse_config(text), snapshot_mode="when_needed")


def test_what_is_read_again_is_named() -> None:
    check_resnapshot(["a.*", "!a.b"], ["a.b", "a.c"])
    with pytest.raises(ConfigError, match="only removes tables"):
        check_resnapshot(["!a.*"], ["a.b"])


def test_a_package_for_notifications_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(extra: str) -> None:
        raise MissingExtraError("confluent_kafka is not installed", extra=extra)

    monkeypatch.setattr(_checks, "require_extra", missing)
    check_interfaces(parse_config(TEXT))
    with pytest.raises(MissingExtraError):
        check_interfaces(parse_config(TEXT + '[notifications.kafka]\nbootstrap = "k:1"\ntopic = "t"\n'))


def test_a_request_has_the_file_read_again(file: ConfigFile) -> None:
    """Also where its size and time tell nothing, as on a file system with coarse times."""
    pipeline, looks = Pipeline(file.config, file=file), file.path.stat()
    file.path.write_text(TEXT.replace("a.*", "b.*"))
    os.utime(file.path, ns=(looks.st_atime_ns, looks.st_mtime_ns))
    assert not pipeline.reloaded()
    pipeline.reload()
    assert pipeline.reloaded()
    assert pipeline.config.source.tables == ("b.*",)


def test_a_hangup_that_comes_while_one_looks_is_not_forgotten(file: ConfigFile) -> None:
    class Interrupted(threading.Event):
        def is_set(self) -> bool:
            was_set = super().is_set()
            self.set()  # by a signal's handler
            return was_set

    pipeline, looks = Pipeline(file.config, file=file), file.path.stat()
    pipeline._reload = Interrupted()
    file.path.write_text(TEXT.replace("a.*", "b.*"))
    os.utime(file.path, ns=(looks.st_atime_ns, looks.st_mtime_ns))
    assert not pipeline.reloaded()
    assert pipeline.reloaded()


def test_without_a_file_nothing_is_reloaded() -> None:
    pipeline = Pipeline(parse_config(TEXT))
    pipeline.reload()
    assert not pipeline.reloaded()


def test_a_second_run_on_a_local_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    with (
        lake_lock(lake, "p"),
        pytest.raises(TargetError, match=f"is being written by process {os.getpid()}; stop it"),
        lake_lock(lake, "p"),
    ):
        pass
    with lake_lock(lake, "p"):
        pass


def test_a_run_on_the_lake_of_another_pipeline_leaves_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config(TEXT.replace("/nowhere/lake", str(tmp_path / "lake")))
    lake = Lake.of(config)
    make_table(lake.ledger, [], pa.schema({"id": pa.int32()}), {PIPELINE: "shop", TABLE: "_headgate.ledger"})
    inbox = ControlFolder(lake.inbox)
    before = put(inbox, state="stopped")
    monkeypatch.setattr(_pipeline, "check_config", lambda _: ["a.t"])
    with pytest.raises(TargetError, match="belongs to pipeline 'shop'"):
        Pipeline(config).run()
    assert read_status(inbox) == before


def test_a_run_waits_for_a_commit_of_maintain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    with ExitStack() as commit:
        commit.enter_context(try_lock(Path(lake.lock), shared=True))
        waits = replace(_files._LOCKED, sleep=lambda _: commit.close())
        monkeypatch.setattr(_files, "_LOCKED", waits)
        with lake_lock(lake, "p"):
            pass


def test_a_lake_elsewhere_has_no_lock(tmp_path: Path) -> None:
    lake = Lake((tmp_path / "lake").as_uri())
    with lake_lock(lake, "p"), lake_lock(lake, "p"):
        assert not lake.is_local


def test_a_run_without_a_right_to_the_lake_touches_no_images(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise TargetError("the lake belongs to another pipeline")

    monkeypatch.setattr(_pipeline, "_Run", refuse)
    monkeypatch.setattr(_pipeline, "image_folder", lambda *_: pytest.fail("the folder was opened"))
    with pytest.raises(TargetError, match="another pipeline"):
        Pipeline(file.config, file=file)._follow(None, None, [], False, [], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["_courier", "image_folder", "check_targets", "resume", "until_end"])
def test_the_writer_of_each_try_is_closed(file: ConfigFile, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Also if the try ended before its query began."""
    tries = []

    def fail(*_: Any, **__: Any) -> None:
        assert len(FakeRun.open) == 1
        tries.append(step)
        raise StorageError("the store does not answer") if len(tries) < 3 else TargetError("it refuses")

    monkeypatch.setattr(FakeRun if hasattr(FakeRun, step) else _pipeline, step, fail)
    monkeypatch.setattr(RetryBudget, "pause", lambda _self, error, **_: 0.0 if isinstance(error, Transient) else None)
    monkeypatch.setattr(ControlFolder, "trouble", lambda _: None)
    status = SimpleNamespace(tries_again=lambda _: None)
    with pytest.raises(TargetError, match="it refuses"):
        Pipeline(file.config, file=file)._follow(None, status, [], False, [], None)  # type: ignore[arg-type]
    assert (len(tries), FakeRun.open) == (3, [])


@pytest.mark.parametrize(
    ("freshness", "elapsed", "planned_before", "reads", "behind", "rest"),
    [
        (1.0, 0.2, 0.3, False, 0, 0.4),  # a row waits 0.3 + 0.4 + 0.3 s at most
        (1.0, 0.3, 0.2, False, 0, 0.4),  # the clock went back, or counts less than was measured
        (1.0, 0.5, 0.5, False, 0, 0.0),
        (1.0, 3.0, 3.1, False, 0, 0.0),
        (10.0, 1.0, 1.5, False, 0, 7.0),
        (10.0, 1.0, 1.5, False, None, 0.0),  # a log without GTIDs has more
        (10.0, 1.0, 1.5, False, 3, 0.0),
        (10.0, 1.0, 1.5, True, 0, 0.0),
        (10.0, 1.0, 86_400.0, False, 0, 0.0),  # planned by an earlier run
        (0.0, 0.2, 0.3, False, 0, 0.0),
    ],
)
def test_a_batch_waits_for_changes_only_as_long_as_the_next_one_is_in_time(
    freshness: float, elapsed: float, planned_before: float, reads: bool, behind: int | None, rest: float
) -> None:
    now = 1_800_000_000.0
    planned = round((now - planned_before) * 1e6)
    report = BatchReport(1, 1, "", {}, rows={"db.t": 1} if reads else {}, planned_us=planned, behind=behind)
    assert rest_seconds(report, freshness, elapsed, now) == pytest.approx(rest, abs=1e-3)


def test_a_run_that_ends_does_not_wait_for_changes() -> None:
    run: Any = _Run.__new__(_Run)
    run._ending, written = threading.Event(), list[int]()

    def write(_frame: None, batch: int) -> BatchReport:
        written.append(batch)
        return BatchReport(batch, batch, "", {}, planned_us=round(time.time() * 1e6))

    run._write, run.config = write, SimpleNamespace(source=SimpleNamespace(snapshot_share=1.0))
    run._freshness, entered = 0.2, list[str]()
    run._status = SimpleNamespace(rests=lambda: entered.append("resting"), plans=lambda: entered.append("planning"))
    begun = time.monotonic()
    run._batch(None, 1)
    assert time.monotonic() - begun >= 0.15
    assert entered == ["resting", "planning"]
    run._freshness = 600.0
    threading.Timer(0.1, run._ending.set).start()
    run._batch(None, 2)
    assert time.monotonic() - begun < 60
    assert written == [1, 2]
    run._freshness = 0.0
    run._batch(None, 3)
    assert entered == ["resting", "planning"] * 2, "without a pause there is none to be seen"
