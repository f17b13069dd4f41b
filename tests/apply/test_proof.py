"""The claim of ``_proof``: a table with one row a key equals its source if and only if both have as many rows."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

Row = tuple[int, int]
Change = tuple[str, Row, Row]

KEYS = st.integers(0, 2)
ROWS = st.tuples(KEYS, st.integers(0, 2))
CHANGES = st.lists(st.tuples(st.sampled_from("cud"), ROWS, st.integers(0, 9)), max_size=8)


@given(st.dictionaries(KEYS, st.integers(0, 2)), CHANGES)
@example({0: 1}, [("c", (0, 2), 0), ("d", (0, 0), 0)])
@example({0: 1}, [("c", (0, 2), 0), ("u", (1, 1), 0)])
def test_equal_counts_are_equal_rows(before: dict[int, int], changes: list[tuple[str, Row, int]]) -> None:
    source, table = list(before.items()), dict(before)
    stays_unique = True
    growth = 0
    last: dict[int, tuple[str, Row]] = {}
    for op, row, number in changes:
        if op != "c" and not source:
            continue
        if op != "c":
            old = source.pop(number % len(source))
            last[old[0]] = ("b" if op == "u" else "d", old)
        if op != "d":
            source.append(row)
            last[row[0]] = (op, row)
        growth += {"c": 1, "u": 0, "d": -1}[op]
        stays_unique &= len({key for key, _ in source}) == len(source)
    for key, (op, row) in last.items():
        if op in "cu":
            table[key] = row[1]
        else:
            table.pop(key, None)
    assert len(source) == len(before) + growth
    assert len(table) <= len(source)
    assert (len(table) == len(source)) == (Counter(table.items()) == Counter(source))
    if stays_unique:
        assert len(table) == len(source), "a key that is unique all the time never stops the table"
