"""A world for tests of consumers: a history of transactions, relays that have come so far in it, and whatever may go
wrong at the next request or callback.

Everything happens at a request or at a callback, whose turn a script says, so a story is the same each time. When the
scripts are over, nothing goes wrong any more and all relays have everything: then the consumer has to come to the end.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import pyarrow as pa
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec
from headgate.errors import ChunkRetryError
from headgate.gtid import GtidSet
from headgate.relay.server import LogicalSource, Relay, create_app
from headgate.relay.server.bootstrap import PartGoneError, PlanGoneError, Rows
from headgate.replication import ImageBatch, LogBlock
from headgate.web.serving import Serving
from tests.relay.server.rows import PERSON as PERSON_TABLE
from tests.relay.server.rows import UUID, block, image
from tests.relay.server.serving import PERSON, PET, Served, load, physical, relay_config

GENERATION: Final = 1 << 48
KEYS: Final = 6
"""So few, so that most are written again and again."""
SOURCES: Final = (PERSON, PET)
TABLES: Final = (
    PERSON_TABLE,
    TableDef(
        "or_test", "pet",
        (Column("owner", "int", nullable=False), Column("name", "varchar", length=80, charset="utf8mb4")),
        (0,),
    ),
)  # fmt: skip
ALTERED: Final = TableDef(
    "or_test", "pet", (*TABLES[1].columns, Column("note", "varchar", length=80, charset="utf8mb4")), (0,)
)


class Write(NamedTuple):
    """A wish: what it becomes, the history decides."""

    source: int
    key: int
    deletes: bool
    size: int


class ExpectedEvent(NamedTuple):
    """An event as a consumer has to hear of it."""

    source: str
    opcode: str
    key: int
    value: str


def _image(table: TableDef, rows: Sequence[tuple[str, int, str]], number: int, ordinals: Sequence[int]) -> ImageBatch:
    return image(
        table, _columns(table, [(key, value) for _, key, value in rows]), ops="".join(op for op, *_ in rows),
        gtids=[f"{UUID}:{number}"] * len(rows), pos=[number * 100] * len(rows), ordinals=ordinals,
    )  # fmt: skip


def _columns(table: TableDef, rows: Sequence[tuple[int, str]]) -> dict[str, list[Any]]:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    if table is not PERSON_TABLE:
        return {"owner": keys, "name": values, "note": [None] * len(rows)}
    count = len(rows)
    return {
        "id": keys, "first_name": values, "last_name": [""] * count, "birth_date": [0] * count,
        "deleted": [""] * count,
    }  # fmt: skip


class History:
    """Transactions, numbered from 1, and the tables after each of them.

    :param altered: the first transaction after an ALTER TABLE of the second table.
    """

    def __init__(self, transactions: Sequence[Sequence[Write]], altered: int = 1 << 30) -> None:
        self._altered = altered
        self.states: list[dict[tuple[str, int], str]] = [{}]
        self.events: list[list[ExpectedEvent]] = [[]]
        self._blocks: list[LogBlock] = []
        for number, writes in enumerate(transactions, 1):
            self._add(number, writes)

    def __len__(self) -> int:
        return len(self._blocks)

    def _add(self, number: int, writes: Sequence[Write]) -> None:
        state, events, rows = dict(self.states[-1]), list[ExpectedEvent](), list[tuple[int, str, int, str]]()
        for place, one in enumerate(writes):
            name = SOURCES[one.source].name
            before, value = state.get((name, one.key)), f"v{number}.{place};"
            if before is not None and one.deletes:
                del state[name, one.key]
                rows.append((one.source, "d", one.key, before))
            else:
                state[name, one.key] = value
                text = value + "x" * one.size
                rows.append((one.source, "c" if before is None else "u", one.key, text))
            source, op, key, text = rows[-1]
            events.append(ExpectedEvent(name, "DELETE" if op == "d" else "UPSERT", key, text.partition(";")[0] + ";"))
        images = []
        for source in range(len(SOURCES)):
            table = self.table(source, number)
            of_source = [(place, row) for place, row in enumerate(rows) if row[0] == source]
            if of_source:
                images.append(
                    _image(table, [row[1:] for _, row in of_source], number, [place for place, _ in of_source])
                )
        self.states.append(state)
        self.events.append(events)
        self._blocks.append(block(*images))

    def table(self, source: int, number: int) -> TableDef:
        return ALTERED if source and number >= self._altered else TABLES[source]

    def block(self, number: int) -> LogBlock:
        return self._blocks[number - 1]

    def rows(self, source: LogicalSource, keys: range, number: int) -> Rows | None:
        """Some rows as they were after a transaction."""
        table, state = self.table(SOURCES.index(source), number), self.states[number]
        pairs = [(key, state[source.name, key]) for key in keys if (source.name, key) in state]
        if not pairs:
            return None
        columns, fields = _columns(table, pairs), TableCodec(table).fields
        arrays = [pa.array(columns[one.name], one.type) for one in fields]
        return Rows(table, pa.table(arrays, pa.schema(fields)))


def executed(number: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:1-{number}") if number else GtidSet()


def number_of(gtid: GtidSet) -> int:
    return int(str(gtid).rpartition("-")[2].rpartition(":")[2]) if gtid else 0


@dataclass
class Rough:
    """What the world does, in this order; each list is used up from its end."""

    initial: int = 0
    requests: list[tuple[str, int]] = field(default_factory=list)
    """Before each request: ``put`` so many transactions there, or at ``all``; ``restart`` it, ``save`` its state;
    ``refuse`` the request and so many more, ``cut`` the answer, ``damage`` it; or ``pass``."""
    pace: int = 1
    """Transactions that come before each request after those."""
    reads: list[tuple[str, int]] = field(default_factory=list)
    """After each part that is read: ``put``; instead of it ``gone``, ``plan``, ``later``; or ``pass``."""
    callbacks: dict[int, str] = field(default_factory=dict)
    """At the callback of this number."""
    holds: dict[int, int] = field(default_factory=dict)
    """At the question of this number whether it may deliver: so many times not; -1: killed."""


class World:
    """Relays of one history, behind addresses that stay. All but the first have room for all of it.

    :param boards: where the relays are served.
    :param folder: for states; None: relays have none.
    """

    def __init__(
        self, history: History, rough: Rough, boards: Sequence[Board], folder: Path | None, *,
        part_keys: int, most_requests: int, **config: Any,
    ) -> None:  # fmt: skip
        self.history, self.rough, self.boards = history, rough, boards
        self._folder, self._config, self._part_keys = folder, config, part_keys
        self.requests, self._most = 0, most_requests
        self.lock = threading.RLock()
        self.relays: list[Served] = []
        self.came, self._down = [0] * len(boards), [0] * len(boards)
        self.holds_last = False
        """The last transaction does not come yet."""
        self.on_idle: Callable[[], None] = lambda: None
        self.trace: list[Any] = []
        for number, board in enumerate(boards):
            self.relays.append(self._begin(number, 0))
            board.world, board.number = self, number
        self.put(rough.initial)

    # --- relays

    def _begin(self, number: int, start: int) -> Served:
        state = None if self._folder is None else self._folder / f"relay{number}"
        config = self._config if number == 0 else {**self._config, "memory_bytes": 1 << 20, "disk_bytes": 0}
        relay = Relay(relay_config(physical(1, "person", *SOURCES), state=state, **config), lambda _: executed(start))
        feeder = relay.partitions[1].feeder
        feeder.begin()
        for place, source in enumerate(SOURCES):  # as it does for all tables that are there
            relay.registry.schema_of(source.name, self.history.table(place, max(self.came)))
        self.came[number] = number_of(feeder.position.now().gtid)
        if feeder._file is not None:
            feeder._file.save()  # as it does before it serves
        return Served(relay, create_app(relay, suppliers={1: Shelf(self, number)}), self.boards[number].port)

    def restart(self, number: int) -> None:
        """As if it had been killed: with its state folder it is where that was saved last, else at the log's end, and
        the next transaction comes: a relay without a state that has had no window knows no SCN.
        """
        end = max(self.came)
        if self._folder is None and end >= len(self.history) - 1:
            return
        self.relays[number].relay.close()
        self.relays[number] = self._begin(number, end)
        if self._folder is None:
            self.put(1, number)

    def save(self, number: int) -> None:
        feeder = self.relays[number].relay.partitions[1].feeder
        if feeder._file is not None:
            feeder._file.save()

    def put(self, count: int, *numbers: int) -> None:
        """The next transactions, at some relays or at all; the last one only when nothing goes wrong any more."""
        last = len(self.history) - bool(self.rough.requests or self.holds_last)
        with self.lock:
            for one in numbers or range(len(self.relays)):
                for number in range(self.came[one] + 1, min(self.came[one] + count, last) + 1):
                    self.relays[one].put(self.history.block(number))
                    self.came[one] = number

    def close(self) -> None:
        for one in self.relays:
            one.relay.close()

    # --- requests

    def ahead(self, number: int, path: str) -> tuple[str, int]:
        """What happens before a request, and to it."""
        with self.lock:
            self.requests += 1
            if self.requests > self._most:
                return "enough", 0
            if not self.rough.requests:
                self.put(self.rough.pace)
                return "pass", 0
            if self._down[number] and self.rough.requests:
                self._down[number] -= 1
                return "refuse", 0
            what, how = self.rough.requests.pop()
            self.trace.append((f"{number}{path}", what, how))
            if what == "put":
                self.put(how, number)
            elif what == "all":
                self.put(how)
            elif what == "restart":
                self.restart(number)
            elif what == "save":
                self.save(number)
            elif what == "refuse":
                self._down[number] = 2 * how
            return what, how

    def answered(self, number: int, scope: Scope, empty: bool) -> None:
        """The consumer has everything, if it asks what comes after the last transaction."""
        if not empty or scope["path"] != "/stream" or self.rough.requests or self.came[number] < len(self.history):
            return
        point = json.loads(parse_qs(scope["query_string"].decode())["checkPoint"][0])
        if (point["windowScn"], point["windowOffset"]) == (GENERATION + len(self.history), -1):
            self.on_idle()


class Board:
    """An address; behind it is what the world puts there."""

    def __init__(self) -> None:
        self.world: World
        self.number = 0
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        world = self.world
        what, how = world.ahead(self.number, scope["path"])
        if what in ("refuse", "enough"):
            status = 503 if what == "refuse" else 400
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        messages: list[Message] = []

        async def take(message: Message) -> None:
            messages.append(message)

        await world.relays[self.number].app(scope, receive, take)
        body = b"".join(one.get("body", b"") for one in messages[1:])
        head = messages[0]
        names = {name.lower() for name, _ in head["headers"]}
        if head["status"] == 200 and not body and b"x-dbus-pending-event-size" not in names:
            world.answered(self.number, scope, True)
        if what == "damage" and body and scope["path"] in ("/stream", "/bootstrap"):
            at = how * 7919 % len(body)
            body = body[:at] + bytes([body[at] ^ 64]) + body[at + 1 :]
        headers = [(name, value) for name, value in head["headers"] if name.lower() not in (
            b"transfer-encoding", b"content-length",
        )]  # fmt: skip
        headers.append((b"content-length", str(len(body)).encode()))
        if what == "cut":
            headers.append((b"connection", b"close"))
            await send({**head, "headers": headers})
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            return  # and so the connection ends
        await send({**head, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def boards(count: int) -> Iterator[list[Board]]:
    for version in (1, 2):
        load(version)
    with contextlib.ExitStack() as stack:
        made = [Board() for _ in range(count)]
        for one in made:
            one.port = stack.enter_context(Serving(_app(one), "127.0.0.1", 0)).port
        yield made


def _app(board: Board) -> ASGIApp:
    return board


class Shelf:
    """The rows as they are in the history."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number

    def plan(self, source: LogicalSource, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        begin = 0 if before is None else int(before["end"])
        return None if begin >= KEYS else {"begin": begin, "end": begin + self._world._part_keys}

    def read(self, source: LogicalSource, part: Mapping[str, Any], gtid: GtidSet, hint: Any) -> Rows | None:
        world = self._world
        with world.lock:
            what, how = world.rough.reads.pop() if world.rough.reads else ("pass", 0)
            world.trace.append((f"{self._number} read {source.name[-4:]} {part['begin']} at {number_of(gtid)}", what))
            if what == "put":
                world.put(how, self._number)
        if what == "gone":
            raise PartGoneError("the part")
        if what == "plan":
            raise PlanGoneError("the plan")
        if what == "later":
            raise ChunkRetryError("not now")
        return world.history.rows(source, range(part["begin"], part["end"]), number_of(gtid))
