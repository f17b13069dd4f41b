"""Resumable read of the log, under every reader: reconnects, completeness, and the planned server.

**Completeness.** A dump's clean end proves nothing (``KILL QUERY`` on the dump thread ends it with a clean EOF). A read
is complete when nothing of it is left (:meth:`LogRead.is_complete`). A range is complete when exactly the requested
transactions were received. A window or a scan is complete when the server has read its log at least to the requested
position and no transaction is open there. An endless read is never complete.

**Resuming.** A transaction that was cut off is requested again whole, and its changes that were already yielded are
skipped. So wherever dumps are cut, the read yields the log's transactions once, in order. A server sends the same
events in the same order, but another server's log may have fewer changes of the same transaction (replication filters).
So only the server that sent the yielded changes can continue the transaction. If another one answers, the read retries,
and then ends with a ServerBehindError. Its caller discards the incomplete transaction and begins a new read. Before
each dump, the last transaction received, perhaps by an earlier read, is compared with the server's: another one with
the same GTID means a rewritten history.

**Hints.** A dump that began at a hint of a file whose creation time is unknown, and ended without anything of the read,
shows that the hint may be wrong. The next dump begins without it, even after an error that no retry mends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import Final, Generic, Never, Protocol, Self, TypeVar

from headgate.binlog import Segment
from headgate.errors import HeadgateError, ServerBehindError, Transient
from headgate.gtid import Gtid
from headgate.offsets import Hint, Last
from headgate.positions import NOTHING, Position
from headgate.replication._dump import Dump, open_dump, position_of
from headgate.replication._log_read import LogRead
from headgate.replication._probe import check_history
from headgate.replication._transport import TRANSPORT, Transport
from headgate.replication._types import Idle
from headgate.retrying import Failures

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
    """Decoder of one dump's items, for example :class:`~headgate.replication._decoder.LogDecoder`."""

    end: tuple[str, int] | None
    """File and position behind the last transaction received whole."""

    @property
    def received_count(self) -> int:
        """Number of transactions received whole."""

    @property
    def last(self) -> Last | None:
        """The last of them, if that is known."""

    @property
    def first(self) -> Last | None:
        """The first of them, if it is known that all others are of its history."""

    def decode(self, segment: Segment) -> Iterator[T_co]:
        """Yield everything decoded from the segment."""

    def advance_to(self, file: str, pos: int) -> None:
        """Note that the dump has reached this position."""

    def received(self) -> Position:
        """Return what was received whole."""

    def unfinished(self) -> tuple[Gtid, int] | None:
        """Return the open transaction, and how many of its changes were yielded."""


class Decoding(Protocol[T_co]):
    """Factory of decoders for successive dumps of a read."""

    def begin(self, server_uuid: str, read: LogRead, skip: tuple[Gtid, int] | None) -> ItemDecoder[T_co]:
        """Return a decoder for a new dump of this server.

        :param read: the part that is left.
        :param skip: a transaction, and the number of its changes that were already yielded.
        """

    def close(self) -> None:
        """Release connections: a dump has ended or did not begin."""


class Scan:
    """Base of decoders that inspect events of all transactions, yield nothing, and keep what they find.

    A scan that was cut restarts. A subclass resets in :meth:`begin` or ignores repeated events.
    """

    received_count = 0
    end: tuple[str, int] | None = None
    first: Last | None = None
    last: Last | None = None

    def begin(self, _server_uuid: str, _read: LogRead, _skip: tuple[Gtid, int] | None) -> Self:
        """Decode a new dump."""
        return self

    def close(self) -> None:
        """Do nothing: a scan holds no connection."""

    def inspect(self, segment: Segment) -> None:
        raise NotImplementedError

    def decode(self, segment: Segment) -> Iterator[Never]:
        """Inspect the segment and yield nothing."""
        self.inspect(segment)
        return iter(())

    def advance_to(self, file: str, pos: int) -> None:
        """Ignore the position."""

    def received(self) -> Position:
        """Return an empty set: transactions are not tracked."""
        return NOTHING

    def unfinished(self) -> tuple[Gtid, int] | None:
        """Return None, as :meth:`received`."""
        return None


class DumpState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READING = "reading"
    BROKEN = "broken"
    COMPLETE = "complete"
    FAILED = "failed"
    CLOSED = "closed"


class DumpEvent(Enum):
    CONNECTS = auto()  # it connects to the server: the first time, or after a pause
    BEGINS = auto()  # the planned server sends
    INTERRUPTED = auto()  # the dump could not begin, was cut, or ended; something may be left
    IS_COMPLETE = auto()  # nothing is left
    FAILS = auto()  # with an error that no retry mends, or that repeated too often
    CLOSED_BY_CALLER = auto()  # the caller stops reading


_ENDS: Final = (DumpState.COMPLETE, DumpState.FAILED, DumpState.CLOSED)
_UNFINISHED: Final = tuple(state for state in DumpState if state not in _ENDS)

TRANSITIONS: Final[Mapping[DumpEvent, Mapping[DumpState, DumpState]]] = {
    DumpEvent.CONNECTS: dict.fromkeys((DumpState.IDLE, DumpState.BROKEN), DumpState.CONNECTING),
    DumpEvent.BEGINS: {DumpState.CONNECTING: DumpState.READING},
    DumpEvent.INTERRUPTED: dict.fromkeys((DumpState.CONNECTING, DumpState.READING), DumpState.BROKEN),
    DumpEvent.IS_COMPLETE: dict.fromkeys((DumpState.IDLE, DumpState.BROKEN), DumpState.COMPLETE),
    DumpEvent.FAILS: {DumpState.BROKEN: DumpState.FAILED},
    DumpEvent.CLOSED_BY_CALLER: {**dict.fromkeys(_UNFINISHED, DumpState.CLOSED), **{state: state for state in _ENDS}},
}
"""Event → state before → state after. A missing pair cannot happen."""


class ResumableDump(Generic[T_co]):
    """Successive dumps of one part of the log, until nothing of it is left.

    ========== ================ ========== ===============================================================
    state      event            next       action
    ========== ================ ========== ===============================================================
    idle       CONNECTS         connecting connect, check that it is the planned server, request what is left
    connecting BEGINS           reading    yield items
    connecting INTERRUPTED      broken     record the error
    reading    INTERRUPTED      broken     record what came whole, what came in part, and why it ended
    broken     CONNECTS         connecting connect as above, after a pause
    broken     FAILS            failed     raise the error
    broken     IS_COMPLETE      complete   end (also from idle, if there is nothing to read)
    any        CLOSED_BY_CALLER closed     close the connection; complete and failed stay
    ========== ================ ========== ===============================================================

    :param decoding: makes the decoders whose items are yielded.
    :param last: the last transaction of an earlier read that this one continues.
    """

    def __init__(
        self, read: LogRead, decoding: Decoding[T_co], transport: Transport = TRANSPORT, last: Last | None = None
    ) -> None:
        self.read = read
        """Part that is left."""
        self.state = DumpState.IDLE
        self.server_uuid = read.server_uuid or ""
        """Server of the first dump."""
        self.end: Hint | None = None
        """Position behind the last transaction received whole. None: no transaction was."""
        self.reached = (0, 0)
        """File number and position up to which the log was read, with no transaction open there."""
        self._decoding, self._transport = decoding, transport
        self._failures = Failures(transport.retry)
        self._skip: tuple[Gtid, int] | None = None
        """A transaction and how many of its changes the last dump's server (``read.had_by``) sent, if any."""
        self.last = last
        """The last transaction received whole, if that is known."""
        self.first: Last | None = None
        """The first one, if one dump brought everything and :attr:`ItemDecoder.first` is known."""
        self._drops_hint = False

    def items(self) -> Iterator[T_co]:
        """Yield all items of the decoders.

        :raises HeadgateError: an error that no retry mends, or the last one of several tries without progress.
        """
        try:
            while not self.read.is_complete(self.reached):
                self._apply(DumpEvent.CONNECTS)
                failure = yield from self._one_dump()
                self._apply(DumpEvent.INTERRUPTED)
                if self._drops_hint:
                    self.read, self._drops_hint = replace(self.read, hint=None), False
                    continue
                if not isinstance(failure, Transient) or not self.read.is_complete(self.reached):
                    self._pause(failure)
            self._apply(DumpEvent.IS_COMPLETE)
        finally:
            self._apply(DumpEvent.CLOSED_BY_CALLER)

    def _apply(self, event: DumpEvent) -> None:
        after = TRANSITIONS[event].get(self.state)
        if after is None:
            raise RuntimeError(f"event {event.name} came to a dump in state {self.state}")
        self.state = after

    def _pause(self, failure: HeadgateError) -> None:
        """Wait before the next dump, or raise ``failure``."""
        if isinstance(failure, Transient):
            self.read.explain(failure)
        try:
            self._failures.add(failure)
            self._failures.wait()
        except BaseException:
            self._apply(DumpEvent.FAILS)
            raise

    def _one_dump(self) -> Generator[T_co, None, HeadgateError]:
        """Yield the items of one dump. Return why it ended."""
        decoder: ItemDecoder[T_co] | None = None
        failure: HeadgateError = self.read.incomplete_error()
        reached = self.reached
        try:
            if self.last is not None:
                check_history(self.read, self.last, self._transport)
            with open_dump(self.read, self._transport) as dump:
                self._check_continues(dump.server_uuid)
                self._apply(DumpEvent.BEGINS)
                self.server_uuid = self.server_uuid or dump.server_uuid
                self.read = replace(self.read, had_by=dump.server_uuid)
                decoder = self._decoding.begin(dump.server_uuid, self.read, self._skip)
                yield from self._contents(dump, decoder)
        except HeadgateError as error:
            failure = error
        finally:
            self._decoding.close()
        if decoder is not None:
            advanced = self.reached > reached and self.read.wanted is None
            is_fruitless = not (decoder.received_count or decoder.unfinished() or advanced)
            self._drops_hint = is_fruitless and self.read.hint is not None and not self.read.hint.created_s
            self._note(decoder, None if decoder.end is None else dump.hint(*decoder.end))
        return failure

    def _check_continues(self, server_uuid: str) -> None:
        """:raises ServerBehindError: changes of a transaction were yielded, and another server sent them."""
        if self._skip is not None and self._skip[1] and server_uuid != self.read.had_by:
            raise ServerBehindError(
                f"connected to server {server_uuid}, but a transaction came in part from {self.read.had_by}: read all"
                " of it again",
                server_uuid=server_uuid,
            )

    def _contents(self, dump: Dump, decoder: ItemDecoder[T_co]) -> Iterator[T_co]:
        """Decode until the part has been received or the dump ends."""
        position = (0, 0)
        for item in dump.items():
            if isinstance(item, Segment):
                yield from decoder.decode(item)
            else:
                decoder.advance_to(item.file, item.pos)
            position = max(position, position_of(item))
            if self.read.is_received(decoder.received_count, position):
                break
        if decoder.unfinished() is None:
            self.reached = max(self.reached, position)

    def _note(self, decoder: ItemDecoder[T_co], end: Hint | None) -> None:
        """Record what the ended dump delivered; ``end`` is behind its last transaction."""
        received = decoder.received()
        if received:
            self._failures.clear()
        self.read = self.read.rest(received, end)
        self.first = decoder.first if self.end is None and self._skip is None else None
        self.end, self.last = end or self.end, decoder.last or self.last
        self._skip = self._unfinished(decoder)

    def _unfinished(self, decoder: ItemDecoder[T_co]) -> tuple[Gtid, int] | None:
        """Return the open transaction, also if the dump has not reached it again, and how many changes were yielded."""
        return decoder.unfinished() or (None if decoder.received_count else self._skip)


class FollowingDump(ResumableDump[T_co | Idle]):
    """Endless dumps that also yield an ``Idle`` behind each segment, and at the log's end. Progress is a decoded item,
    a whole transaction, or the log's end. A segment alone is none: each dump may bring the same one.
    """

    def _contents(self, dump: Dump, decoder: ItemDecoder[T_co | Idle]) -> Iterator[T_co | Idle]:
        count = 0
        for item in dump.items():
            if isinstance(item, Segment):
                for decoded in decoder.decode(item):
                    self._failures.clear()
                    yield decoded
            else:
                decoder.advance_to(item.file, item.pos)
            idle = self._idle(dump, decoder)
            if idle.is_end or decoder.received_count > count:
                count = decoder.received_count
                self._failures.clear()
            if idle.is_end or isinstance(item, Segment):
                yield idle

    def _idle(self, dump: Dump, decoder: ItemDecoder[T_co | Idle]) -> Idle:
        unfinished = self._unfinished(decoder)
        hint = None if decoder.end is None else dump.hint(*decoder.end)
        return Idle(
            self.read.bounds | decoder.received(),
            hint,
            decoder.last or self.last,
            dump.server_uuid,
            unfinished="" if unfinished is None else str(unfinished[0]),
            is_end=dump.is_drained and unfinished is None,
        )


def scan(read: LogRead, decoding: Scan, transport: Transport = TRANSPORT) -> None:
    """Pass all events of a part of the log to a scan.

    :raises HeadgateError: as :meth:`ResumableDump.items`.
    """
    for _ in ResumableDump[Never](read, decoding, transport).items():
        pass
