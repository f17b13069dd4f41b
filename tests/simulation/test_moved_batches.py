"""A batch is killed before its ledger row, and repeated on a server that lost what was committed while its chunks were
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from headgate.carrier import ControlFolder, Images
from headgate.offsets import ChunkSpec
from headgate.policies import Window
from headgate.sinks import PlannerMessages
from headgate.spark import Planner, Task
from tests.simulation import reading
from tests.simulation.driver import Driver
from tests.simulation.episode import Episode, Fault
from tests.simulation.tables import SHAPES, TABLE_SETS
from tests.simulation.world import Killed, World

TABLE = "d.a"
Change = Callable[[World], None]


def _alter(world: World) -> None:
    state = world.main.states[-1]
    world._log({**state, TABLE: SHAPES[TABLE].altered(state[TABLE])}, (), ("alter", TABLE))


def _update_half(world: World) -> None:
    state = world.main.states[-1]
    new = {key: (key, 7) for key in state[TABLE] if key % 2}
    images = [
        one for key, row in new.items() for one in ((TABLE, "b", state[TABLE][key], None), (TABLE, "u", row, None))
    ]
    world._log({**state, TABLE: {**state[TABLE], **new}}, tuple(images))


def _insert(world: World) -> None:
    state, row = world.main.states[-1], (99, 7)
    world._log({**state, TABLE: {**state[TABLE], 99: row}}, ((TABLE, "c", row, None),))


def _episode(modes: tuple[str, ...], window: Window) -> Episode:
    """Return an episode whose second batch reads two chunks of a table, because the other one has few rows."""
    for seed in range(999):
        episode = Episode(seed)
        rows = episode.world.main.states[-1]
        if episode.world.tables == TABLE_SETS[0] and len(rows[TABLE]) > 15 and len(rows["d.b"]) < 5:
            pipeline = episode.pipeline
            pipeline.modes, pipeline.window, pipeline.cut = modes, window, "batch"
            pipeline.share, pipeline.limit, episode.world.heat = "1", None, 0
            return episode
    raise AssertionError("no episode has such a table")


def _kill_batch(episode: Episode) -> None:
    """Run a batch until its tables are written."""
    with patch.object(PlannerMessages, "request", side_effect=Killed):
        assert episode.batch() is None
    assert not episode.figures["process ended by an error"]


def _kill_changing_batch(episode: Episode, change: Change, *, after_rows: bool) -> None:
    """The same. The source changes while chunks are read.

    :param after_rows: when a first chunk gave rows of the table; else before all chunks.
    """
    read, is_due, is_done = reading._chunk, not after_rows, False

    def chunk(world: World, task: Task, spec: ChunkSpec, *about: Any) -> Any:
        nonlocal is_due, is_done
        if is_due and not is_done and spec.table == TABLE:
            is_done = True
            change(world)
            world.main.settle()
        made = read(world, task, spec, *about)
        is_due |= any(isinstance(one, Images) and one.table == TABLE and one.count for one in made)
        return made

    with patch.object(reading, "_chunk", chunk):
        _kill_batch(episode)
    assert is_done


def _lose(world: World) -> None:
    """Fail over to a server that has nothing of the last transactions."""
    with patch.object(World, "catch_up", lambda *_: None):
        world.fail_over(lossy=True)
    assert world.figures["lossy failover"] == 1


CASES = [
    pytest.param(("current",), "rewind", _alter, id="a statement that one chunk met, appended"),
    pytest.param(("history",), "rewind", _alter, id="the same, in a history"),
    pytest.param(("current",), "drop", _update_half, id="changes of rows that were dropped"),
    pytest.param(("current",), "keep", _update_half, id="changes of rows that were kept"),
    pytest.param(("current", "changelog"), "keep", _insert, id="a row that was kept"),
]


@pytest.mark.parametrize(("modes", "window", "change"), CASES)
def test_what_a_killed_attempt_wrote_of_chunks_does_no_harm(
    modes: tuple[str, ...], window: Window, change: Change
) -> None:
    episode = _episode(modes, window)
    episode.world.heal()
    if change is _alter:
        assert episode.batch()
    _kill_changing_batch(episode, change, after_rows=change is _alter)
    _lose(episode.world)
    episode._rest()
    assert episode.figures["lake judged at rest"] == 1


@pytest.mark.parametrize(("modes", "window", "change"), CASES)
def test_a_missing_mend_is_noticed(modes: tuple[str, ...], window: Window, change: Change) -> None:
    """A batch reads its chunks wherever it is repeated."""
    with patch.object(Planner, "_has_moved", lambda *_: False), pytest.raises(Fault, match=f"{TABLE} is"):
        test_what_a_killed_attempt_wrote_of_chunks_does_no_harm(modes, window, change)


def test_a_batch_that_comes_back_to_its_server_reads_no_chunks_either() -> None:
    """The attempt on the other server wrote the batch's changes under a marker, and no chunk."""
    episode = _episode(("history",), "rewind")
    world = episode.world
    world.heal()
    episode._drain()
    episode._send("execute-snapshot", TABLE)
    world.traffic(40)
    world.heal()
    with patch.object(Driver, "evaluate", side_effect=Killed):
        assert episode.batch() is None
    world.fail_over(lossy=False)
    _kill_batch(episode)
    world.fail_over(lossy=False)
    episode._rest()
    assert episode.figures["lake judged at rest"] == 1


def test_a_missing_record_is_noticed() -> None:
    """The batch is read as planned when it comes back to its server."""
    with patch.object(ControlFolder, "has_moved", lambda *_: False), pytest.raises(Fault, match=f"{TABLE} is"):
        test_a_batch_that_comes_back_to_its_server_reads_no_chunks_either()
