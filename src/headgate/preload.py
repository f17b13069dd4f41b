"""Modules that Spark's Python processes need. The fork server loads them once for all (``headgate.engine``).

A run names the function before it loads any room, because Spark starts meanwhile.
"""

from __future__ import annotations

import importlib
from typing import Final

__all__ = ["PRELOAD", "preload"]

PRELOAD: Final = f"{__name__}:preload"
"""The function :func:`preload`, as ``module:name``."""

_SPARK = (
    "daemon",
    "worker",
    "sql.worker.create_data_source",
    "sql.worker.lookup_data_sources",
    "sql.worker.plan_data_source_read",
    "sql.streaming.python_streaming_source_runner",
)
"""PySpark's modules that its processes run."""
_OURS = ("spark._source", "spark._planner", "spark._carried", "spark._typed", "apply._expand", "apply._staged_rows")
"""headgate's modules that these processes load."""


def preload() -> None:
    """Load the modules that every process needs."""
    for name in (*(f"pyspark.{name}" for name in _SPARK), *(f"headgate.{name}" for name in _OURS)):
        importlib.import_module(name)
    _first_row()


def _first_row() -> None:
    """Decode one row. The first call of a kernel sets up numba's loader, and every table needs these kernels. The first
    array makes pyarrow load pandas.
    """
    import numpy as np
    import pyarrow as pa

    from headgate.catalog import Column, TableDef
    from headgate.columns import TableCodec
    from headgate.kernels import RowBlock

    columns = (Column("n", "int"), Column("s", "varchar", length=4, charset="utf8mb4"))
    cells = np.array([[0], [1]], np.int64), np.ones((2, 1), np.int32), np.ones((2, 1), np.uint8)
    TableCodec(TableDef("d", "t", columns)).from_text(RowBlock(np.frombuffer(b"1a", np.uint8), *cells, 1))
    pa.array(cells[0][0])
