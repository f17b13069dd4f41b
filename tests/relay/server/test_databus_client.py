"""A consumer that is Databus's Java client, as far as a relay can tell (``databus_client``), without a server.

What goes over the wire is written down in ``golden/databus-client-*.txt``: requests as they are, headers and bodies of
the answers. ``HEADGATE_GOLDEN=write`` writes these files again, for the next look at them.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate.relay.server import Tenant
from headgate.web import Token
from tests.relay.server.databus_client import DatabusClient, FailedError, Reply
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PERSON, PET, Served, served
from tests.relay.server.test_app import GENERATION, pets
from tests.relay.server.test_bootstrap import Shelf, put, serving
from tests.relay.server.test_golden import UNTOLD, events
from tests.relay.server.test_registered import CLIENT, at, wider

FOLDER = Path(__file__).parent / "golden"
SOURCES = [PERSON.name, PET.name]
TOKEN = "0123456789-operator"


@contextlib.contextmanager
def consuming(relay: Served, *sources: str, **more: Any) -> Iterator[DatabusClient]:
    with contextlib.closing(DatabusClient(relay.port, sources or SOURCES, **more)) as client:
        yield client


def short(client: DatabusClient) -> list[tuple[int, list[Any]]]:
    return [(scn - GENERATION, [one.key for one in changes]) for scn, changes in client.windows]


def shown(request: bytes, reply: Reply, port: int) -> str:
    """A request and its answer as text: events in hex, without what depends on the clock, the machine or zlib."""
    body = reply.body
    if b"compress=true" in request:
        body = b"(in gzip and base64)\n" + gzip.decompress(base64.b64decode(body))
    elif b"output=binary" in request and "x-dbus-error" not in reply.headers:
        body = b"\n".join(event.hex().encode() for event in events(body))
    headers = [
        f"{name}: {value}" for name, value in sorted(reply.headers.items())
        if name not in UNTOLD - {"content-length"} and not (name == "content-length" and b"compress=true" in request)
    ]  # fmt: skip
    text = request.decode().replace(f":{port}", ":PORT").replace("\r\n", "\n") + "\n".join([*headers, ""])
    return f"{text}\n{body.decode()}".rstrip() + "\n"


def written_down(name: str, client: DatabusClient) -> None:
    text = "\n----\n\n".join(shown(request, reply, client.port) for request, reply in client.heard)
    file = FOLDER / name
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


def changes(relay: Served) -> None:
    """A person, and a change of another one; a pet and a person in one transaction."""
    befores = relay.relay.config.before_images
    ids, ops, ordinals = ([1, 2, 2], "cbu", [0, 1, 1]) if befores else ([1, 2], "cu", [0, 1])
    relay.put(
        block(people(ids, ops=ops, gtids=[f"{UUID}:1"] * len(ids), pos=[100] * len(ids), ordinals=ordinals)),
        block(pets([7], **at(2)), people([3], **at(2), ordinals=[1])),
    )


def after_the_alter(relay: Served) -> None:
    """One transaction before an ALTER TABLE, and two after it."""
    relay.put(block(people([4], **at(3))), block(wider([5], **at(4))), block(wider([4], ops="d", **at(5))))


@pytest.mark.parametrize("version", [1, 2])
def test_what_goes_over_the_wire(version: int) -> None:
    """A new consumer, an ALTER TABLE beside it, and one that was away for too long."""
    more: dict[str, Any] = {"event_version": 2, "before_images": True} if version == 2 else {}
    with served(**more) as relay, consuming(relay, newest=2 if version == 2 else 0) as client:
        changes(relay)
        client.until(2)
        assert client.pull() == 0
        after_the_alter(relay)
        client.until(5)
        assert client.pull() == 0
        assert client.connections == 2
        client.checkpoint |= {"windowScn": GENERATION - 1, "windowOffset": -1}
        with pytest.raises(FailedError, match="ScnNotFoundException"):
            client.pull()
        written_down(f"databus-client-{version}.txt", client)


def test_an_alter_table_beside_a_connected_client() -> None:
    with served() as relay, consuming(relay) as client:
        changes(relay)
        client.until(2)
        after_the_alter(relay)
        client.until(5)
        assert short(client) == [(1, [1, 2]), (2, [b"7\tpet7", 3]), (3, [4]), (4, [5]), (5, [4])]
        rows = [one.row for _, changes in client.windows for one in changes if one.source == PERSON.id]
        assert [row.get("age", "no such column") for row in rows] == ["no such column"] * 4 + [5, 4]
        assert client.connections == 2
        ends = [reply for request, reply in client.heard if reply.headers.get("connection") == "close"]
        assert len(ends) == 1
        # What it was told then is enough for what is to come.
        relay.put(block(wider([6], **at(6))), block(people([7], **at(7))))
        client.until(7)
        assert client.connections == 2


@pytest.mark.parametrize("maxev", [0, 2])
def test_answers_of_any_size(maxev: int) -> None:
    """From what fits into 8 KiB to what does not, and a window in many pieces."""
    with served(event_version=2) as relay:
        for n, rows in enumerate((1, 30, 60, 70, 80, 5000), 1):
            relay.put(block(people(list(range(rows)), gtids=[f"{UUID}:{n}"] * rows, pos=[n * 100] * rows)))
        for size in (3_000, 8_191, 8_192, 8_193, 100_000, 10_000_000):
            with consuming(relay, PERSON.name, newest=maxev, size=size) as client:
                windows = client.until(6)
                assert [len(changes) for _, changes in windows] == [1, 30, 60, 70, 80, 5000]
                assert client.connections == 1
            sizes = [(len(reply.body), reply.headers) for request, reply in client.heard if b"/stream" in request]
            for length, headers in sizes:
                if length > 8192:
                    assert (headers.get("transfer-encoding"), "content-length" in headers) == ("chunked", False)
                else:
                    assert headers["content-length"] == str(length)


def test_who_speaks_http_1_0_gets_a_length() -> None:
    with served() as relay:
        relay.put(block(people(list(range(500)), gtids=[f"{UUID}:1"] * 500, pos=[100] * 500)))
        wanted = relay.get("stream", sources="40", size="1000000", output="binary").body
        assert len(wanted) > 8192
        with socket.create_connection(("127.0.0.1", relay.port), timeout=240) as connection:
            connection.sendall(b"GET /stream?sources=40&size=1000000&output=binary HTTP/1.0\r\n\r\n")
            with connection.makefile("rb") as answer:
                head, _, body = answer.read().partition(b"\r\n\r\n")
        assert body == wanted
        assert b"content-length: %d" % len(body) in head
        assert b"transfer-encoding" not in head


def test_the_relay_says_who_it_is() -> None:
    with served(tenants=[Tenant("a", Token(TOKEN))]) as relay:
        for path in ("sources", "register", "stream", "containerStats/x", "admin/status", "metrics"):
            answer = relay.get(path, token=TOKEN)
            assert answer.headers["x-dbus-server-service"] == "headgate-relay"
            assert answer.headers["x-dbus-server-host"] == socket.gethostname()
            assert "x-dbus-server-host" not in relay.get(path).headers  # nobody is told without a token


def test_a_connection_that_ends_in_the_middle_of_a_window() -> None:
    with served() as relay:
        changes(relay)
        rows = 200
        relay.put(block(people(list(range(rows)), gtids=[f"{UUID}:3"] * rows, pos=[300] * rows)))
        with consuming(relay, size=1_000) as client:
            client.until(2)
            while client.checkpoint["windowOffset"] <= 10:
                client.pull()
            client.close()
            assert [len(changes) for _, changes in client.until(3)] == [2, 2, rows]
            assert client.connections == 2


def test_a_checkpoint_that_it_kept() -> None:
    with served() as relay:
        changes(relay)
        with consuming(relay) as client:
            client.until(2)
        after_the_alter(relay)
        with consuming(relay, checkpoint=client.checkpoint) as again:
            again.until(3)
            assert [scn for scn, _ in short(again)] == [3, 4, 5]


def test_filters() -> None:
    mod = {"partitionType": "MOD", "filters": [{"numBuckets": 2, "bktRange": {"start": 1, "end": 2}}]}
    span = {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 3, "end": 5}}]}
    with served() as relay:
        changes(relay)
        after_the_alter(relay)
        for one, wanted in ((mod, [[1], [3], [], [5], []]), (span, [[], [3], [4], [], [4]])):
            with consuming(relay, PERSON.name, filters={"40": one}) as client:
                client.until(5)
                assert [keys for _, keys in short(client)] == wanted


def test_rows_before_updates_are_metadata() -> None:
    """It asks for protocol 2, and reads an answer by the version that the answer says."""
    with served(event_version=2, before_images=True) as relay, consuming(relay, newest=2) as client:
        relay.put(
            block(people([1, 1], ops="bu", ordinals=[0, 0], gtids=[f"{UUID}:1"] * 2, pos=[100] * 2,
                         columns={"first_name": ["a", "b"]})),
            block(pets([7, 7], ops="bu", ordinals=[0, 0], **at(2, 2))),
            block(wider([1, 1], ops="bu", ordinals=[0, 0], **at(3, 2))),
        )  # fmt: skip
        received = [change for _, (change,) in client.until(3)]
        assert [(one.row.get("firstName"), (one.before or {}).get("firstName")) for one in received] == [
            ("b", "a"), (None, None), ("a", "a"),
        ]  # fmt: skip
        assert [one.before is not None for one in received] == [True] * 3
        assert received[1].before == {"owner": 7, "name": "pet7"}
        assert received[2].before == received[2].row


def test_who_is_another_client_is_answered_in_the_version_that_he_asks_for() -> None:
    with served(event_version=2, before_images=True, tenants=[
        Tenant("all", Token(TOKEN)), Tenant("pets", Token(f"{TOKEN}-2"), sources=(PET.name,)),
    ]) as relay:  # fmt: skip
        changes(relay)

        def register(headers: Mapping[str, str], token: str = TOKEN, **more: str) -> tuple[str, Any]:
            answer = relay.get("register", token=token, headers=headers, **more)
            return answer.headers["x-dbus-protocol-version"], answer.json

        for version in ("2", "3"):
            protocol, entries = register({}, protocolVersion=version)
            assert (protocol, len(entries)) == (version, 2)
        assert register({})[0] == register(CLIENT)[0] == "3"
        other, answered = register({}, protocolVersion="4"), register(CLIENT, protocolVersion="2")
        assert other == answered
        assert answered[0] == "4"
        assert [one["version"] for one in answered[1]["metadataSchemas"]] == [1, 2]
        _, of_pets = register(CLIENT, f"{TOKEN}-2", protocolVersion="2")
        assert [one["id"] for one in of_pets["sourceSchemas"]] == [PET.id]
        assert [one["schema"] for one in of_pets["metadataSchemas"]] == [of_pets["sourceSchemas"][0]["schema"]]
    with served() as plain:
        changes(plain)
        answer = plain.get("register", headers=CLIENT, protocolVersion="2")
        assert (answer.headers["x-dbus-protocol-version"], type(answer.json)) == ("2", list)
        assert list(plain.get("register", protocolVersion="4").json) == ["sourceSchemas"]


def test_one_checkpoint_for_whatever_it_subscribes_to() -> None:
    """Under protocol 3: subscriptions, and a checkpoint of the partition that is any."""
    with served() as relay:
        changes(relay)
        partition = {"id": -1, "name": "*"}
        subs = [{"physicalPartition": partition, "logicalPartition": {"source": {"id": 40, "name": "x"}, "id": -1}}]
        point = json.dumps({"windowScn": GENERATION + 1, "windowOffset": -1})
        for one in (partition, {"id": 1, "name": "person"}):
            several = {json.dumps(one): point}
            answer = relay.get("stream", subs=subs, size="100000", output="rows", checkPointMult=several)
            assert [json.loads(line)["key"] for line in answer.body.splitlines()] == [3]


def test_a_bootstrap_of_two_sources() -> None:
    with serving(Shelf([1, 2, 3], [], [4, 5])) as relay:
        put(relay, 1, 2)
        relay.put(block(pets([7], **at(3))))
        with consuming(relay, bootstrap=True, size=2_000) as client:
            assert client.pull() == 0
            assert [(one.source, one.key) for one in client.bootstrapped] == [(PERSON.id, n) for n in range(1, 6)]
            assert client.checkpoint["windowScn"] == GENERATION + 3
            put(relay, 4)
            client.until(1)
            assert short(client) == [(4, [4])]
        paths = [request.split(b"?")[0].split(b"/")[1].decode() for request, _ in client.heard]
        assert paths == [
            "sources", "register", "stream", "startSCN", "bootstrap", "bootstrap", "bootstrap", "targetSCN",
            "bootstrap", "bootstrap", "targetSCN", "bootstrap", "bootstrap", "sources", "register", "stream",
        ]  # fmt: skip


def test_a_bootstrap_in_answers_of_any_size() -> None:
    with serving(Shelf(list(range(1, 301)), [301])) as relay:
        put(relay, 1)
        relay.put(block(pets([7], **at(2))))
        for size in (8_000, 100_000):
            with consuming(relay, bootstrap=True, size=size) as client:
                client.pull()
                assert [one.key for one in client.bootstrapped] == list(range(1, 302))
            lengths = [len(reply.body) for request, reply in client.heard if b"/bootstrap" in request]
            assert (max(lengths) > 8192) == (size > 8192)
