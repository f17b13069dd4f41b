"""Groups: consumers that share the partitions of one stream, who come and go while it runs.

The keys are cut into a fixed number of partitions (buckets of the filter HASH). Each has at most one *owner* among the
members, a *generation* that grows whenever it is given to somebody, and a checkpoint. All of a group's coordination is
one operation, :meth:`Group.sync`, which a member calls again and again: it says how far it is, which partitions it
gives up, and that it lives; the answer is what it owns. :class:`GroupFolder` makes each call one atomic change of a
file.

What is guaranteed:

- *Nothing is lost.* A partition's checkpoint is moved only by its owner under the generation in which it was given out,
  and only after everything before it was delivered. Whoever gets the partition begins there. A member that was stopped,
  thought dead and comes back (a zombie) holds an older generation: what it reports is not taken.
- *Order.* A partition's owner delivers it in the order of the log. A partition that is to move is asked back first and
  goes on only when its owner has finished its window and reported the checkpoint, so the next one repeats nothing.
  After a crash it repeats what came after the last report: at least once.
- *One at a time.* An owner whose lease is over by its own clock, counted from before it asked for it, delivers nothing
  more until it has synced again (``relay_client._member``), and others get its partitions no earlier than that:
  the coordinator counts from when it was asked. Clocks that run at very different speeds, or one callback that takes
  longer than the lease, may let two deliver at the same time; then both deliver the same transactions, and only the
  new owner's checkpoints count. ``generation`` is there for sinks that want to fence the same way.
- *Balance.* When no member comes or goes any more, every partition has an owner and no two members differ by more than
  one; only as many move as that needs.

A group may be one that *bootstraps*, as soon as one of its members says so, and for ever: a partition without a
checkpoint begins with the rows there are, and so does one whose checkpoint no relay can serve any more. Its checkpoints
are then those of the bootstrap until it is done, kept and fenced like all others: whoever gets the partition goes on
with it, at the same relay, or where that is unknown begins it again.

Any call may be repeated, or its answer lost: the next answer says all there is to say. The state is in one file, so a
relay that is killed goes on with it; leases are prolonged when it starts, as nobody could renew them meanwhile. Relays
that share the folder share the groups, and a member may ask any of them. Leases are by the wall clock; if that jumps,
partitions move needlessly, and nothing else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.databus import Done, Owned
from headgate.errors import ConfigError
from headgate.files import locked, read_json, write_json

__all__ = ["Group", "GroupFolder"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass
class _Partition:
    owner: str | None = None
    generation: int = 0
    back: bool = False
    checkpoint: Mapping[str, Any] | None = None


@dataclass
class _Member:
    lease_seconds: float
    until: float
    """Seconds since 1970."""


@dataclass
class Group:
    """One group.

    :param sources: names of logical sources; none: all.
    :param bootstrap: members give the rows there are first.
    """

    sources: Sequence[str]
    partitions: list[_Partition]
    members: dict[str, _Member] = field(default_factory=dict)
    bootstrap: bool = False

    @classmethod
    def begin(cls, sources: Sequence[str], partitions: int) -> Group:
        """One that nobody has joined."""
        return cls(list(sources), [_Partition() for _ in range(partitions)])

    def start_at(self, checkpoint: Mapping[str, Any]) -> None:
        """Where partitions begin that have no checkpoint yet. It is fixed before the first of them is read, so that
        what a first owner had not reported when it died is found again, or missed loudly.
        """
        for one in self.partitions:
            one.checkpoint = one.checkpoint or checkpoint

    def prolong(self, now: float) -> None:
        """All members may live."""
        for one in self.members.values():
            one.until = max(one.until, now + one.lease_seconds)

    def sync(
        self, member: str, lease_seconds: float, now: float, done: Mapping[int, Done], *, leave: bool = False
    ) -> dict[int, Owned]:
        """A member reports, and is told what it owns until ``lease_seconds`` after it began to ask."""
        for number, report in done.items():
            self._take(member, number, report)
        if leave:
            self._forget(member)
        else:
            self.members[member] = _Member(lease_seconds, now + lease_seconds)
        for other in [name for name, one in self.members.items() if one.until < now]:
            self._forget(other)
        self._balance()
        return {
            number: Owned(one.generation, one.checkpoint, one.back, self.bootstrap)
            for number, one in enumerate(self.partitions)
            if one.owner == member
        }

    def _take(self, member: str, number: int, report: Done) -> None:
        if not 0 <= number < len(self.partitions):
            return
        one = self.partitions[number]
        if one.owner != member or one.generation != report.generation:
            return  # a zombie's, or a report that came twice
        one.checkpoint = report.checkpoint or one.checkpoint
        if report.release:
            one.owner, one.back = None, False

    def _forget(self, member: str) -> None:
        self.members.pop(member, None)
        for one in self.partitions:
            if one.owner == member:
                one.owner, one.back = None, False

    def _balance(self) -> None:
        """Give out what is free, and ask back what somebody has too much of."""
        if not self.members:
            return
        loads = dict.fromkeys(sorted(self.members), 0)
        for one in self.partitions:
            if one.owner is not None and not one.back:
                loads[one.owner] += 1
        for one in self.partitions:
            if one.owner is None:
                one.owner = min(loads, key=loads.__getitem__)
                one.generation += 1
                loads[one.owner] += 1
        least, more = divmod(len(self.partitions), len(loads))
        for place, name in enumerate(sorted(loads, key=loads.__getitem__, reverse=True)):
            self._ask_back(name, loads[name] - least - (place < more))

    def _ask_back(self, member: str, count: int) -> None:
        for one in reversed(self.partitions):
            if count > 0 and one.owner == member and not one.back:
                one.back = True
                count -= 1

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "v": 1,
            "sources": list(self.sources),
            "bootstrap": self.bootstrap,
            "members": {name: vars(one) for name, one in self.members.items()},
            "partitions": [vars(one) for one in self.partitions],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Group:
        """:raises ValueError: it is none."""
        try:
            members = {name: _Member(**one) for name, one in value["members"].items()}
            partitions = [_Partition(**one) for one in value["partitions"]]
            return cls(value["sources"], partitions, members, bool(value.get("bootstrap", False)))
        except (KeyError, TypeError, AttributeError):
            raise ValueError("not a group") from None


class GroupFolder:
    """Groups in files ``<name>.json``; each call of :meth:`sync` is one change, under a lock, there before it returns.

    :param clock: seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._met: set[str] = set()

    def sync(
        self,
        name: str,
        member: str,
        *,
        sources: Sequence[str],
        partitions: int,
        lease_seconds: float,
        done: Mapping[int, Done],
        leave: bool = False,
        start: Mapping[str, Any] | None = None,
        bootstrap: bool = False,
    ) -> dict[int, Owned]:
        """See :meth:`Group.sync`; a group that is not there begins.

        :param start: where its partitions begin, unless the group bootstraps; None: with the oldest there is.
        :param bootstrap: from now on it does.
        :raises ConfigError: no name of a group, or the group has other sources or another number of partitions, or the
            file cannot be used.
        """
        file = self._file(name)
        with locked(file):
            group = self._load(file) or Group.begin(sources, partitions)
            _check_same(name, group, sources, partitions)
            now = self._clock()
            if name not in self._met:
                group.prolong(now)
            group.bootstrap = group.bootstrap or bootstrap
            if start is not None and not group.bootstrap:
                group.start_at(start)
            owned = group.sync(member, lease_seconds, now, done, leave=leave)
            write_json(file, group.to_json())
            self._met.add(name)
        return owned

    def show(self, name: str) -> dict[str, Any] | None:
        """The group as its file has it; None: there is none.

        :raises ConfigError: no name of a group, or the file cannot be read.
        """
        group = self._load(self._file(name))
        return None if group is None else group.to_json()

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a group: letters, digits, '.', '_' and '-', up to 100 of them")
        return self._folder / f"{name}.json"

    @staticmethod
    def _load(file: Path) -> Group | None:
        value = read_json(file)
        try:
            return None if value is None else Group.from_json(value)
        except ValueError:
            raise ConfigError(f"{file} is not a group of consumers") from None


def _check_same(name: str, group: Group, sources: Sequence[str], partitions: int) -> None:
    if len(group.partitions) != partitions:
        raise ConfigError(
            f"the group {name} has {len(group.partitions)} partitions, not {partitions}: its checkpoints are of those; "
            "take the same number, or a new group"
        )
    if sorted(group.sources) != sorted(sources):
        raise ConfigError(
            f"the group {name} reads {', '.join(group.sources) or 'all sources'}, not {', '.join(sources) or 'all'}: "
            "take the same sources, or a new group"
        )
