"""Episodes: a world, a pipeline in it, and steps whose seeds are all that an episode consists of.

Each step has a seed of its own, from which come what it is and what happens at its boundaries. So a step that is left
out changes nothing of how the others choose, and a failing episode shrinks by leaving out steps (:func:`shrink`).
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final
from unittest.mock import patch

from headgate.carrier import ControlFolder, signal_path
from headgate.control import sending_us
from headgate.errors import (
    BinlogPurgedError,
    CommitConflictError,
    CommitUnknownError,
    ConfigError,
    Definite,
    HeadgateError,
    HistoryRewrittenError,
    TargetError,
)
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.offsets import SourceOffset
from headgate.policies import Window
from headgate.retrying import RetryPolicy
from headgate.stores import folder_of
from tests.simulation.broker import Broker, Producer, Serial, Topics, newest_sent
from tests.simulation.choices import Chooser
from tests.simulation.contents import arrow_schema
from tests.simulation.driver import Driver, Fault, Pipeline
from tests.simulation.images import open_images
from tests.simulation.oracle import Oracle
from tests.simulation.relay import RelayEpisode
from tests.simulation.rooms import parse_action
from tests.simulation.sinks import append_ledger_row, keep_until
from tests.simulation.store import MemoryFolder
from tests.simulation.tables import SHAPES
from tests.simulation.world import Killed, World

__all__ = ["STEPS", "Episode", "Fault", "run_episode", "seeds_of", "shrink", "simulated"]

STEPS: Final = 60
"""Steps of an episode."""
_RELAYS: Final = 8
_HEATS: Final = (0, 1, 1, 2, 4)
_MODES: Final = (("current", "changelog"), ("current",), ("current", "kafka"))
_HISTORIES: Final = (("history",), ("history", "changelog"))
"""A history needs whole rows with keys."""
_WINDOWS: Final[tuple[Window, ...]] = ("rewind", "rewind", "keep", "drop")
_SIGNALS: Final = ("execute-snapshot", "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot")
_BEHIND_US: Final = 600_000_000
_KEPT: Final = 8192
"""So many parsed texts are kept, of which an episode parses the same ones again and again."""
_PATIENCE: Final = 60
"""So many batches in a row may fail at rest."""


def _kill(_: object) -> None:
    raise Killed


def _sleep(seconds: float) -> None:
    MemoryFolder.store.world.sleep(seconds)


@contextmanager
def simulated() -> Iterator[None]:
    """Put the simulation in place of stores, threads and data files, as long as the block runs."""
    level = logging.getLogger("headgate").level
    with ExitStack() as stack:
        for name, value in {
            "headgate.stores._folder._StoreFolder": MemoryFolder,
            "headgate.lake._delta.share_access": lambda spark, path: None,
            "headgate.lake._ledger.append_rows": append_ledger_row,
            "headgate.lake._unentered.keep_until": keep_until,
            "headgate.sinks._writer.ThreadPoolExecutor": Serial,
            "headgate.carrier._batch.open_images": open_images,
            "headgate.apply._expand._arrow_schema": arrow_schema,
            "headgate.apply._expand._are_few": lambda spark, parts: True,
            "headgate.apply._expand._local_folder": lambda: None,
            "headgate.kafka._log_order.open_images": open_images,
            "headgate.kafka._target.ThreadPoolExecutor": Serial,
            "headgate.kafka._target.Producer": Producer,
            "headgate.kafka._target.Topics": Topics,
            "headgate.kafka._target.KafkaTarget._newest_sent": newest_sent,
            "headgate.delta._log.parse_action": lru_cache(maxsize=_KEPT)(parse_action),
            "headgate.gtid.GtidSet.parse": lru_cache(maxsize=_KEPT)(GtidSet.parse),
            "headgate.delta._commit._RETRY": RetryPolicy(tries=5, errors=CommitUnknownError, sleep=_sleep),
        }.items():
            stack.enter_context(patch(name, value))
        folder_of.cache_clear()
        logging.getLogger("headgate").setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logging.getLogger("headgate").setLevel(level)
            folder_of.cache_clear()


def seeds_of(seed: int, count: int = STEPS) -> list[int]:
    """Return the seeds of an episode's steps."""
    choose = Chooser(seed)
    return [choose.below(1 << 31) for _ in range(count)]


class Episode:
    """One episode.

    :param seed: of the world and the pipeline's configuration.
    """

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        random.seed(seed)
        MemoryFolder.store = self.world.store
        self._lakes = 0
        self._signals = 0
        self._driver: Driver | None = None
        self._failures = 0
        self._new_pipeline()
        self._stopped = self._had_second = False

    def _new_pipeline(self) -> None:
        """Begin with another checkpoint and another lake."""
        world, choose = self.world, self.world.choose
        self._lakes += 1
        broker = Broker.current = Broker(world)
        is_plain = all(SHAPES[table].has_key and not SHAPES[table].logs_parts for table in world.tables)
        self.pipeline = Pipeline(
            Lake(f"s3://sim/{self._lakes}"),
            choose.pick((*_MODES, *_HISTORIES) if is_plain else _MODES),
            broker,
            choose.pick(("at-least-once", "exactly-once")),
            choose.pick(_WINDOWS),
            choose.pick(("batch", "batch", "start")),
            choose.pick(("1", "1", "0.3")),
            choose.pick((None, None, 80)),
            judged=world.rewritten,
            has_parts=any(SHAPES[table].logs_parts for table in world.tables),
        )
        world.known_rewrites = world.rewritten
        self.oracle, self._driver = Oracle(world, self.pipeline), None
        world.count("pipeline begun")

    @property
    def figures(self) -> Counter[str]:
        """What was done, by kind."""
        return self.world.figures

    # --- steps

    def run(self, seeds: Sequence[int]) -> None:
        """Run the steps, then come to rest, and judge.

        :raises Fault: headgate is at fault.
        """
        for seed in seeds:
            try:
                self._step(Chooser(seed))
            except Killed:
                self._driver = None
        self._rest()

    def _step(self, choose: Chooser) -> None:
        world = self.world
        world.choose, world.heat = choose, choose.pick(_HEATS)
        what = choose.below(100)
        if what < 36:
            world.traffic(5 + choose.below(60))
        elif what < 80 and (self.pipeline.done or choose.below(6)):
            self.batch()
        elif what < 82:
            self._lose_batch()
        elif what < 84:
            self._signal()
        elif what < 88:
            world.statement()
        elif what < 90:
            world.fail_over(lossy=choose.one_in(2))
        elif what < 92:
            self._driver = None
            world.count("kill")
        elif what < 95:
            self._lose_checkpoint()
        elif what < 96:
            world.purge()
        elif what < 98:
            world.reset(stays_empty=choose.one_in(4))
        else:
            world.rotate()
            world.sleep(1.0)

    def batch(self, *, dies: bool = False) -> bool | None:
        """Let the pipeline run a batch; return False if it has nothing to do, None if it failed.

        :param dies: between the tables and the ledger row.
        """
        world = self.world
        world.freeze = self._freeze
        try:
            if self._driver is None:
                self._driver = Driver(world, self.pipeline)
                world.count("start")
            self._driver.writer.after_tables = _kill if dies else None
            done = self._driver.batch()
        except Killed:
            self._driver = done = None
            if world.choose.one_in(8):
                self._lose_checkpoint()
        except HeadgateError as error:
            began_before = self._driver is not None and self._driver.began_before
            self._driver = done = None
            self._meet(error, began_before)
        finally:
            world.freeze = None
        self.oracle.observe()
        return done

    def _meet(self, error: HeadgateError, began_before: bool) -> None:
        """Judge an error that ended the pipeline's process; begin again if it names a good reason.

        :param began_before: whether the process began the stream in a history that was rewritten since.
        """
        world, pipeline = self.world, self.pipeline
        world.count("process ended by an error")
        match error:
            case HistoryRewrittenError():
                is_of_one = all(era == world.rewritten for era in pipeline.eras[pipeline.done :])
                if is_of_one and not began_before and pipeline.is_intact(world):
                    raise Fault(f"false alarm: {error}") from error
                self._new_pipeline()
            case BinlogPurgedError():
                # What an overtaken driver still reads may be purged once the other one has read it.
                if self._lost_log():
                    self._new_pipeline()
                elif not self._had_second:
                    raise Fault(f"false alarm: {error}") from error
                self._had_second = False
            case TargetError() | CommitConflictError():
                if "than the tables" in str(error) and not self._had_second:
                    raise Fault(str(error)) from error
                self._had_second = False
            case ConfigError() if not world.main.states[-1]:
                pass  # no table matches
            case Definite():
                raise Fault(f"{type(error).__name__}: {error}") from error
            case _:
                pass

    def _lost_log(self) -> bool:
        """Return whether the source has purged what the pipeline has yet to read."""
        done, offsets = self.pipeline.done, self.pipeline.offsets
        if not done:
            return True
        had = SourceOffset.from_json(offsets[done - 1]).position
        return not all(server.purged_set() <= had for server in self.world.servers)

    def _freeze(self) -> None:
        """Let another process of the same pipeline work while this one stands still."""
        world = self.world
        heat, world.heat, world.freeze = world.heat, 0, None
        world.count("second driver")
        self._had_second = self.pipeline.has_second = True
        try:
            other = Driver(world, self.pipeline)
            for _ in range(1 + world.choose.below(3)):
                other.batch()
        except HeadgateError:
            pass
        world.heat = heat

    def _signal(self) -> None:
        """Send a signal by a file."""
        choose, world = self.world.choose, self.world
        kind = choose.pick(_SIGNALS)
        self._send(kind, choose.pick((*world.tables, "d.*")), choose.pick(("INCREMENTAL", "BLOCKING")))
        self._stopped |= kind == "stop-snapshot"
        world.count("signal")

    def _send(self, kind: str, table: str, mode: str = "INCREMENTAL") -> None:
        self._signals += 1
        sent_us = sending_us(ControlFolder(self.pipeline.lake.inbox), self.world.wall_us())
        signal: dict[str, Any] = {"type": kind, "submitted_us": sent_us}
        if kind.endswith(("execute-snapshot", "stop-snapshot")):
            signal["data"] = {"data-collections": [table.replace("*", ".*")], "type": mode}
        name = signal_path(f"user-{self._signals}")
        self.world.store.write(self.pipeline.lake.inbox, name, json.dumps(signal).encode())

    def _lose_batch(self) -> None:
        """Run a batch that gets into the tables, and to the brokers, and not into the ledger. Then remove Spark's
        checkpoint; or let the batch be repeated, on the same server or on another one.
        """
        self.batch(dies=True)
        what = self.world.choose.below(4)
        if what < 2:
            self._lose_checkpoint()
        elif what == 2:
            self.world.fail_over(lossy=False)

    def _lose_checkpoint(self) -> None:
        """Remove Spark's checkpoint; the next process may be on a machine whose clock is behind."""
        world = self.world
        world.behind_us = world.choose.pick((0, 0, _BEHIND_US))
        self.oracle.observe()  # a kill behind the ledger's row
        if not self.oracle.has_rows and not world.store.late:
            self.pipeline.begins = []  # nothing of what the lost batches wrote may be left
        self._driver = None
        self.pipeline.lose_checkpoint(was_entered=self.oracle.has_rows)
        world.count("checkpoint lost")

    # --- the end

    def _rest(self) -> None:
        world = self.world
        world.choose = Chooser(1)
        world.heal()
        if not world.main.states[-1]:
            world.statement()  # it creates a table: a pipeline without one does not begin
        self._send("resume-snapshot", "d.*")
        waiting: list[str] = []
        for _ in range(3):
            self._drain()
            waiting = self.oracle.judge_end()
            if not waiting:
                return
            if self._stopped or any(" is settling" in one for one in waiting):
                self._send("execute-snapshot", "d.*")  # a failover may have lost what a row waits for
            self._driver = None
        raise Fault(f"at rest {'; '.join(waiting)}")

    def _drain(self) -> None:
        """Run batches until there is nothing to do."""
        failures = 0
        for _ in range(1000):
            done = self.batch()
            failures = failures + 1 if done is None else 0
            if done is False:
                return
            if failures > _PATIENCE:
                if self.pipeline.is_intact(self.world) and not self._lost_log():
                    raise Fault("the pipeline fails for no reason")
                self._new_pipeline()
                failures = 0
        raise Fault("the pipeline does not come to rest")


def run_episode(seed: int, steps: Sequence[int] | None = None) -> Counter[str]:
    """Run an episode; return what was done, by kind. One in eight is a relay's (``relay``).

    :param steps: seeds of its steps; by default those of ``seed``.
    :raises Fault: headgate is at fault. Its notes have the seed.
    """
    try:
        episode = RelayEpisode(seed) if seed % _RELAYS == 0 else Episode(seed)
        episode.run(seeds_of(seed) if steps is None else steps)
    except Exception as error:
        error.add_note(f"scripts/simulate --seed {seed}")
        raise
    return episode.figures


def shrink(seed: int, steps: Sequence[int], fails: type[BaseException] = Exception) -> list[int]:
    """Return fewer steps with which the episode still fails: parts are left out, smaller and smaller ones."""
    left, size = list(steps), max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            try:
                run_episode(seed, fewer)
                at += size
            except fails:
                left = fewer
        size //= 2
    return left
