"""Spark's daemon for Python workers, with what headgate needs loaded before a worker is forked from it.

Spark starts a daemon (``spark.python.daemon.module``) that forks a worker whenever a task finds none idle; one that was
idle for a minute is ended. PySpark's daemon loads nothing beforehand, so each worker imports numba, pyarrow, pandas
(which pyarrow loads to see what it was given) and headgate again, and sets up numba's loader at the first kernel: about
a second of a core, at the first batch and after each pause. Here that is done once, and shared by all workers.

Forking is safe as long as the daemon has no thread that holds a lock. What is loaded starts none but those of jemalloc
and of OpenBLAS, both of which take care of forks themselves; pyarrow's and numba's own pools are not begun.
"""

from __future__ import annotations

import gc
import importlib

from pyspark import daemon

__all__ = ["preload"]


def preload() -> None:
    """Load what every worker needs."""
    source = ("headgate.spark._carried", "headgate.spark._typed")
    for name in ("pyspark.worker", *source, "headgate.sinks._expand", "headgate.lake._written"):
        importlib.import_module(name)
    _first_row()
    gc.collect()
    gc.freeze()  # what is shared stays shared: no worker's collector goes over it


def _first_row() -> None:
    """Decode one row. The first call of any kernel sets up numba's loader, and these kernels every table needs. The
    first array makes pyarrow load pandas.
    """
    import numpy as np
    import pyarrow as pa

    from headgate._cells import RowBlock
    from headgate.catalog import Column, TableDef
    from headgate.columns import TableCodec

    columns = (Column("n", "int"), Column("s", "varchar", length=4, charset="utf8mb4"))
    cells = np.array([[0], [1]], np.int64), np.ones((2, 1), np.int32), np.ones((2, 1), np.uint8)
    TableCodec(TableDef("d", "t", columns)).from_text(RowBlock(np.frombuffer(b"1a", np.uint8), *cells, 1))
    pa.array(cells[0][0])


if __name__ == "__main__":
    preload()
    daemon.manager()
