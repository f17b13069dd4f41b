"""How rows were written into a current table, and whether headgate can write a table: the one list of reasons.

headgate alone writes the tables of a lake. A table that another program altered so that a writer has to do more than
headgate does is refused with the remedy, before anything is written to it (:func:`check_writable`). This is checked for
each table when a run first looks at it, when a batch is decided, and on the version that each commit is planned on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.delta import CODECS, TableLog, unsupported_requirements
from headgate.errors import TargetError
from headgate.lake._layout import Lake
from headgate.lake._places import Place

if TYPE_CHECKING:
    from headgate.delta import Snapshot

__all__ = [
    "OTHER_COLUMNS",
    "OTHER_TYPES",
    "WriteMethod",
    "check_union",
    "check_writable",
    "codec_of",
    "not_writable",
    "refusal",
]


class WriteMethod(StrEnum):
    """Method by which rows were written into a current table; a batch may use several."""

    APPEND = "append"
    """Snapshot rows, into a range that was empty."""
    UPSERT = "upsert"
    """By key index and deletion vectors."""
    OVERWRITE = "overwrite"
    """All rows of a table without a key."""


NO_VECTORS: Final = "it has no deletion vectors: set delta.enableDeletionVectors to true"
OTHER_COLUMNS: Final = "it lacks columns of its rows, or has them in other types: move its folder away"
OTHER_TYPES: Final = "a column's type differs from the source's, or is none of headgate's: read the table again"

_NAMES_FEATURES: Final = 7
"""Writer version that names its features (Delta Transaction Log Protocol, "Table Features")."""
RAISE_PROTOCOL: Final = (
    "set delta.minReaderVersion to 3 and delta.minWriterVersion to 7, then drop the features that headgate still names"
)

_CODEC: Final = "spark.sql.parquet.compression.codec"

Setting = Callable[[str, str], str | None]
"""Returns a setting of the Spark session by its name, or the second argument if it is not set."""


def codec_of(setting: Setting) -> str:
    """Return the session's compression of Parquet files."""
    return (setting(_CODEC, "snappy") or "").lower()


def refusal(lake: Lake, table: str, setting: Setting, place: Place | None = None) -> str | None:
    """Return why headgate cannot write a current table, judged by its newest version; None: it can, or there is none
    yet.

    :raises DecodeError: its log is damaged.
    """
    snapshot = TableLog(lake.current(table, place)).refresh(files=False)
    return None if snapshot.version < 0 else _reason(snapshot, setting, deletes=True)


def check_writable(folder: str, table: Snapshot, setting: Setting, *, deletes: bool = False) -> None:
    """Check that headgate can write a version of the table in ``folder``, if the types of the rows fit.

    :param deletes: by deletion vectors, as of a current table.
    :raises TargetError: it cannot.
    """
    reason = _reason(table, setting, deletes=deletes)
    if reason is not None:
        raise not_writable(folder, reason, deletes=deletes)


def check_union(folder: str, table: Snapshot) -> None:
    """Check as :func:`check_writable` that headgate can write a version of a merged table, which has no files itself.

    :raises TargetError: it cannot.
    """
    requirements = unsupported_requirements(table, partitioned=True)
    if requirements:
        raise not_writable(folder, _remedy(table, requirements))


def not_writable(folder: str, reason: str, *, deletes: bool = False) -> TargetError:
    """Return the error of a table that headgate cannot write.

    :param deletes: it is a current table.
    """
    other = ". Or move its folder away: the next run reads the table again" if deletes else ""
    return TargetError(f"{folder}: headgate cannot write this table: {reason}{other}")


def _reason(table: Snapshot, setting: Setting, *, deletes: bool) -> str | None:
    """Return why headgate cannot write a version of a table; None: it can, if the types of the rows fit."""
    if table.version < 0:
        return "another program has removed it"
    requirements = unsupported_requirements(table)
    if requirements:
        return _remedy(table, requirements)
    codec = codec_of(setting)
    if codec not in CODECS:
        return f"{_CODEC} is {codec}: choose one of {', '.join(CODECS)}"
    has_vectors = table.properties.get("delta.enableDeletionVectors", "").lower() == "true"
    return NO_VECTORS if deletes and not has_vectors else None


def _remedy(table: Snapshot, requirements: Sequence[str]) -> str:
    """Return what to change in a table that requires what headgate does not support."""
    if table.features is None:
        later = int(table.protocol.get("minWriterVersion") or 0) >= _NAMES_FEATURES
        remedy = "only a later headgate can write it" if later else RAISE_PROTOCOL
        return f"it has {', '.join(requirements)}, which does not name its table features: {remedy}"
    return f"it requires of its writers what headgate does not support: remove {', '.join(requirements)}"
