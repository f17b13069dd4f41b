"""``/metrics``: the relay's metrics in Prometheus' text format, collected on request.

They are read from the relay's counters and buffers, with the figures of ``/containerStats``, ``/relayStats`` and
``/bufferInfo``, by Prometheus' conventions: in seconds and bytes, with ``_total`` for counters. A reset of the former
also resets these, which Prometheus handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay.server._counters import CALLS, OUTBOUND_CONNECTIONS, REQUESTS, SubjectKind
from headgate.relay.server._http._commands import Command
from headgate.relay.server._http._parameters import Parameters
from headgate.relay.server._relay import Partition, Relay

__all__ = ["METRICS", "commands"]

_Samples = Iterable[tuple[tuple[str, ...], float | None]]


class _Figure(NamedTuple):
    labels: tuple[str, ...]
    about: str
    samples: Callable[[Relay], _Samples]
    """Values by labels; None: no value yet."""


def _source(about: str, value: Callable[[Partition], float | None]) -> _Figure:
    def samples(relay: Relay) -> _Samples:
        return [((one.name,), value(one)) for one in relay.partitions.values()]

    return _Figure(("source",), about, samples)


def _counter(about: str, kind: SubjectKind, value: Callable[[Mapping[str, int]], float | None]) -> _Figure:
    """Return a figure of the relay's counters, by physical source or by client."""

    def samples(relay: Relay) -> _Samples:
        for name in relay.counters.names(kind):
            label = relay.partitions[name].name if isinstance(name, int) else str(name)
            yield (label,), value(relay.counters.read(kind, name))

    return _Figure(("client",) if kind is SubjectKind.SENT_CLIENT else ("source",), about, samples)


def _command(about: str, which: int) -> _Figure:
    def samples(relay: Relay) -> _Samples:
        row = relay.counters.read(*REQUESTS)
        return [((name,), row[figures[which]]) for name, figures in CALLS.items()]

    return _Figure(("command",), about, samples)


def _lags(relay: Relay) -> _Samples:
    counters, clients = relay.counters, relay.counters.names(SubjectKind.REQUESTS_CLIENT)
    newest = {number: one.buffer.info().max_scn for number, one in relay.partitions.items()}
    for start in counters.names(SubjectKind.LAST_START):
        assert isinstance(start, tuple)
        client, number = start
        scn = counters.read(SubjectKind.LAST_START, start)["lastScn"]
        # A client may be ahead of a relay that was started with ``--anew``.
        if client in clients and min(scn, newest[number]) >= 0:
            yield (client, relay.partitions[number].name), max(0, newest[number] - scn)


def _seconds(ns: int) -> float | None:
    return ns / 1e9 if ns > 0 else None


METRICS: Final[Mapping[str, _Figure]] = {
    "running": _source(
        "1 while the relay reads the source's log, 0 while it retries or has stopped", lambda one: not one.problems
    ),
    "failed": _source("1 if the source has stopped and needs a restart of the relay, else 0", lambda one: one.failed),
    "events_total": _counter("changes that came in", SubjectKind.RECEIVED, itemgetter("numDataEvents")),
    "event_bytes_total": _counter(
        "bytes of the changes that came in", SubjectKind.RECEIVED, itemgetter("sizeDataEvents")
    ),
    "newest_commit_timestamp_seconds": _counter(
        "when the newest change was committed, seconds since 1970 UTC",
        SubjectKind.RECEIVED,
        lambda row: _seconds(row["newestNs"]),
    ),
    "delay_seconds": _counter(
        "from the newest change's commit until it could be read here",
        SubjectKind.RECEIVED,
        lambda row: row["latencyEvent"] / 1e3 if row["newestNs"] else None,
    ),
    "buffer_bytes": _source("memory that the buffer takes", lambda one: one.buffer.info().used),
    "buffer_file_bytes": _source("bytes of the buffer's files", lambda one: one.buffer.info().stored),
    "buffer_oldest_timestamp_seconds": _source(
        "when the oldest change in the buffer was committed", lambda one: _seconds(one.buffer.info().first_stamp)
    ),
    "sent_events_total": _counter(
        "changes that went out, to all consumers", SubjectKind.SENT, itemgetter("numDataEvents")
    ),
    "sent_event_bytes_total": _counter(
        "bytes of the changes that went out", SubjectKind.SENT, itemgetter("sizeDataEvents")
    ),
    "requests_total": _command("requests that were answered", 0),
    "request_errors_total": _command("requests that were answered with an error", 1),
    "scn_not_found_total": _Figure(
        (),
        "stream requests from positions that had already left the buffer",
        lambda relay: [((), relay.counters.read(*REQUESTS)["numScnNotFoundStream"])],
    ),
    "connections": _Figure(
        (), "connections that are open", lambda relay: [((), len(relay.counters.open_lives(*OUTBOUND_CONNECTIONS)))]
    ),
    "client_events_total": _counter(
        "changes that went out to a tenant, or to an address if there are no tenants",
        SubjectKind.SENT_CLIENT,
        itemgetter("numDataEvents"),
    ),
    "client_event_bytes_total": _counter(
        "bytes of the changes that went out to a client", SubjectKind.SENT_CLIENT, itemgetter("sizeDataEvents")
    ),
    "client_lag_scns": _Figure(
        ("client", "source"),
        "newest SCN minus the last requested one; in transactions with gtid-generation and relay-generated",
        _lags,
    ),
}
"""By the name after ``headgate_relay_``. A source is ``name:id``."""


def commands(relay: Relay) -> list[Command]:
    """Return the command ``/metrics``."""

    async def metrics(_request: Request, _parameters: Parameters) -> Response:
        return Response(generate_latest(_RelayMetrics(relay)), headers={"content-type": CONTENT_TYPE_LATEST})

    return [Command("/metrics", metrics)]


class _RelayMetrics(Collector):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        for name, (labels, about, samples) in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"headgate_relay_{name}", about, labels=labels)
            for values, number in samples(self._relay):
                if number is not None:
                    family.add_metric(values, number)
            yield family
