"""The statement of a watermark."""

from __future__ import annotations

from typing import Any

from headgate.mysql import commit_watermark


class Formats:
    """A connection that puts arguments into a statement as PyMySQL does."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def query(self, sql: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self.statements.append(sql % args)
        return []


def test_the_name_of_a_signal_table_is_no_format() -> None:
    connection = Formats()
    commit_watermark(connection, "d.a%b", "5")  # type: ignore[arg-type]
    assert connection.statements[0].startswith("INSERT INTO `d`.`a%b` (id, type, data) VALUES (headgate-watermark,")
