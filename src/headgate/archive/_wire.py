"""The description of a binlog archive's content, local or over HTTP (``/log/head``, ``/log/files``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.gtid import GtidSet

__all__ = ["LogFile", "LogHead", "Series"]


class Series(NamedTuple):
    """A range of one server's log."""

    server_uuid: str
    begin: GtidSet
    """All transactions before it."""
    end: GtidSet
    """All transactions up to its end."""


class LogFile(NamedTuple):
    """A binlog file of a server in the archive, or a part of it."""

    server_uuid: str
    name: str
    bytes: int
    """Archived bytes."""
    before: GtidSet
    """All transactions before it."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self._asdict() | {"before": str(self.before)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogFile:
        """Parse the JSON form."""
        return cls(str(value["server_uuid"]), str(value["name"]), int(value["bytes"]), GtidSet.parse(value["before"]))


@dataclass(frozen=True)
class LogHead:
    """The content of a binlog archive."""

    server_uuid: str
    """The server whose log is read now; empty: nothing was read yet."""
    gtid: GtidSet
    """All archived transactions, and those before them."""
    begin: GtidSet
    """All transactions before the oldest archived one."""
    file: str
    pos: int
    """Everything before this position of that server's log is archived."""
    series: tuple[Series, ...]
    """Ranges of one server's log each, oldest first."""

    def series_of(self, wanted: GtidSet) -> Series | None:
        """Return the series that has all of these transactions, if any."""
        return next((one for one in self.series if wanted <= one.end and not wanted & one.begin), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        series = [{"server_uuid": one.server_uuid, "begin": str(one.begin), "end": str(one.end)} for one in self.series]
        return vars(self) | {"gtid": str(self.gtid), "begin": str(self.begin), "series": series}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogHead:
        """Parse the JSON form."""
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
