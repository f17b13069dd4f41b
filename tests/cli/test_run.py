from __future__ import annotations

import gc
import io
import logging
import pkgutil
import sys

import pytest

from headgate.cli._run import _announce, _loading
from headgate.cli.log_lines import Format, LogLevel
from headgate.config import parse_config
from headgate.preload import PRELOAD, preload


def fail_to_load() -> None:
    with _loading():
        assert not gc.isenabled()
        raise ImportError


def test_garbage_is_not_collected_while_modules_load() -> None:
    """What follows collects, even if that failed, and leaves alone what was loaded."""
    try:
        with pytest.raises(ImportError):
            fail_to_load()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_what_a_run_preloads_is_a_function() -> None:
    """By name: Spark starts before that room is loaded."""
    assert pkgutil.resolve_name(PRELOAD) is preload


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TEXT = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["a.*"]\n[target]\npath = "/nowhere/lake"\n'


def test_notifications_are_logged_beside_the_live_view(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    log = logging.getLogger("headgate.notifications")
    handlers, level = log.handlers[:], log.level
    try:
        _announce(parse_config(TEXT + "[notifications]\nlog = true\n"), LogLevel.info, Format.text)
        log.debug("a line")
        assert capsys.readouterr().err == "a line\n"
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)
