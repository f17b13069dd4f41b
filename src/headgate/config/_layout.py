"""Layout of tables: Delta properties that the file may set, and clustering columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator

__all__ = ["ClusteringColumns", "TableProperties"]

_MOST_COLUMNS: Final = 4
"""Spark refuses more (``spark.databricks.delta.clusteredTable.numClusteringColumnsLimit``)."""
_MOST_LETTERS: Final = 4000
"""Of a property's value: each checkpoint of the table's log has it."""
_INDEXED: Final = "delta.dataSkippingNumIndexedCols"
_RESERVED: Final = frozenset({
    "clusteringColumns", "collation", "comment", "external", "is_managed_location", "location", "option", "owner",
    "path", "provider", "table_type",
})  # fmt: skip
"""Names that Spark SQL does not accept in TBLPROPERTIES, or gives another meaning (``TableCatalog``)."""
_REFUSED: Final[tuple[tuple[str, str], ...]] = (
    (r"headgate\..*", "headgate's own"),
    (r"delta\.(columnMapping\..*)", "a table gets column mapping if the name of a column needs it"),
    (r"delta\.enableDeletionVectors", "tables have deletion vectors where headgate needs them"),
    (
        r"delta\.(deletedFileRetentionDuration|logRetentionDuration|enableExpiredLogCleanup)",
        "headgate removes old files, by target.retention_hours",
    ),
    (r"delta\.(checkpointInterval|checkpointPolicy|checkpoint\..*)", "headgate writes the log's checkpoints"),
    (r"delta\.setTransactionRetentionDuration", "headgate's transaction markers must stay"),
    (r"delta\.appendOnly", "headgate also deletes rows"),
    (r"delta\.enableChangeDataFeed", 'headgate writes no change data feed: add "changelog" to target.mode'),
    (r"delta\.dataSkippingStatsColumns", f"headgate counts columns with statistics: set {_INDEXED}"),
    (
        r"delta\.(feature\..*|minReaderVersion|minWriterVersion)",
        "the features that a table requires follow from its columns",
    ),
    (r"delta\..*", "headgate's writer does not support it"),
)
"""Names of properties that the file may not set, and why: the first match counts."""


def _as_texts(values: Any) -> Any:
    """Return the values as texts: TOML has numbers and booleans, too."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for name, value in values.items()
    }


def _check_properties(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if name == _INDEXED:
            if not re.fullmatch(r"-1|\d{1,6}", value):
                raise ValueError(f"{name}: expected a number of columns, or -1 for all")
            continue
        reason = next((reason for pattern, reason in _REFUSED if re.fullmatch(pattern, name)), None)
        if reason is None and (name in _RESERVED or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)):
            reason = "Spark SQL reserves this name" if name in _RESERVED else "use letters, digits, `_`, `.` and `-`"
        if reason is not None:
            raise ValueError(f"{name} cannot be set: {reason}")
        if len(value) > _MOST_LETTERS:
            raise ValueError(f"{name} has more than {_MOST_LETTERS} characters")
    return values


def _check_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"expected at most {_MOST_COLUMNS} columns: Spark clusters by no more")
    if "" in names or len({name.lower() for name in names}) < len(names):
        raise ValueError("expected the names of different columns")
    return names


TableProperties: TypeAlias = Annotated[dict[str, str], BeforeValidator(_as_texts), AfterValidator(_check_properties)]
"""Properties of Delta tables, by their names."""
ClusteringColumns: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_check_columns)]
"""Columns of a table in the lake, by their names there."""
