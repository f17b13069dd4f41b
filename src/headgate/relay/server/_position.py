"""A feeder's position: shared between threads, and in its file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError, HeadgateError, OffsetFormatError, ServerBehindError
from headgate.files import read_json, write_json
from headgate.gtid import Gtid, GtidSet, GtidSetBuilder
from headgate.offsets import Hint, Last
from headgate.replication import Idle

__all__ = ["BufferPosition", "FeederState", "StateFile", "load_state"]

log = logging.getLogger("headgate")

_NOT_BEGUN: Final = "the relay could not read from its server yet"
_SAVE_SECONDS: Final = 0.2
"""Between saves: about so much is read again after a kill."""


@dataclass(frozen=True)
class FeederState:
    """A feeder's position."""

    gtid: GtidSet
    scn: int
    hint: Hint | None = field(default=None, compare=False)
    """Where a reader that has all of ``gtid`` may begin."""
    last: Last | None = None
    """The last transaction of ``gtid`` that was read; None: none was."""
    server_uuid: str = ""
    """Server that is known to have executed ``gtid``; empty: none is."""


def load_state(file: Path | None, kind: str) -> FeederState | None:
    """Load the state of an earlier relay; None: there is none.

    :raises ConfigError: it is not readable, or its SCNs are of another kind.
    """
    value = None if file is None else read_json(file)
    if value is None:
        return None
    try:
        last = value["last"] and Last.from_dict(value["last"])
        state = FeederState(
            GtidSet.parse(value["gtid"]), int(value["scn"]), last=last, server_uuid=str(value["server_uuid"])
        )
        stored_kind = value["kind"]
    except (KeyError, TypeError, ValueError, OffsetFormatError):
        raise ConfigError(f"{file} is not a relay's state") from None
    if stored_kind != kind:
        raise ConfigError(
            f"{file} holds SCNs of kind {stored_kind}, not {kind}: use the same kind, or a new state folder"
        )
    return state


class BufferPosition:
    """Position of the buffer: one thread moves it, any thread may read it.

    :param state: where it begins; None: not known before :meth:`begin`.
    """

    def __init__(self, state: FeederState | None) -> None:
        self._builder, self._scn, self._hint = GtidSetBuilder(), -1, None if state is None else state.hint
        self._last: Last | None = None
        self._server_uuid = ""
        self._moved = threading.Condition()  # guards the builder and the last SCN together
        self.has_begun = False
        self._uuids: dict[str, tuple[bytes, str]] = {}
        self._closed = False
        self._prefix: FeederState | None = None
        if state is not None:
            self.begin(state)

    def begin(self, state: FeederState) -> None:
        """Set where it begins."""
        with self._moved:
            self._builder, self._scn, self.has_begun = GtidSetBuilder(state.gtid), state.scn, True
            self._last, self._server_uuid = state.last, state.server_uuid
            self._prefix = state
            self._moved.notify_all()

    def prefix(self) -> FeederState:
        """Return the newest position whose set has all that is before its last transaction in the log, and nothing
        else, where a reader may begin: :meth:`now` lacks transactions that touch no followed table.

        :raises ServerBehindError: it has not begun.
        """
        with self._moved:
            if self._prefix is None:
                raise ServerBehindError(_NOT_BEGUN)
            return self._prefix

    def now(self) -> FeederState:
        """Return the position: every transaction of the set that touches a followed table is in the buffer, the last
        one under the SCN (-1: none), and no other one is before it.

        :raises ServerBehindError: it has not begun.
        """
        with self._moved:
            if not self.has_begun:
                raise ServerBehindError(_NOT_BEGUN)
            return self._state()

    def _state(self) -> FeederState:
        gtid = self._builder.build()
        return FeederState(gtid, self._scn, self._hint, last=self._last, server_uuid=self._server_uuid)

    def publish(self, gtids: Sequence[str], scn: int, last_us: int) -> None:
        """Add transactions that are in the buffer now, in log order.

        :param last_us: commit time of the last one, microseconds since 1970-01-01 UTC.
        """
        with self._moved:
            for gtid in gtids:
                source, _, number = gtid.rpartition(":")
                self._builder.add_interval(*self._uuid_of(source), int(number), int(number))
            self._scn, self._last, self._server_uuid = scn, Last(gtids[-1], last_us), ""
            self._moved.notify_all()

    def reach(self, idle: Idle, scn: int) -> None:
        """Record that all of this was read, and that the last transaction of followed tables has this SCN. Do nothing
        until a reader that began again before the position has caught up.
        """
        builder = GtidSetBuilder(idle.gtid)
        with self._moved:
            if scn < self._scn:
                return
            self._builder, self._hint = builder, idle.hint or self._hint
            self._last, self._server_uuid = idle.last or self._last, idle.server_uuid
            self._prefix = self._state()
            self._moved.notify_all()

    def close(self) -> None:
        """End all changes; threads that wait give up."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def _uuid_of(self, source: str) -> tuple[bytes, str]:
        """Parse ``uuid[:tag]`` for a GTID set."""
        uuid_and_tag = self._uuids.get(source)
        if uuid_and_tag is None:
            gtid = Gtid.parse(f"{source}:1")
            uuid_and_tag = self._uuids[source] = (gtid.uuid, gtid.tag)
        return uuid_and_tag

    def wait(self, enough: Callable[[FeederState], bool], seconds: float) -> FeederState | None:
        """Return the first position that is ``enough``; None: none within ``seconds``, or closed."""
        with self._moved:
            self._moved.wait_for(lambda: self._closed or (self.has_begun and enough(self._state())), seconds)
            state = self._state()
            return state if self.has_begun and enough(state) else None


class StateFile:
    """Saves a position's prefix to a file, in a separate thread: during one save the reader may publish many windows.

    :param file: None: nothing is saved.
    :param kind: of the SCNs.
    :param before: called before each save, for what the state relies on.
    """

    def __init__(
        self,
        file: Path | None,
        kind: str,
        position: BufferPosition,
        name: str,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._file, self.position, self._name, self._before = file, position, name, before
        self._constants = {"v": 1, "kind": kind}
        self._saved: FeederState | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headgate-relay-{name}-state", daemon=True)
        self.problem: str | None = None
        """Why the last save failed; None: it did not. The next one is tried soon: until it succeeds, a relay that is
        killed has more to read again."""

    def start(self) -> None:
        """Start saving, once."""
        if self._file is not None and not self._thread.ident:
            self._thread.start()

    def stop(self) -> None:
        """Save once more, and end."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_SAVE_SECONDS):
            self._try_save()
        self._try_save()

    def _try_save(self) -> None:
        try:
            self.save()
        except HeadgateError as error:
            if self.problem != str(error):
                log.warning("%s: the position is not saved: %s", self._name, error)
            self.problem = str(error)

    def save(self) -> None:
        """Save the position now, if it changed.

        :raises HeadgateError: the file cannot be written.
        """
        state = self.position.prefix()
        if self._file is not None and state != self._saved:
            self._before()
            value: dict[str, Any] = {
                **self._constants,
                "gtid": str(state.gtid),
                "scn": state.scn,
                "last": state.last and asdict(state.last),
                "server_uuid": state.server_uuid,
            }
            write_json(self._file, value)
            self._saved = state
        self.problem = None
