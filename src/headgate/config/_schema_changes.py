"""``[schema_changes]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self, TypeAlias

from pydantic import Field

from headgate.config._model import Conflict, Model

__all__ = ["ChangePolicy", "SchemaChangesConfig"]

ChangePolicy: TypeAlias = Literal["evolve", "ignore", "reread", "stop"]
WideningPolicy: TypeAlias = Literal["evolve", "reread", "stop"]
DroppedColumns: TypeAlias = Literal["remove", "keep"]


class SchemaChangesConfig(Model):
    """What happens to a current table if an ALTER changes columns in a way that keeps every value, by kind of change:
    `evolve` applies it to the table's rows; `ignore` leaves the table's columns as they are, also for later rows;
    `reread` reads the table again; `stop` stops the table. An ALTER with several kinds has the strictest of their
    policies, without those changes that are ignored. Any other ALTER reads the table again, or stops it, as its
    `schema_changes` says.
    """

    add_column: ChangePolicy = Field(
        default="evolve",
        description="columns of NULLs or of a literal default are added; with `ignore` of any other value, too",
    )
    drop_column: ChangePolicy = Field(
        default="evolve",
        description="columns are dropped; with `evolve` also in the lake; with `ignore` they stay there and are null in"
        " rows written later",
    )
    rename_column: ChangePolicy = Field(
        default="evolve", description="columns get other names; with `ignore` not in the lake"
    )
    widen_column: WideningPolicy = Field(
        default="evolve",
        description="columns get types that hold all old values: longer text, more members of an ENUM or SET, wider"
        " integers and decimals. It cannot be ignored: the old type does not hold the new values",
    )
    dropped_columns: DroppedColumns = Field(
        default="remove",
        description="a column that is dropped with `evolve`: `remove` it, or `keep` it, null in all rows, until the"
        " table gets other columns by a re-read",
    )

    def _conflicts(self) -> Iterator[Conflict]:
        if self.dropped_columns == "keep" and self.drop_column != "evolve":
            needs = 'dropped_columns = "keep" is for drop_column = "evolve"'
            yield "drop_column dropped_columns", f'{needs}, not "{self.drop_column}"'

    @property
    def ignored(self) -> tuple[str, ...]:
        """The kinds of changes that are ignored, as keys of the section."""
        return tuple(kind for kind in type(self).model_fields if getattr(self, kind) == "ignore")

    def following_all(self) -> Self:
        """Return the settings with `evolve` in place of `ignore`."""
        return self.model_copy(update=dict.fromkeys(self.ignored, "evolve"))
