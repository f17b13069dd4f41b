"""``[target]``."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from headgate.config._model import Model

__all__ = ["Deletes", "TargetConfig"]

Mode = Literal["current", "changelog"]
Deletes = Literal["remove", "mark"]

_MODES: Final[tuple[Mode, ...]] = ("current", "changelog")


class TargetConfig(Model):
    """Where the tables go: exactly one of `path` and `catalog`."""

    path: str | None = Field(
        None,
        description="folder of the lake, or a URI for Spark, such as `s3a://bucket/lake` (folders and S3 are tested,"
        " see [object stores](operations.md#object-stores)); a relative path starts at the working directory",
    )
    catalog: str | None = Field(None, description="Spark catalog for named tables (refused for now: not supported yet)")
    mode: tuple[Mode, ...] = Field(
        ("current",), description="`current` (each table as it is now), `changelog` (every change), or a list of both"
    )

    deletes: Deletes = Field(
        "remove",
        description="a row that is deleted in MySQL: `remove` deletes it in the `current` table; `mark` keeps it there,"
        " with its last values and `_deleted = true`, which needs a key. If this changes, a table is read again when"
        " its next changes come",
    )

    batch_ms: int = Field(
        500,
        ge=0,
        le=3_600_000,
        description="least number of milliseconds between the starts of two batches: each batch adds files to the"
        " tables that it changes",
    )

    retention_hours: int = Field(
        6,
        ge=1,
        le=87_600,
        description="hours for which old batches stay readable: headgate removes the files that only older batches"
        " need, in local folders and on S3. The newest batch always stays readable. A program that streams one of the"
        " tables may pause for so long. See [upkeep](operations.md#upkeep) for its cost",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _as_list(cls, mode: Any) -> Any:
        values = [mode] if isinstance(mode, str) else mode
        if not isinstance(values, (list, tuple)) or not values or any(value not in _MODES for value in values):
            raise ValueError('expected "current", "changelog" or a list of them')
        return tuple(value for value in _MODES if value in values)

    @model_validator(mode="after")
    def _check_path(self) -> TargetConfig:
        if self.path and self.catalog:
            raise ValueError("target.path and target.catalog are both set; keep one")
        if self.catalog is not None:
            raise ValueError("named tables (target.catalog) are not supported yet; set target.path to a folder or URI")
        if not self.path:
            raise ValueError("target.path is missing: a folder or URI that Spark can write")
        return self
