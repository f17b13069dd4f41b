"""A commit of given actions, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.delta import CommitPlan, Snapshot, TableLog
from headgate.delta import commit as commit_plan

__all__ = ["commit"]


def commit(
    folder: str,
    read: Snapshot,
    actions: Sequence[Mapping[str, Any] | str],
    operation: str,
    parameters: Mapping[str, str],
    *,
    blind: bool,
) -> None:
    planned = CommitPlan(read, actions, operation, parameters, blind)
    commit_plan(TableLog(folder), lambda: planned, tries=1)
