"""The ring against a list: whatever is read is what was put in, in order, or the reader is told that it is gone."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import files
from headgate.errors import ScnNotFoundError, StorageError, TargetError
from headgate.relay.databus import FIRST, StreamPosition, scan_windows, skip
from headgate.relay.server import BufferLimits, EventBatch, EventBuffer, Windows, _segments
from headgate.relay.server.events import choice_of, select
from tests.relay.databus.test_events import WRITERS, Spec, eop

MEMORY = 256 << 10


class Make:
    """Buffers that are closed after the test."""

    def __init__(self) -> None:
        self.made: list[EventBuffer] = []

    def __call__(self, memory: int = MEMORY, **more: Any) -> EventBuffer:
        self.made.append(EventBuffer(memory, **more))
        return self.made[-1]


@pytest.fixture
def make() -> Iterator[Make]:
    made = Make()
    yield made
    for one in made.made:
        one.close()


def window(scn: int, events: int, size: int = 100, version: int = 1) -> list[bytes]:
    specs = [Spec(scn, k, bytes([scn % 251]) * size, source=40 + k % 2) for k in range(events)]
    return [WRITERS[version](one) for one in [*specs, eop(scn, scn)]]


def windows(parts: list[list[bytes]]) -> Windows:
    data = np.frombuffer(b"".join(event for part in parts for event in part), np.uint8)
    return Windows(data, *scan_windows(data))


def put(buffer: EventBuffer, scns: Any, events: int = 2, size: int = 100) -> list[list[bytes]]:
    parts = [window(scn, events, size) for scn in scns]
    buffer.append(windows(parts))
    return parts


def taken(buffer: EventBuffer, place: StreamPosition, size: int = 1 << 30, sources: list[int] | None = None) -> bytes:
    chosen = None if sources is None else choice_of(sources)
    return b"".join(part.tobytes() for part in buffer.read(place, size, chosen).parts)


def flat(parts: list[list[bytes]]) -> bytes:
    return b"".join(event for part in parts for event in part)


def test_places() -> None:
    buffer = EventBuffer(MEMORY)
    assert (buffer.read(StreamPosition(-1), 100).parts, buffer.info().max_scn, buffer.newest_position()) == (
        [],
        -1,
        StreamPosition(-1),
    )
    parts = put(buffer, [10, 20, 30])
    info = buffer.info()
    assert (info.min_scn, info.max_scn, info.oldest_resumable_scn, info.first_stamp, info.last_stamp) == (
        10,
        30,
        9,
        10,
        30,
    )
    assert taken(buffer, StreamPosition(-1)) == flat(parts)
    assert taken(buffer, StreamPosition(9)) == flat(parts)  # directly before the first
    assert taken(buffer, StreamPosition(10)) == flat(parts[1:])
    assert taken(buffer, StreamPosition(15)) == flat(parts[1:])  # in a gap: the next window
    assert taken(buffer, StreamPosition(20, 0)) == flat(parts[1:])
    assert taken(buffer, StreamPosition(20, 2)) == parts[1][2] + flat(parts[2:])
    assert taken(buffer, StreamPosition(20, 3)) == taken(buffer, StreamPosition(20, 99)) == flat(parts[2:])
    assert (
        taken(buffer, StreamPosition(30))
        == taken(buffer, StreamPosition(31))
        == taken(buffer, StreamPosition(2**62))
        == b""
    )
    assert taken(buffer, buffer.newest_position()) == flat(parts[2:])
    assert taken(buffer, StreamPosition(31, 2)) == b""  # it may come
    assert taken(buffer, StreamPosition(15, 0)) == flat(parts[1:])
    with pytest.raises(ScnNotFoundError, match="inside SCN 15, which"):
        buffer.read(StreamPosition(15, 1), 100)
    for place in (StreamPosition(8), StreamPosition(9, 0), StreamPosition(0), StreamPosition(5, 3)):
        with pytest.raises(ScnNotFoundError) as caught:
            buffer.read(place, 100)
        assert (caught.value.scn, caught.value.oldest) == (place.scn, 9)


def test_sizes_and_sources() -> None:
    buffer = EventBuffer(MEMORY)
    (events,) = put(buffer, [10], events=4)
    size = len(events[0])
    assert taken(buffer, StreamPosition(-1), 2 * size) == flat([events[:2]])
    assert taken(buffer, StreamPosition(-1), 3 * size - 1) == flat([events[:2]])
    batch = buffer.read(StreamPosition(-1), size - 1)
    assert (batch.parts, batch.pending) == ([], size)
    batch = buffer.read(StreamPosition(-1), 1 << 20)
    assert (batch.events, batch.control, batch.pending, batch.size) == (4, 1, 0, 4 * size + 61)
    odd = [events[1], events[3], events[4]]
    assert taken(buffer, StreamPosition(-1), sources=[41]) == flat([odd])
    # A place inside the window counts the events that the reader gets.
    assert [taken(buffer, StreamPosition(10, n), sources=[41]) for n in range(4)] == [flat([odd[n:]]) for n in range(4)]
    assert taken(buffer, StreamPosition(-1), size, sources=[41]) == odd[0]
    assert buffer.read(StreamPosition(-1), size - 1, choice_of([41])).pending == size
    assert taken(buffer, StreamPosition(-1), sources=[7]) == events[4]


def test_a_large_window_in_pieces_is_not_counted_from_its_beginning_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of all and of different choices, by turns; and one that comes from elsewhere."""
    buffer = EventBuffer(MEMORY)
    put(buffer, [5])
    (events,) = put(buffer, [10], events=400)
    put(buffer, [20])
    passed: list[int] = []

    def counting_skip(buf: Any, start: int, end: int, count: int) -> Any:
        passed.append(count)
        return skip(buf, start, end, count)

    def counting_select(*arguments: Any) -> Any:
        passed.append(arguments[7])
        return select(*arguments)

    monkeypatch.setattr("headgate.relay.server._cursor.skip", counting_skip)
    monkeypatch.setattr("headgate.relay.server._cursor.select", counting_select)
    choices = [None, choice_of([40]), choice_of([41]), choice_of([41], [(41, 1, 1, 0, 200)])]
    whole = [buffer.read(StreamPosition(10, 0), 1 << 20, choice) for choice in choices]
    later = [buffer.read(StreamPosition(10), 1 << 20, choice).size for choice in choices]
    had, got = [0] * len(choices), [b""] * len(choices)
    for _ in range(400):
        for n, choice in enumerate(choices):
            if len(got[n]) < whole[n].size - later[n]:
                part = buffer.read(StreamPosition(10, had[n]), 1_000, choice)
                got[n] += b"".join(one.tobytes() for one in part.parts)
                had[n] += part.events + part.control
    for n, one in enumerate(whole):
        assert len(got[n]) >= one.size - later[n] > 1_000
        assert b"".join(part.tobytes() for part in one.parts).startswith(got[n])
    assert sum(passed) < 400  # else each read passes over all that was had, some 20,000 together
    assert taken(buffer, StreamPosition(10, 123), 2 * len(events[0])) == flat([events[123:125]])


def test_reading_that_is_quick() -> None:
    buffer = EventBuffer(1 << 20)
    put(buffer, range(1, 2000))
    everything, end = buffer.bytes_in_memory(StreamPosition(-1)), buffer.bytes_in_memory(StreamPosition(1990))
    assert everything is not None
    assert end is not None
    assert end < 100_000 < everything


def test_reading_that_is_not_quick_while_a_large_window_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a while, and its segment is there before it: what comes before it has to be read all the same."""
    buffer = EventBuffer(1 << 20)
    put(buffer, range(1, 2000))
    really, sizes = _segments.BufferSegment.append, list[int | None]()

    def append(self: Any, *arguments: Any) -> None:
        sizes.append(buffer.bytes_in_memory(StreamPosition(1)))
        really(self, *arguments)

    monkeypatch.setattr(_segments.BufferSegment, "append", append)
    put(buffer, [2000], events=1000)
    (everything,) = sizes
    assert everything is not None
    assert everything > 100_000


def test_the_oldest_go_and_memory_stays_below_its_bound() -> None:
    buffer = EventBuffer(MEMORY)
    parts: list[list[bytes]] = []
    for scn in range(1, 2001):
        parts += put(buffer, [scn])
        assert buffer.info().used <= MEMORY
    info = buffer.info()
    assert info.max_scn == 2000
    assert info.min_scn == info.oldest_resumable_scn + 1 > 1
    assert len(flat(parts[info.oldest_resumable_scn :])) > MEMORY / 2
    assert (
        taken(buffer, StreamPosition(-1))
        == taken(buffer, StreamPosition(info.oldest_resumable_scn))
        == flat(parts[info.oldest_resumable_scn :])
    )
    with pytest.raises(ScnNotFoundError):
        buffer.read(StreamPosition(info.oldest_resumable_scn - 1), 100)


def test_a_reader_keeps_what_it_has() -> None:
    buffer = EventBuffer(MEMORY)
    parts = put(buffer, range(1, 11))
    batch = buffer.read(StreamPosition(-1), 1 << 20)
    put(buffer, range(11, 2000))
    assert buffer.info().min_scn > 10
    assert b"".join(part.tobytes() for part in batch.parts) == flat(parts)


def test_many_small_windows() -> None:
    buffer = EventBuffer(MEMORY)
    parts = []
    for scn in range(1, 8000, 1000):  # the smallest there are
        parts += put(buffer, range(scn, scn + 1000), events=0)
        assert buffer.info().used <= MEMORY
    assert taken(buffer, StreamPosition(-1)) == flat(parts[buffer.info().oldest_resumable_scn :])


def test_a_window_larger_than_a_segment() -> None:
    buffer = EventBuffer(MEMORY)
    small, large = put(buffer, [1]), put(buffer, [2], events=40, size=5000)
    after = put(buffer, [3])
    assert taken(buffer, StreamPosition(-1)).endswith(flat([*large, *after]))
    assert taken(buffer, StreamPosition(2)) == flat(after)
    assert small


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 4), st.sampled_from([0, 100, 3000])), min_size=1, max_size=25
    ),
    st.integers(0, 60_000),
    st.booleans(),
)
def test_reading_in_batches_gives_everything(appends: list[tuple[int, int, int]], size: int, only_odd: bool) -> None:
    """A consumer that pulls by checkpoints, as Databus's client counts them."""
    buffer = EventBuffer(1 << 20)
    scn = 0
    everything: list[list[bytes]] = []
    for count, events, value in appends:
        everything += put(buffer, range(scn + 1, scn + 2 * count + 1, 2), events, value)
        scn += 2 * count
    least = buffer.info().oldest_resumable_scn
    sources = choice_of([41]) if only_odd else None
    kept = [part for part in everything if int.from_bytes(part[0][11:19], "big") > least]
    expected = flat([[e for k, e in enumerate(part) if not only_odd or k % 2 or k == len(part) - 1] for part in kept])
    size = max(size, 61 + max(value for _, _, value in appends))
    got, place = b"", StreamPosition(-1)
    while True:
        data = b"".join(part.tobytes() for part in buffer.read(place, size, sources).parts)
        if not data:
            break
        got += data
        at = 0
        while at < len(data):
            event_scn, source = int.from_bytes(data[at + 11 : at + 19], "big"), data[at + 31 : at + 33]
            if source == b"\xff\xfe":
                place = StreamPosition(event_scn)
            else:
                place = StreamPosition(
                    event_scn, place.offset + 1 if place.scn == event_scn and place.offset >= 0 else 1
                )
            at += int.from_bytes(data[at + 5 : at + 9], "big")
    assert got == expected


# --- files


def test_slow_readers_find_the_rest_in_files(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    buffer = make(folder=folder, disk_bytes=1 << 30)
    parts = put(buffer, range(1, 2001))
    assert buffer.info().used <= MEMORY
    assert buffer.bytes_in_memory(StreamPosition(1)) is None
    assert buffer.bytes_in_memory(StreamPosition(2000))
    assert taken(buffer, StreamPosition(-1)) == flat(parts)
    for scn in (1, 777, 1500, 1999):
        assert taken(buffer, StreamPosition(scn), 1000).startswith(parts[scn][0])
    assert sum(file.stat().st_size for file in folder.iterdir()) == len(flat(parts)) == buffer.info().stored


def test_files_have_a_bound_too(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    buffer = make(folder=folder, disk_bytes=2 * MEMORY)
    parts = []
    for scn in range(1, 2001):
        parts += put(buffer, [scn])
        if scn % 50 == 0:
            assert sum(file.stat().st_size for file in folder.iterdir()) <= 2 * MEMORY
    info = buffer.info()
    assert info.oldest_resumable_scn > 0
    assert taken(buffer, StreamPosition(-1)) == flat(parts[info.oldest_resumable_scn :])
    with pytest.raises(ScnNotFoundError):
        buffer.read(StreamPosition(info.oldest_resumable_scn - 1), 100)


@pytest.mark.parametrize("state", [2000, 1990, 1])
def test_a_restart_keeps_what_the_state_counts_on(make: Make, tmp_path: Path, state: int) -> None:
    first = make(folder=tmp_path / "events", disk_bytes=1 << 30)
    parts = put(first, range(1, 2001))  # not closed: as after a kill
    again = make(folder=tmp_path / "events", disk_bytes=1 << 30, until_scn=state)
    assert taken(again, StreamPosition(-1)) == flat(parts[:state])
    put(again, range(state + 1, 2001))
    assert taken(again, StreamPosition(-1)) == flat(parts)
    first.close()


def test_from_the_first_window_there_ever_was(make: Make, tmp_path: Path) -> None:
    events: dict[str, Any] = {"folder": tmp_path / "events", "disk_bytes": 1 << 20}
    buffer = make(**events)
    assert (taken(buffer, FIRST), buffer.holds(0)) == (b"", True)
    parts = put(buffer, range(100, 120))
    assert taken(buffer, FIRST) == flat(parts)
    again = make(**events, until_scn=119)
    assert taken(again, FIRST) == flat(parts)
    put(again, range(120, 2000), events=20)  # more than the files hold
    assert (again.holds(0), again.holds(119)) == (False, False)
    for one in (again, make(**events, until_scn=1999), make(until_scn=1999)):
        assert not one.holds(0)
        with pytest.raises(ScnNotFoundError):
            taken(one, FIRST)
    elsewhere = make(folder=tmp_path / "other", disk_bytes=1 << 20)
    put(elsewhere, [5])
    for file in (tmp_path / "other").iterdir():
        file.unlink()  # the machine lost them
    assert not make(folder=tmp_path / "other", disk_bytes=1 << 20, until_scn=5).holds(0)


def test_what_was_cut_off_or_damaged_is_not_served(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    first = make(folder=folder, disk_bytes=1 << 30)
    parts = put(first, range(1, 31))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for cut in (len(whole) - 1, len(whole) - len(flat(parts[29:])) + 10):
        file.write_bytes(whole[:cut])
        # The state was saved before the last window: what it counts on is there.
        again = make(folder=folder, disk_bytes=1 << 30, until_scn=29)
        assert taken(again, StreamPosition(-1)) == flat(parts[:29])
        file.write_bytes(whole[:-1])
    lost = make(folder=folder, disk_bytes=1 << 30, until_scn=30)
    assert taken(lost, StreamPosition(30)) == taken(lost, StreamPosition(-1)) == b""
    assert lost.info().oldest_resumable_scn == 30
    put(lost, [31])
    with pytest.raises(ScnNotFoundError):
        lost.read(StreamPosition(15), 100)
    assert taken(lost, StreamPosition(30)) == flat([window(31, 2)])


def test_without_a_state_files_are_nobodys(make: Make, tmp_path: Path) -> None:
    first = make(folder=tmp_path, disk_bytes=1 << 30)
    put(first, [1, 2])
    first.close()
    assert make(folder=tmp_path, disk_bytes=1 << 30).read(StreamPosition(-1), 100).parts == []
    assert list(tmp_path.iterdir()) == []


def test_memory_only_and_a_state() -> None:
    buffer = EventBuffer(MEMORY, until_scn=70)
    assert taken(buffer, StreamPosition(70)) == b""
    put(buffer, [80])
    assert taken(buffer, StreamPosition(70)) == flat([window(80, 2)])
    with pytest.raises(ScnNotFoundError):
        buffer.read(StreamPosition(69), 100)


def test_a_folder_that_cannot_be_used(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_text("")
    with pytest.raises(TargetError, match="cannot be used"):
        put(make(folder=file, disk_bytes=1 << 30), [1])


def test_who_listens_hears_of_news() -> None:
    buffer = EventBuffer(MEMORY)
    heard: list[int] = []
    forget = buffer.on_append(lambda: heard.append(buffer.info().max_scn))
    put(buffer, [1])
    put(buffer, [2, 3])
    forget()
    put(buffer, [4])
    assert heard == [1, 3]


def test_readers_do_not_wait_while_a_window_is_written(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes the disk seconds."""
    buffer, reads = make(folder=tmp_path / "events", disk_bytes=1 << 30), list[tuple[int, bytes, bool]]()
    (first,) = put(buffer, [10])
    assert taken(buffer, StreamPosition(-1)) == flat([first]), "which also loads the loops"

    def read() -> None:
        reads.append((buffer.info().max_scn, taken(buffer, StreamPosition(-1)), buffer.holds(10)))

    def slowly(file: Any, data: Any) -> None:
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(60)
        write(file, data)

    write = files.write_all
    monkeypatch.setattr(_segments, "write_all", slowly)
    buffer.append(windows([window(20, 2)]))
    assert reads == [(10, flat([first]), True)]
    assert taken(buffer, StreamPosition(10)) == flat([window(20, 2)])


def test_stored_windows_that_are_large_do_not_stay_in_memory(make: Make, tmp_path: Path) -> None:
    """But for the one that was read last, whose reader comes again for more of it."""
    buffer = make(folder=tmp_path / "events", disk_bytes=1 << 30, limits=BufferLimits(views=100_000))
    parts = put(buffer, [10, 20], events=1_000) + put(buffer, [30, 40, 50], events=100) + put(buffer, range(60, 2000))
    for n, at_most in ((10, 1), (20, 1), (30, 2), (40, 2), (20, 1)):
        buffer.read(StreamPosition(n, 0), 1_000)
        assert 0 < len(buffer._views) <= at_most
    assert taken(buffer, StreamPosition(20, 0), len(flat(parts[1:2]))) == flat(parts[1:2])


DIGESTS = [bytes([n]) * 15 + bytes([n + k]) for n in (1, 2) for k in (0, 1)]


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.sampled_from(DIGESTS), max_size=4), min_size=1, max_size=6), st.sets(st.sampled_from(DIGESTS)),
    st.integers(0, 6), st.integers(-1, 4), st.sampled_from([1, 2]), st.booleans(),
)  # fmt: skip
def test_what_comes_before_the_first_window_with_a_schema(
    schemas: list[list[bytes]], unknown: set[bytes], scn: int, offset: int, version: int, each: bool
) -> None:
    """Against a list: it ends between two windows, and never within one that the reader has begun."""
    offset = offset if 0 < scn <= len(schemas) else -1
    parts = [
        [
            WRITERS[version](one)
            for one in [*(Spec(n, n, b"x", digest=digest) for digest in digests), eop(n, n)]
        ]
        for n, digests in enumerate(schemas, 1)
    ]  # fmt: skip
    buffer = EventBuffer(MEMORY)
    buffer.append(windows(parts))
    begin = next((n for n in range(1, len(parts) + 1) if n > scn or (n == scn and offset >= 0)), len(parts) + 1)
    done = max(offset, 0) if begin == scn else 0
    wanted = b""
    for n in range(begin, len(parts) + 1):
        if unknown & set(schemas[n - 1]) and not (n == begin and done):
            break
        wanted += b"".join(parts[n - 1][done if n == begin else 0 :])
    actual = b""
    for cursor in buffer.cursors(StreamPosition(scn, offset), each=each):
        known = cursor.cut_before(sorted(unknown))
        batch = EventBatch([])
        assert known.take(batch, 1 << 30)
        actual += b"".join(part.tobytes() for part in batch.parts)
        if known.end < cursor.end:
            break
    assert actual == wanted
    buffer.close()


@pytest.mark.parametrize("content", [b"", bytes(100)])
def test_a_file_whose_first_window_is_damaged_ends_the_buffer_before_it(
    make: Make, tmp_path: Path, content: bytes
) -> None:
    folder = tmp_path / "events"
    first = make(folder=folder, disk_bytes=1 << 30)
    scns = range(1, 3001)
    put(first, scns)
    files = sorted(folder.iterdir())
    assert len(files) > 2
    files[1].write_bytes(content)
    again = make(folder=folder, disk_bytes=1 << 30, until_scn=scns[-1])
    oldest = int(files[2].name.split(".")[0])
    assert taken(again, StreamPosition(-1)) == flat([window(scn, 2) for scn in range(oldest, scns[-1] + 1)])
    assert again.info().oldest_resumable_scn == oldest - 1
    assert sorted(folder.iterdir()) == files[2:]


@pytest.mark.parametrize("lost", [0, 1, -2, -1])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_file_that_a_cleaner_has_removed_is_a_gap_that_nobody_skips(
    make: Make, tmp_path: Path, lost: int, *, restarts: bool
) -> None:
    """Only what follows the gap is served. Numbers alone do not show it: SCNs may have holes."""
    folder, last = tmp_path / "events", 6000
    first = make(folder=folder, disk_bytes=1 << 30)
    parts = put(first, range(2, last + 1, 2))
    assert taken(first, FIRST) == flat(parts)
    files = sorted(folder.iterdir())
    ends = [int(file.name.split(".")[1]) for file in files[1:]] + [last]
    gap, begin = ends[lost], 0 if lost == 0 else ends[lost - 1]
    buffer = make(folder=folder, disk_bytes=1 << 30, until_scn=last)  # all of it is in files only
    files[lost].unlink()
    if restarts:
        buffer = make(folder=folder, disk_bytes=1 << 30, until_scn=last)
    else:
        with pytest.raises(ScnNotFoundError, match="is gone"):
            buffer.read(StreamPosition(-1) if lost == 0 else StreamPosition(begin), 1 << 30)
    assert buffer.info().oldest_resumable_scn == gap
    assert taken(buffer, StreamPosition(gap)) == taken(buffer, StreamPosition(-1)) == flat(parts[gap // 2 :])
    for position in (FIRST, StreamPosition(2), StreamPosition(gap - 2)):
        with pytest.raises(ScnNotFoundError):
            buffer.read(position, 100)
    assert not buffer.holds(0)
    more = put(buffer, range(last + 2, last + 200, 2))
    assert taken(buffer, StreamPosition(gap)) == flat(parts[gap // 2 :] + more)
    again = make(folder=folder, disk_bytes=1 << 30, until_scn=last + 198)
    assert taken(again, StreamPosition(gap)) == flat(parts[gap // 2 :] + more)


def test_a_folder_that_a_cleaner_has_removed_is_made_again(make: Make, tmp_path: Path) -> None:
    buffer = make(folder=tmp_path / "state" / "events", disk_bytes=1 << 30)
    before = os.umask(0)
    try:
        put(buffer, [1])
        for last in (4000, 8000):
            shutil.rmtree(tmp_path / "state")
            put(buffer, range(buffer.reached_scn + 1, last))
            modes = {(one.is_dir(), stat.S_IMODE(one.stat().st_mode)) for one in (tmp_path / "state").rglob("*")}
            assert modes == {(True, 0o700), (False, 0o600)}
    finally:
        os.umask(before)
    with pytest.raises(ScnNotFoundError):
        buffer.read(StreamPosition(2), 1 << 30)
    oldest = buffer.info().oldest_resumable_scn
    assert taken(buffer, StreamPosition(oldest)) == flat([window(scn, 2) for scn in range(oldest + 1, 8000)])


def test_a_file_that_is_damaged_meanwhile_is_not_served(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    buffer = make(folder=folder, disk_bytes=1 << 30)
    put(buffer, range(1, 3001))
    file = min(folder.iterdir())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ScnNotFoundError, match="is damaged"):
        buffer.read(StreamPosition(-1), 1 << 30)
    oldest = buffer.info().oldest_resumable_scn
    assert oldest > 1
    assert taken(buffer, StreamPosition(-1)) == flat([window(scn, 2) for scn in range(oldest + 1, 3001)])


@pytest.mark.parametrize("cut", [0, 60, 1000])
def test_a_disk_that_is_full_for_a_while(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """What was appended before the error is there, what comes after it, too, and also after a restart."""
    buffer = make(folder=tmp_path / "e", disk_bytes=1 << 20)
    parts = put(buffer, [1, 2])

    def full(file: Any, data: memoryview) -> None:
        file.write(data[:cut])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_segments, "write_all", full)
        for _ in range(2):
            with pytest.raises(StorageError, match=r"events cannot be used: No space left"):
                put(buffer, [3])
            assert buffer.reached_scn == 2
    parts += put(buffer, [3, 4])
    assert taken(buffer, StreamPosition(-1)) == flat(parts)
    buffer.close()
    again = make(folder=tmp_path / "e", disk_bytes=1 << 20, until_scn=4)
    assert taken(again, StreamPosition(-1)) == flat(parts)
