"""Tables that another program alters so that headgate cannot write them, and back, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headgate.delta import TableLog
from tests.delta.commits import commit

__all__ = ["remove_requirement", "require_more"]

_FEATURE = "rowTracking"


def require_more(folder: Path | str) -> None:
    """Require rowTracking of the writers of a table."""
    _set(folder, lambda features: sorted({*features, _FEATURE}))


def remove_requirement(folder: Path | str) -> None:
    """Undo :func:`require_more`."""
    _set(folder, lambda features: [one for one in features if one != _FEATURE])


def _set(folder: Path | str, change: Any) -> None:
    table = TableLog(str(folder)).refresh()
    features = table.features or ()
    readers = [one for one in features if one not in ("appendOnly", "invariants", _FEATURE)]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": change(features),
    }
    commit(str(folder), table, [{"protocol": protocol}], "UPGRADE PROTOCOL", {}, blind=False)
