"""What ``headgate prefetch`` compiles is what a run and a comparison call."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import headgate
from headgate.binlog import codes
from headgate.catalog import TablePatterns
from headgate.delta import _index, keys_of
from headgate.gtid import GtidSet
from headgate.preload import compile_kernels
from headgate.replication import DecodeOptions, LogBlock, LogDecoder
from headgate_testing._binlog import packed
from tests.replication.written import UUID, WrittenLog

_ROOMS = ("binlog", "columns", "compare", "delta", "kernels", "mysql", "replication")


def overloads() -> dict[str, int]:
    """Each compiled function of these rooms that is loaded, and for how many combinations of types it is."""
    number_of = {}
    for room in _ROOMS:
        package = importlib.import_module(f"headgate.{room}")
        for one in pkgutil.iter_modules(package.__path__, f"headgate.{room}."):
            module = sys.modules.get(one.name)
            for name, value in vars(module).items() if module is not None else ():
                if hasattr(value, "py_func"):
                    number_of[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return number_of


def decode_a_log() -> None:
    """An insert, an update and a delete of a table with a number and a text, in a stream's buffer."""
    log = WrittenLog()
    names = packed(4) + packed(4) + packed(1) + b"i" + packed(1) + b"t"
    charset = packed(2) + packed(1) + packed(45)
    key = packed(8) + packed(1) + packed(0)
    row, other = b"\0" + (1).to_bytes(4, "little") + b"\1a", b"\0" + (1).to_bytes(4, "little") + b"\1b"
    log.begin()
    for kind, images in ((codes.WRITE_ROWS, row), (codes.UPDATE_ROWS, row + other), (codes.DELETE_ROWS, other)):
        types = [codes.T_LONG, codes.T_VARCHAR]
        optional = names + charset + key
        log.events.append(log.writer.table_map(1, "d", "t", types, (80).to_bytes(2, "little"), optional=optional))
        log.events.append(log.writer.rows(kind, 1, 2, images))
    log.end()
    decoder = LogDecoder(GtidSet.parse(f"{UUID}:1-9"), DecodeOptions(TablePatterns(["d.*"])))
    rows = [
        image.batch.num_rows for item in log.decoded(decoder) if isinstance(item, LogBlock) for image in item.images
    ]
    assert sum(rows) == 4


def read_a_result() -> None:
    from tests.mysql.test_result import FakeConnection, blocks, result

    (block,) = blocks(FakeConnection(result(2, [(b"1", b"a"), (b"2", None)])))
    assert block.rows == 2


def look_keys_up() -> None:
    for columns in ([pa.array([5, 7], pa.int64())], [pa.array([5, 7], pa.int32()), pa.array(["x", "y"])]):
        keys = keys_of(columns)
        parts = [pa.array(keys.ascending), pa.array(keys.order.astype(np.uint32))]
        if keys.data is not None:
            sizes, data = pa.py_buffer(keys.offsets.tobytes()), pa.py_buffer(keys.data.tobytes())
            parts.append(pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2, [None, sizes, data]))
        index = _index.KeyIndex.of(pa.table(parts, [str(number) for number in range(len(parts))]))
        assert len(index.find(keys)[0]) == 2


WORK: tuple[Callable[[], None], ...] = (decode_a_log, read_a_result, look_keys_up)


def compare_overloads() -> None:
    """Print the kernels that the work compiles or loads although all were to be there."""
    compile_kernels()
    before = overloads()
    for work in WORK:
        work()
    after = overloads()
    print("\n".join(name for name, number in after.items() if number > before.get(name, 0)))


def test_a_run_compiles_nothing_in_its_first_batch() -> None:
    """All of it is compiled before, as the phase ``compiling`` or by ``headgate prefetch``."""
    script = "import tests.test_preload as one; one.compare_overloads()"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, [], "")


def test_columns_of_all_types_are_compiled_for_several_rows() -> None:
    """A column that is a part of a wider one has another layout as soon as it has two rows."""
    script = "import tests.test_preload as one; one.compare_types()"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, [], "")


def compare_types() -> None:
    """Print the kernels that columns of numbers of three rows still need."""
    from headgate.catalog import Column, TableDef
    from headgate.columns import TableCodec
    from headgate.kernels import RowBlock

    compile_kernels(all_types=True)
    before = overloads()
    cells = np.array([[0, 0, 0]], np.int64), np.ones((1, 3), np.int32), np.ones((1, 3), np.uint8)
    for kind, more in (("bigint", {"unsigned": True}), ("int", {}), ("bit", {"precision": 8})):
        column: Any = Column("c", kind, **more)
        TableCodec(TableDef("d", "t", (column,))).from_text(
            RowBlock(np.frombuffer(bytearray(b"1"), np.uint8), *cells, 3)
        )
    print("\n".join(name for name, number in overloads().items() if number > before.get(name, 0)))


def test_every_command_finds_the_kernels_that_a_run_has_compiled(tmp_path: Any) -> None:
    """Also one without Spark, which would otherwise compile all of them again, beside the code."""
    script = (
        "import os, sys; sys.argv = ['headgate', '--version']\n"
        "from headgate.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(os.environ['NUMBA_CACHE_DIR'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    for named, folder in ((None, tmp_path / "headgate" / "numba"), ("/elsewhere", "/elsewhere")):
        more = {"NUMBA_CACHE_DIR": named} if named else {}
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True,
            env={**environment, "XDG_CACHE_HOME": str(tmp_path), **more},
        )  # fmt: skip
        assert ran.stdout.split() == ["headgate", headgate.__version__, str(folder)]
