"""Check whether a table can be read as a signal requests: with a filter, along a surrogate key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from headgate.catalog import TableDef
from headgate.columns import column_rules
from headgate.errors import Definite, HeadgateError, SnapshotRefusedError
from headgate.names import quote_name
from headgate.offsets import SnapshotRequest
from headgate.policies import Policies

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["Refusal", "check_request"]


class Refusal(NamedTuple):
    """Why a requested snapshot of a table is refused."""

    status: Literal["NO_PRIMARY_KEY", "SKIPPED", "SQL_EXCEPTION", "UNKNOWN_SCHEMA"]
    """Debezium's status for it, in notifications."""
    reason: str


def check_request(server: Server, definition: TableDef, request: SnapshotRequest, policies: Policies) -> Refusal | None:
    """Return why the table cannot be read in this way; None: it can.

    :param policies: the table's.
    """
    from headgate.snapshot import bound_columns, literal_expression

    if request.filter is None and request.surrogate is None:
        return None
    if not definition.key:
        return Refusal("NO_PRIMARY_KEY", "a table without a key is read whole, in one piece")
    if request.surrogate is not None:
        if policies.window == "keep":
            return Refusal("SKIPPED", 'a surrogate key needs whole row images (window = "rewind")')
        if _has_rule(definition, request.surrogate, policies):
            reason = f"column {request.surrogate} has a rule in [columns], and chunk bounds would show its values"
            return Refusal("SKIPPED", reason)
        try:
            literal_expression(bound_columns(definition, request.surrogate)[0], definition.full_name)
        except SnapshotRefusedError as error:
            return Refusal("SKIPPED", error.message)
        if not _leads_an_index(server, definition, request.surrogate):
            reason = f"no index begins with column {request.surrogate}, so every chunk would scan the whole table"
            return Refusal("SKIPPED", reason)
    if request.filter is not None:
        table = f"{quote_name(definition.db)}.{quote_name(definition.name)}"
        try:
            server.query(f"SELECT 1 FROM {table} WHERE ({request.filter}) LIMIT 0")
        except HeadgateError as error:
            if not isinstance(error, Definite):
                raise
            return Refusal("SQL_EXCEPTION", f"the server refuses the filter: {error.message}")
    return None


def _has_rule(definition: TableDef, name: str, policies: Policies) -> bool:
    rules = column_rules(policies, definition)
    return any(
        rule.kind != "keep" and column.name == name for column, rule in zip(definition.columns, rules, strict=True)
    )


def _leads_an_index(server: Server, definition: TableDef, column: str) -> bool:
    texts = (f"_utf8mb4 X'{text.encode().hex()}'" for text in (definition.db, definition.name, column))
    db, table, name = texts
    rows = server.query(
        f"SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = {db} AND TABLE_NAME = {table}"
        f" AND COLUMN_NAME = {name} AND SEQ_IN_INDEX = 1 AND IS_VISIBLE = 'YES'"
    )
    return int(rows[0][0]) > 0
