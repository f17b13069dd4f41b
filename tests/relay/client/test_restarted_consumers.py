"""A consumer that restarts where SCNs mean other transactions than those that it had: it says so, and skips nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from headgate.config import ScnKind
from headgate.errors import RelayDivergedError, ScnNotFoundError
from headgate.relay.client import CheckpointFile, Share
from headgate.relay.databus import StreamPosition, checkpoint_json, parse_position
from headgate_testing import PowerLoss
from tests.relay.client.test_consumers import NUMBER, Keys, config_of, put, run, url, write
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import PERSON, PET, Served, physical, served
from tests.relay.server.test_app import pets

LOG = [(1, 100), (2, 200), (3, 300)]
DIFFERENT = "has another history"


def consume(relay: Served, checkpoints: CheckpointFile, last: int, sources: Any = (PERSON.name,), **more: Any) -> Any:
    """Consume from the stored checkpoint to the window ``last``, as a new process."""

    def hook(name: str, value: Any) -> None:
        if (name, value) == ("checkpoint", last):
            consumer.client.finish()

    consumer = Keys(hook=hook)
    run(url(relay), consumer, checkpoints, sources=sources, **more)
    return consumer.keys


def newest(relay: Served) -> int:
    return relay.relay.partitions[1].buffer.reached_scn


def save(relay: Served) -> None:
    relay.relay.partitions[1].feeder._file.save()


@pytest.mark.parametrize("kind", get_args(ScnKind))
@pytest.mark.parametrize("source_lost", [False, True])
def test_a_relay_and_a_server_that_lost_their_newest_transactions(
    kind: ScnKind, tmp_path: Path, *, source_lost: bool
) -> None:
    """The relay's machine loses its power between two saves of the state. If the server lost the same transactions, as
    with ``sync_binlog`` other than 1, its next ones have their SCNs.
    """
    now, left, checkpoints = tmp_path / "now", tmp_path / "left", CheckpointFile(tmp_path, "c")
    now.mkdir()
    config = {**config_of(kind, tmp_path), "disk_bytes": 1 << 20, "memory_bytes": 1 << 18}
    power = PowerLoss(now)
    with power.recording(), served(state=now, **config) as relay:
        for n, pos in LOG:
            write(relay, n, pos)
            if n == 1:
                save(relay)
        assert consume(relay, checkpoints, newest(relay)) == [1, 2, 3]
        power.leave(left)
    power.close()
    with served(state=left, **config) as relay:
        assert relay.relay.partitions[1].buffer.info().max_scn == newest(relay) > 0
        for n, pos in (*LOG[1:], (9, 900)):
            other = {"columns": {"first_name": ["other"]}} if source_lost and n < 9 else {}
            relay.put(block(people([n], gtids=[f"{UUID}:{n}"], pos=[pos], **other)))
        if not source_lost:
            assert consume(relay, checkpoints, newest(relay)) == [9]
            return
        with pytest.raises(RelayDivergedError, match=DIFFERENT):
            consume(relay, checkpoints, newest(relay))


@pytest.mark.parametrize(
    ("saved", "left", "consumed"), [(s, left, c) for s in range(3) for left in range(s, 3) for c in (1, 2)]
)
def test_it_is_noticed_exactly_where_something_was_consumed_that_is_lost(
    tmp_path: Path, saved: int, left: int, consumed: int
) -> None:
    """``saved`` by the relay, ``left`` of the server's log, ``consumed`` by the consumer."""
    checkpoints = CheckpointFile(tmp_path, "c")
    with served(state=tmp_path / "now") as relay:
        for n in range(4):
            if n:
                write(relay, n, 100 * n)
            if n == saved:
                save(relay)
                shutil.copytree(tmp_path / "now", tmp_path / "left")
        assert consume(relay, checkpoints, NUMBER + consumed) == [*range(1, consumed + 1)]
    with served(state=tmp_path / "left") as relay:
        for n in range(saved + 1, 6):
            write(relay, n, 100 * n, key=n if n <= left else 10 + n)
        if consumed > left:
            with pytest.raises(RelayDivergedError, match=DIFFERENT):
                consume(relay, checkpoints, NUMBER + 5)
        elif consumed >= saved:
            expected = [n if n <= left else 10 + n for n in range(consumed + 1, 6)]
            assert consume(relay, checkpoints, NUMBER + 5) == expected
        else:  # the relay has no files, so it does not hold what follows
            with pytest.raises(ScnNotFoundError):
                consume(relay, checkpoints, NUMBER + 5)


def test_a_counting_relay_that_was_killed_and_has_fewer_sources(tmp_path: Path) -> None:
    """It read some transactions before its state was saved. Without those of the removed source the SCNs that it gave
    them are those of later ones.
    """
    checkpoints = CheckpointFile(tmp_path, "c")
    config: dict[str, Any] = {"scn": "relay-generated", "disk_bytes": 1 << 20}
    (tmp_path / "left").mkdir()
    with served(physical(1, "p", PERSON, PET), state=tmp_path / "now", **config) as relay:
        write(relay, 1, 100)
        save(relay)
        state = (tmp_path / "now" / "partition-1.json").read_bytes()
        relay.put(block(pets([102], gtids=[f"{UUID}:2"], pos=[200])))
        write(relay, 3, 300)
        assert consume(relay, checkpoints, newest(relay)) == [1, 3]
    (tmp_path / "left" / "partition-1.json").write_bytes(state)
    with served(physical(1, "p", PERSON), state=tmp_path / "left", **config) as relay:
        for n in (3, 4, 5):
            write(relay, n, 100 * n)
        with pytest.raises(RelayDivergedError, match=DIFFERENT):
            consume(relay, checkpoints, newest(relay))


def test_windows_without_events_for_the_consumer_are_compared(tmp_path: Path) -> None:
    """By the time of their commit: of a group of many partitions most windows have none."""
    checkpoints, share = CheckpointFile(tmp_path, "c"), Share(0, 1000)
    with served() as relay:
        put(relay, 1, 2)
        assert consume(relay, checkpoints, NUMBER + 2, share=share) == []
    with served() as relay:
        put(relay, 1)
        relay.put(block(people([7], gtids=[f"{UUID}:2"], pos=[200], ts_us=1_700_000_001_000_000)))
        put(relay, 3)
        with pytest.raises(RelayDivergedError, match=DIFFERENT):
            consume(relay, checkpoints, NUMBER + 3, share=share)


CHANGES: dict[str, dict[str, Any]] = {
    "sources": {"sources": [PERSON.name, PET.name]},
    "filters": {"filters": {PERSON.name: {"partitionType": "NONE", "columns": ["last_name"]}}},
    "share": {"share": Share(0, 1)},
    "before images": {"before_images": True},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_choice_of_events_is_not_compared(tmp_path: Path, change: str) -> None:
    """The window is the same, and other events of it come."""
    checkpoints = CheckpointFile(tmp_path, "c")
    with served(event_version=2, before_images=True) as relay:
        put(relay, 1, 2)
        assert consume(relay, checkpoints, NUMBER + 2) == [1, 2]
        put(relay, 3)
        assert 3 in consume(relay, checkpoints, NUMBER + 3, **CHANGES[change])


def test_relays_of_both_event_versions_are_the_same(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path, "c")
    for n, version in ((2, 1), (3, 2), (4, 1)):
        with served(event_version=version) as relay:
            put(relay, *range(1, n + 1))
            assert consume(relay, checkpoints, NUMBER + n)[-1:] == [n]


def test_a_window_that_another_client_marked_before(tmp_path: Path) -> None:
    """Databus's client keeps a field that it does not know, and moves the SCN."""
    checkpoints = CheckpointFile(tmp_path, "c")
    with served() as relay:
        put(relay, 1, 2, 3)
        assert consume(relay, checkpoints, NUMBER + 1) == [1]
        stored = checkpoints.load()
        assert stored is not None
        position = parse_position(stored)
        assert position == StreamPosition(NUMBER + 1)
        assert position.mark
        checkpoints.store(checkpoint_json(replace(position, scn=NUMBER + 2)))
        assert consume(relay, checkpoints, NUMBER + 3) == [3]


@pytest.mark.parametrize("mark", [7, "", "x", f"{NUMBER + 2}:1", f"{NUMBER + 2}:1:2:3", "9" * 40])
def test_a_mark_that_is_none(tmp_path: Path, mark: Any) -> None:
    checkpoints = CheckpointFile(tmp_path, "c")
    checkpoints.store({**checkpoint_json(StreamPosition(NUMBER + 2)), "headgate_window": mark})
    with served() as relay:
        put(relay, 1, 2, 3)
        assert consume(relay, checkpoints, NUMBER + 3) == [3]
