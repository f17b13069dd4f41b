"""Progress and report of a batch, for display."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.carrier import SINK_SIGNALS, Batch, Commits
from headgate.control import Notification, SignalAnswer
from headgate.lake import MergedState, TableState, WriteMethod

__all__ = ["BatchReport", "Progress", "log_signals"]

log = logging.getLogger("headgate")


_EFFECTS: Final = {"pause-snapshot": "reading tables is paused", "resume-snapshot": "reading tables is not paused"}
"""Effects of signals that name no tables."""


class Progress:
    """Receiver of a batch's progress, for display. The methods may be called from any thread and never fail."""

    def applies(self, batch: Batch) -> None:
        """Note that the batch was read and is now applied."""

    def writes(self, tables: int) -> None:
        """Note that writing of this many tables begins."""

    def wrote(self, table: str) -> None:
        """Note that one of them is written."""

    def commits(self) -> None:
        """Note that all tables are written: messages, histories and the ledger's row remain."""


@dataclass(frozen=True)
class BatchReport:
    """Summary of a batch, for display."""

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
    start: str = ""  # the batch is gtid without this set
    behind: int | None = 0  # transactions not in gtid that the server had executed at planning, if it counts them
    notifications: tuple[Notification, ...] = ()  # also for a batch that the ledger had
    changes: dict[str, int] = field(default_factory=dict)  # changes of this batch: an update may have two images
    write_methods: Mapping[str, frozenset[WriteMethod]] = field(default_factory=dict)
    """How the batch's rows were written to each current table."""
    merged: tuple[MergedState, ...] = ()
    """The merged tables after the batch."""
    paused: bool = False  # a signal has paused table snapshots
    answers: tuple[SignalAnswer, ...] = ()
    """What became of users' signals, newest first, also of earlier batches."""

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
        """Return the report of a batch, without ``committed_us``, ``seconds`` and ``write_methods``."""
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
            paused=header.paused,
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
    """Log the results of users' signals."""
    for action in (entry for entry in batch.header.actions if isinstance(entry, dict)):
        if action.get("error"):
            has_effect = {*(action.get("tables") or ())} - {*(action.get("refused") or ())}
            refused = "refused in part" if has_effect else "refused"
            log.warning("signal %s (%s) %s: %s", action.get("id"), action.get("type"), refused, action["error"])
        elif action.get("message"):
            log.info("signal %s: %s", action.get("id"), action["message"])
        elif action.get("type") not in SINK_SIGNALS:
            kind = str(action.get("type"))
            effect = _EFFECTS.get(kind) or ", ".join(action.get("tables") or ()) or "nothing to do"
            log.info("signal %s: %s: %s", action.get("id"), kind, effect)
