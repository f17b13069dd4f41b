"""What ``verify`` prints, and its exit code, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import headgate.lake
import headgate.pipeline
from headgate.cli import _verify
from headgate.errors import ChunkRetryError, HeadgateError, UnsupportedError
from headgate.lake import Difference, Lake, LedgerRow, TableResult

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
STOPPED = TableResult("s.h", "stopped", remark="an ALTER")

UNDECIDED = (
    "2 tables could not be compared wholly: let the pipeline run, and verify again when they change less, or with"
    " binlog_row_image=FULL"
)


@pytest.mark.parametrize(
    ("results", "code", "last"),
    [
        ([EQUAL, LATER, WAITS], 0, ["all 2 tables are equal: 1,210 rows"]),
        ([EQUAL, WRONG], 1, ["1 of 2 tables differ, 0 are stopped or stale"]),
        ([EQUAL, STOPPED], 1, ["0 of 1 tables differ, 1 are stopped or stale"]),
        ([EQUAL, OPEN, NOT_READ], 1, [UNDECIDED]),
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
            "  different: id=1: v: source None, target 'x'", "  only in target: id=2",
        ]),
        (OPEN, [
            "s.d: 5 rows, equal as of u:1-5",
            "  2 more rows could not be compared: they changed, with partial row images, each time they were compared",
            "  undecided: a=1, b='x'",
        ]),
        (MOVED, [
            "s.e: 5 rows, equal as of u:1-5", "  1 more rows could not be compared: the table was altered",
            "  undecided: a=1",
        ]),
        (NOT_READ, ["s.f: undecided: a table without a key was written while it was read"]),
    ],
)  # fmt: skip
def test_a_table(result: TableResult, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _verify._print(result, "u:1-5")
    assert capsys.readouterr().out.splitlines() == lines


# --- when a newer ledger row is looked for


def row(epoch: int) -> LedgerRow:
    return LedgerRow(0, epoch, f"u:1-{epoch}", datetime.now(UTC), {})


class Ledger:
    """Gives one newer row at each look, as long as there are some; ``looks`` counts. Only waiting takes time."""

    def __init__(self, patch: pytest.MonkeyPatch, *, alive: bool, epochs: list[int]) -> None:
        self.looks, self.epochs, self.now = 0, epochs, 0.0
        status = SimpleNamespace(is_alive=lambda: alive)
        patch.setattr(headgate.lake, "find_row", self.find)
        patch.setattr(headgate.lake, "read_status", lambda _: status)
        patch.setattr(headgate.pipeline, "read_source", lambda *_: None)
        patch.setattr(_verify, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def find(self, *_: Any) -> LedgerRow:
        self.looks += 1
        return row(self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0])


SPARK: Any = None
LAKE = Lake.at("/nowhere")
CONFIG: Any = SimpleNamespace(target=SimpleNamespace(path="/nowhere"))


def test_a_newer_row_is_waited_for_while_the_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(monkeypatch, alive=True, epochs=[1, 1, 2])
    found = _verify._newer_row(SPARK, LAKE, row(1))
    assert (found and found.epoch, ledger.looks) == (2, 3)
    Ledger(monkeypatch, alive=False, epochs=[1, 2])
    assert _verify._newer_row(SPARK, LAKE, row(1)) is None
    Ledger(monkeypatch, alive=True, epochs=[1, 2])
    assert _verify._newer_row(SPARK, LAKE, row(1), wait=False) is None
    ledger = Ledger(monkeypatch, alive=True, epochs=[1])
    assert _verify._newer_row(SPARK, LAKE, row(1)) is None
    assert _verify._NEXT_BATCH_SECONDS <= ledger.now < _verify._NEXT_BATCH_SECONDS + 2


def failing(error: Exception, patch: pytest.MonkeyPatch) -> list[int]:
    """``verify_table`` fails; the epochs as of which it was asked."""
    asked: list[int] = []

    def verify(_: Any, __: Any, at: LedgerRow, *___: Any, **____: Any) -> TableResult:
        asked.append(at.epoch)
        raise error

    patch.setattr(headgate.lake, "verify_table", verify)
    return asked


def test_a_table_that_is_disturbed_is_tried_as_of_newer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And told as undecided in the end, so that the others are compared; an error that stays is raised."""
    asked = failing(ChunkRetryError("it was written", table="s.t"), monkeypatch)
    Ledger(monkeypatch, alive=False, epochs=[2, 3, 3])
    result, at = _verify._verified(SPARK, CONFIG, row(1), "s.t", 20)
    assert (asked, at.epoch) == ([1, 2, 3], 3)
    assert (result.state, result.remark) == ("undecided", "it was written")
    asked = failing(ChunkRetryError("it was written", table="s.t"), monkeypatch)
    Ledger(monkeypatch, alive=True, epochs=list(range(2, 100)))
    result, _ = _verify._verified(SPARK, CONFIG, row(1), "s.t", 20)
    assert (len(asked), result.state) == (_verify._TRIES, "undecided")
    asked = failing(UnsupportedError("a column", table="s.t"), monkeypatch)
    Ledger(monkeypatch, alive=True, epochs=[2, 2])
    with pytest.raises(HeadgateError, match="a column"):
        _verify._verified(SPARK, CONFIG, row(1), "s.t", 20)
    assert asked == [1, 2]
