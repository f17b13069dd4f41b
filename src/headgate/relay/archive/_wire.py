"""The description of a binlog archive's content, and requests for it, local or over HTTP (``/log``, ``/log/head``,
``/log/files``). GTID sets are text in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter

from headgate.gtid import GtidSet
from headgate.mysql import LogRequest
from headgate.positions import Position

__all__ = ["FILES", "HEAD", "RANGE", "SERVER_UUID", "LogFile", "LogHead", "RangeRequest", "Series"]


def _parse(value: Any) -> GtidSet:
    """:raises HeadgateError: text that is not a GTID set."""
    if isinstance(value, GtidSet):
        return value
    if not isinstance(value, str):
        raise ValueError("a GTID set is text")  # noqa: TRY004 - pydantic's form
    return GtidSet.parse(value)


Gtids: TypeAlias = Annotated[GtidSet, PlainValidator(_parse), PlainSerializer(str)]


@dataclass(frozen=True)
class Series:
    """A range of one server's log."""

    server_uuid: str
    begin: Gtids
    """All transactions before it."""
    end: Gtids
    """All transactions up to its end."""


@dataclass(frozen=True)
class LogFile:
    """A binlog file of a server in the archive, or a part of it."""

    server_uuid: str
    name: str
    bytes: int
    """Archived bytes."""
    before: Gtids
    """All transactions before it."""


@dataclass(frozen=True)
class LogHead:
    """The content of a binlog archive."""

    server_uuid: str
    """The server whose log is read now; empty: nothing was read yet."""
    gtid: Gtids
    """All archived transactions, and those before them."""
    begin: Gtids
    """All transactions before the oldest archived one."""
    file: str
    pos: int
    """Everything before this position of that server's log is archived."""
    series: tuple[Series, ...]
    """Ranges of one server's log each, oldest first."""

    def series_of(self, wanted: Position) -> Series | None:
        """Return the series that has all of these transactions, if any."""
        return next((one for one in self.series if wanted <= one.end and not wanted & one.begin), None)


@dataclass(frozen=True)
class RangeRequest(LogRequest):
    """A request to a relay."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    executed_before: Gtids | None = None
    wanted: Gtids | None = None
    executed: Gtids | None = None
    endless: Literal[False] = False
    source: str | None = None
    """Name of the physical source."""


SERVER_UUID: Final = "x-headgate-server-uuid"
"""Header of a range: the server whose log it is."""
FILES: Final = TypeAdapter(list[LogFile])
HEAD: Final = TypeAdapter(LogHead)
RANGE: Final = TypeAdapter(RangeRequest)
