"""``/metrics``: the relay's figures as Prometheus' text, collected when they are asked for.

They are those of ``/containerStats``, ``/relayStats`` and ``/bufferInfo`` under names as Prometheus' users expect them,
in seconds and bytes, with ``_total`` for counters. A reset of the former begins these anew, too, which Prometheus
understands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay._http._commands import Command
from headgate.relay._relay import Partition, Relay

__all__ = ["METRICS", "commands"]

_SOURCE: Final = ("source",)
_CLIENT: Final = ("client",)
METRICS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "running": (_SOURCE, "1 while the source's log is read, 0 while that is tried again or has stopped"),
    "failed": (_SOURCE, "1 if the source has stopped and will not go on by itself, else 0"),
    "events_total": (_SOURCE, "changes that came in"),
    "event_bytes_total": (_SOURCE, "bytes of the changes that came in"),
    "newest_commit_timestamp_seconds": (_SOURCE, "when the newest change was committed, seconds since 1970 UTC"),
    "delay_seconds": (_SOURCE, "from the newest change's commit until it could be read here"),
    "buffer_bytes": (_SOURCE, "memory that the buffer takes"),
    "buffer_file_bytes": (_SOURCE, "bytes of the buffer's files"),
    "buffer_oldest_timestamp_seconds": (_SOURCE, "when the oldest change in the buffer was committed"),
    "sent_events_total": (_SOURCE, "changes that went out, to all consumers"),
    "sent_event_bytes_total": (_SOURCE, "bytes of the changes that went out"),
    "requests_total": (("command",), "requests that were answered"),
    "request_errors_total": (("command",), "of them those that were answered with an error"),
    "scn_not_found_total": ((), "streams of consumers that were away for longer than the buffer reaches back"),
    "connections": ((), "connections that are open"),
    "client_events_total": (_CLIENT, "changes that went out to a tenant, or where there are none to an address"),
    "client_event_bytes_total": (_CLIENT, "bytes of the changes that went out to it"),
    "client_lag_scns": (
        (*_CLIENT, *_SOURCE),
        "newest SCN less the one that it last asked from; with gtid-generation and relay-generated transactions",
    ),
}
"""Name behind ``headgate_relay_`` → labels, and what it says. A source is ``name:id``."""

_Sample = tuple[str, tuple[str, ...], float]


def commands(relay: Relay) -> list[Command]:
    """``/metrics``."""

    async def metrics(request: Request, given: Mapping[str, Any]) -> Response:
        del request, given
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Figures(relay))
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    media = (CONTENT_TYPE_LATEST,)
    return [Command("/metrics", metrics, "The relay's figures for Prometheus", result={"type": "string"}, media=media)]


class _Figures(Collector):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        families = {name: _family(name) for name in METRICS}
        for samples in (self._of_sources(), self._of_requests(), self._of_clients()):
            for name, labels, value in samples:
                families[name].add_metric(labels, value)
        yield from families.values()

    def _of_sources(self) -> Iterator[_Sample]:
        for one in self._relay.partitions.values():
            for name, value in _of_source(one):
                yield name, (_name(one),), value

    def _of_requests(self) -> Iterator[_Sample]:
        total = self._relay.usage.total
        for command, count in total.calls.items():
            yield "requests_total", (command,), count
            yield "request_errors_total", (command,), total.errors[command]
        yield "scn_not_found_total", (), total.not_found
        yield "connections", (), len(self._relay.traffic.total.open)

    def _of_clients(self) -> Iterator[_Sample]:
        newest = {number: one.buffer.info().max_scn for number, one in self._relay.partitions.items()}
        for name in self._relay.usage.clients():
            client = self._relay.usage.of(name)
            if client is None:
                continue
            yield "client_events_total", (name,), client.events.events
            yield "client_event_bytes_total", (name,), client.events.bytes
            for number, scn in client.asked.items():
                if min(scn, newest[number]) >= 0:
                    lag = max(0, newest[number] - scn)  # a client may have come further than a relay that began anew
                    yield "client_lag_scns", (name, _name(self._relay.partitions[number])), lag


def _of_source(one: Partition) -> Iterator[tuple[str, float]]:
    came, went, buffer = one.feeder.stats, one.outbound, one.buffer.info()
    yield "running", float(not one.problems)
    yield "failed", float(one.failed)
    yield "events_total", came.events
    yield "event_bytes_total", came.bytes
    if came.last_stamp:
        yield "newest_commit_timestamp_seconds", came.last_stamp / 1e9
        yield "delay_seconds", came.latency_ms / 1e3
    yield "buffer_bytes", buffer.used
    yield "buffer_file_bytes", buffer.stored
    if buffer.first_stamp >= 0:
        yield "buffer_oldest_timestamp_seconds", buffer.first_stamp / 1e9
    yield "sent_events_total", went.events
    yield "sent_event_bytes_total", went.bytes


def _name(one: Partition) -> str:
    return f"{one.source.name}:{one.source.id}"


def _family(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    labels, text = METRICS[name]
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(f"headgate_relay_{name}", text, labels=labels)
