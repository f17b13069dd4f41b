"""Values for added columns. Delta has no default for existing rows, so their files are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import DataFile

__all__ = ["Fill"]


@dataclass(frozen=True)
class Fill:
    """Values to set in existing rows.

    :param values: by column, as text that casts to its type exactly.
    :param ddl: these columns, as Spark DDL.
    :param before: set them in rows of epochs before this one.
    """

    values: Mapping[str, str]
    ddl: str
    before: int

    def touches(self, file: DataFile) -> bool:
        """Return whether a data file may have such rows."""
        epochs = file.bounds(("_seq", "epoch"), pa.int64())
        return epochs is None or epochs[0] < self.before

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, filled."""
        older = pc.less(pc.struct_field(rows["_seq"], "epoch"), self.before)
        columns = [
            pc.if_else(older, pa.scalar(self.values[field.name]).cast(field.type), column)
            if field.name in self.values
            else column
            for field, column in zip(rows.schema, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
