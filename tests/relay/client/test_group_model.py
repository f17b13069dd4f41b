"""Members of a group that come, go and are killed as they like: the group holds in the end what the server holds."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headgate.relay.client import ClientTuning, Consumer, Event, GroupMember, Result, Retry, Share
from headgate.relay.server import RelayTimes
from headgate_testing import wait_until
from tests.relay.client.modelled import GENERATION, KEYS, SOURCES, Board, History, Rough, World, boards
from tests.relay.client.story import is_in, value_of
from tests.relay.client.test_member import InThread
from tests.relay.client.test_model import TRANSACTIONS
from tests.relay.server.serving import PATIENCE_SECONDS

PARTITIONS = 3
LEASE_SECONDS = 0.15
TUNING = ClientTuning(wait=0.02, resume_check=0.002, sync=0.02, after_failure=0.01, stream_bytes=400, rows_bytes=2000)
RELAY_TIMES = RelayTimes(bootstrap_position=0.01, bootstrap_together=0.2)


@pytest.fixture(scope="module")
def address() -> Iterator[Board]:
    with boards(1) as made:
        yield made[0]


class Table:
    """What the group's members write together: a partition's rows only under its newest generation."""

    def __init__(self, errors: set[int]) -> None:
        self.lock = threading.Lock()
        self.rows: dict[tuple[str, int], tuple[int, str]] = {}
        self.newest = [0] * PARTITIONS
        self.had = [0] * PARTITIONS
        """By partition: the newest transaction that was had, and all before it."""
        self.errors, self.calls = errors, 0
        self.wrong: str | None = None
        self.trace: list[Any] = []


class Writer(Consumer):
    """One partition's consumer."""

    def __init__(self, table: Table, member: str, partition: int, generation: int) -> None:
        self._table, self._partition, self._generation = table, partition, generation
        self._name = f"{member} {partition}.{generation}"
        self._next: int | None = None
        self._start = -1
        with table.lock:
            table.newest[partition] = max(table.newest[partition], generation)
            table.trace.append(f"{self._name} begins")

    def _is_newest(self) -> bool:
        return self._table.newest[self._partition] == self._generation

    def _check(self, holds: bool, why: str) -> None:
        if not holds and self._table.wrong is None:
            self._table.wrong = f"{self._name}: {why}"

    def on_data_event(self, event: Event) -> Result | None:
        table = self._table
        with table.lock:
            assert isinstance(event.key, int)
            self._check(is_in(Share(self._partition, PARTITIONS), event.key), f"{event.key} is not its own")
            if not self._is_newest():
                return None
            table.calls += 1
            if table.calls in table.errors:
                table.trace.append(f"{self._name} says ERROR")
                return Result.ERROR
            place = (event.source, event.key)
            table.trace.append(f"{self._name} {event.opcode} {place} at {event.scn - GENERATION}")
            if event.opcode == "DELETE":
                table.rows.pop(place, None)
            else:
                table.rows[place] = (event.scn, value_of(event))
        return None

    def on_checkpoint(self, scn: int) -> None:
        with self._table.lock:
            number, had = scn - GENERATION, self._table.had
            self._check(self._next in (None, number), f"{number} comes where {self._next} has to")
            self._check(number <= had[self._partition] + 1, f"{number} comes after {had[self._partition]}")
            had[self._partition] = max(had[self._partition], number)
            self._next = number + 1

    def on_rollback(self, scn: int) -> None:
        self._next = None

    def on_start_bootstrap_sequence(self, scn: int) -> None:
        self._start = scn

    def on_end_bootstrap_sequence(self, scn: int) -> None:
        table = self._table
        with table.lock:
            table.had[self._partition] = max(table.had[self._partition], scn - GENERATION)
            if not self._is_newest():
                return
            share = Share(self._partition, PARTITIONS)
            table.rows = {
                place: one for place, one in table.rows.items() if one[0] >= self._start or not is_in(share, place[1])
            }


class Member(InThread):
    """One that writes the table; its errors are raised when it has ended."""

    def __init__(self, url: str, table: Table, number: int, *, bootstrap: bool, lease: float = LEASE_SECONDS) -> None:
        member = GroupMember(
            url, "g", PARTITIONS, [one.name for one in SOURCES],
            lambda partition, generation: Writer(table, f"m{number}", partition, generation),
            lease_seconds=lease, bootstrap=bootstrap, retry=Retry(first_seconds=0.001, longest_seconds=0.01),
            tuning=TUNING,
        )  # fmt: skip
        super().__init__(member)

    def join(self) -> None:
        super().join()
        if self.error is not None:
            raise self.error


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "leave", "kill", "kill", "wait", "wait", "wait", "put", "put"]),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=15,
)
REQUESTS = st.lists(
    st.tuples(st.sampled_from(["pass"] * 9 + ["save", "restart", "refuse", "cut", "damage"]), st.integers(0, 2)),
    min_size=20, max_size=60,
)  # fmt: skip


@settings(max_examples=8)
@given(
    transactions=TRANSACTIONS, actions=ACTIONS, requests=REQUESTS, initial=st.integers(1, 8), bootstrap=st.booleans(),
    errors=st.sets(st.integers(1, 60), max_size=3), small=st.booleans(),
)  # fmt: skip
def test_whoever_comes_and_goes_the_group_holds_what_the_server_holds(
    address: Board, transactions: Any, actions: Any, requests: Any, initial: int, *, bootstrap: bool, errors: set[int],
    small: bool,
) -> None:  # fmt: skip
    history, table = History(transactions), Table(errors)
    url, members, count = f"http://127.0.0.1:{address.port}", list[Member](), 0
    with tempfile.TemporaryDirectory() as folder:
        memory = 3000 if small and bootstrap else 1 << 20
        world = World(
            history, Rough(initial=initial, requests=requests), [address], Path(folder), part_keys=KEYS // 3,
            most_requests=100_000, memory_bytes=memory, disk_bytes=2 * memory, times=RELAY_TIMES,
        )  # fmt: skip
        world.holds_last = True
        try:
            for what, how in actions:
                table.trace.append((what, how))
                if what == "join" or not members:
                    count += 1
                    members.append(Member(url, table, count, bootstrap=bootstrap))
                elif what == "put":
                    world.put(how + 1)
                elif what == "wait":
                    enough = world.requests + 15 * (how + 1)
                    wait_until(lambda enough=enough: world.requests >= enough)  # type: ignore[misc]
                else:
                    one = members.pop(how % len(members))
                    (one.stop if what == "leave" else one.crash)()
            while members:
                members.pop().crash()
            with world.lock:
                world.rough.requests.clear()
                world.holds_last = False
            members.append(Member(url, table, count + 1, bootstrap=bootstrap, lease=60.0))

            def done() -> bool:
                with table.lock:
                    return table.wrong is not None or min(table.had) >= len(history) or members[0].error is not None

            wait_until(done)
            assert table.wrong is None
            members.pop().stop()
            rows = {place: value for place, (_, value) in table.rows.items()}
            assert rows == history.states[-1]
        finally:
            for one in members:
                one.member.stop()
            for one in members:
                one._thread.join(PATIENCE_SECONDS)  # else it goes on in the next example's world
            for line in [*world.trace, *table.trace]:
                note(str(line))
            world.close()
