"""A member of a group of consumers: a :class:`RelayClient` in a thread for each partition that it owns.

The guarantees of the group are in ``relay.server._groups``. The member's part of them:

- It syncs every second, or three times a lease if that is more often: it reports the stored checkpoints, releases the
  partitions that have stopped because the group reclaimed them, and starts the partitions that it was assigned.
- Its lease ends ``lease_seconds`` after it *began* to request it, by its own clock. From then on no callback begins.
  When the lease is renewed and the member still owns the partition under the same generation, delivery continues.
- A partition that it no longer owns is stopped, and its progress since the last report is dropped: the new owner
  repeats it. But no row of a bootstrap is delivered before the relay has the bootstrap's start: the new owner has to
  continue it.
- When a partition is reclaimed, the member first finishes the window, or the requested rows, and reports the
  checkpoint.
- When a partition's consumer ends with an error, the member leaves the group and ends with that error.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from headgate.errors import ConfigError, HeadgateError, Transient
from headgate.relay.client._client import RelayClient
from headgate.relay.client._consumer import Consumer, Subscription
from headgate.relay.client._reading import Share
from headgate.relay.client._retry import ClientTuning, ConsumerFailures, Retry
from headgate.relay.client._transport import Access, RelayTransport, valid_answer
from headgate.relay.client.states import (
    GroupAnswer,
    MemberEvent,
    MemberState,
    PartitionState,
    decide_member,
    decide_partition,
)
from headgate.relay.databus import (
    LARGEST_GROUP,
    MEMBER_REPORT,
    OWNED,
    MemberReport,
    Owned,
    PartitionReport,
    bootstrap_of,
)

__all__ = ["ConsumerOf", "GroupMember"]

log = logging.getLogger("headgate")

_SYNCS_A_LEASE: Final = 3
_FINISH_SECONDS: Final = 5.0
"""Time to finish open windows when the member ends."""
_JOIN_SECONDS: Final = 90.0
"""Time for a partition's thread to end its running request or callback; a request may take a minute."""

ConsumerOf: TypeAlias = Callable[[int, int], "Consumer | Sequence[Consumer | Subscription]"]
"""Creates the consumers of a partition that begins, given its number and its generation."""


class PartitionCheckpoint:
    """A partition's checkpoint between its client and the next report.

    :param begin: the relay's checkpoint.
    :param sync_now: set when the relay needs a report at once.
    """

    def __init__(self, begin: Mapping[str, Any] | None, sync_now: threading.Event) -> None:
        self.value = self.reported = begin
        self._sync_now, self._lock = sync_now, threading.Lock()
        self.is_begun = True
        """Whether the relay has a bootstrap's start, where the next owner finds it. Before that no row is delivered."""

    def load(self) -> Mapping[str, Any] | None:
        return self.value

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        with self._lock:
            self.value = checkpoint
            self._update_is_begun()
        if not self.is_begun:
            self._sync_now.set()

    def acknowledge(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Record the checkpoint that the relay has."""
        with self._lock:
            self.reported = checkpoint
            self._update_is_begun()

    def _update_is_begun(self) -> None:
        start = _start_of(self.value)
        self.is_begun = start is None or start == _start_of(self.reported)


def _start_of(checkpoint: Mapping[str, Any] | None) -> int | None:
    """Return the start of the bootstrap that a checkpoint belongs to, or None."""
    point = None if checkpoint is None else bootstrap_of(checkpoint)
    return None if point is None else point.start


class _Worker:
    """One owned partition and its thread."""

    def __init__(
        self,
        number: int,
        generation: int,
        checkpoint: PartitionCheckpoint,
        client: RelayClient,
        sync_now: threading.Event,
    ) -> None:
        self.generation, self.checkpoint, self.client = generation, checkpoint, client
        self.state = PartitionState.OWNED
        self.error: BaseException | None = None
        self._sync_now = sync_now
        self.thread = threading.Thread(target=self._run, name=f"headgate-partition-{number}", daemon=True)
        self.thread.start()

    def follow(self, mine: Owned | None) -> None:
        """Apply the group's answer; None: the partition is not this member's."""
        answer = GroupAnswer.NOT_YOURS
        if mine is not None and mine.generation == self.generation:
            answer = GroupAnswer.RELEASE if mine.release_requested else GroupAnswer.KEEP
        self.state = decide_partition(self.state, answer)
        if self.state is PartitionState.LOST:
            self.client.stop()
        elif self.state is PartitionState.RECLAIMED:
            self.client.finish()

    def report(self, checkpoint: Mapping[str, Any] | None, *, release: bool) -> PartitionReport:
        """Return the report to the relay.

        :param checkpoint: the newest checkpoint.
        """
        return PartitionReport(self.generation, None if checkpoint == self.checkpoint.reported else checkpoint, release)

    def _run(self) -> None:
        try:
            self.client.run()
        except BaseException as error:  # noqa: BLE001 - raised again by the member
            self.error = error
        finally:
            self._sync_now.set()

    @property
    def ended(self) -> bool:
        return not self.thread.is_alive()


class GroupMember:
    """Consumer of a share of a stream, until :meth:`stop`.

    :param urls: the relay, or several that share the group's folder and give the same SCNs.
    :param group: the group's name.
    :param partitions: number of parts of the keys, 1 to 1024; the same for all members, for ever.
    :param sources: names of logical sources, the same for all members; none: all.
    :param consumer_of: creates the consumers of a partition.
    :param lease_seconds: after this time without a sync the member's partitions go to others; 0.1 to 600.
    :param dropped: called with the number of each partition that ended here, after its last callback.
    :param retry: for the requests of each partition; its limits are also those of the member's reports.
    :param before_images: as in :class:`RelayClient`.
    :param bootstrap: from now on the group delivers the existing rows first, to all of its members, if a partition has
        no checkpoint, or if no relay holds what follows it.
    :param tuning: intervals and sizes of requests.
    :raises ConfigError: a URL is invalid, or a number is out of its range.
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
        dropped: Callable[[int], None] = lambda _: None,
        before_images: bool = False,
        bootstrap: bool = False,
        tuning: ClientTuning | None = None,
    ) -> None:
        if not 1 <= partitions <= LARGEST_GROUP or not 0.1 <= lease_seconds <= 600:
            raise ConfigError(f"a group has 1 to {LARGEST_GROUP} partitions and a lease of 0.1 to 600 seconds")
        self._group, self._partitions, self._sources = group, partitions, list(sources)
        self._consumer_of, self._dropped, self._lease_seconds = consumer_of, dropped, lease_seconds
        self._bootstrap, self._tuning = bootstrap, tuning or ClientTuning()
        self._client_of = partial(
            RelayClient,
            urls,
            self._sources,
            access=access,
            retry=retry,
            callback_seconds=callback_seconds,
            before_images=before_images,
            tuning=self._tuning,
        )
        self._transport = RelayTransport([urls] if isinstance(urls, str) else urls, access)
        self._failures = ConsumerFailures(retry or Retry())
        """Of consecutive reports."""
        self._state = MemberState.JOINED
        self._leased_until = 0.0
        """Time of the monotonic clock after which nothing is delivered."""
        self._error: BaseException | None = None
        self._workers: dict[int, _Worker] = {}
        self._stop, self._sync_now = threading.Event(), threading.Event()
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        """Name in the group; a new one each time, so that a restarted member is not mistaken for its predecessor."""

    def stop(self) -> None:
        """End after the running callbacks. May be called from any thread."""
        self._stop.set()
        self._sync_now.set()

    def run(self) -> None:
        """Consume until :meth:`stop`; then leave the group.

        :raises ConfigError: the group has another number of partitions, or other sources; or the relay keeps no groups.
        :raises RelayConsumerError: the retries of reports are exhausted.
        :raises HeadgateError: a partition's consumer ended with it.
        """
        try:
            while not self._stop.is_set():
                self._turn()
                if self._error is not None:
                    raise self._error
        finally:
            self._leave()

    def _turn(self) -> None:
        """Sync, then wait until the next sync is due or a thread needs one."""
        self._sync_now.clear()
        leaving = self._state is MemberState.LEAVING
        pause = min(self._tuning.sync, self._lease_seconds / _SYNCS_A_LEASE)
        if not self._sync():
            pause = min(pause, self._tuning.after_failure)
            if not leaving:
                pause = max(pause, self._transport.requested_wait_seconds())
        if self._workers if leaving else (self._error is None and not self._stop.is_set()):
            self._sync_now.wait(pause)

    def _sync(self) -> bool:
        """Report, and apply the answer; return False if there was none.

        :raises HeadgateError: an error that is not transient, or one transient error too many.
        """
        ended = [
            number
            for number, one in self._workers.items()
            if one.ended
            and (one.error is None or one.state is PartitionState.LOST or self._state is MemberState.LEAVING)
        ]
        held = self._held()
        checkpoints = {number: one.checkpoint.value for number, one in held.items()}
        reports = {number: one.report(checkpoints[number], release=number in ended) for number, one in held.items()}
        began = time.monotonic()
        try:
            owned = self._post_reports(reports)
        except HeadgateError as error:
            if not isinstance(error, Transient):
                raise
            if self._state is MemberState.JOINED:
                log.warning("group %s: %s", self._group, error)
            self._state = decide_member(self._state, MemberEvent.UNANSWERED)
            self._transport.switch()
            if self._state is not MemberState.LEAVING:  # which takes a limited time anyway
                self._failures.add(error)
            return False
        self._failures.clear()
        self._state = decide_member(self._state, MemberEvent.SYNCED)
        for number, value in checkpoints.items():
            self._workers[number].checkpoint.acknowledge(value)
        for number in ended:
            self._drop(number)
        self._follow(owned)
        self._leased_until = began + self._lease_seconds  # last: lost partitions have been stopped
        return True

    def _held(self) -> Mapping[int, _Worker]:
        """Return the partitions that are reported."""
        return {number: one for number, one in self._workers.items() if one.state is not PartitionState.LOST}

    def _drop(self, number: int) -> None:
        worker = self._workers.pop(number)
        self._error = self._error or (None if worker.state is PartitionState.LOST else worker.error)
        self._dropped(number)

    def _post_reports(self, reports: Mapping[int, PartitionReport], *, leave: bool = False) -> Mapping[int, Owned]:
        report = MemberReport(
            self.name,
            self._partitions,
            self._sources,
            round(self._lease_seconds * 1000),
            reports,
            leave=leave,
            bootstrap=self._bootstrap,
        )
        path = f"groups/{quote(self._group, safe='')}"
        answer = self._transport.post(path, MEMBER_REPORT.dump_python(report, mode="json"))
        with valid_answer(path):
            return OWNED.validate_python(answer["partitions"])

    def _follow(self, owned: Mapping[int, Owned]) -> None:
        for number, worker in self._workers.items():
            worker.follow(owned.get(number))
            # Ignore the error of a partition that another member already owned.
            if worker.ended and worker.state is not PartitionState.LOST:
                self._error = self._error or worker.error
        for number, one in owned.items():
            # A lost partition begins again when its former client has ended.
            if number not in self._workers and self._state is not MemberState.LEAVING:
                self._begin(number, one)

    def _begin(self, number: int, owned: Owned) -> None:
        checkpoint = PartitionCheckpoint(owned.checkpoint, self._sync_now)
        client = self._client_of(
            self._consumer_of(number, owned.generation),
            checkpoint,
            share=Share(number, self._partitions),
            may_deliver=lambda: checkpoint.is_begun and time.monotonic() < self._leased_until,
            checkpoint_seconds=0.0,  # in memory it costs nothing
            bootstrap=owned.bootstrap,
        )
        if owned.release_requested:  # reclaimed before this member began it
            client.stop()
        self._workers[number] = _Worker(number, owned.generation, checkpoint, client, self._sync_now)
        log.info("group %s: partition %d starts here, generation %d", self._group, number, owned.generation)

    def _leave(self) -> None:
        """Finish open windows, report, and release all partitions."""
        self._state = decide_member(self._state, MemberEvent.STOPPED)
        end = time.monotonic() + _FINISH_SECONDS
        for worker in self._workers.values():
            worker.client.finish()
        try:
            try:
                while self._workers and time.monotonic() < end:
                    self._turn()
            finally:
                self._end_workers()
            held = self._held()
            reports = {number: one.report(one.checkpoint.value, release=one.ended) for number, one in held.items()}
            # If a callback still runs, others must wait for the lease's end.
            self._post_reports(reports, leave=all(one.ended for one in held.values()))
        except HeadgateError as error:
            log.warning("group %s: could not leave it; others wait until its lease ends: %s", self._group, error)
        finally:
            self._transport.close()
            for number in list(self._workers):
                self._drop(number)
            self._state = decide_member(self._state, MemberEvent.RELEASED)

    def _end_workers(self) -> None:
        """Stop all partitions, and wait until their running callbacks have ended."""
        for worker in self._workers.values():
            worker.client.stop()
        for worker in self._workers.values():
            worker.thread.join(_JOIN_SECONDS)
