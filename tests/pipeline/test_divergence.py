"""What the writer hears of tables that differ from their source, from several causes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.columns import hash_mark
from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.lake import Form, IgnoredChanges, TableState, Target, TargetColumn
from headgate.pipeline.divergence import ChangedSettings, Skips, UnfollowedTables, join
from tests.fix_carrier import FakeBatch


def config(
    mode: str = "current",
    skip: Sequence[str] = (),
    columns: dict[str, Any] | None = None,
    mask_key_env: str | None = None,
    **tables: dict[str, Any],
) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "p",
            "source": {"url": "mysql://u@h", "tables": ["d.*"], "skip": skip, "mask_key_env": mask_key_env},
            "target": {"path": "/lake", "mode": mode},
            "columns": columns or {},
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


def written_by(targets: dict[str, Target], **states: TableState) -> Any:
    """A writer that has checked these tables."""
    return SimpleNamespace(targets=targets, ledger=SimpleNamespace(tables=lambda: states))


def test_changed_filters_and_hooks_are_reported_once() -> None:
    rows = {"d.same": "a = 1", "d.plain": "", "d.new": "", "d.other": "b = 1", "d.gone": "c = 1"}
    hooks = {"d.hooked": "m:f@1/00", "d.newer": "m:f@1/00", "d.first": "", "d.without": "m:f@1/00"}
    written = {name: Target({}, (), rows=one) for name, one in rows.items()}
    written |= {name: Target({}, (), hook=one) for name, one in hooks.items()}
    filters, batch = ChangedSettings(config(**RULED), written_by(written)), FakeBatch(9).described()
    assert filters.unseen(batch) == {
        "d.new": Divergence("`rows` changed from all rows to a = 2", over=True),
        "d.other": Divergence("`rows` changed from b = 1 to b = 2", over=True),
        "d.gone": Divergence("`rows` changed from c = 1 to all rows", over=True),
        "d.newer": Divergence("the hook changed from m:f@1 to m:f@2", over=True),
        "d.first": Divergence("the hook changed from none to m:f@1", over=True),
        "d.without": Divergence("the hook changed from m:f@1 to none", over=True),
    }
    assert filters.unseen(batch) == {}


TRUNCATED = Target(
    {"id": TargetColumn("bigint"), "note": TargetColumn("string", rule="truncate:3"), "n": TargetColumn("int")}, ("id",)
)
OTHER_RULE = "column note has another rule in [columns] than when the target was written"
REMOVED = "column {} is excluded, or has another name, by [columns]"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"d.*": {"note": {"truncate": 3}}}, None),
        ({"d.*": {"note": {"truncate": 3}, "id": {"rename": "id"}}}, None),
        ({}, OTHER_RULE),
        ({"d.*": {"note": {"truncate": 4}}}, OTHER_RULE),
        ({"d.*": {"note": "null"}}, OTHER_RULE),
        ({"d.*": {"note": {"truncate": 3}, "n": "exclude"}}, REMOVED.format("n")),
        ({"d.*": {"note": {"truncate": 3}, "n": {"rename": "number"}}}, REMOVED.format("n")),
        ({"d.*": {"note": {"truncate": 3}, "id": "null"}}, None),  # the server has another key, or refuses the rule
    ],
)
def test_changed_rules_of_columns(rules: dict[str, Any], reason: str | None) -> None:
    changed = ChangedSettings(config(columns=rules), written_by({"d.t": TRUNCATED})).changed({"d.t": TRUNCATED})
    assert changed == ({} if reason is None else {"d.t": reason})


def test_another_key_of_hashes_is_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_HASHES", "k" * 32)
    hashed = config(columns={"d.*": {"note": "hash"}}, mask_key_env="KEY_OF_HASHES")
    mark = hash_mark(hashed.policies())
    for rule, reasons in ((mark, {}), ("hash:00000000", {"d.t": OTHER_RULE}), ("", {"d.t": OTHER_RULE})):
        written = {"d.t": Target({"id": TargetColumn("bigint"), "note": TargetColumn("string", rule=rule)}, ("id",))}
        assert ChangedSettings(hashed, written_by(written)).changed(written) == reasons


def test_renamed_columns_are_compared_by_their_names_at_the_source() -> None:
    written = {"d.t": Target({"number": TargetColumn("int", source_name="n")})}
    for name, reasons in (("number", {}), ("count", {"d.t": REMOVED.format("number")})):
        settings = ChangedSettings(config(columns={"d.t": {"n": {"rename": name}}}), written_by(written))
        assert settings.changed(written) == reasons


@pytest.mark.parametrize(
    ("written", "reasons"),
    [
        ((), {"d.t": "the key changed from () to (number, b)"}),
        (("number", "b"), {}),
        (("b",), {}),  # an ALTER may have made it the primary key since
    ],
)
def test_a_first_key_is_compared_also_under_other_names(written: tuple[str, ...], reasons: dict[str, str]) -> None:
    columns = {"number": TargetColumn("int", source_name="N"), "b": TargetColumn("int")}
    targets = {"d.t": Target(columns, written), "d.hooked": Target(columns, (), hook="m:f@1/d")}
    keys: dict[str, Any] = {"t": {"key": ["n", "b"]}, "hooked": {"key": ["n"], "hook": "m:f"}}
    chosen = config(columns={"d.*": {"N": {"rename": "number"}}}, **keys)
    assert ChangedSettings(chosen, written_by(targets)).changed(targets) == reasons


@pytest.mark.parametrize(
    ("rule", "written_now", "reason"),
    [
        ("exclude", {"email"}, REMOVED.format("email")),
        ("exclude", {"mail"}, REMOVED.format("mail")),
        ("exclude", set(), None),
        ({"rename": "mail"}, {"email"}, REMOVED.format("email")),
        ({"rename": "mail"}, {"mail"}, None),
        ("keep", {"mail"}, REMOVED.format("mail")),
        ("keep", {"email"}, None),
        ({"rename": "mail", "rule": "null"}, {"mail"}, OTHER_RULE.replace("note", "mail")),
    ],
)
def test_a_history_keeps_columns_that_rules_exclude_or_rename(
    rule: Any, written_now: set[str], reason: str | None
) -> None:
    """It has a column under each name that it had. Only the newest rows tell under which one it is written."""
    columns = {"id": TargetColumn("bigint", ("bigint", "")), "email": TargetColumn("string")}
    columns |= {"mail": TargetColumn("string", source_name="email")}
    columns |= {name: replace(columns[name], source=("varchar(9)", "utf8mb4")) for name in written_now}
    written = {"d.t": Target(columns, ("id",), form=Form.HISTORY)}
    settings = ChangedSettings(config("history", columns={"d.t": {"email": rule}}), written_by(written))
    assert settings.changed(written) == ({} if reason is None else {"d.t": reason})


def test_marked_deletes_are_another_form() -> None:
    written = {"d.marks": Target({}), "d.marked": Target({}, form=Form.MARKED), "d.same": Target({})}
    settings = ChangedSettings(config(marks={"deletes": "mark"}), written_by(written))
    assert {table: reason.partition(",")[0] for table, reason in settings.changed(written).items()} == {
        "d.marks": 'deletes = "mark" (mode "current") is set',
        "d.marked": 'deletes = "remove" (mode "current") is set',
    }


def test_columns_that_are_not_the_sources_are_left_to_the_next_change() -> None:
    hook, columns = "m:f@1/00", {"note": TargetColumn("string")}
    written = {"d.hooked": Target(columns, hook=hook), "d.ignores": Target(columns)}
    ignores = TableState("d.ignores", "live", ignored=IgnoredChanges(kept=("note",)))
    rules = {"d.*": {"note": "null"}}
    settings = ChangedSettings(
        config(columns=rules, hooked={"hook": "m:f"}), written_by(written, **{"d.ignores": ignores})
    )
    assert settings.changed(written) == {}


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
