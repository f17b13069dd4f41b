"""Delivery: in order, at least once, out of the stream's way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headgate.control import Notification, NotificationDispatcher
from headgate.errors import NotificationError
from headgate.retrying import RetryPolicy

QUICK = RetryPolicy(0.01, longest_seconds=60.0)


def events(epoch: int) -> tuple[Notification, ...]:
    return (Notification(f"e{epoch}", "s", "Incremental Snapshot", "STARTED", {}, epoch),)


class Store:
    """Cursors in memory."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}

    def read(self, name: str) -> dict[str, Any] | None:
        return self.files.get(name)

    def write(self, name: str, value: dict[str, Any]) -> None:
        self.files[name] = dict(value)

    @property
    def cursors(self) -> dict[str, Any]:
        return self.files["notified.json"]


class Box:
    """A channel that takes what it is sent, unless it is told not to."""

    def __init__(self, name: str = "box") -> None:
        self.name = name
        self.epochs: list[int] = []
        self.closed = False
        self.refusing = threading.Event()
        self.changed = threading.Condition()
        self.tries = 0

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        assert notifications == events(epoch)
        with self.changed:
            self.tries += 1
            self.changed.notify_all()
            if self.refusing.is_set():
                raise NotificationError("not now")
            self.epochs.append(epoch)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(until, 120)


class Ledger:
    """Epochs with notifications."""

    def __init__(self, *epochs: int) -> None:
        self.epochs, self.loads = list(epochs), 0

    def load(self, after: int, limit: int) -> Sequence[tuple[int, Sequence[Notification]]]:
        self.loads += 1
        return [(epoch, events(epoch)) for epoch in self.epochs if epoch > after][:limit]


def courier(box: Box, store: Store, ledger: Ledger, **more: Any) -> NotificationDispatcher:
    newest = max(ledger.epochs, default=0)
    return NotificationDispatcher(
        [box], store, ledger.load, newest=newest, retry=QUICK, **{"wait_seconds": 120, **more}
    )


def test_in_order_and_noted_down() -> None:
    box, store, ledger = Box(), Store(), Ledger()
    with courier(box, store, ledger) as one:
        for epoch in (3, 5, 8):
            one.add(epoch, events(epoch))
        one.add(9, ())
        one.add(8, events(8))
    assert box.epochs == [3, 5, 8]
    assert store.cursors == {"box": 8}
    assert box.closed
    assert ledger.loads == 0, "nothing was missing"


def test_a_channel_begins_with_the_batches_to_come_and_goes_on_where_it_was() -> None:
    box, store, ledger = Box(), Store(), Ledger(1, 2)
    with courier(box, store, ledger):
        pass
    assert (box.epochs, store.cursors) == ([], {"box": 2})
    ledger.epochs += [3, 4]  # committed, and the process was killed before it sent them
    with courier(box, store, ledger) as one:
        one.add(5, events(5))
    assert box.epochs == [3, 4, 5]
    store.files["notified.json"]["box"] = 4  # killed between sending and noting it down
    ledger.epochs += [5]
    with courier(box, store, ledger):
        pass
    assert box.epochs == [3, 4, 5, 5]


def test_a_cursor_of_a_ledger_that_was_replaced_holds_nothing_back() -> None:
    """The clock went back meanwhile, so the new ledger's epochs are smaller."""
    box, store, ledger = Box(), Store(), Ledger(3)
    store.files["notified.json"] = {"box": 9}
    with courier(box, store, ledger) as one:
        one.add(4, events(4))
    assert (box.epochs, store.cursors) == ([4], {"box": 4})


def test_a_channel_that_refuses_is_tried_again_and_holds_nobody_up() -> None:
    box, other, store, ledger = Box(), Box("other"), Store(), Ledger()
    trouble: list[str] = []
    box.refusing.set()
    with NotificationDispatcher(
        [box, other], store, ledger.load, newest=0, wait_seconds=120, retry=QUICK, on_trouble=trouble.append
    ) as one:
        for epoch in (1, 2):
            one.add(epoch, events(epoch))
        other.wait(lambda: other.epochs == [1, 2])
        box.wait(lambda: box.tries > 3)
        assert box.epochs == []
        box.refusing.clear()
    assert box.epochs == [1, 2]
    assert trouble == ["notifications to box are delayed: not now"]


def test_the_end_waits_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    box, store, ledger = Box(), Store(), Ledger()
    box.refusing.set()
    with courier(box, store, ledger, wait_seconds=0) as one:
        one.add(1, events(1))
        box.wait(lambda: box.tries > 0)
    assert store.cursors == {"box": 0}
    assert "kept for the next run" in caplog.text
    box.wait(lambda: box.closed)  # else a try that was begun would be no longer refused
    box.refusing.clear()
    ledger.epochs += [1]
    with courier(box, store, ledger):
        pass
    assert box.epochs == [1]


def test_what_is_too_much_for_memory_comes_out_of_the_ledger() -> None:
    box, store, ledger = Box(), Store(), Ledger()
    box.refusing.set()
    with courier(box, store, ledger, memory_batches=3) as one:
        for epoch in range(1, 21):
            ledger.epochs.append(epoch)
            one.add(epoch, events(epoch))
        box.wait(lambda: box.tries > 0)
        box.refusing.clear()
    assert box.epochs == list(range(1, 21))
    assert ledger.loads >= 6


def test_a_ledger_that_cannot_be_read_is_asked_again() -> None:
    box, store, fails = Box(), Store(), [OSError("no"), OSError("no")]
    store.write("notified.json", {"box": 0})

    def load(after: int, limit: int) -> Sequence[tuple[int, Sequence[Notification]]]:
        if fails:
            raise fails.pop()
        return Ledger(1, 2).load(after, limit)

    with NotificationDispatcher([box], store, load, newest=2, wait_seconds=120, retry=QUICK):
        pass
    assert box.epochs == [1, 2]


def test_without_channels_nothing_is_written() -> None:
    store = Store()
    with NotificationDispatcher([], store, Ledger().load, newest=0, wait_seconds=0) as one:
        one.add(1, events(1))
    assert store.files == {}


def test_what_a_failed_query_of_the_ledger_would_have_found_is_sent_before_newer_batches() -> None:
    class FailingLedger(Ledger):
        queried, failing = threading.Event(), threading.Event()

        def load(self, after: int, limit: int) -> Sequence[tuple[int, Sequence[Notification]]]:
            if self.loads == 0:
                self.loads += 1
                self.queried.set()
                assert self.failing.wait(120)
                raise OSError("the store is away")
            return super().load(after, limit)

    box, store, ledger = Box(), Store(), FailingLedger(2, 3)
    store.files["notified.json"] = {"box": 1}
    with courier(box, store, ledger) as one:
        assert ledger.queried.wait(120)
        ledger.epochs.append(4)
        one.add(4, events(4))  # a batch is committed during the query
        ledger.failing.set()
    assert box.epochs == [2, 3, 4]
    assert store.cursors == {"box": 4}
