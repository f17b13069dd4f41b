"""Rows for the bootstraps of a relay's consumers out of a lake that a pipeline keeps: the relay and the lake joined.

Neither knows of the other. MySQL is asked for the tables' definitions only.
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

    :param settings: of the server that the lake is a copy of.
    :param policies: as the relay has them.
    """

    def __init__(self, lake: Lake, settings: ConnectionSettings, policies: Policies) -> None:
        self._copies, self._settings = LakeCopies(lake, policies), settings

    def begin(self) -> Beginning:
        """The lake's newest batch."""
        return Beginning(*self._copies.begin())

    def plan(
        self, source: LogicalSource, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The next row group."""
        with _gone():
            return self._copies.part_after(source.table, token, before)

    def read(
        self, source: LogicalSource, token: Mapping[str, Any], part: Mapping[str, Any], executed: GtidSet, hint: Any
    ) -> Rows | None:
        """Its rows, as of the batch whatever ``executed`` says."""
        del executed, hint
        with Connection.open(self._settings) as connection:
            table = keyed_table(connection, source)
        with _gone():
            columns = self._copies.read(table, token, part)
        return Rows(table, columns) if columns.num_rows else None


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except CopyGoneError as error:
        raise PlanGoneError(str(error)) from None
