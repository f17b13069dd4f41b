"""A table as a relay's bootstrap reads it, without the relay."""

from __future__ import annotations

from typing import Any

from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.policies import Policies
from headgate.relay.server import LogicalSource
from headgate.relay.server.bootstrap import ChunkSupplier

__all__ = ["first_part"]


def first_part(settings: ConnectionSettings, table: str, position: GtidSet) -> Any:
    """The first part of a table as of a position."""
    source, supplier = LogicalSource(1, "a.Source", table), ChunkSupplier(settings, Policies())
    part = supplier.plan(source, None)
    assert part is not None
    return supplier.read(source, part, position, None)
