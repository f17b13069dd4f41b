"""How fast the codecs are: ``python -m benchmarks.columns [--rows N] [--json]``.

The walk is left out: synthetic blocks of the table ``orders`` (eight columns) are built once, as the walks
of the log and of a result set would note them, and decoded again and again on one core. Figures are rows a second over
all eight columns, and nanoseconds a cell for each column. The best of several rounds counts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec
from headgate.kernels import RowBlock

ROWS = 16384
"""A block should fit the second-level cache, because every column's codec goes over it."""
ROUNDS = 15

ORDERS = TableDef(
    "bench",
    "orders",
    (
        Column("id", "bigint", nullable=False),
        Column("customer_id", "int"),
        Column("status", "varchar", length=64, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        Column("amount", "decimal", precision=12, scale=2),
        Column("note", "varchar", length=400, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        Column("created_at", "datetime", scale=3),
        Column("updated_at", "timestamp"),
        Column("flag", "tinyint"),
    ),
    (0,),
)
_STATUSES = ("new", "paid", "shipped", "delivered", "cancelled")
_EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def orders(rows: int) -> list[tuple[int, int, str, int, str | None, dt.datetime, int, int]]:
    """Values of the table; the amount in cents, the timestamp in seconds; one note in twenty is NULL."""
    random_ = random.Random(7)
    return [
        (
            number,
            random_.randrange(1, 100_000),
            random_.choice(_STATUSES),
            random_.randrange(-(10**6), 10**9),
            None if number % 20 == 0 else "note " * random_.randrange(1, 9),
            _EPOCH + dt.timedelta(milliseconds=random_.randrange(10**10)),
            1_700_000_000 + random_.randrange(10**7),
            random_.randrange(2),
        )
        for number in range(1, rows + 1)
    ]


def log_cells(row: tuple[int, int, str, int, str | None, dt.datetime, int, int]) -> tuple[bytes | None, ...]:
    """One row's values as they stand in a row image."""
    number, customer, status, cents, note, created, updated, flag = row
    whole, part = divmod(abs(cents), 100)
    amount = (whole // 10**9).to_bytes(1, "big") + (whole % 10**9).to_bytes(4, "big") + part.to_bytes(1, "big")
    mask = 0 if cents >= 0 else 0xFF
    amount = bytes([amount[0] ^ 0x80 ^ mask]) + bytes(byte ^ mask for byte in amount[1:])
    date = (created.year * 13 + created.month) << 5 | created.day
    packed = date << 17 | created.hour << 12 | created.minute << 6 | created.second
    return (
        number.to_bytes(8, "little"),
        customer.to_bytes(4, "little"),
        status.encode(),
        amount,
        None if note is None else note.encode(),
        (packed + 0x8000000000).to_bytes(5, "big") + (created.microsecond // 100).to_bytes(2, "big"),
        updated.to_bytes(4, "big"),
        flag.to_bytes(1, "little"),
    )


def text_cells(row: tuple[int, int, str, int, str | None, dt.datetime, int, int]) -> tuple[bytes | None, ...]:
    """One row's values as a result set has them."""
    number, customer, status, cents, note, created, updated, flag = row
    amount = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"
    stamp = dt.datetime.fromtimestamp(updated, dt.UTC)
    texts = (
        number,
        customer,
        status,
        amount,
        note,
        f"{created:%F %T}.{created.microsecond // 1000:03d}",
        f"{stamp:%F %T}",
        flag,
    )
    return tuple(None if text is None else str(text).encode() for text in texts)


def block(rows: Sequence[tuple[bytes | None, ...]]) -> RowBlock:
    """A block whose values lie row by row, with a byte of something else before each."""
    columns = len(rows[0])
    buf = bytearray()
    offset = np.zeros((columns, len(rows)), np.int64)
    length = np.zeros((columns, len(rows)), np.int32)
    valid = np.zeros((columns, len(rows)), np.uint8)
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            buf.append(0xFB)
            if value is not None:
                offset[c, r], length[c, r], valid[c, r] = len(buf), len(value), 1
                buf += value
    return RowBlock(np.frombuffer(buf, np.uint8), offset, length, valid, len(rows))


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest round, after one that compiles."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(rows: int) -> dict[str, object]:
    """Both roads; they must agree before they are timed."""
    values = orders(rows)
    codec = TableCodec(ORDERS)
    log, text = block([log_cells(row) for row in values]), block([text_cells(row) for row in values])
    for field, ours, theirs in zip(codec.fields, codec.from_log(log), codec.from_text(text), strict=True):
        assert ours.equals(theirs), field.name
    roads = {"log": (codec.from_log, log), "text": (codec.from_text, text)}
    result: dict[str, object] = {"rows": rows}
    for name, (decode, cells) in roads.items():
        result[f"{name}_rows_per_second"] = round(rows / best(partial(decode, cells)))
        result[f"{name}_ns_per_cell"] = {
            column.name: round(best(partial(decode, cells, columns=[index])) / rows * 1e9, 1)
            for index, column in enumerate(ORDERS.columns)
        }
    return result


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    result = measure(arguments.rows)
    if arguments.json:
        print(json.dumps(result))
        return
    for road in ("log", "text"):
        print(f"{road:5} {result[f'{road}_rows_per_second']:>12,} rows/s   ns a cell: ", end="")
        cells = result[f"{road}_ns_per_cell"]
        assert isinstance(cells, dict)
        print("  ".join(f"{name} {value}" for name, value in cells.items()))


if __name__ == "__main__":
    main()
