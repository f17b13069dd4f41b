"""The statement of a watermark."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headgate.errors import ServerSettingError
from headgate.mysql import Connection, commit_watermark


class Formats:
    """A connection that puts arguments into a statement as PyMySQL does."""

    def __init__(self, *, is_logged: bool = True) -> None:
        self.statements: list[str] = []
        self.is_logged = is_logged

    def query(self, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if "sql_log_bin" in sql:
            return [(int(self.is_logged),)]
        self.statements.append(sql % args)
        return []


def test_the_name_of_a_signal_table_is_no_format() -> None:
    connection = Formats()
    commit_watermark(cast("Connection", connection), "d.a%b", "5")
    assert connection.statements[0].startswith("INSERT INTO `d`.`a%b` (id, type, data) VALUES (headgate-watermark,")


def test_a_watermark_that_would_not_be_logged_is_refused() -> None:
    """Its commit would not wait for what was logged before."""
    connection = Formats(is_logged=False)
    with pytest.raises(ServerSettingError, match="sql_log_bin"):
        commit_watermark(cast("Connection", connection), "d.signals", "5")
    assert not connection.statements
