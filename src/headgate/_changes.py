"""How many changes images are: the one rule for progress inside a batch and for what a batch's report says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["count_changes"]


def count_changes(batch: pa.RecordBatch) -> int:
    """How many changes these images are: the two images of an update are one.

    :param batch: images with the column ``_op`` (string, one ASCII letter each, no nulls).
    """
    _, offsets, letters = batch["_op"].buffers()
    if not batch.num_rows:
        return 0
    first = int(np.frombuffer(offsets, np.int32)[batch["_op"].offset])
    ops = bytes(letters[first : first + batch.num_rows])
    return len(ops) - ops.count(b"b")
