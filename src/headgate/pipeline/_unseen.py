"""Everything that makes a table differ from its source without images in the log that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.sinks import Batch, Unseen

__all__ = ["Detector", "join"]

Detector = Callable[[Batch], Mapping[str, Unseen]]
"""Batch → the tables that differ, and why."""


def join(*detectors: Detector) -> Detector:
    """Return a detector that asks all of these about each batch, and tells the most serious cause of each table."""

    def unseen(batch: Batch) -> Mapping[str, Unseen]:
        merged: dict[str, Unseen] = {}
        for detector in detectors:
            for table, cause in detector(batch).items():
                merged[table] = min(merged.get(table, cause), cause, key=_severity)
        return merged

    return unseen


def _severity(cause: Unseen) -> tuple[bool, bool]:
    """Return a sort key: what stops a table first, then what reads it again, then what makes it inexact."""
    return cause.accepted, cause.over
