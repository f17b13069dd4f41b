"""A pipeline's status as its run would write it, for the tests of the page."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from headgate.carrier import ControlFolder
from headgate.status import Status, pid_namespace

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def put(inbox: ControlFolder, name: str = "shop", **more: Any) -> Status:
    """Write it, and give it back; ``more`` replaces what it says."""
    now = time.time_ns() // 1000
    value: dict[str, Any] = {
        "v": 2, "pipeline": name, "pid": os.getpid(), "host": platform.node(), "pid_namespace": pid_namespace(),
        "started_us": now, "updated_us": now, "state": "running", "batches": 12,
        "batch": {"batch_id": 11, "epoch": 9, "gtid": f"{UUID}:1-90211", "committed_us": now, "rows": 5000,
                  "changes": 7, "seconds": 2.5},
        "lag": {"seconds": 1.5, "transactions": 312}, "changes_per_second": 41.2, "rows_per_second": 25000.0,
        "freshness": {"p50": 0.84, "p99": 2.1, "changes": 4321, "seconds": 3900.5,
                      "buckets": [[0.5, 400], [1.0, 3000], [5.0, 4300]]},
        "writes": {"append": 8, "upsert": 40},
        "history": history(now),
        "files": {"data": 30, "vectors": 3, "log": 90, "bytes": 2_500_000},
        "tables": {
            "shop.orders": {"state": "live", "version": 4, "changes": 4321, "rows": 1000,
                            "files": {"data": 12, "vectors": 3, "log": 40, "bytes": 1_250_000}},
            "shop.notes": {"state": "live", "version": 2, "changes": 1},
            "shop.items": {
                "state": "snapshotting", "rows_read": 750000, "chunks_done": 3, "chunks_estimate": 8,
                "rows_estimate": 2000000,
            },
            "shop.old": {"state": "stopped", "reason": "ALTER TABLE old"},
            "shop.gone": {"state": "dropped", "reason": "DROP TABLE gone"},
        },
        "recent": [
            {"batch_id": 11 - i, "epoch": 9 - i, "gtid": f"{UUID}:1-{90211 - i}", "committed_us": now,
             "transactions": 5, "rows": 0, "changes": 7, "tables": 1, "seconds": 0.5}
            for i in range(3)
        ],
        "signals": [
            {"id": "s-1", "type": "execute-snapshot", "state": "partly", "reason": "no table x",
             "tables": ["shop.notes"], "sent_us": now, "at_us": now},
        ],
        "warnings": [{"at_us": now, "level": "warning", "text": "shop.old is stopped: ALTER TABLE old"}],
    }  # fmt: skip
    status = Status.model_validate({**value, **more})
    inbox.write("status.json", status.to_dict())
    return status


def history(now_us: int, points: int = 120) -> dict[str, Any]:
    """Lag and rate until now, with a gap in the middle, where the pipeline did not run."""
    at = [number for number in range(points) if not 50 <= number < 60]
    return {
        "at_us": [now_us - 5_000_000 * (points - 1 - number) for number in at],
        "lag_seconds": [1.5 + number % 7 * 0.4 + (9.0 if number in (80, 81) else 0.0) for number in at],
        "changes_per_second": [41.2 * (1 + number % 30 / 20) for number in at],
    }


def put_everything(inbox: ControlFolder, name: str) -> Status:
    """Write a status with all that the page can show."""
    now = time.time_ns() // 1000
    phases = {"planning": 0.2, "reading": 1.2, "applying": 0.6, "committing": 0.05}
    batches = [
        {"batch_id": 11 - i, "epoch": 9 - i, "gtid": f"{UUID}:1-{90211 - i}", "committed_us": now, "transactions": 5,
         "rows": 123456, "changes": 7, "tables": 1, "seconds": 1.85 / (i + 1),
         "phases": {phase: seconds / (i + 1) for phase, seconds in phases.items()}}
        for i in range(3)
    ]  # fmt: skip
    states = ("sent", "taken", "running", "done", "partly", "stopped", "refused")
    signals = [
        {"id": f"s-{state}", "type": "execute-snapshot", "state": state, "reason": "no table x", "at_us": now,
         "tables": ["shop.notes"]} for state in states
    ]  # fmt: skip
    reasons = {"stopped": "ALTER TABLE old", "stale": "a failover", "excluded": "a helper table", "dropped": "DROP"}
    tables: dict[str, Any] = {f"shop.{state}": {"state": state, "reason": reason} for state, reason in reasons.items()}
    tables["a_rather_long_database_name.and_a_table_with_a_long_name_as_well"] = {"state": "inexact", "rows": 10**10}
    tables["shop.items"] = {"state": "snapshotting", "rows_read": 750000, "chunks_done": 3, "chunks_estimate": 8,
                            "rows_estimate": 2000000, "files": {"data": 12, "log": 40, "bytes": 1_250_000}}  # fmt: skip
    levels = ("warning", "error")
    return put(
        inbox, name, activity=applying(), batch=batches[0], recent=batches, signals=signals, tables=tables,
        error="cannot connect to MySQL", index={"tables_building": 2, "bytes_on_disk": 10**8},
        kafka={"messages": 1250, "bytes": 10**6}, requests={"seconds": 60, "put": 100, "get": 200},
        snapshot={"tables": 1, "rows": 750000, "rows_estimate": 2000000, "seconds_left": 30.0},
        warnings=[{"at_us": now, "level": level, "text": "shop.old is stopped: ALTER TABLE old"} for level in levels],
    )  # fmt: skip


def applying(written: int = 1) -> dict[str, Any]:
    """The batch that is being written, as ``put(activity=…)`` takes it."""
    return {
        "phase": "applying", "since_us": time.time_ns() // 1000 - 2_000_000, "batch_id": 12, "rows": 500000,
        "changes": 3, "tables_to_write": 4, "tables_written": written, "phases": {"planning": 0.2, "reading": 3.3},
    }  # fmt: skip


def reading(tasks_done: int = 1) -> dict[str, Any]:
    """The batch that is being read, as ``put(activity=…)`` takes it."""
    table = {"first": 4, "last": 5, "chunks_estimate": 8, "rows_estimate": 500000,
             "table_rows_estimate": 2000000}  # fmt: skip
    return {
        "phase": "reading", "since_us": time.time_ns() // 1000 - 4_000_000, "batch_id": 12,
        "tables": {"shop.items": table}, "rows_estimate": 500000, "tasks": 4,
        "tasks_done": tasks_done, "seconds_left": 7.0, "transactions": 3,
    }  # fmt: skip
