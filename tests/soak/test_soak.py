"""What the judge of the soak reads, and its page."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from headgate_testing import MySQLServer
from tests.figures import entries
from tests.soak._history import Change, GtidSet, History, Rows
from tests.soak._page import PAGE, page
from tests.soak.program import lying

ROOT = Path(__file__).parents[2]
FIRST, SECOND, THIRD = (
    f"SET @@SESSION.GTID_NEXT= '3e11fa47-71ca-11e1-9e33-c80aa9429562:{n}'/*!*/;\n" for n in (1, 2, 3)
)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
INSERT = "### INSERT INTO `bank`.`journal`\n### SET\n###   @1=1\n###   @2=-2 (4294967294)\n###   @3=5\n"
UPDATE = (
    INSERT.replace("INSERT INTO", "UPDATE").replace("SET", "WHERE") + "### SET\n###   @1=1\n###   @2=0\n###   @3=5\n"
)


def history(*parts: str) -> History:
    read = History()
    read.read("".join(parts).splitlines(keepends=True))
    return read


def test_the_history_has_the_rows_as_of_each_set() -> None:
    read = history(FIRST, INSERT, SECOND, UPDATE)
    assert read.advance(f"{UUID}:1") == {"journal"}
    assert read.state["journal"] == Rows([(1, -2, 5)])
    read.advance(f"{UUID}:1-2")
    assert read.state["journal"] == Rows([(1, 0, 5)])
    assert read.transactions[1].changes == {"journal": [Change("u", (1, -2, 5), (1, 0, 5))]}


def test_a_set_that_lacks_an_earlier_transaction_is_no_moment() -> None:
    read = history(FIRST, INSERT, SECOND, UPDATE, THIRD, INSERT)
    with pytest.raises(AssertionError, match="was committed before"):
        read.advance(f"{UUID}:1:3")


def test_sets_of_several_servers() -> None:
    gtids = GtidSet(f"{UUID}:1-3:7,\n{UUID[:-1]}3:5")
    assert [gtids.has(f"{UUID}:{n}") for n in (1, 3, 4, 7)] == [True, True, False, True]
    assert gtids.has(f"{UUID[:-1]}3:5")
    assert not gtids.has(f"{UUID[:-1]}4:5")


def test_mysqlbinlog_prints_what_the_history_reads() -> None:
    with MySQLServer.start() as server:
        first = server.new_log_file()
        server.execute(
            "CREATE DATABASE bank",
            "CREATE TABLE bank.churn (id INT PRIMARY KEY, v INT, note TEXT, d DECIMAL(12,3), at DATETIME(6))",
            "INSERT INTO bank.churn VALUES (-1, NULL, 'a ''é''\\n\\\\', -1.5, '2026-01-02 03:04:05.000006')",
            "UPDATE bank.churn SET id = 2",
            "DELETE FROM bank.churn",
        )
        read = History()
        read.read(server.printed_log(first))
        changes = [change for one in read.transactions for change in one.changes.get("churn", [])]
        row = (-1, None, "a 'é'\n\\", Decimal("-1.500"), datetime(2026, 1, 2, 3, 4, 5, 6))
        assert changes == [Change("c", None, row), Change("u", row, (2, *row[1:])), Change("d", (2, *row[1:]), None)]
        read.advance(server.gtid_executed)
        assert not read.state["churn"]


@pytest.mark.parametrize(("share", "lies"), [("0", False), ("1", True), ("1 link", True), ("1 fsync", False)])
def test_a_chosen_call_lies(tmp_path: Path, share: str, lies: bool) -> None:
    (tmp_path / "share").write_text(share)
    (tmp_path / "one").touch()
    link = lying(os.link, tmp_path / "share", [errno.EEXIST], [errno.ENOSPC])
    answers = {_answer(link, tmp_path / "one", tmp_path / name) for name in map(str, range(100))}
    assert answers == ({(errno.EEXIST, True), (errno.ENOSPC, False)} if lies else {(None, True)})


def _answer(link: Callable[..., None], one: Path, other: Path) -> tuple[int | None, bool]:
    """Return the error of a link, and whether it was made."""
    error = None
    try:
        link(one, other)
    except OSError as raised:
        error = raised.errno
    return error, other.exists()


def test_the_page_has_the_figures() -> None:
    text = (ROOT / PAGE).read_text()
    assert text == page(text, entries(ROOT / "benchmarks/results/soak.json")), "python -m tests.soak --page writes it"


def test_the_page_adds_up_over_commits() -> None:
    entry = {"seconds": 120, "faults": {"kill": 2}, "judged": {"changes": 1000}, "kills": {"java": 2}, "failures": 0}
    text = page("# Soak\n\n## Figures\nold\n", {"a": entry, "b": entry})
    assert text.startswith("# Soak\n\n## Figures\n\n| commit | minutes | kill |")
    assert "old" not in text
    assert "| all | 4 | 4 | 0 |" in text
    assert "Kills by site: java 4." in text
