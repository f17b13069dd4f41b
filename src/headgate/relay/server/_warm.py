"""Load compiled loops before the first event: a row of NULLs of each kind of column goes into a buffer, and out of it
in every form.

Loading what an earlier process compiled takes a part of a second in all, and compiling it much longer. Otherwise the
first transaction would wait for it, and then the first consumer of each form, with all requests in that time: the
server's own thread chooses events, leaves columns out and converts events to version 1, and if another thread compiles,
they take turns. The row has no key, because key columns cannot be NULL. What cannot be written or read is ignored: real
events report the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.catalog import TableDef
from headgate.columns import TableCodec
from headgate.config import SchemaTypes
from headgate.errors import HeadgateError
from headgate.kernels import NULL, RowBlock
from headgate.policies import Policies
from headgate.relay.databus import Schema, StreamPosition, convert_to_v1, count_sources, event_fields
from headgate.relay.server._assemble import Assembler, Finished
from headgate.relay.server._buffer import EventBuffer
from headgate.relay.server._scn import Scn
from headgate.relay.server._writers import SourceOf
from headgate.relay.server.events import Registry, RowDecoder, SourceFilter, choice_of, compile_filters, json_lines
from headgate.replication import GTID_TYPE, META_FIELDS, ImageBatch, LogBlock, canonical_schema, op_array, seq_array

__all__ = ["warm"]

_BUFFER_BYTES = 1 << 20
_GTID = "00000000-0000-0000-0000-000000000000:1"


def warm(
    tables: Iterable[TableDef], policies: Policies, source_of: SourceOf, types: SchemaTypes, *, version: int
) -> None:
    """Load the loops for events of these tables; skip tables that have only kinds of columns seen before."""
    registry = Registry(None, types)  # private: consumers never see it
    seen: set[tuple[object, ...]] = set()
    for table in tables:
        kinds = {(one.type, one.unsigned, one.charset, one.scale) for one in table.columns}
        if kinds <= seen:
            continue
        seen |= kinds
        with contextlib.suppress(HeadgateError):
            assembler = Assembler(source_of, registry, Scn("relay-generated"), partition=1, version=version)
            finished = _events_of(replace(table, key=()), policies, assembler)
            if finished is not None:
                source = source_of(table.db, table.name)
                _answers_of(finished, source.id, registry.versions(source.name))


def _events_of(table: TableDef, policies: Policies, assembler: Assembler) -> Finished | None:
    """Return a row in a transaction, as events."""
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
    schema = canonical_schema(codec.table, codec.fields)
    batch = pa.RecordBatch.from_arrays([*meta, *codec.from_log(block)], schema=schema)
    return assembler.add(LogBlock([ImageBatch(codec.table, batch)], whole=True))


def _answers_of(finished: Finished, source: int, versions: Sequence[Schema]) -> None:
    """Read all of it, chosen, and with fewer columns; as version 1, as JSON, and as decoded rows."""
    buffer = EventBuffer(_BUFFER_BYTES)
    buffer.append(finished.windows)
    (data,) = buffer.read(StreamPosition(-1), _BUFFER_BYTES).parts
    first: str = versions[-1].value["fields"][0]["name"]
    fewer = compile_filters({source: SourceFilter(columns=(first,))}, lambda _: versions)
    for choice in (choice_of([]), choice_of([source], row_filters=fewer)):  # end-of-period events pass any choice
        buffer.read(StreamPosition(-1), _BUFFER_BYTES, choice)
    next(buffer.cursors(StreamPosition(-1))).cut_before([versions[-1].digest])
    count_sources(data, np.zeros((3, 1), np.int64), 0)
    convert_to_v1(data)
    json_lines(data, plain=False)
    fields = event_fields(data)
    rows = np.flatnonzero(fields.source == source)
    RowDecoder(versions[-1].value).decode(data, fields.value[rows], fields.value_size[rows])
