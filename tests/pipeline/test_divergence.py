"""What the writer hears of tables that differ from their source, from several causes at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from types import SimpleNamespace
from typing import Any

from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.lake import Target
from headgate.pipeline.divergence import ChangedSettings, Skips, UnfollowedTables, join
from tests.fix_carrier import FakeBatch


def config(mode: str = "current", skip: Sequence[str] = (), **tables: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "p",
            "source": {"url": "mysql://u@h", "tables": ["d.*"], "skip": skip},
            "target": {"path": "/lake", "mode": mode},
            "tables": {f"d.{name}": values for name, values in tables.items()},
        }
    )


RULED: dict[str, Any] = {
    "same": {"rows": "a = 1"},
    "new": {"rows": "a = 2"},
    "other": {"rows": "b = 2"},
    "hooked": {"hook": "m:f"},
    "newer": {"hook": "m:f@2"},
    "first": {"hook": "m:f"},
}


def test_changed_filters_and_hooks_are_reported_once() -> None:
    rows = {"d.same": "a = 1", "d.plain": "", "d.new": "", "d.other": "b = 1", "d.gone": "c = 1"}
    hooks = {"d.hooked": "m:f@1/00", "d.newer": "m:f@1/00", "d.first": "", "d.without": "m:f@1/00"}
    written = {name: Target({}, (), rows=one) for name, one in rows.items()}
    written |= {name: Target({}, (), hook=one) for name, one in hooks.items()}
    writer: Any = SimpleNamespace(targets=written)
    filters, batch = ChangedSettings(config(**RULED), writer), FakeBatch(9).described()
    assert filters.unseen(batch) == {
        "d.new": Divergence("`rows` changed from all rows to a = 2", over=True),
        "d.other": Divergence("`rows` changed from b = 1 to b = 2", over=True),
        "d.gone": Divergence("`rows` changed from c = 1 to all rows", over=True),
        "d.newer": Divergence("the hook changed from m:f@1 to m:f@2", over=True),
        "d.first": Divergence("the hook changed from none to m:f@1", over=True),
        "d.without": Divergence("the hook changed from m:f@1 to none", over=True),
    }
    assert filters.unseen(batch) == {}


def test_all_causes_that_make_a_table_inexact_are_named() -> None:
    keys, skip = Divergence("foreign keys", accepted=True), Divergence("skip leaves inserts out", accepted=True)
    unseen = join(lambda _: {"d.t": keys, "d.u": keys}, lambda _: {"d.t": skip})(FakeBatch(9).described())
    assert unseen == {"d.t": Divergence("foreign keys; skip leaves inserts out", accepted=True), "d.u": keys}


def test_the_most_serious_cause_counts() -> None:
    stop, again, accepted = Divergence("stop"), Divergence("again", over=True), Divergence("accepted", accepted=True)
    batch = FakeBatch(9).described()
    for causes in permutations([accepted, again, stop]):
        for number in (1, 2, 3):
            some = causes[:number]
            expected = min(some, key=[stop, again, accepted].index)
            assert join(*(lambda _, cause=cause: {"t": cause} for cause in some))(batch) == {"t": expected}


def test_skips_name_all_tables_once_and_then_those_of_a_batch() -> None:
    known = {"d.t": None, "d.u": None, "d.whole": None}
    writer: Any = SimpleNamespace(ledger=SimpleNamespace(tables=lambda: known))
    detector = Skips(config(skip=["delete"], whole={"skip": []}), writer)
    quiet, busy = FakeBatch(9).described(), FakeBatch(10).redo("d.u").redo("d.whole").described()
    assert detector.unseen(busy) == {name: Divergence(DELETES, accepted=True) for name in ("d.t", "d.u")}
    assert detector.unseen(quiet) == {}
    assert detector.unseen(busy) == {"d.u": Divergence(DELETES, accepted=True)}
    assert Skips(config("changelog", ["delete"]), writer).unseen(busy) == {}


def test_tables_that_the_patterns_of_a_batch_do_not_include() -> None:
    known = {"d.t": None, "other.t": None, "d.u": None}
    writer: Any = SimpleNamespace(ledger=SimpleNamespace(tables=lambda: known))
    detector = UnfollowedTables(writer)
    for patterns, unseen in ((("d.*",), ["other.t"]), (("d.*", "!d.u"), ["d.u", "other.t"]), (("*.*",), [])):
        for epoch in (9, 10):
            left_out = detector.unseen(FakeBatch(epoch, patterns=patterns).described())
            assert left_out == dict.fromkeys(unseen, Divergence("source.tables leaves it out", excluded=True))


DELETES = "skip leaves operations out: delete"
