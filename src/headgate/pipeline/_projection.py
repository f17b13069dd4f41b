"""What a pipeline costs in files and requests: a projection from its freshness and its number of tables.

One owner of the formula: ``headgate run --dry-run`` prints it, and docs/explanation/performance.md has its table. Tests
compare it with what ``benchmarks.requests`` and ``benchmarks.files`` counted.

It is an upper limit: a batch begins once in ``target.freshness_ms`` at most, and here changes every table. Tables that
change less often cost less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.lake import Lake

__all__ = ["Projection", "freshness_seconds"]

_FRESHNESS, _STORE_FRESHNESS = 1.0, 10.0
"""Default of ``target.freshness_ms`` in seconds, for a local lake and for one in an object store."""
_DAY: Final = 86_400
_SHORTEST: Final = 0.2
"""Seconds of a batch that begins at once, about."""

_PUT_AND_LIST, _GET = 29.5, 36.0
"""Requests of a batch, of which Spark makes most for its checkpoint …"""
_TABLE_PUT, _TABLE_GET = 3.1, 7.4
"""… and for each table that it changes."""
_FILES, _TABLE_FILES = 2, 3
"""Files of a batch: the ledger's; for each table that it changes a data file, a deletion vector and a log file …"""
_CHANGELOG_FILES: Final = 2
"""… and for each changelog a data file and a log file."""
_BYTES: Final = 1_700
"""Bytes of such a file, if few rows change."""


@dataclass(frozen=True)
class Projection:
    """Projection for a pipeline whose tables change all the time.

    :param tables: number of tables with current rows or their history; ``changelogs``: of changelogs.
    :param freshness: seconds between two batches.
    """

    tables: int
    changelogs: int
    freshness: float
    retention_hours: float

    @classmethod
    def of(cls, config: PipelineConfig, lake: Lake, tables: int) -> Projection:
        """Return the projection for so many source tables."""
        target = config.target
        return cls(
            tables if target.has_tables else 0,
            tables if "changelog" in target.mode else 0,
            freshness_seconds(config, lake),
            target.retention_hours,
        )

    @property
    def batches_a_day(self) -> float:
        """Batches a day, at most."""
        return _DAY / max(self.freshness, _SHORTEST)

    @property
    def put_and_list_a_day(self) -> int:
        """Requests a day that write or list."""
        return round(self.batches_a_day * (_PUT_AND_LIST + _TABLE_PUT * (self.tables + self.changelogs)))

    @property
    def get_a_day(self) -> int:
        """Requests a day that read, HEAD included."""
        return round(self.batches_a_day * (_GET + _TABLE_GET * (self.tables + self.changelogs)))

    @property
    def files(self) -> int:
        """Files that the retention holds: those of its batches."""
        batch = _FILES + _TABLE_FILES * self.tables + _CHANGELOG_FILES * self.changelogs
        return round(self.batches_a_day / 24 * self.retention_hours * batch)

    @property
    def bytes(self) -> int:
        """Their bytes, at least: of batches that change few rows of a table."""
        return self.files * _BYTES


def freshness_seconds(config: PipelineConfig, lake: Lake) -> float:
    """Return in how many seconds after its commit a row should be visible: ``target.freshness_ms``, or its default."""
    wanted = config.target.freshness_ms
    return (_FRESHNESS if lake.is_local else _STORE_FRESHNESS) if wanted is None else wanted / 1000
