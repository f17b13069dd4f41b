"""Counters that are reset, stopped and set going again, as Databus's operators do it: by POST or PUT."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import uvicorn

from headgate.relay.server import OUTBOUND_CONNECTIONS, REQUESTS, SERVER, Counters, SubjectKind, Tenant
from headgate.relay.server.events import RowDecoder
from headgate.web import Token
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, PET, Served, physical, served
from tests.relay.server.test_app import pets

ALL, PETS = "0123456789-operator", "0123456789-kennel"
EVENTS = {"sources": "40", "size": "100000", "output": "binary"}
INBOUND = [
    "containerStats/inbound/events/total", "containerStats/inbound/events/source/40",
    "containerStats/inbound/events/psource/person", "containerStats/inbound/events/psource/person:1",
    "containerStats/inbound/events/psource/person/1",
]  # fmt: skip
OUTBOUND = [
    "containerStats/outbound/events/total", "containerStats/outbound/events/source/40",
    "containerStats/outbound/events/psource/person/1",
    "containerStats/outbound/events/client/127.0.0.1",
]  # fmt: skip
BY_SOURCE = "containerStats/outbound/events/source/{}"
HTTP = [
    "relayStats/outbound/http/total",
    "relayStats/outbound/http/source/40",
    "relayStats/outbound/http/client/127.0.0.1",
]


@pytest.fixture
def relay() -> Iterator[Served]:
    with served() as one:
        change(one, 1)
        yield one


def change(relay: Served, number: int) -> None:
    """One person in, and all that there are out."""
    relay.put(block(people([number], gtids=[f"{UUID}:{number}"], pos=[number * 100])))
    assert relay.get("stream", **EVENTS).status == 200


def counted(relay: Served, path: str, **parameters: Any) -> int:
    """Events, or calls for them."""
    answer = relay.get(path, **parameters)
    assert answer.status == 200, answer
    value = answer.json
    return int(value["numStreamCalls"] if "numStreamCalls" in value else value["numDataEvents"])


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("path", [*INBOUND, *OUTBOUND, *HTTP])
def test_reset(relay: Served, path: str, method: str) -> None:
    before = relay.get(path).json
    reset = relay.get(path, method=method, reset="").json
    for clock in ("timeSinceLastResetMs", "timeSinceCreation", "timeSinceLastAccess", "timeSinceLastEvent"):
        before.pop(clock, None)
        reset.pop(clock, None)
    assert reset == before  # what it was
    assert counted(relay, path) == 0
    assert relay.get(path).json["numPeers"] == before["numPeers"]
    change(relay, 2)
    stats = relay.get(path).json
    assert counted(relay, path) == (1 if path in INBOUND or path in HTTP else 2)
    assert list(stats) == list(relay.get(path).json)
    if path in INBOUND:
        assert stats["minSeenWinScn"] == stats["maxSeenWinScn"] == (1 << 48) + 2


@pytest.mark.parametrize("path", [INBOUND[0], INBOUND[1], *OUTBOUND, *HTTP])
def test_stopped_and_set_going(relay: Served, path: str) -> None:
    assert counted(relay, path, method="POST", enabled="false") == 1
    change(relay, 2)
    assert counted(relay, path) == 1
    assert counted(relay, path, method="PUT", enabled="TRUE") == 1
    change(relay, 3)
    assert counted(relay, path) == (4 if path in OUTBOUND else 2)
    assert counted(relay, path, method="POST", enabled="false", reset="yes") == (4 if path in OUTBOUND else 2)
    change(relay, 4)
    assert counted(relay, path) == 0


def test_a_get_changes_nothing(relay: Served) -> None:
    for path in (INBOUND[0], HTTP[0]):
        assert counted(relay, path, reset="true", enabled="false") == 1
    change(relay, 2)
    assert counted(relay, INBOUND[0]) == 2
    # What is no counter is not for POST at all.
    for path in ("containerStats/inbound/events/sources", "sources", "containerStats/x"):
        answer = relay.get(path, method="POST", reset="")
        assert (answer.status, answer.headers["x-dbus-error"].rpartition(".")[2]) == (500, "UnknownCommandException")


def test_others_keep_what_they_have() -> None:
    with served(physical(1, "person", PERSON), physical(2, "pet", PET)) as relay:
        change(relay, 1)
        relay.put(block(pets([1])), partition=2)
        assert counted(relay, "containerStats/inbound/events/total", method="POST", reset="") == 2
        assert counted(relay, "containerStats/inbound/events/total") == 0
        assert counted(relay, "containerStats/inbound/events/source/40") == 1
        assert counted(relay, "containerStats/inbound/events/psource/pet/2") == 0
        change(relay, 2)
        assert counted(relay, "containerStats/inbound/events/psource/person/1", method="POST", reset="") == 1
        assert counted(relay, "containerStats/inbound/events/total") == 0


def test_what_went_out_is_counted_by_source() -> None:
    """Whatever was asked for, in whatever form."""
    cat = replace(PET, id=42, name="com.example.Cat", table="or_test.cat")
    with served(physical(1, "person", PERSON, cat), physical(2, "pet", PET)) as relay:
        change(relay, 1)
        relay.put(block(pets([1, 2, 3])), partition=2)
        assert relay.get("containerStats/outbound/events/sources").json == [40]
        subscriptions = [{"logicalPartition": {"source": {"id": one}}} for one in (41, 40)]
        bucket = {"40": {"partitionType": "MOD", "filters": [{"numBuckets": 2, "bktRange": {"start": 0, "end": 1}}]}}
        requests: list[dict[str, Any]] = [
            {"sources": "40,41"}, {"sources": "41"}, {"sources": "42"}, {"sources": "41,41"}, {"sources": "40,42"},
            {"subs": [{"logicalPartition": {"source": {"id": -1}}}]}, {"subs": subscriptions},
            {"sources": "40,41", "filters": bucket}, {"sources": "40,41", "size": "200"},
            {"sources": "41", "size": "9"}, {"sources": "40"},
        ]  # fmt: skip
        for number, parameters in enumerate(requests):
            many = 100 if number == len(requests) - 1 else 2
            keys = list(range(many * number, many * (number + 1)))
            relay.put(block(people(keys, gtids=[f"{UUID}:{number + 2}"] * many, pos=[300] * many)))
            for path in ("containerStats/outbound/events/total", *map(BY_SOURCE.format, (40, 41, 42))):
                relay.get(path, method="POST", reset="")
            lines = relay.get("stream", **{"size": "1000000", "output": "json", **parameters}).body.splitlines()
            sent = Counter(json.loads(line)["srcId"] for line in lines)
            assert {one: counted(relay, BY_SOURCE.format(one)) for one in (40, 41, 42)} == {
                one: sent[one] for one in (40, 41, 42)
            }, parameters
            total = relay.get("containerStats/outbound/events/total").json
            sizes = [relay.get(BY_SOURCE.format(one)).json["sizeDataEvents"] for one in (40, 41, 42)]
            assert (total["numDataEvents"], total["sizeDataEvents"]) == (sent[40] + sent[41] + sent[42], sum(sizes))
        assert relay.get("containerStats/outbound/events/sources").json == [40, 41]
        assert relay.get(BY_SOURCE.format(41)).json["dimension"] == "pet.outbound.41"
        assert relay.get(BY_SOURCE.format(99)).status == 500


def test_who_may(relay: Served) -> None:
    page = {"origin": "https://other.example"}
    assert relay.get(INBOUND[0], method="POST", reset="", headers=page).status == 403
    assert counted(relay, INBOUND[0]) == 1
    tenants = [Tenant("operator", Token(ALL)), Tenant("kennel", Token(PETS), sources=("com.example.*",))]
    with served(tenants=tenants) as closed:
        closed.put(block(people([1])))
        assert closed.get(INBOUND[0], method="POST", reset="").status == 401
        assert closed.get(INBOUND[0], method="POST", reset="", token=PETS).status == 403
        assert counted(closed, INBOUND[0], method="POST", reset="", token=ALL) == 1
        assert counted(closed, INBOUND[0], token=ALL) == 0


def test_no_count_is_lost_or_half_reset() -> None:
    """While one thread counts, another one resets and reads: all figures of a row are of the same events."""
    counters, rounds = Counters([1], 10), 20_000
    ready = threading.Barrier(2)

    def count() -> None:
        ready.wait()
        for number in range(rounds):
            counters.receive(1, {number % 500: (1, 10, 5)}, (1, 61, number, number), 1)

    def check() -> int:
        row = counters.read(SubjectKind.RECEIVED, 1)
        assert (row["sizeDataEvents"], row["sizeDataEventsPayload"], row["sizeSysEvents"]) == (
            10 * row["numDataEvents"], 5 * row["numDataEvents"], 61 * row["numSysEvents"],
        )  # fmt: skip
        return row["numDataEvents"]

    thread = threading.Thread(target=count)
    thread.start()
    ready.wait()
    while thread.is_alive():
        counters.reset(SubjectKind.RECEIVED, 1)
        check()
        counters.names(SubjectKind.RECEIVED_SOURCE)  # rows appear meanwhile
    thread.join()
    check()
    sources = [counters.read(SubjectKind.RECEIVED_SOURCE, one)["numDataEvents"] for one in range(500)]
    assert sources == [rounds // 500] * 500


def test_a_forgotten_client_is_in_no_row() -> None:
    counters = Counters([1], 2)
    for client in "abcb":
        counters.start(client, (40,), {1: 7})
        counters.answer(client, "stream", "good", 0.001)
        counters.deliver(1, client, 1, 10, 1, 61)
    for kind in (SubjectKind.REQUESTS_CLIENT, SubjectKind.SENT_CLIENT):
        assert sorted(map(str, counters.names(kind))) == ["b", "c"]
    assert counters.names(SubjectKind.LAST_START) == [("c", 1), ("b", 1)]
    assert (counters.read(*REQUESTS)["numStreamCalls"], counters.peers) == (4, 2)
    assert counters.read(SubjectKind.REQUESTS_SOURCE, 40)["numStreamCalls"] == 4


# --- connections


class Connection:
    """One that is kept."""

    def __init__(self, relay: Served) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_SECONDS)

    def get(self, path: str) -> Any:
        """The answer's value, and its size."""
        self._connection.request("GET", f"/{path}")
        body = self._connection.getresponse().read()
        return json.loads(body), len(body)

    def close(self) -> None:
        self._connection.close()


TOTAL, BY_CLIENT = "containerStats/outbound/total", "containerStats/outbound/client/127.0.0.1"


@pytest.mark.parametrize("path", [TOTAL, BY_CLIENT])
def test_connections(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn, "Config", partial(uvicorn.Config, timeout_keep_alive=3600))  # it ends no idle one
    with served() as relay:
        assert not relay.relay.counters.names(SubjectKind.CONNECTIONS_CLIENT)
        first, second = Connection(relay), Connection(relay)
        with contextlib.closing(first), contextlib.closing(second):
            stats, size = first.get(path)
            assert (stats["numOpenConns"], stats["numClosedConns"], stats["numClients"]) == (1, 0, 1)
            assert stats["numBytes"] == 0
            _, more = second.get("containerStats/outbound/clients")
            stats, _ = first.get(path)
            assert (stats["numOpenConns"], stats["numBytes"]) == (2, size + more)
            assert stats["dimension"] == ("outbound" if path == TOTAL else "127.0.0.1")
        third = Connection(relay)
        with contextlib.closing(third):
            while (stats := third.get(path)[0])["numClosedConns"] < 2:
                pass
            assert (stats["numOpenConns"], stats["errorTotalCount"], stats["numClients"]) == (1, 0, 1)
            assert stats["timeClosedConnLifeMs"] >= 0
            assert third.get("containerStats/outbound/clients")[0] == ["127.0.0.1"]
            relay.get(path, method="POST", reset="")
            while (stats := third.get(path)[0])["numClosedConns"] != 1:  # the one that did it
                pass
            assert stats["numOpenConns"] == 1
            relay.get(path, method="POST", reset="", enabled="false")
            stats, _ = third.get(path)
            assert (stats["numClosedConns"], stats["numBytes"], stats["numClients"]) == (0, 0, 0)
            assert relay.get("containerStats/outbound/client/10.0.0.1").status == 500


def test_an_error_of_a_connection() -> None:
    counters = Counters([], 1000)
    for number, error in enumerate([None, ConnectionResetError(), TimeoutError()]):
        counters.opened(number, "a")
        counters.lost(number, "a", error)
    for subject in (OUTBOUND_CONNECTIONS, (SubjectKind.CONNECTIONS_CLIENT, "a")):
        values = counters.read(*subject)
        assert (values["numClosedConns"], values["errorTotalCount"], values["errorTimeoutCount"]) == (3, 2, 1)


def test_addresses_may_be_any_number() -> None:
    counters = Counters([], 2)
    for number, client in enumerate("abcb"):
        counters.opened(number, client)
    assert sorted(map(str, counters.names(SubjectKind.CONNECTIONS_CLIENT))) == ["b", "c"]
    assert [
        len(counters.open_lives(*one)) for one in (OUTBOUND_CONNECTIONS, (SubjectKind.CONNECTIONS_CLIENT, "b"))
    ] == [4, 2]
    for number, client in enumerate("abcb"):
        counters.sent(client, 10)
        counters.lost(number, client, None)
    values = counters.read(*OUTBOUND_CONNECTIONS)
    assert (values["numClosedConns"], values["numBytes"], values["numClients"]) == (4, 40, 3)
    assert counters.open_lives(*OUTBOUND_CONNECTIONS) == []


def test_the_relay_itself_connects_to_nobody_by_http(relay: Served) -> None:
    path = "containerStats/inbound/total"
    stats = relay.get(path).json
    assert list(stats) == list(relay.get(TOTAL).json)
    assert stats["dimension"] == "inbound"
    assert not any(value for name, value in stats.items() if name not in ("dimension", *CLOCKS))
    since = stats["timestampLastResetMs"]
    while relay.get(path, method="POST", reset="").json["timestampLastResetMs"] == since:
        pass  # a ms has to pass
    assert relay.get(TOTAL).json["numClosedConns"] > 0
    assert relay.get("containerStats/sideways/total").status == 500


# --- the server as a whole

CLOCKS = ("timestampLastResetMs", "timeSinceLastResetMs")
CONTAINER = "containerStats/container"


def test_requests_and_errors_of_the_server(relay: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = relay.get(CONTAINER).json

    def since() -> dict[str, int]:
        stats = relay.get(CONTAINER).json
        return {name: stats[name] - before[name] for name in stats if name.startswith(("workerTaskCount", "error"))}

    assert since() == {
        "workerTaskCount": 1, "errorCount": 0, "errorUncaughtCount": 0, "errorRequestProcessingCount": 0,
    }  # fmt: skip
    wrong: list[dict[str, Any]] = [
        {"size": "x"}, {"filters": {"40": {"partitionType": "X"}}}, {"checkPoint": {"windowScn": 5}}
    ]  # fmt: skip
    for parameters in wrong:
        assert relay.get("stream", **{**EVENTS, **parameters}).status == 500
    assert relay.get("stream", **EVENTS).status == 200
    with monkeypatch.context() as broken:
        broken.setattr("headgate.relay.server._http._statistics.reply", lambda *_: 1 / 0)
        assert relay.get("containerStats/outbound/clients").body == b"Internal Server Error"
    assert since() == {
        "workerTaskCount": 7, "errorCount": 4, "errorUncaughtCount": 3, "errorRequestProcessingCount": 1,
    }  # fmt: skip


def test_maxima_are_those_that_were_seen() -> None:
    counters = Counters([], 10)
    samples = []
    for requests, threads in ((7, 1), (3, 4), (5, 0), (2, 2)):
        for _ in range(requests):
            counters.answer("a", "sources", "good", 0.001)
        counters.observe_workers(threads, waiting=threads + 1)
        values = counters.read(*SERVER)
        samples.append((values["workerTaskCount"], values["workerTaskMax"], values["workerThreadMax"]))
        assert (values["workerThreadRate"], values["workerTaskQueueSize"]) == (threads, threads + 1)
    assert samples == [(7, 0, 1), (10, 3, 4), (15, 5, 4), (17, 5, 4)]


def test_threads_that_work(relay: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    working, release, decode = threading.Semaphore(0), threading.Event(), RowDecoder.decode

    def decoded(*arguments: Any) -> Any:
        working.release()
        assert release.wait(PATIENCE_SECONDS)
        return decode(*arguments)

    monkeypatch.setattr(RowDecoder, "decode", decoded)
    asking = [threading.Thread(target=relay.get, args=["stream"], kwargs={**EVENTS, "output": "rows"}) for _ in "ab"]
    for one in asking:
        one.start()
    for _ in asking:
        assert working.acquire(timeout=PATIENCE_SECONDS)
    stats = relay.get(CONTAINER).json
    release.set()
    for one in asking:
        one.join(PATIENCE_SECONDS)
    assert (stats["workerThreadRate"], stats["workerThreadMax"], stats["workerTaskQueueSize"]) == (2, 2, 0)
    stats = relay.get(CONTAINER).json
    assert (stats["workerThreadRate"], stats["workerThreadMax"]) == (0, 2)
