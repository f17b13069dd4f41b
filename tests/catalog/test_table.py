from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from headgate.catalog import Column, TableDef
from headgate.errors import SchemaChangedError

ID = Column("id", "int", nullable=False)
NAME = Column("name", "varchar", length=40, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
TABLE = TableDef("shop", "orders", (ID, NAME), (0,))

CHANGED: dict[str, Any] = {
    "name": "x", "type": "bigint", "nullable": True, "unsigned": True, "precision": 1, "scale": 1, "length": 1,
    "charset": "latin1", "collation": "x", "members": ("a",), "visible": False,
}  # fmt: skip
NOT_COMPARED = {"generated", "detail", "source_name", "rule", "comment"}


def test_names() -> None:
    assert (TABLE.full_name, TABLE.key_names) == ("shop.orders", ("id",))
    assert TABLE.with_key(["name", "ID"]).key == (1, 0)
    with pytest.raises(SchemaChangedError, match="gone") as caught:
        TABLE.with_key(["gone"])
    assert (caught.value.table, caught.value.column) == ("shop.orders", "gone")


@pytest.mark.parametrize("field", [field.name for field in fields(Column)])
def test_fingerprint_and_equality_look_at_the_same(field: str) -> None:
    changed = replace(TABLE, columns=(replace(ID, **{field: CHANGED.get(field, True)}), NAME))
    assert (changed == TABLE) is (changed.fingerprint == TABLE.fingerprint) is (field in NOT_COMPARED)


def test_without_some_columns() -> None:
    assert TABLE.without(["Name", "other"]) == TableDef("shop", "orders", (ID,), (0,))
    assert TABLE.without(["ID"]) == TABLE, "the key stays"
    assert TABLE.with_key(["name"]).without(["id"]) == TableDef("shop", "orders", (NAME,), (0,))


def test_fingerprints_see_name_and_key() -> None:
    others = [replace(TABLE, db="x"), replace(TABLE, name="x"), TABLE.with_key(()), replace(TABLE, columns=(NAME, ID))]
    assert len({TABLE.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_fingerprints_are_the_same_in_another_process() -> None:
    code = (
        "import pickle, sys; from headgate.catalog import TableDef;"
        "print(pickle.loads(bytes.fromhex(sys.argv[1])).fingerprint, 'numba' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(TABLE).hex()], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == [TABLE.fingerprint, "False"], "and definitions load no compiled kernels"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (ID, "int"),
        (replace(ID, unsigned=True), "int unsigned"),
        (NAME, "varchar(10)"),
        (Column("c", "char", length=5, charset="latin1"), "char(5)"),
        (Column("c", "binary", length=5), "binary(5)"),
        (Column("c", "decimal", precision=12, scale=2), "decimal(12,2)"),
        (Column("c", "bit", precision=3), "bit(3)"),
        (Column("c", "datetime", scale=3), "datetime(3)"),
        (Column("c", "timestamp"), "timestamp"),
        (Column("c", "enum", members=("a", "it's", "b\\c")), "enum('a','it''s','b\\\\c')"),
        (Column("c", "json"), "json"),
    ],
)
def test_the_type_as_mysql_writes_it(column: Column, text: str) -> None:
    assert column.mysql == text


def test_members_of_the_log_where_information_schema_shows_question_marks() -> None:
    def table(*members: tuple[str, ...]) -> TableDef:
        return replace(
            TABLE, columns=(ID, *(Column(f"c{i}", "enum", members=texts) for i, texts in enumerate(members)))
        )

    shown = table(("a", "?", "?x"), ("?",), ("b",), ("?", "?"))
    logged = table(("a", "\U0001f600", "\U0001f601x"), ("水",), ("c",), ("?", "\U0001f600"))
    assert shown.with_members_of(logged) == table(
        ("a", "\U0001f600", "\U0001f601x"), ("?",), ("b",), ("?", "\U0001f600")
    )
    assert shown.with_members_of(TABLE) == shown
