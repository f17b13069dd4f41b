"""Compiled loops, loaded before the first event: a row of NULLs of each kind of column goes the way that rows go.

Loading what an earlier process compiled takes a second or so in all, and compiling it much longer; without this the
first transaction would wait for it, and then, with all who ask in that time, the first consumer that is not for all
events: the server's own thread chooses them. The row has no key, in which no column may be NULL. What cannot be written
is no matter here: it says so when it comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate._cells import NULL, RowBlock
from headgate._policies import Policies
from headgate.catalog import TableDef
from headgate.columns import TableCodec
from headgate.errors import HeadgateError
from headgate.relay._assemble import Assembler
from headgate.relay._buffer import EventBuffer, Place
from headgate.relay._events._choice import choice_of
from headgate.relay._events._schemas import Registry, Types
from headgate.relay._scn import RelayGenerated
from headgate.relay._writers import SourceOf
from headgate.replication import GTID_TYPE, META_FIELDS, ImageBatch, LogBlock, canonical_schema, op_array, seq_array

__all__ = ["warm"]

_BUFFER_BYTES = 1 << 20
_GTID = "00000000-0000-0000-0000-000000000000:1"


def warm(tables: Iterable[TableDef], policies: Policies, sources: SourceOf, types: Types, *, version: int) -> None:
    """Load what events of these tables take; tables whose columns are like those of others are passed over."""
    registry = Registry(None, types)  # nobody's: nothing of this is to be seen
    seen: set[tuple[object, ...]] = set()
    for table in tables:
        kinds = {(one.type, one.unsigned, one.charset, one.scale) for one in table.columns}
        if kinds <= seen:
            continue
        seen |= kinds
        with contextlib.suppress(HeadgateError):
            _events_of(
                replace(table, key=()),
                policies,
                Assembler(sources, registry, RelayGenerated(), partition=1, version=version),
            )


def _events_of(table: TableDef, policies: Policies, assembler: Assembler) -> None:
    codec = TableCodec(table, policies)
    shape = (len(table.columns), 1)
    block = RowBlock(
        np.zeros(8, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.full(shape, NULL, np.uint8), 1
    )
    meta = [
        op_array(np.frombuffer(b"c", np.uint8)),
        seq_array(0, 1, np.array([4]), np.array([0])),
        pa.DictionaryArray.from_arrays(pa.array([0], GTID_TYPE.index_type), pa.array([_GTID])),
        pa.array([0], META_FIELDS[3].type),
    ]
    batch = pa.RecordBatch.from_arrays([*meta, *codec.from_log(block)], schema=canonical_schema(table, codec.fields))
    finished = assembler.add(LogBlock([ImageBatch(table, batch)], whole=True))
    if finished is not None:
        buffer = EventBuffer(_BUFFER_BYTES)
        buffer.append(finished.windows)
        for choice in (None, choice_of([])):  # the end of the transaction is for everybody
            buffer.read(Place(-1), _BUFFER_BYTES, choice)
