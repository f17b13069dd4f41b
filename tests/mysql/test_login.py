"""Logins while a password is rotated: the server knows the new one first, the file or command some seconds later."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from headgate.errors import AccessError, ConfigError, ConnectError
from headgate.mysql import ConnectionSettings, Secret, _login, expect_login
from headgate.mysql._login import log_in
from headgate.mysql._printed_passwords import FRESH_SECONDS, PrintedPasswords, run_command
from headgate_testing import wait_until

WORD = "s3cr3t!"


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


# --- passwords that a command prints


def script(folder: Path, text: str) -> str:
    """A command that runs these lines of a shell."""
    file = folder / "print it"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return f"{shlex.quote(str(file))} --for 'h {WORD}'"


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("echo pw", "pw"),
        ("printf ' p w \\r\\nnote'", " p w "),
        ("printf 'pä ß'", "pä ß"),
        ("echo noise >&2; echo pw", "pw"),
        ('echo "$1 $2 $3"', f"--for h {WORD} "),
        ("echo '$HOME *'", "$HOME *"),
        ("cat; echo pw", "pw"),  # no input
    ],
)
def test_the_first_line_is_the_password(tmp_path: Path, text: str, password: str) -> None:
    assert Secret(command=script(tmp_path, text)).resolve() == password
    assert run_command("printf '%s' '$HOME;*'") == "$HOME;*", "no shell runs it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"echo {WORD}; echo {WORD} >&2; exit 3", r"print it failed with exit code 3; run it by hand"),
        (f"echo {WORD}; kill -9 $$", r"print it failed with exit code -9"),
        (f"echo; echo {WORD}", "printed no password: its first line is empty"),
        ("", "printed no password"),
        (f"printf '{WORD}\\377'", "printed no password: it is not UTF-8"),
    ],
)
def test_errors_of_a_command_show_nothing_of_it(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConnectError, match=message) as caught:
        Secret(command=script(tmp_path, text)).resolve()
    assert WORD not in f"{caught.value!r} {caught.value}"
    assert "\n" not in str(caught.value)


def test_a_command_that_is_none(tmp_path: Path) -> None:
    for command, message in (("", "no program"), ("'' x", "no program"), ("a 'b", "No closing quotation")):
        with pytest.raises(ConfigError, match=f"password_command is not a program with its arguments: {message}"):
            Secret(command=command)
    with pytest.raises(ConfigError, match=r"password command /no/such cannot be run: No such file"):
        Secret(command=f"/no/such {WORD}").resolve()
    (tmp_path / "data").write_text("")
    with pytest.raises(ConfigError, match="cannot be run: Permission denied"):
        Secret(command=f"{tmp_path}/data").resolve()


def test_a_command_that_hangs_is_ended_with_its_processes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = script(tmp_path, f"echo {WORD}; exec 2>{shlex.quote(str(pipe))}; echo x >&2; sleep 600 & wait")
        with pytest.raises(ConnectError, match=r"print it did not end within 1 s") as caught:
            run_command(command, seconds=1)
        assert WORD not in repr(caught.value)
        assert os.read(reading, 9) == b"x\n"
        wait_until(lambda: has_ended(reading))
    finally:
        os.close(reading)


def has_ended(reading: int) -> bool:
    """Whether no process has the other end open."""
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


def test_a_printed_password_is_used_until_it_is_old_or_refused() -> None:
    printed, seconds = iter(range(100)), [0.0]
    passwords = PrintedPasswords(lambda command: f"{command}{next(printed)}", clock=lambda: seconds[0])
    assert [passwords.get("a"), passwords.get("a"), passwords.get("b")] == ["a0", "a0", "b1"]
    seconds[0] += FRESH_SECONDS - 1
    assert passwords.get("a") == "a0"
    seconds[0] += 1
    assert [passwords.get("a"), passwords.get("a")] == ["a2", "a2"]
    passwords.forget("a", "a0")  # another connection was later
    passwords.forget("c", "x")
    assert passwords.get("a") == "a2"
    passwords.forget("a", "a2")
    assert passwords.get("a") == "a3"


def of_command(clock: Clock) -> ConnectionSettings:
    return ConnectionSettings("h", secret=Secret(command=f"cat {clock.file}"))


def test_a_refused_password_is_printed_again(clock: Clock) -> None:
    server = Server("old")
    assert log_in(of_command(clock), server.connect) == "old"
    assert clock.file is not None
    server.password = "new"
    clock.file.write_text("new\n")
    assert log_in(of_command(clock), server.connect) == "new"
    assert (server.refused, clock.pauses) == (1, 0)
    server.password = "newer"
    clock.writes = {3: "newer\n"}
    assert log_in(of_command(clock), server.connect) == "newer"
    assert (server.refused, clock.pauses, clock.seconds) == (2, 3, 115)  # nothing is sent while it prints the same


def test_two_printed_passwords_are_sent_and_no_more(clock: Clock, tmp_path: Path) -> None:
    tokens = ConnectionSettings("h", secret=Secret(command=script(tmp_path, "date +%s%N")))
    server = Server("other")
    with pytest.raises(AccessError):
        log_in(tokens, server.connect)
    assert server.refused == 1
    expect_login(tokens)
    with pytest.raises(AccessError):
        log_in(tokens, server.connect)
    assert (server.refused, clock.pauses) == (3, 0)


def test_a_command_that_fails_is_tried_again_by_who_connects(clock: Clock, tmp_path: Path) -> None:
    failing = ConnectionSettings("h", secret=Secret(command=script(tmp_path, "exit 4")))
    with pytest.raises(ConnectError, match="exit code 4"):
        log_in(failing, Server("x").connect)
    expect_login(failing)
    with pytest.raises(ConnectError, match="exit code 4"):
        log_in(failing, Server("x").connect)


def test_a_command_that_is_gone_is_tried_again_if_it_was_there(clock: Clock, tmp_path: Path) -> None:
    gone = ConnectionSettings("h", secret=Secret(command=f"{tmp_path}/gone"))
    with pytest.raises(ConfigError, match="No such file"):
        log_in(gone, Server("x").connect)
    expect_login(gone)
    with pytest.raises(ConnectError, match="No such file"):
        log_in(gone, Server("x").connect)
