"""The one policy of retries: pauses, limits, what counts as progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.errors import ConfigError, ConnectError, IncompleteReadError
from headgate.retrying import Failures, RetryPolicy

LOST = ConnectError("nobody answers")


class Clock:
    """Time that passes only in pauses, which are noted."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def policy(self, first_seconds: float = 0.1, **more: Any) -> RetryPolicy:
        return RetryPolicy(first_seconds, sleep=self.sleep, clock=lambda: self.now, **more)


class Work:
    """Fails with these errors, one after another, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_pauses_grow_up_to_a_limit_and_begin_again_with_progress() -> None:
    clock = Clock()
    failures = Failures(clock.policy(1, longest_seconds=8))
    for _ in range(6):
        failures.add(LOST)
        failures.wait()
    failures.clear()
    failures.add(LOST)
    failures.wait()
    for pause, longest in zip(clock.pauses, [1, 2, 4, 8, 8, 8, 1], strict=True):
        assert longest / 2 <= pause <= longest


def test_pauses_grow_for_ever_without_an_overflow() -> None:
    failures = Failures(RetryPolicy(1, jitter=0))
    assert [failures.pause() for _ in range(3000)][-1] == 10


def test_equal_pauses() -> None:
    failures = Failures(RetryPolicy.every(3))
    assert [failures.pause() for _ in range(4)] == [3] * 4


def test_which_errors_are_retried() -> None:
    assert Failures(RetryPolicy()).note(LOST)
    assert not Failures(RetryPolicy()).note(ConfigError("no"))
    assert not Failures(RetryPolicy()).note(OSError())
    assert not Failures(RetryPolicy(errors=IncompleteReadError)).note(LOST)
    with pytest.raises(ConfigError):
        RetryPolicy().call(Work(ConfigError("no")))


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_a_number_of_tries(tries: int) -> None:
    clock, errors = Clock(), list[Exception]()
    policy = clock.policy(tries=tries)
    assert policy.call(Work(*[LOST] * tries), errors.append) == "done"
    assert len(clock.pauses) == len(errors) == tries
    with pytest.raises(ConnectError) as raised:
        policy.call(Work(*[LOST] * tries, last := ConnectError("the last one")))
    assert raised.value is last


def test_a_deadline_limits_the_last_pause() -> None:
    """It counts from the first failure, or from the beginning of a call."""
    clock = Clock()
    policy = clock.policy(1, jitter=0, deadline_seconds=12)
    with pytest.raises(ConnectError):
        policy.call(Work(*[LOST] * 99))
    assert clock.pauses == [1, 2, 4, 5]
    failures = Failures(policy)
    clock.now += 1000
    assert failures.note(LOST)
    clock.now += 12
    assert not failures.note(LOST)
    failures.clear()
    assert failures.note(LOST), "progress"
    failures = Failures(policy)
    failures.begin()
    clock.now += 12
    assert not failures.note(LOST)


def test_a_clock_that_stands_still_does_not_retry_for_ever() -> None:
    pauses = list[float]()
    policy = RetryPolicy(1, jitter=0, deadline_seconds=12, sleep=pauses.append, clock=lambda: 0.0)
    with pytest.raises(ConnectError):
        policy.call(Work(*[LOST] * 99))
    assert pauses == [1, 2, 4, 5]


def test_a_server_that_requests_a_pause() -> None:
    failures = Failures(RetryPolicy(1, jitter=0, deadline_seconds=60))
    assert 7 <= failures.pause(7) <= 7.7
    assert failures.pause(1) == 2, "its request was shorter"
    assert failures.pause(600) <= 53, "up to the deadline"


def test_an_error_of_the_wait_ends_the_retries() -> None:
    def stop(_: float) -> None:
        raise IncompleteReadError("stopping")

    with pytest.raises(IncompleteReadError):
        replace(Clock().policy(), sleep=stop).call(Work(LOST))
