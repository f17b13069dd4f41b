"""Requests between a launcher and the fork server, both in this process: what is sent, refused, and answered."""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.engine import _launcher
from headgate.engine._fork_server import Request, _is_loaded, _read, _Server

Answer = Callable[[socket.socket], object]


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / _launcher.SOCKET))
        listening.listen()
        yield listening


def status_of(listening: socket.socket, answer: Answer) -> int | None:
    """What a launcher gets whose server answers so."""

    def serve() -> None:
        launcher, _ = listening.accept()
        with launcher:
            answer(launcher)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        return _launcher.run_forked(listening.getsockname(), ["-c", "print('ü')", "a b"])
    finally:
        thread.join()


def test_a_request_is_what_the_launcher_has(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "1\n2=3")
    read = list[Request]()

    def answer(launcher: socket.socket) -> None:
        read.append(_read(launcher))
        launcher.sendall(_launcher.FORKED)
        launcher.sendall((3 << 8).to_bytes(4, "little"))

    assert status_of(listening, answer) == 3 << 8
    (request,) = read
    assert (request.folder, request.arguments) == (str(Path.cwd()), ["-c", "print('ü')", "a b"])
    assert request.environment == dict(os.environ)
    assert [os.fstat(one).st_ino for one in request.streams] == [os.fstat(one).st_ino for one in (0, 1, 2)]
    for one in request.streams:
        os.close(one)


def test_a_large_request_comes_whole(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a socket takes at once."""
    monkeypatch.setenv("LONG", "x" * 120_000)
    monkeypatch.setenv("LONGER", "y" * 120_000)
    assert status_of(listening, _Server(listening, forks=False)._take) is None


def test_a_server_that_does_not_fork_refuses(listening: socket.socket) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    assert status_of(listening, _Server(listening, forks=False)._take) is None
    assert len([*Path("/proc/self/fd").iterdir()]) == before, "it closes the launcher's streams"


@pytest.mark.parametrize("sent", [b"", b"\x10\0", b"\x05\0\0\0a\0b", b"\x05\0\0\0a\0b\0c", b"\x03\0\0\0a\0x"])
def test_a_request_that_is_cut_or_no_request_is_refused(listening: socket.socket, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(listening.getsockname())
        launcher.sendall(sent)
        launcher.shutdown(socket.SHUT_WR)
        taken, _ = listening.accept()
        assert _Server(listening, forks=True)._take(taken) is None
        assert launcher.recv(9) == _launcher.REFUSED


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """So many descriptors are left to this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)  # the least number that is free
    fillers = []
    while (filler := os.dup(0)) < highest + 50:
        fillers.append(filler)
    os.close(filler)
    for one in fillers[len(fillers) - count :]:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (filler, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in fillers[: len(fillers) - count]:
            os.close(one)


def test_a_server_without_descriptors_refuses_and_goes_on(listening: socket.socket) -> None:
    server = _Server(listening, forks=True)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.connect(listening.getsockname())
        with descriptors_left(1):  # which it reserves
            assert server._accept() is None
        assert first.recv(9) == _launcher.REFUSED
        second.connect(listening.getsockname())
        taken = server._accept()
        assert taken is not None
        taken.close()
    server._leave()


def test_a_request_whose_streams_find_no_descriptors_is_refused(listening: socket.socket) -> None:
    server, before = _Server(listening, forks=True), len([*Path("/proc/self/fd").iterdir()])
    ours, taken = socket.socketpair()
    with ours:
        text = b"/\0" + b"1\0-m"
        socket.send_fds(ours, [len(text).to_bytes(4, "little") + text], [0, 1, 2])
        with descriptors_left(1):
            assert server._take(taken) is None
        assert ours.recv(9) == _launcher.REFUSED
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_process_without_a_handle_is_ended(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher whose process may have begun must not start it again."""

    def refuse(_pid: int) -> int:
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", "input()"], os.environ)
    monkeypatch.setattr(os, "fork", lambda: child)
    server = _Server(listening, forks=True)
    assert status_of(listening, server._take) == _launcher.GONE
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
    assert not server._children


@pytest.mark.parametrize("reply", [b"", _launcher.FORKED, _launcher.FORKED + b"\0\1", b"?"])
def test_a_reply_that_is_lost_is_a_failure(listening: socket.socket, reply: bytes) -> None:
    def answer(launcher: socket.socket) -> None:
        for one in _read(launcher).streams:
            os.close(one)
        launcher.sendall(reply)

    assert status_of(listening, answer) == _launcher.GONE


@pytest.mark.parametrize(
    ("arguments", "seed", "fits"),
    [
        (["-m", "x"], None, True),
        (["-c", "x", "y"], "0", True),
        (["-m", "x"], "17", False),
        (["x.py"], None, False),
        (["-m"], None, False),
        ([], None, False),
    ],
)
def test_which_requests_a_fork_can_serve(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], seed: str | None, fits: bool
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    environment = {} if seed is None else {"PYTHONHASHSEED": seed}
    assert Request("/", arguments, environment, []).fits is fits


def test_what_cannot_be_loaded_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert not _is_loaded("no.such:module")
    assert "No module named 'no'" in capfd.readouterr().err
