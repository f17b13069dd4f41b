"""Modules that Spark's Python processes need, and the kernels that they call. The fork server loads them once for all
(``headgate.engine``).

A run names the function before it loads any room, because Spark starts meanwhile.

numba compiles a kernel at its first call and stores it. :func:`compile_kernels` does this before: those that read the
log by an empty piece of it, those of a column type by a row of NULL.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["PRELOAD", "are_compiled", "compile_kernels", "preload"]

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


_COMPILED: Final = ("binlog", "columns", "kernels", "mysql", "replication")
"""Rooms with the kernels that read a server's log and tables."""


def are_compiled(*, all_types: bool = False) -> bool:
    """Return whether :func:`compile_kernels` has stored the kernels of this version of the code."""
    return _stamp(all_types=all_types).exists()


def compile_kernels(*, all_types: bool = False) -> None:
    """Compile the kernels that read the log, or load stored ones.

    :param all_types: also those of all column types; else of numbers and texts.
    :raises ConfigError: they cannot be stored; StorageError likewise.
    """
    import numpy as np

    from headgate.binlog import Framer, GtidFilter, Scanner, Segment
    from headgate.files import file_errors, write_text

    no_bytes, none = np.zeros(16, np.uint8), np.zeros(0, np.int64)
    Framer().next(no_bytes, 0, 0)
    Scanner(GtidFilter.build(np.zeros((0, 16), np.uint8), none, none, inside=True)).scan(
        Segment("", no_bytes, none, none, none, none)
    )
    _first_row()
    if all_types:
        _columns_of_all_types()
    stamp = _stamp(all_types=all_types)
    with file_errors(f"{stamp} cannot be written (XDG_CACHE_HOME chooses another folder than ~/.cache)"):
        write_text(stamp, "")
        if all_types:
            write_text(_stamp(all_types=False), "")


def _columns_of_all_types() -> None:
    import numpy as np

    from headgate.catalog import Column, TableDef
    from headgate.columns import TableCodec
    from headgate.errors import HeadgateError
    from headgate.kernels import NULL, RowBlock

    shape = (1, 1)
    cells = np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.full(shape, NULL, np.uint8)
    block = RowBlock(np.zeros(8, np.uint8), *cells, 1)
    plain = "tinyint smallint mediumint int bigint float double year date json geometry blob varbinary binary"
    columns = [Column("c", kind, length=4 if kind.endswith("binary") else 0) for kind in plain.split()]
    columns += [Column("c", kind, unsigned=True) for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")]
    columns += [Column("c", kind, scale=scale) for kind in ("datetime", "timestamp", "time") for scale in (0, 6)]
    columns += [Column("c", "decimal", precision=digits, scale=2) for digits in (10, 30, 50)]
    columns += [Column("c", "varchar", length=4, charset=charset) for charset in ("utf8mb4", "latin1", "ascii")]
    columns += [Column("c", kind, charset="utf8mb4", members=("a", "b")) for kind in ("enum", "set")]
    columns.append(Column("c", "bit", precision=8))
    for column in columns:
        codec = TableCodec(TableDef("d", "t", (column,)))
        for read in (codec.from_text, codec.from_log):
            with suppress(HeadgateError):
                read(block)


def _stamp(*, all_types: bool) -> Path:
    """Return the file that says so: another one for each version of the code, of numba and of Python."""
    from importlib.metadata import version

    from headgate.files import cache_folder

    here = Path(__file__).parent
    files = sorted(file for room in _COMPILED for file in (here / room).glob("*.py"))
    parts = [version("numba"), sys.version, str(all_types)]
    parts += [f"{file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    folder = os.environ.get("NUMBA_CACHE_DIR") or cache_folder("numba")
    return Path(folder, f"compiled-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}")
