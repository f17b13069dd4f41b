"""What ``verify`` prints, and its exit code, without Spark."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import headgate.compare
import headgate.lake
import headgate.pipeline
import headgate.status
from headgate import verification
from headgate.cli import _verify
from headgate.cli._progress import ProgressDisplay, VerifyView, _VerifyBar
from headgate.compare import Difference, TableResult
from headgate.config import PipelineConfig
from headgate.errors import ChunkRetryError, ConfigError, TargetError, UnsupportedError
from headgate.lake import PIPELINE, TABLE, Lake, LedgerRow, TableState
from tests.lake.tables import make_table

EQUAL = TableResult("s.a", "live", equal=1200)
LATER = TableResult("s.b", "live", equal=10, later=3, later_gtid="u:1-9")
WRONG = TableResult(
    "s.c", "live", equal=5, different=1, only_target=1, samples=(
        Difference("different", {"id": 1}, {"v": (None, "x")}), Difference("only in target", {"id": 2}),
    ),
)  # fmt: skip
OPEN = TableResult("s.d", "live", equal=5, undecided=2, undecided_keys=({"a": 1, "b": "x"},))
MOVED = TableResult("s.e", "live", equal=5, undecided=1, undecided_keys=({"a": 1},), remark="the table was altered")
NOT_READ = TableResult("s.f", "undecided", remark="a table without a key was written while it was read")
WAITS = TableResult("s.g", "snapshotting", remark="not compared: it is not complete yet")
SETTLES = TableResult("s.g", "settling", remark="not compared: it is not complete yet")
NEW = TableResult("s.g", "new", remark="not compared: the pipeline has not begun to read it")
FILTERED = TableResult("s.g", "filtered", remark="not compared: it has a condition")
SKIPPED = TableResult("s.g", "inexact", remark="not compared: skip leaves out inserts")
STOPPED = TableResult("s.h", "stopped", remark="an ALTER")
LEFT_OUT = TableResult("s.j", "excluded", remark="source.tables leaves it out")
DROPPED = TableResult("s.k", "dropped", remark="DROP TABLE k")

MORE = TableResult("s.i", "live", equal=5, different=9, more=31, remark="more than fit", samples=WRONG.samples[:1])

OPEN_LINE = "1 table could not be compared wholly; its line has the reason"
UNDECIDED = "2 tables could not be compared wholly; their lines have the reasons"


@pytest.mark.parametrize(
    ("results", "code", "last"),
    [
        ([EQUAL, LATER], 0, ["all 2 tables are equal: 1,210 rows"]),
        ([EQUAL, LATER, WAITS], 1, [OPEN_LINE]),
        ([EQUAL, SETTLES, NEW], 1, [UNDECIDED]),
        ([EQUAL, LATER, FILTERED, SKIPPED], 0, ["all 2 tables are equal: 1,210 rows; 2 not compared"]),
        ([EQUAL, LEFT_OUT, DROPPED], 0, ["1 table is equal: 1,200 rows; 2 not compared"]),
        ([FILTERED, DROPPED], 1, ["no table was compared"]),
        ([WRONG, NEW], 1, ["1 of 1 table differs, 0 are stopped or stale", OPEN_LINE]),
        ([EQUAL, WRONG], 1, ["1 of 2 tables differs, 0 are stopped or stale"]),
        ([EQUAL, MORE], 1, ["1 of 2 tables differs, 0 are stopped or stale"]),
        ([EQUAL, STOPPED], 1, ["0 of 1 table differ, 1 is stopped or stale"]),
        ([EQUAL, OPEN, NOT_READ], 1, [UNDECIDED]),
        ([EQUAL, NOT_READ], 1, [OPEN_LINE]),
    ],
)  # fmt: skip
def test_the_conclusion(
    results: list[TableResult], code: int, last: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _verify._conclude(results) == code
    assert capsys.readouterr().out.splitlines() == last


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (EQUAL, ["s.a: 1,200 rows, equal as of u:1-5"]),
        (LATER, ["s.b: 10 rows, equal as of u:1-5 (3 of them as of u:1-9 or before)"]),
        (WRONG, [
            "s.c: 6 rows as of u:1-5: 0 only in source, 1 only in target, 1 different",
            "  different: id=1: v: source NULL, target 'x'", "  only in target: id=2",
        ]),
        (OPEN, [
            "s.d: 5 rows, equal as of u:1-5",
            f"  2 more rows could not be compared: {_verify._CHANGED}",
            "  undecided: a=1, b='x'",
        ]),
        (MOVED, [
            "s.e: 5 rows, equal as of u:1-5", "  1 more rows could not be compared: the table was altered",
            "  undecided: a=1",
        ]),
        (MORE, [
            "s.i: at least 40 rows differ as of u:1-5, more than fit", "  different: id=1: v: source NULL, target 'x'",
        ]),
        (NOT_READ, ["s.f: undecided: a table without a key was written while it was read"]),
    ],
)  # fmt: skip
def test_a_table(result: TableResult, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    VerifyView().print(_verify._lines(result, "u:1-5"))
    assert capsys.readouterr().out.splitlines() == lines


def test_values_are_spelled_as_in_sql() -> None:
    values = {
        "at": (datetime(2026, 1, 2, 3, 4, 5, 60), datetime(2026, 1, 2)), "day": (date(2026, 1, 2), None),
        "price": (Decimal("1.50"), Decimal(2)), "data": (b"\x00\xff", b""), "text": ("it's", "x"), "n": (1, 2.5),
    }  # fmt: skip
    sample = Difference("different", {"day": date(1999, 1, 1)}, values)
    *_, line = _verify._lines(TableResult("s.t", "live", different=1, samples=(sample,)), "u:1")
    assert line == (
        "  different: day='1999-01-01': at: source '2026-01-02 03:04:05.000060', target '2026-01-02 00:00:00'; "
        "day: source '2026-01-02', target NULL; price: source 1.50, target 2; data: source x'00ff', target x''; "
        "text: source \"it's\", target 'x'; n: source 1, target 2.5"
    )


# --- when a newer ledger row is looked for


def row(epoch: int) -> LedgerRow:
    return LedgerRow(0, epoch, f"u:1-{epoch}", datetime.now(UTC), {"s.t": TableState("s.t", "live", epoch)})


class Ledger:
    """Gives one newer row at each look, as long as there are some; ``looks`` counts. Only waiting takes time."""

    def __init__(self, patch: pytest.MonkeyPatch, *, alive: bool, epochs: list[int]) -> None:
        self.looks, self.epochs, self.now = 0, epochs, 0.0
        status = SimpleNamespace(is_alive=lambda: alive)
        patch.setattr(headgate.lake, "newest_row", self.find)
        patch.setattr(headgate.status, "read_status", lambda _: status)
        patch.setattr(headgate.pipeline, "read_source", lambda *_: None)
        patch.setattr(verification, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        self.verification = verification.Verification(CONFIG, VerifyView(), 20)
        self.verification._row = row(1)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def find(self, *_: Any) -> LedgerRow:
        self.looks += 1
        return row(self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0])


COMPARER: Any = None
CONFIG = PipelineConfig.model_validate(
    {"name": "s", "source": {"url": "mysql://u@h", "tables": ["s.*"]}, "target": {"path": "/nowhere"}}
)


def test_rows_that_skip_keeps_are_no_differences() -> None:
    samples = tuple(Difference(kind, {"id": n}) for n, kind in enumerate(("different", "only in target")))
    result = TableResult("s.t", "live", 5, 1, 7, 2, samples).keeping_removed()
    assert (result.differences, result.removed, result.samples) == (3, 7, samples[:1])
    assert next(_verify._lines(result, "u:1")) == (
        "s.t: 8 rows as of u:1: 1 only in source, 0 only in target, 2 different, and 7 that MySQL removed (skip)"
    )
    more = replace(result, more=4).keeping_removed()
    assert (more.differences, more.undecided) == (3, 4), "they may be rows that are kept"
    equal = TableResult("s.t", "live", 5, 0, 1, 0).keeping_removed()
    assert [*_verify._lines(equal, "u:1")] == ["s.t: 5 rows, equal as of u:1, and 1 that MySQL removed (skip)"]


def test_a_newer_row_is_waited_for_while_the_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(monkeypatch, alive=True, epochs=[1, 1, 2])
    newer = ledger.verification._newer_row(row(1))
    assert (newer and newer.epoch, ledger.looks) == (2, 3)
    ledger = Ledger(monkeypatch, alive=False, epochs=[1, 2])
    assert ledger.verification._newer_row(row(1)) is None
    ledger = Ledger(monkeypatch, alive=True, epochs=[1, 2])
    assert ledger.verification._newer_row(row(1), wait=False) is None
    ledger = Ledger(monkeypatch, alive=True, epochs=[1])
    assert ledger.verification._newer_row(row(1)) is None
    assert verification._NEXT_BATCH_SECONDS <= ledger.now < verification._NEXT_BATCH_SECONDS + 2


def test_a_lake_without_a_ledger_is_not_yet_or_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for alive, text in ((True, "no ledger yet: a run is at its first batch"), (False, "no ledger: no pipeline has")):
        status = SimpleNamespace(is_alive=lambda alive=alive: alive)
        monkeypatch.setattr(headgate.status, "read_status", lambda _, status=status: status)
        with pytest.raises(ConfigError, match=text):
            verification.check_comparable(CONFIG)


def test_the_lake_of_another_pipeline_is_not_compared(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"target": CONFIG.target.model_copy(update={"path": str(tmp_path)})})
    owned = {PIPELINE: "shop", TABLE: "_headgate.ledger"}
    make_table(Lake.of(config).ledger, [], pa.schema({"id": pa.int32()}), owned)
    with pytest.raises(TargetError, match="belongs to pipeline 'shop'"):
        verification.check_comparable(config)


def failing(error: Exception, patch: pytest.MonkeyPatch) -> list[int]:
    """``verify_table`` fails; the epochs as of which it was asked."""
    epochs: list[int] = []

    def verify(_: Any, at: LedgerRow, *__: Any, **___: Any) -> TableResult:
        epochs.append(at.epoch)
        raise error

    patch.setattr(headgate.compare, "verify_table", verify)
    return epochs


def test_a_table_that_is_disturbed_is_tried_as_of_newer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And told as undecided in the end, so that the others are compared; an error that stays is raised."""
    epochs = failing(ChunkRetryError("it was written", table="s.t"), monkeypatch)
    ledger = Ledger(monkeypatch, alive=False, epochs=[2, 3, 3])
    result, at = ledger.verification._verified(COMPARER, "s.t")
    assert (epochs, at.epoch) == ([1, 2, 3], 3)
    assert (result.state, result.remark) == ("undecided", "it was written")
    assert ledger.verification._row.epoch == 3, "the next table begins with the newer row"
    epochs = failing(ChunkRetryError("it was written", table="s.t"), monkeypatch)
    ledger = Ledger(monkeypatch, alive=True, epochs=list(range(2, 100)))
    result, _ = ledger.verification._verified(COMPARER, "s.t")
    assert (len(epochs), result.state) == (verification._TRIES, "undecided")
    assert result.remark == f"each of {verification._TRIES} tries failed, the last one: it was written"
    epochs = failing(UnsupportedError("a column", table="s.t"), monkeypatch)
    ledger = Ledger(monkeypatch, alive=True, epochs=[2, 2])
    result, at = ledger.verification._verified(COMPARER, "s.t")
    assert (epochs, at.epoch, result.state, result.remark) == ([1, 2], 2, "undecided", "a column")
    epochs = failing(TargetError("a file", table="s.t"), monkeypatch)
    ledger = Ledger(monkeypatch, alive=True, epochs=[2, 2])
    with pytest.raises(TargetError, match="a file"):
        ledger.verification._verified(COMPARER, "s.t")
    assert epochs == [1, 2]


# --- how far it is


def test_how_far_it_is_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    view = VerifyView(clock=lambda: now)
    with caplog.at_level("INFO", "headgate"), view:
        view.begin({"s.a": 1000, "s.b": 3000, "s.c": 0})
        view.add("s.a", 1500)
        now = 109.0
        view.add("s.a", 500)
        view.done("s.a")
        assert caplog.messages == []
        now = 110.0
        view.add("s.b", 1000)
        assert caplog.messages == ["1 of 3 tables, 1,500 of about 4,000 rows, 75 rows/s, 33 s left"]
        view.add("s.b", 7000)
        view.add("s.c", 4000)
        view.done("s.c")
        now = 120.0
        view.done("s.b")
        assert caplog.messages[1:] == ["3 of 3 tables, 7,000 of about 7,000 rows, 312 rows/s, 0.0 s left"]


def test_no_speed_and_no_time_left_are_said_before_they_can_be_right(caplog: pytest.LogCaptureFixture) -> None:
    """At first kernels are loaded, or compiled for a minute: the first rows tell nothing of the others."""
    now = 0.0
    view = VerifyView(clock=lambda: now)
    with caplog.at_level("INFO", "headgate"), view:
        view.begin({"s.a": 140_000})
        now = 60.0
        view.add("s.a", 2 * 1_700)
        now = 70.0
        view.add("s.a", 2 * 68_300)
    assert caplog.messages == [
        "0 of 1 table, 1,700 of about 140,000 rows",
        "0 of 1 table, 70,000 of about 140,000 rows, 6,830 rows/s, 10 s left",
    ]


def test_a_table_that_appears_meanwhile_has_no_bar() -> None:
    progress = ProgressDisplay({"a.b": 1})
    progress.add("a.b", 1)
    progress.add("a.c", 5)
    assert [task.completed for task in progress._progress.tasks] == [1]


def test_how_far_it_is_on_a_terminal() -> None:
    """A bar below what is printed, and nothing of it in the end."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with _VerifyBar(console) as view:
        view.begin({"s.a": 1000, "s.b": 3000})
        view.add("s.a", 2000)
        view.done("s.a")
        view.print([f"s.a: 1,000 rows, equal as of {'u:1-5,' * 30}"])
        view._progress.refresh()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert f"s.a: 1,000 rows, equal as of {'u:1-5,' * 30}\n" in text, "on one line, whatever the terminal makes of it"
    assert re.search(r"1 of 2 tables .* 1,000 of about 4,000 rows", text)
