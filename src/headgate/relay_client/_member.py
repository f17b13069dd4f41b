"""A member of a group of consumers: a :class:`RelayClient` in a thread for each partition that it owns.

What the group guarantees is in ``relay._groups``. The member's part of it:

- It syncs every second, or three times a lease if that is more often: it reports the kept checkpoints, releases the
  partitions that have stopped because they were asked back, and takes up what it was given.
- Its lease ends ``lease_seconds`` after it *began* to ask for it, by its own clock. From then on no callback is begun;
  when the lease is there again and the partition still its own, with the same generation, it goes on where it was.
- A partition that it no longer owns is stopped, and what it did there since the last report is forgotten: the new owner
  repeats it. But no row of a bootstrap is given before the relay, or the store beside, has the bootstrap's start: the
  new owner has to go on with it.
- Of a partition that it is to give back it finishes the window, or the rows that it has asked for, and reports the
  checkpoint first.
- When a partition's consumer ends with an error, the member leaves the group and ends with that error.
"""

from __future__ import annotations

import enum
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headgate.databus import LARGEST_GROUP, Done, Owned, bootstrap_of
from headgate.errors import ConfigError, HeadgateError, Transient
from headgate.relay_client._checkpoints import CheckpointStore
from headgate.relay_client._client import CHECKPOINT_SECONDS, RelayClient
from headgate.relay_client._consumer import Consumer, Subscription
from headgate.relay_client._reading import Share
from headgate.relay_client._retry import Retry
from headgate.relay_client._transport import Access, Transport

__all__ = ["ConsumerOf", "GroupMember"]

log = logging.getLogger("headgate")

_SYNC_SECONDS: Final = 1.0
_SYNCS_A_LEASE: Final = 3
_AFTER_FAILURE_SECONDS: Final = 0.2
_FINISH_SECONDS: Final = 5.0
"""When the member ends: what is left of windows that were begun may take so long."""
_JOIN_SECONDS: Final = 90.0
"""A partition's thread ends with the request or the callback that runs; a request may take a minute."""

ConsumerOf: TypeAlias = Callable[[int, int], "Consumer | Sequence[Consumer | Subscription]"]
"""Makes the consumers of a partition that begins, given its number and its generation."""


class _Kept:
    """A partition's checkpoint, between its client and the next report; in a store beside, if there is one.

    :param begin: the relay's.
    :param tell: set where the relay has to hear of it at once.
    """

    def __init__(
        self, begin: Mapping[str, Any] | None, tell: threading.Event, store: CheckpointStore | None = None
    ) -> None:
        self.value = self.reported = begin
        self._store, self._tell, self._lock = store, tell, threading.Lock()
        self.is_begun = True
        """Whether a bootstrap's start is kept where the next owner finds it. Before that no row is given."""

    def load(self) -> Mapping[str, Any] | None:
        found = None if self._store is None else self._store.load()
        if found is not None:
            self.value = found
        return self.value

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        if self._store is not None:
            self._store.store(checkpoint)
        with self._lock:
            self.value = checkpoint
            self._look()
        if not self.is_begun:
            self._tell.set()

    def heard(self, checkpoint: Mapping[str, Any] | None) -> None:
        """The relay has this one."""
        with self._lock:
            self.reported = checkpoint
            self._look()

    def _look(self) -> None:
        start = _start_of(self.value)
        self.is_begun = self._store is not None or start is None or start == _start_of(self.reported)


def _start_of(checkpoint: Mapping[str, Any] | None) -> int | None:
    """The start of the bootstrap that a checkpoint is of; None: of none."""
    point = None if checkpoint is None else bootstrap_of(checkpoint)
    return None if point is None else point.start


class PartitionState(enum.Enum):
    """What becomes of an owned partition.

    ::

        HELD        the group asks it back                         BACK
        HELD, BACK  another has it, or it was given once more      LOST
    """

    HELD = enum.auto()
    BACK = enum.auto()
    """It finishes its window and is released."""
    LOST = enum.auto()
    """Nothing of it is reported."""


class _Worker:
    """One owned partition."""

    def __init__(self, number: int, generation: int, kept: _Kept, client: RelayClient, tell: threading.Event) -> None:
        self.generation, self.kept, self.client = generation, kept, client
        self.state = PartitionState.HELD
        self.error: BaseException | None = None
        self._tell = tell
        self.thread = threading.Thread(target=self._run, name=f"headgate-partition-{number}", daemon=True)
        self.thread.start()

    def follow(self, mine: Owned | None) -> None:
        """What the group says of it; None: it is not this member's."""
        if mine is None or mine.generation != self.generation:
            self.state = PartitionState.LOST
        elif mine.back and self.state is PartitionState.HELD:
            self.state = PartitionState.BACK
        if self.state is PartitionState.LOST:
            self.client.stop()
        elif self.state is PartitionState.BACK:
            self.client.finish()

    def report(self, kept: Mapping[str, Any] | None, *, release: bool) -> Done:
        """The report to the relay.

        :param kept: the newest checkpoint.
        """
        return Done(self.generation, None if kept == self.kept.reported else kept, release)

    def _run(self) -> None:
        try:
            self.client.run()
        except BaseException as error:  # noqa: BLE001 - raised again by the member
            self.error = error
        finally:
            self._tell.set()

    @property
    def ended(self) -> bool:
        return not self.thread.is_alive()


class MemberState(enum.Enum):
    """Where a member is.

    ::

        JOINED           the relay does not answer     CUT_OFF: its lease runs out
        CUT_OFF          it answers again              JOINED
        JOINED, CUT_OFF  stop, or an error             LEAVING: windows that were begun are finished
        LEAVING          all partitions are released   LEFT
    """

    JOINED = enum.auto()
    CUT_OFF = enum.auto()
    LEAVING = enum.auto()
    LEFT = enum.auto()


@dataclass(frozen=True)
class _Setup:
    """What a member was made with."""

    urls: str | Sequence[str]
    group: str
    partitions: int
    sources: Sequence[str]
    consumer_of: ConsumerOf
    access: Access | None
    retry: Retry | None
    lease_seconds: float
    callback_seconds: float | None
    stores: Callable[[int, int], CheckpointStore] | None
    checkpoint_seconds: float
    dropped: Callable[[int], None]
    before_images: bool
    bootstrap: bool


class GroupMember:
    """Consumes its share of a stream until :meth:`stop`.

    :param urls: the relay, or several that share the group's folder and give the same SCNs.
    :param group: its name.
    :param partitions: into how many parts the keys are cut, 1 to 1024; the same for all members, for ever.
    :param sources: names of logical sources, the same for all members; none: all.
    :param consumer_of: makes the consumers of a partition.
    :param lease_seconds: after so long without a sign of this member its partitions go to others; 0.1 to 600.
    :param stores: where a partition's checkpoint is kept, too, given its number and generation; what is there counts.
        It has to refuse what comes under an older generation.
    :param checkpoint_seconds: how often at most in ``stores``; the relay hears of them every second.
    :param dropped: told the number of each partition that ended here, after its last callback.
    :param retry: of each partition's requests.
    :param before_images: as of :class:`RelayClient`.
    :param bootstrap: from now on the group gives the rows there are first, to all of its members, where a partition has
        no checkpoint, or no relay holds what comes after it.
    :raises ConfigError: a URL, or a number that makes no sense.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        group: str,
        partitions: int,
        sources: Sequence[str],
        consumer_of: ConsumerOf,
        *,
        access: Access | None = None,
        retry: Retry | None = None,
        lease_seconds: float = 10.0,
        callback_seconds: float | None = None,
        stores: Callable[[int, int], CheckpointStore] | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        dropped: Callable[[int], None] = lambda _: None,
        before_images: bool = False,
        bootstrap: bool = False,
    ) -> None:
        if not 1 <= partitions <= LARGEST_GROUP or not 0.1 <= lease_seconds <= 600:
            raise ConfigError(f"a group has 1 to {LARGEST_GROUP} partitions and a lease of 0.1 to 600 seconds")
        self._setup = _Setup(
            urls, group, partitions, list(sources), consumer_of, access, retry, lease_seconds, callback_seconds, stores,
            checkpoint_seconds, dropped, before_images, bootstrap,
        )  # fmt: skip
        self._transport = Transport([urls] if isinstance(urls, str) else urls, access)
        self._state = MemberState.JOINED
        self._leased_until = 0.0
        """By the monotonic clock; nothing is delivered after it."""
        self._error: BaseException | None = None
        self._workers: dict[int, _Worker] = {}
        self._stop, self._news = threading.Event(), threading.Event()
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        """Its name in the group; a new one each time, so that a restarted member is not taken for its predecessor."""

    def stop(self) -> None:
        """End after the callbacks that run; from any thread."""
        self._stop.set()
        self._news.set()

    def run(self) -> None:
        """Consume until :meth:`stop`; then leave the group.

        :raises ConfigError: the group has another number of partitions, or other sources; or the relay keeps none, or
            cannot bootstrap them.
        :raises HeadgateError: what a partition's consumer ended with.
        """
        try:
            while not self._stop.is_set():
                self._turn()
                if self._error is not None:
                    raise self._error
        finally:
            self._leave()

    def _turn(self) -> None:
        """Sync, and wait until it is time again, or there are news."""
        self._news.clear()
        leaving = self._state is MemberState.LEAVING
        pause = min(_SYNC_SECONDS, self._setup.lease_seconds / _SYNCS_A_LEASE)
        if not self._sync():
            pause = min(pause, _AFTER_FAILURE_SECONDS)
            if not leaving:
                pause = max(pause, self._transport.seconds_until_asked())
        if self._workers if leaving else (self._error is None and not self._stop.is_set()):
            self._news.wait(pause)

    def _sync(self) -> bool:
        """Report, and follow the answer; False: there was none.

        :raises HeadgateError: what will not go away by itself.
        """
        ended = [
            number
            for number, one in self._workers.items()
            if one.ended
            and (one.error is None or one.state is PartitionState.LOST or self._state is MemberState.LEAVING)
        ]
        kept = {number: one.kept.value for number, one in self._workers.items() if one.state is not PartitionState.LOST}
        began = time.monotonic()
        try:
            owned = self._ask(
                {number: self._workers[number].report(kept[number], release=number in ended) for number in kept}
            )
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            if self._state is MemberState.JOINED:
                log.warning("group %s: %s", self._setup.group, error)
                self._state = MemberState.CUT_OFF
            self._transport.switch()
            return False
        if self._state is MemberState.CUT_OFF:
            self._state = MemberState.JOINED
        for number, value in kept.items():
            self._workers[number].kept.heard(value)
        for number in ended:
            self._drop(number)
        self._follow(owned)
        self._leased_until = began + self._setup.lease_seconds  # last: those that were lost meanwhile have been stopped
        return True

    def _drop(self, number: int) -> None:
        worker = self._workers.pop(number)
        self._error = self._error or (None if worker.state is PartitionState.LOST else worker.error)
        self._setup.dropped(number)

    def _ask(self, done: Mapping[int, Done], *, leave: bool = False) -> dict[int, Owned]:
        setup = self._setup
        asked = {
            "member": self.name,
            "partitions": setup.partitions,
            "sources": setup.sources,
            "lease_ms": round(setup.lease_seconds * 1000),
            "leave": leave,
            "done": {number: one.to_json() for number, one in done.items()},
        }
        if setup.bootstrap:  # an older relay refuses what it does not know
            asked["bootstrap"] = True
        try:
            found = self._transport.post(f"groups/{setup.group}", asked)["partitions"]
        except ConfigError as error:
            raise self._older() if "parameter bootstrap " in error.message else error from None
        if setup.bootstrap and not all("bootstrap" in one for one in found.values()):
            raise self._older()
        return {int(number): Owned.from_json(one) for number, one in found.items()}

    def _older(self) -> ConfigError:
        return ConfigError(f"the groups of the relay {self._transport.relay} cannot bootstrap, it is an older one")

    def _follow(self, owned: Mapping[int, Owned]) -> None:
        for number, worker in self._workers.items():
            worker.follow(owned.get(number))
            # What failed because it was another's by then is no error.
            if worker.ended and worker.state is not PartitionState.LOST:
                self._error = self._error or worker.error
        for number, one in owned.items():
            # What was lost begins when what it was before has ended.
            if number not in self._workers and self._state is not MemberState.LEAVING:
                self._begin(number, one)

    def _begin(self, number: int, owned: Owned) -> None:
        setup = self._setup
        store = None if setup.stores is None else setup.stores(number, owned.generation)
        kept = _Kept(owned.checkpoint, self._news, store)
        client = RelayClient(
            setup.urls,
            setup.sources,
            setup.consumer_of(number, owned.generation),
            kept,
            access=setup.access,
            retry=setup.retry,
            share=Share(number, setup.partitions),
            callback_seconds=setup.callback_seconds,
            may_deliver=lambda: kept.is_begun and time.monotonic() < self._leased_until,
            checkpoint_seconds=0.0 if store is None else setup.checkpoint_seconds,  # for itself it costs nothing
            before_images=setup.before_images,
            bootstrap=owned.bootstrap,
        )
        if owned.back:  # before this member had begun it
            client.stop()
        self._workers[number] = _Worker(number, owned.generation, kept, client, self._news)
        log.info("group %s: partition %d begins here, generation %d", setup.group, number, owned.generation)

    def _leave(self) -> None:
        """Finish the windows that were begun, report, and give everything back."""
        self._state = MemberState.LEAVING
        end = time.monotonic() + _FINISH_SECONDS
        for worker in self._workers.values():
            worker.client.finish()
        try:
            while self._workers and time.monotonic() < end:
                self._turn()
            for worker in self._workers.values():
                worker.client.stop()
            for worker in self._workers.values():
                worker.thread.join(_JOIN_SECONDS)
            held = {number: one for number, one in self._workers.items() if one.state is not PartitionState.LOST}
            reports = {number: one.report(one.kept.value, release=one.ended) for number, one in held.items()}
            # Where a callback still runs, others are to wait for the lease's end.
            self._ask(reports, leave=all(one.ended for one in held.values()))
        except HeadgateError as error:
            log.warning("group %s: could not be left, its lease has to end: %s", self._setup.group, error)
        for worker in self._workers.values():
            worker.client.stop()
        self._transport.close()
        for number in list(self._workers):
            self._drop(number)
        self._state = MemberState.LEFT
