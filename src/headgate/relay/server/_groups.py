"""Groups: consumers that share the partitions of one stream, and join and leave while it runs.

The keys are divided into a fixed number of partitions (buckets of the filter HASH). Each has at most one *owner* among
the members, a *generation* that grows with each assignment, and a checkpoint. One operation, :meth:`Group.sync`, does
all coordination. A member calls it repeatedly and reports its checkpoints, the partitions that it releases, and that it
lives; the answer is what it owns. :class:`GroupFolder` makes each call one atomic change of a file.

Guarantees:

- *Nothing is lost.* Only a partition's owner moves its checkpoint, under the generation of its assignment, and only
  after everything before it was delivered. The next owner begins there. A member that was paused, presumed dead and
  comes back (a zombie) holds an older generation: its reports are ignored.
- *Order.* A partition's owner delivers it in binlog order. A partition that moves is first requested back. Its next
  owner begins only when the current one has finished its window and reported the checkpoint, so it repeats nothing.
  After a crash the next owner repeats what came after the last report: at least once.
- *One at a time.* An owner whose lease is over delivers nothing more until it has synced again
  (``relay.client._member``). It counts the lease by its own clock from before the request. The coordinator counts from
  the request's arrival, so others get the partitions no earlier. If clocks run at very different speeds, or a callback
  takes longer than the lease, two members may deliver the same transactions at the same time; only the new owner's
  checkpoints count. With ``generation`` sinks can fence the same way.
- *Balance.* When members no longer join or leave, every partition has an owner and no two members differ by more than
  one; only as many partitions move as that needs.

A group may *bootstrap*: as soon as one of its members requests it, and forever. A partition without a checkpoint then
begins with the table rows, and so does one whose checkpoint no relay can serve any more. Until that is done, its
checkpoints are those of the bootstrap, kept and fenced like all others. The next owner continues the bootstrap at the
same relay, or restarts it if it is unknown there.

Any call may be repeated, or its answer lost: the next answer is complete. The state is in one file, so a relay that is
killed continues with it. A starting relay prolongs the leases, because members could not renew them meanwhile. Relays
that share the folder share the groups, and a member may call any of them. So leases use the wall clock. If it is set
back, each lease ends at most its length later. If it jumps forward by more than a lease, the first member to call gets
all partitions, and the others deliver until their next call. Then two members may deliver the same transactions at the
same time; only the new owner's checkpoints count.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from headgate.errors import ConfigError
from headgate.files import lock_file, read_json, write_json
from headgate.relay.databus import MemberReport, Owned, PartitionReport

__all__ = ["GROUP", "Group", "GroupFolder", "GroupLimits", "GroupRefusedError"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)


_CHECKPOINT_BYTES: Final = 4096
"""Most bytes of a checkpoint; a bootstrap's has some hundreds, and the name of a source."""


class GroupRefusedError(ConfigError):
    """A report that contradicts its group, or exceeds a limit; to repeat it is in vain."""


@dataclass(frozen=True)
class GroupLimits:
    """Limits of the groups in one folder, a tenant's."""

    groups: int = 1000
    members: int = 1000
    """Of one group at a time."""


@dataclass
class _Partition:
    owner: str | None = None
    generation: int = 0
    release_requested: bool = False
    checkpoint: Mapping[str, Any] | None = None


@dataclass
class _Member:
    lease_seconds: float
    until: float
    """End of the lease, seconds since 1970."""


@dataclass
class Group:
    """State of one group.

    :param sources: names of logical sources; none: all.
    :param bootstrap: partitions begin with the table rows.
    """

    sources: Sequence[str]
    bootstrap: bool = False
    members: dict[str, _Member] = field(default_factory=dict)
    partitions: list[_Partition] = field(default_factory=list)

    @classmethod
    def begin(cls, sources: Sequence[str], partitions: int) -> Group:
        """Return a group without members."""
        return cls(list(sources), partitions=[_Partition() for _ in range(partitions)])

    def start_at(self, checkpoint: Mapping[str, Any]) -> None:
        """Set the checkpoint of partitions that have none. It is fixed before the first of them is read: if a first
        owner dies before it reports, its events are read again, or an error shows that they are missing.
        """
        for one in self.partitions:
            one.checkpoint = one.checkpoint or checkpoint

    def prolong(self, now: float) -> None:
        """Prolong the leases of all members."""
        for one in self.members.values():
            one.until = now + one.lease_seconds

    def sync(
        self,
        member: str,
        lease_seconds: float,
        now: float,
        reports: Mapping[int, PartitionReport],
        *,
        leave: bool = False,
    ) -> dict[int, Owned]:
        """Take a member's report; return what it owns until ``lease_seconds`` after it sent the request."""
        for number, report in reports.items():
            self._take_report(member, number, report)
        if leave:
            self._forget(member)
        else:
            self.members[member] = _Member(lease_seconds, now + lease_seconds)
        for one in self.members.values():  # no lease is longer, unless the clock was set back
            one.until = min(one.until, now + one.lease_seconds)
        for other in [name for name, one in self.members.items() if one.until < now]:
            self._forget(other)
        self._balance()
        return {
            number: Owned(one.generation, one.checkpoint, one.release_requested, self.bootstrap)
            for number, one in enumerate(self.partitions)
            if one.owner == member
        }

    def _take_report(self, member: str, number: int, report: PartitionReport) -> None:
        if not 0 <= number < len(self.partitions):
            return
        one = self.partitions[number]
        if one.owner != member or one.generation != report.generation:
            return  # from a zombie, or a repeated report
        one.checkpoint = report.checkpoint or one.checkpoint
        if report.release:
            one.owner, one.release_requested = None, False

    def _forget(self, member: str) -> None:
        self.members.pop(member, None)
        for one in self.partitions:
            if one.owner == member:
                one.owner, one.release_requested = None, False

    def _balance(self) -> None:
        """Assign free partitions, and request back those that a member has too many of."""
        if not self.members:
            return
        loads = dict.fromkeys(sorted(self.members), 0)
        for one in self.partitions:
            if one.owner is not None and not one.release_requested:
                loads[one.owner] += 1
        for one in self.partitions:
            if one.owner is None:
                one.owner = min(loads, key=loads.__getitem__)
                one.generation += 1
                loads[one.owner] += 1
        least, more = divmod(len(self.partitions), len(loads))
        for rank, name in enumerate(sorted(loads, key=loads.__getitem__, reverse=True)):
            self._request_back(name, loads[name] - least - (rank < more))

    def _request_back(self, member: str, count: int) -> None:
        for one in reversed(self.partitions):
            if count > 0 and one.owner == member and not one.release_requested:
                one.release_requested = True
                count -= 1


GROUP: Final = TypeAdapter(Group)
"""The file's form, with ``v``."""


class GroupFolder:
    """Groups in files ``<name>.json``; each call of :meth:`sync` is one change under a lock, on disk before it returns.

    :param clock: seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, limits: GroupLimits | None = None) -> None:
        self._folder, self._clock, self._limits = folder, clock, limits or GroupLimits()
        self._prolonged: set[str] = set()

    def sync(self, name: str, report: MemberReport, start: Mapping[str, Any] | None = None) -> dict[int, Owned]:
        """See :meth:`Group.sync`; create the group if it is missing.

        :param start: where its partitions begin, unless the group bootstraps; None: at the oldest event.
        :raises GroupRefusedError: an invalid name, the group has other sources or another number of partitions, or the
            report exceeds a limit.
        :raises HeadgateError: the file cannot be used.
        """
        file = self._file(name)
        self._check_limits(file, report)
        with lock_file(file):
            group = self._load(file) or Group.begin(report.sources, report.partitions)
            _check_same(name, group, report.sources, report.partitions)
            now = self._clock()
            others = sum(one.until >= now for member, one in group.members.items() if member != report.member)
            if others >= self._limits.members:
                raise GroupRefusedError(f"the group {name} has {others} members, the most")
            if name not in self._prolonged:
                group.prolong(now)
            group.bootstrap = group.bootstrap or report.bootstrap
            if start is not None and not group.bootstrap:
                group.start_at(start)
            owned = group.sync(report.member, report.lease_ms / 1000, now, report.reports, leave=report.leave)
            write_json(file, _to_json(group))
            self._prolonged.add(name)
        return owned

    def show(self, name: str) -> dict[str, Any] | None:
        """Return the group as in its file; None: it does not exist.

        :raises GroupRefusedError: an invalid name.
        :raises HeadgateError: the file cannot be read.
        """
        group = self._load(self._file(name))
        return None if group is None else _to_json(group)

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise GroupRefusedError(f"{name!r} is not a group name: use up to 100 letters, digits, '.', '_' and '-'")
        return self._folder / f"{name}.json"

    def _check_limits(self, file: Path, report: MemberReport) -> None:
        """:raises GroupRefusedError: the report would take more of the disk than a group may."""
        for one in report.reports.values():
            if len(json.dumps(one.checkpoint)) > _CHECKPOINT_BYTES:
                raise GroupRefusedError(f"a checkpoint has more than {_CHECKPOINT_BYTES} bytes")
        if not file.exists() and sum(1 for _ in self._folder.glob("*.json")) >= self._limits.groups:
            raise GroupRefusedError(f"there are {self._limits.groups} groups, the most: remove the files of old ones")

    @staticmethod
    def _load(file: Path) -> Group | None:
        value = read_json(file)
        try:
            return None if value is None else GROUP.validate_python(value)
        except ValueError:
            raise ConfigError(f"{file} is not a group of consumers") from None


def _to_json(group: Group) -> dict[str, Any]:
    return {"v": 1, **GROUP.dump_python(group)}


def _check_same(name: str, group: Group, sources: Sequence[str], partitions: int) -> None:
    if len(group.partitions) != partitions:
        raise GroupRefusedError(
            f"the group {name} has {len(group.partitions)} partitions, not {partitions}, and its checkpoints depend "
            "on the number: use the same, or a new group"
        )
    if sorted(group.sources) != sorted(sources):
        raise GroupRefusedError(
            f"the group {name} reads {', '.join(group.sources) or 'all sources'}, not {', '.join(sources) or 'all'}: "
            "use the same sources, or a new group"
        )
