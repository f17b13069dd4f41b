"""How a batch is written into a current table, and what excludes the fast ways: the one list of reasons.

Without a MERGE a batch takes tenths of a second. Tables that require more of their writers than headgate supports, and
changes that need what the table holds, go through MERGE, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.delta import CODECS, TableLog, unsupported_requirements
from headgate.lake._layout import Lake
from headgate.lake._places import Place

if TYPE_CHECKING:
    from headgate.delta import Snapshot

__all__ = ["NO_VECTORS", "OTHER_TYPES", "WriteMethod", "codec_of", "has_vectors", "merge_reason", "spark_writes"]


class WriteMethod(StrEnum):
    """Method by which rows were written into a current table; a batch may use several."""

    APPEND = "append"
    """Snapshot rows, into a range that was empty."""
    UPSERT = "upsert"
    """By key index and deletion vectors."""
    MERGE = "merge"
    """By Spark's MERGE."""
    OVERWRITE = "overwrite"
    """All rows of a table without a key."""


NO_VECTORS: Final = "the table has no deletion vectors (delta.enableDeletionVectors)"
OTHER_TYPES: Final = "a column's type differs from the source's or needs Spark's writer"

_CODEC: Final = "spark.sql.parquet.compression.codec"
_REWRITING: Final = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")

Setting = Callable[[str, str], str | None]
"""Returns a setting of the Spark session by its name, or the second argument if it is not set."""


def codec_of(setting: Setting) -> str:
    """Return the session's compression of Parquet files."""
    return (setting(_CODEC, "snappy") or "").lower()


def has_vectors(table: Snapshot) -> bool:
    """Return whether deletion vectors may delete its rows."""
    return table.properties.get("delta.enableDeletionVectors", "").lower() == "true"


def merge_reason(lake: Lake, table: str, setting: Setting, place: Place | None = None) -> str | None:
    """Return why changes of a keyed table go through MERGE, judged by its newest version; None: they do not, or there
    is no current table yet.

    :raises DecodeError: its log is damaged.
    """
    if lake.obstacle is not None:
        return lake.obstacle
    snapshot = TableLog(lake.current(table, place)).refresh(files=False)
    if snapshot.version < 0:
        return None
    return spark_writes(snapshot, setting) or (None if has_vectors(snapshot) else NO_VECTORS)


def spark_writes(table: Snapshot, setting: Setting) -> str | None:
    """Return why Spark has to write rows of a table at this version; None: headgate writes them, if their types fit."""
    requirements = unsupported_requirements(table)
    if requirements:
        return f"the table needs Spark's writer ({', '.join(requirements)})"
    codec = codec_of(setting)
    if codec not in CODECS:
        return f"{_CODEC} is {codec}"
    for name in _REWRITING:
        if (setting(name, "false") or "").lower() != "false":
            return f"{name} is on"
    return None
