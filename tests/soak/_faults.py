"""The faults, each with its kind. A fault acts on a running world, and leaves it so that it can go on.

It returns how often it met a pipeline that runs or starts: a cut without a connection is none, nor is a file that was
not there. Kills are counted by :class:`Pipeline`, wrong answers by the process that gets them.

Kinds: *kill* (processes are killed, ended or frozen), *network*, *server* (restarts of the source), *failover*,
*answer* (wrong answers of the file system), *file* (files of caches, of the control folder, of the tables' logs, of
running batches and of the checkpoint that are damaged or removed).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

from headgate_testing import pass_time
from tests.soak._pipeline import Pipeline
from tests.soak._world import World

__all__ = ["AT_REST", "AT_START", "ENDS", "FAULTS", "MEETINGS", "Fault", "kill_during_start"]

Fault = Callable[[World, random.Random], int]

_CONNECTION_SECONDS: Final = 3.0
_IMAGE_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 8.0
_END_SECONDS: Final = 60.0


# --- kills: they end the process ------------------------------------------------------------------------------------


def kill_driver(world: World, choice: random.Random) -> int:
    pass_time(choice.uniform(0, 1))
    return world.pipeline.kill()


def kill_during_start(world: World, choice: random.Random) -> int:
    del choice
    return world.pipeline.kill("during start")


def kill_java(world: World, choice: random.Random) -> int:
    del choice
    return _signal(world.pipeline, "java", world.pipeline.java(), signal.SIGKILL)


def terminate(world: World, choice: random.Random) -> int:
    """SIGTERM, while other faults go on: the process may end by itself, or is killed while it tries to."""
    pipeline, pid = world.pipeline, world.pipeline.pid
    if pid is None:
        return 0
    os.kill(pid, signal.SIGTERM)
    pipeline.kills["terminated"] += 1
    end = time.monotonic() + choice.choice((1.0, 5.0, _END_SECONDS))
    while pipeline.pid == pid and time.monotonic() < end:
        pass_time(0.1)
    return 1


# --- kills: the process goes on, or ends by itself ------------------------------------------------------------------


def kill_worker(world: World, choice: random.Random) -> int:
    workers = world.pipeline.workers()
    return _signal(world.pipeline, "worker", choice.sample(workers, min(1, len(workers))), signal.SIGKILL)


def kill_fork_server(world: World, choice: random.Random) -> int:
    del choice
    return _signal(world.pipeline, "fork server", world.pipeline.fork_servers(), signal.SIGKILL)


def freeze(world: World, choice: random.Random) -> int:
    with _frozen(world) as met:
        pass_time(choice.uniform(0.1, 2))
    return met


def freeze_one(world: World, choice: random.Random) -> int:
    """One process of several stops: Java, or a Python worker."""
    processes = [*world.pipeline.java(), *world.pipeline.workers()]
    chosen = choice.sample(processes, min(1, len(processes)))
    met = _signal(world.pipeline, "frozen", chosen, signal.SIGSTOP)
    pass_time(choice.uniform(0.1, 2))
    for process in chosen:
        with contextlib.suppress(psutil.Error):
            process.resume()
    return met


def _signal(pipeline: Pipeline, site: str, processes: list[psutil.Process], number: signal.Signals) -> int:
    """Send a signal to processes, and count those that got it."""
    met = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            met += 1
    pipeline.kills[site] += met
    return met


@contextlib.contextmanager
def _frozen(world: World) -> Iterator[int]:
    """Stop the whole process group for the block."""
    pid = world.pipeline.pid
    if pid is None:
        yield 0
        return
    os.killpg(pid, signal.SIGSTOP)
    try:
        yield 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
    world.pipeline.kills["frozen"] += 1


# --- network --------------------------------------------------------------------------------------------------------


def drop(world: World, choice: random.Random) -> int:
    return _broken(world, lambda: world.source.proxy.drop(reset=choice.random() < 0.5))


def cut(world: World, choice: random.Random) -> int:
    def cut() -> None:
        world.source.proxy.cut(reset=choice.random() < 0.5)
        pass_time(choice.uniform(0.2, 2))
        world.source.proxy.restore()

    return _broken(world, cut)


def cut_in_packets(world: World, choice: random.Random) -> int:
    proxy, met = world.source.proxy, 0
    for _ in range(choice.randrange(1, 4)):
        before = proxy.broken
        proxy.cut_after(choice.randrange(1, 20_000))
        end = time.monotonic() + choice.uniform(0.5, 2)
        while proxy.broken == before and time.monotonic() < end:
            pass_time(0.05)
        met += proxy.broken > before
    proxy.restore()
    return met


def slow(world: World, choice: random.Random) -> int:
    return _hindered(world, choice, lambda: world.source.proxy.limit(choice.choice((500, 5_000, 50_000))))


def delay(world: World, choice: random.Random) -> int:
    return _hindered(world, choice, lambda: world.source.proxy.delay(choice.uniform(0.01, 0.2)))


def _broken(world: World, act: Callable[[], None]) -> int:
    """Act once a connection is open. Return whether one was broken."""
    _wait_for_connection(world)
    before = world.source.proxy.broken
    act()
    return int(world.source.proxy.broken > before)


def _hindered(world: World, choice: random.Random, act: Callable[[], None]) -> int:
    """Act, and undo it some time later. Return whether bytes passed meanwhile."""
    proxy = world.source.proxy
    _wait_for_connection(world)
    act()
    before = proxy.forwarded
    pass_time(choice.uniform(0.5, 2))
    met = proxy.forwarded != before
    proxy.restore()
    return int(met)


def _wait_for_connection(world: World) -> None:
    end = time.monotonic() + _CONNECTION_SECONDS
    while not world.source.proxy.open_connections and world.pipeline.pid is not None and time.monotonic() < end:
        pass_time(0.02)


# --- the source -----------------------------------------------------------------------------------------------------


def restart(world: World, choice: random.Random) -> int:
    running = world.pipeline.pid is not None
    world.source.restart(kill=choice.random() < 0.7)
    return int(running)


def new_log_file(world: World, choice: random.Random) -> int:
    del choice
    world.source.server.new_log_file()
    return int(world.pipeline.pid is not None)


def fail_over(world: World, choice: random.Random) -> int:
    del choice
    running = world.pipeline.pid is not None
    world.source.fail_over()
    return int(running)


# --- answers --------------------------------------------------------------------------------------------------------


def wrong_answers(world: World, choice: random.Random) -> int:
    pipeline = world.pipeline
    before, wanted = pipeline.wrong_answers, choice.randrange(3, 16)
    end = time.monotonic() + _ANSWER_SECONDS
    call = choice.choice(("link", "link", "fsync", "unlink", "replace", "", ""))  # a commit is one link
    pipeline.set_share_of_wrong_answers(choice.choice((0.1, 0.3, 0.5)) * (1.5 if call else 1), call)
    while time.monotonic() < end and pipeline.wrong_answers < before + wanted:
        pipeline.supervise()
        pass_time(0.1)
    pipeline.set_share_of_wrong_answers(0)
    return pipeline.wrong_answers - before


# --- files ----------------------------------------------------------------------------------------------------------


def remove_control_files(world: World, choice: random.Random) -> int:
    """Files that tell one part what another has done: each is a hint, or is written again.

    The position is in the checkpoint and in ``hint.json``. A run that finds neither starts over, so only one is lost.
    """
    folder = world.pipeline.lake / "_headgate" / "inbox"
    spared = () if world.pipeline.works() else ("hint.json",)
    files = [path for path in _files(folder) if path.suffix == ".json" and path.parent == folder]
    return _remove([path for path in files if path.name not in spared], choice)


def remove_indexes(world: World, choice: random.Random) -> int:
    return _remove(_files(world.pipeline.cache / "headgate" / "keys"), choice)


def remove_checkpoint_notes(world: World, choice: random.Random) -> int:
    """``_last_checkpoint`` of tables: it is where a reader begins, and may be missing."""
    return _remove([path for path in _files(world.pipeline.lake) if path.name == "_last_checkpoint"], choice)


def remove_images(world: World, choice: random.Random) -> int:
    """Rows of the batch that is being applied: the first files that come, if any come soon."""
    end = time.monotonic() + _IMAGE_SECONDS
    while time.monotonic() < end and world.pipeline.pid is not None:
        if met := _remove([path for path in _files(world.pipeline.spark) if "headgate-images-" in str(path)], choice):
            return met
        pass_time(0.01)
    return 0


def remove_checkpoint(world: World, choice: random.Random) -> int:
    """The checkpoint is lost. The next run resumes where the tables are."""
    del choice
    checkpoint = world.pipeline.lake / "_headgate" / "checkpoint"
    if not checkpoint.exists() or not _has_hint(world):
        return 0
    shutil.rmtree(checkpoint, ignore_errors=True)
    return 1


def tear_checkpoint(world: World, choice: random.Random) -> int:
    """The newest files of the checkpoint are torn, as a loss of power leaves them. The end of a batch that the ledger
    has is synced before, so only that of a later one may be torn.
    """
    checkpoint, met = world.pipeline.lake / "_headgate" / "checkpoint", 0
    if not _has_hint(world):
        return 0
    for name in choice.choice((("offsets",), ("commits",), ("offsets", "commits"))):
        files = sorted(
            (path for path in checkpoint.glob(f"{name}/*") if path.name.isdigit()), key=lambda f: int(f.name)
        )
        if files and (name == "commits" or str(world.oracle.newest_epoch()) not in files[-1].read_text()):
            os.truncate(files[-1], choice.randrange(files[-1].stat().st_size))
            met = 1
    return met


def _has_hint(world: World) -> bool:
    return (world.pipeline.lake / "_headgate" / "inbox" / "hint.json").exists()


def tear_indexes(world: World, choice: random.Random) -> int:
    files = [path for path in _files(world.pipeline.cache / "headgate" / "keys") if path.stat().st_size > 1]
    for path in choice.sample(files, min(len(files), 3)):
        os.truncate(path, choice.randrange(path.stat().st_size))
    return int(bool(files))


def _files(folder: Path) -> list[Path]:
    return [Path(above, name) for above, _, names in os.walk(folder) for name in names]


def _remove(files: list[Path], choice: random.Random) -> int:
    """Remove one of these files. Return whether it was there."""
    for path in choice.sample(sorted(files), min(len(files), 1)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            return 1
    return 0


# --- faults that meet each other ------------------------------------------------------------------------------------


def file_while_frozen(world: World, choice: random.Random) -> int:
    with _frozen(world) as met:
        _count(world, "file", choice)
        pass_time(choice.uniform(0.2, 1))
    return met


def network_while_frozen(world: World, choice: random.Random) -> int:
    with _frozen(world) as met:
        world.faults["network"] += _broken(world, world.source.proxy.drop)
        pass_time(choice.uniform(0.2, 1))
    return met


def fail_over_while_frozen(world: World, choice: random.Random) -> int:
    del choice
    with _frozen(world) as met:
        world.faults["failover"] += met
        world.source.fail_over()
    return met


def kill_during_failover(world: World, choice: random.Random) -> int:
    world.faults["failover"] += world.pipeline.pid is not None
    met = 0

    def kill() -> None:
        nonlocal met
        pass_time(choice.uniform(0, 2))
        met = choice.choice((kill_driver, kill_worker, kill_worker))(world, choice)

    world.source.fail_over(kill)
    return met


def network_among_wrong_answers(world: World, choice: random.Random) -> int:
    world.pipeline.set_share_of_wrong_answers(choice.choice((0.02, 0.1)))
    met = _count(world, "network", choice)
    world.pipeline.set_share_of_wrong_answers(0)
    return met


def kill_worker_on_a_slow_network(world: World, choice: random.Random) -> int:
    world.source.proxy.limit(5_000)
    pass_time(choice.uniform(0.2, 1))
    met = kill_worker(world, choice)
    world.faults["network"] += world.source.proxy.open_connections > 0
    world.source.proxy.restore()
    return met


def _count(world: World, kind: str, choice: random.Random) -> int:
    """Inject a fault of a kind, and count it."""
    met = choice.choice(FAULTS[kind])(world, choice)
    world.faults[kind] += met if kind != "kill" else 0
    return met


FAULTS: Final[dict[str, list[Fault]]] = {
    "kill": [kill_worker, freeze, freeze_one],
    "network": [drop, cut, cut_in_packets, slow, delay],
    "server": [restart, new_log_file],
    "failover": [fail_over],
    "answer": [wrong_answers],
    "file": [remove_control_files, remove_control_files, remove_indexes, remove_checkpoint_notes, remove_images],
}  # fmt: skip
"""Kind → faults of a process that goes on."""
ENDS: Final[list[Fault]] = [kill_driver, kill_java, kill_fork_server, terminate]
"""Kills that end the process."""
AT_START: Final[dict[str, list[Fault]]] = {
    "kill": [freeze, freeze, freeze_one, freeze_one, kill_worker],
    "network": [slow, delay, delay, drop],
    "file": [remove_control_files, remove_indexes],
}
"""Kind → faults of a process that has had no batch yet."""
AT_REST: Final[list[Fault]] = [remove_checkpoint, tear_checkpoint, tear_checkpoint, tear_indexes, remove_control_files]
"""Faults of files between two processes. The next one finds them."""
MEETINGS: Final[list[Fault]] = [
    file_while_frozen, network_while_frozen, fail_over_while_frozen, kill_during_failover, network_among_wrong_answers,
    kill_worker_on_a_slow_network,
]  # fmt: skip
"""Faults that meet each other. They count what they are made of."""
