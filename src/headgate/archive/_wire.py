"""What a copy of a log says of itself, here or over HTTP (``/log/head``, ``/log/files``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.gtid import GtidSet

__all__ = ["LogFile", "LogHead", "Series"]


class Series(NamedTuple):
    """A stretch of one server's log."""

    server_uuid: str
    begin: GtidSet
    """All transactions before it."""
    end: GtidSet
    """All transactions up to its end."""


class LogFile(NamedTuple):
    """A file of a server that is kept, or a part of it."""

    server_uuid: str
    name: str
    bytes: int
    """That are kept."""
    before: GtidSet
    """All transactions before it."""

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return self._asdict() | {"before": str(self.before)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogFile:
        """As it is received."""
        return cls(str(value["server_uuid"]), str(value["name"]), int(value["bytes"]), GtidSet.parse(value["before"]))


@dataclass(frozen=True)
class LogHead:
    """What is kept of a server's log."""

    server_uuid: str
    """Of the server whose log is read now; empty: nothing was read yet."""
    gtid: GtidSet
    """Everything that is kept, and what came before."""
    begin: GtidSet
    """What came before the oldest transaction that is kept."""
    file: str
    pos: int
    """Everything before this place of that server's log is kept."""
    series: tuple[Series, ...]
    """Stretches of one server's log each, oldest first."""

    def series_of(self, wanted: GtidSet) -> Series | None:
        """The stretch that holds all of these transactions."""
        return next((one for one in self.series if wanted <= one.end and not wanted & one.begin), None)

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        series = [{"server_uuid": one.server_uuid, "begin": str(one.begin), "end": str(one.end)} for one in self.series]
        return vars(self) | {"gtid": str(self.gtid), "begin": str(self.begin), "series": series}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogHead:
        """As it is received."""
        series = tuple(
            Series(str(one["server_uuid"]), GtidSet.parse(one["begin"]), GtidSet.parse(one["end"]))
            for one in value["series"]
        )
        return cls(
            value["server_uuid"],
            GtidSet.parse(value["gtid"]),
            GtidSet.parse(value["begin"]),
            value["file"],
            int(value["pos"]),
            series,
        )
