"""What ``verify`` prints, and its exit code, without Spark."""

from __future__ import annotations

import pytest

from headgate.cli import _verify
from headgate.lake import Difference, TableResult

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
