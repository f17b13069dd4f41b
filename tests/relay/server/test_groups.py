"""Groups of consumers: if members join, leave, crash or come back, nothing of a partition is lost or overtaken."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import TypeAdapter

from headgate.errors import ConfigError
from headgate.relay.databus import MemberReport, Owned, PartitionReport
from headgate.relay.server import Group, GroupFolder, GroupLimits, GroupRefusedError

LEASE = 10.0
STORED_GROUP: Final = TypeAdapter(Group)


def at(scn: int) -> dict[str, Any]:
    return {"windowScn": scn}


def report(folder: GroupFolder, group: str, member: str, *, start: Any = None, **more: Any) -> dict[int, Owned]:
    """A member's report, with a lease of ``LEASE`` seconds."""
    return folder.sync(group, MemberReport(member, **{"lease_ms": round(LEASE * 1000), **more}), start)


def scn_of(checkpoint: Any) -> int:
    return 0 if checkpoint is None else int(checkpoint["windowScn"])


def test_a_group_that_bootstraps_begins_with_no_checkpoint(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path, clock=lambda: 0.0)
    begun: dict[str, Any] = {"sources": [], "partitions": 2, "start": at(5)}
    known = report(folder, "older", "a", **begun)
    assert [(one.checkpoint, one.bootstrap) for one in known.values()] == [(at(5), False)] * 2
    assert all(one.bootstrap for one in report(folder, "older", "a", bootstrap=True, **begun).values())
    owned = report(folder, "g", "a", bootstrap=True, **begun)
    assert [(one.checkpoint, one.bootstrap) for one in owned.values()] == [(None, True)] * 2
    point: dict[str, str | int | bool | None] = {
        "consumption_mode": "BOOTSTRAP_SNAPSHOT",
        "snapshot_offset": 7,
        "headgate_catchup": True,
    }
    report(folder, "g", "a", reports={1: PartitionReport(1, point)}, leave=True, **begun)
    again = report(GroupFolder(tmp_path, clock=lambda: 0.0), "g", "b", **begun)  # it does not say so
    assert [(one.generation, one.checkpoint, one.bootstrap) for one in again.values()] == [
        (2, None, True), (2, point, True),
    ]  # fmt: skip


def test_a_zombie_cannot_commit() -> None:
    group = Group.begin([], 1)
    group.sync("a", LEASE, 0, {})
    group.sync("a", LEASE, 5, {0: PartitionReport(1, at(7))})
    assert group.sync("b", LEASE, 14, {}) == {}
    taken = group.sync("b", LEASE, 15.1, {})
    assert (taken[0].generation, scn_of(taken[0].checkpoint)) == (2, 7)
    assert group.sync("a", LEASE, 16, {0: PartitionReport(1, at(99), release=True)}) == {}
    assert scn_of(group.sync("b", LEASE, 16, {})[0].checkpoint) == 7


def test_a_report_of_an_earlier_generation_of_ones_own() -> None:
    group = Group.begin([], 1)
    group.sync("a", LEASE, 0, {})
    group.sync("a", LEASE, 0, {0: PartitionReport(1, at(1), release=True)}, leave=True)  # its answer is lost
    group.sync("b", LEASE, 0, {})
    group.sync("b", LEASE, 0, {0: PartitionReport(2, at(9), release=True)}, leave=True)
    (owned,) = group.sync("a", LEASE, 0, {0: PartitionReport(1, at(1), release=True)}).values()
    assert (owned.generation, scn_of(owned.checkpoint)) == (3, 9)
    (owned,) = group.sync("a", LEASE, 0, {0: PartitionReport(1, at(1), release=True)}).values()
    assert (owned.generation, scn_of(owned.checkpoint)) == (3, 9)


def test_an_owner_that_is_late_but_unreplaced_goes_on() -> None:
    group = Group.begin([], 1)
    group.sync("a", LEASE, 0, {})
    kept = group.sync("a", LEASE, 1000, {0: PartitionReport(1, at(3))})
    assert (kept[0].generation, scn_of(kept[0].checkpoint)) == (1, 3)


def test_where_partitions_begin_is_fixed_once() -> None:
    group = Group.begin([], 2)
    group.start_at(at(5))
    group.sync("a", LEASE, 0, {0: PartitionReport(1)})
    group.sync("a", LEASE, 0, {1: PartitionReport(1, at(8))})
    group.start_at(at(100))
    assert [scn_of(one.checkpoint) for one in group.sync("a", LEASE, 0, {}).values()] == [5, 8]


@dataclass
class Member:
    """As the real one behaves: it delivers what it owns, reports, gives back, and stands still without a lease."""

    name: str
    owned: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → generation and the newest SCN that was delivered here."""
    back: set[int] = field(default_factory=set)
    until: float = 0.0


class Rebalance(RuleBasedStateMachine):
    """Any sequence of joins, reports, lost answers, crashes, pauses and deliveries, against what a stream promises."""

    PARTITIONS = 5

    def __init__(self) -> None:
        super().__init__()
        self.group = Group.begin([], self.PARTITIONS)
        self.now = 0.0
        self.members: list[Member] = []
        self.delivered: list[list[int]] = [[] for _ in range(self.PARTITIONS)]
        self.generations = [0] * self.PARTITIONS
        self.count = 0

    def member(self, n: int) -> Member:
        return self.members[n % len(self.members)]

    def sync(self, one: Member, *, answered: bool = True, leave: bool = False) -> None:
        done = {
            number: PartitionReport(generation, at(scn), number in one.back or leave)
            for number, (generation, scn) in one.owned.items()
        }
        before = [scn_of(each.checkpoint) for each in self.group.partitions]
        self.group = STORED_GROUP.validate_json(STORED_GROUP.dump_json(self.group))  # a relay that is killed
        owned = self.group.sync(one.name, LEASE, self.now, done, leave=leave)
        assert [scn_of(each.checkpoint) for each in self.group.partitions] >= before
        if not answered or leave:
            return
        one.until = self.now + LEASE
        for number, assignment in owned.items():
            assert assignment.generation >= self.generations[number]
            self.generations[number] = assignment.generation
        one.owned = {
            number: one.owned[number]
            if one.owned.get(number, (0, 0))[0] == assignment.generation
            else (assignment.generation, scn_of(assignment.checkpoint))
            for number, assignment in owned.items()
        }
        one.back = {number for number, assignment in owned.items() if assignment.release_requested}

    @rule()
    def join(self) -> None:
        if len(self.members) < 6:
            self.count += 1
            self.members.append(Member(f"m{self.count}"))
            self.sync(self.members[-1])

    @precondition(lambda self: self.members)
    @rule(n=st.integers(0, 5), answered=st.booleans())
    def report(self, n: int, *, answered: bool) -> None:
        self.sync(self.member(n), answered=answered)

    @precondition(lambda self: self.members)
    @rule(n=st.integers(0, 5))
    def leave(self, n: int) -> None:
        one = self.member(n)
        self.sync(one, leave=True)
        self.members.remove(one)

    @precondition(lambda self: self.members)
    @rule(n=st.integers(0, 5))
    def crash(self, n: int) -> None:
        self.members.remove(self.member(n))

    @rule(seconds=st.sampled_from([1.0, 4.0, LEASE + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.members)
    @rule(n=st.integers(0, 5), number=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def deliver(self, n: int, number: int, count: int) -> None:
        one = self.member(n)
        if number not in one.owned or number in one.back or self.now >= one.until:
            return
        generation, scn = one.owned[number]
        assert generation == self.generations[number], "another member delivers it, too"
        log = self.delivered[number]
        for step in range(1, count + 1):
            assert scn + step <= max(log, default=0) + 1, "something was left out"
            log.append(scn + step)
        one.owned[number] = (generation, scn + count)

    @invariant()
    def nothing_before_a_checkpoint_is_missing(self) -> None:
        for one, log in zip(self.group.partitions, self.delivered, strict=True):
            assert set(range(1, scn_of(one.checkpoint) + 1)) <= set(log)

    def teardown(self) -> None:
        """When nobody comes or goes any more, the load is balanced, and stays as it is."""
        if not self.members:
            return
        self.now += LEASE + 1
        for _ in range(4):
            for one in self.members:
                self.sync(one)
        loads = [len(one.owned) for one in self.members]
        assert sum(loads) == self.PARTITIONS
        assert max(loads) - min(loads) <= 1
        assert not any(one.back for one in self.members)
        generations = list(self.generations)
        for one in self.members:
            self.sync(one)
        assert self.generations == generations


Rebalance.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRebalance = Rebalance.TestCase


@given(st.integers(1, 12), st.integers(1, 6))
def test_no_more_moves_than_needed(partitions: int, members: int) -> None:
    """One more member takes its share; nothing else moves."""
    group = Group.begin([], partitions)
    names = [f"m{n}" for n in range(members)]

    def settle(some: Sequence[str]) -> list[int]:
        back: dict[str, dict[int, PartitionReport]] = {name: {} for name in some}
        for _ in range(4):
            for name in some:
                owned = group.sync(name, LEASE, 0, back[name])
                back[name] = {
                    number: PartitionReport(one.generation, None, one.release_requested)
                    for number, one in owned.items()
                }
        return [one.generation for one in group.partitions]

    before = settle(names)
    after = settle([*names, "new"])
    assert sum(after) - sum(before) == partitions // (members + 1)


def test_a_folder_of_groups(tmp_path: Path) -> None:
    now = [1000.0]
    folder = GroupFolder(tmp_path, lambda: now[0])
    common: dict[str, Any] = {"sources": ["s"], "partitions": 2}
    assert folder.show("g") is None
    assert sorted(report(folder, "g", "a", **common, start=at(3))) == [0, 1]
    shown = folder.show("g")
    assert shown is not None
    assert [one["checkpoint"] for one in shown["partitions"]] == [at(3), at(3)]
    # A relay that starts later does not hold the time against members that could not reach it.
    now[0] += 3600
    again = GroupFolder(tmp_path, lambda: now[0])
    assert report(again, "g", "b", **common) == {}
    assert sorted(report(again, "g", "a", **common)) == [0, 1]
    now[0] += LEASE + 1
    assert sorted(report(again, "g", "b", **common)) == [0, 1]


def test_what_a_folder_refuses(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    report(folder, "g", "a", sources=["s"], partitions=2)
    with pytest.raises(ConfigError, match="has 2 partitions, not 3"):
        report(folder, "g", "b", sources=["s"], partitions=3)
    with pytest.raises(ConfigError, match="reads s, not all"):
        report(folder, "g", "b", sources=[], partitions=2)
    for name in ("", "../g", ".g", "a/b", "x" * 101):
        with pytest.raises(ConfigError, match="not a group name"):
            report(folder, name, "a", sources=[], partitions=1)
    (tmp_path / "h.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a group"):
        folder.show("h")


def test_what_a_tenant_may_write(tmp_path: Path) -> None:
    now = [1000.0]
    folder = GroupFolder(tmp_path, lambda: now[0], GroupLimits(groups=2, members=2))
    common: dict[str, Any] = {"sources": [], "partitions": 1}
    for group, member in (("g", "a"), ("g", "b"), ("h", "a"), ("g", "a")):
        report(folder, group, member, **common)
    with pytest.raises(GroupRefusedError, match="has 2 members, the most"):
        report(folder, "g", "c", **common)
    with pytest.raises(GroupRefusedError, match="there are 2 groups, the most"):
        report(folder, "i", "a", **common)
    with pytest.raises(GroupRefusedError, match="more than 4096 bytes"):
        report(folder, "g", "a", **common, reports={0: PartitionReport(1, {"snapshot_source": "x" * 5000})})
    now[0] += LEASE + 1  # members that are gone take no place
    assert list(report(folder, "g", "c", **common)) == [0]
    assert sorted(file.name for file in tmp_path.glob("*.json")) == ["g.json", "h.json"]


def test_members_at_once_in_one_folder(tmp_path: Path) -> None:
    """Each change is one: no report of many threads, with folders of their own, is lost."""

    def work(name: str) -> None:
        folder = GroupFolder(tmp_path)
        for n in range(20):
            owned = report(folder, name, name, sources=[], partitions=1, reports={0: PartitionReport(1, at(n))})
            assert list(owned) == [0]
            report(folder, "all", name, sources=[], partitions=4, lease_ms=600_000)

    threads = [threading.Thread(target=work, args=(f"m{n}",)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    shown = GroupFolder(tmp_path).show("all")
    assert shown is not None
    assert sorted(shown["members"]) == ["m0", "m1", "m2", "m3"]
    for n in range(4):
        group = GroupFolder(tmp_path).show(f"m{n}")
        assert group is not None
        assert group["partitions"][0]["checkpoint"] == at(19)


def test_a_clock_that_is_set_back_keeps_no_partition_from_the_living(tmp_path: Path) -> None:
    """A member that died under the later time loses its partitions after one lease."""
    now = [7200.0]
    folder = GroupFolder(tmp_path, clock=lambda: now[0])
    begun: dict[str, Any] = {"sources": [], "partitions": 4}
    report(folder, "g", "a", **begun)
    report(folder, "g", "b", **begun)
    now[0] = 3600.0
    for _ in range(4):
        owned = report(folder, "g", "b", **begun)
        now[0] += LEASE / 3
    owned = report(folder, "g", "b", **begun)
    assert sorted(owned) == [0, 1, 2, 3]
