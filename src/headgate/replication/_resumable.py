"""A read of the log that survives its dumps: reconnect, completeness, and the planned server, for every reader.

**Completeness.** A dump's clean end proves nothing (``KILL QUERY`` on the dump thread ends it with a clean EOF). So a
read is complete when nothing of it is left, as :meth:`LogRead.is_complete` says: a range when the transactions received
are exactly those asked for; a window or a scan when the server has read its log at least to the position asked for, and
no transaction is open there; a read for ever never is.

**Resuming.** A transaction that was cut off is asked for again whole, and the changes of it that were handed on before
are left out of the second reading (a server sends the same events in the same order; each dump checks that it is the
same server, where it matters). So whatever the cuts, what is handed on is the log's transactions once, in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from enum import Enum, StrEnum, auto
from typing import Final, Generic, Never, Protocol, Self, TypeVar

from headgate.binlog import Segment
from headgate.errors import HeadgateError, Transient
from headgate.gtid import GtidSet
from headgate.replication._dump import Dump, open_dump, place_of
from headgate.replication._log_read import LogRead
from headgate.replication._transport import TRANSPORT, BackOff, Transport
from headgate.replication._types import Idle, LogHint

__all__ = [
    "TRANSITIONS",
    "Decoding",
    "DumpEvent",
    "DumpState",
    "FollowingDump",
    "ItemDecoder",
    "ResumableDump",
    "Scan",
    "scan",
]

T_co = TypeVar("T_co", covariant=True)


class ItemDecoder(Protocol[T_co]):
    """What is made of one dump's items; a :class:`~headgate.replication._decoder.LogDecoder` is one."""

    received_count: int
    """Transactions received whole."""
    end: tuple[str, int] | None
    """File and position behind the last of them."""

    def decode(self, segment: Segment) -> Iterator[T_co]:
        """Everything in the segment that is handed on."""

    def passed(self, file: str, pos: int) -> None:
        """The dump has come to this position."""

    def received(self) -> GtidSet:
        """The transactions received whole."""

    def unfinished(self) -> tuple[str, int] | None:
        """The open transaction, and how many of its changes were handed on."""


class Decoding(Protocol[T_co]):
    """Makes the decoders of a read's dumps, one after another."""

    def begin(self, server_uuid: str, read: LogRead, skip: tuple[str, int] | None) -> ItemDecoder[T_co]:
        """A dump of this server has begun.

        :param read: what is left.
        :param skip: a transaction, and the number of its changes that were handed on before.
        """

    def close(self) -> None:
        """A dump has ended, or did not begin: let go of connections."""


class Scan:
    """Base of decoders that look at events, whatever their transactions, and hand on nothing: they keep what they find.

    A scan that was cut begins again where it began, so :meth:`begin` forgets.
    """

    received_count = 0
    end: tuple[str, int] | None = None

    def begin(self, _server_uuid: str, _read: LogRead, _skip: tuple[str, int] | None) -> Self:
        """A dump has begun, which this decodes."""
        return self

    def close(self) -> None:
        """There is nothing to let go of."""

    def look(self, segment: Segment) -> None:
        """Keep what matters."""
        raise NotImplementedError

    def decode(self, segment: Segment) -> Iterator[Never]:
        """Nothing is handed on."""
        self.look(segment)
        return iter(())

    def passed(self, file: str, pos: int) -> None:
        """Of no interest."""

    def received(self) -> GtidSet:
        """Transactions are not looked at."""
        return GtidSet()

    def unfinished(self) -> tuple[str, int] | None:
        """As :meth:`received`."""
        return None


class DumpState(StrEnum):
    """Where a read is."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READING = "reading"
    BROKEN = "broken"
    COMPLETE = "complete"
    FAILED = "failed"
    CLOSED = "closed"


class DumpEvent(Enum):
    """What happens to it."""

    CONNECTS = auto()  # it goes to the server: the first time, or after a pause
    BEGINS = auto()  # the planned server sends
    BREAKS = auto()  # the dump could not begin, was cut, or ended; something may be left
    IS_COMPLETE = auto()  # nothing is left
    FAILS = auto()  # with an error that no other try mends, or that came too often
    IS_LEFT = auto()  # the reader wants no more


_ENDS: Final = (DumpState.COMPLETE, DumpState.FAILED, DumpState.CLOSED)
_GOES_ON: Final = tuple(state for state in DumpState if state not in _ENDS)

TRANSITIONS: Final[Mapping[DumpEvent, Mapping[DumpState, DumpState]]] = {
    DumpEvent.CONNECTS: dict.fromkeys((DumpState.IDLE, DumpState.BROKEN), DumpState.CONNECTING),
    DumpEvent.BEGINS: {DumpState.CONNECTING: DumpState.READING},
    DumpEvent.BREAKS: dict.fromkeys((DumpState.CONNECTING, DumpState.READING), DumpState.BROKEN),
    DumpEvent.IS_COMPLETE: dict.fromkeys((DumpState.IDLE, DumpState.BROKEN), DumpState.COMPLETE),
    DumpEvent.FAILS: {DumpState.BROKEN: DumpState.FAILED},
    DumpEvent.IS_LEFT: {**dict.fromkeys(_GOES_ON, DumpState.CLOSED), **{state: state for state in _ENDS}},
}
"""Event → state before → state after. A pair that is missing cannot happen."""


class ResumableDump(Generic[T_co]):
    """Dumps of one part of the log, one after another, until nothing of it is left.

    ========== ============= ========== ===============================================================
    state      event         then       what is done
    ========== ============= ========== ===============================================================
    idle       CONNECTS      connecting connect, check that it is the planned server, ask for what is left
    connecting BEGINS        reading    hand on what comes
    connecting BREAKS        broken     note why
    reading    BREAKS        broken     note what came whole, what came in part, and why it ended
    broken     CONNECTS      connecting after a pause
    broken     FAILS         failed     raise why
    broken     IS_COMPLETE   complete   (idle too, if there is nothing to read)
    any        IS_LEFT       closed     close the connection; complete and failed stay
    ========== ============= ========== ===============================================================

    :param decoding: makes of items what is handed on.
    """

    def __init__(self, read: LogRead, decoding: Decoding[T_co], transport: Transport = TRANSPORT) -> None:
        self.read = read
        """What is left."""
        self.state = DumpState.IDLE
        self.server_uuid = read.server_uuid or ""
        """The server that gave the first dump."""
        self.end: tuple[str, int] | None = None
        """File and position behind the last transaction that was received whole; None: there is none."""
        self.reached = (0, 0)
        """File number and position up to which the log was read, no transaction being open there."""
        self._decoding, self._transport = decoding, transport
        self._back_off = BackOff(transport.pacing)
        self._skip: tuple[str, int] | None = None

    def items(self) -> Iterator[T_co]:
        """Everything that the decoder hands on.

        :raises HeadgateError: a definite error, or the last one of several tries without progress.
        """
        try:
            while not self.read.is_complete(self.reached):
                self._go(DumpEvent.CONNECTS)
                failure = yield from self._one_dump()
                self._go(DumpEvent.BREAKS)
                if not isinstance(failure, Transient) or not self.read.is_complete(self.reached):
                    self._pause(failure)
            self._go(DumpEvent.IS_COMPLETE)
        finally:
            self._go(DumpEvent.IS_LEFT)

    def _go(self, event: DumpEvent) -> None:
        after = TRANSITIONS[event].get(self.state)
        if after is None:
            raise RuntimeError(f"event {event.name} came to a dump in state {self.state}")
        self.state = after

    def _pause(self, failure: HeadgateError) -> None:
        """Wait before the next dump, or raise why there is none."""
        if isinstance(failure, Transient):
            self.read.explain(failure)
        try:
            self._back_off.pause(failure)
        except BaseException:
            self._go(DumpEvent.FAILS)
            raise

    def _one_dump(self) -> Generator[T_co, None, HeadgateError]:
        """Hand on what one dump brings; return why it ended."""
        decoder: ItemDecoder[T_co] | None = None
        failure: HeadgateError = self.read.short()
        try:
            with open_dump(self.read, self._transport) as dump:
                self._go(DumpEvent.BEGINS)
                self.server_uuid = self.server_uuid or dump.server_uuid
                decoder = self._decoding.begin(dump.server_uuid, self.read, self._skip)
                yield from self._contents(dump, decoder)
        except HeadgateError as error:
            failure = error
        finally:
            self._decoding.close()
        if decoder is not None:
            self._note(decoder)
        return failure

    def _contents(self, dump: Dump, decoder: ItemDecoder[T_co]) -> Iterator[T_co]:
        """Decode until the part has been received, or the dump ends."""
        count, stop, place = self.read.count, self.read.stop, (0, 0)
        for item in dump.items():
            if isinstance(item, Segment):
                yield from decoder.decode(item)
            else:
                decoder.passed(item.file, item.pos)
            place = max(place, place_of(item))
            if (count is not None and decoder.received_count >= count) or (stop is not None and place >= stop):
                break
        if decoder.unfinished() is None:
            self.reached = max(self.reached, place)

    def _note(self, decoder: ItemDecoder[T_co]) -> None:
        """What of the dump that has ended need not come again."""
        received = decoder.received()
        if received:
            self._back_off.progress()
        self.read = self.read.rest(received, decoder.end)
        self.end = decoder.end or self.end
        self._skip = decoder.unfinished() or self._skip


class FollowingDump(ResumableDump[T_co | Idle]):
    """Dumps for ever: also an ``Idle`` whenever the log's end is reached. Whatever is handed on is progress."""

    def _contents(self, dump: Dump, decoder: ItemDecoder[T_co | Idle]) -> Iterator[T_co | Idle]:
        for item in dump.items():
            if isinstance(item, Segment):
                for found in decoder.decode(item):
                    self._back_off.progress()
                    yield found
            else:
                decoder.passed(item.file, item.pos)
            if dump.is_drained and decoder.unfinished() is None:
                self._back_off.progress()
                yield self._idle(dump, decoder)

    def _idle(self, dump: Dump, decoder: ItemDecoder[T_co | Idle]) -> Idle:
        hint = None if decoder.end is None else LogHint(dump.server_uuid, *decoder.end)
        return Idle((self.read.had or GtidSet()) | decoder.received(), hint)


def scan(read: LogRead, found: Scan, transport: Transport = TRANSPORT) -> None:
    """Look at all events of a part of the log.

    :raises HeadgateError: as :meth:`ResumableDump.items`.
    """
    for _ in ResumableDump[Never](read, found, transport).items():
        pass
