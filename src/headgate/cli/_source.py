"""What commands ask a server before they read its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError, ServerSettingError
from headgate.gtid import GtidSet

if TYPE_CHECKING:
    from headgate.mysql import Connection, ServerFacts

__all__ = ["check_log", "start_of"]

_NEEDED: Final[Mapping[str, str]] = {
    "log_bin": "ON",
    "gtid_mode": "ON",
    "binlog_format": "ROW",
}
_ORDER: Final = "binlog_order_commits"
"""Without it the transactions that a SELECT sees are no prefix of the log."""
_REMEDIES: Final = {
    "log_bin": "restart the server with log_bin",
    "gtid_mode": "headgate check says step by step how",
}


def check_log(connection: Connection, *, ordered: bool = False) -> ServerFacts:
    """The server's settings, if its log can be read by row and GTID.

    :param ordered: a snapshot also needs commits in log order.
    :raises ServerSettingError: the first setting that does not fit.
    """
    from headgate.mysql import read_facts

    facts = read_facts(connection)
    for name, expected in {**_NEEDED, **({_ORDER: "ON"} if ordered else {})}.items():
        actual = facts.get(name).upper()
        if actual != expected and not (expected == "ON" and actual == "1"):
            remedy = _REMEDIES.get(name, f"SET GLOBAL {name} = '{expected}'")
            raise ServerSettingError(
                f"{name} is {actual or 'unknown'} on {connection.settings}, but {expected} is needed: {remedy}",
                setting=name, expected=expected, actual=actual,
            )  # fmt: skip
    return facts


def start_of(connection: Connection, start: str) -> tuple[GtidSet, GtidSet]:
    """What counts as already had, and what the server has executed now.

    :param start: ``current``, ``earliest`` or a GTID set.
    :raises ConfigError: none of these.
    :raises ServerBehindError: the server has not executed all of the GTID set.
    :raises BinlogPurgedError: the log no longer holds what comes after it.
    """
    texts = connection.query("SELECT @@global.gtid_executed, @@global.gtid_purged")[0]
    executed, purged = (GtidSet.parse(str(text)) for text in texts)
    if start.lower() == "current":
        return executed, executed
    if start.lower() == "earliest":
        return purged, executed
    try:
        had = GtidSet.parse(start)
    except (ConfigError, ValueError):
        raise ConfigError(f"--from is {start!r}; expected current, earliest or a GTID set (uuid:1-5)") from None
    if not had <= executed:
        raise ServerBehindError(f"{connection.settings} has not executed {had - executed}: is this the right server?")
    if not purged <= had:
        raise BinlogPurgedError(
            f"the log of {connection.settings} no longer holds {purged - had}: begin with --from earliest",
            needed=str(purged - had), purged=str(purged),
        )  # fmt: skip
    return had, executed
