"""What a connection was told of by ``/register``, and where an answer ends because of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from headgate.catalog import Column
from headgate.relay.client import Consumer, Event, RelayClient
from headgate.relay.databus import event_fields
from headgate.replication import ImageBatch
from tests.relay.server.rows import PERSON, UUID, block, image, people
from tests.relay.server.serving import PATIENCE_SECONDS, Answer, Served, served
from tests.relay.server.test_app import GENERATION, pets

WIDER = replace(PERSON, columns=(*PERSON.columns, Column("age", "int")))
CLIENT = {"x-dbus-client-host": "h", "x-dbus-client-service": "UNKNOWN"}
"""How Databus's client names itself (``AbstractNettyHttpConnection.java``)."""
EOP = -2


def wider(ids: list[int], **more: Any) -> ImageBatch:
    """Persons after an ALTER TABLE."""
    rows = len(ids)
    columns: dict[str, list[Any]] = {
        "id": ids, "first_name": ["a"] * rows, "last_name": ["b"] * rows, "birth_date": [1] * rows,
        "deleted": ["false"] * rows, "age": ids,
    }  # fmt: skip
    return image(WIDER, columns, **{"ops": "c" * rows, "gtids": [f"{UUID}:1"] * rows, "pos": [200] * rows, **more})


def at(number: int, rows: int = 1) -> dict[str, Any]:
    """The place of a transaction."""
    return {"gtids": [f"{UUID}:{number}"] * rows, "pos": [number * 100] * rows}


class Kept:
    """One connection, which is kept."""

    def __init__(self, relay: Served, headers: Mapping[str, str] = CLIENT) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_SECONDS)
        self._headers = dict(headers)
        self._is_open = True

    def get(self, path: str, **parameters: Any) -> Answer:
        assert self._is_open
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in parameters.items()}
        query = "&".join(f"{name}={quote(value)}" for name, value in texts.items())
        self._connection.request("GET", f"/{path}?{query}", headers=self._headers)
        answer = self._connection.getresponse()
        reply = Answer(answer.status, {name.lower(): one for name, one in answer.getheaders()}, answer.read())
        assert reply.status == 200, reply
        self._is_open = reply.headers.get("connection") != "close"
        assert (self._connection.sock is not None) == self._is_open
        return reply

    def is_open(self) -> bool:
        """Whether the last answer left it open."""
        return self._is_open

    def register(self, sources: str = "40,41") -> int:
        """How many schemas there are."""
        body = self.get("register", sources=sources, protocolVersion="2").json
        return len(body if isinstance(body, list) else body["sourceSchemas"])

    def stream(self, after: int, **more: Any) -> list[tuple[int, int]]:
        """Transactions and keys of the events; ``EOP`` where a transaction ends."""
        point = {"windowScn": GENERATION + after, "windowOffset": -1}
        parameters = {"sources": "40,41", "size": "100000", "output": "binary", "checkPoint": point, **more}
        return events_of(self.get("stream", **parameters))

    def close(self) -> None:
        self._connection.close()


def events_of(answer: Answer) -> list[tuple[int, int]]:
    fields = event_fields(np.frombuffer(answer.body, np.uint8))
    rows = zip(fields.scn.tolist(), fields.long_key.tolist(), fields.source.tolist(), strict=True)
    return [(scn - GENERATION, key if source > 0 else EOP) for scn, key, source in rows]


@contextlib.contextmanager
def kept(relay: Served, headers: Mapping[str, str] = CLIENT) -> Iterator[Kept]:
    with contextlib.closing(Kept(relay, headers)) as connection:
        yield connection


@pytest.fixture
def relay() -> Iterator[Served]:
    with served() as one:
        one.put(block(people([1], **at(1))))
        yield one


def alter(relay: Served) -> None:
    """A transaction more of each definition, and one of another source."""
    relay.put(
        block(people([2], **at(2))), block(wider([3], **at(3))), block(pets([7], **at(4))), block(wider([5], **at(5)))
    )


OLD, NEW = [(2, 2), (2, EOP)], [(3, 3), (3, EOP), (4, 0), (4, EOP), (5, 5), (5, EOP)]


@pytest.mark.parametrize("more", [{}, {"event_version": 2, "before_images": True}, {"memory_bytes": 1 << 20}])
def test_it_ends_before_a_schema_that_it_was_not_told_of(more: dict[str, Any]) -> None:
    with served(**more) as relay:
        relay.put(block(people([1], **at(1))))
        parameters = {"maxev": "2"} if "event_version" in more else {}
        with kept(relay) as first:
            assert first.register() == 1
            assert first.stream(0, **parameters) == [(1, 1), (1, EOP)]
            assert first.is_open()
            alter(relay)
            assert first.stream(1, **parameters) == OLD
            assert not first.is_open()  # with this answer, and before the next request
        with kept(relay) as second:
            second.register()
            assert second.stream(2, **parameters) == NEW
            assert second.is_open()
            assert second.stream(5, **parameters) == []
            assert second.is_open()


def test_an_answer_with_nothing_does_not_wait(relay: Served) -> None:
    with kept(relay) as connection:
        connection.register()
        relay.put(block(wider([3], **at(3))))
        assert connection.stream(1, wait="60000") == []
        assert not connection.is_open()


def test_a_schema_that_comes_while_it_waits(relay: Served) -> None:
    with kept(relay) as connection:
        connection.register()
        writer = threading.Thread(target=relay.put, args=(block(wider([3], **at(3))),))
        writer.start()
        assert connection.stream(1, wait="60000") == []
        assert not connection.is_open()
        writer.join()


def test_who_did_not_register_there_notices_nothing(relay: Served) -> None:
    """Pollers by hand, other clients, and connections that were told of other sources only."""
    with kept(relay) as silent, kept(relay, {}) as other, kept(relay) as of_pets:
        silent.get("sources")
        other.register()
        assert of_pets.register("41") == 0
        alter(relay)
        assert of_pets.register("41") == 1
        for connection in (silent, other, of_pets):
            assert connection.stream(1) == OLD + NEW
            assert connection.is_open()
    with kept(relay) as late:
        late.register()
        assert late.stream(1) == OLD + NEW
        assert late.is_open()


def test_each_connection_is_for_itself(relay: Served) -> None:
    with kept(relay) as early, kept(relay) as late:
        early.register()
        alter(relay)
        late.register()
        assert late.stream(1) == OLD + NEW
        assert early.stream(1) == OLD
        assert (early.is_open(), late.is_open()) == (False, True)


def test_what_was_registered_adds_up(relay: Served) -> None:
    with kept(relay) as connection:
        connection.register("40")
        alter(relay)
        connection.register("41")
        assert connection.stream(1) == OLD
        assert not connection.is_open()
    with kept(relay) as connection:
        connection.register("41")
        connection.register("40")
        assert connection.stream(1) == OLD + NEW


def test_it_ends_before_a_transaction_whose_end_alone_has_the_schema(relay: Served) -> None:
    """In the middle of it that client has no way to go on: it would give its consumer all of it once more, or, in the
    first transaction after its start, stop.
    """
    with kept(relay) as connection:
        connection.register()
        owners = list(range(100))
        relay.put(block(people([2], **at(2))), block(
            pets(owners, gtids=[f"{UUID}:3"] * 100, pos=[300] * 100, ordinals=owners),
            wider([3], gtids=[f"{UUID}:3"], pos=[400], ordinals=[0]),
        ))  # fmt: skip
        assert connection.stream(1, size="1000") == OLD
        assert not connection.is_open()
    with kept(relay) as connection:
        assert connection.register() == 3
        begun = connection.stream(2, size="1000")
        assert 0 < len(begun) < 100
        assert connection.is_open()


def test_a_transaction_that_was_begun_is_finished(relay: Served) -> None:
    with kept(relay) as connection:
        connection.register()
        alter(relay)
        point = {"windowScn": GENERATION + 3, "windowOffset": 1}
        assert connection.stream(3, checkPoint=point) == NEW[1:2]
        assert not connection.is_open()


def test_the_python_client_looks_schemas_up_itself(relay: Served) -> None:
    class Taker(Consumer):
        def __init__(self) -> None:
            self.ages: list[Any] = []

        def on_data_event(self, event: Event) -> None:
            self.ages.append(event.row.get("age"))
            if len(self.ages) == 5:
                client.finish()

    taker = Taker()
    client = RelayClient(f"http://127.0.0.1:{relay.port}", [], taker)
    threading.Thread(target=alter, args=(relay,)).start()
    client.run()
    assert taker.ages == [None, None, 3, None, 5]
