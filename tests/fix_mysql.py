"""MySQL for tests.

* ``mysql_server``: one server for the whole run, or for each of its workers, with :mod:`headgate.testing`'s default
  settings. Do not change its global settings; work in a database of your own.
* ``mysql_db``: the name of a fresh, empty database on it, dropped after the test.
* ``@pytest.mark.needs_own_server``: the test starts servers itself, or restarts them; it is skipped when
  HEADGATE_TEST_MYSQL_URL names a server to use instead.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.testing import URL_VARIABLE, MySQLServer

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_own_server: starts, restarts or sets up MySQL servers of its own")


def pytest_report_header() -> str:
    named = os.environ.get(URL_VARIABLE)
    if not named:
        return "mysql: private servers"
    with_password_hidden = MySQLServer.attach(named).url
    return f"mysql: {with_password_hidden}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(URL_VARIABLE):
        skip = pytest.mark.skip(reason=f"starts its own servers, and {URL_VARIABLE} names one to use")
        for item in items:
            if item.get_closest_marker("needs_own_server"):
                item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done; ``pytest_terminal_summary`` is called in the process that started it."""
    version = getattr(node, "workeroutput", {}).get("mysql")
    if version:
        node.config.stash[_version] = version


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _version in config.stash:
        terminalreporter.write_line(f"mysql: {config.stash[_version]}")


_version = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def mysql_server(pytestconfig: pytest.Config) -> Iterator[MySQLServer]:
    """The run's shared server."""
    with MySQLServer.start() as server:
        pytestconfig.stash[_version] = server.version
        if hasattr(pytestconfig, "workeroutput"):
            pytestconfig.workeroutput["mysql"] = server.version
        yield server


@pytest.fixture
def mysql_db(mysql_server: MySQLServer) -> Iterator[str]:
    """The name of an empty database."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    mysql_server.execute(f"CREATE DATABASE `{name}`")
    yield name
    mysql_server.execute(f"DROP DATABASE `{name}`")
