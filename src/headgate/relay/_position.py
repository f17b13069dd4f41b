"""Where a feeder is, for all who ask, and in its file."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.files import read_json, write_json
from headgate.gtid import Gtid, GtidSet, GtidSetBuilder
from headgate.replication import LogHint

__all__ = ["Position", "State", "StateFile", "load_state"]

log = logging.getLogger("headgate")

_SAVE_SECONDS: Final = 0.2
"""At most so much has to be read again after a kill."""
_MARK_SECONDS: Final = 1.0
_MARKS: Final = 7200
"""Positions that are remembered, one a second: a reader of copies of the tables may be two hours behind."""


@dataclass(frozen=True)
class State:
    """Where a feeder is."""

    gtid: GtidSet
    scn: int
    hint: LogHint | None = field(default=None, compare=False)
    """Where a reader that has all of ``gtid`` may begin."""


def load_state(file: Path | None, kind: str) -> State | None:
    """The state that an earlier relay left; None: none.

    :raises ConfigError: it is not readable, or its SCNs are of another kind.
    """
    value = None if file is None else read_json(file)
    if value is None:
        return None
    try:
        state = State(GtidSet.parse(value["gtid"]), int(value["scn"]))
        found = value["kind"]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{file} is not a relay's state") from None
    if found != kind:
        raise ConfigError(f"{file} holds SCNs of kind {found}, not {kind}: consumers' checkpoints would mean nothing")
    return state


class Position:
    """What is in the buffer now: one thread moves it, any may look."""

    def __init__(self, state: State) -> None:
        self._builder, self._scn, self._hint = GtidSetBuilder(state.gtid), state.scn, state.hint
        self._moved = threading.Condition()  # what the builder holds and the last SCN are of one moment
        self._marks = deque([state], maxlen=_MARKS)
        self._marked_at = time.monotonic()
        self._uuids: dict[str, tuple[bytes, str]] = {}
        self._closed = False

    def now(self) -> State:
        """Every transaction of the set that touches a followed table is in the buffer, the last one under the SCN (-1:
        there was none), and no other one before it.
        """
        with self._moved:
            return self._state()

    def _state(self) -> State:
        return State(self._builder.build(), self._scn, self._hint)

    def publish(self, gtids: Iterable[str], scn: int) -> None:
        """These transactions are in the buffer, too."""
        with self._moved:
            for gtid in gtids:
                source, _, number = gtid.rpartition(":")
                self._builder.add_interval(*self._uuid_of(source), int(number), int(number))
            self._scn = scn
            self._mark()

    def reach(self, gtid: GtidSet, hint: LogHint | None) -> None:
        """All of this was read."""
        builder = GtidSetBuilder(gtid)
        with self._moved:
            self._builder, self._hint = builder, hint or self._hint
            self._mark()

    def close(self) -> None:
        """It does not move any more; whoever waits gives up."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def _mark(self) -> None:
        self._moved.notify_all()
        now = time.monotonic()
        if now - self._marked_at >= _MARK_SECONDS:
            self._marks.append(self._state())
            self._marked_at = now

    def _uuid_of(self, source: str) -> tuple[bytes, str]:
        """``uuid[:tag]`` as a GTID set has it."""
        found = self._uuids.get(source)
        if found is None:
            gtid = Gtid.parse(f"{source}:1")
            found = self._uuids[source] = (gtid.uuid, gtid.tag)
        return found

    def mark_within(self, gtid: GtidSet) -> State | None:
        """The newest position of those that are remembered that is not beyond a set; None: all are."""
        with self._moved:
            marks = [*self._marks, self._state()]
        return next((mark for mark in reversed(marks) if mark.gtid <= gtid), None)

    def wait(self, enough: Callable[[State], bool], seconds: float) -> State | None:
        """The first position that is ``enough``; None: there was none within ``seconds``."""
        end = time.monotonic() + seconds
        with self._moved:
            while not enough(state := self._state()):
                left = end - time.monotonic()
                if left <= 0 or self._closed:
                    return None
                self._moved.wait(left)
        return state


class StateFile:
    """Keeps a position in a file, in a thread of its own: until one is safe the reader could have published many
    windows.

    :param kind: of the SCNs.
    """

    def __init__(self, file: Path, kind: str, position: Position, name: str) -> None:
        self._file, self._kind, self._position, self._name = file, kind, position, name
        self._saved: State | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headgate-relay-{name}-state", daemon=True)
        self.error: ConfigError | None = None
        """Why it could not be kept."""

    def start(self) -> None:
        """Go on keeping it."""
        self._thread.start()

    def stop(self) -> None:
        """Keep it once more, and end."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_SAVE_SECONDS):
            self.save()
        self.save()

    def save(self) -> None:
        """Keep it now, if it is another one."""
        state = self._position.now()
        if state == self._saved:
            return
        value: dict[str, Any] = {"v": 1, "kind": self._kind, "gtid": str(state.gtid), "scn": state.scn}
        try:
            write_json(self._file, value)
        except ConfigError as error:
            log.warning("%s: %s", self._name, error)
            self.error = error
            return
        self._saved = state
