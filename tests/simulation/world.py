"""The world of an episode: source, store, time, and the scheduler's actions at each boundary of the code under test.

Code under test is not divided into steps of its own. Wherever it leaves headgate (a query, a request to the store, a
sleep, a read of the log or of a table), it comes to :meth:`World.pause`, where the scheduler lets other things happen:
transactions, statements, failovers, requests that arrive late, a kill, a second driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.choices import Chooser
from tests.simulation.source import UUIDS, Counts, Server, Transaction
from tests.simulation.store import Store
from tests.simulation.tables import SHAPES, TABLE_SETS, Image, State

__all__ = ["Killed", "World"]

_ANSWERS: Final = ("lost", "failed", "late", "repeated")


class Killed(BaseException):
    """The process that runs is killed."""


class World:
    """Everything outside headgate."""

    def __init__(self, seed: int) -> None:
        self.choose = Chooser(seed)
        self.figures: Counter[str] = Counter()
        self.now_us = 1_000_000_000
        self.behind_us = 0
        """How far the clock of the pipeline's machine is behind."""
        self.store = Store(self)
        self.tables = self.choose.pick(TABLE_SETS)
        rows = {table: SHAPES[table].first_rows(self.choose) for table in self.tables[:2]}
        self.servers = [Server(index, [dict(rows)], [(0, 0)]) for index in range(2)]
        self.primary = 0
        self.connected = 0
        """Index of the server that a new connection reaches."""
        self.connection = 0
        """Grows when connections break."""
        self.history: dict[Counts, list[State]] = {}
        """Every state that the source had, by its GTID set. A set has several if the history was rewritten."""
        self.rewritten = 0
        """How often transactions that were committed ceased to exist."""
        self.known_rewrites = 0
        """Rewrites that the pipeline knows of, because it began after them."""
        self.heat = 0
        """How much happens at a boundary: 0 is nothing."""
        self.freeze: Callable[[], None] | None = None
        """Lets another driver work while this one stands still."""
        self._note_state(self.servers[0])
        self.begin_history()

    def begin_history(self) -> None:
        """Commit the first transactions: a stream that has read none cannot know another history."""
        for _ in range(3):
            self.commit()
        self.main.settle()
        self.catch_up(len(self.main.log))

    # --- counting, time

    def count(self, action: str, times: int = 1) -> None:
        """Count an action of the scheduler."""
        self.figures[action] += times

    @property
    def steps(self) -> int:
        return self.figures.total()

    def clock(self) -> float:
        return self.now_us / 1e6

    def wall_us(self) -> int:
        self.now_us += 1
        return self.now_us - self.behind_us

    def sleep(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)
        self.catch_up(5)
        for server in self.servers:
            server.settle()
        if self.choose.one_in(2):
            self.store.arrive()
        self.pause()

    # --- boundaries

    def pause(self) -> None:
        """Let the scheduler act."""
        self.now_us += 5
        if not self.heat:
            return
        what = self.choose.below(4096 // self.heat)
        if what < 160:
            self.traffic(1 + self.choose.below(6))
        elif what < 200:
            self.advance()
        elif what < 208:
            self.count("kill")
            raise Killed
        elif what < 214:
            self.store.arrive()
        elif what < 220:
            self.statement()
        elif what < 224:
            self.rotate()
        elif what < 228:
            self.catch_up(3)
        elif what < 230:
            self.break_connections()
        elif what == 230:
            self.fail_over(lossy=False)
        elif what == 231 and self.choose.one_in(4):
            self.fail_over(lossy=True)
        elif what == 232 and self.choose.one_in(4):
            self.purge()
        elif what == 233 and self.choose.one_in(12):
            self.reset()
        elif what < 237 and self.freeze is not None:
            self.freeze()

    def answer(self) -> str:
        """Return what becomes of a request to the store."""
        if not self.heat or self.choose.below(80 // self.heat):
            return "ok"
        outcome = self.choose.pick(_ANSWERS)
        self.count(f"answer {outcome}")
        return outcome

    # --- the source

    @property
    def main(self) -> Server:
        """The server that takes writes."""
        return self.servers[self.primary]

    @property
    def server(self) -> Server:
        """The server that a connection reaches."""
        return self.servers[self.connected]

    def _note_state(self, server: Server) -> None:
        states, state = self.history.setdefault(server.counts[-1], []), server.states[-1]
        if not any(known is state for known in states):
            states.append(state)

    def _log(self, state: State, images: tuple[Image, ...] = (), statement: tuple[str, str] | None = None) -> None:
        server = self.main
        number = server.counts[-1][server.index] + 1
        self.now_us += 3
        made = Transaction(server.index, number, self.now_us, images, statement, f"{UUIDS[server.index]}:{number}")
        server.append(made, state)
        self._note_state(server)

    def commit(self) -> None:
        """Commit a transaction of some changes: it reaches the log."""
        before, choose = self.main.states[-1], self.choose
        names = list(before)
        if not names:
            return
        after, images = dict(before), list[Image]()
        for _ in range(1 + choose.below(3)):
            table = names[choose.below(len(names))]
            rows = dict(after[table])
            images += SHAPES[table].change(rows, choose)
            after[table] = rows
        self._log(after, tuple(images))
        self.count("transaction committed")

    def traffic(self, transactions: int) -> None:
        """Commit some, and let some become visible."""
        for _ in range(transactions):
            self.commit()
        self.advance()

    def advance(self) -> None:
        """Let logged transactions become visible, and then executed."""
        server = self.main
        server.visible += self.choose.below(len(server.log) - server.visible + 1)
        server.executed += self.choose.below(server.visible - server.executed + 1)

    def statement(self) -> None:
        """Execute a DDL statement."""
        before, choose = self.main.states[-1], self.choose
        table, after = choose.pick(self.tables), dict(before)
        kind = choose.below(8)
        if table not in before:
            action = "create"
            after[table] = {}
        elif kind < 4:
            action = "truncate"
            after[table] = {}
        elif kind < 7:
            action = "alter"  # of which the log does not tell what it did to the rows
            after[table] = SHAPES[table].altered(before[table])
        else:
            action = "drop"
            del after[table]
        images = ((table, "t", SHAPES[table].nothing, None),) if action == "truncate" else ()
        self._log(after, images, (action, table))
        self.main.settle()  # it waits for the transactions before it
        self.count("schema change")

    def rotate(self) -> None:
        self.main.rotate()
        self.count("log rotated")

    def catch_up(self, most: int) -> None:
        """Let the replica apply transactions."""
        source, replica = self.main, self.servers[1 - self.primary]
        done = source.length_of(replica.executed_set())
        for index in range(done, min(done + most, len(source.log))):
            replica.append(source.log[index], source.states[index + 1])
            self.count("transaction replicated")
        replica.settle()

    def break_connections(self) -> None:
        self.connection += 1
        self.connected = self.choose.pick((self.primary, self.primary, 1 - self.primary))
        self.count("connection lost")

    def fail_over(self, *, lossy: bool) -> None:
        """Make the replica the primary.

        :param lossy: it lacks the newest transactions.
        """
        old, new = self.main, self.servers[1 - self.primary]
        old.settle()
        behind = len(old.log) - old.length_of(new.executed_set())
        self.catch_up(behind - self.choose.below(10) if lossy else behind)
        missing = len(old.log) - old.length_of(new.executed_set())
        self.primary = self.connected = new.index
        self.connection += 1
        if missing:
            self.rewritten += 1
            self._rebuild(old, new)
        self.count("lossy failover" if missing else "failover")

    def _rebuild(self, old: Server, new: Server) -> None:
        """Make a server a copy of another one, with its log. Its numbers are used again."""
        copy = Server(
            old.index,
            [*new.states],
            [*new.counts],
            [*new.log],
            [(number, first) for number, first in new.files],
            new.purged,
            created_s=self.now_us,
            places=dict(new.places),
        )
        copy.settle()
        self.servers[old.index] = copy

    def purge(self) -> None:
        """Purge all binlog files but the newest."""
        if self.rewritten != self.known_rewrites:
            return  # what tells the histories apart would be purged, too
        server = self.main
        server.rotate()
        server.purged = server.files[-1][1]
        server.files = server.files[-1:]
        self.count("log purged")

    def reset(self, *, stays_empty: bool = False) -> None:
        """RESET BINARY LOGS AND GTIDS on the primary, and then as many transactions as there were before.

        :param stays_empty: there are none yet.
        """
        old = self.main
        old.settle()
        total = sum(old.counts[-1])
        fresh = Server(old.index, [old.states[-1]], [(0, 0)], created_s=self.now_us)
        self.servers[old.index] = fresh
        self.rewritten += 1
        self.connection += 1
        self._note_state(fresh)
        if not stays_empty:
            for _ in range(max(1, min(total, 400))):
                self.commit()
            fresh.settle()
        self._rebuild(self.servers[1 - old.index], fresh)
        self.count("GTIDs reset")

    def heal(self) -> None:
        """End all faults."""
        self.heat = 0
        self.main.settle()
        self.connected = self.primary
        self.catch_up(len(self.main.log))
        while self.store.late:
            self.store.arrive()
