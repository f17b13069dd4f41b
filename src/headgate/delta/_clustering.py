"""Columns by which a table is clustered: Delta's liquid clustering, as far as a writer has a part in it.

A clustered table has the writer features ``clustering`` and ``domainMetadata``, and names its columns in the metadata
domain ``delta.clustering``. Writers have to keep statistics of these columns in each file. They need not cluster: an
OPTIMIZE does, and sets ``clusteringProvider`` in the files that it wrote, which then stay as they are as long as it
does not find them worse. Files of other writers have no provider, so OPTIMIZE takes them as it comes to them. So
headgate sets none, also in a fold, whose rows are sorted by these columns.

Source: Delta Transaction Log Protocol, "Clustered Table", "Domain Metadata"; Delta's ``ClusteringMetadataDomain`` and
``ClusteredTableUtils``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headgate.delta._log import CLUSTERING, Snapshot

__all__ = [
    "CLUSTERING_FEATURES",
    "clusterable",
    "clustered_by",
    "clustering",
    "kept_clustering",
    "leaves_to",
    "with_domains_of",
]

CLUSTERING_FEATURES: Final = frozenset({"clustering", "domainMetadata"})
"""Features of a clustered table, which only writers have to know."""
_ORDERED: Final = re.compile(
    r"byte|short|integer|long|float|double|decimal(\(.*\))?|string|date|timestamp|timestamp_ntz"
)
"""Types with bounds in statistics, by their names in the log (Delta's ``SkippingEligibleDataType``)."""


def clusterable(table: Snapshot, columns: Sequence[str]) -> tuple[str, ...]:
    """Return those of these columns by which the table can be clustered: it has them, in a type with an order, and each
    of its files has statistics of them.

    :param table: with its files.
    """
    kinds = {one["name"]: one["type"] for one in _fields(table.metadata["schemaString"])}
    ordered = [name for name in columns if isinstance(kinds.get(name), str) and _ORDERED.fullmatch(kinds[name])]
    return tuple(name for name in ordered if name in table.clustering or _has_statistics(table, name))


def _has_statistics(table: Snapshot, column: str) -> bool:
    counts = (file.statistics.null_count(file.names.path((column,))) for file in table.files.values())
    return all(count is not None for count in counts)


def clustering(table: Snapshot, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the action by which a table is clustered by these columns; empty if it is.

    :param table: has the features, if it gets columns.
    """
    if tuple(columns) == table.clustering:
        return []
    return [_domain(CLUSTERING, _configuration([table.names.path((name,)) for name in columns]))]


def kept_clustering(table: Snapshot, schema_json: str) -> list[dict[str, Any]]:
    """Return the action by which a table that gets other columns is no longer clustered by those that it loses; empty
    if it loses none.

    :param schema_json: its columns afterwards, as in the log.
    """
    names = {one["name"] for one in _fields(schema_json)}
    return clustering(table, [name for name in table.clustering if name in names])


def clustered_by(table: Snapshot, columns: Sequence[str]) -> Mapping[str, str]:
    """Return the metadata domains of a table if it were clustered by those of these columns by which it can be; its own
    if there are none.

    :param table: with its files.
    """
    possible = clusterable(table, columns)
    paths = [table.names.path((name,)) for name in possible]
    return {**table.domains, CLUSTERING: _configuration(paths)} if possible else table.domains


def with_domains_of(table: Snapshot, other: Snapshot) -> list[dict[str, Any]]:
    """Return the actions that give a table the metadata domains of another version, or of another table with the same
    columns. Domains that it lacks stay, but for the clustering: a table that was clustered once has no columns for it.
    """
    domains = {**({CLUSTERING: _configuration(())} if CLUSTERING in table.domains else {}), **other.domains}
    return [_domain(name, text) for name, text in domains.items() if table.domains.get(name) != text]


def _domain(name: str, configuration: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": False}}


def _configuration(paths: Sequence[Sequence[str]]) -> str:
    return json.dumps({"clusteringColumns": [list(path) for path in paths]})


def leaves_to(schema_json: str, columns: Sequence[str]) -> int:
    """Return how many leaf columns there are up to the last of these columns, it included; 0 without any."""
    leaves = last = 0
    for one in _fields(schema_json):
        leaves += sum(1 for _ in _leaves(one["type"]))
        last = leaves if one["name"] in columns else last
    return last


def _leaves(kind: Any) -> Iterator[None]:
    """Yield for each leaf of a type; an array or a map is one."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        for one in kind["fields"]:
            yield from _leaves(one["type"])
    else:
        yield None


def _fields(schema_json: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema_json)["fields"]
    return fields
