"""Table maps to definitions; tests/integration/test_catalog_parity.py does it with a server's."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.binlog import TableMap
from headgate.catalog import Column, table_from_table_map
from headgate.errors import ServerSettingError, UnsupportedError


def table_map(*columns: tuple[int, int], **fields: Any) -> TableMap:
    """A table map of ``(type code, metadata)``."""
    count = len(columns)
    given: dict[str, Any] = {"names": tuple(f"c{n}" for n in range(count)), **fields}
    codes = bytes(code for code, _ in columns)
    return TableMap(7, "d", "t", codes, tuple(meta for _, meta in columns), (True,) * count, **given)


def one(code: int, meta: int = 0, **fields: Any) -> Column:
    (column,) = table_from_table_map(table_map((code, meta), **fields)).columns
    return column


@pytest.mark.parametrize(
    ("code", "meta", "collation", "column"),
    [
        (3, 0, 0, Column("c0", "int")),
        (16, 5 | 1 << 8, 0, Column("c0", "bit", precision=13)),
        (16, 8 << 8, 0, Column("c0", "bit", precision=64)),
        (246, 12 | 2 << 8, 0, Column("c0", "decimal", precision=12, scale=2)),
        (18, 3, 0, Column("c0", "datetime", scale=3)),
        (15, 1020, 46, Column("c0", "varchar", length=1020, charset="utf8mb4", collation="utf8mb4_bin")),
        (15, 300, 63, Column("c0", "varbinary", length=300)),
        (252, 2, 63, Column("c0", "blob")),
        (252, 4, 8, Column("c0", "longtext", charset="latin1", collation="latin1_swedish_ci")),
        (254, 0xFE | 4 << 8, 63, Column("c0", "binary", length=4)),
        (
            254,
            0xEE | 0x90 << 8,
            255,
            Column("c0", "char", length=400, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        ),
        (255, 4, 0, Column("c0", "geometry")),
    ],
)
def test_columns(code: int, meta: int, collation: int, column: Column) -> None:
    assert one(code, meta, charsets=(collation,)) == column


def test_members_are_text_of_the_columns_character_set() -> None:
    column = one(254, 247 | 1 << 8, charsets=(9,), members=((b"\xb3", b"x"),))
    assert (column.type, column.members, column.charset) == ("enum", ("ł", "x"), "latin2")
    with pytest.raises(UnsupportedError, match="ff"):
        one(254, 248 | 1 << 8, charsets=(46,), members=((b"\xff",),))


def test_keys_visibility_and_signs() -> None:
    table = table_from_table_map(
        table_map((8, 0), (13, 0), unsigned=(True, True), primary_key=(1, 0), visible=(True, False))
    )
    assert table.key_names == ("c1", "c0")
    assert [column.unsigned for column in table.columns] == [True, False], "a year has no sign"
    assert [column.visible for column in table.columns] == [True, False]
    assert table_from_table_map(table_map((8, 0), primary_key=(1,))).key == (), "a key on a hidden column"


def test_minimal_metadata_is_refused_with_the_remedy() -> None:
    with pytest.raises(ServerSettingError, match="SET GLOBAL binlog_row_metadata = FULL") as found:
        table_from_table_map(table_map((3, 0), names=None))
    assert (found.value.setting, found.value.expected, found.value.actual) == ("binlog_row_metadata", "FULL", "MINIMAL")
    assert found.value.table == "d.t"


@pytest.mark.parametrize("code", [7, 11, 12, 6, 200])
def test_unknown_and_outdated_types_are_named(code: int) -> None:
    with pytest.raises(UnsupportedError) as found:
        one(code)
    assert (found.value.table, found.value.column) == ("d.t", "c0")


def test_an_unknown_collation_is_named() -> None:
    with pytest.raises(UnsupportedError, match="9999"):
        one(15, 30, charsets=(9999,))
