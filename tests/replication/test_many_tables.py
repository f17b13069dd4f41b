"""A dump of more tables than a decoder remembers: all rows come, and what it remembers is bounded."""

from __future__ import annotations

import tracemalloc

import pytest

from headgate.binlog import TableMap, codes, parse_table_map
from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.replication import DecodeOptions, LogBlock, LogDecoder, _tables
from headgate_testing._binlog import packed
from tests.replication.written import UUID, WrittenLog

BOUND = _tables._MOST_MAPS
"""Table maps that a decoder remembers."""


class Log(WrittenLog):
    def announce(self, table_id: int, table: str) -> None:
        optional = packed(4) + packed(2) + packed(1) + b"v"
        self.events.append(self.writer.table_map(table_id, "d", table, [codes.T_LONG], b"", optional=optional))

    def insert(self, table_id: int, value: int) -> None:
        row = b"\0" + value.to_bytes(4, "little")
        self.events.append(self.writer.rows(codes.WRITE_ROWS, table_id, 1, row))

    def commit(self, table_id: int, table: str, value: int) -> None:
        self.begin()
        self.announce(table_id, table)
        self.insert(table_id, value)
        self.end()

    def read(self, decoder: LogDecoder, pieces: int) -> list[tuple[str, int]]:
        """Return tables and values of the rows."""
        return [
            (image.table.name, value)
            for item in self.decoded(decoder, pieces)
            if isinstance(item, LogBlock)
            for image in item.images
            for value in image.batch.column(image.batch.num_columns - 1).to_pylist()
        ]


def decoder_of(pattern: str = "d.*") -> LogDecoder:
    return LogDecoder(GtidSet.parse(f"{UUID}:1-1000000"), DecodeOptions(TablePatterns([pattern])))


@pytest.mark.parametrize("pieces", [1, 40])
def test_a_statement_of_two_tables_crosses_the_bound(pieces: int) -> None:
    """The second table is one more than are remembered, and the first one's rows come after its map."""
    log = Log()
    for number in range(BOUND - 1):
        log.commit(number, "a", number)
    log.begin()
    log.announce(BOUND, "a")
    log.announce(BOUND + 1, "b")
    log.insert(BOUND, 1)
    log.insert(BOUND + 1, 2)
    log.end()
    log.commit(BOUND, "a", 3)
    log.commit(BOUND + 2, "b", 4)
    rows = log.read(decoder_of(), pieces)
    assert [value for table, value in rows if table == "a"] == [*range(BOUND - 1), 1, 3]
    assert [value for table, value in rows if table == "b"] == [2, 4]


@pytest.mark.parametrize("pattern", ["d.*", "other.*"], ids=["followed", "not followed"])
def test_tables_of_ever_new_names_take_bounded_memory(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """Also if the same id announces them, as after restarts of the server."""
    monkeypatch.setattr(_tables, "_MOST_MAPS", 50)
    decoder, used = decoder_of(pattern), []
    tracemalloc.start()
    try:
        for start in range(0, 2000, 200):
            log = Log()
            log.number = start
            for number in range(start, start + 200):
                log.commit(number if start else 7, f"staging_{number}", number)
            rows = log.read(decoder, 20)
            assert rows == ([(f"staging_{n}", n) for n in range(start, start + 200)] if pattern == "d.*" else [])
            del log, rows
            used.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert used[-1] - used[1] < (512 << 10), used  # the rules' cache of tables grows to its limit, by 100 bytes each


def test_a_table_that_is_opened_again_keeps_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it has a new id; to read its map again takes half a millisecond."""
    monkeypatch.setattr(_tables, "_MOST_MAPS", 50)
    parsed = [0]

    def counted(event: bytes) -> TableMap:
        parsed[0] += 1
        return parse_table_map(event)

    monkeypatch.setattr(_tables, "parse_table_map", counted)
    log = Log()
    for number in range(500):
        log.commit(number, f"t{number % 20}", number)
    assert len(log.read(decoder_of(), 40)) == 500
    assert parsed[0] == 20
