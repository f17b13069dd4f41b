"""A current table's columns in its properties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.lake import Form, Target, TargetColumn

PLAIN = Target(
    {
        "id": TargetColumn("bigint", ("int unsigned", ""), "nr"),
        "v": TargetColumn("string", ("varchar(9)", "utf8mb4_bin"), rule="hash"),
        "new": TargetColumn("int"),
    },
    ("id",),
)
KEPT = {"old": TargetColumn("string", ("text", "utf8mb4_bin"), "o", "truncate:3")}


@pytest.mark.parametrize(
    "target",
    [
        PLAIN,
        replace(PLAIN, form=Form.HISTORY, since_epoch=0, rows="id > 3"),
        replace(PLAIN, key=(), kept=KEPT, form=Form.MARKED),
        Target({"a": TargetColumn("int")}, ("a",), hook="m:f@1/aa", hook_gets={"b": ("int", "")}),
    ],
)
def test_properties_bring_a_target_back(target: Target) -> None:
    types = {name: column.spark for name, column in {**target.columns, **target.kept}.items()}
    assert Target.of(types, target.properties) == target


def test_entries_of_columns_that_an_attempt_renamed_stay_until_it_notes_that() -> None:
    types = {"nr": "bigint", "v": "string", "new": "int"}
    renamed = Target.of(types, PLAIN.properties)
    assert renamed.unnoted == {"id": replace(PLAIN.columns["id"], spark="")}
    assert renamed.properties == PLAIN.properties
    assert renamed.source_types["id"] == ("int unsigned", "")


def test_long_types_are_not_stored() -> None:
    members = ",".join(f"'{number}'" for number in range(2000))
    long = Target({"e": TargetColumn("string", (f"enum({members})", "latin1_bin"))})
    assert Target.of({"e": "string"}, long.properties).columns == {"e": TargetColumn("string")}
