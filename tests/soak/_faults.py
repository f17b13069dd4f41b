"""The faults, each with its kind. A fault acts on a running world, and leaves it so that it can go on.

Kinds: *kill* (processes are killed, ended or frozen; also where files are damaged), *network*, *server* (restarts of
the source), *failover*, *answer* (wrong answers of the file system), *file* (files of caches, of the control folder and
of the checkpoint that are damaged or removed).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from typing import Final

import psutil

from headgate_testing import pass_time
from tests.soak._world import World

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[World, random.Random], None]


def _kill_driver(world: World, choice: random.Random) -> None:
    pass_time(choice.uniform(0, 1))
    world.pipeline.kill()


def _kill_during_start(world: World, choice: random.Random) -> None:
    world.pipeline.kill()
    world.pipeline.start()
    pass_time(choice.uniform(0.5, 8))
    world.pipeline.kill()


def _kill_child(name: str) -> Fault:
    def kill(world: World, choice: random.Random) -> None:
        children = world.pipeline.children(name)
        if children:
            child = choice.choice(children)
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                world.pipeline.kills += 1

    return kill


def _terminate(world: World, choice: random.Random) -> None:
    del choice
    if (pid := world.pipeline.pid) is not None:
        os.kill(pid, signal.SIGTERM)
        world.pipeline.kills += 1


def _freeze(world: World, choice: random.Random) -> None:
    if (pid := world.pipeline.pid) is not None:
        os.killpg(pid, signal.SIGSTOP)
        pass_time(choice.uniform(0.5, 4))
        os.killpg(pid, signal.SIGCONT)
        world.pipeline.kills += 1


def _drop(world: World, choice: random.Random) -> None:
    world.source.proxy.drop(reset=choice.random() < 0.5)


def _cut(world: World, choice: random.Random) -> None:
    world.source.proxy.cut(reset=choice.random() < 0.5)
    pass_time(choice.uniform(0.2, 4))
    world.source.proxy.restore()


def _cut_in_packets(world: World, choice: random.Random) -> None:
    for _ in range(choice.randrange(1, 4)):
        world.source.proxy.cut_after(choice.randrange(1, 20_000))
        pass_time(choice.uniform(0.2, 1))
    world.source.proxy.restore()


def _slow(world: World, choice: random.Random) -> None:
    world.source.proxy.limit(choice.choice((5_000, 50_000)))
    pass_time(choice.uniform(0.5, 4))
    world.source.proxy.restore()


def _delay(world: World, choice: random.Random) -> None:
    world.source.proxy.delay(choice.uniform(0.01, 0.2))
    pass_time(choice.uniform(0.5, 3))
    world.source.proxy.restore()


def _restart(world: World, choice: random.Random) -> None:
    world.source.restart(kill=choice.random() < 0.7)


def _new_log_file(world: World, choice: random.Random) -> None:
    del choice
    world.source.server.execute("FLUSH BINARY LOGS")


def _fail_over(world: World, choice: random.Random) -> None:
    del choice
    world.source.fail_over()


def _wrong_answers(world: World, choice: random.Random) -> None:
    pipeline, wanted = world.pipeline, world.pipeline.wrong_answers + choice.randrange(1, 12)
    end = time.monotonic() + 30
    pipeline.set_share_of_wrong_answers(choice.choice((0.02, 0.1, 0.3)))
    while time.monotonic() < end and pipeline.wrong_answers < wanted:
        pipeline.supervise()
        pass_time(0.1)
    pipeline.set_share_of_wrong_answers(0)


def _damage_control_files(world: World, choice: random.Random) -> None:
    """Files that a crash or a cleaner may take: temporary ones, images, indexes."""
    world.pipeline.kill()
    folder = world.pipeline.lake / "_headgate"
    names = [path for path in folder.rglob("*") if path.is_file() and ("images" in path.parts or ".tmp" in path.name)]
    for path in choice.sample(names, min(len(names), 3)):
        path.unlink(missing_ok=True)


def _damage_indexes(world: World, choice: random.Random) -> None:
    world.pipeline.kill()
    files = [path for path in (world.pipeline.cache / "headgate" / "keys").rglob("*") if path.is_file()]
    for path in choice.sample(files, min(len(files), 3)):
        if choice.random() < 0.5:
            path.unlink(missing_ok=True)
        elif (size := path.stat().st_size) > 1:
            os.truncate(path, choice.randrange(size))


def _remove_checkpoint(world: World, choice: random.Random) -> None:
    """The checkpoint is lost; the next run resumes where the tables are."""
    del choice
    world.pipeline.kill()
    shutil.rmtree(world.pipeline.lake / "_headgate" / "checkpoint", ignore_errors=True)


def _tear_checkpoint(world: World, choice: random.Random) -> None:
    """The newest files of the checkpoint are torn, as a loss of power leaves them."""
    world.pipeline.kill()
    checkpoint = world.pipeline.lake / "_headgate" / "checkpoint"
    for name in ("offsets", "commits"):
        files = sorted(
            (path for path in checkpoint.glob(f"{name}/*") if path.name.isdigit()), key=lambda f: int(f.name)
        )
        if files and choice.random() < 0.7:
            os.truncate(files[-1], choice.randrange(files[-1].stat().st_size + 1))


FAULTS: Final[dict[str, list[Fault]]] = {
    "kill": [
        _kill_driver, _kill_driver, _kill_during_start, _kill_child("java"), _kill_child("_fork_server"), _terminate,
        _freeze,
    ],
    "network": [_drop, _cut, _cut_in_packets, _slow, _delay],
    "server": [_restart, _new_log_file],
    "failover": [_fail_over],
    "answer": [_wrong_answers],
    "file": [_damage_control_files, _damage_indexes, _remove_checkpoint, _tear_checkpoint],
}  # fmt: skip
"""Kind → its faults."""
