"""The ``mysql-cdc`` data source of Spark. PySpark is loaded on the first access to a name that needs it."""

from typing import TYPE_CHECKING, Any

from headgate.spark._batch_plan import BatchPlan, PlannedTable, TablesToRead
from headgate.spark._carried import carrier_rows
from headgate.spark._notes import Notes
from headgate.spark._options import OPTION_HELP, Options
from headgate.spark._past import TablesAsOf
from headgate.spark._planner import Planner
from headgate.spark._read_task import read_task
from headgate.spark._relayed import server_of
from headgate.spark._server import ServerState, SourceServer
from headgate.spark._tasks import LogRange, Task, Unread

if TYPE_CHECKING:
    from headgate.spark._expand import expand
    from headgate.spark._source import MySQLCDCDataSource, register

__all__ = [
    "OPTION_HELP",
    "BatchPlan",
    "LogRange",
    "MySQLCDCDataSource",
    "Notes",
    "Options",
    "PlannedTable",
    "Planner",
    "ServerState",
    "SourceServer",
    "TablesAsOf",
    "TablesToRead",
    "Task",
    "Unread",
    "carrier_rows",
    "expand",
    "read_task",
    "register",
    "server_of",
]


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "expand":
            from headgate.spark._expand import expand

            return expand
        if name not in {"MySQLCDCDataSource", "register"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headgate.spark import _source

        return getattr(_source, name)
