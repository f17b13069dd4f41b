"""How far a batch is and what it did, for people to look at."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.carrier import SINK_SIGNALS, Batch, Commits
from headgate.control import Notification
from headgate.lake import TableState, Way

__all__ = ["BatchReport", "Progress", "log_signals"]

log = logging.getLogger("headgate")


class Progress:
    """Told how far a batch is, for people to see. The methods may be called from any thread and never fail."""

    def applies(self, batch: Batch) -> None:
        """The batch was read and is applied from now on."""

    def writes(self, tables: int) -> None:
        """So many tables are written from now on."""

    def wrote(self, table: str) -> None:
        """One of them is written."""


@dataclass(frozen=True)
class BatchReport:
    """What a batch did, for people to look at."""

    batch_id: int
    epoch: int
    gtid: str
    tables: dict[str, TableState]
    images: dict[str, int] = field(default_factory=dict)  # log images of this batch
    rows: dict[str, int] = field(default_factory=dict)  # snapshot rows of this batch
    commits: dict[str, list[Commits]] = field(default_factory=dict)  # when the changes were made at the source
    committed_us: int | None = None  # when the ledger had the batch, µs since 1970 UTC; None: before this run
    planned_us: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    replayed: bool = False
    start: str = ""  # the batch holds what is in gtid and not in here
    behind: int = 0  # transactions that the server had executed at planning and that are not in gtid
    notifications: tuple[Notification, ...] = ()  # of a batch that is handed back, too
    changes: dict[str, int] = field(default_factory=dict)  # changes of this batch: an update may have two images
    ways: Mapping[str, Mapping[Way, str]] = field(default_factory=dict)
    """How the batch came into each current table that it brought rows to; for a MERGE also why."""

    @classmethod
    def of(
        cls,
        batch: Batch,
        batch_id: int,
        tables: dict[str, TableState],
        warnings: Sequence[str] = (),
        notifications: tuple[Notification, ...] = (),
        *,
        replayed: bool = False,
    ) -> BatchReport:
        """The report of a batch, but for how long it took."""
        header = batch.header
        report = cls(
            batch_id,
            header.epoch,
            header.gtid,
            tables,
            planned_us=header.planned_us,
            warnings=tuple(warnings),
            replayed=replayed,
            start=header.start,
            behind=header.behind,
            notifications=notifications,
        )
        for table, parts in batch.parts.items():
            for part in parts:
                counts = report.rows if part.kind == "chunk" else report.images
                counts[table] = counts.get(table, 0) + part.images
                if part.kind == "rows":
                    report.changes[table] = report.changes.get(table, 0) + part.changes
                    report.commits.setdefault(table, []).extend(part.commits)
        return report


def log_signals(batch: Batch) -> None:
    """Log what came of users' signals."""
    skipped = batch.header.skipped
    if skipped is not None:
        keys = ", ".join(skipped.keys)
        log.info("messages of the topic with signals that are for others: %d (%s)", skipped.count, keys)
    for action in (found for found in batch.header.actions if isinstance(found, dict)):
        if action.get("error"):
            log.warning("signal %s (%s): %s", action.get("id"), action.get("type"), action["error"])
        elif action.get("message"):
            log.info("signal %s: %s", action.get("id"), action["message"])
        elif action.get("type") not in SINK_SIGNALS:
            tables = ", ".join(action.get("tables") or ()) or "nothing to do"
            log.info("signal %s: %s: %s", action.get("id"), action.get("type"), tables)
