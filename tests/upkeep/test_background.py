"""The thread beside the batches: a share of the time, tasks and rounds in turns, an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headgate.lake import StoppedError
from headgate.upkeep._background import Background
from headgate_testing import pass_time, wait_until


def test_tasks_come_between_the_pieces_of_a_round() -> None:
    background, done = Background(share=1.0), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def rounds() -> Iterator[None]:
        done.append("first piece")
        begun.set()
        go_on.wait()
        for number in range(2, 5):
            yield
            done.append(f"piece {number}")

    background.repeat(rounds, 3600.0)
    begun.wait()
    tasks = [background.submit(lambda: done.append("task")) for _ in range(2)]
    go_on.set()
    for task in tasks:
        task.result(60)
    last = background.submit(lambda: None)
    last.result(60)
    background.close()
    assert done[:4] == ["first piece", "task", "piece 2", "task"]


def test_what_a_round_waits_for_is_not_work() -> None:
    """It would rest for 200 s after a tenth of a second."""
    background, pieces = Background(share=0.0005), list[int]()

    def rounds() -> Iterator[None]:
        for number in range(4):
            pass_time(0.03)  # a slow disk
            pieces.append(number)
            yield

    background.repeat(rounds, 3600.0)
    wait_until(lambda: len(pieces) == 4)
    background.close()


def test_where_other_threads_work_for_a_round_it_rests_for_what_it_waits() -> None:
    background, pieces = Background(share=0.0005, counts_waiting=True), list[int]()

    def rounds() -> Iterator[None]:
        for number in range(4):
            pass_time(0.03)
            pieces.append(number)
            yield

    background.repeat(rounds, 3600.0)
    wait_until(lambda: background.rounds_pace.free_at > 0)
    background.submit(lambda: None).result(60)
    assert pieces == [0], "it rests for a minute"
    background.close()


def test_a_round_waits_for_one_task_and_for_no_rest_after_it() -> None:
    """However long tasks take, and however many there are: what rounds remove must keep pace with the batches."""
    background, pieces = Background(share=0.0005), list[int]()
    tasks = [background.submit(lambda: pass_time(0.05)) for _ in range(3)]
    tasks[0].result(60)
    wait_until(lambda: background.tasks_pace.free_at > 0)

    def rounds() -> Iterator[None]:
        for number in range(20):
            pieces.append(number)
            yield

    background.repeat(rounds, 3600.0)
    wait_until(lambda: len(pieces) == 20)
    assert not tasks[1].done(), "tasks rest for 100 s"
    background.close()


def test_it_rests_in_proportion_to_its_work() -> None:
    background = Background(share=0.0005)
    background.submit(lambda: pass_time(0.05)).result(60)
    wait_until(lambda: background.tasks_pace.free_at > 0)
    assert not background.is_free, "it rests for 100 s"
    second = background.submit(lambda: None)
    assert not second.done()
    background.close()


def test_a_round_that_fails_is_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    background, rounds, again = Background(share=1.0), list[int](), threading.Event()

    def fail() -> Iterator[None]:
        rounds.append(1)
        if len(rounds) > 1:
            again.set()
        yield
        raise OSError("disk")

    background.repeat(fail, 0.0)
    assert again.wait(60)
    background.close()
    assert "upkeep of the tables failed, will retry: disk" in caplog.text


def test_the_end() -> None:
    begun, go_on = threading.Event(), threading.Event()
    background = Background()

    def work() -> int:
        begun.set()
        go_on.wait()
        return 1

    first, second = background.submit(work), background.submit(work)
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    background.close()
    assert first.result(0) == 1
    with pytest.raises(StoppedError):
        second.result(0)
    with pytest.raises(StoppedError):
        background.submit(work).result(0)
    assert not any(thread.name == "headgate-upkeep" for thread in threading.enumerate())
