"""What a decoder does with keys that cannot be told from others, out of made-up logs."""

from __future__ import annotations

import struct

import pytest

from headgate.binlog import codes
from headgate.catalog import TablePatterns
from headgate.errors import AmbiguousKeyError, DecodeError
from headgate.gtid import GtidSet
from headgate.replication import DecodeOptions, LogBlock, LogDecoder, Stopped
from headgate_testing._binlog import packed
from tests.replication.written import UUID, WrittenLog

UJIS = 12  # ujis_japanese_ci
GOOD, ODD = b"\xa4\xa2", b"\xa1\xc0"


class Log(WrittenLog):
    """Two tables: ``d.odd`` with a key of character set ujis, and ``d.other`` with a number."""

    def odd(self, *keys: bytes) -> int:
        """Inserts into ``d.odd``; where the event begins."""
        field = packed(4) + packed(2) + packed(1) + b"k"
        optional = field + packed(2) + packed(1) + packed(UJIS) + packed(8) + packed(1) + packed(0)
        self.events.append(
            self.writer.table_map(1, "d", "odd", [codes.T_VARCHAR], struct.pack("<H", 90), optional=optional)
        )
        pos = self.writer.pos
        images = b"".join(b"\0" + bytes([len(key)]) + key for key in keys)
        self.events.append(self.writer.rows(codes.WRITE_ROWS, 1, 1, images))
        return pos

    def other(self, value: int) -> None:
        optional = packed(4) + packed(2) + packed(1) + b"v"
        self.events.append(self.writer.table_map(2, "d", "other", [codes.T_TINY], b"", optional=optional))
        self.events.append(self.writer.rows(codes.WRITE_ROWS, 2, 1, bytes([0, value])))

    def read(self, ambiguous: str, segments: int = 1) -> tuple[list[Stopped], dict[str, list[tuple[object, int]]]]:
        """What was stopped; of each table its values with the ordinals of their changes."""
        options = DecodeOptions(TablePatterns(["d.*"]), ambiguous=ambiguous)
        decoder = LogDecoder(GtidSet.parse(f"{UUID}:1-9"), options)
        stops, rows = [], dict[str, list[tuple[object, int]]]()
        for item in self.decoded(decoder, segments):
            if isinstance(item, Stopped):
                stops.append(item)
            elif isinstance(item, LogBlock):
                for image in item.images:
                    ordinals = image.batch.column(1).field("ordinal").to_pylist()
                    values = image.batch.column(image.batch.num_columns - 1).to_pylist()
                    rows.setdefault(image.table.name, []).extend(zip(values, ordinals, strict=True))
        assert decoder.received() == GtidSet.parse(f"{UUID}:1-{self.number}")
        return stops, rows


def made() -> tuple[Log, int]:
    log = Log()
    log.begin()
    log.odd(GOOD)
    log.end()
    log.begin()
    log.other(1)
    pos = log.odd(GOOD, ODD, GOOD)
    log.other(2)
    log.end()
    log.begin()
    log.odd(GOOD)
    log.other(3)
    log.end()
    return log, pos


@pytest.mark.parametrize("segments", [1, 2, 3, 7, 40])
def test_a_key_that_cannot_be_told_stops_its_table_and_no_other(segments: int) -> None:
    """Nothing of it comes from there on, and changes of other tables keep their numbers."""
    log, pos = made()
    stops, rows = log.read("stop", segments)
    assert rows["other"] == [(1, 0), (2, 4), (3, 1)]
    assert {value for value, _ in rows.get("odd", [])} <= {"あ"}
    assert len(rows.get("odd", [])) <= 1
    (stopped,) = stops
    assert (stopped.table, stopped.gtid, stopped.file, stopped.pos) == ("d.odd", f"{UUID}:2", "binlog.000001", pos)
    message = "must be: 0xa1c0 (2 bytes), in column k at binlog.000001:"
    assert f"{message}{pos}; change that value at the source" in stopped.reason
    assert stopped.reason.endswith("headgate run --resnapshot 'd.odd'")


def test_a_table_alone_in_a_piece_of_the_log_counts_its_changes_all_the_same() -> None:
    log = Log()
    log.begin()
    log.odd(GOOD, ODD, GOOD)
    log.other(1)
    log.end()
    for segments in range(1, 12):
        assert log.read("stop", segments)[1]["other"] == [(1, 3)]


def test_by_default_it_is_an_error() -> None:
    log, pos = made()
    with pytest.raises(AmbiguousKeyError) as caught:
        log.read("raise")
    assert (caught.value.table, caught.value.column, caught.value.file) == ("d.odd", "k", "binlog.000001")
    assert (caught.value.pos, caught.value.gtid) == (pos, f"{UUID}:2")


def test_a_damaged_event_of_the_only_table_is_told_with_its_place() -> None:
    log = Log()
    log.begin()
    optional = packed(4) + packed(2) + packed(1) + b"v"
    log.events.append(log.writer.table_map(2, "d", "other", [codes.T_LONG], b"", optional=optional))
    pos = log.writer.pos
    log.events.append(log.writer.rows(codes.WRITE_ROWS, 2, 1, bytes([0, 1, 2])))
    log.end()
    with pytest.raises(DecodeError, match="does not fit its event") as caught:
        log.read("raise")
    assert (caught.value.table, caught.value.pos) == ("d.other", pos)
    assert caught.value.file is not None
