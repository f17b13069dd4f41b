"""Rows for the bootstraps of a relay's consumers, from the lake of a pipeline. This module joins relay and lake.

Neither depends on the other. MySQL is queried only for the tables' definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headgate._policies import Policies
from headgate.gtid import GtidSet
from headgate.lake import CopyGoneError, Lake, LakeCopies
from headgate.mysql import Connection, ConnectionSettings
from headgate.relay import Beginning, LogicalSource, PlanGoneError, Rows, keyed_table

__all__ = ["LakeSupplier"]


class LakeSupplier:
    """A :class:`headgate.relay.Supplier` of the tables in one lake.

    :param settings: of the lake's source server.
    :param policies: the relay's.
    """

    def __init__(self, lake: Lake, settings: ConnectionSettings, policies: Policies) -> None:
        self._copies, self._settings = LakeCopies(lake, policies), settings

    def begin(self) -> Beginning:
        """Return the lake's newest batch."""
        return Beginning(*self._copies.begin())

    def plan(
        self, source: LogicalSource, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Return the next row group."""
        with _convert_gone_error():
            return self._copies.part_after(source.table, token, before)

    def read(
        self, source: LogicalSource, token: Mapping[str, Any], part: Mapping[str, Any], executed: GtidSet, hint: Any
    ) -> Rows | None:
        """Return its rows as of the batch. ``executed`` has no effect."""
        del executed, hint
        with Connection.open(self._settings) as connection:
            table = keyed_table(connection, source)
        with _convert_gone_error():
            table, columns = self._copies.read(table, token, part)
        return Rows(table, columns) if columns.num_rows else None


@contextmanager
def _convert_gone_error() -> Iterator[None]:
    try:
        yield
    except CopyGoneError as error:
        raise PlanGoneError(str(error)) from None
