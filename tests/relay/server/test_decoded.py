"""Decoded rows over HTTP: as JSON lines and as Arrow, with the checkpoint to go on from."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings

from headgate.catalog import Column
from headgate.relay.server import LogicalSource
from headgate.relay.server.events import json_lines
from tests.relay.server.rows import PERSON, UUID, block, image, people
from tests.relay.server.serving import PET, Answer, Served, physical, served
from tests.relay.server.test_app import GENERATION, INVALID, PROCESSING, checkpoint, pets, refused
from tests.relay.server.test_avro import ROWS, TABLE

NAME = "com.linkedin.events.example.or_test.Person"


@pytest.fixture(params=[1, 2])
def relay(request: pytest.FixtureRequest) -> Iterator[Served]:
    """In both versions of events: two persons; a pet and a person; a person deleted."""
    with served(event_version=request.param) as one:
        one.put(
            block(people([1, 2])),
            block(
                pets([7], gtids=[f"{UUID}:2"], pos=[300], ordinals=[0]),
                people([3], gtids=[f"{UUID}:2"], pos=[350], ordinals=[1]),
            ),
            block(people([1], ops="d", gtids=[f"{UUID}:3"], pos=[400])),
        )
        yield one


def ask(relay: Served, **more: Any) -> Answer:
    answer = relay.get("stream", **{"sources": "40,41", "size": "100000", "output": "rows", **more})
    assert answer.status == 200, answer
    return answer


def tables(answer: Answer) -> list[pa.Table]:
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    source, parts = io.BytesIO(answer.body), []
    while source.tell() < len(answer.body):
        with pa.ipc.open_stream(source) as stream:
            parts.append(stream.read_all())
    return parts


def test_rows_as_json_lines(relay: Served) -> None:
    lines = ask(relay).body.decode().splitlines()
    assert lines[0] == (
        f'{{"source":"{NAME}","scn":{GENERATION + 1},"opcode":"UPSERT","key":1,"ts":"2023-11-14T22:13:20.000000Z",'
        '"row":{"id":1,"firstName":"first1","lastName":"last1","birthDate":"1970-01-02","deleted":"false"}}'
    )
    events = [json.loads(line) for line in lines]
    assert [(one["scn"] - GENERATION, one["opcode"], one["key"]) for one in events] == [
        (1, "UPSERT", 1), (1, "UPSERT", 2), (2, "UPSERT", "7\tpet7"), (2, "UPSERT", 3), (3, "DELETE", 1),
    ]  # fmt: skip
    assert events[2]["row"] == {"owner": 7, "name": "pet7"}


def test_rows_as_arrow(relay: Served) -> None:
    persons, animals = tables(ask(relay, output="arrow"))
    assert persons.schema.metadata == {b"source": NAME.encode(), b"source_id": b"40", b"version": b"1"}
    stamp = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert persons.cast(
        pa.schema([one.with_type(pa.timestamp("us", tz="UTC")) if one.name == "_ts" else one for one in persons.schema])
    ).to_pylist()[3] == {
        "_scn": GENERATION + 3, "_event": 6, "_op": "DELETE", "_ts": stamp, "_key": 1, "id": 1, "firstName": "first1",
        "lastName": "last1", "birthDate": dt.date(1970, 1, 2), "deleted": "false",
    }  # fmt: skip
    assert persons["_event"].to_pylist() == [0, 1, 4, 6]
    assert animals.schema.field("_key").type == pa.binary()
    assert animals.select(["_event", "_key", "owner"]).to_pylist() == [{"_event": 3, "_key": b"7\tpet7", "owner": 7}]
    assert tables(ask(relay, output="arrow", checkPoint=checkpoint(GENERATION + 3))) == []


def test_the_checkpoint_goes_on_where_an_answer_ended(relay: Served) -> None:
    everything = ask(relay).body.decode().splitlines()
    for wanted in ({}, {"sources": "40"}, {"filters": {"40": {"partitionType": "RANGE", "filters": []}}}):
        expected = ask(relay, **wanted).body.decode().splitlines()
        assert len(expected) in (len(everything), 4, 1)
        actual: list[str] = []
        point: Any = checkpoint(-1)
        for _ in range(9):
            answer = ask(relay, size="200", checkPoint=point, **wanted)
            assert "x-dbus-pending-event-size" not in answer.headers
            actual += answer.body.decode().splitlines()
            point = json.loads(answer.headers["x-headgate-checkpoint"])
        assert actual == expected
        assert (point["windowScn"], point["windowOffset"]) == (GENERATION + 3, -1)
    latest = ask(relay, streamFromLatestScn="true")
    assert latest.body.decode().splitlines() == everything[4:]
    assert json.loads(latest.headers["x-headgate-checkpoint"]) == point


def test_checkpoints_of_several_logs() -> None:
    other = LogicalSource(50, "com.example.Other", "or_test.person")
    with served(physical(1, "person", PET), physical(2, "second", other)) as relay:
        relay.put(*(block(pets([n], gtids=[f"{UUID}:{n}"], pos=[n * 100])) for n in (1, 2)), partition=1)
        relay.put(*(block(people([n], gtids=[f"{UUID}:{n}"], pos=[n * 100])) for n in (1, 2)), partition=2)
        answer = ask(relay, sources="41,50")
        assert len(answer.body.splitlines()) == 4
        places = json.loads(answer.headers["x-headgate-checkpoint"])
        assert [json.loads(name) for name in places] == [{"id": 1, "name": "person"}, {"id": 2, "name": "second"}]
        again = ask(relay, sources="41,50", checkPointMult=places)
        assert (again.body, again.headers["x-headgate-checkpoint"]) == (b"", answer.headers["x-headgate-checkpoint"])


def test_every_type_as_json_and_as_arrow() -> None:
    columns = tuple(replace(column, nullable=True) for column in TABLE.columns)
    table = replace(TABLE, columns=columns)
    numbers = itertools.count(1)

    @settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        number, count = next(numbers), len(rows)
        wanted = [{**row, "tiny": key} for key, row in enumerate(rows)]
        values = {name: [row[name] for row in wanted] for name in wanted[0]}
        gtids, pos = [f"{UUID}:{number}"] * count, [number * 100] * count
        one.put(block(image(table, values, ops="c" * count, gtids=gtids, pos=pos)))
        parameters = {"sources": "1", "size": "10000000", "streamFromLatestScn": "true"}
        lines = [json.loads(line) for line in one.get("stream", **parameters, output="rows").body.splitlines()]
        (arrow,) = tables(one.get("stream", **parameters, output="arrow"))
        names = arrow.column_names[5:]
        for line, row in zip(lines, wanted, strict=True):
            assert list(line["row"]) == names
            # JSON has no infinity, and neither has MySQL.
            missing = [row[column.name] in (None, math.inf, -math.inf) for column in columns]
            assert [value is None for value in line["row"].values()] == missing
            assert (line["row"]["name"], line["row"]["n"]) == (row["name"], row["n"])
            assert line["row"]["price"] == (None if row["price"] is None else format(row["price"], "f"))
        for name, column in zip(names, columns, strict=True):
            assert arrow[name].to_pylist() == [row[column.name] for row in wanted], name

    with served(physical(1, "p", LogicalSource(1, "a.T", "d.t"))) as one:
        check()


def test_changes_in_files_keep_their_schemas(tmp_path: Path) -> None:
    """Also if only the state has a folder, and both definitions are older than the restart."""
    wider = replace(PERSON, columns=(*PERSON.columns, Column("age", "int")))
    columns: dict[str, list[Any]] = {
        "id": [2], "first_name": ["a"], "last_name": ["b"], "birth_date": [1], "deleted": ["false"], "age": [5],
    }  # fmt: skip
    config: dict[str, Any] = {"state": tmp_path, "memory_bytes": 256 << 10, "disk_bytes": 1 << 20}
    with served(**config) as relay:
        relay.put(block(people([1])), block(image(wider, columns, ops="c", gtids=[f"{UUID}:2"], pos=[300])))
        relay.relay.partitions[1].feeder._file.save()
    with served(**config) as relay:
        rows = [json.loads(line)["row"] for line in ask(relay).body.splitlines()]
    assert [(row["id"], row.get("age", "none")) for row in rows] == [(1, "none"), (2, 5)]


def test_what_cannot_be_decoded_is_told(relay: Served) -> None:
    registry = relay.relay.registry
    schemas = registry._known.pop(NAME)
    answer = relay.get("stream", sources="40", size="100000", output="arrow")
    refused(answer, PROCESSING)
    assert "the registry has no schema" in answer.json["message"]
    registry._known[NAME] = schemas
    refused(relay.get("stream", sources="40", size="1", output="parquet"), INVALID)
    assert PERSON.key == (0,)


def test_checkpoints_inside_windows() -> None:
    """Their offset counts the window's rows that came; after its end it is -1."""
    windows, offsets = [1, 4, 2, 3], set[int]()
    with served() as relay:
        for n, rows in enumerate(windows, 1):
            relay.put(block(people(range(rows), gtids=[f"{UUID}:{n}"] * rows, pos=[n * 100] * rows)))
        for size in range(200, 1000, 50):
            counts, at = Counter[int](), checkpoint(-1)
            while (at["windowScn"] - GENERATION, at["windowOffset"]) != (len(windows), -1):
                answer = ask(relay, size=str(size), checkPoint=at, sources="40")
                counts.update(json.loads(line)["scn"] - GENERATION for line in answer.body.splitlines())
                at = json.loads(answer.headers["x-headgate-checkpoint"])
                number, offset = at["windowScn"] - GENERATION, at["windowOffset"]
                assert counts[number] == (windows[number - 1] if offset < 0 else offset)
                offsets.add(offset)
            assert counts == dict(enumerate(windows, 1))
    assert offsets >= {-1, 1, 2, 3}


def test_a_large_row_in_json_takes_no_more_than_some_times_its_size() -> None:
    """Its bytes are gathered as bytes, not by numbers of eight bytes that say where each one is."""
    size = 8 << 20
    with served() as relay:
        data = np.frombuffer(relay.put(block(people([1], columns={"first_name": ["x" * size]}))), np.uint8)
    json_lines(data[-61:], plain=False)  # what has to be loaded is loaded
    tracemalloc.start()
    try:
        lines = json_lines(data, plain=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lines) > size * 4 // 3
    assert most < 6 * size
