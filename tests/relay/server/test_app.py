"""The commands of Databus over HTTP, byte for byte where its clients look."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import ScnOrderError, UnsupportedError
from headgate.relay.server import EventBuffer, LogicalSource, RelayLimits
from headgate.replication import ImageBatch
from tests.relay.server.rows import PERSON, UUID, block, image, people
from tests.relay.server.serving import PET, Answer, Served, physical, served

GENERATION = 1 << 48
PET_TABLE = TableDef(
    "or_test",
    "pet",
    (Column("owner", "int", nullable=False), Column("name", "varchar", length=80, charset="utf8mb4", nullable=False)),
    (0, 1),
)


def pets(owners: list[int], **more: Any) -> ImageBatch:
    rows = len(owners)
    arguments: dict[str, Any] = {"ops": "c" * rows, "gtids": [f"{UUID}:1"] * rows, "pos": [200] * rows, **more}
    return image(PET_TABLE, {"owner": owners, "name": [f"pet{one}" for one in owners]}, **arguments)


@pytest.fixture
def relay() -> Iterator[Served]:
    with served() as one:
        yield one


@pytest.fixture
def with_events(relay: Served) -> Served:
    fill(relay)
    return relay


def fill(relay: Served) -> None:
    """Three transactions: two persons; a pet and a person; a person deleted."""
    relay.put(
        block(people([1, 2])),
        block(
            pets([7], gtids=[f"{UUID}:2"], pos=[300], ordinals=[0]),
            people([3], gtids=[f"{UUID}:2"], pos=[350], ordinals=[1]),
        ),
        block(people([1], ops="d", gtids=[f"{UUID}:3"], pos=[400])),
    )


def refused(answer: Answer, error: str, cause: str | None = None, *, status: int = 500) -> None:
    assert answer.status == status
    assert answer.headers["x-dbus-error"] == error
    assert answer.headers.get("x-dbus-error-cause") == cause
    assert answer.body.endswith(b"}\r\n")
    assert list(answer.json) == ["error", "message"]
    assert answer.json["error"] == error
    assert answer.headers["x-dbus-error-message"] == answer.json["message"]


INVALID = "com.linkedin.databus2.core.container.request.InvalidRequestParamValueException"
PROCESSING = "com.linkedin.databus2.core.container.request.RequestProcessingException"


def test_register(relay: Served) -> None:
    assert relay.get("register").body == b"[]"
    relay.put(block(people([1]), pets([1])))
    answer = relay.get("register", sources="40")
    for version in ("2", "3"):
        again = relay.get("register", sources="40", protocolVersion=version)
        assert (again.body, again.headers["x-dbus-protocol-version"]) == (answer.body, version)
    four = relay.get("register", sources="40", protocolVersion="4")
    assert four.body == b'{"sourceSchemas":' + answer.body + b"}"
    compressed = relay.get("register", sources="40", compress="true")
    assert gzip.decompress(base64.b64decode(compressed.body)) == answer.body
    assert [one["id"] for one in relay.get("register", sources="41, 40").json] == [41, 40]
    assert [one["id"] for one in relay.get("register").json] == [40, 41]
    for wrong in ({"sources": "42"}, {"sources": "x"}, {"protocolVersion": "5"}, {"protocolVersion": "x"}):
        refused(relay.get("register", **wrong), INVALID)


def lines(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer
    return [json.loads(line) for line in answer.body.splitlines()]


def stream(relay: Served, **more: Any) -> list[dict[str, Any]]:
    return lines(relay.get("stream", **{"sources": "40,41", "size": "100000", "output": "json", **more}))


def short(events: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    return [
        (one["sequence"] - GENERATION, "EOP" if one.get("endOfPeriod") else one.get("key", one.get("keyBytes")))
        for one in events
    ]


PET_KEY = base64.b64encode(b"7\tpet7").decode()


def checkpoint(scn: int, offset: int = -1, **more: Any) -> dict[str, Any]:
    return {"windowOffset": offset, "snapshot_offset": -1, "prevScn": -1, "windowScn": scn, **more}


def test_checkpoints(with_events: Served) -> None:
    everything = short(stream(with_events))
    for scn, offset, wanted in ((1, -1, 3), (1, 0, 0), (1, 1, 1), (1, 3, 3), (2, 2, 5), (3, -1, 8), (0, -1, 0)):
        point = checkpoint(GENERATION + scn, offset, consumption_mode="ONLINE_CONSUMPTION")
        assert short(stream(with_events, checkPoint=point)) == everything[wanted:], (scn, offset)
        several = {'{"id":1,"name":"person"}': json.dumps(point), "cursorPartition": '{"id":1,"name":"person"}'}
        assert short(stream(with_events, checkPointMult=several)) == everything[wanted:]
    assert short(stream(with_events, checkPoint=checkpoint(-1))) == everything
    assert (
        short(stream(with_events, streamFromLatestScn="true", checkPoint=checkpoint(GENERATION + 1))) == everything[6:]
    )
    assert short(stream(with_events, sources="41")) == [(1, "EOP"), (2, PET_KEY), (2, "EOP"), (3, "EOP")]
    # A place inside a window counts what is sent.
    inside = checkpoint(GENERATION + 2, 1)
    assert short(stream(with_events, sources="40", checkPoint=inside)) == [(2, "EOP"), (3, 1), (3, "EOP")]
    high = {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 3, "end": 4}}]}
    ranges = {"40": high, "41": {"partitionType": "RANGE", "filters": []}}
    assert short(stream(with_events, filters=ranges, checkPoint=inside)) == [(2, "EOP"), (3, "EOP")]


def test_filters_that_can_never_be_asked(relay: Served) -> None:
    span = {"keyRange": {"start": 1, "end": 2}}

    def ask(**filters: Any) -> Answer:
        by_source = {number.lstrip("_"): {"partitionType": "NONE", **value} for number, value in filters.items()}
        return relay.get("stream", sources="40,41", size="1000", output="json", filters=by_source)

    pets_by_range = {"partitionType": "RANGE", "filters": [span]}
    assert ask(_41=pets_by_range).status == 200  # nobody knows yet what their keys are
    relay.put(block(people([1]), pets([7])))
    answer = ask(_41=pets_by_range)
    refused(answer, INVALID, status=400)
    assert "RANGE needs integer keys, but the keys of source 41 are made of owner, name" in answer.json["message"]
    answer = ask(_40={"where": "other = 1"})
    refused(answer, INVALID, status=400)
    assert "there is no column other" in answer.json["message"]
    refused(ask(_40={"columns": ["other"]}), INVALID, status=400)
    refused(ask(_40={"where": "first_name > 1"}), INVALID, status=400)
    assert ask(_40={"partitionType": "RANGE", "filters": [span]}).status == 200
    assert ask(_41={"partitionType": "RANGE"}).status == 200  # nothing is in it, whatever keys are
    # At once, also where there is nothing to be chosen from.
    parameters: dict[str, Any] = {"sources": "41", "size": "1000", "output": "json", "wait": "60000"}
    parameters |= {"filters": {"41": pets_by_range}, "checkPoint": checkpoint(GENERATION + 1)}
    refused(relay.get("stream", **parameters), INVALID, status=400)
    # Of sources that are not asked for nothing has to fit.
    assert relay.get("stream", sources="40", filters={"41": pets_by_range}, size="9", output="json").status == 200


def test_a_range_of_text_that_is_a_number_as_long_as_it_is() -> None:
    table = TableDef("or_test", "pet", (Column("name", "varchar", length=80, charset="utf8mb4", nullable=False),), (0,))

    def named(name: str, number: int) -> ImageBatch:
        return image(table, {"name": [name]}, ops="c", gtids=[f"{UUID}:{number}"], pos=[number * 100])

    span = {"41": {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 1, "end": 20}}]}}
    with served() as relay:
        relay.put(block(named("12", 1)), block(named("31", 2)))
        parameters: dict[str, Any] = {"sources": "41", "size": "100000", "output": "json", "filters": span}
        events = lines(relay.get("stream", **parameters))
        assert [one.get("keyBytes") for one in events] == [base64.b64encode(b"12").decode(), None, None]
        relay.put(block(named("rex", 3)))
        answer = relay.get("stream", **parameters)
        refused(answer, INVALID, status=400)
        assert "RANGE needs integer keys" in answer.json["message"]


def test_a_subscription_by_subs(with_events: Served) -> None:
    everything = short(stream(with_events))

    def subscribed(partition: dict[str, Any], *ids: int) -> list[tuple[int, Any]]:
        subs = [
            {"physicalPartition": partition, "logicalPartition": {"source": {"id": one, "name": "x"}, "id": -1}}
            for one in ids
        ]
        answer = with_events.get("stream", subs=subs, size="100000", output="json")
        return short(lines(answer))

    assert subscribed({"id": 1, "name": "person"}, 40, 41) == subscribed({"id": -1, "name": "*"}, -1) == everything
    assert subscribed({"id": 1, "name": "person"}, 41) == short(stream(with_events, sources="41"))


def test_sizes(with_events: Served) -> None:
    binary = {"sources": "40,41", "output": "binary"}
    first = int.from_bytes(with_events.get("stream", size="100000", **binary).body[5:9], "big")
    small = with_events.get("stream", size=str(first - 1), **binary)
    assert (small.status, small.body, small.headers["x-dbus-pending-event-size"]) == (200, b"", str(first))
    exact = with_events.get("stream", size=str(first), **binary)
    assert len(exact.body) == first
    assert "x-dbus-pending-event-size" not in exact.headers
    # The size bounds events as they are in binary, whatever the output.
    assert len(stream(with_events, size=str(first))) == 1
    end = with_events.get("stream", size="10", checkPoint=checkpoint(GENERATION + 3), **binary)
    assert (end.body, "x-dbus-pending-event-size" in end.headers) == (b"", False)


def test_too_far_behind(with_events: Served) -> None:
    answer = with_events.get(
        "stream", sources="40", size="1000", output="binary", checkPoint=checkpoint(GENERATION - 1)
    )
    refused(answer, PROCESSING, "com.linkedin.databus.core.ScnNotFoundException")
    assert answer.headers["x-dbus-error-cause-message"] == answer.json["message"]


@pytest.mark.parametrize("most", [100, 10])
def test_answers_have_a_bound_but_an_event_is_always_given(most: int) -> None:
    with served(limits=RelayLimits(answer=most)) as relay:
        fill(relay)
        assert short(stream(relay)) == [(1, 1)]
        small = relay.get("stream", sources="40", size="50", output="binary")
        assert int(small.headers["x-dbus-pending-event-size"]) > 50


TEXTS = st.text(max_size=30) | st.sampled_from(["40", "41", "-1", "1000", "json", "binary", "true", "2", "{}", "[]"])
NUMBERS = st.integers(-3, 2**64) | st.just(GENERATION + 1)
POINTS = st.fixed_dictionaries({}, optional={"windowScn": NUMBERS, "windowOffset": NUMBERS | st.none()})
SUBS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"logicalPartition": st.fixed_dictionaries({"source": st.dictionaries(st.just("id"), NUMBERS)})}
    )
)
PARAMETERS = st.fixed_dictionaries(
    {"sources": st.just("40") | TEXTS, "size": NUMBERS.map(str) | TEXTS, "output": st.just("json") | TEXTS},
    optional={
        "checkPoint": POINTS | TEXTS,
        "checkPointMult": TEXTS | st.dictionaries(TEXTS | st.just('{"id":1}'), POINTS.map(json.dumps) | TEXTS),
        "subs": SUBS | TEXTS, "maxev": TEXTS, "filters": TEXTS, "streamFromLatestScn": TEXTS, "compress": TEXTS,
        "protocolVersion": TEXTS, "v": TEXTS, "source": TEXTS, "batchSize": NUMBERS.map(str) | TEXTS, "filter": TEXTS,
    },
)  # fmt: skip
PATHS = st.sampled_from(
    ["stream"] * 5
    + ["register", "sources", "containerStats/inbound/events/total", "bufferInfo/inbound/person/1", "physicalBuffers"]
    + ["startSCN", "bootstrap", "targetSCN", "groups/billing", "log/head", "log/files"]
)
LONGEST_URL = 65_535
"""Bytes of a path with its query: docs/reference/relay.md."""


def test_any_request_is_answered_or_refused(with_events: Served) -> None:
    @settings(max_examples=100)
    @given(PATHS, PARAMETERS)
    def ask(path: str, parameters: dict[str, Any]) -> None:
        answer = with_events.get(path, **parameters)
        refused = answer.status in (400, 500) and answer.headers["x-dbus-error"].startswith("com.")
        assert answer.status == 200 or refused

    @settings(max_examples=50)
    @given(st.text(max_size=40))
    def ask_anything(path: str) -> None:
        answer = with_events.get(quote(path, safe="/"))
        assert answer.status == 200 or answer.headers["x-dbus-error"].startswith("com.")

    ask()
    ask_anything()
    longest = "x" * (LONGEST_URL - len("/"))
    assert with_events.get(longest).headers["x-dbus-error"].startswith("com.")
    assert (with_events.get(longest + "x").status, with_events.get("sources").status) == (400, 200)
    for odd in ("%0A0", "%00", "stream/", "sources%2F", "admin/x", "%ff"):
        assert "x-dbus-error" in with_events.get(odd).headers, odd


WRONG_FILTERS: list[dict[str, Any]] = [
    {"where": "n ="}, {"where": ["=", "n", 1]}, {"columns": []}, {"columns": [1]},
    {"partitionType": "MOD", "filters": [{"keyRange": {"start": 0, "end": 1}}]},
    {"partitionType": "MOD", "filters": [{"numBuckets": 1.5, "bktRange": {"start": 0, "end": 1}}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": ""}, {"size": "-1"}, {"size": "99999999999"}, {"output": "xml"}, {"sources": "42"}, {"sources": "x"},
        {"maxev": "1"}, {"maxev": "3"}, {"checkPoint": "{"}, {"checkPoint": "[]"}, {"checkPoint": '{"windowScn":"1"}'},
        {"checkPoint": '{"windowScn":true}'}, {"checkPoint": '{"windowScn":1e3}'}, {"checkPointMult": "[]"},
        {"checkPointMult": '{"a":"b"}'}, {"checkPoint": '{"consumption_mode":"BOOTSTRAP_SNAPSHOT"}'}, {"filters": "{"},
        {"filters": "[]"}, {"filters": '{"40":1}'}, {"filters": '{"x":{"partitionType":"NONE"}}'},
        {"filters": '{"40":{"partitionType":"SUM"}}'}, {"filters": '{"40":{"partitionType":"MOD","filters":[{}]}}'},
        {"filters": '{"40":{"partitionType":"MOD","filters":[{"numBuckets":0,"bktRange":{"start":0,"end":1}}]}}'},
        {"filters": '{"99999999999999999999":{"partitionType":"RANGE"}}'},
        *[{"filters": json.dumps({"40": {"partitionType": "NONE", **one}})} for one in WRONG_FILTERS],
        {"wait": "x"}, {"size": "9" * 5000}, {"sources": "9" * 5000}, {"checkPoint": '{"windowScn":Infinity}'},
    ],
)  # fmt: skip
def test_what_a_stream_refuses(relay: Served, wrong: dict[str, str]) -> None:
    refused(relay.get("stream", **{"sources": "40", "size": "1000", "output": "json", **wrong}), INVALID)


@pytest.mark.parametrize(
    "subs",
    [
        "{", "[]", "[1]", "{}", "5", "[" * 5000, '[{"logicalPartition":{"source":{"id":Infinity}}}]',
        '[{"logicalPartition":{"source":{"id":40}},"physicalPartition":{"id":9}}]',
        '[{"logicalPartition":{"source":{"id":1e30}}}]',
    ],
)  # fmt: skip
def test_subscriptions_that_are_none(relay: Served, subs: str) -> None:
    refused(relay.get("stream", subs=subs, size="1", output="json"), INVALID)


def test_missing_parameters_and_unknown_commands(relay: Served) -> None:
    for missing in (
        {"size": "1", "output": "json"},
        {"sources": "40", "size": "1"},
        {"sources": "40", "output": "json"},
    ):
        answer = relay.get("stream", **missing)
        refused(answer, INVALID)
        assert answer.json["message"].endswith("of command stream: null")
    refused(relay.get("nothing/such"), "com.linkedin.databus2.core.container.request.UnknownCommandException")


def test_events_of_version_2_for_who_reads_version_1() -> None:
    """What a relay of version 1 has, but for the logical partition."""
    answers = []
    for version in (1, 2):
        with served(event_version=version) as relay:
            relay.put(block(people([1, 2])), block(pets([7], gtids=[f"{UUID}:2"], pos=[300])))
            answers.append([{**one, "logicalPartitionId": 0} for one in stream(relay)])
    assert answers[0] == answers[1]


def test_several_logs_take_turns() -> None:
    other = LogicalSource(50, "com.example.Other", "or_test.person")
    with served(physical(1, "person", PET), physical(2, "second", other)) as relay:
        relay.put(*(block(pets([n], gtids=[f"{UUID}:{n}"], pos=[n * 100])) for n in (1, 2, 3)), partition=1)
        relay.put(*(block(people([n], gtids=[f"{UUID}:{n}"], pos=[n * 100])) for n in (1, 2)), partition=2)
        parameters = {"sources": "41,50", "size": "100000", "output": "json"}

        def turns(**more: Any) -> list[tuple[int, int]]:
            events = lines(relay.get("stream", **parameters, **more))
            return [(one["physicalPartitionId"], one["sequence"] % GENERATION) for one in events if "opcode" in one]

        assert turns() == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]
        names = ['{"id":1,"name":"person"}', '{"id":2,"name":"second"}']
        several = {names[0]: json.dumps(checkpoint(2 * GENERATION)), names[1]: json.dumps(checkpoint(-1))}
        several["cursorPartition"] = names[1]
        assert turns(checkPointMult=several) == [(2, 1), (2, 2)]
        assert relay.get("containerStats/inbound/events/total").json["numDataEvents"] == 5
        assert relay.get("containerStats/inbound/events/psource/second:2").json["numDataEvents"] == 2
        assert relay.get("containerStats/inbound/events/psources").json == ["person:1", "second:2"]


def test_statistics(with_events: Served) -> None:
    size = len(with_events.get("stream", sources="40,41", size="100000", output="binary").body)
    for way in ("inbound", "outbound"):
        total = with_events.get(f"containerStats/{way}/events/total").json
        assert total["sizeDataEvents"] + total["sizeSysEvents"] == size


@pytest.mark.parametrize(
    "path",
    [
        "sources?v=3", "containerStats/x", "containerStats/inbound/events/source/99",
        "containerStats/inbound/events/psource/nobody", "containerStats/inbound/events/source/x",
        "bufferInfo/inbound/person/2", "bufferInfo/inbound/other/1", "bufferInfo/x", "bufferInfo/inbound/a/b",
    ],
)  # fmt: skip
def test_what_does_not_exist(relay: Served, path: str) -> None:
    refused(relay.get(path), INVALID)


def test_how_it_is(relay: Served) -> None:
    feeder = relay.relay.partitions[1].feeder
    feeder._note_problem("the server is away")
    assert relay.get("admin/status").json == {"status": "ERROR_RETRYING", "message": "person: the server is away"}
    feeder._fail("its log is gone")
    assert relay.get("admin/status").json["status"] == "SUSPENDED_ON_ERROR"


def asked_before(
    monkeypatch: pytest.MonkeyPatch, relay: Served, parameters: dict[str, str], happens: Callable[[], object]
) -> Answer:
    """The answer to who waits already when something happens."""
    answers: list[Answer] = []
    listening = threading.Event()
    really = EventBuffer.cursors

    def noticed(*arguments: Any, **more: Any) -> Iterator[Any]:
        content = list(really(*arguments, **more))
        listening.set()  # an append from now on is not in the content
        return iter(content)

    monkeypatch.setattr(EventBuffer, "cursors", noticed)
    reader = threading.Thread(target=lambda: answers.append(relay.get("stream", **parameters, wait="60000")))
    reader.start()
    assert listening.wait(60)
    happens()
    reader.join(60)
    return answers[0]


def test_waiting_for_events(relay: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"sources": "40", "size": "100000", "output": "json"}
    assert relay.get("stream", **parameters, wait="1").body == b""
    answer = asked_before(monkeypatch, relay, parameters, lambda: relay.put(block(people([1]))))
    assert short(lines(answer)) == [(1, 1), (1, "EOP")]


def test_who_waits_for_all_sources_by_id_gets_no_table_that_turns_up_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = LogicalSource(60, "com.example", "or_test.*")
    with served(physical(1, "person", LogicalSource(40, "a.Person", "or_test.person"), pattern)) as relay:
        parameters = {"sources": "40", "size": "100000", "output": "json"}
        assert relay.get("stream", **parameters).body == b""

        def happens() -> None:
            relay.put(block(pets([1, 2])))

        assert short(lines(asked_before(monkeypatch, relay, parameters, happens))) == [(1, "EOP")]
        assert [one["id"] for one in relay.get("sources").json] == [40, 60]
        subs = [{"logicalPartition": {"source": {"id": -1}}}]
        assert len(lines(relay.get("stream", subs=subs, size="100000", output="json"))) == 3


def test_a_changed_key_is_a_delete_and_an_upsert(relay: Served) -> None:
    relay.put(block(people([1, 5], ops="bu", ordinals=[0, 0])))
    events = stream(relay)
    assert [(one.get("opcode"), one["key"]) for one in events] == [("DELETE", 1), ("UPSERT", 5), (None, 0)]
    assert PERSON.key == (0,)


def test_scns_of_a_column() -> None:
    with served(scn="application", scn_column="id") as relay:
        relay.put(block(people([7, 3])), block(people([8], gtids=[f"{UUID}:2"], pos=[300])))
        assert [(one["sequence"], one["key"]) for one in stream(relay)] == [(7, 7), (7, 3), (7, 0), (8, 8), (8, 0)]
        with pytest.raises(ScnOrderError, match="SCN 5 after 8"):
            relay.put(block(people([5], gtids=[f"{UUID}:3"], pos=[400])))
    with served(scn="source-generated", scn_column="or_test.pet.owner") as relay:
        relay.put(block(people([7], ordinals=[0]), pets([1000], ordinals=[1])))
        assert {one["sequence"] for one in stream(relay)} == {GENERATION + 1000}
        with pytest.raises(ScnOrderError, match="no row with a number"):
            relay.put(block(people([8], gtids=[f"{UUID}:2"], pos=[300])))
    with (
        served(scn="application", scn_column="first_name") as relay,
        pytest.raises(UnsupportedError, match="integer or decimal column"),
    ):
        relay.put(block(people([1])))
