"""Cells of any bytes, for every codec: valid values or one of our errors, the same whatever lies around the cells.

A decoder that reads beyond a cell gives another result for each canary; one that writes into its input fails, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column
from tests.columns.cells import same_whatever_is_around

MEMBERS = ("a", "bc", "")
FORMS: list[tuple[Column, dict[str, Any]]] = [
    *(
        (Column("c", kind, unsigned=unsigned), {})
        for kind in ("tinyint", "mediumint", "bigint")
        for unsigned in (False, True)
    ),
    (Column("c", "bigint", unsigned=True), {"unsigned_bigint": "bigint"}),
    (Column("c", "float"), {}),
    (Column("c", "double"), {}),
    (Column("c", "year"), {}),
    (Column("c", "bit", precision=13), {}),
    (Column("c", "bit", precision=13), {"bit": "binary"}),
    (Column("c", "decimal", precision=12, scale=3), {}),
    (Column("c", "decimal", precision=12, scale=3), {"decimals": "double"}),
    (Column("c", "decimal", precision=12, scale=3), {"decimals": "text"}),
    (Column("c", "decimal", precision=65, scale=30), {"wide_decimals": "text"}),
    *(
        (Column("c", kind), {"zero_dates": zeros})
        for kind in ("date", "datetime", "time")
        for zeros in ("null", "text")
    ),
    (Column("c", "timestamp", scale=3), {}),
    (Column("c", "datetime", scale=6), {"temporals": "text"}),
    (Column("c", "time", scale=2), {"time": "microseconds"}),
    *((Column("c", "varchar", length=99, charset=name), {}) for name in ("utf8mb4", "latin1", "gbk", "utf16", "ascii")),
    (Column("c", "varchar", length=99, charset="utf8mb4"), {"key": True, "ambiguous_keys": "spell"}),
    (Column("c", "binary", length=4), {}),
    (Column("c", "varbinary", length=40), {}),
    (Column("c", "enum", charset="utf8mb4", members=MEMBERS), {}),
    (Column("c", "set", charset="utf8mb4", members=MEMBERS[:2]), {}),
    (Column("c", "json"), {}),
    (Column("c", "geometry"), {}),
    (Column("c", "vector"), {}),
]
TEXTS = st.text("0123456789-:. eE+,abc", max_size=30).map(str.encode)


@pytest.mark.parametrize("road", ["log", "text"])
@pytest.mark.parametrize(("column", "options"), FORMS, ids=lambda value: getattr(value, "type", None))
@settings(max_examples=30)
@given(st.lists(st.none() | st.binary(max_size=12) | TEXTS | st.binary(max_size=40), min_size=1, max_size=3))
def test_any_cells_give_values_or_our_error(
    column: Column, options: dict[str, Any], road: str, values: list[bytes | None]
) -> None:
    same_whatever_is_around(column, road, *values, **options)
