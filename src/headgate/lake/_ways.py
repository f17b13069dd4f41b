"""How a batch comes into a current table, and what keeps a table from the quick ways: the one list of reasons.

Without a MERGE a batch takes tenths of a second. A table that asks its writers for more than is known here, and changes
that need what the table holds, go through MERGE, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.delta import CODECS, TableLog, demands
from headgate.lake._layout import Lake

if TYPE_CHECKING:
    from headgate.delta import Snapshot

__all__ = [
    "NO_KEY",
    "NO_VECTORS",
    "OTHER_TYPES",
    "PARTIAL_IMAGES",
    "Way",
    "codec_of",
    "has_vectors",
    "merge_reason",
    "spark_writes",
]


class Way(StrEnum):
    """How rows came into a current table; a batch may use several."""

    APPEND = "append"
    """Rows that were read of the source, into a range that was empty."""
    UPSERT = "upsert"
    """By key index and deletion vectors."""
    MERGE = "merge"
    """By Spark's MERGE."""
    OVERWRITE = "overwrite"
    """All rows of a table without a key, by Spark."""


NO_VECTORS: Final = "the table has no deletion vectors (delta.enableDeletionVectors)"
OTHER_TYPES: Final = "the table has a column of another type"
NO_KEY: Final = "the table has no key, so equal rows are counted"
PARTIAL_IMAGES: Final = "row images leave columns out (binlog_row_image)"

_CODEC: Final = "spark.sql.parquet.compression.codec"
_REWRITING: Final = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")

Setting = Callable[[str, str], str | None]
"""A setting of the Spark session by its name; the second argument is given back if there is none."""


def codec_of(setting: Setting) -> str:
    """How the session has Parquet files compressed."""
    return (setting(_CODEC, "snappy") or "").lower()


def has_vectors(table: Snapshot) -> bool:
    """Whether its rows may be taken out by deletion vectors."""
    return table.properties.get("delta.enableDeletionVectors", "").lower() == "true"


def merge_reason(lake: Lake, table: str, setting: Setting) -> str | None:
    """Why changes of a table with a key go through MERGE, as far as its newest version tells; None: they do not, or
    there is no current table yet.

    :raises DecodeError: its log is damaged.
    """
    if lake.obstacle is not None:
        return lake.obstacle
    found = TableLog(lake.current(table), files=False).refresh()
    if found.version < 0:
        return None
    return spark_writes(found, setting) or (None if has_vectors(found) else NO_VECTORS)


def spark_writes(table: Snapshot, setting: Setting) -> str | None:
    """Why rows of a table at this version are left to Spark's writers; None: headgate writes them itself, if their
    types fit.
    """
    asked = demands(table)
    if asked:
        return f"the table asks more of its writers than rows ({', '.join(asked)})"
    codec = codec_of(setting)
    if codec not in CODECS:
        return f"{_CODEC} is {codec}"
    for name in _REWRITING:
        if (setting(name, "false") or "").lower() != "false":
            return f"{name} is on"
    return None
