"""The contract of hooks: what they get, what they may return, and what is refused, each with the hook's name."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.outbox import outbox_hooks
from headgate.catalog import Column, TableDef
from headgate.columns import HookedTable, TableCodec, mysql_type
from headgate.columns import hooked_table as behind_its_hook
from headgate.errors import Definite, HookError
from headgate.policies import ColumnRule, Hook, Policies

TABLE = TableDef(
    "shop",
    "t",
    (
        Column("id", "int", nullable=False),
        Column("name", "varchar", length=40, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        Column("at", "datetime", scale=3),
        Column("secret", "varchar", length=40, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
    ),
    (0,),
)
Function = Callable[[pa.RecordBatch], Any]
FUNCTION = ""
"""The hook of the running test."""


NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of another name for each test: hooks are loaded once in a process."""
    made = ModuleType(f"made_hooks_{next(NUMBERS)}")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr("tests.columns.test_hooks.FUNCTION", f"{made.__name__}:f")
    return made


def hooked_table(table: TableDef, policies: Policies) -> HookedTable | None:
    codec = TableCodec(table, policies)
    return behind_its_hook(codec.table, codec.fields, policies)


def policies(version: str = "1", **more: Any) -> Policies:
    return Policies.make(more, {"shop.t": {"hook": Hook(FUNCTION, version)}})


def rows(count: int = 3) -> list[pa.Array]:
    ids = list(range(count))
    texts = [f"n{i}" for i in ids]
    return [pa.array(ids, pa.int32()), pa.array(texts), pa.array(ids, pa.timestamp("us")), pa.array(texts)]


def test_a_table_without_a_hook_stays_as_it_is() -> None:
    assert hooked_table(TABLE, Policies()) is None


def test_it_gets_the_columns_of_the_target_and_makes_others(module: ModuleType) -> None:
    seen: list[pa.RecordBatch] = []

    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch)
        return batch.drop_columns(["at"]).append_column("upper", pc.utf8_upper(batch["name"]))

    module.f = f  # type: ignore[attr-defined]
    rules = (("shop.*", (("secret", ColumnRule("exclude")),)),)
    table = hooked_table(TABLE, policies(columns=rules))
    assert table is not None
    assert [batch.num_rows for batch in seen] == [0]
    assert [(one.name, one.type) for one in table.fields] == [
        ("id", pa.int32()), ("name", pa.string()), ("upper", pa.string()),
    ]  # fmt: skip
    assert {name: column.name for name, column in table.sources.items()} == {"id": "id", "name": "name"}
    ids, _, upper = table.apply(rows()[:3])
    assert seen[-1].schema.names == ["id", "name", "at"]
    assert (ids.to_pylist(), upper.to_pylist()) == ([0, 1, 2], ["N0", "N1", "N2"])


def test_a_column_is_the_sources_if_it_came_through(module: ModuleType) -> None:
    """Renamed too; not if it was made again, or has another type."""

    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        renamed = batch.rename_columns(["id", "called", "at", "secret"])
        again = renamed.set_column(3, "secret", renamed["secret"])
        return again.set_column(2, again.schema.field("at").with_type(pa.int64()), again["at"].cast(pa.int64()))

    module.f = f  # type: ignore[attr-defined]
    table = hooked_table(TABLE, policies())
    assert table is not None
    assert {name: column.name for name, column in table.sources.items()} == {"id": "id", "called": "name"}


def test_the_mark_tells_function_version_and_input(module: ModuleType) -> None:
    module.f = lambda batch: batch  # type: ignore[attr-defined]
    wider = TableDef("shop", "t", (*TABLE.columns, Column("new", "int")), TABLE.key)
    rules = (("shop.*", (("secret", ColumnRule("null")),)),)
    made = [
        hooked_table(TABLE, policies()),
        hooked_table(TABLE, policies("2")),
        hooked_table(wider, policies()),
        hooked_table(TABLE, policies(columns=rules)),
        hooked_table(TABLE, policies(zero_dates="text")),
    ]
    marks = [table.mark for table in made if table is not None]
    assert [mark.partition("/")[0] for mark in marks] == [f"{FUNCTION}@1", f"{FUNCTION}@2", *[f"{FUNCTION}@1"] * 3]
    digests = [mark.partition("/")[2] for mark in marks]
    assert digests[0] == digests[1]
    assert len({*digests}) == 4


def raises(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise KeyError("pay\nload")


def later(function: Function) -> Function:
    """A function that keeps the contract for an empty batch only."""
    return lambda batch: function(batch) if batch.num_rows else batch


BROKEN: dict[str, tuple[Function, str]] = {
    "exception": (raises, r"raised KeyError: 'pay\\nload'"),
    "later exception": (later(raises), r"raised KeyError"),
    "table": (lambda batch: pa.Table.from_batches([batch]), "returned a Table: return a pyarrow.RecordBatch"),
    "fewer rows": (later(lambda batch: batch.slice(1)), "returned 2 rows for 3: .* To leave rows out, use `rows`"),
    "no key": (lambda batch: batch.drop_columns(["id"]), "does not return the key column id of type int32"),
    "wider key": (
        lambda batch: batch.set_column(0, "id", batch["id"].cast(pa.int64())), "does not return the key column id",
    ),
    "changed key": (
        lambda batch: batch.set_column(0, batch.schema.field("id"), pc.add(batch["id"], pa.scalar(1, pa.int32()))),
        "changed values of the key column id",
    ),
    "null key": (
        later(lambda batch: batch.set_column(0, batch.schema.field("id"), pa.nulls(3, pa.int32()))),
        "changed values of the key column id",
    ),
    "reversed": (lambda batch: batch.take(pa.array(range(batch.num_rows), pa.int64())[::-1]), "changed values of"),
    "other columns": (
        later(lambda batch: batch.append_column("more", batch["name"])),
        r"returned the columns \(id int32, .*, more string\), and for an empty batch \(id int32",
    ),
    "other type": (
        later(lambda batch: batch.set_column(1, "name", pa.array([1, 2, 3]))), r"\(id int32, name int64.* name string",
    ),
    "twice": (lambda batch: batch.append_column("NAME", batch["name"]), "returned two columns name"),
    "null type": (
        lambda batch: batch.append_column("x", pa.nulls(batch.num_rows)), "column x of type null, which no target has",
    ),
    "nanoseconds": (
        lambda batch: batch.append_column("x", batch["at"].cast(pa.timestamp("ns"))), r"timestamp\[ns\].*cast it",
    ),
    "name in a struct": (
        lambda batch: batch.append_column("x", pc.make_struct(batch["name"], field_names=["a b"])),
        "whose fields have plain names",
    ),
    "twice in a struct": (
        lambda batch: batch.append_column("x", pc.make_struct(batch["name"], batch["id"], field_names=["a", "A"])),
        "whose fields have plain names",
    ),
    "unsigned": (lambda batch: batch.append_column("x", batch["id"].cast(pa.uint32())), "type uint32"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contract_names_hook_and_table(module: ModuleType, name: str) -> None:
    function, message = BROKEN[name]
    module.f = function  # type: ignore[attr-defined]
    with pytest.raises(HookError, match=rf"the hook {FUNCTION}@1 .*{message}") as caught:
        hooked_table(TABLE, policies()).apply(rows())  # type: ignore[union-attr]
    assert isinstance(caught.value, Definite)
    assert caught.value.table == "shop.t"
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_function_that_is_not_there(module: ModuleType) -> None:
    with pytest.raises(HookError, match=rf"{FUNCTION} cannot be imported: AttributeError.*PYTHONPATH.*pyFiles"):
        hooked_table(TABLE, policies())
    module.f = 1  # type: ignore[attr-defined]
    with pytest.raises(HookError, match="is not a function"):
        hooked_table(TABLE, policies())


def test_types_of_other_libraries_become_plain(module: ModuleType) -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        large = batch["name"].cast(pa.large_string())
        lists = pa.array([["a"], None, []][: batch.num_rows], pa.large_list(pa.large_string()))
        new = {"large": large, "coded": batch["name"].dictionary_encode(), "lists": lists}
        return pa.RecordBatch.from_arrays([*batch.columns, *new.values()], [*batch.schema.names, *new])

    module.f = f  # type: ignore[attr-defined]
    table = hooked_table(TABLE, policies())
    assert table is not None
    types = {one.name: one.type for one in table.fields}
    assert [types[name] for name in ("large", "coded", "lists")] == [pa.string(), pa.string(), pa.list_(pa.string())]
    made = dict(zip(types, table.apply(rows()), strict=True))
    assert made["coded"].to_pylist() == made["large"].to_pylist() == ["n0", "n1", "n2"]
    assert made["lists"].to_pylist() == [["a"], None, []]


def test_mysqls_types_for_messages() -> None:
    kinds = [pa.bool_(), pa.int64(), pa.decimal128(20, 4), pa.timestamp("us"), pa.list_(pa.int32())]
    assert [mysql_type(kind) for kind in kinds] == ["bit(1)", "bigint", "decimal(20,4)", "datetime(6)", ""]


def test_an_empty_batch_is_not_passed_on(module: ModuleType) -> None:
    calls: list[int] = []

    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return batch

    module.f = f  # type: ignore[attr-defined]
    table = hooked_table(TABLE, policies())
    assert table is not None
    assert [len(column) for column in table.apply([column.slice(0, 0) for column in rows()])] == [0] * 4
    assert calls == [0]


payloads = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "order_id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "customer": st.none() | st.text(),
            "tags": st.lists(st.text()),
            "other": st.integers() | st.text() | st.lists(st.integers()),
        },
    )
)


@given(payloads)
def test_the_outbox_example_parses_as_json_does(values: list[dict[str, Any] | None]) -> None:
    import json

    texts = [None if value is None else json.dumps(value) for value in values]
    parsed = outbox_hooks.parsed(pa.array(texts, pa.string()))
    names = outbox_hooks.PAYLOAD.names
    assert parsed.to_pylist() == [{name: (value or {}).get(name) for name in names} for value in values]
