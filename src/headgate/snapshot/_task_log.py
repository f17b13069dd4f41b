"""The log since E for a task that reads chunks: one window for all of them, by table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import HighWatermark
from headgate.catalog import TableDef, creates_if_absent, exact_patterns
from headgate.policies import Policies
from headgate.replication import ABSENT_FIELD, META_FIELDS, Ddl, LogBlock, WindowReader, file_number
from headgate.snapshot._request import ChunkRead

__all__ = ["TaskLog"]


class TaskLog:
    """A task's window: the log since E, by table."""

    def __init__(self, read: ChunkRead, policies: Policies) -> None:
        self._names = {chunk.table for chunk in read.chunks}
        self._policies = policies
        self._reader = WindowReader(
            read.settings,
            read.executed,
            server_uuid=read.server_uuid,
            tables=exact_patterns(self._names),
            hint=read.hint,
            policies=policies,
        )
        self._waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._names}
        self.incomplete: dict[str, str] = {}
        """Tables whose window is incomplete, and why: DDL, or images that cannot be read."""
        self.files: dict[int, str] = {}
        """Names of the log files, by number."""
        self.touched: set[str] = set()
        self.truncated: set[str] = set()
        self.moved: set[str] = set()
        """Tables with an update that changes the key in an image that leaves columns out; only if rows are kept."""
        self._logged: dict[str, TableDef] = {}

    def extend(self, file: str, pos: int) -> None:
        """Read on to at least this position."""
        for item in self._reader.read_to(file, pos):
            if isinstance(item, LogBlock):
                self.files[file_number(item.file)] = item.file
                for name, batches in _by_table(item).items():
                    self._add_images(name, batches)
                self._logged.update(
                    (image.table.full_name, image.table) for image in item.images if image.table.columns
                )
            elif isinstance(item, Ddl):
                for touched in self._touched(item):
                    self.incomplete.setdefault(touched, f"DDL while the chunk was read: {item.statement[:200]}")
            elif item.table in self._names:
                self.incomplete.setdefault(item.table, f"row images of the window cannot be read: {item.reason}")

    def _touched(self, ddl: Ddl) -> set[str]:
        """Return the tables whose rows or columns a statement may change. CREATE TABLE IF NOT EXISTS changes none: if a
        table was dropped before it, that statement counts.
        """
        if ddl.action == "drop_database":
            return {name for name in self._names if name.partition(".")[0] == ddl.db}
        if creates_if_absent(ddl.action, ddl.changes):
            return set()
        return self._names & {f"{ddl.db}.{ddl.table}", ddl.new_name}

    def _add_images(self, name: str, batches: list[pa.RecordBatch]) -> None:
        if name not in self._names:
            return
        self.touched.add(name)
        rows = [batch for batch in batches if batch.num_columns > len(META_FIELDS)]
        if len(rows) < len(batches):
            self.truncated.add(name)
        self._waiting[name].extend(_in_order(rows))

    def watermark(self, name: str) -> HighWatermark | None:
        """Return what must be applied before the rows of this table are exact; None: they are exact at E."""
        if self._policies.of(name).window == "rewind" or name not in self.touched:
            return None
        return HighWatermark(name, self._reader.gtid, self._reader.last)

    def define(self, table: TableDef) -> TableDef:
        """Return the table with the ENUM and SET members of the log: information_schema may show ``?`` for some."""
        logged = self._logged.get(table.full_name)
        return table if logged is None else table.with_members_of(logged)

    def take_before(self, name: str, file: str, pos: int) -> list[pa.RecordBatch]:
        """Return the same as :meth:`take`, without images that are logged at ``(file, pos)`` or later."""
        number = file_number(file)
        earlier = []
        for batch in self.take(name):
            seq = batch.column("_seq")
            files, positions = (np.asarray(pc.struct_field(seq, part)) for part in ("file", "pos"))
            earlier.append(batch.filter(pa.array((files < number) | ((files == number) & (positions < pos)))))
        return earlier

    def take(self, name: str) -> list[pa.RecordBatch]:
        """Return the images of a table that were read since the last call, in log order."""
        batches, self._waiting[name] = self._waiting[name], []
        return batches


def _by_table(block: LogBlock) -> dict[str, list[pa.RecordBatch]]:
    batches: dict[str, list[pa.RecordBatch]] = {}
    for image in block.images:
        batches.setdefault(image.table.full_name, []).append(image.batch)
    return batches


def _in_order(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Sort batches of one table and block by ``_seq``: the log may have several definitions of a table open at once."""
    if len(batches) < 2:
        return batches
    batches = [_without_dictionaries(batch) for batch in batches]
    if any(batch.schema != batches[0].schema for batch in batches):
        return batches
    whole = pa.Table.from_batches(batches)
    seq = whole.column("_seq")
    keys = pa.table({name: pc.struct_field(seq, name) for name in ("file", "pos", "ordinal")})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return list(whole.take(order).combine_chunks().to_batches())


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without ``_gtid``, and ``_absent`` as plain text: one schema for all of a definition."""
    name, text = ABSENT_FIELD.name, pa.string()
    index = batch.schema.get_field_index(name)
    if index < 0:
        batch = batch.add_column(len(META_FIELDS), pa.field(name, text), pa.nulls(batch.num_rows, text))
    else:
        batch = batch.set_column(index, pa.field(name, text), batch.column(index).cast(text))
    return batch.drop_columns(["_gtid"])
