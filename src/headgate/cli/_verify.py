"""``headgate verify``: prove that the lake holds what the source holds, while writers run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import PipelineConfig
    from headgate.lake import LedgerRow, TableResult

__all__ = ["verify"]


def verify(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    samples: Annotated[int, typer.Option("--samples", min=0, help="How many differing rows to show of a table.")] = 20,
) -> int:
    """Compare every table of the lake with the source, exactly, while writers and the pipeline go on.

    Both sides are read as of the same moment: the GTID set of the newest batch in the ledger. Exit code 1 tells that
    something differs, or that a table is stopped or waits to be read again.
    """
    from headgate.config import load_config
    from headgate.errors import ConfigError
    from headgate.lake import Lake, build_session, find_row
    from headgate.mysql import Connection
    from headgate.pipeline import connection_settings

    config = load_config(pipeline)
    if "current" not in config.target.mode:
        raise ConfigError("verify compares current tables, and target.mode has none")
    lake = Lake.at(config.target.path or "")
    if lake.is_local and not Path(lake.ledger).is_dir():  # told before Spark starts
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    Connection.open(connection_settings(config)).close()  # a wrong password, too
    spark = build_session(f"verify {config.name}", config.spark, quiet="spark.log.level" not in config.spark)
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
    from headgate.errors import HeadgateError
    from headgate.lake import Lake, find_row, verify_table
    from headgate.pipeline import find_error, read_source

    lake = Lake.at(config.target.path or "")
    while True:
        try:
            return verify_table(spark, lake, row, table, read_source(spark, config), samples=samples), row
        except Exception as error:
            cause = error if isinstance(error, HeadgateError) else find_error(str(error))
            newer = find_row(spark, lake)
            if newer.epoch == row.epoch:
                if cause is None:
                    raise
                raise cause from error
            row = newer


def _print(result: TableResult, gtid: str) -> None:
    write = sys.stdout.write
    if result.state != "live":
        write(f"{result.table}: {result.state}: {result.remark}\n")
        return
    total = result.equal + result.different + result.only_source
    if not result.differences:
        write(f"{result.table}: {total:,} rows, equal as of {gtid}\n")
        return
    write(
        f"{result.table}: {total:,} rows as of {gtid}: {result.only_source:,} only in source, "
        f"{result.only_target:,} only in target, {result.different:,} different\n"
    )
    for sample in result.samples:
        key = ", ".join(f"{name}={value!r}" for name, value in sample.key.items())
        values = "; ".join(f"{name}: source {a!r}, target {b!r}" for name, (a, b) in sample.columns.items())
        copies = (
            "" if sample.copies is None else f" ({sample.copies[0]} in the source, {sample.copies[1]} in the target)"
        )
        write(f"  {sample.kind}: {key}{': ' if values else ''}{values}{copies}\n")


def _conclude(results: list[TableResult]) -> int:
    compared = [result for result in results if result.state == "live"]
    wrong = [result for result in compared if result.differences]
    broken = [result for result in results if result.state in ("stale", "stopped")]
    rows = sum(result.equal for result in compared)
    if wrong or broken:
        sys.stdout.write(f"{len(wrong)} of {len(compared)} tables differ, {len(broken)} are stopped or stale\n")
        return 1
    sys.stdout.write(f"all {len(compared)} tables are equal: {rows:,} rows\n")
    return 0
