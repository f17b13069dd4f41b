"""Signals that set the stream's position: it goes on after it, and the log up to it is not read. No Spark here.

A user sends ``set-binlog-position`` to get past a part of the log that ends every run: a change logged as a statement,
an event that cannot be decoded, a part that the server has purged. What that part changed is unknown. So the batch's
header names it (``skips``), and the sinks read every table again that it may have changed.

**Only forwards.** The position must contain all that the stream has read, and the server must have executed it. Else
the signal is refused with a reason, and the stream goes on where it was.

**A batch that is planned already.** Its range is fixed: Spark has its offset, and repeats it until it succeeds. If the
unreadable part is in it, no later plan can pass it. So before a batch's tasks are made, signals that came after its
planning are applied to the batch itself, and recorded in the control folder (``skip.json``) before that. From then on
each replay leaves out the same part. A later signal can only add to it. That is safe even if an earlier try had written
some of the batch: every table that the part may have changed is suspended and read again, and what is read in addition
to that has the batch's epoch, so the re-read replaces it.

If the position is beyond the batch's end, the next planning takes the signal for the rest. The batch's chunks give no
rows then, because their windows begin at its end and would contain what cannot be read; they are retried later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from headgate.binlog_positions import FilePosition, end_of, parse_start, positions_before
from headgate.carrier import SkipNote
from headgate.control import parse_signal
from headgate.errors import ConfigError
from headgate.gtid import GtidSet

__all__ = ["SetPositions", "added_to_batch", "batch_actions", "set_positions"]

_TYPE = "set-binlog-position"


@dataclass(frozen=True)
class SetPositions:
    """Result of the signals that one planning takes."""

    skips: GtidSet = field(default_factory=GtidSet)
    """The part of the log that is not read."""
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By file name, what their actions have in addition: ``skipped`` and ``message``, or ``error``."""


def set_positions(
    signals: Mapping[str, Mapping[str, Any]], had: GtidSet, executed: GtidSet, *, begun: Collection[str] = ()
) -> SetPositions:
    """Return what the signals make of a stream that has read ``had``.

    :param signals: by file name, those that no plan has taken; of other types, too.
    :param executed: what the server has executed.
    :param begun: those that were applied to the batch before.
    """
    skips, answers = GtidSet(), {}
    for name, raw in signals.items():
        if raw.get("type") != _TYPE:
            continue
        try:
            position = _position(name, raw, had | skips, executed, begun=name in begun)
        except ConfigError as error:
            answers[name] = {"error": error.message}
            continue
        added = position - had - skips
        skips |= added
        answers[name] = _answer(added)
    return SetPositions(skips, answers)


def added_to_batch(
    signals: Mapping[str, Mapping[str, Any]], note: SkipNote, had: GtidSet, executed: GtidSet
) -> SkipNote:
    """Return the note about a planned batch with what these signals add. Invalid ones wait for the next planning.

    :param signals: by file name, those that the batch's plan has not taken; of other types, too.
    :param had: what the stream has before the batch, and what its plan leaves out.
    """
    for name, raw in signals.items():
        if raw.get("type") == _TYPE and name not in note.signals:
            try:
                position = _position(name, raw, had | note.gtid, executed)
            except ConfigError:
                continue
            note = replace(note, gtid=note.gtid | (position - had), signals=(*note.signals, name))
    return note


def batch_actions(note: SkipNote, end: GtidSet) -> list[dict[str, Any]]:
    """Return the actions of signals that were applied to a planned batch; none if the next planning takes them."""
    if not note.signals or not note.gtid <= end:
        return []
    actions: list[dict[str, Any]] = []
    for name in note.signals:
        file = {} if unquote(name) == name else {"file": name}
        actions.append({"id": unquote(name), "type": _TYPE, "tables": [], **file})
    actions[-1] |= _answer(note.gtid)
    return actions


def _answer(skipped: GtidSet) -> dict[str, Any]:
    if not skipped:
        return {"message": "the stream has read everything up to this position"}
    return {"skipped": str(skipped), "message": f"the stream goes on after this part of the log, unread: {skipped}"}


def _position(name: str, raw: Mapping[str, Any], had: GtidSet, executed: GtidSet, *, begun: bool = False) -> GtidSet:
    """Return the position that a signal sets.

    :raises ConfigError: the signal is invalid, or cannot be followed.
    """
    start, log_end = parse_start(parse_signal(raw, name=name).position), end_of(executed)
    if isinstance(start, FilePosition) != (log_end is not None):
        right = "a GTID set" if log_end is None else "binlog_filename and binlog_position"
        raise ConfigError(f"the server has {'GTIDs' if log_end is None else 'no GTIDs'}: set {right}")
    if isinstance(start, FilePosition) and log_end is not None:
        position = positions_before(log_end.server_uuid, start.file, start.pos)
    elif isinstance(start, GtidSet):
        position = start
    else:
        raise ConfigError("a position is a GTID set, or a file and a position in it")
    if not position <= executed:
        raise ConfigError(f"the server has not executed {position - executed} yet; a position is in the past")
    if not begun and not had <= position:
        raise ConfigError(
            f"the position lacks what the stream has read, {had - position}: a stream goes only forwards. Add that to"
            " the set; to read it again, begin with a new checkpoint"
        )
    return position
