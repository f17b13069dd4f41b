"""A few threads for compiled work: what becomes of tasks around their end."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from headgate.lake import StoppedError, Workers


def test_each_item_is_worked_on_once() -> None:
    done: list[int] = []
    with Workers(3) as workers:
        workers.each(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_the_first_error_is_raised_and_nothing_is_begun_after_it() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise ValueError(item)

    with Workers(1) as workers, pytest.raises(ValueError, match="2"):
        workers.each(work, range(9))
    assert begun == [0, 1, 2]


def test_a_task_after_the_end_is_stopped() -> None:
    """If it waited in the queue instead, nobody would take it, and its result would never come."""
    with Workers(1) as workers:
        pass
    with pytest.raises(StoppedError):
        workers.submit(int).result(0)


@pytest.mark.parametrize("_round", range(50))
def test_every_task_has_a_result_if_tasks_come_while_the_block_ends(_round: int) -> None:
    """Another thread submits meanwhile: each task is done, or is stopped."""
    begun, ended = threading.Event(), threading.Event()
    futures: list[Future[None]] = []

    def submit() -> None:
        while not ended.is_set():
            futures.append(workers.submit(begun.set))
            if len(futures) % 100 == 0:
                begun.wait(10)
        futures.append(workers.submit(begun.set))

    with Workers(2) as workers:
        thread = threading.Thread(target=submit)
        thread.start()
        assert begun.wait(60)
    ended.set()
    thread.join()
    for future in futures:
        assert isinstance(future.exception(10), StoppedError | None)
