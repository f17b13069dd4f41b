"""A pipeline: the stream of one MySQL server into one lake, from a configuration.

This module only connects parts: the session, the source, the writer of batches, and how a run begins and ends.
Exactness is explained in ``spark/`` (what a batch holds), ``sinks/`` (how it is applied once) and ``lake/`` (what makes
it count).

A run may be killed at any moment. The next one resumes from Spark's checkpoint and applies the unfinished batch again,
with the same outcome. A clean stop (Ctrl-C) only means that the current batch may finish first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.carrier import ControlFolder, ImageFolder, Resnapshot
from headgate.catalog import TablePatterns
from headgate.config import ConfigFile, PipelineConfig, ServerLogin, SnapshotMode, with_snapshot_mode
from headgate.control import Channel, KafkaChannel, LogChannel, NotificationDispatcher, WebhookChannel
from headgate.engine import build_session, end_session, find_error, jvm_ended, spark_failure, store_class_archive
from headgate.errors import BinlogPurgedError, EngineError, HeadgateError, SparkFailedError, Transient, error_line
from headgate.lake import Lake, LedgerRow, State, TableChannel, TableState, forget_position, ledger_notifications
from headgate.pipeline._catalog_names import CatalogNames, check_catalog
from headgate.pipeline._checkpoint import left_to_read, remove_torn_files, sync_end
from headgate.pipeline._checks import check_config, check_interfaces, check_resnapshot, connection_settings, find_hooks
from headgate.pipeline._files import known_error, lake_lock, temporary_folder
from headgate.pipeline._image_folder import image_folder, remove_other_images
from headgate.pipeline._projection import freshness_seconds
from headgate.pipeline._requests import RunRequests, counted_requests
from headgate.pipeline._retry_budget import RetryBudget
from headgate.pipeline._status import StatusWriter, record_failure
from headgate.pipeline._table_policy import table_policy
from headgate.pipeline.divergence import ChangedSettings, detector_of
from headgate.policies import POLICY_SETTINGS
from headgate.preload import PRELOAD, are_compiled, compile_kernels
from headgate.sinks import BatchReport, BatchWriter
from headgate.status import Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery  # type: ignore[attr-defined]

    from headgate.spark import TablesAsOf

__all__ = ["Pipeline", "read_source", "rest_seconds", "source_options"]

log = logging.getLogger("headgate")

_FINISH_SECONDS = 60.0
"""How long a clean stop waits for the current batch; then the batch is dropped, and the next run applies it."""

_SIGNAL_SECONDS = 1.0
"""How long a failure waits for a signal to stop. A signal to all processes of a run may reach Spark's first."""

_RECHECK_SECONDS = 10.0
"""How soon a changed file is checked again, if the server could not be asked."""


class Pipeline:
    """One pipeline: the tables of one MySQL server into one lake. :meth:`run` follows the source until it is stopped.

    :param config: the configuration.
    :param spark: a session to use; by default one is made from the configuration and stopped at the end.
    :param file: where ``config`` comes from. If it changes, the new one applies from the end of a batch on.
    :param snapshot_mode: instead of the configuration's.
    :raises ConfigError: ``snapshot_mode`` does not go together with the configuration.

    >>> pipeline = headgate.Pipeline(headgate.load_config("pipeline.toml"), spark)
    >>> pipeline.run(once=True)
    True
    >>> sorted(headgate.read_as_of(spark, "/data/lake"))
    ['shop.items', 'shop.orders']
    """

    def __init__(
        self,
        config: PipelineConfig,
        spark: SparkSession | None = None,
        *,
        file: ConfigFile | None = None,
        snapshot_mode: SnapshotMode | None = None,
    ) -> None:
        self.config = with_snapshot_mode(config, snapshot_mode)
        self._snapshot_mode = snapshot_mode
        self._file = file
        self._reload = threading.Event()
        self._recheck_at: float | None = None
        self._tables: list[str] = []
        self.lake = Lake.of(config)
        self._spark = spark
        self._stop = threading.Event()
        self.unread = ""
        """Which tables a run that has ended left to read, why, and what to do; ``""``: none, or it was stopped."""

    def stop(self) -> None:
        """End a running :meth:`run` after the current batch. Safe in signal handlers and other threads."""
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration file again soon, even if it looks the same. Safe in signal handlers."""
        self._reload.set()

    def reloaded(self) -> bool:
        """Return whether a changed configuration has just come into force."""
        if self._file is None:
            return False
        requested = self._reload.is_set()
        if requested:  # unconditionally, a request made just now would be lost
            self._reload.clear()
        rechecks = self._recheck_at is not None and time.monotonic() >= self._recheck_at
        if rechecks:
            self._recheck_at = None
        config = self._file.load_change(requested=requested or rechecks)
        if config is None:
            return False
        try:
            changed = with_snapshot_mode(config, self._snapshot_mode)
            tables = check_config(changed)
        except HeadgateError as error:
            is_transient = isinstance(error, Transient)
            self._recheck_at = time.monotonic() + _RECHECK_SECONDS if is_transient else None
            if not (rechecks and is_transient):
                self._file.refuse(f"{error}; it is checked again" if is_transient else str(error))
            return False
        self.config, self._tables = changed, tables
        self._file.take(config)
        return True

    def run(
        self,
        once: bool = False,
        resnapshot: Sequence[str] = (),
        on_progress: Callable[[BatchReport], None] | None = None,
        quiet: bool | None = None,
        on_start: Callable[[], None] | None = None,
        on_status: Callable[[Status], None] | None = None,
    ) -> bool:
        """Read the tables, then follow their changes. Return False if :meth:`stop` ended the run early, or if it ended
        with tables left to read, which ``unread`` then names.

        Early is with ``once`` before the end, else before a first batch, unless there was nothing to do.

        :param once: end when all tables are read and everything is applied that the server had executed at the start.
        :param resnapshot: patterns of tables to read again; each must match one.
        :param on_progress: called after each batch, in another thread; ``on_status`` first.
        :param quiet: keep Spark's log off stderr; default: unless ``[spark]`` sets ``log.level``.
        :param on_start: called when the Spark session exists. Install signal handlers here: Spark installs one for
            Ctrl-C that cancels its jobs.
        :param on_status: called after each batch and every second, in any thread, one call at a time and in order.
        :raises HeadgateError: what ended the run, except :meth:`stop`.
        """
        inbox = ControlFolder(self.lake.inbox)
        with contextlib.ExitStack() as stack:
            try:
                self.lake.check_root()
                check_interfaces(self.config)
                tables = check_config(self.config)
                check_resnapshot(resnapshot, tables)
                stack.enter_context(lake_lock(self.lake, self.config.name))
            except HeadgateError as error:
                record_failure(inbox, self.config.name, error)
                raise
            from headgate.spark import BatchPlan

            plan = partial(BatchPlan.read, self.lake.checkpoint)
            writer = StatusWriter(inbox, self.config.name, on_status=on_status, plan=plan)
            status = stack.enter_context(writer)
            log_values = self.config.name, self.config.source.url, self.lake.path, len(tables)
            log.info("pipeline %s: from %s into %s, tables: %d; starting Spark", *log_values)
            try:
                spark = self._spark or build_session(self.config.name, self.config.spark, quiet=quiet, preload=PRELOAD)
                try:
                    if on_start is not None:
                        on_start()
                    if not are_compiled():
                        status.enters("compiling")
                        compile_kernels()
                    status.enters("checking")
                    return self._follow(spark, status, tables, once, list(resnapshot), on_progress)
                finally:
                    status.stops("Spark to end")
                    if self._spark is None:
                        end_session(spark, ending=self._stop.is_set())
            except Exception as error:
                may_be_signal = isinstance(error, EngineError) or not isinstance(error, HeadgateError)
                if not (may_be_signal and self._stop.wait(_SIGNAL_SECONDS)):
                    if isinstance(error, OSError):
                        raise known_error(error) from None
                    raise
                log.info("stopping: %s", error)
                return False

    def _follow(
        self,
        spark: SparkSession,
        status: StatusWriter,
        tables: list[str],
        once: bool,
        resnapshot: list[str],
        on_progress: Callable[[BatchReport], None] | None,
    ) -> bool:
        retries, begun_us = RetryBudget(self.config.source.retry_seconds), time.time_ns() // 1000
        is_first, restarted, applied, inbox = True, False, False, ControlFolder(self.lake.inbox)
        with contextlib.ExitStack() as stack:
            courier: NotificationDispatcher | None = None
            images: ImageFolder | None = None
            requests = stack.enter_context(counted_requests(spark, self.lake))
            names = stack.enter_context(_catalog_names(self.config, spark, self.lake, status))
            while not self._stop.is_set():
                mode, retries.seconds = self.config.source.snapshot_mode, self.config.source.retry_seconds
                retries.begin()
                ends, batches = once or mode == "initial_only", 0
                error: BaseException | None
                try:
                    run = _Run(self, spark, status, on_progress)
                    with contextlib.closing(run.writer):
                        courier = courier or stack.enter_context(_courier(self.config, spark, run.writer, status))
                        images = images or stack.enter_context(image_folder(spark, self.lake))  # the lake is ours
                        run.courier, run.names, run.images, run.requests = courier, names, images, requests
                        self._prepare(run, spark, tables, resnapshot, is_first=is_first)
                        is_first, resnapshot = False, []
                        error = run.until_end(ends, self._stop, self.reloaded)
                        batches = run.batches
                except (HeadgateError, OSError) as problem:  # before the query has begun: a store did not answer
                    error = known_error(problem)
                applied = applied or batches > 0
                if batches:
                    store_class_archive()
                if error is None:
                    if run.superseded and not self._stop.is_set():
                        tables = self._tables
                        continue
                    if names is not None and run.writer.ledger.last is not None and not self._stop.is_set():
                        names.finish(run.writer.ledger.last)
                    is_idle = (waiting := inbox.waiting()) is not None and waiting.seen_us >= begun_us
                    self.unread = left_to_read(self.lake.checkpoint, status.warns) if run.ended else ""
                    return not self.unread if run.ended else not ends and (applied or is_idle)
                if _restarts_from_now(error, mode) and (batches or not restarted):
                    log.warning("%s; all tables are read again (snapshot_mode = %s)", error, mode)
                    status.tries_again(error)
                    forget_position(spark, self.lake, run.writer.inbox)
                    restarted = True
                    continue
                trouble = inbox.trouble()
                is_current = trouble is not None and trouble.since_us >= begun_us
                unplanned = trouble.seconds if trouble is not None and is_current else 0.0
                wait = retries.pause(error, moved=batches > 0, unplanned=unplanned)
                if wait is None:
                    raise error
                log.warning("%s; retrying in %.0f s", error_line(error), wait)
                status.tries_again(error)
                self._stop.wait(wait)
        return applied and not once

    def _prepare(
        self, run: _Run, spark: SparkSession, tables: Sequence[str], resnapshot: Sequence[str], *, is_first: bool
    ) -> None:
        """Check the tables in the lake, and request to read some again.

        :param is_first: whether no query has begun yet.
        :raises HeadgateError: a table in the lake is not this pipeline's, or cannot be read.
        """
        writer = run.writer
        if is_first:
            writer.warn_of_stopped()
        writer.check_targets(spark, tables)
        writer.resume()
        if is_first and self.config.source.snapshot_mode == "always" and writer.ledger.last is not None:
            resnapshot = [*self.config.source.tables, *resnapshot]
        if resnapshot:
            writer.inbox.send_request(f"run-{uuid.uuid4().hex}", Resnapshot(tuple(resnapshot)))


def _restarts_from_now(error: BaseException, mode: str) -> bool:
    """Return whether to give up a position that the server has purged, and begin at the current one."""
    return isinstance(error, BinlogPurgedError) and mode in ("when_needed", "always")


@contextlib.contextmanager
def _catalog_names(
    config: PipelineConfig, spark: SparkSession, lake: Lake, status: StatusWriter
) -> Iterator[CatalogNames | None]:
    """Give the tables names in the configured catalog, if there is one, for as long as the run goes on."""
    catalog = config.target.catalog
    if catalog is None:
        yield None
        return
    check_catalog(spark, catalog)
    with contextlib.closing(CatalogNames(spark, catalog, lake, status.warns)) as names:
        yield names


def _courier(
    config: PipelineConfig, spark: SparkSession, writer: BatchWriter, status: StatusWriter
) -> NotificationDispatcher:
    """Return the courier of the pipeline's notifications."""
    notifications, lake = config.notifications, writer.lake
    channels: list[Channel] = [LogChannel()] if notifications.log else []
    if notifications.table:
        channels.append(TableChannel(spark, lake, config.name))
    if notifications.kafka is not None:
        channels.append(
            KafkaChannel(
                notifications.kafka.bootstrap,
                notifications.kafka.topic,
                key=config.name,
                settings=notifications.kafka.settings_file,
                schemas=notifications.kafka.format == "json-schema",
            )
        )
    if notifications.webhook is not None:
        webhook = notifications.webhook
        channels.append(
            WebhookChannel(webhook.url, token_file=webhook.token_file, timeout_seconds=webhook.timeout_seconds)
        )
    return NotificationDispatcher(
        channels,
        writer.inbox,
        lambda after, limit: ledger_notifications(spark, lake, after=after, limit=limit),
        newest=writer.ledger.last.epoch if writer.ledger.last else 0,
        wait_seconds=notifications.wait_seconds,
        on_trouble=status.warns,
    )


class _Run:
    """One streaming query, from start to end."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        status: StatusWriter,
        on_progress: Callable[[BatchReport], None] | None,
    ) -> None:
        self.config = pipeline.config
        self.courier: NotificationDispatcher | None = None
        self.names: CatalogNames | None = None
        self.images: ImageFolder | None = None
        self.requests: RunRequests | None = None
        self.lake = pipeline.lake
        self.spark = spark
        cores = spark.sparkContext.defaultParallelism
        self.writer = BatchWriter(
            spark,
            self.lake,
            self.config.name,
            self.config.target.mode,
            policy=partial(table_policy, self.config),
            threads=max(2, cores),
            retention_hours=self.config.target.retention_hours,
            kafka=self.config.target.kafka,
        )
        self.writer.progress = status
        status.indexes, status.kafka, status.files = self.writer.indexes, self.writer.kafka, self.writer.files
        self._changed_settings = ChangedSettings(self.config, self.writer)
        settings = connection_settings(self.config)
        self.writer.unseen = detector_of(self.config, self.writer, settings, self._changed_settings)
        self.batches = 0
        self._may_have_company = True
        """Whether another run may still commit a batch: until this one has."""
        self._status = status
        self._slots = cores
        self._on_progress = on_progress
        self._error: BaseException | None = None
        self._idle = threading.Lock()  # held while a batch is written
        self._ending = threading.Event()
        self._freshness = 0.0
        """Seconds after its commit in which a row should be visible."""
        self.superseded = False
        self.ended = False
        """Whether the query ended by itself, with everything applied."""

    def until_end(
        self, once: bool, stop: threading.Event, reloaded: Callable[[], bool] = lambda: False
    ) -> BaseException | None:
        """Run until the query ends (None: without error), ``stop`` is set (None), or another configuration is in force.

        In the last case (None, and ``superseded``) the next query resumes from the checkpoint, with the new one.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        self._freshness = 0.0 if once else freshness_seconds(self.config, self.lake)
        self._changed_settings.request_rereads(self.spark)
        try:
            query = self._start(once)
        except Py4JJavaError as error:  # such as a planner's process that ended
            return self._cause(error)
        try:
            self.writer.start()
            return self._watch(query, once, stop, reloaded)
        finally:  # Ctrl-C in a notebook, or an error while a new configuration is checked, leaves it running
            self._ending.set()
            with contextlib.suppress(Exception):
                query.stop()

    def _watch(
        self, query: StreamingQuery, once: bool, stop: threading.Event, reloaded: Callable[[], bool]
    ) -> BaseException | None:
        try:
            while not stop.is_set() and not self.superseded:
                self.superseded = reloaded()
                if self.superseded:
                    break
                if query.awaitTermination(1):
                    self.ended = once
                    return None if once else EngineError("Spark's query was stopped, and not by this run")
                self._count_tasks()
                self._count_requests()
        except Exception as error:  # noqa: BLE001 - _cause finds the error in any form that Spark gives it
            if not stop.wait(_SIGNAL_SECONDS):
                if jvm_ended(self.spark, error):
                    return SparkFailedError("Spark failed: its JVM has ended: killed, or out of memory")
                return self._cause(error)
            log.info("stopping: %s", self._cause(error))
        self._ending.set()
        if stop.is_set() and self._idle.locked():
            log.info("stopping: the current batch may finish (%.0f s)", _FINISH_SECONDS)
        if self._idle.acquire(timeout=_FINISH_SECONDS):
            self._idle.release()
        else:
            log.warning("the current batch takes too long; if it waits for Kafka, the next run applies it again")
            self.writer.stop()
        if stop.is_set():
            self._status.stops("Spark to end the query")
        try:
            query.stop()
        except Exception as error:
            if not jvm_ended(self.spark, error, ending=stop.is_set()):
                raise
            log.warning("Spark's JVM ended at once; the next run applies the current batch again")
        if stop.is_set():
            self._status.stops("files that are being folded or removed, and notifications to be sent")
        return None

    def _start(self, once: bool) -> StreamingQuery:
        from headgate.spark import register

        register(self.spark)
        newest, last = self.writer.newest_epoch(self.spark), self.writer.ledger.last
        options = source_options(self.config, self.lake, slots=self._slots, last=last, written_epoch=newest)
        if self.images is not None:
            options["images_path"] = self.images.path
        stream = self.spark.readStream.format("mysql-cdc").options(**options).load()
        writer = stream.writeStream.foreachBatch(self._batch).queryName(f"headgate {self.config.name}")
        writer = writer.option("checkpointLocation", self.lake.checkpoint)
        if self.lake.is_local:
            remove_torn_files(Path(self.lake.checkpoint))
        self._status.starts()
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _count_tasks(self) -> None:
        """Report how many tasks of the batch being read are done, if Spark can tell."""
        if self._status.is_reading:
            with contextlib.suppress(Exception):  # a lost JVM is detected elsewhere
                tracker = self.spark.sparkContext.statusTracker()
                stages = [*filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))]
                done = sum(stage.numCompletedTasks for stage in stages)
                self._status.counts_tasks(done, sum(stage.numTasks for stage in stages))

    def _count_requests(self) -> None:
        """Report the requests to the lake's store, if Spark can tell its own."""
        if self.requests is not None:
            with contextlib.suppress(Exception):  # a lost JVM is detected elsewhere
                self._status.counts_requests(self.requests.read())

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch; return when the next one may begin."""
        begun = time.monotonic()
        report = self._write(frame, batch_id)
        if not (self.config.source.snapshot_share < 1 and any(map(_is_being_read, report.tables.values()))):
            self._rest(rest_seconds(report, self._freshness, time.monotonic() - begun, time.time()))

    def _rest(self, seconds: float) -> None:
        """Wait for more changes, or until the run ends."""
        if seconds > 0:
            self._status.rests()
            self._ending.wait(seconds)
            self._status.plans()

    def _write(self, frame: DataFrame, batch_id: int) -> BatchReport:
        with self._idle:
            if self._ending.is_set():
                raise InterruptedError("the run is ending")  # Spark repeats the batch in the next run
            try:
                self._status.reads(batch_id)
                if self.lake.is_local:
                    sync_end(Path(self.lake.checkpoint), batch_id)
                report = self.writer.write(frame, batch_id)
                self.batches += 1
                if self._may_have_company and not report.replayed:
                    self._may_have_company = False
                    remove_other_images(self.lake, self.images)
                self._status.ends(report)
                if self.courier is not None:
                    self.courier.add(report.epoch, report.notifications)
                if self.names is not None and self.writer.ledger.last is not None:
                    self.names.note(self.writer.ledger.last)
                if self._on_progress is not None:
                    self._on_progress(report)
                return report
            except BaseException as error:
                self._error = error
                raise
            finally:
                if self.images is not None:
                    self.images.clear()

    def _cause(self, error: Exception) -> BaseException:
        if isinstance(self._error, HeadgateError):
            return self._error
        original = find_error(str(self._error or "")) or find_error(str(error))
        if original is not None:
            return original
        if isinstance(self._error, OSError):
            with contextlib.suppress(OSError):
                return known_error(self._error)
        failure = self._error or error
        folders = f"{self.lake.checkpoint}, or Spark's folder of temporary files ({temporary_folder(self.config)}),"
        return spark_failure(str(failure) or type(failure).__name__, folders)


def rest_seconds(report: BatchReport, freshness: float, elapsed: float, now: float) -> float:
    """Return how long to wait for changes after a batch, so that rows are visible ``freshness`` seconds after commit.

    A row that was committed just after the batch was planned waits for the rest of this batch, this pause, and the next
    batch, which is expected to take as long. There is no pause while tables are read or the log has more.

    :param elapsed: seconds in which the batch was written.
    :param now: the time, in seconds since 1970 UTC, of the clock by which the batch was planned.
    """
    if report.rows or report.behind != 0:
        return 0.0
    cost = max(elapsed, now - report.planned_us / 1e6)
    return max(0.0, freshness - 2 * cost)


def _is_being_read(state: TableState) -> bool:
    """Return whether the next batches have to read rows of the table: a pause would count as time of live changes."""
    return state.state == State.SNAPSHOTTING or state.successor is not None


def source_options(
    config: PipelineConfig, lake: Lake, *, slots: int, last: LedgerRow | None = None, written_epoch: int = 0
) -> dict[str, str]:
    """Return the options of the Spark source. Secrets are passed by name, never by value.

    :param last: the newest batch of the lake.
    :param written_epoch: of the newest batch that wrote a table.
    """
    from headgate.columns import hash_mark

    source, topic = config.source, config.signals.topic(config.name)
    every_change = not {"changelog", "kafka"}.isdisjoint(config.target.mode)
    all_images = every_change or "history" in config.target.mode
    options = {
        **source.as_options(),
        **config.policies().as_options(),
        "tables": json.dumps(TablePatterns.following(source.tables).patterns),
        "conditions": json.dumps(config.conditions()),
        "control_path": lake.inbox,
        "slots": str(slots),
        "applied": last.applied.to_json() if last is not None else None,
        "epoch": str(last.epoch if last is not None else 0),
        "written_epoch": str(written_epoch),
        "mask_key_mark": hash_mark(config.policies()),
        "images": "all" if all_images else "keys",
        # Changelogs and messages need every change, also of rows that the snapshot has yet to read: chunks are merged.
        "append": json.dumps(not every_change),
        "snapshot_mode": source.snapshot_mode if source.snapshot_mode in ("initial_only", "no_data") else "initial",
        "start": source.first_position,
        "signal_topic": topic and topic.model_dump_json(exclude_none=True),
    }
    return {name: value for name, value in options.items() if value}


def read_source(config: PipelineConfig) -> TablesAsOf:
    """Return the source's tables as of GTID sets that the server has executed."""
    from headgate.spark import TablesAsOf

    policies = ("columns", "mask_key_env", "mask_key_file", *(POLICY_SETTINGS.keys() - {"json", "window", "skip"}))
    # Without "gtid", positions may not be GTIDs, and keyless tables may be written all the time.
    watermarks = {"signal-table": ("signal_table",), "lock": ("lock_hold", "lock_wait_seconds")}
    logins = (*ServerLogin.model_fields, "chunk_rows", "slots", "retry_seconds", "watermark")
    keep = (*logins, *policies, *watermarks.get(config.source.watermark, ()))
    find_hooks(config)
    lake = Lake.of(config)
    options = source_options(config, lake, slots=os.cpu_count() or 1)
    control = ControlFolder(lake.inbox) if lake.is_local else None
    return TablesAsOf({name: options[name] for name in keep if name in options}, control)
