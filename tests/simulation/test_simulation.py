"""A short run of the simulation; and that it notices when a mend is taken out again."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from headgate.carrier import Batch, ControlFolder, HighWatermark, Message, SinkTables
from headgate.delta import CommitOutcome, TableLog
from headgate.errors import CommitConflictError, HeadgateError, TargetError
from headgate.kafka import KafkaTarget
from headgate.lake import Ledger
from headgate.offsets import Hint
from headgate.snapshot import Window
from headgate.spark import Planner
from tests.figures import add_figures
from tests.simulation import __main__, reading
from tests.simulation.__main__ import main
from tests.simulation.driver import Driver, Pipeline, counts_of
from tests.simulation.episode import Episode, Fault, run_episode, seeds_of, shrink
from tests.simulation.relay import RelayEpisode
from tests.simulation.rooms import Contents, HistoryCheck, LogSegment, log_order, newest_stored_scn, stored_segments
from tests.simulation.sinks import CurrentTable
from tests.simulation.source import Server
from tests.simulation.world import World

STEPS = 20_000
SEEDS = 150
"""So many episodes at most until a missing mend is noticed."""


def test_a_simulated_pipeline_is_exact() -> None:
    """``scripts/simulate`` runs millions of steps."""
    steps, seed = Counter[str](), 0
    while steps.total() < STEPS:
        seed += 1
        steps += run_episode(seed)
    kinds = {"transaction committed", "transaction delivered", "batch planned", "table decided", "ledger row judged"}
    assert kinds <= steps.keys()


def test_equal_seeds_give_equal_episodes() -> None:
    assert run_episode(3) == run_episode(3)


def test_a_first_batch_that_is_lost_leaves_nothing() -> None:
    """Also if the next process's clock is behind: then its batches come after the lost one all the same."""
    episode = next(one for one in map(Episode, range(99)) if "changelog" in one.pipeline.modes)
    pipeline = episode.pipeline
    driver = episode._driver = Driver(episode.world, pipeline)
    driver._begin()
    episode.world.traffic(30)
    episode.world.main.settle()
    episode._lose_batch()
    logs = [TableLog(pipeline.lake.changelog(table, None)) for table in episode.world.tables]
    assert any(log.refresh().files for log in logs), "the lost batch has written one"
    episode.world.behind_us = 600_000_000
    episode._rest()
    assert episode.pipeline is pipeline, "it went on"


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_known_that_the_start_of_a_repeated_batch_is_lost(seed: int) -> None:
    """The stream's beginning was asked for again meanwhile: that one is not lost."""
    episode = Episode(seed)
    pipeline = episode.pipeline
    assert episode.batch(dies=True) is None
    assert pipeline.offsets, "it will be repeated"
    episode.world.fail_over(lossy=False)
    episode.world.reset()
    episode._rest()
    assert episode.pipeline is not pipeline, "it began again, without an alarm"


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_whose_start_is_purged_cannot_know_another_history(seed: int) -> None:
    episode = Episode(seed)
    pipeline = episode.pipeline
    episode.world.purge()
    episode.batch()
    episode.world.reset()
    episode._rest()
    assert episode.pipeline is not pipeline


def test_a_driver_that_is_overtaken_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still while it writes tables. A signal of its batch, which the other has processed, would be back."""
    episode = Episode(1)
    episode.world.heat = 0
    driver, requests = Driver(episode.world, episode.pipeline), list[Any]()
    while driver.batch():
        pass
    other = Driver(episode.world, episode.pipeline)
    episode.world.traffic(9)
    episode.world.main.settle()

    def overtaken(*_: Any) -> Any:
        assert other.batch()
        return [], {}

    monkeypatch.setattr(driver.writer, "_write_tables", overtaken)
    monkeypatch.setattr(driver.writer._planner_messages, "request", lambda *about: requests.append(about))
    with pytest.raises(CommitConflictError, match="an earlier attempt"):
        driver.batch()
    assert not requests


def test_a_driver_that_is_overtaken_sends_no_old_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still before its producer is open, which then fences the other's. Its batch would come after later
    ones.
    """
    wanted = ("kafka", "exactly-once")
    episode = next(one for one in map(Episode, range(99)) if (one.pipeline.modes[-1], one.pipeline.delivery) == wanted)
    world, pipeline = episode.world, episode.pipeline
    first = Driver(world, pipeline)
    while first.batch():
        pass
    driver, other = Driver(world, pipeline), Driver(world, pipeline)
    assert driver.writer._kafka is not None
    opened = driver.writer._kafka._open

    def overtaken() -> Any:
        monkeypatch.undo()
        for _ in range(2):
            assert other.batch()
            world.traffic(9)
            world.main.settle()
        return opened()

    world.traffic(9)
    world.main.settle()
    monkeypatch.setattr(driver.writer._kafka, "_open", overtaken)
    with pytest.raises(HeadgateError, match=r"another program|an earlier attempt"):
        driver.batch()
    pipeline.has_second = episode._had_second = True
    episode._rest()
    assert episode.pipeline is pipeline, "it went on"


def test_a_batch_that_kafka_cannot_take_writes_no_table() -> None:
    episode = next(one for one in map(Episode, range(99)) if {"current", "kafka"} <= {*one.pipeline.modes})
    pipeline, tables = episode.pipeline, episode.world.tables
    driver = Driver(episode.world, pipeline)
    kafka = driver.writer._kafka
    assert kafka is not None
    kafka._names = replace(kafka._names, others={kafka._names.of(table): "something else" for table in tables})
    with pytest.raises(TargetError, match="would share the topic"):
        list(iter(driver.batch, False))
    logs = [TableLog(pipeline.lake.current(table, None)) for table in tables]
    assert not any(log.refresh().files for log in logs)


def _lose_windows(seed: int) -> None:
    """Rows that change while they are read are kept or dropped. The changes are lost, and their numbers used again."""
    episode = Episode(seed)
    if episode.pipeline.window == "rewind" or episode.pipeline.cut != "batch":
        return
    world, still = episode.world, reading._still
    world.heat = 0

    def changed_meanwhile(world: World, connection: int) -> None:
        world.commit()
        still(world, connection)

    with patch.object(reading, "_still", changed_meanwhile):
        for _ in range(20):
            assert episode.batch()
            if "settling" in {one["state"] for one in episode.oracle._rows[-1][4]}:
                break
        else:
            return  # a table without a key cannot be read meanwhile
    lost = sum(world.main.counts[-1]) - sum(counts_of(episode.oracle._rows[-1][2]))
    with patch.object(world, "choose", SimpleNamespace(below=lambda _: lost)):
        world.fail_over(lossy=True)
    world.fail_over(lossy=False)
    world.traffic(lost)
    episode._rest()


def _lose_all_windows() -> None:
    for seed in range(40):
        _lose_windows(seed)


def test_tables_are_read_again_if_a_failover_lost_what_their_rows_were_read_with() -> None:
    _lose_all_windows()


# --- mends that are taken out


def _no_answer_is_a_failure() -> AbstractContextManager[Any]:
    """A commit without an answer counts as not made, and is made again on the next version."""
    return patch("headgate.delta._commit._outcome", lambda *_: CommitOutcome.NOT_COMMITTED)


def _no_chain_of_epochs() -> AbstractContextManager[Any]:
    """The ledger takes each batch for the next one."""
    return patch.object(Ledger, "has", lambda self, epoch, start_epoch: False)


def _no_window() -> AbstractContextManager[Any]:
    """A chunk has the rows that its SELECT returned."""
    return patch.object(Window, "rewind", lambda self, rows, in_range, **_: rows)


@contextmanager
def _second_evaluation() -> Iterator[None]:
    """The batch is decided on one evaluation, and written from another."""
    write = Driver.write

    def written(self: Driver, batch: Batch, tasks: Any) -> None:
        if self.world.heat and self.world.choose.one_in(2):
            self.world.statement()
        second = Batch.of(self.evaluate(tasks))
        write(self, replace(batch, parts=second.parts), tasks)

    with patch.object(Driver, "write", written):
        yield


def _no_comparison_of_times() -> AbstractContextManager[Any]:
    """A transaction is known by its number alone."""
    return patch("headgate.replication.check_header", lambda *_: None)


@contextmanager
def _bad_hints() -> Iterator[None]:
    """The last hint is used on any server, and what its dump brings counts as complete."""

    def last(planner: Planner, *_: Any) -> Hint | None:
        end = planner._control.hint() if planner._control is not None else None
        return None if end is None else end.hint

    def begin(server: Server, hint: Hint) -> int:
        return server.index_at(hint.file, hint.pos, None) or 0

    with ExitStack() as stack:
        stack.enter_context(patch.object(Planner, "_begin", last))
        stack.enter_context(patch.object(reading, "_begin", begin))
        stack.enter_context(patch.object(reading, "_is_complete", lambda *_: True))
        yield


def _no_undoing_of_lost_batches() -> AbstractContextManager[Any]:
    """Tables keep what batches wrote that never got into the ledger."""
    return patch("headgate.lake._unentered.UnenteredBatches.restored", lambda self, delta, version, *_, **__: version)


def _no_markers() -> AbstractContextManager[Any]:
    """A repeated batch appends again."""
    return patch("tests.simulation.sinks.has_marker", lambda table, marker: False)


def _no_order_of_batches() -> AbstractContextManager[Any]:
    """A driver that another one has overtaken still writes tables."""
    return patch("headgate.lake._delta.check_order", lambda *_: None)


def _stale_tables_are_forgotten() -> AbstractContextManager[Any]:
    """A table that waits to be read again is not named to a stream that lost its checkpoint."""
    known = ControlFolder.sink_tables

    def without(self: ControlFolder) -> SinkTables:
        return SinkTables(known(self).finished)

    return patch.object(ControlFolder, "sink_tables", without)


def _no_wait_for_brokers() -> AbstractContextManager[Any]:
    """A batch gets into the ledger before the brokers have its messages."""
    return patch.object(KafkaTarget, "_flush", lambda self, producer: None)


def _no_log_order() -> AbstractContextManager[Any]:
    """Messages of a key come in another order."""

    def backwards(records: Any, columns: Any) -> Iterator[Any]:
        for one in log_order(records, columns):
            yield one.take(list(reversed(range(one.num_rows))))

    return patch("headgate.kafka._target.log_order", backwards)


def _a_copy_is_not_counted() -> AbstractContextManager[Any]:
    """One of the rows that a batch adds to a table without a key is left out."""
    added = Contents.added

    def fewer(self: Contents) -> Iterator[Any]:
        for number, batch in enumerate(added(self)):
            yield batch.slice(number == 0)

    return patch.object(Contents, "added", fewer)


def _no_watermarks() -> AbstractContextManager[Any]:
    """Rows that were kept or dropped while they were read count as exact at once."""
    add = Batch._add

    def without(self: Batch, message: Message) -> None:
        if not isinstance(message, HighWatermark):
            add(self, message)

    return patch.object(Batch, "_add", without)


def _messages_are_sent_again() -> AbstractContextManager[Any]:
    """A repeated batch does not ask whether the brokers have it."""
    return patch.object(KafkaTarget, "_newest_sent", lambda self: None)


def _completed_from_the_newest_version() -> AbstractContextManager[Any]:
    """A repeated batch completes its partial images from what its first attempt wrote."""

    def newest(self: CurrentTable, _: int | None) -> Any:
        return self._joined(self.delta.known(files=True))

    return patch.object(CurrentTable, "_rows_at", newest)


@pytest.mark.parametrize(
    "without",
    [
        _no_answer_is_a_failure,
        _no_chain_of_epochs,
        _no_window,
        _second_evaluation,
        _no_comparison_of_times,
        _bad_hints,
        _no_undoing_of_lost_batches,
        _no_markers,
        _no_order_of_batches,
        _no_wait_for_brokers,
        _no_log_order,
        _a_copy_is_not_counted,
        _no_watermarks,
        pytest.param(_stale_tables_are_forgotten, marks=pytest.mark.long),
    ],
)
def test_a_missing_mend_is_noticed(without: Callable[[], AbstractContextManager[Any]]) -> None:
    with without():
        for seed in range(1, SEEDS + 1):
            try:
                run_episode(seed)
            except Exception:  # noqa: BLE001 - a verdict, or an error of headgate's that never happens
                return
    pytest.fail("not noticed")


@pytest.mark.parametrize(
    ("without", "needs"),
    [
        (_messages_are_sent_again, lambda one: (one.modes[-1], one.delivery) == ("kafka", "exactly-once")),
        (_completed_from_the_newest_version, lambda one: one.has_parts),
    ],
)
def test_a_missing_mend_of_repeated_batches_is_noticed(
    without: Callable[[], AbstractContextManager[Any]], needs: Callable[[Pipeline], bool]
) -> None:
    """Each batch but the first gets into tables and brokers, and is repeated, on the other server."""
    with without():
        for seed in range(1, SEEDS + 1):
            try:
                _repeat_batches(seed, needs)
            except Fault:
                break
        else:
            pytest.fail("not noticed")
    _repeat_batches(seed, needs)


def _repeat_batches(seed: int, needs: Callable[[Pipeline], bool]) -> None:
    episode = Episode(seed)
    if not needs(episode.pipeline):
        return
    world, episode.world.heat = episode.world, 0
    assert episode.batch()
    for _ in range(4):
        world.traffic(30)
        world.heal()
        episode.batch(dies=True)
        world.fail_over(lossy=False)
        assert episode.batch()
    episode._rest()


def test_it_is_noticed_that_lost_windows_are_not_compared() -> None:
    with patch.object(HistoryCheck, "is_same", lambda *_: True), pytest.raises(Fault, match="is live with"):
        _lose_all_windows()


def test_a_kept_row_that_moves_is_noticed() -> None:
    """The rows of a table's older version change after its row of the ledger was judged."""
    episode = Episode(1)
    episode.world.heat = 0
    for _ in range(3):
        episode.world.traffic(30)
        episode.world.heal()
        assert episode.batch()
    episode._rest()
    first, *_ = episode.oracle._rows
    table, version = next((one["table"], one["version"]) for one in first[4] if one["state"] == "live")
    folder = episode.pipeline.lake.current(table, None)
    older, newer = (set(episode.oracle._files(folder)[at]) for at in (version, -1))
    episode.world.store.data[min(older - newer)] = {}
    with pytest.raises(Fault, match=rf"epoch {first[1]}, .* {table} is live with"):
        episode.oracle.judge_end()


def _later_windows_stay() -> AbstractContextManager[Any]:
    """A buffer that starts keeps windows that come again."""

    def all_stored(folder: Path, _: int) -> Any:
        return stored_segments(folder, newest_stored_scn(folder))

    return patch("headgate.relay.server._buffer.stored_segments", all_stored)


def _open_transactions_stay() -> AbstractContextManager[Any]:
    """A dump that ends leaves the part of a transaction, which the next dump sends again."""
    return patch.object(LogSegment, "drop_open", lambda self: None)


def _gaps_stay() -> AbstractContextManager[Any]:
    """An archive that starts keeps what comes before a missing segment."""
    return patch.object(LogSegment, "precedes", lambda self, following: True)


@pytest.mark.parametrize("without", [_later_windows_stay, _open_transactions_stay, _gaps_stay])
def test_a_missing_mend_of_the_relay_is_noticed(without: Callable[[], AbstractContextManager[Any]]) -> None:
    with without():
        for seed in range(SEEDS):
            episode = RelayEpisode(seed)
            try:
                episode.run(seeds_of(seed))
            except Exception:  # noqa: BLE001 - as above
                return
    pytest.fail("not noticed")


def test_a_simulated_relay_is_exact() -> None:
    for seed in range(4):
        episode = RelayEpisode(seed)
        episode.run(seeds_of(seed))
        assert episode.figures["consumer judged at rest"] == 3


def test_a_failing_episode_shrinks() -> None:
    with _no_window():
        seed = next(seed for seed in range(1, SEEDS) if _fails(seed))
        steps = shrink(seed, seeds_of(seed), Fault)
        assert len(steps) < len(seeds_of(seed)) / 3
        with pytest.raises(Fault):
            run_episode(seed, steps)


def _fails(seed: int) -> bool:
    try:
        run_episode(seed)
    except Fault:
        return True
    return False


def test_a_run_continues_behind_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "simulation.json"
    for expected in ("from seed 1: 2 episodes,", "from seed 3: 2 episodes,"):
        assert main(["--seconds", "0", "--processes", "2", "--figures", str(file)]) == 0
        assert expected in capsys.readouterr().out
    (entry,) = json.loads(file.read_text()).values()
    assert entry["counts"] == {"episodes": 4}
    assert sum(entry["steps"].values()) > 4000
    with _no_window():
        seed = next(seed for seed in range(1, SEEDS) if _fails(seed))
        assert main(["--seed", str(seed)]) == 1
    assert "fails with" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_keeps_its_figures(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its time is over: the seeds up to the last one are run, without a gap."""
    file, saves = tmp_path / "simulation.json", list[int]()

    def saved(file: Path, figures: dict[str, Any]) -> None:
        add_figures(file, figures)
        saves.append(figures["counts"]["episodes"])
        if len(saves) == 1:  # a second signal would end the process
            os.kill(os.getpid(), number)

    monkeypatch.setattr(__main__, "add_figures", saved)
    before = signal.getsignal(number)
    assert main(["--seconds", "3600", "--processes", "2", "--figures", str(file)], save_seconds=0.0) == 0
    assert signal.getsignal(number) is before
    assert saves[0] == 1, "before the end"
    assert f"from seed 1: {sum(saves):,} episodes" in capsys.readouterr().out
    (entry,) = json.loads(file.read_text()).values()
    assert entry["counts"] == {"episodes": sum(saves)}


def test_a_failing_episode_ends_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "simulation.json"
    with patch("tests.simulation.__main__.run_episode", side_effect=Fault("lost")):
        assert main(["--seconds", "0", "--processes", "2", "--figures", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    faults = [f"FAULT Fault: lost; --seed {seed}" for seed in (1, 2)]
    assert lines[:4] == [*faults, *faults], "at once, and at the end"
    (entry,) = json.loads(file.read_text()).values()
    assert entry["counts"] == {"episodes": 2, "faults": 2}


def test_a_process_that_is_killed_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with patch("tests.simulation.__main__.run_episode", lambda _: os.kill(os.getpid(), signal.SIGKILL)):
        assert main(["--seconds", "0", "--processes", "2", "--figures", str(tmp_path / "simulation.json")]) == 1
    assert "FAULT a process was killed; the next run begins with --seed 1" in capsys.readouterr().out
