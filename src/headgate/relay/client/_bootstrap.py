"""Client side of a bootstrap: rows and changes by turns, until the consumer holds what the server holds.

The client requests some rows, which are exact as of an SCN S, and delivers them. Then it delivers the stream up to S,
and requests more rows. So the stream is never beyond the next rows, which ``relay.server.bootstrap._bootstrap`` needs
for its proof. The relay's buffer has to hold the changes since the last request, not since the beginning. After the
last row the client follows the stream up to the target.

A checkpoint is stored between such turns, never within: it records the delivered rows and the position of the stream.
After a rollback, a restart of the client or of the relay, the same rows and changes come again from there. The first
checkpoint is stored before any row is delivered: a bootstrap that begins again, with rows of a later moment, never
reports what became of the rows delivered before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.errors import ProtocolError, ScnNotFoundError
from headgate.parsing import parse_json
from headgate.relay.client._callbacks import Callbacks, Runs
from headgate.relay.client._consumer import Result
from headgate.relay.client._reading import Answer, Reader
from headgate.relay.databus import CATCHUP, CHECKPOINT_SOURCE, SNAPSHOT, BootstrapPoint, StreamPosition

__all__ = ["Bootstrapper"]

_OURS: Final = "headgate_catchup"
"""Marks a checkpoint with which all sources are followed together. Databus's client follows them one by one."""


class Bootstrapper:
    """One bootstrap, step by step. Its state is its checkpoint's: without a start, ``SNAPSHOT``, ``CATCHUP``.

    A new bootstrap does not send the consumer's former checkpoint. A relay that still has all changes since would send
    only those, and rows of another relay may have been delivered meanwhile, or tables emptied.

    :param stopped: whether delivery must stop now.
    :param point: the checkpoint to continue from; None: the start.
    """

    def __init__(
        self, reader: Reader, callbacks: Callbacks, stopped: Callable[[], bool], point: BootstrapPoint | None = None
    ) -> None:
        point = point or BootstrapPoint()
        if point.mode == CATCHUP and not point.other.get(_OURS):
            point = point.at(StreamPosition(point.start))
        self._reader, self._callbacks, self._stopped = reader, callbacks, stopped
        self._runs = Runs(callbacks, "bootstrap_")
        self._point = self.checkpoint = point
        """``checkpoint`` is what a rollback resets to."""
        self.turns = 0
        """Number of checkpoints so far; the same checkpoint again does not count."""
        self._begun = False

    def step(self) -> StreamPosition | None:
        """Deliver some rows and their changes. Return the place where the stream continues, when all is done."""
        if not self._begun:
            self._callbacks.call_checked("on_start_bootstrap")
            self._begun = True
            if self._point.start >= 0:
                self._callbacks.call_checked("on_start_bootstrap_sequence", self._point.start)
        if self._point.start < 0:
            self._start()
        elif self._point.mode == SNAPSHOT:
            self._check_source()
            self._rows()
        elif not self._follow(self._point.target):
            self._save_checkpoint()
        elif not self._stopped():
            self._callbacks.call_checked("on_end_bootstrap_sequence", self._point.target)
            self._callbacks.call_checked("on_stop_bootstrap")
            return self._point.position
        self._callbacks.wait()  # after a stop, posted calls may not have begun
        return None

    def roll_back(self) -> None:
        """Reset to the checkpoint."""
        self._point = self.checkpoint
        self._runs.forget()
        self._callbacks.call_result("on_bootstrap_rollback", self._point.window)

    # --- the phases

    def _start(self) -> None:
        names = list(self._reader.sources.values())
        scn = self._reader.scn("startSCN", {"sources": ",".join(names)}, self._point)
        self._callbacks.call_checked("on_start_bootstrap_sequence", scn)
        self._point = replace(self._point, start=scn, snapshot_source=names[0], catchup_source=names[0]).at(
            StreamPosition(scn)
        )
        if not self._stopped():
            self._callbacks.call_result("on_bootstrap_checkpoint", self._point.window)
        self._set_checkpoint()  # whatever the result: the start must be stored before any row is delivered

    def _check_source(self) -> None:
        """:raises ScnNotFoundError: the checkpoint is of other sources, some of which may have no rows yet."""
        names, index = list(self._reader.sources.values()), self._point.snapshot_index
        if names[index : index + 1] != [self._point.snapshot_source]:
            raise ScnNotFoundError(
                f"the bootstrap was at source {index}, {self._point.snapshot_source}; now the sources are "
                f"{', '.join(names)}",
                scn=self._point.start,
            )

    def _rows(self) -> None:
        answer = self._reader.rows(self._point)
        if answer is None:
            return
        rows, last = answer
        newest = self._point.window
        for _, _, scn, event in self._reader.parsed(rows):
            if self._stopped():  # even if delivery resumes at once: then all rows come again
                return
            if event is not None:
                newest = max(newest, scn)
                self._runs.deliver(event)
        self._runs.end()
        while not self._stopped() and not self._follow(newest):
            pass
        if self._stopped():
            return
        if last:
            self._next_source()
        else:
            self._point = replace(self._point, offset=_offset(rows))
        self._save_checkpoint()

    def _next_source(self) -> None:
        names = list(self._reader.sources.values())
        index = self._point.snapshot_index + 1
        finished = replace(self._point, offset=-1)
        if index < len(names):
            self._point = replace(finished, offset=0, snapshot_index=index, snapshot_source=names[index])
            return
        target = self._reader.scn("targetSCN", {"source": self._point.snapshot_source}, finished)
        self._point = replace(
            finished,
            mode=CATCHUP,
            target=target,
            snapshot_index=index,
            snapshot_source="",
            other={**finished.other, _OURS: True},
        )

    def _follow(self, to: int) -> bool:
        """Deliver one answer of the stream, up to the end of window ``to``; return whether that is reached.

        :raises ScnNotFoundError: the stream has no such window, so it is not the stream of these rows.
        """
        if self._point.has(to):
            return True
        position, stopped = self._point.position, False
        for _, _, scn, event in self._reader.parsed(self._reader.stream(position)):
            if scn > to and position.scn < to:
                raise ScnNotFoundError(f"the relay's stream goes past SCN {to}, the SCN of its rows", scn=to)
            stopped = self._stopped()
            if stopped or scn > to:
                break
            if event is None:
                self._runs.end()
                position = StreamPosition(scn)
            else:
                self._runs.deliver(event)
                position = position.after_next_event(scn)
        if not stopped:
            self._runs.end()
        self._point = self._point.at(position)
        return self._point.has(to)

    def _save_checkpoint(self) -> None:
        """Store a checkpoint between windows, after all consumers have processed what precedes it."""
        self._callbacks.wait()
        if self._stopped() or self._point.window_offset >= 0:
            return
        if self._callbacks.call_result("on_bootstrap_checkpoint", self._point.window) < Result.SKIP_CHECKPOINT:
            self._set_checkpoint()

    def _set_checkpoint(self) -> None:
        self.turns += self.checkpoint != self._point
        self.checkpoint = self._point


def _offset(answer: Answer) -> int:
    """Return the ``snapshot_offset`` of the checkpoint that ends an answer."""
    body, fields = answer.body, answer.fields
    if not len(fields.source) or int(fields.source[-1]) != CHECKPOINT_SOURCE:
        raise ProtocolError("the relay's rows do not end with a checkpoint")
    at, size = int(fields.value[-1]), int(fields.value_size[-1])
    try:
        return BootstrapPoint.from_json(parse_json(body[at : at + size])).offset
    except ValueError as error:
        raise ProtocolError(f"the relay's checkpoint is wrong: {error}") from None
