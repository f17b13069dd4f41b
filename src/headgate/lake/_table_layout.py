"""Layout of a table as the configuration wants it: properties, and the columns by which it is clustered.

**When it is followed.** A table gets its layout with its first version. Later each batch that writes it compares the
two, and commits what differs, without a rewrite of files; so does the first batch of a run for tables that it does not
write. The property ``headgate.properties`` lists the properties that the configuration has set, so that those that it
sets no longer are removed. Properties of other programs stay, and so does the clustering by another program if the
configuration has none, and had none before.

**Clustering columns** that the table lacks, or that have no order, are left out until it has them. So is one of which
some file has no statistics, because it comes behind those that had some, or was added later: until the table is read
again.
Statistics go as far as the last of them: Delta's writers count them from the first column on
(``delta.dataSkippingNumIndexedCols``).

**On restart** nothing is committed that the table has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.delta import INDEXED_COLUMNS, Snapshot, clusterable, clustered, indexed_leaves, leaves_to, with_properties

__all__ = ["TableLayout"]

_NAMES: Final = "headgate.properties"
"""Property: the names of those that the configuration set, as a JSON list; missing without any."""
_CLUSTER_BY: Final = "headgate.cluster_by"
"""Property: the clustering columns of the configuration, as a JSON list; missing without any: then a table's clustering
is of another program.
"""


@dataclass(frozen=True)
class TableLayout:
    """What the configuration says of a table's layout.

    :param properties: the table's Delta properties, which headgate supports.
    :param cluster_by: columns of the table, a few.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()

    def properties_of(self, schema_json: str, others: Mapping[str, str]) -> dict[str, str]:
        """Return all properties of a table with the layout.

        :param schema_json: its columns, as in the log.
        :param others: properties that the configuration does not set. One that leaves a clustering column without
            statistics is left out.
        """
        leaves, wanted, kept = leaves_to(schema_json, self.cluster_by), dict(self.properties), dict(others)
        if self.cluster_by:
            wanted[_CLUSTER_BY] = json.dumps(self.cluster_by)
        if indexed_leaves({**kept, **wanted}) < leaves:
            if INDEXED_COLUMNS in wanted or indexed_leaves({}) < leaves:
                wanted[INDEXED_COLUMNS] = str(leaves)
            else:
                del kept[INDEXED_COLUMNS]
        return {**kept, **wanted, **({_NAMES: json.dumps(sorted(wanted))} if wanted else {})}

    def left_out(self, table: Snapshot) -> list[str]:
        """Return the clustering columns that a table cannot have, as it is.

        :param table: with its files.
        """
        columns = clusterable(table, self.cluster_by)
        return [name for name in self.cluster_by if name not in columns]

    def changes(self, table: Snapshot) -> list[dict[str, Any]]:
        """Return the actions by which a table gets the layout; empty if it has it.

        :param table: with its files.
        """
        had = _configured(table)
        if not self.properties and not self.cluster_by and not had:
            return []
        others = {name: value for name, value in table.properties.items() if name not in had}
        wanted = self.properties_of(table.metadata["schemaString"], others)
        removed = table.properties.keys() - wanted.keys()
        clusters = bool(self.cluster_by) or _CLUSTER_BY in had
        return [*with_properties(table, wanted, removed), *(clustered(table, self.cluster_by) if clusters else ())]

    @staticmethod
    def clustering_of_others(table: Snapshot, successor: Snapshot) -> tuple[str, ...]:
        """Return the columns by which another program has clustered a table; none if the configuration clusters its
        successor, or has clustered the table.
        """
        is_configured = _CLUSTER_BY in _configured(table) | _configured(successor)
        return () if is_configured else table.clustering

    @staticmethod
    def lost_properties(table: Snapshot, successor: Snapshot) -> list[str]:
        """Return the properties of Delta that other programs set on a table, and that its successor does not have."""
        had, built = _configured(table), successor.properties
        return sorted(
            name
            for name, value in table.properties.items()
            if name.startswith("delta.") and not name.startswith("delta.columnMapping.") and name not in had
            if built.get(name) != value
        )

    @staticmethod
    def properties_of_others(table: Snapshot) -> dict[str, str]:
        """Return the properties of a table that other programs set, and Delta does not define."""
        had = _configured(table)
        return {
            name: value
            for name, value in table.properties.items()
            if name not in had and not name.startswith(("delta.", "headgate."))
        }


def _configured(table: Snapshot) -> frozenset[str]:
    """Return the names of a table's properties that follow from the configuration's layout; empty without any."""
    names = table.properties.get(_NAMES)
    return frozenset([*json.loads(names), _NAMES]) if names else frozenset()
