"""Events byte for byte: against a slow writer of the same layouts, and against bytes written down here."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import DecodeError
from headgate.relay.databus import _binary as ev
from headgate.relay.server.events import choice_of, gather, select

DIGEST = bytes(range(16))
PARTITION, LOGICAL, SCHEMA = 3, 7, 5


class Spec(NamedTuple):
    """One event."""

    scn: int
    key: int | bytes
    value: bytes
    delete: bool = False
    stamp: int = 1_700_000_000_000_000_000
    source: int = 40
    digest: bytes = DIGEST


def crc(data: bytes) -> int:
    """Databus's: the register begins at 0 and is not inverted at the end."""
    return zlib.crc32(data, 0xFFFFFFFF) ^ 0xFFFFFFFF


def v1(one: Spec) -> bytes:
    eop = one.source < 0
    long_key = isinstance(one.key, int)
    attributes = 0 if eop else (2 if one.delete else 1) | (0 if long_key else 8)
    key = struct.pack(">q", one.key) if isinstance(one.key, int) else struct.pack(">i", len(one.key)) + one.key
    digest = bytes(16) if eop else one.digest
    head = struct.pack(
        ">ihqhhqh", 53 + len(key) + len(one.value), attributes, one.scn, PARTITION, 0 if eop else LOGICAL, one.stamp,
        one.source,
    )  # fmt: skip
    covered = one.value if long_key else key[4:] + one.value
    rest = head + digest + struct.pack(">I", crc(covered)) + (key if long_key else key[:4])
    return b"\0" + struct.pack(">I", crc(rest)) + rest + covered


def v2(one: Spec) -> bytes:
    eop = one.source < 0
    long_key = isinstance(one.key, int)
    attributes = (4 if long_key else 8) | (0 if eop else 0x80 | (2 if one.delete else 1))
    key = struct.pack(">q", one.key) if isinstance(one.key, int) else struct.pack(">i", len(one.key)) + one.key
    body = b"" if eop else struct.pack(">ih", len(one.value), SCHEMA << 2) + one.digest + one.value
    header = 45 + len(key)
    covered = (
        struct.pack(
            ">IihqihqI", crc(body), header + len(body), attributes, one.stamp, one.source, PARTITION, one.scn, 0
        )[:-4]
        + key
    )
    return b"\x02" + struct.pack(">IiI", 0xCAFEDEED, header, crc(covered)) + covered + body


def resealed(event: bytes) -> bytes:
    """The event with its true length and checksums, as far as it has room for them: damage that these do not show."""
    out = bytearray(event)
    if len(out) < 61:
        return event
    if out[0] == 0:
        out[5:9] = struct.pack(">I", len(out))
        header, body, head, first = (57 if out[10] & 8 else 61), 49, 1, 5
    else:
        out[17:21] = struct.pack(">I", len(out))
        header, body, head, first = int.from_bytes(out[5:9], "big"), 13, 9, 13
    out[body : body + 4] = struct.pack(">I", crc(bytes(out[header:])))
    out[head : head + 4] = struct.pack(">I", crc(bytes(out[first:header])))
    return bytes(out)


WRITERS = {1: v1, 2: v2}


def eop(scn: int, stamp: int) -> Spec:
    return Spec(scn, 0, b"", source=-2, stamp=stamp)


def ours(version: int, specs: list[Spec]) -> bytes:
    """The same events by the kernels; all keys of one kind."""
    long_keys = isinstance(specs[0].key, int)
    keys = [one.key for one in specs]
    offsets = np.zeros(len(specs) + 1, np.int32)
    data = b""
    longs = np.array(keys if long_keys else [], np.int64)
    if not long_keys:
        offsets = np.cumsum([0, *(len(key) for key in keys if isinstance(key, bytes))]).astype(np.int32)
        data = b"".join(key for key in keys if isinstance(key, bytes))
    lengths = np.array([len(one.value) for one in specs], np.int64)
    sizes = ev.event_sizes(version, lengths, None if long_keys else np.diff(offsets).astype(np.int64))
    at = np.cumsum(sizes) - sizes
    out = np.full(int(sizes.sum()), 0xEE, np.uint8)
    values = np.empty(len(specs), np.int64)
    ev.put_events(
        out, at, sizes, version, np.array([one.delete for one in specs]), np.array([one.stamp for one in specs]),
        np.array([one.scn for one in specs]), specs[0].source, PARTITION, LOGICAL, np.frombuffer(DIGEST, np.uint8),
        SCHEMA, longs, offsets, np.frombuffer(data, np.uint8), values,
        np.zeros(0, np.int64), 0,
    )  # fmt: skip
    for place, one in zip(values.tolist(), specs, strict=True):
        out[place : place + len(one.value)] = np.frombuffer(one.value, np.uint8)
    ev.seal(out, 0, len(out))
    return out.tobytes()


def our_eop(version: int, scn: int, stamp: int) -> bytes:
    out = np.empty(ev.EOP_SIZE[version], np.uint8)
    ev.put_eops(out, np.zeros(1, np.int64), version, np.array([stamp]), np.array([scn]), PARTITION)
    ev.seal(out, 0, len(out))
    return out.tobytes()


INT64 = st.integers(-(2**63), 2**63 - 1)
SCNS = st.integers(1, 2**63 - 1)


def specs_of(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Spec]]:
    stamps = st.integers(0, 2**62)
    one = st.builds(Spec, SCNS, keys, st.binary(max_size=50), st.booleans(), stamps, st.just(40), st.just(DIGEST))
    return st.lists(one, min_size=1, max_size=5)


@pytest.mark.parametrize("version", [1, 2])
@given(specs=specs_of(INT64) | specs_of(st.binary(max_size=30)))
def test_events_byte_for_byte(version: int, specs: list[Spec]) -> None:
    assert ours(version, specs) == b"".join(WRITERS[version](one) for one in specs)


@pytest.mark.parametrize("version", [1, 2])
@given(SCNS, st.integers(0, 2**62))
def test_end_of_period_byte_for_byte(version: int, scn: int, stamp: int) -> None:
    assert our_eop(version, scn, stamp) == WRITERS[version](eop(scn, stamp))


@pytest.mark.parametrize("length", [0, 1, 200, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize(
    ("event", "at"),
    [
        (v1(Spec(5, b"a key", b"value")), 53),
        (v2(Spec(5, b"a key", b"value")), 45),
        (v2(Spec(5, b"a key", b"value")), 54),
        (v2(Spec(5, 7, b"value")), 53),
        (v2(Spec(5, 7, b"value")), 5),
    ],
    ids=["key of version 1", "key", "part behind a key", "part", "header"],
)
def test_lengths_that_lead_out_of_an_event_are_damage(event: bytes, at: int, length: int) -> None:
    """A relay's bytes may have such lengths and right checksums; every loop over events trusts them."""
    assert ev.is_intact(np.frombuffer(event, np.uint8))
    assert resealed(event) == event
    damaged = resealed(event[:at] + struct.pack(">I", length) + event[at + 4 :])
    if at == 53 and event[0] == 0 and length < 2:  # the key's other bytes are the value's
        assert ev.is_intact(np.frombuffer(damaged, np.uint8))
    else:
        assert not ev.is_intact(np.frombuffer(damaged, np.uint8))


def test_the_checksum_is_a_plain_shift_register() -> None:
    data = bytes(range(256)) * 3
    register = 0
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    assert crc(data) == register


STAMP = "17979cfe362a0000"  # 1.7e18 ns
HEADERS = {
    "v1, long key": "00 47ca8b24 0000003f 0001 00000001000000e0 0003 0007" + STAMP + "0028",
    "v1, key of bytes, delete": "00 735510d8 0000003e 000a 00000001000000e0 0003 0007" + STAMP + "0028",
    "v1, end of period": "00 74de8fc3 0000003d 0000 00000001000000e0 0003 0000" + STAMP + "fffe",
    "v2, long key": "02 cafedeed 00000035 bbe60110 594ab650 0000004d 0085" + STAMP + "00000028 0003 00000001000000e0",
    "v2, key of bytes, delete": (
        "02 cafedeed 00000034 4a7414ad 594ab650 0000004c 008a" + STAMP + "00000028 0003 00000001000000e0"
    ),
    "v2, end of period": "02 cafedeed 00000035 7397d023 00000000 00000035 0004"
    + STAMP
    + "fffffffe 0003 00000001000000e0",
}
PART = "00000002 0014" + DIGEST.hex() + "0202"


def test_events_as_written_down() -> None:
    scn, stamp = 4_294_967_520, 1_700_000_000_000_000_000
    long_key, text_key = Spec(scn, 1, b"\x02\x02"), Spec(scn, b"a\t1", b"\x02\x02", delete=True)
    assert {
        "v1, long key": ours(1, [long_key]),
        "v1, key of bytes, delete": ours(1, [text_key]),
        "v1, end of period": our_eop(1, scn, stamp),
        "v2, long key": ours(2, [long_key]),
        "v2, key of bytes, delete": ours(2, [text_key]),
        "v2, end of period": our_eop(2, scn, stamp),
    } == {
        name: bytes.fromhex(HEADERS[name] + rest)
        for name, rest in {
            "v1, long key": DIGEST.hex() + "dc3803ae 0000000000000001 0202",
            "v1, key of bytes, delete": DIGEST.hex() + "20cb9d7e 00000003 610931 0202",
            "v1, end of period": "00" * 16 + "00000000 0000000000000000",
            "v2, long key": "0000000000000001" + PART,
            "v2, key of bytes, delete": "00000003 610931" + PART,
            "v2, end of period": "0000000000000000",
        }.items()
    }


def windows(version: int, counts: list[int], *, source: int = 40) -> tuple[bytes, list[Spec]]:
    """So many events in each window, with SCNs 10, 20, …"""
    specs = []
    for number, count in enumerate(counts, 1):
        specs += [Spec(10 * number, k, bytes(k % 5), source=source + k % 2) for k in range(count)]
        specs.append(eop(10 * number, number))
    return b"".join(WRITERS[version](one) for one in specs), specs


def array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize("version", [1, 2])
def test_whole_windows_are_found_and_damaged_ones_are_not(version: int) -> None:
    data, _ = windows(version, [1, 3, 0, 2])
    scns, ends, stamps = ev.scan_windows(array(data))
    assert (scns.tolist(), stamps.tolist()) == ([10, 20, 30, 40], [1, 2, 3, 4])
    assert ends[-1] == len(data)
    for place in range(len(data)):
        whole = int(np.searchsorted(ends, place, "right"))
        assert ev.scan_windows(array(data[:place]))[0].tolist() == scns[:whole].tolist()
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        assert ev.scan_windows(array(bytes(damaged)))[0].tolist() == scns[:whole].tolist()


@pytest.mark.parametrize("version", [1, 2])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 1500), st.integers(0, 8))
def test_what_fits_and_what_is_chosen(version: int, counts: list[int], budget: int, skipped: int) -> None:
    data, specs = windows(version, counts)
    events = [WRITERS[version](one) for one in specs]
    start = int(ev.skip(array(data), 0, len(data), skipped))
    assert start == sum(map(len, events[:skipped]))
    stop, data_count, control, pending = ev.fit(array(data), start, len(data), budget)
    rest = list(zip(specs, events, strict=True))[skipped:]
    taken, room = [], budget
    for spec, event in rest:
        if len(event) > room:
            break
        taken.append(spec)
        room -= len(event)
    assert stop - start == budget - room
    assert (data_count, control) == (sum(s.source > 0 for s in taken), sum(s.source < 0 for s in taken))
    assert pending == (len(rest[len(taken)][1]) if len(taken) < len(rest) else 0)

    wanted = [(spec, event) for spec, event in rest if spec.source in (-2, 41)]
    starts = np.empty(100, np.int64)
    chosen, used, data_events, at, too_big = select(array(data), start, len(data), budget, *choice_of([41]), 0, starts)
    out = np.empty(int(used), np.uint8)
    gather(array(data), starts, chosen, out)
    expected, room = b"", budget
    for _, event in wanted:
        if len(event) > room:
            assert too_big == len(event)
            break
        expected += event
        room -= len(event)
    else:
        assert (at, too_big) == (len(data), 0)
    assert out.tobytes() == expected
    assert data_events == sum(spec.source > 0 for spec, _ in wanted[:chosen])


@given(specs_of(INT64) | specs_of(st.binary(max_size=30)))
def test_version_2_as_version_1(specs: list[Spec]) -> None:
    given_events = [*specs, eop(5, 6)]
    # Version 2 has one partition for both.
    expected = b""
    for one in given_events:
        event = bytearray(v1(one))
        if one.source > 0:
            struct.pack_into(">h", event, 21, PARTITION)
            header = 57 if isinstance(one.key, bytes) else 61
            struct.pack_into(">I", event, 1, crc(bytes(event[5:header])))
        expected += bytes(event)
    data = b"".join(map(v2, given_events))
    assert ev.convert_to_v1(array(data)).tobytes() == expected
    assert ev.convert_to_v1(array(expected)).tobytes() == expected
    assert ev.convert_to_v1(array(expected + data)).tobytes() == expected + expected
    for cut in (1, 40, len(v2(eop(5, 6))) - 1):
        with pytest.raises(DecodeError, match="no event"):
            ev.convert_to_v1(array(data[:-cut]))
