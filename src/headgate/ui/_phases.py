"""The phases of a batch as a bar: of the one under way its steps, of those in the ledger how long each phase took.

The page has the same in words next to each bar, so no figure is only in a picture or a colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headgate.status import BATCH_PHASES, Activity, BatchStatus, counted, duration

__all__ = ["BAR", "PhaseTime", "Step", "phase_bar", "phase_steps", "phases_text"]

BAR: Final = 100.0
"""Units of the longest bar."""


@dataclass(frozen=True)
class Step:
    """A phase of the batch under way."""

    phase: str
    state: Literal["done", "now", "next"]
    text: str = ""
    """How long it took, or how much of it is done; empty: not known."""
    done: int = 0
    number: int = 0
    """``done`` of so many parts are done; 0: it has no parts, or nobody has counted them."""


@dataclass(frozen=True)
class PhaseTime:
    """The time of a phase in a bar."""

    phase: str
    x: float
    width: float


def phase_steps(activity: Activity) -> list[Step]:
    """Return the phases of the batch under way, in order; empty if there is none."""
    if activity.phase not in BATCH_PHASES:
        return []
    now = BATCH_PHASES.index(activity.phase)
    steps = []
    for number, phase in enumerate(BATCH_PHASES):
        if number == now:
            steps.append(_step_now(activity))
        elif number < now:
            seconds = activity.phases.get(phase)
            steps.append(Step(phase, "done", "" if seconds is None else duration(seconds)))
        else:
            steps.append(Step(phase, "next"))
    return steps


def _step_now(activity: Activity) -> Step:
    parts = {
        "reading": (activity.tasks_done, activity.tasks, "task"),
        "applying": (activity.tables_written, activity.tables_to_write, "table"),
    }
    done, number, thing = parts.get(activity.phase, (None, None, ""))
    if not number:
        return Step(activity.phase, "now")
    return Step(activity.phase, "now", f"{done or 0:,} of {counted(number, thing)}", done or 0, number)


def phase_bar(batch: BatchStatus, batches: Sequence[BatchStatus]) -> list[PhaseTime]:
    """Return the bar of a batch, as long as its phases took next to those of the batch that took longest."""
    longest = max((sum(one.phases.values()) for one in batches), default=0.0)
    segments, x = [], 0.0
    for phase in BATCH_PHASES:
        width = BAR * batch.phases.get(phase, 0.0) / longest if longest else 0.0
        if width:
            segments.append(PhaseTime(phase, round(x, 2), round(width, 2)))
        x += width
    return segments


def phases_text(batch: BatchStatus) -> str:
    """Return ``planning 0.1 s, reading 2.3 s, applying 0.4 s, committing 0.1 s``; empty while unknown."""
    return ", ".join(f"{phase} {duration(batch.phases[phase])}" for phase in BATCH_PHASES if phase in batch.phases)
