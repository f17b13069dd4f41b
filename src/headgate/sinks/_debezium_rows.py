"""What messages of every form take from images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.carrier import ABSENT, CarriedColumn, Definition
from headgate.replication import SNAPSHOT_FILE

__all__ = ["columns_present", "log_files"]


def columns_present(definition: Definition, images: pa.RecordBatch) -> Iterator[tuple[CarriedColumn, Any]]:
    """Yield a table's columns that the images have, each with bool[images]: which images hold it; None: all."""
    columns = [column for column in definition.columns if column.name in images.schema.names]
    if ABSENT not in images.schema.names:
        yield from ((column, None) for column in columns)
        return
    absent = images[ABSENT]
    code = np.asarray(absent.indices.fill_null(-1))
    left_out = [set(json.loads(names)) for names in absent.dictionary.to_pylist()]
    for column in columns:
        codes = [k for k, names in enumerate(left_out) if column.name in names]
        yield column, ~np.isin(code, codes) if codes else None


def log_files(numbers: pa.Array, base: str) -> pa.Array:
    """Return the names of log files; empty for the rows of a snapshot.

    :param base: the names before the number, with the dot.
    """
    values = np.asarray(numbers)
    found = values[:1] if (values == values[:1]).all() else np.unique(values)
    names = ["" if number == SNAPSHOT_FILE else f"{base}{number:06d}" for number in found.tolist()]
    return pa.array(names, pa.string()).take(pa.array(np.searchsorted(found, values)))
