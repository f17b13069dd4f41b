"""A pipeline's status as its run would write it, for the tests of the page."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from headgate.carrier import ControlFolder
from headgate.lake import Status, pid_namespace

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
        "tables": {
            "shop.orders": {"state": "live", "version": 4, "changes": 4321, "rows": 1000},
            "shop.items": {
                "state": "snapshotting", "rows_read": 750000, "chunks_done": 3, "chunks_estimate": 8,
                "rows_estimate": 2000000,
            },
            "shop.old": {"state": "stopped", "reason": "DROP TABLE old"},
        },
        "recent": [
            {"batch_id": 11 - i, "epoch": 9 - i, "gtid": f"{UUID}:1-{90211 - i}", "committed_us": now,
             "transactions": 5, "rows": 0, "changes": 7, "tables": 1, "seconds": 0.5}
            for i in range(3)
        ],
        "warnings": [{"at_us": now, "level": "warning", "text": "shop.old is stopped: DROP TABLE old"}],
    }  # fmt: skip
    status = Status.model_validate({**value, **more})
    inbox.write("status.json", status.to_dict())
    return status


def reading(rows: int = 131072) -> dict[str, Any]:
    """The batch that is being read, as ``put(activity=…)`` takes it."""
    table = {"first": 4, "last": 5, "chunks_estimate": 8, "rows": rows, "rows_estimate": 500000,
             "table_rows_estimate": 2000000}  # fmt: skip
    return {
        "phase": "reading", "since_us": time.time_ns() // 1000 - 4_000_000, "batch_id": 12,
        "tables": {"shop.items": table}, "rows": rows, "rows_estimate": 500000, "rows_per_second": 52428.8,
        "seconds_left": 7.0, "changes": 12, "transactions": 3,
    }  # fmt: skip
