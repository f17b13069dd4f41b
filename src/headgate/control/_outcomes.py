"""What became of each user's signal. A pure state machine; the ledger has its state with the open snapshots.

=========== ==================================================================== ======================
state       the signal                                                           leaves it by
=========== ==================================================================== ======================
``sent``    is in the inbox, and no batch has taken it                           a batch that takes it
``taken``   requests a snapshot, and none of its tables has rows yet             READ, STOP, END
``running`` some of its tables are being read                                    STOP, END
``done``    has its effect                                                       (a signal of the same id)
``partly``  has its effect on some tables only; ``reason`` names the others      (the same)
``stopped`` its snapshot was ended by ``reason``, another signal                 (the same)
``refused`` has no effect, for ``reason``                                        (the same)
=========== ==================================================================== ======================

Only readers of the inbox see ``sent``: the ledger learns of a signal by the batch that takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

__all__ = ["OUTCOMES", "SignalAnswer", "SignalAnswers", "SignalState"]

_KEPT: Final = 20
"""Answered signals that are remembered; more are open at the same time only if so many were sent."""
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
        self._answers = {answer.id: answer for answer in reversed([*before])}  # oldest first
        self._at_ms = at_ms

    def kept(self) -> tuple[SignalAnswer, ...]:
        """Return the answers to keep, newest first: all open ones, and the last of the others."""
        newest_first = [*reversed(self._answers.values())]
        over = [answer.id for answer in newest_first if answer.is_over][:_KEPT]
        return tuple(answer for answer in newest_first if not answer.is_over or answer.id in over)

    def take(self, action: Mapping[str, Any], tables: tuple[str, ...]) -> SignalAnswer:
        """Record that a batch took a signal. A second action of one that is open has a problem with it."""
        name, kind, error = str(action.get("id")), str(action.get("type")), action.get("error")
        known, sent_us = self._answers.get(name), action.get("sent_us")
        if known is not None and not known.is_over and error and not tables:
            return self._put(replace(known, reason=_joined(known.reason, str(error))))
        state = SignalState.DONE
        if kind == "execute-snapshot":
            state = SignalState.TAKEN if tables else SignalState.REFUSED
        elif error:
            state = SignalState.PARTLY if tables else SignalState.REFUSED
        reason = str(error) if error else None
        if kind == "stop-snapshot" and not tables and not error:
            reason = "no such table was being read, or waited for it"
        answer = SignalAnswer(name, kind, state, _cut(reason), tables[:_NAMED], sent_us, self._at_ms)
        self._answers.pop(name, None)
        return self._put(answer)

    def read(self, name: str) -> None:
        """Record that rows of one of its tables were read."""
        known = self._answers.get(name)
        if known is not None and known.state is SignalState.TAKEN:
            self._put(replace(known, state=SignalState.RUNNING, at_ms=self._at_ms))

    def fail(self, name: str, problem: str) -> None:
        """Record why one of its tables was not read."""
        known = self._answers.get(name)
        if known is not None and not known.is_over:
            self._put(replace(known, reason=_joined(known.reason, problem)))

    def end(self, name: str, stopped_by: str | None = None) -> None:
        """Record that all of its tables were read, or that a signal ended the last of them."""
        known = self._answers.get(name)
        if known is None or known.is_over:
            return
        state = SignalState.STOPPED if stopped_by is not None else SignalState.DONE
        if state is SignalState.DONE and known.reason:
            state = SignalState.PARTLY
        self._put(replace(known, state=state, at_ms=self._at_ms))

    def _put(self, answer: SignalAnswer) -> SignalAnswer:
        self._answers[answer.id] = answer
        return answer


def _joined(reason: str | None, more: str) -> str:
    return _cut(more if not reason else reason if more in reason else f"{reason}; {more}") or more


def _cut(reason: str | None) -> str | None:
    return reason if reason is None or len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
