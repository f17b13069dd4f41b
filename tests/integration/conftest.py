"""Fixtures of the tests with a server. A module that needs other settings has a fixture ``mysql_server`` itself."""

from __future__ import annotations

import pytest

from headgate_testing import MySQLServer
from tests.integration.changes import Log


@pytest.fixture
def log(mysql_server: MySQLServer, mysql_db: str) -> Log:
    """An empty database, and what happens to it."""
    return Log(mysql_server, mysql_db, create=False)
