"""Scanning and walking: transactions and cells out of made-up logs, damaged ones included."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.binlog import (
    R_SLOT,
    R_TXN,
    Framer,
    GtidFilter,
    RowWalker,
    Scanner,
    Segment,
    assign_ordinals,
    codes,
    note_counts,
    parse_table_map,
)
from headgate.errors import DecodeError, HeadgateError
from headgate.gtid import GtidSet
from headgate.kernels import ABSENT, NULL, VALUE
from headgate_testing._binlog import BinlogWriter, packets

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "ffffffff-71ca-11e1-9e33-c80aa9429562"
TYPES = [codes.T_LONGLONG, codes.T_VARCHAR, codes.T_TINY]
METAS = b"\xff\x00"


def image(key: int, name: bytes | None, flag: int | None = 0) -> bytes:
    nulls = (2 if name is None else 0) | (4 if flag is None else 0)
    out = bytes([nulls]) + struct.pack("<q", key)
    if name is not None:
        out += bytes([len(name)]) + name
    return out + (bytes([flag]) if flag is not None else b"")


def segments(log: list[bytes]) -> list[Segment]:
    framer, start = Framer(), 0
    out: list[Segment] = []
    buf = np.frombuffer(packets(log), np.uint8).copy()
    while True:
        item, start = framer.next(buf, start, len(buf))
        if item is None:
            return out
        if isinstance(item, Segment):
            out.append(Segment(item.file, item.buf, *(np.array(a) for a in item[2:])))


def wanted(text: str, *, inside: bool = True) -> GtidFilter:
    sid, first, last = GtidSet.parse(text).as_arrays()
    return GtidFilter.build(sid, first, last, inside=inside)


def scan_all(scanner: Scanner, segment: Segment) -> list[tuple[int, int]]:
    """Scan to the end, settling table maps with one slot per table id; other stops are returned and passed."""
    first, stops = 0, []
    while (stop := scanner.scan(segment, first)) is not None:
        body = segment.buf[
            int(segment.start[stop.event_index]) + codes.HEADER_SIZE : int(segment.end[stop.event_index])
        ].tobytes()
        if stop.kind == codes.TABLE_MAP:
            table = parse_table_map(body)
            scanner.register_table(table.table_id, body[8:], table.table_id)
            first = stop.event_index
        else:
            stops.append((stop.event_index, stop.kind))
            first = stop.event_index + 1
    return stops


def transaction(
    writer: BinlogWriter, number: int, rows: Sequence[tuple[int, int, bytes]], uuid: str = UUID
) -> list[bytes]:
    """GTID, BEGIN, one table map and row event per entry (table id, kind, images), XID."""
    events = [writer.gtid(uuid, number), writer.query("BEGIN")]
    for table_id, kind, images in rows:
        events += [
            writer.table_map(table_id, "shop", f"t{table_id}", TYPES, METAS),
            writer.rows(kind, table_id, 3, images),
        ]
    return [*events, writer.xid()]


def test_transactions_and_their_rows() -> None:
    writer = BinlogWriter()
    log = [writer.rotate("binlog.000001"), writer.format_description()]
    log += transaction(writer, 1, [(5, codes.WRITE_ROWS, image(1, b"a")), (6, codes.DELETE_ROWS, image(2, b"b"))])
    log += transaction(writer, 2, [(5, codes.UPDATE_ROWS, image(1, b"a") + image(1, b"c"))])
    log += [writer.gtid(UUID, 3), writer.query("BEGIN")]
    scanner = Scanner(wanted(f"{UUID}:1-9"))
    (segment,) = segments(log)
    assert scan_all(scanner, segment) == []
    done = scanner.transactions()
    assert done.number.tolist() == [1, 2, 3]
    assert done.done.tolist() == [1, 1, 0]
    assert done.commit_us.tolist() == [1_700_000_000_000_000] * 3
    rows = scanner.row_events()
    assert rows.table[R_SLOT].tolist() == [5, 6, 5]
    assert rows.table[R_TXN].tolist() == [0, 0, 1]
    assert scanner.open
    scanner.clear()
    assert scanner.current == 0
    assert scanner.transactions().number.tolist() == [3]


def test_only_wanted_transactions_are_reported() -> None:
    writer = BinlogWriter()
    log = [writer.rotate("binlog.000001")]
    for number, uuid in itertools.product(range(1, 8), (UUID, OTHER)):
        log += transaction(writer, number, [(5, codes.WRITE_ROWS, image(number, b"x"))], uuid)
    (segment,) = segments(log)
    scanner = Scanner(wanted(f"{UUID}:2-3:6,{OTHER}:7"))
    scan_all(scanner, segment)
    assert scanner.transactions().number.tolist() == [2, 3, 6, 7]
    rest = Scanner(wanted(f"{UUID}:2-3:6,{OTHER}:7", inside=False))
    scan_all(rest, segment)
    assert len(rest.transactions().number) == 10


@settings(max_examples=200)
@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.booleans())
def test_the_filter_agrees_with_the_set(mine: set[int], theirs: set[int], inside: bool) -> None:
    text = ",".join(f"{u}:" + ":".join(map(str, sorted(s))) for u, s in ((UUID, mine), (OTHER, theirs)) if s)
    writer = BinlogWriter()
    log = [writer.rotate("b.1")]
    for number in range(1, 41):
        log += [writer.gtid(UUID if number % 2 else OTHER, number), writer.xid()]
    (segment,) = segments(log)
    scanner = Scanner(wanted(text, inside=inside))
    scanner.scan(segment)
    expected = [n for n in range(1, 41) if (n in (mine if n % 2 else theirs)) == inside]
    assert scanner.transactions().number.tolist() == expected


def test_statements_stop_the_scan_and_commit_ends_it() -> None:
    writer = BinlogWriter()
    log = [writer.rotate("b.1"), writer.gtid(UUID, 1), writer.query("ALTER TABLE t ADD x INT", "shop")]
    log += [writer.gtid(UUID, 2), writer.query("BEGIN"), writer.query("COMMIT")]
    (segment,) = segments(log)
    scanner = Scanner(wanted(f"{UUID}:1-9"))
    stop = scanner.scan(segment)
    assert stop is not None
    assert stop.kind == codes.QUERY
    assert not scanner.has_explicit_begin
    scanner.end_transaction(123)
    assert scanner.next_pos == 123
    assert scanner.scan(segment, stop.event_index + 1) is None
    assert scanner.transactions().done.tolist() == [1, 1]


@pytest.mark.parametrize("case", ["open", "outside", "unmapped"])
def test_events_that_do_not_fit_together_are_errors(case: str) -> None:
    writer = BinlogWriter()
    log = [writer.rotate("b.1"), writer.gtid(UUID, 1), writer.query("BEGIN")]
    rows = writer.rows(codes.WRITE_ROWS, 5, 3, image(1, b"x"))
    log += {"open": [writer.gtid(UUID, 2)], "outside": [writer.xid(), rows], "unmapped": [rows]}[case]
    (segment,) = segments(log)
    scanner = Scanner(wanted(f"{UUID}:1-9"))
    with pytest.raises(DecodeError) as caught:
        scanner.scan(segment)
    assert caught.value.pos is not None


def test_a_table_id_may_come_back_with_another_definition() -> None:
    writer = BinlogWriter()
    log = [writer.rotate("b.1"), *transaction(writer, 1, [(5, codes.WRITE_ROWS, image(1, b"x"))])]
    log += [writer.gtid(UUID, 2), writer.query("BEGIN"), writer.table_map(5, "shop", "other", [codes.T_LONG], b"")]
    (segment,) = segments(log)
    scanner = Scanner(wanted(f"{UUID}:1-9"))
    stop = scanner.scan(segment)
    assert stop is not None
    scanner.register_table(
        5, segment.buf[int(segment.start[stop.event_index]) + 27 : int(segment.end[stop.event_index])].tobytes(), 0
    )
    second = scanner.scan(segment, stop.event_index)
    assert second is not None
    assert second.kind == codes.TABLE_MAP


def test_thousands_of_tables_are_found_again() -> None:
    writer = BinlogWriter()
    log = [writer.rotate("b.1")]
    for number in range(1, 1001):
        log += transaction(writer, number, [(number * 7919, codes.WRITE_ROWS, image(number, b"x"))])
    for number in range(1001, 2001):
        log += transaction(writer, number, [((number - 1000) * 7919, codes.WRITE_ROWS, image(number, b"x"))])
    scanner, slots = Scanner(wanted(f"{UUID}:1-9999")), []
    for segment in segments(log):
        scan_all(scanner, segment)
        slots += scanner.row_events().table[R_SLOT].tolist()
        scanner.clear()
    assert slots == [n * 7919 for n in range(1, 1001)] * 2


# --- walking ------------------------------------------------------------------------------------------------------


def walked(
    kind: int, images: bytes, *, keys_only: bool = False, bitmap: bytes | None = None, bitmap2: bytes | None = None
) -> list[Any]:
    """(op, change, cells) of each row; a cell is bytes, None or "absent"."""
    writer = BinlogWriter()
    log = [
        writer.rotate("b.1"),
        writer.gtid(UUID, 1),
        writer.query("BEGIN"),
        writer.table_map(5, "s", "t", TYPES, METAS),
    ]
    log += [writer.rows(kind, 5, 3, images, bitmap=bitmap, bitmap2=bitmap2), writer.xid()]
    (segment,) = segments(log)
    scanner = Scanner(wanted(f"{UUID}:1"))
    scan_all(scanner, segment)
    walker = RowWalker(TYPES, [0, 255, 0], key=(0,), keys_only=keys_only)
    events = scanner.row_events()
    counts = np.zeros(1, np.int64)
    walker.count(segment.buf, events, np.array([0]), counts)
    cursor, out = walker.start(), []
    while cursor[0] < 1:
        block = walker.walk(segment.buf, events, np.array([0]), cursor)
        noted = np.zeros(1, np.int64)
        note_counts(block, noted)
        for row in range(block.block.rows):
            cells: list[Any] = []
            for column in range(3):
                cell = block.block.column(column)
                start, size = int(cell.offset[row]), int(cell.length[row])
                cells.append(
                    {VALUE: segment.buf[start : start + size].tobytes(), NULL: None, ABSENT: "absent"}[
                        int(cell.valid[row])
                    ]
                )
            out.append((chr(block.op[row]), int(block.change[row]), cells))
    assert int(counts[0]) == int(noted[0]) == len({row[1] for row in out})
    return out


def test_inserts() -> None:
    rows = walked(codes.WRITE_ROWS, image(1, b"a", 3) + image(2, None, None))
    assert rows == [("c", 0, [struct.pack("<q", 1), b"a", b"\x03"]), ("c", 1, [struct.pack("<q", 2), None, None])]


@pytest.mark.parametrize("kind", [codes.UPDATE_ROWS, codes.UPDATE_ROWS_V1])
def test_updates_give_two_rows(kind: int) -> None:
    rows = walked(kind, image(1, b"a") + image(1, b"b") + image(2, b"c") + image(3, b"c"))
    assert [(op, change) for op, change, _ in rows] == [("b", 0), ("u", 0), ("b", 1), ("u", 1)]
    assert [cells[1] for _, _, cells in rows] == [b"a", b"b", b"c", b"c"]


def test_before_images_of_unchanged_keys_can_be_left_out() -> None:
    rows = walked(codes.UPDATE_ROWS, image(1, b"a") + image(1, b"b") + image(2, b"c") + image(3, b"d"), keys_only=True)
    assert [(op, change, cells[1]) for op, change, cells in rows] == [("u", 0, b"b"), ("b", 1, b"c"), ("u", 1, b"d")]


def test_partial_images() -> None:
    rows = walked(codes.UPDATE_ROWS, b"\0" + struct.pack("<q", 1) + b"\0" + b"\x01b", bitmap=b"\x01", bitmap2=b"\x02")
    key = struct.pack("<q", 1)
    assert [cells for _, _, cells in rows] == [[key, "absent", "absent"], [key, b"b", "absent"]]


def test_what_an_after_image_leaves_out_was_not_changed() -> None:
    """A key that changed stands in the after-image itself; whatever else the before-image has is copied."""
    one, two = struct.pack("<q", 1), struct.pack("<q", 2)
    rows = walked(
        codes.UPDATE_ROWS, b"\0" + one + b"\x01a" + b"\0" + two, bitmap=b"\x03", bitmap2=b"\x01", keys_only=True
    )
    assert [(op, cells) for op, _, cells in rows] == [("b", [one, b"a", "absent"]), ("u", [two, b"a", "absent"])]
    rows = walked(codes.UPDATE_ROWS, b"\0" + one + b"\1", bitmap=b"\x01", bitmap2=b"\x04", keys_only=True)
    assert [(op, cells) for op, _, cells in rows] == [("u", [one, "absent", None])]


JSON_TYPES = [codes.T_LONGLONG, codes.T_JSON, codes.T_JSON]


def json_image(key: int | None, *documents: bytes | None, options: bytes = b"") -> bytes:
    """An image of a key and as many JSON cells as there are documents; None is NULL."""
    first = 0 if key is None else 1
    nulls = sum(1 << (first + i) for i, one in enumerate(documents) if one is None)
    cells = b"".join(struct.pack("<I", len(one)) + one for one in documents if one is not None)
    return options + bytes([nulls]) + (b"" if key is None else struct.pack("<q", key)) + cells


def json_walk(images: bytes, *, keys_only: bool, **bitmaps: bytes) -> list[Any]:
    """``(op, cells, differences)`` of each row; a difference is ``(column, base)``."""
    writer = BinlogWriter()
    table_map = writer.table_map(5, "s", "t", JSON_TYPES, b"\4\4")
    rows = writer.rows(codes.PARTIAL_UPDATE_ROWS, 5, 3, images, **bitmaps)
    (segment,) = segments([writer.rotate("b.1"), writer.gtid(UUID, 1), writer.query("BEGIN"), table_map, rows])
    scanner = Scanner(wanted(f"{UUID}:1"))
    assert scan_all(scanner, segment) == []
    walker, counts = RowWalker(JSON_TYPES, [0, 4, 4], key=(0,), keys_only=keys_only), np.zeros(1, np.int64)
    walker.count(segment.buf, scanner.row_events(), np.array([0]), counts)
    result = walker.walk(segment.buf, scanner.row_events(), np.array([0]), walker.start())

    def value(start: int, size: int, valid: int) -> Any:
        return {VALUE: segment.buf[start : start + size].tobytes(), NULL: None, ABSENT: "absent"}[valid]

    out = []
    for row in range(result.block.rows):
        cells = [result.block.column(column) for column in range(1, 3)]
        values = [value(int(c.offset[row]), int(c.length[row]), int(c.valid[row])) for c in cells]
        noted = [(d[1], value(d[2], d[3], d[4])) for d in result.differences.T.tolist() if d[0] == row]
        out.append((chr(result.op[row]), values, noted))
    assert int(counts[0]) == sum(op == "u" for op, _, _ in out)
    return out


@pytest.mark.parametrize("keys_only", [False, True])
def test_json_differences_are_noted_with_what_they_differ_from(keys_only: bool) -> None:
    """The second document of the first row, the first of the second; an empty list is the value before."""
    images = json_image(1, b"one", b"two") + json_image(1, b"ONE", b"diff", options=b"\1\2")
    images += json_image(2, b"three", None) + json_image(3, b"", None, options=b"\1\1")
    images += json_image(4, b"x", b"y") + json_image(4, b"X", b"Y", options=b"\0")
    rows = json_walk(images, keys_only=keys_only)
    assert [row for row in rows if row[0] == "u"] == [
        ("u", [b"ONE", b"diff"], [(2, b"two")]), ("u", [b"three", None], []), ("u", [b"X", b"Y"], []),
    ]  # fmt: skip
    before: list[Any] = [("b", [b"one", b"two"], []), ("b", [b"three", None], []), ("b", [b"x", b"y"], [])]
    assert [row for row in rows if row[0] == "b"] == (before[1:2] if keys_only else before)


def test_every_json_column_of_the_table_has_a_bit() -> None:
    images = json_image(1) + json_image(None, b"diff", options=b"\1\2")
    rows = json_walk(images, keys_only=True, bitmap=b"\1", bitmap2=b"\4")
    assert rows == [("u", ["absent", b"diff"], [(2, "absent")])]


@pytest.mark.parametrize(("options", "message"), [(b"\2", "options"), (b"\1", "does not fit"), (b"", "does not fit")])
def test_options_that_are_not_known_or_cut_short_are_refused(options: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        json_walk(json_image(1, None, None) + options, keys_only=False)


@pytest.mark.parametrize("cut", range(1, 12))
def test_images_that_do_not_fit_their_event_are_refused(cut: int) -> None:
    whole = image(1, b"a", 3)
    if cut < len(whole):
        with pytest.raises(ValueError, match="does not fit"):
            walked(codes.WRITE_ROWS, whole + whole[:cut])


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1), st.none() | st.binary(max_size=250), st.none() | st.integers(0, 255)
        ),
        min_size=1,
        max_size=50,
    )
)
def test_what_was_encoded_is_walked(rows: list[tuple[int, bytes | None, int | None]]) -> None:
    actual = walked(codes.DELETE_ROWS, b"".join(image(*row) for row in rows))
    expected = [[struct.pack("<q", k), n, None if f is None else bytes([f])] for k, n, f in rows]
    assert [cells for _, _, cells in actual] == expected


@settings(max_examples=300)
@given(st.data())
def test_damaged_logs_give_rows_or_our_error(data: st.DataObject) -> None:
    """Without checksums, so that the damage reaches the scanner and the walk. What lies behind the data is not read."""
    writer = BinlogWriter(checksums=False)
    rows = image(1, b"abc") + image(2, None, None)
    log = transaction(writer, 1, [(5, codes.WRITE_ROWS, rows), (5, codes.UPDATE_ROWS, rows)])
    stream = bytearray(packets(log))
    for _ in range(data.draw(st.integers(1, 5))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    assert walked_with(bytes(stream), b"\xee" * 64) == walked_with(bytes(stream), b"\x01" * 64)


def test_a_row_without_columns_is_refused() -> None:
    """``INSERT INTO t () VALUES ()`` with binlog_row_image=MINIMAL would have no bytes, as would two such rows."""
    with pytest.raises(ValueError, match="does not fit"):
        walked(codes.WRITE_ROWS, b"", bitmap=b"\0")


def walked_with(stream: bytes, canary: bytes) -> tuple[list[Any], str]:
    """What a walk gives of a stream in a buffer with other bytes around it: the cells of each block, and the error.

    The canary before it stays as it is, and so does the one behind.
    """
    around = np.frombuffer(canary + stream + canary, np.uint8).copy()
    walked = walk_all(around[len(canary) :], len(stream))
    assert around[: len(canary)].tobytes() == around[len(canary) + len(stream) :].tobytes() == canary
    return walked


def walk_all(buf: np.ndarray[Any, Any], size: int) -> tuple[list[Any], str]:
    framer, scanner, start = Framer(checksums=False), Scanner(wanted(f"{UUID}:1-9")), 0
    walker = RowWalker(TYPES, [0, 255, 0], key=(0,))
    cells: list[Any] = []
    try:
        while True:
            item, start = framer.next(buf, start, size)
            if item is None:
                return cells, ""
            if not isinstance(item, Segment):
                continue
            scan_all(scanner, item)
            events = scanner.row_events()
            which, cursor = np.arange(events.events), walker.start()
            while cursor[0] < len(which):
                block = walker.walk(item.buf, events, which, cursor).block
                ends = block.offset[:, : block.rows] + block.length[:, : block.rows]
                assert (ends <= size).all() or item.buf is not buf
                assert (ends <= len(item.buf)).all()
                cells += [
                    block.buf[begin:end].tobytes()
                    for begin, end in zip(block.offset[:, : block.rows].flat, ends.flat, strict=True)
                ]
            scanner.clear()
    except (HeadgateError, ValueError) as error:
        return cells, str(error)


def test_ordinals_count_over_events_and_scans() -> None:
    txn = np.array([0, 0, 1, 1, 2], np.int64)
    counts = np.array([3, 2, 4, 1, 1], np.int64)
    starts, counted = assign_ordinals(txn, counts, 10)
    assert starts.tolist() == [10, 13, 0, 4, 0]
    assert counted == 1
