"""Counters of a relay: one table of integers, from which ``/containerStats``, ``/relayStats`` and ``/metrics`` print.

A row has the figures of a *subject*: of all requests, of a client, of a source. Databus's names are used where it has
one (``DbusEventsTotalStatsMBean.java``, ``DbusHttpTotalStatsMBean.java``, ``ContainerTrafficTotalStatsEvent.java``,
``ContainerStatsMBean.java``). Figures that follow from others are computed when printed.

One lock guards the table. A reader gets a copy of a row, so no figure in it is older or newer than another.

Outbound are the connections by which events go out, which consumers make. Inbound are the HTTP connections that the
relay makes: none, like Databus's relay of MySQL (``ContainerStatisticsCollector.java``). A client of connections is an
address, because they have no tenant before their first request.
"""

from __future__ import annotations

import enum
import threading
import time
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from headgate.relay.databus import count_sources
from headgate.relay.server._recent import Recent

__all__ = [
    "CALLS",
    "INBOUND_CONNECTIONS",
    "OUTBOUND_CONNECTIONS",
    "REQUESTS",
    "SERVER",
    "Counters",
    "Outcome",
    "Subject",
    "SubjectKind",
]

Outcome: TypeAlias = Literal["good", "bad request", "scn not found", "error"]

_NS_PER_MS: Final = 1_000_000
_ADDRESSES: Final = 100_000
"""Most addresses that ``numClients`` counts."""
_LISTS: Final = 64
"""Most lists of sources whose requests wait to be counted by source."""
_IDS: Final = 1 << 15
"""Source ids are signed 16-bit numbers, and those of data events are not negative."""

CALLS: Final[Mapping[str, tuple[str, str]]] = {
    one: (f"num{one.capitalize()}Calls", f"numErr{one.capitalize()}") for one in ("sources", "register", "stream")
}
"""Command → its figures of all requests and of those answered with an error."""

_CLOCKS: Final = ("isEnabled", "resetNs", "resetMs", "accessNs")
"""Of each row: whether it counts; when it was reset, in ns of the monotonic clock and in ms since 1970; when it counted
last, in ns of the monotonic clock."""
_EVENTS: Final = (
    "numDataEvents", "sizeDataEvents", "sizeDataEventsPayload", "numSysEvents", "sizeSysEvents", "minSeenWinScn",
    "maxSeenWinScn", "newestNs", "latencyEvent",
)  # fmt: skip
"""``newestNs``: time of the newest commit, ns since 1970; ``latencyEvent``: ms from then until it was readable."""
_REQUESTS: Final = (
    *(name for names in CALLS.values() for name in names), *(f"{errors}Req" for _, errors in CALLS.values()),
    "numScnNotFoundStream", "streamUs", "minStreamWinScn", "maxStreamWinScn",
)  # fmt: skip
"""``streamUs``: duration of all ``/stream`` requests, in µs."""
_CONNECTIONS: Final = (
    "numBytes", "numClosedConns", "numClients", "timeClosedConnLifeMs", "errorTotalCount", "errorTimeoutCount",
)  # fmt: skip
_CONTAINER: Final = (
    "workerTaskCount", "errorUncaughtCount", "errorRequestProcessingCount", "workerThreadRate", "workerThreadMax",
    "workerTaskMax", "workerTaskQueueSize", "lastTaskCount",
)  # fmt: skip
"""``lastTaskCount``: ``workerTaskCount`` when it was printed last."""


class SubjectKind(enum.Enum):
    """Kinds of subjects, with what a subject's name is, and the figures."""

    RECEIVED = "id of a physical source", _EVENTS
    RECEIVED_SOURCE = "id of a logical source", _EVENTS
    SENT = "id of a physical source: events to all clients", _EVENTS
    SENT_SOURCE = "id of a logical source: events to all clients", _EVENTS
    SENT_CLIENT = "client", _EVENTS
    REQUESTS = "total", _REQUESTS
    REQUESTS_SOURCE = "id of a logical source", _REQUESTS
    REQUESTS_LIST = "ids of logical sources: requests not yet counted for each of them", _REQUESTS
    REQUESTS_CLIENT = "client", _REQUESTS
    LAST_START = "client, and id of a physical source: where its last /stream began", ("lastScn",)
    CONNECTIONS = "outbound, or inbound", _CONNECTIONS
    CONNECTIONS_CLIENT = "address", _CONNECTIONS
    CONTAINER = "container", _CONTAINER

    def __init__(self, about: str, figures: Sequence[str]) -> None:
        self.about = about
        self.columns: Mapping[str, int] = {name: index for index, name in enumerate((*_CLOCKS, *figures))}
        self.initial = [-1 if name.endswith("Scn") else 0 for name in self.columns]


Subject: TypeAlias = tuple[SubjectKind, Hashable]

REQUESTS: Final[Subject] = (SubjectKind.REQUESTS, "total")
OUTBOUND_CONNECTIONS: Final[Subject] = (SubjectKind.CONNECTIONS, "outbound")
INBOUND_CONNECTIONS: Final[Subject] = (SubjectKind.CONNECTIONS, "inbound")
SERVER: Final[Subject] = (SubjectKind.CONTAINER, "container")

_Row: TypeAlias = "array[int]"


class Counters:
    """Table of a relay's counters. Thread-safe.

    :param partitions: ids of the physical sources.
    :param clients: most clients, and most addresses, that have rows: the most recent ones.
    """

    def __init__(self, partitions: Iterable[int], clients: int) -> None:
        self._lock = threading.Lock()
        partitions = list(partitions)
        most = {
            SubjectKind.SENT_CLIENT: clients,
            SubjectKind.REQUESTS_CLIENT: clients,
            SubjectKind.CONNECTIONS_CLIENT: clients,
        }
        most[SubjectKind.LAST_START] = clients * len(partitions)
        self._rows = {kind: Recent[Hashable, _Row](most.get(kind, _IDS)) for kind in SubjectKind}
        self._delivered = np.zeros((3, _IDS), np.int64)
        """By source, not yet in its row: events, their bytes, and when the last of them went out. A compiled loop reads
        the head of each event right after it was chosen, while it is in the processor's cache: 4 ns an event."""
        self._open: dict[Hashable, tuple[str, int]] = {}
        """Connection → address, and since when, in ns of the monotonic clock."""
        self._addresses: set[str] = set()
        self.peers = 0
        """Most clients at a time."""
        for subject in (REQUESTS, OUTBOUND_CONNECTIONS, INBOUND_CONNECTIONS, SERVER):
            self._row(*subject)
        for one in partitions:
            self._row(SubjectKind.RECEIVED, one)
            self._row(SubjectKind.SENT, one)

    # --- the table

    def _row(self, kind: SubjectKind, name: Hashable) -> _Row:
        rows = self._rows[kind]
        return rows.find(name) or rows.keep(name, _new_row(kind))

    def _counting(self, subjects: Iterable[Subject]) -> Iterator[tuple[Mapping[str, int], _Row]]:
        """Yield the columns and rows of the subjects that are enabled."""
        for kind, name in subjects:
            row = self._row(kind, name)
            if row[kind.columns["isEnabled"]]:
                row[kind.columns["accessNs"]] = time.monotonic_ns()
                yield kind.columns, row

    def add(self, *subjects: Subject, **more: int) -> None:
        """Add to figures of all these subjects."""
        with self._lock:
            self._add(subjects, more)

    def _add(self, subjects: Iterable[Subject], more: Mapping[str, int]) -> None:
        for columns, row in self._counting(subjects):
            for figure, number in more.items():
                row[columns[figure]] += number

    def put(self, *subjects: Subject, **figures: int) -> None:
        """Set figures that are not sums."""
        with self._lock:
            for columns, row in self._counting(subjects):
                for figure, number in figures.items():
                    row[columns[figure]] = number

    def _span(self, subjects: Iterable[Subject], least: str, most: str, scns: Iterable[int]) -> None:
        """Extend the range of SCNs from ``least`` to ``most``; ignore negative SCNs."""
        known = [one for one in scns if one >= 0]
        for columns, row in self._counting(subjects) if known else ():
            first = row[columns[least]]
            row[columns[least]] = min(*known, first) if first >= 0 else min(known)
            row[columns[most]] = max(*known, row[columns[most]])

    def read(self, kind: SubjectKind, name: Hashable) -> dict[str, int]:
        """Return a copy of a row; a new one if the subject has none."""
        with self._lock:
            self._settle()
            return dict(zip(kind.columns, self._rows[kind].get(name) or _new_row(kind), strict=True))

    def names(self, kind: SubjectKind) -> list[Hashable]:
        """Return the subjects that have rows."""
        with self._lock:
            self._settle()
            return list(self._rows[kind])

    def reset(self, kind: SubjectKind, name: Hashable) -> None:
        """Set a row's figures to their first values, if it has one."""
        with self._lock:
            self._settle()
            row = self._rows[kind].get(name)
            if row is not None:
                row[1:] = _new_row(kind)[1:]
            if (kind, name) == OUTBOUND_CONNECTIONS:
                self._addresses.clear()

    def enable(self, kind: SubjectKind, name: Hashable, *, enabled: bool) -> None:
        """Let a row count, or not, if there is one."""
        with self._lock:
            self._settle()
            row = self._rows[kind].get(name)
            if row is not None:
                row[kind.columns["isEnabled"]] = enabled

    def _settle(self) -> None:
        """Count by source what waits for it: lists of sources may be long, requests and answers many."""
        for number in np.flatnonzero(self._delivered[0]).tolist():
            events, size, last = self._delivered[:, number].tolist()
            subject = (SubjectKind.SENT_SOURCE, number)
            self._add([subject], {"numDataEvents": events, "sizeDataEvents": size})
            self._row(*subject)[SubjectKind.SENT_SOURCE.columns["accessNs"]] = last
        self._delivered[:] = 0
        lists, columns = self._rows[SubjectKind.REQUESTS_LIST], SubjectKind.REQUESTS_LIST.columns
        for sources, row in lists.items():
            subjects = [(SubjectKind.REQUESTS_SOURCE, one) for one in sources]  # type: ignore[attr-defined]
            self._add(subjects, {"numStreamCalls": row[columns["numStreamCalls"]]})
            scns = row[columns["minStreamWinScn"]], row[columns["maxStreamWinScn"]]
            self._span(subjects, "minStreamWinScn", "maxStreamWinScn", scns)
        for sources in list(lists):
            lists.forget(sources)

    # --- what is counted

    def receive(
        self, partition: int, counts: Mapping[int, tuple[int, int, int]], windows: tuple[int, int, int, int], us: int
    ) -> None:
        """Count windows that came in.

        :param counts: source id → events, their bytes, the bytes of their values.
        :param windows: how many, the bytes of their control events, the first and the last SCN.
        :param us: time of the newest commit, µs since 1970.
        """
        number, control_size, first_scn, last_scn = windows
        everything = (SubjectKind.RECEIVED, partition)
        subjects = [everything, *((SubjectKind.RECEIVED_SOURCE, source) for source in counts)]
        latency = max(0, time.time_ns() // _NS_PER_MS - us // 1000)
        with self._lock:
            for source, (events, size, payload) in counts.items():
                more = {"numDataEvents": events, "sizeDataEvents": size, "sizeDataEventsPayload": payload}
                self._add([everything, (SubjectKind.RECEIVED_SOURCE, source)], more)
            self._add([everything], {"numSysEvents": number, "sizeSysEvents": control_size})
            self._span(subjects, "minSeenWinScn", "maxSeenWinScn", (first_scn, last_scn))
            for columns, row in self._counting(subjects):
                row[columns["newestNs"]], row[columns["latencyEvent"]] = us * 1000, latency

    def deliver(self, partition: int, client: str, events: int, size: int, control: int, control_size: int) -> None:
        """Count events that go out, after filters; sizes in bytes of data events and of control events."""
        more = {"numDataEvents": events, "sizeDataEvents": size, "numSysEvents": control, "sizeSysEvents": control_size}
        self.add((SubjectKind.SENT, partition), (SubjectKind.SENT_CLIENT, client), **more)

    def deliver_parts(self, parts: Iterable[object]) -> None:
        """Count an answer's events by source.

        :param parts: whole events, uint8[] each.
        """
        now = time.monotonic_ns()
        with self._lock:
            for part in parts:
                count_sources(part, self._delivered, now)

    def start(self, client: str, sources: tuple[int, ...], scns: Mapping[int, int]) -> None:
        """Count a ``/stream`` of these source ids that begins after these SCNs, by id of the physical source."""
        wanted = (SubjectKind.REQUESTS_LIST, sources)
        with self._lock:
            if (
                sources not in self._rows[SubjectKind.REQUESTS_LIST]
                and len(self._rows[SubjectKind.REQUESTS_LIST]) >= _LISTS
            ):
                self._settle()
            self._add([wanted], {"numStreamCalls": 1})
            subjects = (REQUESTS, (SubjectKind.REQUESTS_CLIENT, client), wanted)
            self._span(subjects, "minStreamWinScn", "maxStreamWinScn", scns.values())
            for partition, scn in scns.items():
                self._row(SubjectKind.LAST_START, (client, partition))[-1] = scn

    def answer(self, client: str, command: str, outcome: Outcome, seconds: float) -> None:
        """Count an answered request."""
        figures: dict[str, int] = {}
        if command in CALLS:
            calls, errors = CALLS[command]
            figures = {calls: 1, errors: outcome != "good", f"{errors}Req": outcome == "bad request"}
            figures["numScnNotFoundStream"] = outcome == "scn not found"
            figures["streamUs"] = round(seconds * 1e6) if command == "stream" else 0
        with self._lock:
            self._add([REQUESTS, (SubjectKind.REQUESTS_CLIENT, client)], figures)
            self._row(SubjectKind.SENT_CLIENT, client)
            self.peers = max(self.peers, len(self._rows[SubjectKind.REQUESTS_CLIENT]))
            processing = outcome not in ("good", "bad request")
            refused = {"errorRequestProcessingCount": processing, "errorUncaughtCount": outcome == "bad request"}
            self._add([SERVER], {"workerTaskCount": 1, **refused})

    def observe_workers(self, threads: int, waiting: int) -> None:
        """Update the server's current figures, before they are printed. As in Databus, each query updates the maxima.

        In Databus each request is a task of a worker thread. Here the server's own thread answers most requests, and a
        worker does a part of the longer ones.

        :param threads: busy workers.
        :param waiting: requests that wait for a worker.
        """
        row = self.read(*SERVER)
        tasks, last = row["workerTaskCount"], row["lastTaskCount"]
        self.put(
            SERVER,
            workerThreadRate=threads,
            workerTaskQueueSize=waiting,
            workerThreadMax=max(row["workerThreadMax"], threads),
            workerTaskMax=max(row["workerTaskMax"], tasks - last if last else 0),  # before the first: no interval
            lastTaskCount=tasks,
        )

    # --- connections

    def opened(self, key: Hashable, client: str) -> None:
        """Count a new connection.

        :param key: identifies it when it ends.
        """
        with self._lock:
            self._open[key] = client, time.monotonic_ns()
            for columns, row in self._counting([(SubjectKind.CONNECTIONS_CLIENT, client)]):
                row[columns["numClients"]] = 1
            for columns, row in self._counting([OUTBOUND_CONNECTIONS]):
                if len(self._addresses) < _ADDRESSES:
                    self._addresses.add(client)
                row[columns["numClients"]] = len(self._addresses)

    def lost(self, key: Hashable, client: str, error: Exception | None) -> None:
        """Count the end of a connection, perhaps with an error."""
        with self._lock:
            if key in self._open:
                more = {
                    "numClosedConns": 1,
                    "timeClosedConnLifeMs": (time.monotonic_ns() - self._open.pop(key)[1]) // _NS_PER_MS,
                    "errorTotalCount": error is not None,
                    "errorTimeoutCount": isinstance(error, TimeoutError),
                }
                self._add(self._both(client), more)

    def sent(self, client: str, size: int) -> None:
        """Count bytes of an answer's body, sent to an address."""
        with self._lock:
            self._add(self._both(client), {"numBytes": size})

    def _both(self, client: str) -> Sequence[Subject]:
        known = client in self._rows[SubjectKind.CONNECTIONS_CLIENT]
        return [OUTBOUND_CONNECTIONS, (SubjectKind.CONNECTIONS_CLIENT, client)] if known else [OUTBOUND_CONNECTIONS]

    def open_lives(self, kind: SubjectKind, name: Hashable) -> list[int]:
        """Return for how many ms each connection of a subject has been open."""
        now = time.monotonic_ns()
        with self._lock:
            return [
                (now - since) // _NS_PER_MS
                for client, since in self._open.values()
                if (kind, name) in (OUTBOUND_CONNECTIONS, (SubjectKind.CONNECTIONS_CLIENT, client))
            ]


def _new_row(kind: SubjectKind) -> _Row:
    row = array("q", kind.initial)
    now = time.monotonic_ns()
    row[: len(_CLOCKS)] = array("q", (True, now, time.time_ns() // _NS_PER_MS, now))
    return row
