"""A lake as a Dagster asset: ``headgate run --once`` brings it up to date, every quarter of an hour.

``dagster dev -f headgate_shop.py`` tries it; change the constants first. headgate is installed beside Dagster, in a
virtualenv of its own. MySQL's password is the variable HEADGATE_PASSWORD of the process that runs the asset.

The materialization's metadata are the lake's position and figures. It is tried again only if the error may pass by
itself: never after a wrong file (exit code 2), nor after a run whose status has `transient`: false. The asset check
compares every row with the source.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

HEADGATE = os.environ.get("HEADGATE_PROGRAM", "/opt/headgate/bin/headgate")
PIPELINE = os.environ.get("HEADGATE_PIPELINE", "/etc/headgate/shop.toml")

DIFFERENT, MISUSED, FAILED = 1, 2, 3
"""Exit codes: a difference; a wrong file or command line; a source or target that failed."""


def headgate(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, *words: str) -> tuple[int, str]:
    """Run a command of headgate, with its lines in the run's log. Return its exit code and its last line.

    If Dagster ends the run, headgate ends after its current batch. A second signal would end it at once, so it has a
    session of its own, which Ctrl-C in a terminal does not reach.
    """
    last = ""
    process = subprocess.Popen(
        [HEADGATE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    with process:
        try:
            for line in process.stdout or ():
                last = line.strip()
                context.log.info(last)
            return process.wait(), last
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate()


def status() -> dict[str, Any]:
    """Return the run's status; empty if it has none."""
    command = [HEADGATE, "status", PIPELINE, "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return dict(json.loads(printed)) if printed.startswith("{") else {}


def failure(words: str, code: int, last: str, seen: Mapping[str, Any]) -> dg.Failure:
    """Return the error to raise, which says whether a retry may help.

    :param seen: the status that this process wrote; empty if it wrote none.
    """
    is_lasting = code == MISUSED or (code == FAILED and seen.get("transient") is False)
    return dg.Failure(f"headgate {words} ended with exit code {code}: {last}", allow_retries=not is_lasting)


def metadata(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person looks for first, from the status."""
    batch, tables = seen.get("batch") or {}, seen.get("tables") or {}
    states = [{"table": name, "state": table["state"], "version": table["version"]} for name, table in tables.items()]
    listed = {"tables": dg.MetadataValue.table([dg.TableRecord(state) for state in states])} if states else {}
    return {
        "gtid": batch.get("gtid", ""),
        "batch": batch.get("batch_id", 0),
        "as_of": dg.MetadataValue.timestamp((seen.get("as_of_us") or 0) / 1e6),
        "rows read": sum(table["rows"] for table in tables.values()),
        "changes": sum(table["changes"] for table in tables.values()),
        **listed,
    }


@dg.asset(
    kinds={"mysql", "deltalake"},
    pool="headgate_shop",  # with a limit of 1: one driver writes a lake
    retry_policy=dg.RetryPolicy(max_retries=5, delay=60, backoff=dg.Backoff.EXPONENTIAL),
)
def shop_lake(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Delta tables of the database ``shop``, as of one GTID set."""
    started_us = time.time_ns() // 1000
    code, last = headgate(context, "run", PIPELINE, "--once")
    seen = status()
    if code:
        # If the run failed before it wrote a status, this is an earlier run's.
        has_status = seen.get("started_us", 0) >= started_us
        raise failure("run", code, last, seen if has_status else {})
    return dg.MaterializeResult(metadata=metadata(seen))


@dg.asset_check(asset=shop_lake)
def equal_to_the_source(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Every row of each live table is that of MySQL."""
    code, last = headgate(context, "verify", PIPELINE)
    if code not in (0, DIFFERENT):
        raise failure("verify", code, last, {})  # only a run writes a status
    return dg.AssetCheckResult(passed=code == 0, description=last)


run_job = dg.define_asset_job("run_shop", selection=dg.AssetSelection.assets(shop_lake).without_checks())
check_job = dg.define_asset_job("verify_shop", selection=dg.AssetSelection.checks(equal_to_the_source))

defs = dg.Definitions(
    assets=[shop_lake],
    asset_checks=[equal_to_the_source],
    jobs=[run_job, check_job],
    schedules=[
        dg.ScheduleDefinition(job=run_job, cron_schedule="*/15 * * * *"),
        dg.ScheduleDefinition(job=check_job, cron_schedule="30 3 * * *"),
    ],
)
