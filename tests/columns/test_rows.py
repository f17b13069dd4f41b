"""Row expressions: three-valued logic against a model, exact comparisons, and images of rows that enter or leave."""

from __future__ import annotations

import datetime as dt
import re
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import (
    And,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    RowFilter,
    filter_images,
    parse_expression,
)
from headgate.errors import ConfigError

TABLE = TableDef(
    "d",
    "t",
    (
        Column("id", "int", nullable=False),
        Column("n", "bigint"),
        Column("amount", "decimal", precision=10, scale=2),
        Column("name", "varchar", length=40, charset="utf8mb4"),
        Column("size", "enum", charset="utf8mb4", members=("s", "l")),
        Column("born", "date"),
        Column("at", "datetime", scale=6),
        Column("took", "time"),
        Column("raw", "varbinary", length=10),
        Column("ratio", "double"),
        Column("doc", "json"),
        Column("seen", "timestamp"),
    ),
    (0,),
)


def passing(text: str, **values: Any) -> bool:
    types = {
        "n": pa.int64(), "amount": pa.decimal128(10, 2), "born": pa.date32(), "at": pa.timestamp("us"),
        "took": pa.int64(), "raw": pa.binary(), "ratio": pa.float64(), "seen": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    arrays = {TABLE.index(name): pa.array([value], types.get(name, pa.string())) for name, value in values.items()}
    (result,) = RowFilter(TABLE, text).passes(arrays).to_pylist()
    return bool(result)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("n = 1", {"n": 1}, True),
        ("n <> 1", {"n": None}, False),
        ("NOT n = 1", {"n": None}, False),
        ("n > 9.5", {"n": 10}, True),
        ("n < 9223372036854775808", {"n": 2**63 - 1}, True),
        ("n = -9223372036854775808", {"n": -(2**63)}, True),
        ("5 < N", {"n": 6}, True),
        ("amount = 0.1", {"amount": Decimal("0.10")}, True),
        ("amount > 0.0999999999999999999999", {"amount": Decimal("0.10")}, True),
        ("n BETWEEN 1 AND 3 AND name LIKE 'a\\_%'", {"n": 2, "name": "a_\n"}, True),
        ("name LIKE 'a\\_%'", {"name": "ab"}, False),
        ("name LIKE '_'", {"name": "ö"}, True),
        ("name = 'a'", {"name": "A"}, False),
        ("name = 'it''s'", {"name": "it's"}, True),
        ("name IN ('a', 'b') OR name IS NULL", {"name": None}, True),
        ("name NOT IN ('a', 'b')", {"name": None}, False),
        ("size = 's'", {"size": "s"}, True),
        ("born >= DATE '2026-01-31'", {"born": dt.date(2026, 1, 31)}, True),
        ("at < '2026-01-31 00:00:00.000001'", {"at": dt.datetime(2026, 1, 31)}, True),
        ("at < '1969-12-31'", {"at": dt.datetime(1969, 12, 30, 23, 59, 59, 999999)}, True),
        ("seen = '2026-01-31 12:00:00'", {"seen": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)}, True),
        ("took > '-01:00:00'", {"took": -1}, True),
        ("raw = X'00ff'", {"raw": b"\x00\xff"}, True),
        ("ratio = 0.5", {"ratio": 0.5}, True),
        ("`n` = amount", {"n": 3, "amount": Decimal(3)}, True),
    ],
)
def test_values_are_compared_exactly(text: str, values: dict[str, Any], expected: bool) -> None:
    assert passing(text, **values) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a number"),
        ("n", "expected =, <>"),
        ("n = NULL", "IS NULL"),
        ('name = "a"', "single quotes"),
        ("n = 'a'", "cannot be compared with 'a'"),
        ("name = 1", "expected a text"),
        ("nobody = 1", "has no column nobody"),
        ("doc IS NULL", "json cannot be compared"),
        ("size < 's'", "has no order"),
        ("n LIKE 'a'", "LIKE needs"),
        ("at = seen", "different kinds"),
        ("born = '2026-02-30'", "a date such as"),
        ("n = 1 n = 2", "AND, OR or the end"),
        ("(" * 60 + "n = 1" + ")" * 60, "nested more than"),
        ("NOW() > at", "expected"),
    ],
)
def test_other_expressions_are_refused_before_a_run(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        RowFilter(TABLE, text)
    assert "rows of d.t: " in str(raised.value)


def test_not_and_or_bind_as_in_sql() -> None:
    one, two, three = (Compare("=", Name("n"), Literal(Decimal(k))) for k in (1, 2, 3))
    assert parse_expression("NOT n = 1 AND n = 2 OR n = 3") == Or((And((Not(one), two)), three))


# --- three-valued logic against a model

_LETTERS = "ab%_\\\n"
_leaves = st.one_of(
    st.builds(
        Compare,
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.just(Name("n")),
        st.builds(Literal, st.decimals(-3, 3, places=1)),
    ),
    st.builds(
        In, st.just(Name("name")), st.lists(st.builds(Literal, st.text(_LETTERS, max_size=2)), min_size=1).map(tuple)
    ),
    st.builds(IsNull, st.sampled_from([Name("n"), Name("name")])),
    st.builds(Like, st.just(Name("name")), st.text("ab%_\n", max_size=4)),
)
_trees = st.recursive(
    _leaves,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(And, st.lists(parts, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
_SIGNS = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def model(tree: Expression, row: dict[str, Any]) -> bool | None:
    match tree:
        case Compare(sign=sign, left=Name(text=name), right=Literal(value=value)):
            return None if row[name] is None else bool(_SIGNS[sign](row[name], value))
        case In(column=column, values=values):
            return None if row[column.text] is None else row[column.text] in [one.value for one in values]
        case IsNull(column=column):
            return row[column.text] is None
        case Like(column=column, pattern=pattern):
            regex = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern)
            text = row[column.text]
            return None if text is None else re.fullmatch(regex, text, re.DOTALL) is not None
        case Not(part=part):
            inner = model(part, row)
            return None if inner is None else not inner
        case And(parts=parts):
            results = [model(part, row) for part in parts]
            return False if False in results else None if None in results else True
        case Or(parts=parts):
            results = [model(part, row) for part in parts]
            return True if True in results else None if None in results else False
    raise AssertionError(tree)


def spelled(tree: Expression) -> str:
    def text(value: Any) -> str:
        if not isinstance(value, str):
            return str(value)
        return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"

    match tree:
        case Compare(sign=sign, left=Name(text=name), right=Literal(value=value)):
            return f"{name} {sign} {text(value)}"
        case In(column=column, values=values):
            return f"{column.text} IN ({', '.join(text(one.value) for one in values)})"
        case IsNull(column=column):
            return f"{column.text} IS NULL"
        case Like(column=column, pattern=pattern):
            return f"{column.text} LIKE {text(pattern)}"
        case Not(part=part):
            return f"NOT ({spelled(part)})"
        case And(parts=parts) | Or(parts=parts):
            word = " AND " if isinstance(tree, And) else " OR "
            return word.join(f"({spelled(part)})" for part in parts)
    raise AssertionError(tree)


_rows = st.fixed_dictionaries({"n": st.none() | st.integers(-3, 3), "name": st.none() | st.text(_LETTERS, max_size=3)})


def passes(tree: Expression, rows: list[dict[str, Any]]) -> list[bool]:
    arrays = {1: pa.array([r["n"] for r in rows], pa.int64()), 3: pa.array([r["name"] for r in rows], pa.string())}
    kept = RowFilter(TABLE, spelled(tree))
    result: list[bool] = kept.passes({index: arrays[index] for index in kept.indexes}).to_pylist()
    return result


@given(_trees, st.lists(_rows, max_size=6))
def test_only_true_passes(tree: Expression, rows: list[dict[str, Any]]) -> None:
    assert passes(tree, rows) == [model(tree, row) is True for row in rows]


# --- images: the fold of filtered images is the filtered fold of all


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, int, dict[str, Any]]]:
    """Return images (op, key, row) of a random history, key changes among them."""
    table: dict[int, dict[str, Any]] = {}
    images: list[tuple[str, int, dict[str, Any]]] = []
    for _ in range(draw(st.integers(0, 12))):
        key, row = draw(st.integers(0, 3)), draw(_rows)
        if key not in table:
            images.append(("c", key, row))
            table[key] = row
        elif draw(st.booleans()):
            images.append(("d", key, table.pop(key)))
        else:
            free = [one for one in range(4) if one not in table]
            target = draw(st.sampled_from([key, *free]))
            images += [("b", key, table.pop(key)), ("u", target, row)]
            table[target] = row
    return images


def fold(images: list[tuple[str, int, dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    """Apply images as a target does, which has a row exactly when it should."""
    table: dict[int, dict[str, Any]] = {}
    for op, key, row in images:
        if op in "bd":
            assert table.pop(key) == row
        else:
            assert key not in table
            table[key] = row
    return table


@given(_histories(), _trees)
def test_filtered_images_make_the_filtered_table(
    images: list[tuple[str, int, dict[str, Any]]], tree: Expression
) -> None:
    batch = pa.record_batch(
        {
            "_op": pa.array([op for op, _, _ in images], pa.string()),
            "id": pa.array([key for _, key, _ in images], pa.int32()),
            "n": pa.array([row["n"] for _, _, row in images], pa.int64()),
            "name": pa.array([row["name"] for _, _, row in images], pa.string()),
        }
    )
    kept = filter_images(batch, pa.array(passes(tree, [row for _, _, row in images]), pa.bool_()))
    rows = [(r["_op"], r["id"], {"n": r["n"], "name": r["name"]}) for r in kept.to_pylist()]
    expected = {key: row for key, row in fold(images).items() if model(tree, row) is True}
    assert fold(rows) == expected
    ops = [op for op, _, _ in rows]
    assert [ops[i + 1] for i, op in enumerate(ops) if op == "b"] == ["u"] * ops.count("u")


@pytest.mark.parametrize("number", ["1e9999999999999999999", "-1e400", "1e-400", "9" * 400])
def test_numbers_that_no_column_has(number: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_expression(f"a > {number}")


def test_a_number_that_runs_into_a_word_is_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="unexpected"):
        parse_expression("9" * 9000 + "x")
    assert time.process_time() - began < 1
