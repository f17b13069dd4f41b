"""The figures of the status files as Prometheus metrics, collected on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headgate.lake import TABLE_STATES, Phase, Status, WriteMethod
from headgate.ui._pipelines import View

__all__ = ["CONTENT_TYPE", "METRICS", "exposition"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_PHASES: Final = get_args(Phase)

METRICS: Final[dict[str, str]] = {
    "headgate_up": "1 if the pipeline runs, else 0",
    "headgate_failed": "1 if the last run ended with an error, else 0",
    "headgate_trying_again": "1 while a running pipeline recovers from a failure, else 0",
    "headgate_status_age_seconds": "seconds since the status was written; a running pipeline writes every 5 s",
    "headgate_phase": "1 for what the pipeline does now, 0 for the other phases, while it runs",
    "headgate_phase_seconds": "how long the phase has lasted",
    "headgate_lag_seconds": "age of the state that the lake has, while the pipeline runs",
    "headgate_lag_transactions": "transactions that the lake lacks, at least, where that is known",
    "headgate_freshness_seconds": "time from the commit at the source until applied, of the changes of this run",
    "headgate_freshness_recent_seconds": "quantiles of headgate_freshness_seconds over five minutes, while it runs",
    "headgate_changes_per_second": "changes read and applied per second, over the last minute",
    "headgate_rows_per_second": "snapshot rows read and applied per second, over the last minute",
    "headgate_batch_rows": "snapshot rows of the batch under way, once it is read",
    "headgate_batch_rows_estimate": "snapshot rows that the batch under way will have, about, while it is read",
    "headgate_batches_total": "batches that this run has committed",
    "headgate_writes_total": "how often a batch of this run was written to a current table in this way",
    "headgate_key_index_bytes": "bytes of key indexes on the pipeline's disk, while it runs",
    "headgate_key_index_tables_building": "tables for which a key index is being built",
    "headgate_kafka_messages_total": "messages of this run that Kafka has accepted, with tombstones",
    "headgate_kafka_bytes_total": "bytes of their keys and values",
    "headgate_kafka_seconds_total": "how long sending them took",
    "headgate_last_batch_timestamp_seconds": "when the newest batch was committed, seconds since 1970 UTC",
    "headgate_last_batch_seconds": "how long the newest batch took",
    "headgate_table_state": "1 for the state that the table is in, 0 for the others",
    "headgate_table_changes_total": "changes of the table that this run has applied",
    "headgate_table_rows_total": "snapshot rows of the table that this run has applied",
    "headgate_table_chunks_done": "chunks of the table's snapshot that are done, while it is read",
    "headgate_table_chunks_estimate": "chunks that the table's snapshot will have, about, while it is read",
    "headgate_table_snapshot_rows": "rows of the table's snapshot that are applied, while it is read",
    "headgate_table_snapshot_rows_estimate": "rows that the table's snapshot will have, about, while it is read",
}
"""Name → help text. All have the label ``pipeline``."""

_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "headgate_phase": ("phase",),
    "headgate_freshness_recent_seconds": ("quantile",),
    "headgate_writes_total": ("way",),
    "headgate_table_state": ("table", "state"),
}
"""Additional labels, including ``table``."""
_FRESHNESS: Final = "headgate_freshness_seconds"


def exposition(views: Iterable[View]) -> bytes:
    """Return all metrics of these pipelines in Prometheus' text format."""
    return generate_latest(_Collector(list(views)))


class _Collector(Collector):
    def __init__(self, views: list[View]) -> None:
        self._views = views

    def collect(self) -> Iterator[Metric]:
        families = {name: _family(name) for name in METRICS if name != _FRESHNESS}
        for view in self._views:
            for name, labels, value in _of_pipeline(view):
                families[name].add_metric([view.name, *labels], value)
            if view.status is not None:
                for name, labels, value in _of_tables(view.status):
                    families[name].add_metric([view.name, *labels], value)
        yield _freshness(self._views)
        yield from families.values()


def _family(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    labels = _LABELS.get(name, ("table",) if name.startswith("headgate_table_") else ())
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, METRICS[name], labels=["pipeline", *labels])


def _freshness(views: Iterable[View]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(_FRESHNESS, METRICS[_FRESHNESS], labels=["pipeline"])
    for view in views:
        freshness = view.status.freshness if view.status is not None else None
        if freshness is not None and freshness.buckets:
            buckets = [(str(limit), float(count)) for limit, count in freshness.buckets]
            family.add_metric([view.name], [*buckets, ("+Inf", float(freshness.changes))], freshness.seconds)
    return family


def _of_pipeline(view: View) -> Iterator[tuple[str, list[str], float]]:
    status, condition = view.status, view.condition
    yield "headgate_up", [], float(view.up)
    yield "headgate_failed", [], float(condition == "failed")
    if status is None:
        return
    yield "headgate_trying_again", [], float(condition == "running" and status.error is not None)
    yield "headgate_status_age_seconds", [], max(0.0, (view.now_us - status.updated_us) / 1e6)
    if view.up:
        yield from _of_run(status)
    yield "headgate_batches_total", [], float(status.batches)
    for way in WriteMethod:
        yield "headgate_writes_total", [way], float(status.writes.get(way, 0))
    if status.batch is not None:
        yield "headgate_last_batch_timestamp_seconds", [], status.batch.committed_us / 1e6
        yield "headgate_last_batch_seconds", [], status.batch.seconds
    if status.kafka is not None:
        yield "headgate_kafka_messages_total", [], float(status.kafka.messages)
        yield "headgate_kafka_bytes_total", [], float(status.kafka.bytes)
        yield "headgate_kafka_seconds_total", [], status.kafka.seconds


def _of_run(status: Status) -> Iterator[tuple[str, list[str], float]]:
    """Yield figures that are valid only while the pipeline runs; skip unknown ones."""
    yield "headgate_changes_per_second", [], status.changes_per_second
    yield "headgate_rows_per_second", [], status.rows_per_second
    known: dict[str, float | None] = {
        "headgate_lag_seconds": status.lag.seconds,
        "headgate_lag_transactions": status.lag.transactions,
    }
    for quantile, seconds in (("0.5", status.freshness.p50), ("0.99", status.freshness.p99)):
        if seconds is not None:
            yield "headgate_freshness_recent_seconds", [quantile], seconds
    if status.index is not None:
        known["headgate_key_index_bytes"] = status.index.bytes_on_disk
        known["headgate_key_index_tables_building"] = status.index.tables_building
    activity = status.activity
    if activity is not None:
        for phase in _PHASES:
            yield "headgate_phase", [phase], float(phase == activity.phase)
        yield "headgate_phase_seconds", [], max(0.0, (status.updated_us - activity.since_us) / 1e6)
        known |= {"headgate_batch_rows": activity.rows, "headgate_batch_rows_estimate": activity.rows_estimate}
    for name, value in known.items():
        if value is not None:
            yield name, [], float(value)


def _of_tables(status: Status) -> Iterator[tuple[str, list[str], float]]:
    for name, table in status.tables.items():
        for state in TABLE_STATES:
            yield "headgate_table_state", [name, state], float(table.state == state)
        yield "headgate_table_changes_total", [name], float(table.changes)
        yield "headgate_table_rows_total", [name], float(table.rows)
        if table.state == "snapshotting":
            yield "headgate_table_chunks_done", [name], float(table.chunks_done or 0)
            yield "headgate_table_chunks_estimate", [name], float(table.chunks_estimate or 0)
            yield "headgate_table_snapshot_rows", [name], float(table.rows_read)
            yield "headgate_table_snapshot_rows_estimate", [name], float(table.rows_estimate or 0)
