"""Spark's side: the ``mysql-cdc`` data source. Needs PySpark; import it only where Spark is meant."""

from headgate.spark._control import ControlFolder
from headgate.spark._options import OPTION_NAMES, Options
from headgate.spark._past import PastTables
from headgate.spark._planner import Planner
from headgate.spark._progress import BatchPlan, BatchProgress
from headgate.spark._source import MySQLCDCDataSource, register

__all__ = [
    "OPTION_NAMES",
    "BatchPlan",
    "BatchProgress",
    "ControlFolder",
    "MySQLCDCDataSource",
    "Options",
    "PastTables",
    "Planner",
    "register",
]
