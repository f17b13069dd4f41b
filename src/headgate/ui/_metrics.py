"""The figures of the status files as Prometheus metrics, collected on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headgate.lake import TABLE_STATES, WriteMethod
from headgate.status import Activity, FilesStatus, FreshnessStatus, Phase, Status, TableStatus
from headgate.ui._pipelines import PipelineView

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def exposition(views: Iterable[PipelineView]) -> bytes:
    """Return all metrics of these pipelines in Prometheus' text format. All have the label ``pipeline``."""
    return generate_latest(_StatusMetrics(list(views)))


class _StatusMetrics(Collector):
    """Each metric is declared where its value is read: name, which ends in the unit, help, value, labels."""

    def __init__(self, views: list[PipelineView]) -> None:
        self._views = views

    def collect(self) -> Iterator[Metric]:
        self._families: dict[str, Any] = {}
        for view in self._views:
            self._pipeline = view.name
            self._add_view(view)
        return iter(self._families.values())

    def _add(self, name: str, about: str, value: float | FreshnessStatus | None, **labels: str) -> None:
        """Add a sample; None: unknown, so left out."""
        if value is None:
            return
        is_histogram, is_total = isinstance(value, FreshnessStatus), name.endswith("_total")
        if name not in self._families:
            kind = HistogramMetricFamily if is_histogram else CounterMetricFamily if is_total else GaugeMetricFamily
            self._families[name] = kind(name, about, labels=["pipeline", *labels])
        family, values = self._families[name], [self._pipeline, *labels.values()]
        if isinstance(value, FreshnessStatus):
            counts = [*value.buckets, ("+Inf", value.changes)]
            family.add_metric(values, [(str(limit), float(count)) for limit, count in counts], value.seconds)
        else:
            family.add_metric(values, float(value))

    def _add_view(self, view: PipelineView) -> None:
        add, status = self._add, view.status
        add("headgate_up", "1 if the pipeline runs, else 0", view.up)
        add("headgate_failed", "1 if the last run ended with an error, else 0", view.condition == "failed")
        if status is None:
            return
        retries = view.condition == "running" and status.error is not None
        add("headgate_trying_again", "1 while a running pipeline recovers from a failure, else 0", retries)
        about = "seconds since the status was written; a running pipeline writes every 5 s"
        add("headgate_status_age_seconds", about, max(0, view.now_us - status.updated_us) / 1e6)
        if view.up:
            self._add_run(status)
        self._add_totals(status)
        for name, table in status.tables.items():
            self._add_table(name, table)

    def _add_run(self, status: Status) -> None:
        """Add figures that are valid only while the pipeline runs."""
        add = self._add
        if status.activity is not None:
            self._add_activity(status.activity, status.updated_us)
        add("headgate_lag_seconds", "age of the state that the lake has, while the pipeline runs", status.lag.seconds)
        about = "transactions that the lake lacks, at least, where that is known; none without GTIDs"
        add("headgate_lag_transactions", about, status.lag.transactions)
        about = "quantiles over the last five minutes, of changes committed after the run was first up to date"
        for quantile, seconds in (("0.5", status.freshness.p50), ("0.99", status.freshness.p99)):
            add("headgate_freshness_recent_seconds", about, seconds, quantile=quantile)
        about = "changes read and applied per second, over the last minute"
        add("headgate_changes_per_second", about, status.changes_per_second)
        about = "snapshot rows read and applied per second, over the last minute"
        add("headgate_rows_per_second", about, status.rows_per_second)
        if status.index is not None:
            about = "bytes of key indexes on the pipeline's disk, while it runs; none on an object store"
            add("headgate_key_index_bytes", about, status.index.bytes_on_disk)
            about = "tables for which a key index is being built"
            add("headgate_key_index_tables_building", about, status.index.tables_building)

    def _add_activity(self, activity: Activity, now_us: int) -> None:
        add, about = self._add, "1 for what the pipeline does now, 0 for the other phases, while it runs"
        for phase in get_args(Phase):
            add("headgate_phase", about, phase == activity.phase, phase=phase)
        add("headgate_phase_seconds", "how long the phase has lasted", max(0, now_us - activity.since_us) / 1e6)
        add("headgate_batch_rows", "snapshot rows of the batch under way, once it is read", activity.rows)
        about = "snapshot rows that the batch under way will have, about, while it is read"
        add("headgate_batch_rows_estimate", about, activity.rows_estimate)

    def _add_totals(self, status: Status) -> None:
        add = self._add
        if status.freshness.buckets:
            about = "time from the commit at the source until applied, of the changes of this run"
            add("headgate_freshness_seconds", about, status.freshness)
        add("headgate_batches_total", "batches that this run has committed", status.batches)
        about = "how often a batch of this run was written to a current table in this way"
        for way in WriteMethod:
            add("headgate_writes_total", about, status.writes.get(way, 0), way=way)
        if status.kafka is not None:
            about = "messages of this run that Kafka has accepted, with tombstones; none without the mode kafka"
            add("headgate_kafka_messages_total", about, status.kafka.messages)
            add("headgate_kafka_bytes_total", "bytes of their keys and values", status.kafka.bytes)
            add("headgate_kafka_seconds_total", "how long sending them took", status.kafka.seconds)
        if status.requests is not None:
            about = "requests of this run to the lake's object store; GET includes HEAD"
            for operation in ("put", "get", "list", "delete"):
                add("headgate_store_requests_total", about, getattr(status.requests, operation), operation=operation)
        if status.files is not None:
            self._add_files("headgate_lake", "of all tables and headgate's own", status.files)
        if status.batch is not None:
            about = "when the newest batch was committed, seconds since 1970 UTC"
            add("headgate_last_batch_timestamp_seconds", about, status.batch.committed_us / 1e6)
            add("headgate_last_batch_seconds", "how long the newest batch took", status.batch.seconds)

    def _add_files(self, prefix: str, whose: str, files: FilesStatus, **labels: str) -> None:
        for kind in ("data", "vectors", "log"):
            about = f"files {whose}, of the whole retention"
            self._add(f"{prefix}_files", about, getattr(files, kind), kind=kind, **labels)
        self._add(f"{prefix}_bytes", f"bytes of data files and deletion vectors {whose}", files.bytes, **labels)

    def _add_table(self, name: str, table: TableStatus) -> None:
        add = self._add
        for state in TABLE_STATES:
            about = "1 for the state that the table is in, 0 for the others"
            add("headgate_table_state", about, state == table.state, table=name, state=state)
        about = "changes of the table that this run has applied"
        add("headgate_table_changes_total", about, table.changes, table=name)
        about = "snapshot rows of the table that this run has applied"
        add("headgate_table_rows_total", about, table.rows, table=name)
        if table.files is not None:
            self._add_files("headgate_table", "of the table", table.files, table=name)
        if table.state == "snapshotting":
            about = "chunks of the table's snapshot that are done, while it is read"
            add("headgate_table_chunks_done", about, table.chunks_done, table=name)
            about = "chunks that the table's snapshot will have, about, while it is read"
            add("headgate_table_chunks_estimate", about, table.chunks_estimate, table=name)
            about = "rows of the table's snapshot that are applied, while it is read"
            add("headgate_table_snapshot_rows", about, table.rows_read, table=name)
            about = "rows that the table's snapshot will have, about, while it is read"
            add("headgate_table_snapshot_rows_estimate", about, table.rows_estimate, table=name)
