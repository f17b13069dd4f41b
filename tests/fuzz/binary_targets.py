"""Decoders of bytes, with their compiled kernels: the log, cells, result sets, relay events, deletion vectors."""

from __future__ import annotations

import random
import struct
from typing import Any, cast

import numpy as np
import pyarrow as pa

from tests.fuzz.mutations import mutate
from tests.fuzz.targets import Place, Target, target


@target
def log() -> Target:
    """Packets of a dump through framer and decoder."""
    from headgate.binlog import EndOfLog, ErrorPacket, Framer, Segment
    from tests.fuzz.logs import damaged_log

    def run(case: bytes, place: Place) -> object:
        buf, framer, decoder, at, out = place(case), Framer(), _decoder(), 0, list[Any]()
        while True:
            item, at = framer.next(buf, at, len(buf))
            if item is None or isinstance(item, EndOfLog):
                return out
            if isinstance(item, Segment):
                out += [_shown(one) for one in decoder.decode(item)]
            elif isinstance(item, ErrorPacket):
                out.append(repr(item))
                return out
            else:
                decoder.advance_to(*item)

    return Target(damaged_log, run)


@target
def events() -> Target:
    """Each event of a dump alone in memory, so that a read beyond one shows, too."""
    from headgate.binlog import Framer, Segment, gtid_events
    from tests.fuzz.logs import damaged_log

    def run(case: bytes, place: Place) -> object:
        buf, framer, decoder, at, out = np.frombuffer(case, np.uint8), Framer(), _decoder(), 0, list[Any]()
        while True:
            item, at = framer.next(buf, at, len(buf))
            if not isinstance(item, Segment):
                if item is None or not hasattr(item, "pos"):
                    return out
                continue
            for start, end, pos, behind in zip(*(one.tolist() for one in item[2:]), strict=True):
                event = place(item.buf[start:end].tobytes())
                index = [np.array([n], np.int64) for n in (0, len(event), pos, behind)]
                segment = Segment(item.file, event, *index)
                out += [repr(one) for one in gtid_events(segment)]
                out += [_shown(one) for one in decoder.decode(segment)]

    return Target(damaged_log, run)


def _decoder() -> Any:
    from headgate.catalog import TablePatterns
    from headgate.gtid import GtidSet
    from headgate.replication import DecodeOptions, LogDecoder
    from tests.fuzz.logs import SID

    return LogDecoder(GtidSet.parse(f"{SID}:1-9:tag:1-9"), DecodeOptions(TablePatterns(["d.*"]), ambiguous="stop"))


def _shown(item: Any) -> object:
    from headgate.replication import LogBlock

    if not isinstance(item, LogBlock):
        return repr(item)
    return [(image.table.full_name, _text(image.batch)) for image in item.images]


def _text(batch: pa.RecordBatch) -> list[str]:
    batch.validate(full=True)
    return [column.to_string(window=50) for column in batch.columns]


@target
def cells() -> Target:
    """Cells of every column type, from the log and from result sets."""
    from headgate.columns import codec_for
    from headgate.kernels import RowBlock
    from headgate.policies import Policies
    from tests.columns.test_damaged import FORMS

    codecs = []
    for column, options in FORMS:
        more = dict(options)
        key = more.pop("key", False)
        codecs.append(codec_for(column, table="d.t", key=key, policies=Policies(**more)))
    texts = (b"0", b"-1", b"12.50", b"1e99", b"2024-05-06", b"0000-00-00", b"2024-05-06 07:08:09.123456", b"-838:59:59",
             b"a,bc", b"a", b"[1, 2]", b"\x00\x00\x00\x00\x01\x01\x00\x00\x00", b"9" * 70, "é中".encode())  # fmt: skip

    def make(rng: random.Random) -> bytes:
        values = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            if rng.random() < 0.5:
                values.append(bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 12, 30)))))
            else:
                values.append(mutate(rng, rng.choice(texts), texts) if rng.random() < 0.8 else rng.choice(texts))
        return bytes([rng.randrange(len(codecs)), rng.randrange(2)]) + b"".join(
            bytes([len(value[:255])]) + value[:255] for value in values
        )

    def run(case: bytes, place: Place) -> object:
        codec, road, values = codecs[case[0]], ("log", "text")[case[1]], _pieces(case[2:])
        rows = len(values)
        buf = place(b"".join(values))
        first = len(buf) - sum(map(len, values))
        ends = first + np.cumsum([len(value) for value in values])
        length = np.array([[len(value) for value in values]], np.int32)
        block = RowBlock(buf, (ends - length[0])[None, :], length, np.ones((1, rows), np.uint8), rows)
        array = getattr(codec, f"from_{road}")(block.column(0))
        array.validate(full=True)
        return array.to_string(window=50)

    return Target(make, run)


def _pieces(data: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(data):
        pieces.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return pieces


@target
def json_documents() -> Target:
    """Binary JSON, and differences (PARTIAL_JSON) applied to it."""
    from headgate.catalog import Column
    from headgate.columns import apply_json_differences, codec_for
    from headgate.kernels import RowBlock
    from tests.columns.test_json_diff import INSERT, REMOVE, REPLACE, difference
    from tests.fuzz.logs import documents

    codec = codec_for(Column("c", "json"), table="d.t")
    whole = documents()
    paths = ("$", "$.a", "$[0]", "$[last]", "$[last-1]", '$."long name".b', "$[1][1][1].a", "$.bc[0]", "$.x", "$[9]")
    parts = [difference(kind, path, [1, {"b": 2}]) for kind in (REPLACE, INSERT, REMOVE) for path in paths]

    def make(rng: random.Random) -> bytes:
        document = mutate(rng, rng.choice(whole), whole) if rng.random() < 0.7 else rng.choice(whole)
        changes = b"".join(rng.choice(parts) for _ in range(rng.choice((0, 1, 2))))
        if changes and rng.random() < 0.6:
            changes = mutate(rng, changes, parts)
        return struct.pack("<I", len(document)) + document + changes

    def run(case: bytes, place: Place) -> object:
        size = int.from_bytes(case[:4], "little")
        document, changes = case[4 : 4 + size], case[4 + size :]
        if changes:
            document = apply_json_differences(document, changes)
        buf = place(document)
        offset, length = np.array([[len(buf) - len(document)]]), np.array([[len(document)]], np.int32)
        array = codec.from_log(RowBlock(buf, offset, length, np.ones((1, 1), np.uint8), 1).column(0))
        array.validate(full=True)
        return array.to_string()

    return Target(make, run, (ValueError,))


@target
def result_sets() -> Target:
    """Packets of a result set through ``select_blocks``."""
    from headgate.kernels import RowBlock
    from headgate.mysql import ByteStream, Connection, select_blocks
    from tests.mysql.test_result import CASES, result, values

    corpus = [result(*case) for case in CASES.values()]
    corpus = [one for one in corpus if len(one) < 1 << 16]

    class Placed:
        """Connection that answers with bytes in guarded memory."""

        def __init__(self, data: bytes, place: Place) -> None:
            self._data, self._place = data, place

        def recv_into(self, _view: memoryview) -> int:
            return 0

        def command(self, _code: int, _payload: bytes) -> ByteStream:
            stream = ByteStream(cast("Any", self), room=64)
            buf = self._place(self._data, writable=True)
            stream.buf, stream._view, stream.start, stream.end = buf, memoryview(buf.data), 0, len(buf)
            return stream

        def finished(self, warnings: int = 0) -> None:
            pass

        def close(self) -> None:
            pass

    def run(case: bytes, place: Place) -> object:
        out = list[RowBlock]()
        out.extend(select_blocks(cast("Connection", Placed(case, place)), "SELECT", rows=50))
        return values(out)

    return Target(lambda rng: mutate(rng, rng.choice(corpus), corpus), run)


@target
def gtid_sets() -> Target:
    """GTID sets in the server's binary forms."""
    from headgate.gtid import GtidSet
    from tests.fuzz.logs import SID

    corpus = [GtidSet.parse(text).encode() for text in ("", f"{SID}:1-5", f"{SID}:1-5:9:11-20:tag:1:a:4-5")]

    def run(case: bytes, place: Place) -> object:
        return str(GtidSet.decode(place(case).tobytes()))

    return Target(lambda rng: mutate(rng, rng.choice(corpus), corpus), run)


@target
def relay_events() -> Target:
    """Databus events of both versions, as a relay's client reads them and a relay chooses from them."""
    from headgate.relay.databus import convert_to_v1, event_fields, is_intact, scan_windows, without_schema_ids
    from tests.relay.databus.test_events import Spec, resealed, v1, v2

    specs = [
        Spec(5, 7, b"value"),
        Spec(5, b"key", b""),
        Spec(5, -1, b"x" * 40, delete=True),
        Spec(6, 0, b"", source=-2),
    ]
    corpus = [make(spec) for make in (v1, v2) for spec in specs]

    def make(rng: random.Random) -> bytes:
        chosen = [rng.choice(corpus) for _ in range(rng.choice((1, 2, 3)))]
        at = rng.randrange(len(chosen))
        damaged = mutate(rng, chosen[at], corpus)
        chosen[at] = resealed(damaged) if rng.random() < 0.9 else damaged
        return b"".join(chosen)

    def run(case: bytes, place: Place) -> object:
        buf = place(case)
        scns = scan_windows(buf)
        if not is_intact(buf):
            return str(scns)
        fields = event_fields(buf)
        return str((scns, fields, without_schema_ids(case, fields), convert_to_v1(buf).tobytes()))

    return Target(make, run)


@target
def deletion_vectors() -> Target:
    """Data of Delta's deletion vectors."""
    from headgate.delta.vectors import decode, encode, positions_of, rows_of

    sets: tuple[list[int], ...] = (
        [],
        [1],
        list(range(5000)),
        list(range(0, 100000, 7)),
        [1, 2**31, 2**32 - 1],
        [5, 70000, 140000],
    )
    corpus = [encode(positions_of(np.array(one, np.int64))) for one in sets]

    def run(case: bytes, place: Place) -> object:
        return len(rows_of(decode(place(case).tobytes(), "/table")))

    return Target(lambda rng: mutate(rng, rng.choice(corpus), corpus), run)
