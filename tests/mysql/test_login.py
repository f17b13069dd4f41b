"""Logins while a password is rotated: the server knows the new one first, the file some seconds later."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import AccessError, ConnectError
from headgate.mysql import ConnectionSettings, Secret, _login, expect_login
from headgate.mysql._login import log_in


class Server:
    """Accepts one password, and counts refusals."""

    def __init__(self, password: str) -> None:
        self.password, self.refused = password, 0

    def connect(self, password: str) -> str:
        if password != self.password:
            self.refused += 1
            raise AccessError("Access denied", code=1045)
        return password


class Clock:
    """A clock that only pauses advance. ``late`` maps the number of a pause to what happens in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.pauses = 100.0, 0
        self.writes: dict[int, str] = {}
        self.file: Path | None = None
        monkeypatch.setattr(_login, "time", self)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses += 1
        if self.file is not None and self.pauses in self.writes:
            self.file.write_text(self.writes[self.pauses])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    clock = Clock(monkeypatch)
    clock.file = tmp_path / "secret"
    clock.file.write_text("old\n")
    monkeypatch.setattr(_login, "_accepted", set())
    return clock


def settings(clock: Clock) -> ConnectionSettings:
    return ConnectionSettings("h", secret=Secret(file=str(clock.file)))


def test_a_wrong_password_at_the_start_is_refused_at_once(clock: Clock) -> None:
    server = Server("other")
    with pytest.raises(AccessError):
        log_in(settings(clock), server.connect)
    assert (server.refused, clock.pauses) == (1, 0)


@pytest.mark.parametrize("planned", [False, True])
def test_a_password_that_arrives_late_is_waited_for(clock: Clock, planned: bool) -> None:
    server = Server("old")
    if planned:
        expect_login(settings(clock))
    else:
        assert log_in(settings(clock), server.connect) == "old"
    server.password = "new"
    clock.writes = {20: "", 21: "new\n"}  # an editor that truncates first
    assert log_in(settings(clock), server.connect) == "new"
    assert (server.refused, clock.pauses) == (2, 21)  # nothing is sent while the file is unchanged


def test_the_wait_ends(clock: Clock) -> None:
    server = Server("old")
    log_in(settings(clock), server.connect)
    server.password = "new"
    assert clock.file is not None
    clock.writes = {50: "another wrong one"}
    with pytest.raises(AccessError, match="did not change within 30 s"):
        log_in(settings(clock), server.connect)
    assert clock.seconds - 100 == pytest.approx(_login.LATE_PASSWORD_SECONDS, abs=0.5)
    assert server.refused == 2


def test_other_secrets_and_other_errors_do_not_wait(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    in_url = ConnectionSettings("h", secret=Secret(value="old"))
    server = Server("old")
    log_in(in_url, server.connect)
    server.password = "new"
    with pytest.raises(AccessError):
        log_in(in_url, server.connect)

    def unreachable(_: str) -> None:
        raise ConnectError("no server")

    with pytest.raises(ConnectError):
        log_in(settings(clock), unreachable)
    assert clock.pauses == 0
