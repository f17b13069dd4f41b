"""Everything that makes a table differ from its source without images in the log that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.carrier import Batch
from headgate.decide import Divergence

__all__ = ["Detector", "join"]

Detector = Callable[[Batch], Mapping[str, Divergence]]
"""Batch → the tables that differ, and why."""


def join(*detectors: Detector) -> Detector:
    """Return a detector that asks all of these about each batch, and tells the most serious causes of each table."""

    def unseen(batch: Batch) -> Mapping[str, Divergence]:
        merged: dict[str, Divergence] = {}
        for detector in detectors:
            for table, cause in detector(batch).items():
                merged[table] = _worse(merged[table], cause) if table in merged else cause
        return merged

    return unseen


def _worse(one: Divergence, other: Divergence) -> Divergence:
    """Return the more serious cause; both, if they make the table inexact."""
    if one.accepted and other.accepted and one.over == other.over:
        return replace(one, reason=f"{one.reason}; {other.reason}")
    return min(one, other, key=_severity)


def _severity(cause: Divergence) -> tuple[bool, bool, bool]:
    """Return a sort key: what leaves a table out first, then what stops it, what reads it again, makes it inexact."""
    return not cause.excluded, cause.accepted, cause.over
