"""Modules that Spark's Python processes need, and the kernels that they call. The fork server loads them once for all
(``headgate.engine``).

A run names the function before it loads any room, because Spark starts meanwhile.

numba compiles a kernel at its first call and stores it. :func:`compile_kernels` does this before: those that read the
log and the results of queries by empty pieces, those of a column type by rows of NULL, those of keys by a key. numba
compiles for types, and a kernel that reads an array that may be written is another one than of an array that may not.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.binlog import Scanner

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


_COMPILED: Final = ("binlog", "columns", "compare", "delta", "kernels", "mysql", "replication")
"""Rooms with these kernels."""


def are_compiled(*, all_types: bool = False) -> bool:
    """Return whether :func:`compile_kernels` has stored the kernels of this version of the code."""
    return _stamp(all_types=all_types).exists()


def compile_kernels(*, all_types: bool = False) -> None:
    """Compile the kernels that read the log and find keys, or load stored ones.

    :param all_types: also those of all column types, and those that ``verify`` needs; else of numbers and texts.
    :raises ConfigError: they cannot be stored; StorageError likewise.
    """
    import numpy as np

    from headgate.binlog import Framer, GtidFilter, Scanner, Segment
    from headgate.files import file_errors, write_text

    no_bytes, none = np.zeros(16, np.uint8), np.zeros(0, np.int64)
    Framer().next(no_bytes, 0, 0)
    scanner = Scanner(GtidFilter.build(np.zeros((0, 16), np.uint8), none, none, inside=True))
    scanner.scan(Segment("", no_bytes, none, none, none, none))
    _rows_of_the_log(scanner)
    _rows_of_a_result()
    _first_row()
    _keys()
    _columns(all_types=all_types)
    if all_types:
        _digests()
    stamp = _stamp(all_types=all_types)
    with file_errors(f"{stamp} cannot be written (XDG_CACHE_HOME chooses another folder than ~/.cache)"):
        write_text(stamp, "")
        if all_types:
            write_text(_stamp(all_types=False), "")


def _rows_of_the_log(scanner: Scanner) -> None:
    """Walk the row images that a scanner has met: none."""
    import numpy as np

    from headgate.binlog import R_TXN, RowWalker, assign_ordinals, codes, locate_rows, note_counts
    from headgate.replication import gtid_array

    events, transactions = scanner.row_events(), scanner.transactions()
    events = events._replace(table=np.zeros((len(events.table), 2), np.int64)[:, :1])  # a part of a table, as always
    no_bytes, which, counts = np.zeros(16, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    walker = RowWalker([codes.T_LONG], [0], key=[0], keys_only=True)
    walker.count(no_bytes, events, which, counts)
    walked = walker.walk(no_bytes, events, which, walker.start())
    note_counts(walked, counts)
    starts, _ = assign_ordinals(events.table[R_TXN], counts, 0)
    gtid_array(transactions, scanner.tags, locate_rows(walked, events, starts, transactions.commit_us).txn)


def _rows_of_a_result() -> None:
    """Walk a result that has not arrived."""
    import numpy as np

    shape = (1, 1)
    cells = np.empty(shape, np.int64), np.empty(shape, np.int32), np.empty(shape, np.uint8)
    importlib.import_module("headgate.mysql._walk").walk(np.zeros(16, np.uint8), 0, 0, 0, *cells, 0)


def _keys() -> None:
    """Look up a number, and a key of several columns, in indexes in memory and in files."""
    import numpy as np
    import pyarrow as pa

    from headgate.delta import keys_of

    index = importlib.import_module("headgate.delta._index").KeyIndex
    rows = pa.array([0], pa.uint32())
    fixed, text = pa.py_buffer(b"a"), pa.array(["a"])
    not_writable = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, 1])), fixed])
    number = keys_of([pa.array([1], pa.int64())])
    several = keys_of([pa.array([1], pa.int64()), pa.array([1], pa.int32()), text, not_writable])
    for keys in number, several:
        stored = [
            pa.py_buffer(part.tobytes()) for part in (keys.ascending, keys.offsets, keys.data) if part is not None
        ]
        values = pa.Array.from_buffers(pa.int64() if len(stored) == 1 else pa.uint64(), 1, [None, stored[0]])
        whole = [pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, *stored[1:]])] if stored[1:] else []
        columns = [values, rows, *whole]
        index.of(pa.table(columns, [str(number) for number in range(len(columns))])).find(keys)
        index(keys.ascending, np.zeros(1, np.uint32), keys.offsets, keys.data).find(keys)


def _digests() -> None:
    """Put a row into a bucket."""
    import pyarrow as pa

    digests = importlib.import_module("headgate.compare._digests")
    columns = [pa.array([1], pa.int64()), pa.array(["a"]), pa.array([1.0]), pa.array([b"a"])]
    rows = digests.RowDigests([column.type for column in columns], digests.draw_key())(columns, 1)
    importlib.import_module("headgate.compare._buckets").Buckets(64).add(rows, rows)


def _columns(*, all_types: bool) -> None:
    """Decode rows of NULL, from a result and from the log: of numbers and texts, or of all types."""
    import numpy as np

    from headgate.catalog import Column, TableDef
    from headgate.columns import TableCodec
    from headgate.errors import HeadgateError
    from headgate.kernels import NULL, RowBlock

    shape = (1, 2)  # a part of one row's output is contiguous, one of several rows' is not: that is another type
    cells = np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.full(shape, NULL, np.uint8)
    block = RowBlock(np.zeros(8, np.uint8), *cells, 2)
    plain = "tinyint smallint mediumint int bigint float double year date json geometry blob varbinary binary"
    columns = [Column("c", kind, length=4 if kind.endswith("binary") else 0) for kind in plain.split()]
    columns += [Column("c", kind, unsigned=True) for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")]
    columns += [Column("c", kind, scale=scale) for kind in ("datetime", "timestamp", "time") for scale in (0, 6)]
    columns += [Column("c", "decimal", precision=digits, scale=2) for digits in (10, 30, 50)]
    columns += [Column("c", "varchar", length=4, charset=charset) for charset in ("utf8mb4", "latin1", "ascii")]
    columns += [Column("c", kind, charset="utf8mb4", members=("a", "b")) for kind in ("enum", "set")]
    columns.append(Column("c", "bit", precision=8))
    often = [column for column in columns if column.type in ("int", "bigint") or column.charset == "utf8mb4"]
    for column in columns if all_types else often:
        codec = TableCodec(TableDef("d", "t", (column,)))
        for read in (codec.from_text, codec.from_log):
            with suppress(HeadgateError):
                read(block)


def _stamp(*, all_types: bool) -> Path:
    """Return the file that says so: another one for each version of the code, of numba and of Python."""
    from importlib.metadata import version

    from headgate.files import kernel_cache

    here = Path(__file__).parent
    files = sorted(file for room in _COMPILED for file in (here / room).glob("*.py"))
    parts = [version("numba"), sys.version, str(all_types)]
    parts += [f"{file.stat().st_mtime_ns} {file.stat().st_size}" for file in files]
    return Path(kernel_cache(), f"compiled-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}")
