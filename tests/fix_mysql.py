"""MySQL for tests.

* ``mysql_server``: one server for the whole run, or for each of its workers, with :mod:`headgate_testing`'s default
  settings. Do not change its global settings; work in a database of your own.
* ``mysql_db``: the name of a fresh, empty database on it, dropped after the test.
* ``@pytest.mark.mysql(">= 8.3", "GTIDs with tags")``: the test is skipped on other versions, with that reason.
  ``@pytest.mark.mysql(plugin="group_replication")``: it is skipped if the private servers lack that plugin or
  component. Spellings that differ between versions are methods of :class:`headgate_testing.MySQLServer`.
* ``@pytest.mark.needs_own_server``: the test starts servers itself, or restarts them; it is skipped when
  HEADGATE_TEST_MYSQL_URL names a server to use instead.
"""

from __future__ import annotations

import itertools
import operator
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from headgate.mysql import Version, parse_version
from headgate_testing import URL_VARIABLE, MySQLServer, installed_program

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_own_server: starts, restarts or sets up MySQL servers of its own")
    config.addinivalue_line("markers", "mysql(version, reason, *, plugin): needs a version of MySQL, or a plugin")


def pytest_report_header() -> str:
    named = os.environ.get(URL_VARIABLE)
    if named:
        with_password_hidden = MySQLServer.attach(named).url
        return f"mysql: {with_password_hidden}"
    program = installed_program()
    return f"mysql: private servers, {program.version_text if program else 'fetched when the first one starts'}"


@cache
def _server_version() -> Version | None:
    """The version of the servers of this run; None if it is not known before one starts."""
    named = os.environ.get(URL_VARIABLE)
    if named:
        with MySQLServer.attach(named) as server:
            return server.version_numbers
    program = installed_program()
    return program.version if program else None


@cache
def _has_plugin(name: str) -> bool:
    program = installed_program()
    return program is None or program.plugin(name) is not None


_COMPARISONS: dict[str, Callable[[Version, Version], bool]] = {">=": operator.ge, "<": operator.lt}


def unmet(version: Version | None, requirement: str = "", reason: str = "", *, plugin: str = "") -> str:
    """Return why a test with ``@pytest.mark.mysql(…)`` is skipped on a server; "" if it is not."""
    if requirement:
        match = re.fullmatch(r"(>=|<) (\d+\.\d+(?:\.\d+)?)", requirement)
        assert match, f"{requirement!r} is not like '>= 8.0.30'"
        if version is not None and not _COMPARISONS[match[1]](version, parse_version(match[2])):
            return f"needs MySQL {requirement} ({reason}); this is {'.'.join(map(str, version))}"
    if plugin and not _has_plugin(plugin):
        return f"needs the plugin or component {plugin}, which this mysqld lacks"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("mysql"):
        if reason := unmet(_server_version(), *marker.args, **marker.kwargs):
            pytest.skip(reason)


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
