"""A DAG that brings a lake up to date every quarter of an hour: ``headgate run --once`` as a task (Airflow 3).

Copy the file into the DAG folder, and change the constants. headgate is installed beside Airflow, in a virtualenv of
its own, because the two need different versions of some packages. MySQL's password is that of the connection
``headgate_shop``.

The asset ``headgate_shop`` is updated after each success, with the lake's position, so other DAGs can be scheduled by
it. A task is tried again only if the error may pass by itself: never after a wrong file (exit code 2), nor after a run
whose status has `transient`: false.

If Airflow ends a task, headgate ends after its current batch. It has a session of its own, because Airflow kills the
task's processes after seconds, which may be before the batch has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, BaseOperator, Connection, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

HEADGATE = os.environ.get("HEADGATE_PROGRAM", "/opt/headgate/bin/headgate")
PIPELINE = os.environ.get("HEADGATE_PIPELINE", "/etc/headgate/shop.toml")
CONNECTION = "headgate_shop"
LAKE = Asset("headgate_shop")

MISUSED, FAILED = 2, 3
"""Exit codes: a wrong file or command line; a source or target that failed."""


class HeadgateOperator(BaseOperator):
    """Run a command of headgate on a pipeline file. Its lines are the task's log.

    :param command: such as ``run`` or ``verify``.
    :param options: what follows the file, such as ``--once``.
    """

    template_fields = ("options",)

    def __init__(self, *, command: str, options: list[str] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.command = command
        self.options = options or []
        self._process: subprocess.Popen[str] | None = None
        self._has_signalled = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the lake's position.

        :raises AirflowFailException: a retry would fail likewise.
        :raises AirflowException: it failed, or Airflow ended it.
        """
        started_us = time.time_ns() // 1000
        code, last = self._run()
        if self._has_signalled:  # some commands then end with exit code 0
            raise AirflowException(f"headgate {self.command} was ended before it was done: {last}")
        status = self._status()
        if code:
            # Only a run writes a status. If this one failed before that, the status is an earlier run's.
            has_status = self.command == "run" and status.get("started_us", 0) >= started_us
            is_lasting = code == MISUSED or (code == FAILED and has_status and status.get("transient") is False)
            kind = AirflowFailException if is_lasting else AirflowException
            raise kind(f"headgate {self.command} ended with exit code {code}: {last}")
        batch = status.get("batch") or {}
        position = {"gtid": batch.get("gtid"), "batch": batch.get("batch_id"), "as_of_us": status.get("as_of_us")}
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = position
        return position

    def on_kill(self) -> None:
        """Make headgate end after its current batch, and do not wait: this runs within the handler of a signal.

        Further calls do nothing, because a second SIGTERM ends headgate at once.
        """
        if self._process is not None and not self._has_signalled:
            self._has_signalled = True
            self._process.terminate()

    def _run(self) -> tuple[int, str]:
        last = ""
        command = [HEADGATE, self.command, PIPELINE, *self.options]
        self._has_signalled = False
        self._process = subprocess.Popen(
            command,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Airflow signals the task's process group
        )
        with self._process:
            try:
                for line in self._process.stdout or ():
                    last = line.strip()
                    self.log.info("%s", last)
                return self._process.wait(), last
            finally:
                if self._process.poll() is None:  # a time limit of the task has ended the loop
                    self.on_kill()
                    self._process.communicate()

    def _status(self) -> dict[str, Any]:
        """Return the run's status; empty if it has none."""
        command = [HEADGATE, "status", PIPELINE, "--json"]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
        status: dict[str, Any] = json.loads(printed) if printed.startswith("{") else {}
        return status


def _environment() -> dict[str, str]:
    return {**os.environ, "HEADGATE_PASSWORD": Connection.get(CONNECTION).password or ""}


RETRIES = {"retries": 5, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True}

# One run at a time: one driver writes a lake. If it takes longer than the interval, the next one takes all that came.
with DAG(
    "headgate_shop",
    description="MySQL to Delta tables",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
    tags=["headgate"],
) as shop:
    HeadgateOperator(task_id="run", command="run", options=["--once"], outlets=[LAKE])

with DAG(
    "headgate_shop_daily",
    description="Remove old files, fold small ones, compare every row with the source",
    schedule="30 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
    tags=["headgate"],
) as daily:
    maintain = HeadgateOperator(task_id="maintain", command="maintain")
    # A difference (exit code 1) is a finding, which another look does not change.
    maintain >> HeadgateOperator(task_id="verify", command="verify", retries=0)
