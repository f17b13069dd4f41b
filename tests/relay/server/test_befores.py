"""Rows before updates: in the metadata part of events of version 2, and nowhere else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import ConfigError
from headgate.relay.client import Consumer, Event, RelayClient, Result
from headgate.relay.databus import is_intact
from tests.relay.server.rows import UUID, block, image, people
from tests.relay.server.serving import Served, served
from tests.relay.server.test_decoded import tables

PET = TableDef(
    "or_test", "pet", (Column("owner", "bigint"), Column("name", "varchar", length=40, charset="utf8mb4")), (1,)
)
NOTE = TableDef("or_test", "pet", PET.columns, ())


@pytest.fixture
def relay() -> Iterator[Served]:
    with served(event_version=2, before_images=True) as server:
        yield server


class Taker(Consumer):
    def __init__(self, events: int) -> None:
        self.left, self.taken = events, list[Event]()

    def on_data_event(self, event: Event) -> Result | None:
        self.taken.append(event)
        return None

    def on_end_data_event_sequence(self, scn: int) -> Result | None:
        return None if len(self.taken) < self.left else Result.SUCCESS


def taken(relay: Served, count: int, *, before_images: bool = True) -> list[tuple[Any, ...]]:
    """Opcode, key, row and row before of the events, as a client gets them."""
    taker = Taker(count)
    client = RelayClient(f"http://127.0.0.1:{relay.port}", [], taker, before_images=before_images)
    end = taker.on_end_data_event_sequence

    def ending(scn: int) -> Result | None:
        if len(taker.taken) >= count:
            client.finish()
        return end(scn)

    taker.on_end_data_event_sequence = ending  # type: ignore[method-assign]
    client.run()
    return [
        (one.opcode, one.key, short(one.row), None if one.row_before is None else short(one.row_before))
        for one in taker.taken
    ]


def short(row: dict[str, Any]) -> Any:
    return row.get("firstName", row.get("name"))


def updates(**more: Any) -> dict[str, Any]:
    return {"ops": "cbudbu", "ordinals": [0, 1, 1, 2, 3, 3], **more}


def test_an_update_has_the_row_before_it(relay: Served) -> None:
    data = relay.put(block(people([1, 2, 2, 3, 4, 5], **updates(), columns={"first_name": list("abcdef")})))
    assert is_intact(np.frombuffer(data, np.uint8))
    assert taken(relay, 5) == [
        ("UPSERT", 1, "a", None),
        ("UPSERT", 2, "c", "b"),
        ("DELETE", 3, "d", None),
        ("DELETE", 4, "e", None),
        ("UPSERT", 5, "f", "e"),
    ]
    lines = relay.get("stream", sources="40", size="100000", output="json", maxev="2").body.decode().splitlines()
    events = [json.loads(line) for line in lines]
    assert [one["hasPayloadMetadata"] for one in events] == [False, True, False, False, True, False]
    update = events[1]
    assert base64.b64decode(update["metadataValue"])[4:].startswith(b"b")
    assert update["metadataSchemaId"] == update["payloadSchemaId"]
    assert update["metadataLength"] == len(base64.b64decode(update["metadataValue"]))
    assert update["metadataSchemaVersion"] == 1
    assert relay.get("containerStats/inbound/events/total").json["numDataEvents"] == 5


def test_their_schemas_are_numbered_over_all_sources(relay: Served) -> None:
    """One name has them all, as in Databus, whose client keeps one schema for each version of it."""
    pets = image(PET, {"owner": [1, 2], "name": ["a", "a"]}, ops="bu", gtids=[f"{UUID}:2"] * 2, pos=[300] * 2,
                 ordinals=[0, 0])  # fmt: skip
    relay.put(block(people([2, 2], ops="bu", ordinals=[0, 0])), block(pets))
    lines = relay.get("stream", sources="40,41", size="100000", output="json", maxev="2").body.decode().splitlines()
    events = [one for one in map(json.loads, lines) if one["srcId"] > 0]
    assert [(one["payloadSchemaVersion"], one["metadataSchemaVersion"]) for one in events] == [(1, 1), (1, 2)]
    registered = relay.get("register", sources="41,40", protocolVersion="4").json
    assert [(one["id"], one["version"]) for one in registered["sourceSchemas"]] == [(41, 1), (40, 1)]
    named = {one["version"]: one for one in registered["metadataSchemas"]}
    for event, source in zip(events, (40, 41), strict=True):
        schema = named[event["metadataSchemaVersion"]]
        assert schema["crc32"] == event["metadataSchemaId"] == event["payloadSchemaId"]
        assert schema["schema"] == next(one["schema"] for one in registered["sourceSchemas"] if one["id"] == source)


def test_version_1_is_as_if_nobody_had_asked(relay: Served) -> None:
    rows = block(people([1, 2, 2, 3, 4, 5], **updates()))
    relay.put(rows)
    with served() as plain:
        plain.put(block(people([1, 2, 3, 4, 5], ops="cudbu", ordinals=[0, 1, 2, 3, 3], columns={
            "first_name": ["first1", "first2", "first3", "first4", "first5"]})))  # fmt: skip
        wanted = plain.get("stream", sources="40,41", size="100000", output="binary").body
    assert relay.get("stream", sources="40,41", size="100000", output="binary").body == wanted
    assert [one[3] for one in taken(relay, 5, before_images=False)] == [None] * 5


def test_keys_of_text_and_no_key(relay: Served) -> None:
    columns: dict[str, list[Any]] = {"owner": [1, 2, 3, 4], "name": ["a", "a", "b", "bb"]}
    arguments: dict[str, Any] = {"ops": "bubu", "gtids": [f"{UUID}:1"] * 4, "pos": [200] * 4, "ordinals": [0, 0, 1, 1]}
    relay.put(block(image(PET, columns, **arguments)))
    assert taken(relay, 3) == [("UPSERT", b"a", "a", "a"), ("DELETE", b"b", "b", None), ("UPSERT", b"bb", "bb", "b")]
    arguments |= {"gtids": [f"{UUID}:2"] * 4, "pos": [300] * 4}
    relay.put(block(image(NOTE, columns, **arguments)))
    assert taken(relay, 7)[3:] == [
        ("DELETE", b"", "a", None), ("UPSERT", b"", "a", "a"), ("DELETE", b"", "b", None), ("UPSERT", b"", "bb", "b"),
    ]  # fmt: skip


def test_in_decoded_rows(relay: Served) -> None:
    put = block(people([1, 2, 2, 3, 4, 5], **updates(), columns={"first_name": list("abcdef"), "birth_date": range(6)}))
    relay.put(put, block(image(PET, {"owner": [1], "name": ["x"]}, ops="c", gtids=[f"{UUID}:2"], pos=[300])))
    parameters = {"sources": "40,41", "size": "100000", "maxev": "2"}

    def lines(**more: str) -> list[Any]:
        return [json.loads(line) for line in relay.get("stream", **{**parameters, **more}).body.decode().splitlines()]

    rows = lines(output="rows")
    person = {"id": 2, "firstName": "b", "lastName": "last2", "birthDate": "1970-01-02", "deleted": "false"}
    assert rows[1]["before"] == person
    assert rows[1]["row"] == {**person, "firstName": "c", "birthDate": "1970-01-03"}
    # Key 4 became 5: the DELETE has the old row already, and the UPSERT has it again.
    assert [(one["opcode"], one["key"], one["before"] and short(one["before"])) for one in rows] == [
        ("UPSERT", 1, None), ("UPSERT", 2, "b"), ("DELETE", 3, None), ("DELETE", 4, None), ("UPSERT", 5, "e"),
        ("UPSERT", "x", None),
    ]  # fmt: skip
    persons, animals = tables(relay.get("stream", output="arrow", **parameters))
    assert persons.schema.names[-1] == "_before"
    assert [field.name for field in persons.schema.field("_before").type] == list(person)
    assert [before and before["firstName"] for before in persons["_before"].to_pylist()] == [None, "b", None, None, "e"]
    assert animals["_before"].to_pylist() == [None]
    assert all(list(one) == ["source", "scn", "opcode", "key", "ts", "row", "before"] for one in rows)


def test_decoded_rows_are_as_before_for_who_does_not_ask(relay: Served) -> None:
    relay.put(block(people([2, 2], ops="bu", ordinals=[0, 0])))
    for more in ({}, {"maxev": "0"}):
        assert b"before" not in relay.get("stream", sources="40", size="100000", output="rows", **more).body
        (persons,) = tables(relay.get("stream", sources="40", size="100000", output="arrow", **more))
        assert "_before" not in persons.schema.names


def test_a_relay_without_them_does_not_say_that_there_were_none() -> None:
    with served(event_version=2) as relay:
        relay.put(block(people([2], ops="u")))
        answer = relay.get("stream", sources="40", size="100000", output="rows", maxev="2")
        assert "before" not in json.loads(answer.body)


def test_columns_that_are_not_wanted_are_null_in_them_too(relay: Served) -> None:
    relay.put(block(people([2, 2], ops="bu", ordinals=[0, 0], columns={"first_name": ["a", "b"]})))
    filters = {"40": {"partitionType": "NONE", "columns": ["first_name"]}}
    parameters: dict[str, Any] = {"sources": "40", "size": "100000", "output": "rows", "maxev": "2", "filters": filters}
    event = json.loads(relay.get("stream", **parameters).body)
    assert event["before"] == {"id": 2, "firstName": "a", "lastName": None, "birthDate": None, "deleted": None}
    assert event["row"]["firstName"] == "b"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("cud"), st.integers(0, 50)), min_size=1, max_size=12))
def test_any_changes(changes: list[tuple[str, int]]) -> None:
    """What was before is what the changes say, row by row, in lines and in Arrow."""
    ops, names, ordinals, wanted = "", list[str](), list[int](), list[str | None]()
    for number, (op, name) in enumerate(changes):
        for one in "bu" if op == "u" else op:
            ops += one
            names.append(f"{one}{name}")
            ordinals.append(number)
        wanted.append(f"b{name}" if op == "u" else None)
    rows = people([7] * len(ops), ops=ops, ordinals=ordinals, columns={"first_name": names})
    with served(event_version=2, before_images=True) as relay:
        relay.put(block(rows))
        parameters = {"sources": "40", "size": "100000", "maxev": "2"}
        lines = relay.get("stream", output="rows", **parameters).body.decode().splitlines()
        (table,) = tables(relay.get("stream", output="arrow", **parameters))
    befores = [json.loads(line)["before"] for line in lines]
    assert [one and one["firstName"] for one in befores] == wanted
    assert [one and one["firstName"] for one in table["_before"].to_pylist()] == wanted


def test_they_take_version_2() -> None:
    with pytest.raises(ConfigError, match="version 2"), served(before_images=True):
        pass
