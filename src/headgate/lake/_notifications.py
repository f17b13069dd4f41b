"""Notifications in a Delta table: each once, because a commit carries its batch's epoch as transaction version.

Delta skips a commit whose version is not above the last one of the same application (Delta Lake's documentation,
"Idempotent table writes in foreachBatch"), so a batch that is sent again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.control import Notification
from headgate.lake._append import append_rows
from headgate.lake._delta import DeltaPath, spark_schema
from headgate.lake._layout import Lake
from headgate.lake._marker import Marker
from headgate.lake._properties import PIPELINE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableChannel"]

_NAME = "_headgate.notifications"
_DDL = (
    "epoch bigint, event_id string, id string, aggregate_type string, type string, "
    "additional_data map<string, string>, timestamp timestamp"
)


class TableChannel:
    """Notification channel ``table``: rows of ``<path>/_headgate/notifications``."""

    name = "table"

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: str) -> None:
        self._delta = DeltaPath(spark, lake.notifications)
        self._pipeline = pipeline
        self._exists = False

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Append a batch's notifications.

        :raises TargetError: the path holds something else.
        """
        if not self._exists and not self._delta.check_ours(self._pipeline, _NAME):
            self._delta.create(spark_schema(_DDL), {PIPELINE: self._pipeline, TABLE: _NAME})
        self._exists = True
        rows = [
            (epoch, one.event_id, one.id, one.aggregate_type, one.type, dict(one.additional_data), _time(one.timestamp))
            for one in notifications
        ]
        append_rows(self._delta, rows, _DDL, Marker(f"headgate/{self._pipeline}/{_NAME}", epoch))

    def close(self) -> None:
        """Do nothing: the caller owns the session."""


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
