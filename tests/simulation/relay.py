"""A simulated relay: from a server's log to its archive and its buffer, and from there to consumers with checkpoints.

**What is headgate's**: the binlog archive (``LogSpool``) with its segments and readers, the division of a dump
(``LogCopy``), the event buffer (``EventBuffer``) with its files, the position and its file (``BufferPosition``,
``StateFile``), and a consumer's checkpoints (``Keeper``, ``CheckpointFile``). **Simulated** are the servers, the
threads of the relay (what each does next is the scheduler's choice), consumers, and time. Files are real, and a process
can end at each operation on them: a write may be cut there, or fail. With the process the machine may lose its power:
then only what was synced is left.

**The oracle.** A consumer gets each transaction's events once, whole and in order, from its position on, or the error
that the relay has dropped them, which must be true. It then reads the source, as one that bootstraps. At rest its rows
are the source's. What the archive had stays there unless the power was lost, and its readers get the transactions after
each other.
"""

from __future__ import annotations

import errno
import os
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from headgate import files
from headgate.errors import BinlogPurgedError, HeadgateError, ScnNotFoundError
from headgate.files import write_all
from headgate.gtid import GtidSet
from headgate.relay.databus import StreamPosition, scan_windows
from headgate.relay.server import EventBuffer, Windows
from headgate.replication import Idle
from headgate_testing import PowerLoss
from tests.relay.archive.test_spool import SMALL, SOURCE, Server, feed, new_archive, read
from tests.relay.databus.test_events import WRITERS, Spec, eop
from tests.simulation.choices import Chooser
from tests.simulation.driver import Fault
from tests.simulation.rooms import BufferPosition, CheckpointFile, FeederState, Keeper, StateFile, load_state
from tests.simulation.world import Killed

__all__ = ["RelayEpisode"]

_KEYS: Final = 12
_CLIENTS: Final = 3
_SERVERS: Final = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562")
_HEATS: Final = (0, 0, 400, 120, 40)
"""A process ends at one of so many file operations; 0: at none."""
_LOG_BYTES, _MEMORY, _DISK = 12_000, 16 << 10, 24 << 10
_FOLDER: Final = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
"""Files of episodes: in memory, where Linux has such a folder, as no episode needs a disk."""
_EOP: Final = -2
_HEAD: Final = struct.Struct(">ihqhhqh")
"""Of an event of version 1, from its size on (``Databus``: DbusEventV1)."""

Change = tuple[int, bytes | None]
"""Key and value; None: the row is deleted."""


class Operations:
    """Operations on files, at each of which the process may end.

    :param counts: gets them.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.choose, self.heat = Chooser(0), 0
        self.is_dead = False

    def reach(self) -> None:
        """Come to the next operation.

        :raises Killed: the process ends before it.
        """
        if not self.is_dead:
            self.counts["file operation"] += 1
            self.is_dead = self.heat > 0 and self.choose.one_in(self.heat)
        if self.is_dead:
            raise Killed

    @contextmanager
    def in_effect(self) -> Iterator[None]:
        """Let the code in the block come here."""

        def before(work: Any) -> Any:
            def reaching(*about: Any, **more: Any) -> Any:
                self.reach()
                return work(*about, **more)

            return reaching

        with ExitStack() as stack:
            for owner, name in ((Path, "replace"), (Path, "unlink"), (files, "_opened")):
                stack.enter_context(patch.object(owner, name, before(getattr(owner, name))))
            stack.enter_context(patch.object(os, "fsync", lambda _: self.reach()))
            for module in ("archive._files", "server._segments"):
                stack.enter_context(patch(f"headgate.relay.{module}.write_all", self._write))
            yield

    def _write(self, file: Any, data: memoryview) -> None:
        cut = self.choose.below(len(data) + 1) if self.heat else 0
        try:
            self.reach()
        except Killed:
            file.write(data[:cut])
            raise
        if self.heat and self.choose.one_in(2 * self.heat):
            self.counts["write failed"] += 1
            file.write(data[:cut])
            raise OSError(errno.ENOSPC, "no space left")
        write_all(file, data)


class _Source:
    """Transactions, on one server after the other."""

    def __init__(self) -> None:
        self.server = Server(_SERVERS[0])
        self.sizes: list[int] = []
        self.changes: list[list[Change]] = []
        self.rows: list[Mapping[int, bytes]] = [{}]
        """The rows after so many transactions."""

    def commit(self, choose: Chooser) -> None:
        rows, changes = dict(self.rows[-1]), list[Change]()
        for _ in range(1 + choose.below(4)):
            key, value = choose.below(_KEYS), bytes([choose.below(256)]) * (1 + choose.below(200))
            if key in rows and choose.one_in(4):
                del rows[key]
                changes.append((key, None))
            else:
                rows[key] = value
                changes.append((key, value))
        self.changes.append(changes)
        self.rows.append(rows)
        self.sizes.append(choose.below(300))
        self.server.commit(self.sizes[-1])

    def fail_over(self, choose: Chooser) -> None:
        """Continue on another server, which has all transactions in a log of its own."""
        other = Server(_SERVERS[self.server.uuid == _SERVERS[0]])
        for size in self.sizes:
            other.commit(size)
            if choose.one_in(20):
                other.rotate()
        self.server = other

    def windows(self, first: int, last: int) -> Windows:
        """Return the windows of transactions: their numbers are their SCNs."""
        events: list[bytes] = []
        for scn in range(first, last + 1):
            changes = self.changes[scn - 1]
            events += [WRITERS[1](Spec(scn, key, value or b"-", value is None, scn)) for key, value in changes]
            events.append(WRITERS[1](eop(scn, scn)))
        data = np.frombuffer(b"".join(events), np.uint8)
        return Windows(data, *scan_windows(data))


class _Relay:
    """One process of the relay."""

    def __init__(self, folder: Path) -> None:
        file = folder / "partition-1.json"
        state = load_state(file, "file")
        self.spool = new_archive(folder / "log-1", _LOG_BYTES, wait_seconds=0.0, sizes=SMALL)
        until = -1 if state is None else state.scn
        self.buffer = EventBuffer(_MEMORY, folder=folder / "partition-1", disk_bytes=_DISK, until_scn=until)
        self.position = BufferPosition(state or FeederState(GtidSet(), -1))
        self.state_file = StateFile(file, "file", self.position, "simulated", self.buffer.sync)
        self.state_file.save()

    @property
    def published(self) -> int:
        return max(0, self.position.now().scn)

    def publish(self, windows: Windows) -> None:
        """Append windows, as the feeder does: the position follows the buffer."""
        try:
            self.buffer.append(windows)
        finally:
            whole = int(np.searchsorted(windows.scns, self.buffer.reached_scn, "right"))
            if whole:
                gtids = [f"{SOURCE}:{scn}" for scn in windows.scns[:whole].tolist()]
                self.position.publish(gtids, int(windows.scns[whole - 1]), 1)
                now = self.position.now()
                self.position.reach(Idle(now.gtid), now.scn)


class _Client:
    """A consumer, whose rows outlast its process."""

    def __init__(self, source: _Source, counts: Counter[str], folder: Path, number: int) -> None:
        self._source, self._counts = source, counts
        self._file = CheckpointFile(folder, f"client-{number}")
        self.rows: dict[int, bytes] = {}
        self.keeper: Keeper | None = None

    def begin(self, relay: _Relay) -> Keeper:
        """Start from the stored checkpoint; without one, with the rows of the source."""
        self.keeper = Keeper(self._file, 0.0)
        if self.keeper.load(bootstrap=False) == StreamPosition(-1):
            self._bootstrap(relay, self.keeper)
        return self.keeper

    def _bootstrap(self, relay: _Relay, keeper: Keeper) -> None:
        self._counts["consumer bootstrapped"] += 1
        self.rows = dict(self._source.rows[relay.published])
        keeper.checkpoint = StreamPosition(relay.published)

    def read(self, relay: _Relay, size: int) -> int:
        """Read some events; return how many bytes.

        :raises Fault: they are not those that follow.
        """
        keeper = self.keeper or self.begin(relay)
        position = keeper.checkpoint
        assert isinstance(position, StreamPosition)
        try:
            batch = relay.buffer.read(position, size)
        except ScnNotFoundError as error:
            oldest = relay.buffer.oldest_resumable_scn
            if position.scn > oldest or (position.scn == oldest and position.offset < 0):
                raise Fault(f"the relay has what follows {position}, and refuses it: {error}") from error
            self._bootstrap(relay, keeper)
            return 1
        for scn, change in _events(batch.joined().tobytes()):
            keeper.checkpoint = position = self._take(position, scn, change)
        return batch.size

    def _take(self, position: StreamPosition, scn: int, change: Change | None) -> StreamPosition:
        """Apply an event; None: the transaction ends. Return the position after it."""
        done = max(position.offset, 0) if position.scn == scn else 0
        if position.offset >= 0 or position.scn == scn:
            follows = scn == position.scn and position.offset >= 0
        else:
            follows = scn == position.scn + 1
        changes = self._source.changes[scn - 1] if 0 < scn <= len(self._source.changes) else []
        expected = changes[done] if done < len(changes) else None
        if not follows or change != expected:
            raise Fault(f"after {position} comes {change} of {scn}, not {expected}")
        if change is None:
            self._counts["transaction consumed"] += 1
            return StreamPosition(scn)
        key, value = change
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
        return position.after_next_event(scn)


def _events(data: bytes) -> Iterator[tuple[int, Change | None]]:
    """Yield SCN and change of each event; None: the end of a transaction."""
    at = 0
    while at < len(data):
        size, attributes, scn, _, _, _, source = _HEAD.unpack_from(data, at + 5)
        if source == _EOP:
            yield scn, None
        else:
            value = data[at + 61 : at + size]
            yield scn, (int.from_bytes(data[at + 53 : at + 61], "big"), None if attributes & 2 else value)
        at += size


class RelayEpisode:
    """One episode. Its steps are numbers, as those of ``episode.Episode``."""

    def __init__(self, seed: int) -> None:
        self.figures: Counter[str] = Counter()
        self._choose = Chooser(seed)
        self._source, self._operations = _Source(), Operations(self.figures)
        self._relay: _Relay | None = None
        self._archived = 0
        """Transactions that readers may have had from the archive."""
        self._power: PowerLoss | None = None
        self._lives = 0
        self._clients: list[_Client] = []
        self._folder = Path()

    def run(self, seeds: Sequence[int]) -> None:
        """Run the steps, then come to rest, and judge.

        :raises Fault: headgate is at fault.
        """
        with TemporaryDirectory(prefix="headgate-relay-", dir=_FOLDER) as name, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # files of a process that ended while it started
            self._folder = Path(name, "0")
            self._folder.mkdir()
            consumers = Path(name, "consumers")
            consumers.mkdir()
            self._clients = [_Client(self._source, self.figures, consumers, one) for one in range(_CLIENTS)]
            try:
                for seed in seeds:
                    self._step(Chooser(seed))
                self._rest()
            finally:
                self._die()

    def _step(self, choose: Chooser) -> None:
        """Let something happen, until the process ends at one of its file operations or the step is over."""
        operations = self._operations
        operations.choose, operations.heat, self._choose = choose, choose.pick(_HEATS), choose
        if self._power is None and self._relay is None and choose.one_in(4):
            self._power = PowerLoss(self._folder)
        try:
            with operations.in_effect(), self._recorded():
                for _ in range(1 + choose.below(12)):
                    self._act(choose.below(100))
        except Killed:
            self.figures["kill"] += 1
            self._die()
        except HeadgateError:
            self.figures["process ended by an error"] += 1
            self._die()

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        if self._power is None:
            yield
            return
        with self._power.recording():
            yield

    def _die(self) -> None:
        """End the relay's process, and perhaps the machine's power."""
        self._operations.is_dead = False
        relay, self._relay = self._relay, None
        segments: list[Any] = [] if relay is None else [*relay.buffer._segments, *relay.spool._segments]
        for segment in segments:
            if segment._file is not None:  # not by its own close(), which completes the file
                segment._file.close()
        for client in self._clients:
            if self._choose.one_in(2):
                client.keeper = None
        if segments and self._choose.one_in(8):
            self._damage_archive()
        power, self._power = self._power, None
        if power is not None:
            self._lives += 1
            left = self._folder.with_name(str(self._lives))
            power.leave(left, all_names=self._choose.one_in(2))
            power.close()
            self._folder, self._archived = left, 0
            self.figures["power lost"] += 1

    def _damage_archive(self) -> None:
        """Delete a file of the archive, or cut a segment, as a program or a disk may. A cut header is an error."""
        files = sorted(path for path in self._folder.glob("log-1/*") if path.is_file())  # its first segment makes it
        if not files:
            return
        path = self._choose.pick(files)
        if path.suffix == ".json" or self._choose.one_in(2):
            path.unlink()
        else:
            os.truncate(path, self._choose.below(path.stat().st_size + 1))
        self._archived = 0
        self.figures["archive damaged"] += 1

    def _start(self) -> _Relay:
        relay = self._relay = _Relay(self._folder)
        self.figures["start"] += 1
        if relay.spool.gtid.count() < self._archived:
            raise Fault(f"the archive had {self._archived} transactions, and has {relay.spool.gtid}")
        return relay

    def _act(self, what: int) -> None:
        choose, source = self._choose, self._source
        if what < 20:
            for _ in range(1 + choose.below(8)):
                source.commit(choose)
                self.figures["transaction committed"] += 1
        elif what < 22:
            source.server.rotate()
        elif what < 23:
            source.fail_over(choose)
            self.figures["failover"] += 1
        elif what < 24:
            raise Killed
        else:
            self._work(self._relay or self._start(), what)

    def _work(self, relay: _Relay, what: int) -> None:
        """Let a thread of the relay, or a consumer, work."""
        choose, client = self._choose, self._clients[self._choose.below(_CLIENTS)]
        if what < 45:
            self._copy(relay, 1 + choose.below(3000), cut=choose.below(4000) if choose.one_in(3) else None)
        elif what < 62:
            self._publish(relay, 1 + choose.below(6))
        elif what < 68:
            relay.state_file.save()
            self.figures["position saved"] += 1
        elif what < 92:
            if client.read(relay, 200 + choose.below(3000)) and client.keeper is not None and choose.one_in(2):
                client.keeper.save()
                self.figures["checkpoint stored"] += 1
        elif what < 96:
            client.keeper = None
        else:
            self._judge_archive(relay)

    def _copy(self, relay: _Relay, step: int, cut: int | None = None) -> None:
        """Let the archive take a dump of the server, which perhaps ends early."""
        had = relay.spool.gtid.count()
        data = self._source.server.dump(had)
        try:
            feed(relay.spool, self._source.server.uuid, data if cut is None else data[:cut], step)
        except HeadgateError:
            self.figures["dump ended by an error"] += 1
            relay.spool.interrupted()
        finally:
            self._archived = relay.spool.gtid.count()
            self.figures["transaction archived"] += max(0, self._archived - had)

    def _publish(self, relay: _Relay, most: int) -> None:
        first = relay.published + 1
        last = min(len(self._source.changes), relay.published + most)
        if first > last:
            return
        with suppress(HeadgateError):
            relay.publish(self._source.windows(first, last))
        self.figures["window appended"] += relay.published - first + 1

    def _judge_archive(self, relay: _Relay) -> None:
        """Judge what readers of the archive get."""
        begin, end = relay.spool.head().begin.count(), relay.spool.gtid.count()
        had = begin + self._choose.below(end - begin + 1)
        while had < end:
            try:
                numbers = [number for number, _, _ in read(relay.spool, had)[0] if number > had]
            except BinlogPurgedError as error:
                raise Fault(f"the archive has {begin} to {end}, and refuses what follows {had}") from error
            if numbers != [*range(had + 1, had + 1 + len(numbers))] or not numbers:
                raise Fault(f"after {had} the archive has {numbers[:5]}")
            had = numbers[-1]
        self.figures["archive judged"] += 1

    def _rest(self) -> None:
        operations = self._operations
        operations.heat, operations.choose, self._choose = 0, Chooser(1), Chooser(1)
        with operations.in_effect():
            relay = self._relay or self._start()
            while relay.published < len(self._source.changes):
                self._publish(relay, 50)
            self._copy(relay, 1 << 16)
            if relay.spool.gtid.count() != len(self._source.changes):
                raise Fault(f"at rest the archive has {relay.spool.gtid}")
            self._judge_archive(relay)
            for client in self._clients:
                while client.read(relay, 4000):
                    pass
                if client.rows != self._source.rows[-1]:
                    raise Fault("at rest a consumer has other rows than the source")
                self.figures["consumer judged at rest"] += 1
