"""Prove that a chosen key identifies the rows of a table, by counting them.

MySQL does not enforce a key that a user chose. The current table T has one row a key: the last image of each. Let S be
the source's rows as of the batch's end, perhaps several of one key.

*Claim.* If T equalled S before the batch, then after it T equals S, so no key comes twice, if and only if T and S have
the same number of rows. If no key ever comes twice, they have.

For a key k let t(k) be its rows in T, 0 or 1, and s(k) those in S. If no image has k, nothing changed. If the last
image with k sets a row (``c``, ``u``), that row is in S, so t(k) = 1 ≤ s(k). If it removes one (``d``, ``b``), then
t(k) = 0 ≤ s(k). So t(k) ≤ s(k) for each key, and the sums are equal if and only if all of them are: then s(k) ≤ 1. And
where s(k) = t(k) = 1, the row in S is the one of the last image, which T has. If a key never comes twice, a row that is
removed is the only one of its key, so t(k) = s(k).

S has as many rows as before, plus those inserted, minus those deleted. An update removes one and adds one. So the count
needs no look at the keys. T is counted by its files. A chunk proves it on its own rows (``columns/_chosen_keys.py``),
and then T has as many as the chunk.

If the counts differ, the table is stopped: it was written, but it is not called live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._images import drop_before
from headgate.decide import actions as do
from headgate.status import counted

if TYPE_CHECKING:
    from headgate.lake import DeltaPath

__all__ = ["key_problem"]


def key_problem(delta: DeltaPath, action: do.ProveKey) -> str | None:
    """Return why the key does not identify the rows of the table, which has the batch; None: it does."""
    chunks = [part for part in action.parts if part.kind == "chunk"]
    if chunks:
        expected = sum(part.images for part in chunks)
    else:
        expected = _growth(action) + (0 if action.base is None else delta.count(action.base))
    missing = expected - delta.count(delta.version())
    if not missing:
        return None
    key = ", ".join(action.definition.key)
    difference = f"{counted(abs(missing), 'row')} {'fewer' if missing > 0 else 'more'}"
    return f"key ({key}) is not unique: by it the table has {difference} than its source: choose other columns"


def _growth(action: do.ProveKey) -> int:
    """Return the number of rows that the images add, minus those that they remove."""
    if action.bound is None:
        return sum(part.growth for part in action.parts)
    growth = 0
    for part in action.parts:
        for batch in part.record_batches():
            images = pa.table({name: batch[name] for name in ("_op", "_seq")})
            kinds = drop_before(images, action.bound)["_op"]
            growth += sum(sign * pc.sum(pc.equal(kinds, op)).as_py() or 0 for op, sign in (("c", 1), ("d", -1)))
    return growth
