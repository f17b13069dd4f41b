"""A server that is only pretended: its log is written with the encoder, its dumps end where a script says.

It reads the commands that readers send, so a reader that asks for the wrong thing gets the wrong thing.
"""

from __future__ import annotations

import struct
import uuid as uuids
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from headgate.binlog import codes
from headgate.catalog import TablePatterns
from headgate.errors import ConnectError
from headgate.gtid import Gtid, GtidSet
from headgate.mysql import ByteStream, Connection, ConnectionSettings
from headgate.positions import NOTHING, LogPlace, Position, file_number
from headgate.replication import (
    DecodeOptions,
    Idle,
    ImageBatch,
    LogBlock,
    LogRead,
    Transport,
    WindowReader,
    follow,
    read_range,
)
from headgate_testing._binlog import EOF_PACKET, BinlogWriter, packed, packets

UUID: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER: Final = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SETTINGS: Final = ConnectionSettings("pretended")
TABLES: Final = TablePatterns(["d.*"])
OPTIONS: Final = DecodeOptions(TABLES)
COM_QUERY: Final = 3
NON_BLOCK: Final = 1
HEARTBEAT_V2: Final = 2

Row = tuple[str | None, int, int, int, int]
"""GTID, file number, position, ordinal, id."""


def gtids(first: int, last: int) -> GtidSet:
    return GtidSet.parse(f"{UUID}:{first}-{last}") if first <= last else GtidSet()


def error_packet(code: int, message: str) -> bytes:
    body = b"\xff" + struct.pack("<H", code) + b"#HY000" + message.encode()
    return len(body).to_bytes(3, "little") + b"\1" + body


@dataclass(frozen=True)
class Ends:
    """How one dump ends: behind so many bytes, or before so many packets; then comes ``tail``, then nothing."""

    after_bytes: int | None = None
    after_packets: int | None = None
    tail: bytes = b""


@dataclass
class _Event:
    data: bytes
    number: int
    """Of its transaction; 0: it belongs to the file."""
    pos: int
    end: int


@dataclass
class _File:
    writer: BinlogWriter
    name: str
    description: bytes = b""
    events: list[_Event] = field(default_factory=list)


class PretendedServer:
    """One table ``d.t (id INT PRIMARY KEY)``; transactions are numbered from 1.

    :param anonymous: ``gtid_mode=OFF``.
    :param began: the time of its events.
    """

    source: ClassVar[str] = UUID
    """The UUID in the GTIDs of its transactions."""

    def __init__(self, uuid: str = UUID, *, anonymous: bool = False, began: int = 1_700_000_000) -> None:
        self.uuid, self.anonymous, self.began = uuid, anonymous, began
        self.number = 0
        self.replicates = False
        self.began_us = 1_700_000_000_000_000
        self.original_us: int | None = None
        """Original commit time of transactions, if it differs from the immediate one; 0: unknown."""
        self.files: list[_File] = []
        self.purged = GtidSet()
        self.rows: dict[int, list[int]] = {}
        self._open_file()

    # --- what is written ------------------------------------------------------------------------------------------

    def _open_file(self) -> None:
        name = f"binlog.{len(self.files) + 1:06d}"
        writer = BinlogWriter(name)
        writer.timestamp = self.began
        self.files.append(_File(writer, name, writer.format_description()))
        self.write(lambda one: one.event(codes.PREVIOUS_GTIDS, self.executed.encode()), number=0)

    def write(self, make: Callable[[BinlogWriter], bytes], number: int | None = None) -> None:
        file = self.files[-1]
        pos = file.writer.pos
        data = make(file.writer)
        file.events.append(_Event(data, self.number if number is None else number, pos, file.writer.pos))

    def begin(self, first: str = "BEGIN") -> None:
        self.number += 1
        if self.anonymous:
            commit_us = (self.began_us + self.number).to_bytes(7, "little")
            body = b"\0" + bytes(16) + struct.pack("<qBqq", 0, 2, 0, 1) + commit_us + packed(0)
            self.write(lambda one: one.event(codes.ANONYMOUS_GTID, body + struct.pack("<I", 90704)))
        else:
            self.write(
                lambda one: one.gtid(
                    self.source, self.number, commit_us=self.began_us + self.number, original_us=self.original_us
                )
            )
        self.write(lambda one: one.query(first))

    def insert(self, *ids: int) -> None:
        """One event."""
        optional = packed(4) + packed(3) + packed(2) + b"id" + packed(8) + packed(1) + packed(0)
        images = b"".join(b"\0" + struct.pack("<i", one) for one in ids)
        self.write(lambda one: one.table_map(1, "d", "t", [codes.T_LONG], b"", optional=optional))
        self.write(lambda one: one.rows(codes.WRITE_ROWS, 1, 1, images))
        self.rows.setdefault(self.number, []).extend(ids)

    def commit(self, *events: Sequence[int]) -> None:
        """A transaction with these rows, so many to an event."""
        self.begin()
        for ids in events:
            self.insert(*ids)
        self.write(lambda one: one.xid(self.number))

    def statement(self, text: str) -> None:
        self.begin(text)

    def rotate(self) -> None:
        following = f"binlog.{len(self.files) + 1:06d}"
        self.write(lambda one: one.rotate(following, artificial=False), number=0)
        self._open_file()

    def restart(self) -> None:
        """The file ends with STOP."""
        self.write(lambda one: one.event(codes.STOP, b""), number=0)
        self._open_file()

    # --- what it says ---------------------------------------------------------------------------------------------

    @property
    def executed(self) -> GtidSet:
        return gtids(1, self.number)

    @property
    def status(self) -> tuple[str, int]:
        file = self.files[-1]
        return file.name, file.events[-1].end

    @property
    def position(self) -> Position:
        """The position now, of either kind."""
        if not self.anonymous:
            return self.executed
        file, pos = self.status
        return LogPlace.before(self.uuid, file_number(file), pos)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        mode = "OFF" if self.anonymous else "ON"
        executed = "" if self.anonymous else str(self.executed)
        settings = {
            "version": "9.7.4",
            "log_bin": "ON",
            "log_replica_updates": "ON",
            "gtid_mode": mode,
            "binlog_format": "ROW",
            "server_uuid": self.uuid,
        }
        answers: dict[str, list[tuple[Any, ...]]] = {
            "SELECT @@global.server_uuid": [(self.uuid,)],
            "SELECT @@global.gtid_executed": [(executed,)],
            "SELECT @@global.gtid_mode, @@global.server_uuid, @@global.gtid_purged, @@global.gtid_executed": [
                (mode, self.uuid, str(self.purged), executed)
            ],
            "SHOW BINARY LOG STATUS": [(*self.status, "", "", executed)],
            "SHOW BINARY LOGS": [(file.name, file.events[-1].end, "No") for file in self.files],
            "SHOW REPLICA STATUS": [("a channel",)] if self.replicates else [],
        }
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            return list(settings.items())
        return [] if sql.startswith("SET @") else answers[sql]

    def select(self, sql: str) -> bytes:
        """The packets that answer a SELECT of large rows."""
        raise AssertionError(f"{sql}: there is no table that can be selected")

    def dump(self, code: int, payload: bytes) -> tuple[int, int, list[bytes]]:
        """Flags and server id of a command, and the packets that answer it, without their end."""
        if code == 0x1E:
            flags, server_id, size = struct.unpack_from("<HII", payload)
            name = payload[10 : 10 + size].decode()
            pos, _ = struct.unpack_from("<QI", payload, 10 + size)
            had = self.requested(payload[22 + size :])
        else:
            pos, flags, server_id = struct.unpack_from("<IHI", payload)
            name, had = payload[10:].decode(), NOTHING
        assert flags & HEARTBEAT_V2, "positions of 32 bits"
        return flags, server_id, [packets([event]) for event in self._sent(name, pos, had)]

    @staticmethod
    def requested(data: bytes) -> Position:
        """The set that a request by set names."""
        return GtidSet.decode(data)

    def _sent(self, name: str, pos: int, had: Position) -> Iterator[bytes]:
        """The events of a dump. What is skipped leaves a heartbeat of the kind that was requested."""
        sid = uuids.UUID(self.source).bytes
        names = [file.name for file in self.files]
        assert not name or name in names, "Could not find first log file name in binary log index file"
        first = names.index(name) if name else 0
        for number, file in enumerate(self.files[first:]):
            begin = pos if number == 0 else 4
            yield BinlogWriter().rotate(file.name, begin)
            yield file.description
            skipped = 0
            for event in file.events:
                if event.pos < begin:
                    continue
                if event.number and Gtid(sid, "", event.number) in had:
                    skipped = event.end
                    continue
                if skipped:
                    yield self._heartbeat(file, skipped)
                skipped = 0
                yield event.data
            if skipped:
                yield self._heartbeat(file, skipped)

    @staticmethod
    def _heartbeat(file: _File, pos: int) -> bytes:
        return BinlogWriter(file.name).heartbeat_v2(pos)

    def idle_packet(self) -> bytes:
        return packets([self._heartbeat(self.files[-1], self.status[1])])


def filtered(uuid: str, others: int) -> PretendedServer:
    """Two transactions; the second one begins with rows of a database that replicas may leave out."""
    server = PretendedServer(uuid)
    server.commit([1])
    server.begin()
    for _ in range(others):
        server.write(lambda one: one.table_map(9, "other", "x", [codes.T_TINY], b""))
        server.write(lambda one: one.rows(codes.WRITE_ROWS, 9, 1, b"\0\1"))
    for one in range(2, 8):
        server.insert(one)
    server.write(lambda one: one.xid(2))
    server.commit([8])
    return server


class _Socket:
    """Gives its bytes so many at a time, then the end of the connection."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = data, step

    def recv_into(self, view: memoryview) -> int:
        piece, self._data = self._data[: min(self._step, len(view))], self._data[min(self._step, len(view)) :]
        view[: len(piece)] = piece
        return len(piece)


class _Session(Connection):
    def __init__(self, network: Network, server: PretendedServer, settings: ConnectionSettings) -> None:
        self._network, self._server, self.settings = network, server, settings
        self._is_open = True

    @property
    def version(self) -> tuple[int, int, int]:
        return 9, 7, 4

    def query(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._network.queries.append(sql)
        return self._server.query(sql)

    def command(self, code: int, payload: bytes) -> ByteStream:
        return ByteStream(self._network.answer(self._server, code, payload), "pretended", 1)

    def close(self) -> None:
        self._network.open -= self._is_open
        self._is_open = False


@dataclass
class Network:
    """Leads to servers.

    :param script: how the dumps end, one after another; those behind it come whole, with the end that they should have.
    :param route: the servers that the connections lead to, None: to none; those behind it lead to ``server``.
    :param step: so many bytes come at a time.
    """

    server: PretendedServer
    script: list[Ends] = field(default_factory=list)
    route: list[PretendedServer | None] = field(default_factory=list)
    step: int = 1 << 20
    attempts: int = 8
    pauses: list[float] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    dumps: list[tuple[int, int]] = field(default_factory=list)
    """Flags and server id of each."""
    sent: list[list[bytes]] = field(default_factory=list)
    """The packets that would have answered each."""
    open: int = 0

    def connect(self, settings: ConnectionSettings) -> Connection:
        server = self.route.pop(0) if self.route else self.server
        if server is None:
            raise ConnectError("nobody answers")
        self.open += 1
        return _Session(self, server, settings)

    def transport(self, **retry: Any) -> Transport:
        return Transport(self.connect).retrying(**{"tries": self.attempts - 1, "sleep": self.pauses.append, **retry})

    def answer(self, server: PretendedServer, code: int, payload: bytes) -> _Socket:
        if code == COM_QUERY:
            return _Socket(server.select(payload.decode()), self.step)
        flags, server_id, dump = server.dump(code, payload)
        self.dumps.append((flags, server_id))
        self.sent.append(dump)
        if self.script:
            ends = self.script.pop(0)
            return _Socket(b"".join(dump[: ends.after_packets])[: ends.after_bytes] + ends.tail, self.step)
        return _Socket(b"".join(dump) + (EOF_PACKET if flags & NON_BLOCK else server.idle_packet()), self.step)


# --- readers ------------------------------------------------------------------------------------------------------


def rows(items: Iterator[Any]) -> Iterator[Row]:
    for item in items:
        if isinstance(item, LogBlock):
            yield from (row for image in item.images for row in _rows(image))


def _rows(image: ImageBatch) -> Iterator[Row]:
    for row in image.batch.to_pylist():
        seq = row["_seq"]
        yield row["_gtid"], seq["file"], seq["pos"], seq["ordinal"], row["id"]


def rows_read(network: Network, had: Position, uuid: str | None = UUID) -> Iterator[Row]:
    end = network.server.position
    read = LogRead(SETTINGS, wanted=end - had, executed=end, server_uuid=uuid)
    return rows(read_range(read, OPTIONS, network.transport()))


def read_window(network: Network, had: Position, uuid: str | None = UUID) -> Iterator[Row]:
    window = WindowReader(SETTINGS, had, server_uuid=uuid, tables=TABLES, transport=network.transport())
    yield from rows(window.read_to(*network.server.status))
    assert network.server.position <= window.gtid


def read_following(network: Network, had: Position, _uuid: str | None = None) -> Iterator[Row]:
    items = follow(SETTINGS, had, OPTIONS, network.transport())

    def until_idle() -> Iterator[Any]:
        for item in items:
            yield item
            if isinstance(item, Idle) and network.server.position <= item.gtid:
                return

    yield from rows(until_idle())
    items.close()  # type: ignore[attr-defined]


READERS: Final[dict[str, Callable[..., Iterator[Row]]]] = {
    "range": rows_read,
    "window": read_window,
    "follow": read_following,
}
