"""``headgate verify``: prove that the lake holds what the source holds, while writers run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headgate.cli._common import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import PipelineConfig
    from headgate.lake import Lake, LedgerRow, TableResult

__all__ = ["verify"]

_TRIES: Final = 10
"""Ledger rows as of which a table is tried."""
_NEXT_BATCH_SECONDS: Final = 60.0
"""How long a running pipeline may take for its next batch."""


def verify(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    samples: Annotated[int, typer.Option("--samples", min=0, help="How many differing rows to show of a table.")] = 20,
) -> int:
    """Compare every table of the lake with the source, exactly, while writers and the pipeline go on.

    Both sides are read as of the same moment: the GTID set of the newest batch in the ledger. Exit code 1 tells that
    something differs, or that a table is stopped or waits to be read again.

    Beside sessions with partial row images (binlog_row_image MINIMAL or NOBLOB) some rows cannot be compared as of that
    set, because they have changed since and nothing tells what they were. They are compared as of the batches that the
    pipeline commits meanwhile, so let it run. Rows that change too often for that are named, and end with exit code 1.
    """
    from headgate.config import load_config
    from headgate.errors import ConfigError
    from headgate.lake import Lake, find_row
    from headgate.mysql import Connection
    from headgate.pipeline import connection_settings

    config = load_config(pipeline)
    if "current" not in config.target.mode:
        raise ConfigError("verify compares current tables, and target.mode has none")
    lake = Lake.at(config.target.path or "")
    if lake.is_local and not Path(lake.ledger).is_dir():  # told before Spark starts
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    Connection.open(connection_settings(config)).close()  # a wrong password, too
    spark = start_spark(f"verify {config.name}", config.spark, quiet="spark.log.level" not in config.spark)
    try:
        row = find_row(spark, lake)
        results = []
        for table in sorted(row.tables):
            result, row = _verified(spark, config, row, table, samples)
            _print(result, row.gtid)
            results.append(result)
    finally:
        spark.stop()
    return _conclude(results)


def _verified(
    spark: SparkSession, config: PipelineConfig, row: LedgerRow, table: str, samples: int
) -> tuple[TableResult, LedgerRow]:
    """The result for a table, and the ledger row it holds for; a newer one where ``row`` is too old to be read."""
    from headgate.errors import ChunkRetryError, HeadgateError, SchemaChangedError
    from headgate.lake import Lake, TableResult, verify_table
    from headgate.pipeline import find_error, read_source

    lake = Lake.at(config.target.path or "")

    def newer(row: LedgerRow) -> LedgerRow | None:
        return _newer_row(spark, lake, row)

    for _ in range(_TRIES):
        try:
            return verify_table(spark, lake, row, table, read_source(spark, config), samples=samples, newer=newer), row
        except Exception as error:
            cause = error if isinstance(error, HeadgateError) else find_error(str(error))
            passing = isinstance(cause, (ChunkRetryError, SchemaChangedError))
            found = _newer_row(spark, lake, row, wait=passing)
            if found is not None:
                row = found
                continue
            if cause is None:
                raise
            if isinstance(cause, ChunkRetryError):
                return TableResult(table, "undecided", remark=cause.message), row
            raise cause from error
    return TableResult(table, "undecided", remark=f"it was disturbed at each of {_TRIES} tries"), row


def _newer_row(spark: SparkSession, lake: Lake, row: LedgerRow, *, wait: bool = True) -> LedgerRow | None:
    """The newest ledger row, if it is newer than this one; may wait for it while the pipeline runs."""
    from headgate.lake import Inbox, find_row, read_status

    deadline = time.monotonic() + _NEXT_BATCH_SECONDS
    while True:
        status = read_status(Inbox(lake.inbox))
        alive = wait and status is not None and status.is_alive()
        found = find_row(spark, lake)
        if found.epoch > row.epoch:
            return found
        if not alive or time.monotonic() > deadline:
            return None
        time.sleep(1)


def _print(result: TableResult, gtid: str) -> None:
    write = sys.stdout.write
    if result.state != "live":
        write(f"{result.table}: {result.state}: {result.remark}\n")
        return
    total = result.equal + result.different + result.only_source
    later = f" ({result.later:,} of them as of {result.later_gtid} or before)" if result.later else ""
    if not result.differences:
        write(f"{result.table}: {total:,} rows, equal as of {gtid}{later}\n")
    else:
        write(
            f"{result.table}: {total:,} rows as of {gtid}{later}: {result.only_source:,} only in source, "
            f"{result.only_target:,} only in target, {result.different:,} different\n"
        )
    for sample in result.samples:
        values = "; ".join(f"{name}: source {a!r}, target {b!r}" for name, (a, b) in sample.columns.items())
        copies = (
            "" if sample.copies is None else f" ({sample.copies[0]} in the source, {sample.copies[1]} in the target)"
        )
        write(f"  {sample.kind}: {_text(sample.key)}{': ' if values else ''}{values}{copies}\n")
    if result.undecided:
        reason = result.remark or "they changed, with partial row images, each time they were compared"
        write(f"  {result.undecided:,} more rows could not be compared: {reason}\n")
        for key in result.undecided_keys:
            write(f"  undecided: {_text(key)}\n")


def _text(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items())


def _conclude(results: list[TableResult]) -> int:
    compared = [result for result in results if result.state == "live"]
    wrong = [result for result in compared if result.differences]
    broken = [result for result in results if result.state in ("stale", "stopped")]
    open_ = [result for result in results if result.undecided or result.state == "undecided"]
    rows = sum(result.equal for result in compared)
    if wrong or broken:
        sys.stdout.write(f"{len(wrong)} of {len(compared)} tables differ, {len(broken)} are stopped or stale\n")
    if open_:
        sys.stdout.write(
            f"{len(open_)} tables could not be compared wholly: let the pipeline run, and verify again when they "
            "change less, or with binlog_row_image=FULL\n"
        )
    if wrong or broken or open_:
        return 1
    sys.stdout.write(f"all {len(compared)} tables are equal: {rows:,} rows\n")
    return 0
