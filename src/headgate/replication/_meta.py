"""The meta columns of a canonical record batch: ``_op``, ``_seq``, ``_gtid``, ``_ts``, and in some ``_absent``.

``_op`` copies the walk's letters (one byte a row). A kernel formats ``_gtid``, dictionary-encoded with one entry per
transaction. No Python object is made per row, and per transaction only for tagged GTIDs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.binlog import Transactions
    from headgate.catalog import TableDef

__all__ = [
    "ABSENT_FIELD",
    "GTID_TYPE",
    "META_FIELDS",
    "SEQ_TYPE",
    "SNAPSHOT_FILE",
    "SNAPSHOT_POS",
    "canonical_schema",
    "gtid_array",
    "op_array",
    "seq_array",
]

SEQ_TYPE: Final = pa.struct(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
    ]
)
_SEQ_TYPES: Final = [field.type for field in SEQ_TYPE]
GTID_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
META_FIELDS: Final = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_seq", SEQ_TYPE, nullable=False),
    pa.field("_gtid", GTID_TYPE),
    pa.field("_ts", pa.timestamp("us", tz="UTC")),
)
ABSENT_FIELD: Final = pa.field("_absent", pa.dictionary(pa.int32(), pa.string()))
"""Behind the others, only in batches with partial images: columns that an image leaves out, as a JSON list of names in
table order; null for a whole image."""
SNAPSHOT_FILE: Final = 2**31 - 1
"""``_seq.file`` of snapshot rows: behind every change of their own batch."""
SNAPSHOT_POS: Final = 2**63 - 1
"""``_seq.pos`` of snapshot rows."""


def canonical_schema(table: TableDef, fields: Sequence[pa.Field]) -> pa.Schema:
    """Return a schema: meta columns, then the table's. Its metadata names the table, its key and definition."""
    metadata = {
        "headgate.table": table.full_name,
        "headgate.key": json.dumps([table.columns[i].name for i in table.key]),
        "headgate.fingerprint": table.fingerprint,
    }
    return pa.schema([*META_FIELDS, *fields], metadata=metadata)


def op_array(letters: Any) -> pa.Array:
    """Return ``string[n]`` from ASCII letters (uint8[n]), which are copied."""
    offsets = np.arange(len(letters) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(letters), pa.py_buffer(offsets), pa.py_buffer(np.array(letters)))


def seq_array(epoch: int, file: int, pos: Any, ordinal: Any) -> pa.Array:
    """Return ``_seq`` of n changes in one file; ``pos`` and ``ordinal`` are int64[n]."""
    n = len(pos)
    columns = [np.full(n, epoch, np.int64), np.full(n, file, np.int32), pos, ordinal]
    arrays = [
        pa.Array.from_buffers(kind, n, [None, pa.py_buffer(column)])
        for kind, column in zip(_SEQ_TYPES, columns, strict=True)
    ]
    return pa.Array.from_buffers(SEQ_TYPE, n, [None], children=arrays)


@njit(cache=True, nogil=True)
def _relabel(txn: Any, out: Any, used: Any) -> Any:
    """Number the transactions of rows in log order from 0: ``out[row]``, ``used[label] = transaction``."""
    labels = 0
    for i in range(txn.shape[0]):
        if i == 0 or txn[i] != txn[i - 1]:
            used[labels] = txn[i]
            labels += 1
        out[i] = labels - 1
    return labels


@njit(cache=True, nogil=True)
def _format(hi: Any, lo: Any, number: Any, used: Any, labels: int, offsets: Any, data: Any) -> Any:
    """Write ``uuid:number`` of transactions ``used[:labels]``. ``data`` holds 57 bytes a transaction."""
    q = 0
    digits = np.zeros(20, np.uint8)
    for k in range(labels):
        offsets[k] = q
        t = used[k]
        for i in range(16):
            if i == 4 or i == 6 or i == 8 or i == 10:
                data[q] = 45
                q += 1
            word = hi[t] if i < 8 else lo[t]
            byte = np.int64((word >> np.uint64(8 * (i & 7))) & np.uint64(255))
            for nibble in (byte >> 4, byte & 15):
                data[q] = nibble + (48 if nibble < 10 else 87)
                q += 1
        data[q] = 58
        q += 1
        n = number[t]
        size = 0
        while n > 0 or size == 0:
            digits[size] = 48 + n % 10
            n //= 10
            size += 1
        for i in range(size):
            data[q + i] = digits[size - 1 - i]
        q += size
    offsets[labels] = q
    return q


def gtid_array(transactions: Transactions, tags: Sequence[str], txn: Any) -> pa.Array:
    """Return ``_gtid`` of rows whose transactions are ``txn`` (int64[n], in log order)."""
    indices, used = np.empty(len(txn), np.int32), np.empty(len(txn), np.int64)
    labels = int(_relabel(txn, indices, used))
    offsets, data = np.empty(labels + 1, np.int32), np.empty(labels * 57, np.uint8)
    x = transactions
    size = _format(x.hi, x.lo, x.number, used, labels, offsets, data)
    names = pa.StringArray.from_buffers(labels, pa.py_buffer(offsets), pa.py_buffer(data[:size]))
    if x.tag[used[:labels]].any():
        names = _with_tags(names, tags, x.tag[used[:labels]])
    return pa.DictionaryArray.from_arrays(pa.array(indices), names)


def _with_tags(names: pa.Array, tags: Sequence[str], tag: Any) -> pa.Array:
    """Insert the tag between UUID and number where a transaction has one."""
    texts = names.to_pylist()
    return pa.array(
        [text if not t else f"{text[:36]}:{tags[t]}:{text[37:]}" for text, t in zip(texts, tag.tolist(), strict=True)],
        pa.string(),
    )
