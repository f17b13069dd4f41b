"""A client's side of a bootstrap: rows and changes by turns, until the consumer holds what the server holds.

It asks for some rows, which are exact as of an SCN S, gives them, and then gives what the stream has up to S; then more
rows. So the stream is never beyond the rows that come next, which is what ``relay._bootstrap._bootstrap`` needs for its
proof; and the relay's buffer has to hold what came since the last request, not since the beginning. After the last row
the stream is followed up to the target.

A checkpoint is kept between such turns, never within: it says which rows were given and how far the stream was then.
After a rollback, a restart of the client or of the relay the same rows and changes come again from there. The first
one is kept before any row is given: a bootstrap that begins again, with rows of a later moment, never brings what
became of those that were given before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from headgate.databus import CATCHUP, CHECKPOINT_SOURCE, SNAPSHOT, BootstrapPoint, Place, event_fields
from headgate.errors import ProtocolError, ScnNotFoundError
from headgate.relay_client._callbacks import Callbacks, Runs
from headgate.relay_client._consumer import Result
from headgate.relay_client._reading import Reader

__all__ = ["Bootstrapper"]

_OURS: Final = "headgate_catchup"
"""In a checkpoint: the changes of all sources were followed together. Databus's client follows them one by one."""


class Bootstrapper:
    """One bootstrap, step by step. Its state is its checkpoint's: without a start, ``SNAPSHOT``, ``CATCHUP``.

    A new one does not say what the consumer had before: a relay that still has all changes since would give only those,
    and rows of another relay may have been given meanwhile, or tables been emptied.

    :param stopped: whether nothing more may be given now.
    :param point: where it goes on; None: from the start.
    """

    def __init__(
        self, reader: Reader, callbacks: Callbacks, stopped: Callable[[], bool], point: BootstrapPoint | None = None
    ) -> None:
        point = point or BootstrapPoint()
        if point.mode == CATCHUP and not point.other.get(_OURS):
            point = point.at(Place(point.start))
        self._reader, self._callbacks, self._stopped = reader, callbacks, stopped
        self._runs = Runs(callbacks, "bootstrap_")
        self._point = self.kept = point
        """The second is the checkpoint."""
        self.turns = 0
        """Checkpoints so far; the same once more is none."""
        self._begun = False

    def step(self) -> Place | None:
        """One request for rows and what belongs to it; the place from which the stream goes on, when all is done."""
        if not self._begun:
            self._callbacks.say("on_start_bootstrap")
            self._begun = True
            if self._point.start >= 0:
                self._callbacks.say("on_start_bootstrap_sequence", self._point.start)
        if self._point.start < 0:
            self._start()
        elif self._point.mode == SNAPSHOT:
            self._rows()
        elif not self._follow(self._point.target):
            self._keep()
        elif not self._stopped():
            self._callbacks.say("on_end_bootstrap_sequence", self._point.target)
            self._callbacks.say("on_stop_bootstrap")
            return self._point.place
        return None

    def roll_back(self) -> None:
        """Go back to the checkpoint."""
        self._point = self.kept
        self._runs.forget()
        self._callbacks.ask("on_bootstrap_rollback", self._point.window)

    # --- the phases

    def _start(self) -> None:
        names = list(self._reader.sources.values())
        scn = self._reader.scn("startSCN", {"sources": ",".join(names)}, self._point)
        self._callbacks.say("on_start_bootstrap_sequence", scn)
        self._point = replace(self._point, start=scn, snapshot_source=names[0], catchup_source=names[0]).at(Place(scn))
        if not self._stopped():
            self._callbacks.ask("on_bootstrap_checkpoint", self._point.window)
        self._take()  # whatever the answer: nothing was given yet, and it has to be kept before anything is

    def _rows(self) -> None:
        answer = self._reader.rows(self._point)
        if answer is None:
            return
        body, last = answer
        newest = self._point.window
        for _, _, scn, event in self._reader.parsed(body):
            if self._stopped():  # also if it goes on at once: then all of them come again
                return
            if event is not None:
                newest = max(newest, scn)
                self._runs.give(event)
        self._runs.end()
        while not self._stopped() and not self._follow(newest):
            pass
        if self._stopped():
            return
        if last:
            self._next_source()
        else:
            self._point = replace(self._point, offset=_offset(body))
        self._keep()

    def _next_source(self) -> None:
        names = list(self._reader.sources.values())
        index = self._point.snapshot_index + 1
        done = replace(self._point, offset=-1)
        if index < len(names):
            self._point = replace(done, offset=0, snapshot_index=index, snapshot_source=names[index])
            return
        target = self._reader.scn("targetSCN", {"source": self._point.snapshot_source}, done)
        self._point = replace(
            done,
            mode=CATCHUP,
            target=target,
            snapshot_index=index,
            snapshot_source="",
            other={**done.other, _OURS: True},
        )

    def _follow(self, to: int) -> bool:
        """One request of the stream, up to the end of window ``to`` and no further; whether that is there.

        :raises ScnNotFoundError: it has no such window: it is not the stream that the rows came with.
        """
        if self._point.has(to):
            return True
        place, held = self._point.place, False
        for _, _, scn, event in self._reader.parsed(self._reader.stream(place)):
            if scn > to and place.scn < to:
                raise ScnNotFoundError(f"the relay's stream goes past SCN {to}, which its rows are of", scn=to)
            held = self._stopped()
            if held or scn > to:
                break
            if event is None:
                self._runs.end()
                place = Place(scn)
            else:
                self._runs.give(event)
                place = place.after_event(scn)
        if not held:
            self._runs.end()
        self._point = self._point.at(place)
        return self._point.has(to)

    def _keep(self) -> None:
        """Only between windows, as the stream's checkpoints are, and when all consumers have had what comes before."""
        self._callbacks.settle()
        if self._stopped() or self._point.window_offset >= 0:
            return
        if self._callbacks.ask("on_bootstrap_checkpoint", self._point.window) < Result.SKIP_CHECKPOINT:
            self._take()

    def _take(self) -> None:
        self.turns += self.kept != self._point
        self.kept = self._point


def _offset(body: bytes) -> int:
    """The ``snapshot_offset`` of the checkpoint that ends an answer."""
    fields = event_fields(np.frombuffer(body, np.uint8))
    if not len(fields.source) or int(fields.source[-1]) != CHECKPOINT_SOURCE:
        raise ProtocolError("the relay's rows do not end with a checkpoint")
    at, size = int(fields.value[-1]), int(fields.value_size[-1])
    try:
        return BootstrapPoint.from_json(json.loads(body[at : at + size])).offset
    except ValueError as error:
        raise ProtocolError(f"the relay's checkpoint is wrong: {error}") from None
