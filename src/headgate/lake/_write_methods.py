"""How a batch is written into a current table, and why headgate cannot write a table: the one list of reasons.

Each reason names its remedy. Changelogs and the ledger are then appended to by Spark; other tables are refused.
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

__all__ = ["NO_VECTORS", "OTHER_TYPES", "WriteMethod", "codec_of", "has_vectors", "refusal", "spark_writes"]


class WriteMethod(StrEnum):
    """Method by which rows were written into a current table; a batch may use several."""

    APPEND = "append"
    """Snapshot rows, into a range that was empty."""
    UPSERT = "upsert"
    """By key index and deletion vectors."""
    OVERWRITE = "overwrite"
    """All rows of a table without a key."""


NO_VECTORS: Final = "it has no deletion vectors: set delta.enableDeletionVectors to true"
OTHER_TYPES: Final = "a column's type differs from the source's, or is none of headgate's: read the table again"

_CODEC: Final = "spark.sql.parquet.compression.codec"

Setting = Callable[[str, str], str | None]
"""Returns a setting of the Spark session by its name, or the second argument if it is not set."""


def codec_of(setting: Setting) -> str:
    """Return the session's compression of Parquet files."""
    return (setting(_CODEC, "snappy") or "").lower()


def has_vectors(table: Snapshot) -> bool:
    """Return whether deletion vectors may delete its rows."""
    return table.properties.get("delta.enableDeletionVectors", "").lower() == "true"


def refusal(lake: Lake, table: str, setting: Setting, place: Place | None = None) -> str | None:
    """Return why headgate cannot write a current table, judged by its newest version; None: it can, or there is none
    yet.

    :raises DecodeError: its log is damaged.
    """
    snapshot = TableLog(lake.current(table, place)).refresh(files=False)
    if snapshot.version < 0:
        return None
    return spark_writes(snapshot, setting) or (None if has_vectors(snapshot) else NO_VECTORS)


def spark_writes(table: Snapshot, setting: Setting) -> str | None:
    """Return why Spark has to write rows of a table at this version; None: headgate writes them, if their types fit."""
    requirements = unsupported_requirements(table)
    if requirements:
        named = ", ".join(requirements)
        return f"it requires of its writers what headgate does not support: remove {named}"
    codec = codec_of(setting)
    if codec not in CODECS:
        return f"{_CODEC} is {codec}: choose one of {', '.join(CODECS)}"
    return None
