"""Where the Delta tables of a source table are, if a route gives them another name (``[routes]``).

A *place* is written into the ledger with the table's state, so that readers need no configuration.

**Merged tables.** Shards are source tables with one name in the lake, such as the same table of many databases. Each
shard has Delta tables of its own, with its own state, in the folder ``_shards`` of the merged table, and is written and
read again like any other table. The merged table consists of its shards' files (``_merged``). ``_shards`` is hidden to
other programs' VACUUM of the merged table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from headgate.catalog import TablePatterns
from headgate.names import LONGEST_SEGMENT, path_segment

if TYPE_CHECKING:
    from headgate.config import RouteConfig

__all__ = ["PLACE_FIELDS", "SHARDS", "Place", "Places"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")

_SHORT: Final = 100
"""Most characters of a shard's folder that does not have the value as it is."""

SHARDS: Final = "_shards"
"""The folder of a merged table that has the folders of its shards."""


@dataclass(frozen=True)
class Place:
    """The place of one source table.

    :param table: the name in the lake, ``db.table``.
    :param shard: the value of the shard column, if the table is part of a merged one.
    :param column: the shard column.
    :param path: the folder or URI below which the merged table is; None: the lake's own.
    """

    table: str
    shard: str | None = None
    column: str | None = None
    path: str | None = None

    @property
    def folder(self) -> str | None:
        """The shard's folder in the folder of the merged table; None: the table is no shard.

        Polars takes the value of a partition column from such a name as ``<column>=<value>``, not from the log. Readers
        differ in whether they decode the name of a deletion vector's folder, so it has no character to be encoded. A
        value with capital letters is in a folder of its own: a file system may ignore the case of letters.
        """
        if self.shard is None:
            return None
        segment, name = path_segment(self.shard, _SHORT), f"{self.column}={self.shard}"
        if not _PLAIN.fullmatch(self.shard) or len(name.encode()) > LONGEST_SEGMENT:
            return f"{SHARDS}/{segment}"
        return f"{SHARDS}/{name}" if self.shard == self.shard.lower() else f"{SHARDS}/{segment}/{name}"


PLACE_FIELDS: Final = tuple(one.name for one in fields(Place))


class Places:
    """The places that the routes of a configuration give: pattern → route, of which the last match counts."""

    def __init__(self, routes: Mapping[str, RouteConfig]) -> None:
        self._routes = [(TablePatterns([pattern]), route) for pattern, route in reversed([*routes.items()])]

    def of(self, table: str) -> Place | None:
        """Return the place of ``db.table``; None: it keeps its name."""
        db, _, name = table.partition(".")
        route = next((route for patterns, route in self._routes if patterns.matches(db, name)), None)
        if route is None:
            return None
        names = {"db": db, "table": name}
        if route.shard is None:
            return Place(route.to.format_map(names))
        return Place(route.to.format_map(names), route.shard.format_map(names), route.column, route.path)
