"""The binlog archive against a list: if dumps are cut and processes killed, what comes out is what went in."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.binlog import EndOfLog, Framer, LogPosition, Segment, codes
from headgate.errors import BinlogPurgedError, ConfigError, ConnectionLostError, ServerBehindError, StorageError
from headgate.gtid import GtidSet
from headgate.mysql import LogRequest
from headgate.offsets import Last
from headgate.relay.archive import LogSpool, SegmentSizes, _files
from headgate.replication import CopiedEvents, CopiedPosition, LogCopy
from headgate_testing._binlog import BinlogWriter, packets
from tests.relay.server.serving import PATIENCE_SECONDS

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = "5e11fa47-71ca-11e1-9e33-c80aa9429562"
TIME_US = 1_700_000_000_000_000
"""Commit time of all transactions."""
Place = tuple[int, str, int]
SMALL = SegmentSizes(smallest=700, between_marks=300)


def new_archive(folder: Path, disk_bytes: int, **more: Any) -> LogSpool:
    """Return an archive; a new one begins before every transaction."""
    spool = LogSpool(folder, disk_bytes, **{"wait_seconds": 20.0, **more})
    if not spool.has_begun:
        spool.begin(GtidSet())
    return spool


def gtids(last: int, first: int = 1) -> GtidSet:
    return GtidSet.parse(f"{SOURCE}:{first}-{last}") if last >= first else GtidSet()


@dataclass
class Server:
    """A server's log: transactions of some bytes, in files."""

    uuid: str
    checksums: bool = True
    files: list[tuple[str, bytes, list[tuple[int, bytes, int]]]] = field(default_factory=list)
    """Name, FORMAT_DESCRIPTION, transactions: number, events as packets, position behind."""
    number: int = 0

    def __post_init__(self) -> None:
        self.rotate()

    def rotate(self) -> None:
        name = f"binlog.{len(self.files) + 1:06d}"
        self._writer = BinlogWriter(name, checksums=self.checksums)
        self.files.append((name, self._writer.format_description(), []))

    def commit(self, size: int = 0) -> None:
        self.number += 1
        writer = self._writer
        events = [writer.gtid(SOURCE, self.number), writer.query("BEGIN"), writer.query(f"SAVEPOINT s{'x' * size}")]
        events.append(writer.xid(self.number))
        self.files[-1][2].append((self.number, packets(events), writer.pos))

    def places(self) -> list[Place]:
        return [(number, name, pos) for name, _, transactions in self.files for number, _, pos in transactions]

    def dump(self, had: int) -> bytes:
        """Everything after transaction ``had``."""
        out = b""
        for name, description, transactions in self.files:
            rest = [data for number, data, _ in transactions if number > had]
            if rest or name == self.files[-1][0]:
                rotate = BinlogWriter(checksums=self.checksums or not out).rotate(name)
                out += packets([rotate, description]) + b"".join(rest)
        return out


def feed(spool: LogSpool, uuid: str, data: bytes, step: int) -> None:
    """A dump that ends after ``data``, which arrives ``step`` bytes at a time."""
    copy, buf, start, end = LogCopy(uuid, spool.gtid), np.frombuffer(data, np.uint8), 0, 0
    while True:
        item, used = copy.next(buf, start, end)
        if item is not None:
            spool.store(item)
        elif used == start:
            if end == len(buf):
                break
            end = min(len(buf), end + step)
        start = used
    spool.interrupted()


def read(spool: LogSpool, had: int, *, most: int = 1 << 20, **options: Any) -> tuple[list[Place], LogPosition | None]:
    """The transactions that an answer holds, with where they are, and what it says at its end."""
    with closing(spool.reader(LogRequest(executed_before=gtids(had), **options))) as reader:
        data = b""
        while chunk := reader.read(most):
            data += chunk
        assert reader.ended
    return decoded(data)


def decoded(data: bytes) -> tuple[list[Place], LogPosition | None]:
    framer, buf, at = Framer(), np.frombuffer(data, np.uint8), 0
    places: list[Place] = []
    last: Any = None
    number = 0
    while at < len(buf):
        item, at = framer.next(buf, at, len(buf))
        assert item is not None
        if isinstance(item, EndOfLog):
            break
        last = item
        if isinstance(item, Segment):
            for start, pos in zip(item.start.tolist(), item.next_pos.tolist(), strict=True):
                kind = int(item.buf[start + codes.TYPE_OFFSET])
                if kind == codes.GTID:
                    body = item.buf[start + codes.HEADER_SIZE :].tobytes()
                    number = int.from_bytes(body[17:25], "little")
                elif kind == codes.XID:
                    places.append((number, item.file, pos))
    assert at == len(buf)
    return places, last if isinstance(last, LogPosition) else None


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(
        st.one_of(
            st.tuples(st.just("commit"), st.integers(0, 400)),
            st.tuples(st.just("rotate"), st.just(0)),
            st.tuples(st.just("dump"), st.integers(1, 5000)),
            st.tuples(st.just("cut"), st.integers(1, 5000)),
            st.tuples(st.just("killed"), st.integers(0, 300)),
        ),
        max_size=40,
    ),
    step=st.integers(1, 3000),
    checksums=st.booleans(),
)
def test_what_went_in_comes_out(events: list[tuple[str, int]], step: int, checksums: bool) -> None:
    server = Server(A, checksums)
    server.commit()
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        spool = stack.enter_context(closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)))
        for what, number in [*events, ("dump", step), ("killed", 0)]:
            had = spool.gtid.count()
            if what == "commit":
                server.commit(number)
            elif what == "rotate":
                server.rotate()
            elif what == "dump":
                feed(spool, A, server.dump(had), number)
            elif what == "cut":  # anywhere, also within an event
                feed(spool, A, server.dump(had)[:number], step)
            else:
                spool.close()
                kept = sorted(folder.glob("*.packets"))
                if kept:
                    with kept[-1].open("ab") as file:
                        file.write(server.dump(0)[100 : 100 + number])
                spool = stack.enter_context(closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)))
            assert sum(file.stat().st_size for file in folder.glob("*.packets")) < 25_000
        first, last = spool.head().begin.count(), server.number
        assert (spool.head().begin, spool.gtid) == (gtids(first), gtids(last))
        for had in {first, (first + last) // 2, last}:
            places, end = read(spool, had, most=step)
            assert [one for one in places if one[0] > had] == server.places()[had:]
            assert end is not None
            assert end.file == spool.files()[-1].name
        if first:
            with pytest.raises(BinlogPurgedError):
                spool.reader(LogRequest(executed_before=gtids(first - 1)))
        wanted = gtids(last, (first + last) // 2 + 1)
        if wanted:
            with closing(spool.reader(LogRequest(wanted=wanted, server_uuid=A))) as reader:
                data = b"".join(iter(lambda: reader.read(1000), b""))
            assert {number for number, _, _ in decoded(data)[0]} >= {one.number for one in wanted}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def over_two_servers(folder: Path) -> Iterator[tuple[LogSpool, Server, Server]]:
    """Ten transactions of server A, then five of B, which has had the first ten, too."""
    a, b = Server(A), Server(B)
    for n in range(15):
        if n < 10:
            a.commit()
        b.commit()
        if n == 6:
            a.rotate()
    spool = new_archive(folder, 1 << 20, wait_seconds=0.01)
    feed(spool, A, a.dump(0), 500)
    feed(spool, B, b.dump(10), 500)
    yield spool, a, b
    spool.close()


def test_an_answer_is_of_one_server(over_two_servers: tuple[LogSpool, Server, Server]) -> None:
    spool, a, b = over_two_servers
    assert [(one.server_uuid, one.begin, one.end) for one in spool.head().series] == [
        (A, gtids(0), gtids(10)), (B, gtids(10), gtids(15)),
    ]  # fmt: skip
    assert [(one.server_uuid, one.name) for one in spool.files()] == [
        (A, "binlog.000001"), (A, "binlog.000002"), (B, "binlog.000001"),
    ]  # fmt: skip
    places, end = read(spool, 0)
    assert places == a.places()
    assert end is None  # how far the log was read is a place of B's
    places, end = read(spool, 10)
    assert [one for one in places if one[0] > 10] == b.places()[10:]
    assert end == LogPosition("binlog.000001", b.places()[-1][2])
    for had, wanted, uuid, held in (
        (None, gtids(10, 3), A, True), (None, gtids(10, 3), B, False), (None, gtids(12, 9), None, True),
        (None, gtids(12, 9), A, False), (None, gtids(12, 11), B, True), (gtids(10), None, B, True),
        (gtids(9), None, B, False), (gtids(3), None, A, False), (gtids(3), None, None, True),
    ):  # fmt: skip
        request = LogRequest(executed_before=had, wanted=wanted, server_uuid=uuid)
        if held:
            spool.reader(request).close()
        else:
            with pytest.raises(BinlogPurgedError, match="as server"):
                spool.reader(request)


def test_what_is_not_there_yet(over_two_servers: tuple[LogSpool, Server, Server]) -> None:
    spool, _, b = over_two_servers
    with pytest.raises(ServerBehindError, match="does not have transactions yet") as raised:
        spool.reader(LogRequest(executed_before=gtids(10), executed=gtids(17)))
    assert raised.value.missing == str(gtids(17, 16))
    place = b.places()[-1][2]
    spool.reader(LogRequest(executed_before=gtids(10), server_uuid=B, until=("binlog.000001", place))).close()
    for until in (("binlog.000001", place + 1), ("binlog.000002", 4)):
        with pytest.raises(ServerBehindError, match="has not reached position"):
            spool.reader(LogRequest(executed_before=gtids(10), server_uuid=B, until=until))
    with pytest.raises(ServerBehindError, match="reads the log of server"):
        spool.reader(LogRequest(executed_before=gtids(10), server_uuid=A, until=("binlog.000001", 4)))


def test_a_place_without_events_is_reached(over_two_servers: tuple[LogSpool, Server, Server]) -> None:
    spool, _, b = over_two_servers
    feed(spool, B, b.dump(15), 500)
    copy = LogCopy(B, spool.gtid)
    buf = np.frombuffer(b.dump(15), np.uint8)
    at = 0
    while at < len(buf):
        item, at = copy.next(buf, at, len(buf))
        assert item is not None
        spool.store(item)
    spool.store(CopiedPosition("binlog.000001", 9000))
    _, end = read(spool, 15, server_uuid=B, until=("binlog.000001", 9000))
    assert end == LogPosition("binlog.000001", 9000)


def test_a_transaction_larger_than_the_space_is_kept_until_more_has_come(folder: Path) -> None:
    """Else nobody could read it, however quick he is."""
    server, spool = Server(A), new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    with closing(spool):
        for size in (100, 200_000, 100):
            server.commit(size)
        feed(spool, A, server.dump(0), 1 << 20)
        assert read(spool, 1)[0][-2:] == server.places()[1:]
        for _ in range(100):
            server.commit(1_000)
        feed(spool, A, server.dump(3), 1_000)
        assert sum(one.bytes for one in spool.files()) < 40_000
        with pytest.raises(BinlogPurgedError):
            read(spool, 1)


def test_who_follows_gets_it_as_it_comes(folder: Path) -> None:
    server, spool = Server(A), new_archive(folder, 1 << 20, wait_seconds=0.01)
    counts: list[int] = []
    came = threading.Condition()

    def follow() -> None:
        framer = Framer()
        with spool.open(LogRequest(executed_before=GtidSet(), endless=True)) as kept:
            stream = kept.stream
            try:
                while True:
                    item, used = framer.next(stream.buf, stream.start, stream.end)
                    stream.consume(used - stream.start)
                    if item is None:
                        stream.fill(framer.needed)
                    elif isinstance(item, Segment):
                        kinds = item.buf[item.start + codes.TYPE_OFFSET]
                        with came:
                            counts.append(int((kinds == codes.XID).sum()))
                            came.notify_all()
            except ConnectionLostError:
                pass

    reader = threading.Thread(target=follow)
    reader.start()
    for n in range(1, 6):
        server.commit()
        feed(spool, A, server.dump(n - 1), 10_000)
        with came:
            assert came.wait_for(lambda n=n: sum(counts) == n, PATIENCE_SECONDS)  # type: ignore[misc]
        if n == 3:
            server.rotate()
    spool.close()
    reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive()


def test_who_follows_and_is_overtaken_asks_again(folder: Path) -> None:
    """He hears it as a lost connection, after which he may read the server; what cannot be had ends him for good."""
    server, spool = Server(A), new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    request = LogRequest(executed_before=GtidSet(), endless=True)
    with closing(spool):
        for n in range(1, 3):
            server.commit(1_000)
            feed(spool, A, server.dump(n - 1), 1_000)
        with spool.open(request) as kept:
            kept.stream.fill(100)
            for _ in range(60):
                server.commit(1_000)
            feed(spool, A, server.dump(2), 1_000)
            with pytest.raises(ConnectionLostError, match="deleted a part"):
                kept.stream.fill(20_000)
        with pytest.raises(BinlogPurgedError), spool.open(request):
            pass


def test_killed_between_the_two_files_of_a_deletion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(BaseException):
        pass

    server, unlink = Server(A), Path.unlink
    files: list[Path] = []

    def killed_at_the_second(path: Path, *, missing_ok: bool = False) -> None:
        files.append(path)
        if len(files) == 2:
            raise KilledError
        unlink(path, missing_ok=missing_ok)

    for _ in range(200):
        server.commit(100)
    spool = new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    with monkeypatch.context() as killing:
        killing.setattr(Path, "unlink", killed_at_the_second)
        with pytest.raises(KilledError):
            feed(spool, A, server.dump(0), 500)
    second = spool._segments[0].before
    spool.close()
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        assert spool.head().begin == second > GtidSet()
        assert [file for file in files if file.exists()] == []


def test_a_segment_is_on_disk_before_the_next_ones_header(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink().name))
    server = Server(A)
    for _ in range(21):
        server.commit(100)
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        feed(spool, A, server.dump(0), 400)
        numbers = [one.number for one in spool._segments]
    # A header is synced under a temporary name.
    names = [name if name.endswith(".packets") else "header" for name in synced if name != folder.name]
    assert len(numbers) > 2
    assert names == [name for number in numbers for name in ("header", f"{number:012d}.packets")]


def test_damaged_files(folder: Path) -> None:
    server = Server(A)
    for _ in range(21):
        server.commit(100)
    spool = new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    feed(spool, A, server.dump(0), 400)
    spool.close()
    files = sorted(folder.glob("*.packets"))
    assert files[-1].stat().st_size > 100
    for file, place in ((files[1], 150), (files[-1], -30)):
        data = bytearray(file.read_bytes())
        data[place] ^= 255
        file.write_bytes(data)
    spool = new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    assert spool.gtid < gtids(21)  # the end of the last file: as if it had not been written
    begin = spool._segments[1].before
    with pytest.raises(BinlogPurgedError, match="is damaged"):  # the server may have it
        spool.reader(LogRequest(executed_before=begin))
    assert spool.head().begin == spool._segments[0].before > begin
    with pytest.raises(BinlogPurgedError, match="no longer has"):
        spool.reader(LogRequest(executed_before=begin))
    feed(spool, A, server.dump(spool.gtid.count()), 400)
    assert spool.gtid == gtids(21)
    places, _ = read(spool, 15)
    assert [one for one in places if one[0] > 15] == server.places()[15:]
    spool.close()
    (folder / f"{files[-1].stem}.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a binlog archive"):
        new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)


def test_a_segment_that_is_deleted_before_it_is_parsed(folder: Path) -> None:
    server = Server(A)
    for _ in range(21):
        server.commit(100)
    with closing(new_archive(folder, 20_000, sizes=SMALL)) as spool:
        feed(spool, A, server.dump(0), 400)
    with closing(new_archive(folder, 20_000, sizes=SMALL)) as spool:
        spool._segments[0].path.unlink()
        with pytest.raises(BinlogPurgedError, match="deleted a part of its log"):
            spool.reader(LogRequest(executed_before=GtidSet()))


def fill(spool: LogSpool, server: Server) -> int:
    """Fill some segments, and a part of the newest one; return the number of transactions."""
    while server.number < 40 or not spool._segments[-1].size:
        server.commit(100)
        feed(spool, A, server.dump(server.number - 1), 400)
    return server.number


@pytest.mark.parametrize("lost", [0, 1, -2, -1])
@pytest.mark.parametrize("ending", ["packets", "json", "both", "cut"])
def test_a_file_that_a_cleaner_has_removed_is_a_gap_that_nobody_skips(folder: Path, lost: int, ending: str) -> None:
    server = Server(A)
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        last = fill(spool, server)
        begins = [one.before for one in spool._segments]
        file = spool._segments[lost].path
    if ending == "cut":
        file.write_bytes(file.read_bytes()[:-200])
    for name in ("packets", "json"):
        if ending in (name, "both"):
            file.with_suffix(f".{name}").unlink()
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        kept = begins[[*range(len(begins))][lost] + 1 :]
        assert spool.head().begin == (kept[0] if kept else begins[0])
        if kept:
            assert spool.gtid == gtids(last)
            assert spool.files()[0].before == kept[0]
            with pytest.raises(BinlogPurgedError):
                spool.reader(LogRequest(executed_before=begins[lost]))
        else:  # the server's log replaces the newest one
            assert begins[-1] <= spool.gtid < gtids(last)
        feed(spool, A, server.dump(spool.gtid.count()), 400)
        server.commit(100)
        feed(spool, A, server.dump(last), 400)
        begin = spool.head().begin.count()
        assert read(spool, begin)[0] == server.places()[begin:]
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        assert spool.head().begin.count() == begin
        assert read(spool, begin)[0] == server.places()[begin:]


@pytest.mark.parametrize("lost", [0, 1, -1])
def test_a_file_that_is_removed_while_the_archive_is_open(folder: Path, lost: int) -> None:
    """The reader that needs it, and a new one, have to read at the server. The dump begins again after the newest."""
    server, spool = Server(A), new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    last = fill(spool, server)
    follower = spool.reader(LogRequest(executed_before=gtids(0), endless=True))
    segment, after = spool._segments[lost], [*spool._segments, None][[*range(len(spool._segments))][lost] + 1]
    segment.path.unlink()
    request = LogRequest(executed_before=segment.before)
    with pytest.raises(BinlogPurgedError, match=str(segment.path)):
        spool.reader(request)
    assert spool.head().begin == (after.before if after else gtids(last))
    with pytest.raises(BinlogPurgedError, match="no longer has"):
        spool.reader(request)
    if lost != 0:
        with pytest.raises(BinlogPurgedError):
            b"".join(iter(lambda: follower.read(1 << 20), b""))
    follower.close()
    server.commit(100)
    if after is None:
        with pytest.raises(ConnectionLostError, match="begins again"):
            spool.store(CopiedEvents(np.zeros(9, np.uint8), 9, 9, gtids(last + 1)))
        spool.interrupted()
    feed(spool, A, server.dump(last), 400)
    begin = spool.head().begin.count()
    assert read(spool, begin)[0] == server.places()[begin:]
    spool.close()
    with closing(new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)) as spool:
        assert read(spool, begin)[0] == server.places()[begin:]


def test_private_whatever_the_umask(folder: Path) -> None:
    server, before = Server(A), os.umask(0)
    server.commit()
    try:
        with closing(new_archive(folder / "log", 1 << 20)) as spool:
            feed(spool, A, server.dump(0), 400)
    finally:
        os.umask(before)
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_a_folder_without_a_log_begins_where_it_is_told(folder: Path) -> None:
    spool = LogSpool(folder, 1 << 20, wait_seconds=0.01)
    with pytest.raises(ServerBehindError, match="has not begun"):
        spool.reader(LogRequest(executed_before=GtidSet()))
    spool.begin(gtids(7))
    assert (spool.gtid, spool.head().begin, spool.head().file, spool.last) == (gtids(7), gtids(7), "", None)
    assert read(spool, 7) == ([], None)
    spool.close()
    spool = LogSpool(folder, 1 << 20, wait_seconds=20)
    assert not spool.has_begun  # nothing was archived: the relay knows where its row reader is
    spool.begin(gtids(7))
    server = Server(A, number=7)
    server.commit()
    feed(spool, A, server.dump(7), 100)
    assert spool.last == Last(f"{SOURCE}:8", TIME_US)
    spool.close()
    spool = LogSpool(folder, 1 << 20, wait_seconds=20)
    assert (spool.has_begun, spool.gtid, spool.head().begin) == (True, gtids(8), gtids(7))
    spool.close()
    for path in folder.glob("*.packets"):
        path.unlink()
    spool = LogSpool(folder, 1 << 20, wait_seconds=20)  # the server may have purged what came after 7
    assert not spool.has_begun
    spool.begin(gtids(8))
    assert (spool.gtid, spool.head().begin) == (gtids(8), gtids(8))
    spool.close()
    spool = LogSpool(folder, 1 << 20, wait_seconds=20, reset=True)
    spool.begin(gtids(9))
    assert (spool.gtid, spool.head().series) == (gtids(9), ())
    spool.close()


def test_the_last_transaction_is_the_log_s_not_the_one_with_the_highest_number(folder: Path) -> None:
    """A group assigns numbers in blocks. It is also known after a restart, and when its segment was deleted."""
    server, spool = Server(A), new_archive(folder, 2_000, sizes=SMALL)
    for number in (1_000_000, 0, 1, 2):
        server.number = number
        server.commit()
    feed(spool, A, server.dump(-1), 100)
    assert spool.last == Last(f"{SOURCE}:3", TIME_US)
    for _ in range(5):
        spool.close()
        spool = new_archive(folder, 2_000, sizes=SMALL)
        assert spool.last == Last(f"{SOURCE}:3", TIME_US)
        server.rotate()
        copy = server.files[-1]
        rotate = BinlogWriter().rotate(copy[0])
        feed(spool, A, packets([rotate, copy[1]]), 100)
    spool.close()


def test_changes_as_statements_are_copied_for_those_who_do_not_follow_their_tables(folder: Path) -> None:
    server, spool = Server(A), new_archive(folder, 1 << 20, wait_seconds=0.01)
    server.commit()
    writer = server._writer
    begun = [writer.gtid(SOURCE, 2), writer.query("BEGIN")]
    changes = [writer.query("UPDATE d.t SET v = 1", databases=["d"]), writer.query("DELETE FROM d.t")]
    feed(spool, A, server.dump(0) + packets([*begun, *changes, writer.xid()]), 100)
    assert spool.gtid == gtids(2)
    spool.close()


@pytest.mark.parametrize("failing", ["write_all", "write_json", "fsync"])
def test_a_disk_that_is_full_for_a_while(folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Whatever cannot be written, the next dump continues, and nothing is torn."""
    server, spool = Server(A), new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    for _ in range(20):
        server.commit(300)
    really, calls = getattr(_files, failing, os.fsync), [0]

    def full(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] not in (3, 4, 6):
            return really(*arguments)
        if failing == "write_all":
            arguments[0].write(arguments[1][:50])
        raise StorageError("full") if failing == "write_json" else OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_files if hasattr(_files, failing) else os, failing, full)
    while spool.gtid.count() < 20:
        with contextlib.suppress(StorageError):
            try:
                feed(spool, A, server.dump(spool.gtid.count()), 400)
            finally:
                spool.interrupted()
    monkeypatch.undo()
    assert calls[0] >= 3
    assert read(spool, 0)[0] == server.places()
    spool.close()
    again = new_archive(folder, 20_000, wait_seconds=0.01, sizes=SMALL)
    assert read(again, 0)[0] == server.places()
    again.close()


@pytest.mark.parametrize("emptied", [False, True], ids=["new", "its newest segment was lost"])
def test_an_endless_reader_of_an_empty_archive_meets_no_gap(tmp_path: Path, emptied: bool) -> None:
    """What it was to begin with is deleted before its first read."""
    spool, server = new_archive(tmp_path, 4000, sizes=SMALL), Server(A)
    if emptied:
        server.commit(400)
        feed(spool, A, server.dump(0), 100)
        lose_all(spool)
    begin = server.number
    request = LogRequest(executed_before=gtids(begin), endless=True)
    with closing(spool), closing(spool.reader(request)) as at_once, closing(spool.reader(request)) as late:
        server.commit()
        feed(spool, A, server.dump(begin), 100)
        data = at_once.read(1 << 20) + at_once.read(1 << 20)
        assert [number for number, _, _ in decoded(data)[0]] == [begin + 1]
        for _ in range(20):
            server.commit(400)
        feed(spool, A, server.dump(begin + 1), 100)
        assert spool.head().begin != gtids(begin)
        with pytest.raises(BinlogPurgedError, match="before it was read"):
            late.read(1 << 20)


def lose_all(spool: LogSpool) -> None:
    """Lose the files, and let a reader notice."""
    for one in spool._segments:
        one.path.unlink()
    with pytest.raises(BinlogPurgedError):
        spool.reader(LogRequest(executed_before=spool._segments[0].before))
    while spool._segments:
        with pytest.raises(BinlogPurgedError):
            spool.reader(LogRequest(executed_before=spool._segments[0].before))
