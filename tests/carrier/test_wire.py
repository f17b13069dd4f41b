"""Messages on the wire: what is encoded is decoded, and rows have the form that the documents name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import (
    CARRIER_DDL,
    CarriedColumn,
    DdlRow,
    Definition,
    End,
    Header,
    HeaderTable,
    HighWatermark,
    Images,
    Message,
    ReadingProgress,
    Redo,
    Signals,
    Summary,
    UnreadableRows,
    decode,
    encode,
    summarise,
)
from headgate.catalog import AddedColumn, DroppedColumn
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Last, ReadState
from tests.fix_carrier import UUID, FakeBatch, FakeTable

PAGE = Path(__file__).parents[2] / "docs/architecture/carrier.md"

TABLES = st.sampled_from(["shop.orders", "shop.größe", "db.with space"])
COUNTS = st.integers(0, 2**62)
TEXTS = st.text(max_size=20)
MAYBE = st.none() | TEXTS
JSON = st.dictionaries(TEXTS, st.none() | st.booleans() | COUNTS | TEXTS | st.lists(TEXTS, max_size=2), max_size=3)
DEFINITIONS = st.builds(
    Definition,
    TABLES,
    st.lists(TEXTS, max_size=2).map(tuple),
    st.lists(st.builds(CarriedColumn, TEXTS, TEXTS, TEXTS, st.booleans()), max_size=3).map(tuple),
)
BOUNDS = st.none() | st.lists(TEXTS, min_size=1, max_size=2).map(tuple)
HEADER_TABLES = st.builds(
    HeaderTable,
    state=st.sampled_from(ReadState),
    since_epoch=st.none() | COUNTS,
    first=st.booleans(),
    append=st.booleans(),
    partial=st.booleans(),
    filtered=st.booleans(),
    surrogate=st.booleans(),
    chunks_done=st.none() | COUNTS,
    signals=st.lists(TEXTS, max_size=2).map(tuple),
)
READINGS = st.builds(ReadingProgress, st.sampled_from(["waits", "done"]), st.none() | COUNTS, TEXTS, TEXTS)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Header, COUNTS, TEXTS, TEXTS, TEXTS, COUNTS, st.dictionaries(TABLES, HEADER_TABLES),
        st.lists(JSON, max_size=2).map(tuple), COUNTS,
        st.dictionaries(TABLES, READINGS), st.booleans(),
    ),
    st.builds(
        DdlRow, TABLES, TEXTS, TEXTS, st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), MAYBE, st.none() | COUNTS, MAYBE,
        st.none() | st.lists(st.builds(AddedColumn, TEXTS, st.booleans(), MAYBE, st.booleans()), max_size=2).map(tuple),
        MAYBE,
    ),
    st.builds(Redo, st.builds(ChunkSpec, TABLES, COUNTS, BOUNDS, BOUNDS, MAYBE, MAYBE), TEXTS, st.booleans()),
    st.builds(UnreadableRows, TABLES, TEXTS, MAYBE, st.none() | COUNTS),
    st.builds(
        HighWatermark,
        TABLES,
        st.integers(1, 99).map(lambda n: GtidSet.parse(f"{UUID}:1-{n}")),
        st.none() | st.builds(Last, st.text(), st.integers(0, 1 << 60)),
    ),
    st.builds(Signals, TABLES, st.lists(JSON, max_size=3)),
    st.builds(End, TEXTS, TEXTS, TEXTS, COUNTS),
)  # fmt: skip


def decoded(messages: list[Message]) -> list[Message]:
    return list(decode(pa.Table.from_batches(map(encode, messages))))


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_what_is_encoded_is_decoded(messages: list[Message]) -> None:
    assert decoded(messages) == messages
    assert [opened for message in messages for opened in decode(encode(message))] == messages


@given(DEFINITIONS)
def test_definitions(definition: Definition) -> None:
    assert Definition.from_json(definition.to_json()) == definition


@given(st.lists(st.tuples(st.sampled_from("cdt"), st.integers(-9, 9)), max_size=5), st.sampled_from(["rows", "chunk"]))
def test_images(changes: list[tuple[str, int]], kind: Any) -> None:
    table = FakeTable()
    batch = table.batch(7, [(op, pos, key, "x") for pos, (op, key) in enumerate(changes)])
    images = Images.of(kind, table.carried, batch)
    assert decoded([images]) == [images] == list(decode(encode(images)))
    (summary,) = summarise(iter([encode(images)]))
    assert Summary.from_json(summary["_summary"][0].as_py()) == images.summary
    assert Definition.from_json(summary["_schema"][0].as_py()) == table.carried


def test_the_changes_of_a_statement_come_back() -> None:
    added = AddedColumn("a", nullable=False, default="5")
    for changes in ((added,), (), None, (DroppedColumn("b"), added)):
        ddl = DdlRow("shop.orders", "ALTER", "alter", (9, 1, 5, 0), None, None, changes=changes)
        assert [*decode(encode(ddl))] == [ddl]


def test_the_form_of_a_row() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(FakeTable(), [(1, "x")])
    fake.ddl("shop.orders", "ALTER", "alter", 5, adds=[AddedColumn("a")]).unread("shop.orders", "odd")
    fake.stop("shop.orders", "nobody knows").end("g")
    rows = [row for batch in fake.rows() for row in batch.to_pylist()]
    assert ", ".join(rows[0]) == ", ".join(column.split()[0] for column in CARRIER_DDL.split(", "))
    assert [(row["_kind"], row["_table"], row["_count"]) for row in rows] == [
        ("chunk", "shop.orders", 1), ("ddl", "shop.orders", 1), ("stop", "shop.orders", 0), ("stop", "shop.orders", 0),
        ("end", None, 0), ("batch", None, 0),
    ]  # fmt: skip
    schema = json.loads(rows[0]["_schema"])
    assert schema.keys() == {"table", "key", "columns", "rows", "chosen_key", "hook", "hook_gets", "comment"}
    assert schema["columns"][0] == {
        "name": "id", "spark": "bigint", "mysql": "bigint", "nullable": True, "rule": "", "collation": "",
        "source_name": "", "comment": "",
    }  # fmt: skip
    ddl, unread, stop, end, header = (json.loads(row["_data"]) for row in rows[1:])
    assert ddl == {
        "statement": "ALTER", "action": "alter", "seq": [9, 1, 5, 0], "gtid": f"{UUID}:1", "ts": 1_700_000_000_000_000,
        "db": "shop", "table": "orders", "new_name": None, "schema": None, "unmasks": [],
        "changes": [
            {"change": "add", "name": "a", "nullable": True, "default": None, "quoted": False, "known": True},
        ],
    }  # fmt: skip
    assert (unread, stop) == ({"reason": "odd", "chunk": 3}, {"reason": "nobody knows", "gtid": f"{UUID}:1"})
    position = {"server_uuid": UUID, "file": "binlog.000001", "pos": 4, "gtid": "g"}
    assert end == {**position, "created_s": 0}
    assert header.keys() == {
        "v", "epoch", "start", "gtid", "server_uuid", "planned_us", "tables", "actions", "behind", "readings",
        "full_restart", "start_epoch", "patterns", "last_gtid", "last_us", "paused",
    }  # fmt: skip
    assert header["tables"]["shop.orders"] == {
        "state": "reading", "since_epoch": 7, "first": False, "last": True, "append": False,
        "rows_estimate": None, "chunks_done": None, "chunks_estimate": None,
    }  # fmt: skip


def documented(marker: str) -> set[str]:
    """The keys of the JSON object that the page shows after ``marker``."""
    text = " ".join(PAGE.read_text(encoding="utf-8").split()).split(marker, 1)[1]
    depth, names, name = 0, [], ""
    for letter in text[text.index("{") :]:
        depth += (letter in "{[") - (letter in "}]")
        if depth == 0 or (depth == 1 and letter == ","):
            names.append(name.split(":", maxsplit=1)[0].strip("{ "))
            name = ""
        else:
            name += letter
        if depth == 0:
            break
    return {*names}


def keys_of(message: Message) -> set[str]:
    return {*json.loads(encode(message)["_data"][0].as_py())}


def test_the_page_has_every_key() -> None:
    column, ddl = CarriedColumn("a", "int"), DdlRow("a.b", "ALTER", "alter", (1, 1, 1, 0), None, None)
    assert documented("`_schema` = `") == {*json.loads(Definition("a.b", (), (column,)).to_json())}
    assert documented("key: [names], columns: [") == {*vars(column)}
    assert documented("`headgate.summary`, JSON") == {*vars(Summary())}
    assert documented("| `ddl` |") == keys_of(ddl)
    assert documented("| `redo` |") == keys_of(Redo(ChunkSpec("a.b", 1), "altered"))
    assert documented("| `watermark` |") == keys_of(HighWatermark("a.b", GtidSet(), Last("", 0)))
    assert documented("| `end` |") == keys_of(End("", "", "", 4))
    assert documented("Header:") == keys_of(Header(1, "", "", "", 0))


def test_rows_of_a_later_headgate() -> None:
    header = encode(Header(1, "", "", "", 0))
    place = header.schema.get_field_index("_data")

    def changed(**keys: Any) -> pa.RecordBatch:
        value = {**json.loads(header["_data"][0].as_py()), **keys}
        return header.set_column(place, "_data", pa.array([json.dumps(value).encode()], pa.binary()))

    (known,) = decode(changed(later=1))
    assert known == Header(1, "", "", "", 0)
    with pytest.raises(DecodeError, match="version 2"):
        list(decode(changed(v=2)))
    for message in (UnreadableRows("shop.orders", "odd", "g"), End("g", UUID, "binlog.000001", 4)):
        row = encode(message)
        value = {**json.loads(row["_data"][0].as_py()), "later": 1}
        assert list(decode(row.set_column(place, "_data", pa.array([json.dumps(value).encode()])))) == [message]
    other = header.set_column(1, "_kind", pa.array(["later"]))
    with pytest.raises(DecodeError, match="unknown kind 'later'"):
        list(decode(other))
