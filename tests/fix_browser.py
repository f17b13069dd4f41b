"""A real browser for the tests of pages, one for each test, and the checker that runs in pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate_testing import axe_script
from tests.browser import Browser, find_chromium


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail("there is no Chromium, which scripts/test installs as root: apt-get install chromium")
        pytest.skip("there is no Chromium (Debian: sudo apt-get install chromium; scripts/test installs it as root)")
    profile = tmp_path / "profile"
    profile.mkdir()
    with Browser(program, profile) as opened:
        yield opened


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script."""
    try:
        return axe_script()
    except ConfigError as error:
        pytest.skip(str(error))
