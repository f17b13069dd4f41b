"""Table maps to definitions; tests/integration/schema/test_catalog_parity.py does it with a server's."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.binlog import TableMap
from headgate.catalog import Column, TableDef, fit_table, table_from_table_map
from headgate.errors import SchemaAmbiguousError, UnsupportedError


def table_map(*columns: tuple[int, int], **fields: Any) -> TableMap:
    """A table map of ``(type code, metadata)``."""
    count = len(columns)
    arguments: dict[str, Any] = {"names": tuple(f"c{n}" for n in range(count)), **fields}
    codes = bytes(code for code, _ in columns)
    return TableMap(7, "d", "t", codes, tuple(meta for _, meta in columns), (True,) * count, **arguments)


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


def test_a_map_without_names_alone_says_too_little() -> None:
    with pytest.raises(SchemaAmbiguousError, match="SET GLOBAL binlog_row_metadata = 'FULL'") as caught:
        table_from_table_map(table_map((3, 0), names=None))
    assert (caught.value.table, caught.value.reason) == ("d.t", "no server can be queried")


KNOWN = TableDef(
    "d",
    "t",
    (
        Column("id", "bigint", nullable=False, unsigned=True),
        Column("e", "enum", members=("x", "y"), charset="latin1", collation="latin1_swedish_ci"),
        Column("v", "varchar", length=40, charset="utf8mb4", collation="utf8mb4_bin", visible=False),
        Column("p", "geometry", detail="point"),
        Column("x", "decimal", precision=10, scale=2, generated=True),
    ),
    key=(0,),
)
NAMELESS: dict[str, Any] = {
    "table_id": 7, "db": "d", "table": "t", "types": bytes([8, 254, 15, 255, 246]),
    "metas": (0, 247 | 1 << 8, 40, 4, 10 | 2 << 8), "nullable": (False, True, True, True, True),
    "unsigned": (True, False, False, False, False), "charsets": (0, 0, 46, 0, 0), "geometry_types": (1,),
}  # fmt: skip


def test_a_definition_that_fits_a_map_without_names() -> None:
    assert fit_table(TableMap(**NAMELESS), KNOWN) is KNOWN


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"types": bytes([8, 254, 15, 255]), "metas": (0, 503, 40, 4)}, "the log has 4 columns, .* has 5"),
        ({"types": bytes([3, 254, 15, 255, 246])}, "column 1 is int unsigned NOT NULL in the log, bigint unsigned"),
        ({"unsigned": (False,) * 5}, "column 1 is bigint NOT NULL in the log, bigint unsigned NOT NULL in"),
        ({"nullable": (True,) * 5}, "column 1 is bigint unsigned in the log"),
        ({"metas": (0, 247 | 2 << 8, 40, 4, 522)}, "column e has another number of members"),
        ({"types": bytes([8, 254, 15, 255, 246]), "metas": (0, 248 | 1 << 8, 40, 4, 522)}, "column 2 is set"),
        ({"metas": (0, 503, 44, 4, 522)}, r"column 3 is varchar\(11\) COLLATE utf8mb4_bin in the log"),
        ({"charsets": (0, 0, 45, 0, 0)}, r"column 3 is varchar\(10\) COLLATE utf8mb4_general_ci in the log"),
        ({"charsets": (0, 0, 63, 0, 0)}, r"column 3 is varbinary\(40\) in the log"),
        ({"geometry_types": (3,)}, r"column 4 is geometry \(polygon\) in the log, geometry \(point\) in"),
        ({"metas": (0, 503, 40, 4, 10 | 3 << 8)}, r"column 5 is decimal\(10,3\) in the log, decimal\(10,2\) in"),
    ],
)
def test_a_definition_that_does_not(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaAmbiguousError, match=reason):
        fit_table(TableMap(**{**NAMELESS, **change}), KNOWN)


@pytest.mark.parametrize(("charset", "fits"), [("latin1", True), ("utf8mb3", True), ("utf8mb4", False)])
def test_a_member_that_information_schema_may_show_wrongly(charset: str, fits: bool) -> None:
    column = Column("s", "set", members=("?", "y"), charset=charset, collation=f"{charset}_bin")
    known = TableDef("d", "t", (column,))
    table_map_ = table_map((254, 248 | 1 << 8), names=None)
    if fits:
        assert fit_table(table_map_, known) is known
    else:
        with pytest.raises(SchemaAmbiguousError, match="column s with"):
            fit_table(table_map_, known)


@pytest.mark.parametrize("code", [7, 11, 12, 6, 200])
def test_unknown_and_outdated_types_are_named(code: int) -> None:
    with pytest.raises(UnsupportedError) as caught:
        one(code)
    assert (caught.value.table, caught.value.column) == ("d.t", "c0")


def test_an_unknown_collation_is_named() -> None:
    with pytest.raises(UnsupportedError, match="9999"):
        one(15, 30, charsets=(9999,))
