"""``[routes]``: the names that tables have in the lake."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Any, Final

from pydantic import Field, field_validator, model_validator

from headgate.config._model import Conflict, FilePath, Model, is_table

__all__ = ["SHARD_COLUMN", "RouteConfig"]

SHARD_COLUMN: Final = "_shard"
_NAMES: Final = frozenset({"db", "table"})
_EXAMPLE: Final = {"db": "db", "table": "table"}


def _check_template(template: str) -> str:
    """Return the template.

    :raises ValueError: it has other names in braces than those of a table.
    """
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        names = {""}
    if not names <= _NAMES:
        raise ValueError("expected a name, perhaps with {db} and {table}")
    return template


class RouteConfig(Model):
    """The name of some tables in the lake: `"shop.orders" = "sales.orders"` is short for `to`."""

    to: str = Field(
        description="`db.table`: the name in the lake; `{db}` and `{table}` are the names of the source's database and"
        " table"
    )
    shard: str | None = Field(
        None,
        min_length=1,
        description="merges all tables of the route into one. The column `column` has this value in the rows of each:"
        " `{db}` and `{table}` are the names of its database and table",
    )
    column: str = Field(
        SHARD_COLUMN, description="column of a merged table that says from which of the merged tables a row is"
    )
    path: FilePath | None = Field(
        None,
        description="folder or URI below which the merged table is, as `<path>/<db>/<table>`, if several pipelines"
        " share it; by default `target.path`",
    )

    @field_validator("to")
    @classmethod
    def _check_to(cls, template: str) -> str:
        if not is_table(_check_template(template).format_map(_EXAMPLE)):
            raise ValueError("expected a name of the form db.table")
        return template

    @field_validator("shard")
    @classmethod
    def _check_shard(cls, template: str | None) -> str | None:
        return None if template is None else _check_template(template)

    @field_validator("column")
    @classmethod
    def _check_column(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("expected letters, digits and _")
        return name

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"to": value} if isinstance(value, str) else value

    def _conflicts(self) -> Iterator[Conflict]:
        if self.shard is None and self.path is not None:
            yield "shard path", "path is for merged tables: set shard, too"
