"""A commit of given actions, once."""

from __future__ import annotations

import json
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
    objects = [json.loads(action) if isinstance(action, str) else action for action in actions]
    planned = CommitPlan(read, objects, operation, parameters, blind)
    commit_plan(TableLog(folder), lambda: planned, tries=1)
