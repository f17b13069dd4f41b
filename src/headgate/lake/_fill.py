"""Values for columns that were added to a table: one task copies each of its data files.

Delta has no default for existing rows, so their files have to be written again. Spark's UPDATE would pass every row
through generated Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import DataFile, copy_file
from headgate.lake._append import CommitBase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Fill", "fill_files"]


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


def fill_files(
    spark: SparkSession, folder: str, base: CommitBase, files: Sequence[DataFile], fill: Fill, always: Sequence[str]
) -> list[dict[str, Any]]:
    """Copy and fill these files. Return the ``add`` actions of the new ones.

    :param always: columns that get statistics at any position in the schema.
    """
    schema, codec = base.schema, base.codec
    sources = list(files)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                added = copy_file(folder, sources[number], schema, codec, fill.apply, always)
                yield pa.RecordBatch.from_pydict({"action": pa.array(added, pa.string())})

    actions = spark.range(0, len(files), 1, len(files)).mapInArrow(run, "action string").toArrow()
    return [json.loads(action) for action in actions["action"].to_pylist()]
