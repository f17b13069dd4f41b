"""What became of each user's signal. A pure state machine; the ledger has its state with the open snapshots.

=========== ==================================================================== ======================
state       the signal                                                           leaves it by
=========== ==================================================================== ======================
``sent``    is in the inbox, and no batch has taken it                           a batch that takes it
``taken``   requests a snapshot, and none of its tables has rows yet             READ, STOP, END
``running`` some of its tables are being read                                    STOP, END
``done``    has its effect
``partly``  has its effect on some tables only; ``reason`` names the others
``stopped`` its snapshot was ended by ``reason``, another signal
``refused`` has no effect, or read none of its tables, for ``reason``
=========== ==================================================================== ======================

Only readers of the inbox see ``sent``: the ledger learns of a signal by the batch that takes it. An id may be used
again, also while the first signal is open: :data:`SignalKey` tells the signals apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

__all__ = ["OUTCOMES", "SignalAnswer", "SignalAnswers", "SignalKey", "SignalState", "signal_key"]

SignalKey: TypeAlias = tuple[str, int | None]
"""A signal's id, and when it was sent, in microseconds since 1970 UTC, if known."""

_KEPT: Final = 20
"""Answered signals that are remembered, apart from those of the newest batch and the open ones."""
_NAMED: Final = 20
"""Tables that an answer names."""
_LONGEST: Final = 1000
"""Characters of a reason."""


class SignalState(StrEnum):
    """State of a signal; the module's docstring describes them."""

    SENT = "sent"
    TAKEN = "taken"
    RUNNING = "running"
    DONE = "done"
    PARTLY = "partly"
    STOPPED = "stopped"
    REFUSED = "refused"


OUTCOMES: Final = frozenset({SignalState.DONE, SignalState.PARTLY, SignalState.STOPPED, SignalState.REFUSED})
"""The last states."""


@dataclass(frozen=True, slots=True)
class SignalAnswer:
    """A signal and its state.

    ``tables``: those that it concerns, at most 20. ``sent_us``: when it was sent, if known; tells signals with the same
    id apart. ``at_ms``: commit of the batch that brought it into the state. Times are since 1970 UTC.
    """

    id: str
    type: str
    state: SignalState
    reason: str | None = None
    tables: tuple[str, ...] = ()
    sent_us: int | None = None
    at_ms: int = 0

    @property
    def key(self) -> SignalKey:
        """What tells the signal from others."""
        return self.id, self.sent_us

    @property
    def is_over(self) -> bool:
        """Whether the state is the last one."""
        return self.state in OUTCOMES

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "state": self.state.value, "tables": list(self.tables)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SignalAnswer:
        """Create an answer from the result of :meth:`to_dict`."""
        return cls(**{**value, "state": SignalState(value["state"]), "tables": tuple(value["tables"])})


class SignalAnswers:
    """The answers before a batch, changed by what happens in it.

    :param before: newest first.
    :param at_ms: commit of the batch.
    """

    def __init__(self, before: Iterable[SignalAnswer], at_ms: int) -> None:
        self._answers = [*before][::-1]  # oldest first
        self._at_ms = at_ms

    def kept(self) -> tuple[SignalAnswer, ...]:
        """Return the answers to keep, newest first: open ones, those that ended in the batch, the last others."""
        newest_first = self._answers[::-1]
        over = sorted((answer for answer in newest_first if answer.is_over), key=lambda answer: -answer.at_ms)
        forgotten = {id(answer) for answer in over[_KEPT:] if answer.at_ms != self._at_ms}
        return tuple(answer for answer in newest_first if id(answer) not in forgotten)

    def take(self, action: Mapping[str, Any], tables: tuple[str, ...]) -> SignalAnswer:
        """Record that a batch took a signal."""
        kind, error = str(action.get("type")), action.get("error")
        state = SignalState.DONE
        if kind == "execute-snapshot":
            state = SignalState.TAKEN if tables else SignalState.REFUSED
        elif error:
            state = SignalState.PARTLY if tables else SignalState.REFUSED
        reason = str(error) if error else None
        if kind == "stop-snapshot" and not tables and not error:
            reason = "no such table was being read, or waited for it"
        name, sent_us = signal_key(action)
        answer = SignalAnswer(name, kind, state, _cut(reason), tables[:_NAMED], sent_us, self._at_ms)
        # One that is taken again, because the checkpoint was lost, is the same; without a time it may be another.
        self._answers = [one for one in self._answers if one.key != answer.key or (sent_us is None and not one.is_over)]
        self._answers.append(answer)
        return answer

    def read(self, key: SignalKey) -> None:
        """Record that rows of one of its tables were read."""
        for index, known in self._open(key):
            if known.state is SignalState.TAKEN:
                self._answers[index] = replace(known, state=SignalState.RUNNING, at_ms=self._at_ms)

    def fail(self, key: SignalKey, problem: str) -> None:
        """Record why one of its tables was not read."""
        for index, known in self._open(key):
            self._answers[index] = replace(known, reason=_joined(known.reason, problem))

    def end(self, key: SignalKey, *, is_read: bool, stopped_by: str | None = None) -> None:
        """Record the end of a snapshot.

        :param is_read: whether one of its tables was read.
        :param stopped_by: the signal that ended the last of them.
        """
        for index, known in self._open(key):
            state = SignalState.DONE
            if stopped_by is not None:
                state = SignalState.STOPPED
            elif known.reason:
                state = SignalState.PARTLY if is_read else SignalState.REFUSED
            self._answers[index] = replace(known, state=state, at_ms=self._at_ms)

    def _open(self, key: SignalKey) -> list[tuple[int, SignalAnswer]]:
        """Return a snapshot's open answers and their positions; several only without times of sending."""
        return [(index, one) for index, one in enumerate(self._answers) if one.key == key and not one.is_over]


def signal_key(action: Mapping[str, Any]) -> SignalKey:
    """Return the key of the signal that a batch took by this action of its header."""
    return str(action.get("id")), action.get("sent_us")


def _joined(reason: str | None, more: str) -> str:
    return _cut(more if not reason else reason if more in reason else f"{reason}; {more}") or more


def _cut(reason: str | None) -> str | None:
    return reason if reason is None or len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
