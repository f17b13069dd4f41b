"""A client's side of a bootstrap: rows and changes by turns, until the consumer holds what the server holds.

It asks for some rows, which are exact as of an SCN S, gives them, and then gives what the stream has up to S; then more
rows. So the stream is never beyond the rows that come next, which is what ``relay._bootstrap._bootstrap`` needs for
its proof; and the relay's buffer has to hold what came since the last request, not since the beginning. After the last
row the stream is followed up to the target.

A checkpoint is kept between such turns, never within: it says which rows were given and how far the stream was then.
After a rollback, a restart of the client or of the relay the same rows and changes come again from there. The first
one is kept before any row is given: who begins anew, with rows of a later moment, never hears what became of those that
were given before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPMessage
from typing import Any, Final

import numpy as np

from headgate.databus import CATCHUP, CHECKPOINT_SOURCE, SNAPSHOT, BootstrapPoint, Place, Schema, event_fields, sound
from headgate.errors import ProtocolError, ScnNotFoundError
from headgate.relay_client._consumer import Event, Result

__all__ = ["Bootstrapper", "Means"]

log = logging.getLogger("headgate")

_FIRST_SIZE: Final = 2 << 20
_LARGEST_SIZE: Final = 256 << 20
_OURS: Final = "headgate_catchup"
"""In a checkpoint: the changes of all sources were followed together. Databus's client follows them one by one."""


@dataclass(frozen=True)
class Means:
    """What a bootstrap needs of its client."""

    get: Callable[[str, Mapping[str, str], int], tuple[bytes, HTTPMessage]]
    """A request; the last argument is the SCN that errors name."""
    stream: Callable[[Place], bytes]
    """Events from a place on; none: there are none for now."""
    parse: Callable[[bytes], Iterator[tuple[int, Event | None]]]
    """``(SCN, event)`` of data events, ``(SCN, None)`` of ends of windows."""
    sources: Callable[[], Mapping[int, str]]
    """Ids and names."""
    filters: Callable[[], str | None]
    """As the parameter ``filters`` has them."""
    post: Callable[..., None]
    """Call back; what raises ends the step."""
    say: Callable[..., None]
    """The same, and wait for all consumers."""
    ask: Callable[..., Result]
    """Call back, wait for all consumers and give their answer; of it only ``ERROR_FATAL`` ends the step."""
    settle: Callable[[], None]
    """Wait for all consumers."""
    damaged: Callable[[], Exception]
    stopped: Callable[[], bool]


class Bootstrapper:
    """One bootstrap, step by step.

    :param point: where it goes on.
    """

    def __init__(self, means: Means, point: BootstrapPoint) -> None:
        if point.mode == CATCHUP and not point.other.get(_OURS):
            point = point.at(Place(point.start))
        self._means, self._point = means, point
        self.kept = point
        """The checkpoint."""
        self._size = _FIRST_SIZE
        self._begun = False
        self._source: tuple[str, Schema] | None = None

    @classmethod
    def anew(cls, means: Means) -> Bootstrapper:
        """From the start. It does not say what the consumer had before: a relay that still has all changes since would
        give only those, and rows of another relay may have been given meanwhile, or tables been emptied.
        """
        return cls(means, BootstrapPoint())

    def step(self) -> Place | None:
        """One request for rows and what belongs to it; the place from which the stream goes on, when all is done."""
        if not self._begun:
            self._means.say("on_start_bootstrap")
            self._begun = True
            if self._point.start >= 0:
                self._means.say("on_start_bootstrap_sequence", self._point.start)
        if self._point.start < 0:
            self._start()
            return None
        if self._point.mode == SNAPSHOT:
            self._rows()
            return None
        if not self._follow(self._point.target):
            self._keep()
            return None
        if self._means.stopped():
            return None
        self._means.say("on_end_bootstrap_sequence", self._point.target)
        end = self._point.place
        self._means.say("on_stop_bootstrap")
        return end

    def roll_back(self) -> None:
        """Go back to the checkpoint."""
        self._point, self._source = self.kept, None
        self._means.ask("on_bootstrap_rollback", self._point.window)

    # --- the phases

    def _start(self) -> None:
        names = list(self._means.sources().values())
        scn = self._scn("startSCN", {"sources": ",".join(names), "checkPoint": _text(self._point)})
        self._means.say("on_start_bootstrap_sequence", scn)
        self._point = replace(self._point, start=scn, snapshot_source=names[0], catchup_source=names[0]).at(Place(scn))
        if not self._means.stopped():
            self._means.ask("on_bootstrap_checkpoint", self._point.window)
        self.kept = self._point  # whatever the answer: nothing was given yet, and it has to be kept before anything is

    def _rows(self) -> None:
        asked = {
            "sources": ",".join(str(one) for one in self._means.sources()), "checkPoint": _text(self._point),
            "batchSize": str(self._size), "output": "binary",
        }  # fmt: skip
        filters = self._means.filters()
        if filters is not None:
            asked["filters"] = filters
        body, headers = self._means.get("bootstrap", asked, self._point.start)
        pending = headers.get("x-dbus-pending-event-size")
        if pending is not None:
            self._size = int(pending)
            if self._size > _LARGEST_SIZE:
                raise ProtocolError(f"an event of {pending} bytes is larger than {_LARGEST_SIZE}")
            return
        data = np.frombuffer(body, np.uint8)
        if not sound(data):
            raise self._means.damaged()
        newest = self._point.window
        for scn, event in self._means.parse(body):
            if self._means.stopped():  # also if it goes on at once: then all of them come again
                return
            if event is not None:
                newest = max(newest, scn)
                self._give(event)
        self._end_source()
        while not self._means.stopped() and not self._follow(newest):
            pass
        if self._means.stopped():
            return
        if headers.get("PhaseCompleted") == "TRUE":
            self._next_source()
        else:
            self._point = replace(self._point, offset=_offset(body, data))
        self._keep()

    def _next_source(self) -> None:
        names = list(self._means.sources().values())
        index = self._point.snapshot_index + 1
        source = names[index] if index < len(names) else ""
        done = replace(self._point, offset=-1)
        if source:
            self._point = replace(done, offset=0, snapshot_index=index, snapshot_source=source)
            return
        target = self._scn("targetSCN", {"source": self._point.snapshot_source, "checkPoint": _text(done)})
        self._point = replace(
            done, mode=CATCHUP, target=target, snapshot_index=index, snapshot_source="",
            other={**done.other, _OURS: True},
        )  # fmt: skip

    def _follow(self, to: int) -> bool:
        """One request of the stream, up to the end of window ``to`` and no further; whether that is there.

        :raises ScnNotFoundError: it has no such window: it is not the stream that the rows came with.
        """
        if self._point.has(to):
            return True
        place, held = self._point.place, False
        for scn, event in self._means.parse(self._means.stream(place)):
            if scn > to and place.scn < to:
                raise ScnNotFoundError(f"the relay's stream goes past SCN {to}, which its rows are of", scn=to)
            held = self._means.stopped()
            if held or scn > to:
                break
            if event is None:
                self._end_source()
                place = Place(scn)
            else:
                self._give(event)
                place = place.after_event(scn)
        if not held:
            self._end_source()
        self._point = self._point.at(place)
        return self._point.has(to)

    def _scn(self, command: str, asked: Mapping[str, str]) -> int:
        body, _ = self._means.get(command, asked, self._point.start)
        try:
            return int(json.loads(body))
        except (ValueError, TypeError):
            raise ProtocolError(f"/{command} gave no SCN: is this a relay?") from None

    # --- the callbacks

    def _give(self, event: Event) -> None:
        source = (event.source, event.schema)
        if source != self._source:
            self._end_source()
            self._means.post("on_start_bootstrap_source", *source)
            self._source = source
        self._means.post("on_bootstrap_event", event)

    def _end_source(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self._means.post("on_end_bootstrap_source", *source)

    def _keep(self) -> None:
        """Only between windows, as the stream's checkpoints are, and when all consumers have had what comes before."""
        self._means.settle()
        if self._means.stopped() or self._point.window_offset >= 0:
            return
        if self._means.ask("on_bootstrap_checkpoint", self._point.window) < Result.SKIP_CHECKPOINT:
            self.kept = self._point


def _text(point: BootstrapPoint) -> str:
    return json.dumps(point.to_json(), separators=(",", ":"))


def _offset(body: bytes, data: Any) -> int:
    """The ``snapshot_offset`` of the checkpoint that ends an answer."""
    fields = event_fields(data)
    if not len(fields.source) or int(fields.source[-1]) != CHECKPOINT_SOURCE:
        raise ProtocolError("the relay's rows do not end with a checkpoint")
    at, size = int(fields.value[-1]), int(fields.value_size[-1])
    try:
        return BootstrapPoint.from_json(json.loads(body[at : at + size])).offset
    except ValueError as error:
        raise ProtocolError(f"the relay's checkpoint is wrong: {error}") from None
