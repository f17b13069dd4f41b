"""``current``: one Delta table per source table, one row per key, equal to the source as of the batch's E.

Tables without a key have an argument of their own: ``_keyless``. What follows is about the others.

What a batch does to a table, in this order, each step one Delta commit:

1. create it, or replace it (a re-read whose columns changed), or add columns and fill them in rows of older epochs;
2. delete what a TRUNCATE cleared: rows whose ``_seq`` is below the statement's; and, from a table that takes images
   again, what an attempt has left whose batch then brought no rows (``Work.strays``);
3. append chunks, under Delta's transaction marker (application, epoch): those of a first read, and those in whose
   range of keys the table holds nothing;
4. upsert the last image of each key, guarded by ``_seq``: by key index and deletion vectors where that can be
   (``headgate.lake.Upserts``), else by a MERGE; where images leave columns out, completed by the table as it was before
   the batch (``_partial``, ``_complete``);
5. after the last chunk of a re-read, delete what was not seen since it began: each row that exists at the source was
   either read again or changed since, so its ``_seq.epoch`` is at least the re-read's first.

**Why a replay is safe.** A replay brings the same images under the same epoch; file and position may differ (another
server). 1 is decided by comparing with the table; 2 deletes rows of older epochs, or older ones of its own batch,
which 4 brings back; 3 is skipped by its marker; in 4 a row of this epoch either stays or is set to the same image
again, and a deleted row stays deleted; 5 deletes the same rows. So whichever steps were committed before a crash, the
replay ends in the same table. With one exception: a chunk may give rows first and, when its table was altered
meanwhile, none in the replay. Then rows of the first attempt stay. They are as of the batch's end, and the changes
after it are applied to them as to any others; where the table is held, so that changes are left out, 2 deletes them
later.

**Why appends (3) and upserts (4) do not disturb each other.** In a first read the reader drops the images of ranges
that had not been read when the batch began: images and chunks of one batch are of different keys. Elsewhere an image
may be of a key that a chunk of its batch has: the chunk's row is there first, with the greater ``_seq``, so 4 leaves it
alone. Rows are appended only if the ranges of their record batches do not meet, so no key comes twice. A replay after 3
finds the rows and upserts them, each over itself. Partial images are completed together with the chunks, so beside them
all chunks are upserted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from headgate._names import quote_name
from headgate.carrier import ABSENT, DATA_COLUMN, KIND_COLUMN, TABLE_COLUMN, Definition, Part, Seq, sortable
from headgate.delta import NewColumn
from headgate.errors import DecodeError
from headgate.lake import (
    KEY,
    NO_KEY,
    NOT_LOCAL,
    PARTIAL_IMAGES,
    PIPELINE,
    TABLE,
    DeltaPath,
    Marker,
    Way,
    commit_errors,
    schema_of,
    spark_schema,
)
from headgate.sinks._complete import complete
from headgate.sinks._expand import (
    ONE_TASK_IMAGES,
    SEQ_DDL,
    append_once,
    changed_rows,
    folded_images,
    image_rows,
    last_images,
    table_ddl,
)
from headgate.sinks._keyless import ROW, ROW_DDL, apply_changes, overwrite
from headgate.sinks._policy import Target, Work
from headgate.sinks._span import KeySpan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headgate.delta import Snapshot
    from headgate.lake import Upserts

__all__ = ["CurrentTable"]

log = logging.getLogger("headgate")

SINCE = "headgate.since"
OWN_DDL = f"_seq {SEQ_DDL}, _gtid string, _ts timestamp"
OWN = ("_seq", "_gtid", "_ts")

_FIRST = (0, 0, 0)
"""File, position and ordinal: nothing of an epoch is below."""
# Where Spark writes it, a checkpoint of a table's log (Delta's default: each 10 commits) takes seconds.
_CHECKPOINT_INTERVAL = "50"


class CurrentTable:
    """The current table of one source table."""

    def __init__(
        self,
        delta: DeltaPath,
        pipeline: str,
        table: str,
        span: KeySpan | None = None,
        upserts: Upserts | None = None,
    ) -> None:
        self.delta = delta
        self.pipeline = pipeline
        self.table = table
        self.span = span or KeySpan()
        self._upserts = upserts
        self._steps = 0
        self.ways: dict[Way, str] = {}
        """After :meth:`apply`: how the batch came into the table; for a MERGE also why."""
        self.lost: str | None = None
        """After :meth:`apply`: why the table does not hold all it should, if so, and must be read again."""

    def describe(self) -> Target | None:
        """The table's columns and key; None when there is none yet. ``TargetError`` when it is not ours."""
        found = self.delta.check_ours(self.pipeline, self.table)
        if found is None:
            return None
        key = _key_of(found)
        own = own_columns(key)
        types = {f.name: f.dataType.simpleString() for f in schema_of(found).fields if f.name not in own}
        since = found.properties.get(SINCE)
        return Target(types, key, int(since) if since else None)

    def apply(self, work: Work, frame: DataFrame, epoch: int) -> int:
        """Do all of a batch's work on the table and return the version it then has."""
        definition = work.definition
        before, self._steps = self.delta.version(), 0
        if work.apply and definition is not None and self._prepare(work, definition, epoch):
            before = self.delta.version()
            self.span.begin(before, epoch)
        if work.truncated is not None and self.delta.exists():
            self._clear(work.truncated)
        if work.strays is not None and self.delta.exists():
            self._delete("_seq.epoch >= {} AND _seq.epoch < {}".format(*work.strays))
        if work.apply and definition is not None and not definition.key:
            self._count(work, definition, frame)
        elif work.apply and definition is not None:
            chunks = [part for part in work.parts if part.kind == "chunk"]
            if not work.append_chunks and not self._takes(definition, chunks, work):
                chunks = []
            merged = [part for part in work.parts if part not in chunks]
            if any(part.images for part in chunks):
                self._append(_data(frame, chunks), definition, epoch)
            if any(part.images for part in merged):
                self._merge(frame, definition, merged, work)
        after = self._grow(before, work.parts)
        if work.sweep_before is None or after < 0 or self.span.all_since(after, work.sweep_before):
            return after
        self._clear((work.sweep_before, *_FIRST))
        return self._grow(after, ())

    def _grow(self, before: int, parts: Sequence[Part]) -> int:
        """What these parts have made of the table that was at version ``before``: the version that it has now."""
        after = self.delta.version()
        self.span.grow(before, after if after - before <= self._steps else -1, parts)
        self._steps = 0
        return after

    def _prepare(self, work: Work, definition: Definition, epoch: int) -> bool:
        """Make the table fit the definition; whether it is a new one."""
        if work.replace or not self.delta.exists():
            properties = {
                PIPELINE: self.pipeline,
                TABLE: self.table,
                KEY: json.dumps(list(definition.key), ensure_ascii=False),
                "delta.enableDeletionVectors": "true",
                "delta.checkpointInterval": _CHECKPOINT_INTERVAL,
            }
            if work.state.since_epoch is not None or work.append_chunks:
                properties[SINCE] = str(work.state.since_epoch or 0)
            own = OWN_DDL if definition.key else f"{OWN_DDL}, {ROW_DDL}"
            schema = spark_schema(f"{table_ddl(definition)}, {own}")
            self.delta.create(schema, properties, replace=work.replace)
            return True
        if work.add_columns:
            self._add_columns(definition, work.add_columns)
        if work.fills:
            self._fill(definition, work.fills, epoch)
        return False

    def _add_columns(self, definition: Definition, names: tuple[str, ...]) -> None:
        order = [column.name for column in definition.columns]
        after = dict(zip(order, ["", *order], strict=False))
        self.delta.add_columns([NewColumn(name, definition.types[name], after=after[name]) for name in names])

    def _fill(self, definition: Definition, fills: Mapping[str, str], epoch: int) -> None:
        """Set added columns to their defaults in all rows of earlier batches; those of this one bring them along."""
        if self._upserts is not None:
            from headgate.lake import Fill

            ddl = ", ".join(f"{quote_name(name)} {definition.types[name]}" for name in fills)
            done = self._upserts.fill(self.delta, Fill(fills, ddl, epoch), definition.key)
            if done is not None:
                self._steps += done
                return
        from delta.tables import DeltaTable

        values: dict[str, str | Column] = {
            quote_name(name): f"CAST('{text}' AS {definition.types[name]})" for name, text in fills.items()
        }
        with commit_errors(self.delta.path):
            DeltaTable.forPath(self.delta.spark, self.delta.path).update(f"_seq.epoch < {epoch}", values)

    def _count(self, work: Work, definition: Definition, frame: DataFrame) -> None:
        """A batch of a table without a key; see ``_keyless``."""
        if any(part.partial for part in work.parts):
            raise DecodeError("a partial row image of a table without a key", table=self.table)
        columns = [column.name for column in definition.columns]
        chunks = [part for part in work.parts if part.kind == "chunk"]
        self.ways = {Way.OVERWRITE: ""} if chunks else {Way.MERGE: NO_KEY}
        if chunks:
            overwrite(self.delta, image_rows(definition).frame(_data(frame, chunks), definition), columns)
            return
        rows = image_rows(definition).frame(_data(frame, list(work.parts)), definition).where("_op <> 't'")
        before = None if work.replace else work.state.version
        if work.truncated is not None:
            before = None
            rows = rows.where(f"_seq > {_seq_literal(work.truncated)}")
        if sum(part.images for part in work.parts) <= ONE_TASK_IMAGES:
            rows = rows.coalesce(1)
        apply_changes(self.delta, rows, columns, before=before, exact=work.exact, table=self.table)

    def _takes(self, definition: Definition, chunks: list[Part], work: Work) -> bool:
        """Whether these chunks can be appended, because the table has no row in the range of their keys.

        The table is asked only if a MERGE would follow: an upsert costs less than the question, a query of Spark.
        """
        if any(part.partial for part in work.parts) or not _apart(chunks):
            return False
        if self.span.excludes(self.delta.version(), chunks):
            return True
        if self._upserts is not None and self._upserts.takes(self.delta):
            return False
        return self.delta.read().alias("t").where(f"true{_range(definition, chunks)}").isEmpty()

    def _append(self, data: DataFrame, definition: Definition, epoch: int) -> None:
        columns = [*(column.name for column in definition.columns), *OWN]
        marker = Marker(f"headgate/{self.pipeline}/{self.table}", epoch)
        self._steps += 1
        self.ways[Way.APPEND] = ""
        append_once(self.delta, data, image_rows(definition), definition, columns, marker)

    def _merge(self, frame: DataFrame, definition: Definition, parts: list[Part], work: Work) -> None:
        data = _data(frame, parts)
        if any(part.partial for part in parts):
            self.ways[Way.MERGE] = PARTIAL_IMAGES
            self._merge_partial(data, definition, parts, work)
        elif not self._upsert(data, definition, parts, work):
            count = sum(part.images for part in parts)
            rows = last_images(data, definition, count, work.truncated, work.fills)
            self._merge_rows(rows, definition, parts)

    def _upsert(self, data: DataFrame, definition: Definition, parts: list[Part], work: Work) -> bool:
        """Do without a MERGE what it would do; False: it has to be a MERGE."""
        if self._upserts is None:
            self.ways[Way.MERGE] = NOT_LOCAL
            return False
        columns = [*(column.name for column in definition.columns), *OWN]
        changes = changed_rows(data, definition, columns, parts, work.truncated, work.fills)
        done = self._upserts.apply(self.delta, changes)
        self._steps += done or 0
        self.ways |= {Way.MERGE: self._upserts.refusal(self.delta)} if done is None else {Way.UPSERT: ""}
        return done is not None

    def _merge_rows(self, source: DataFrame, definition: Definition, parts: list[Part]) -> None:
        """``source``: whole images, at most one a key."""
        from delta.tables import DeltaTable

        columns = [*(column.name for column in definition.columns), *OWN]
        values: dict[str, str | Column] = {quote_name(name): f"s.{quote_name(name)}" for name in columns}
        condition = " AND ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in definition.key)
        condition += _range(definition, parts)
        target = DeltaTable.forPath(self.delta.spark, self.delta.path)
        merge = (
            target.alias("t")
            .merge(source.alias("s"), condition)
            .whenMatchedDelete("s._op IN ('b', 'd') AND t._seq < s._seq")
            .whenMatchedUpdate("s._op NOT IN ('b', 'd') AND t._seq < s._seq", set=values)
            .whenNotMatchedInsert("s._op NOT IN ('b', 'd')", values=values)
        )
        self._steps += 1
        with commit_errors(self.delta.path):
            merge.execute()

    def _merge_partial(self, data: DataFrame, definition: Definition, parts: list[Part], work: Work) -> None:
        """Images that leave columns out; see ``_partial`` and ``_complete``."""
        base = None
        if not work.replace and work.truncated is None and work.state.version is not None:
            base = self.delta.read(work.state.version).alias("t").where(f"true{_range(definition, parts)}")
        folded = folded_images(data, definition, work.truncated, work.fills)
        small = sum(part.images for part in parts) <= ONE_TASK_IMAGES
        rows = complete(folded, base, definition, work.fills, small=small).persist()
        try:
            ignored, moved = rows.selectExpr(
                "count_if(_absent.ignored)", "count_if(_absent.ignored AND (_absent.moved))"
            ).collect()[0]
            self._tell(work, ignored, moved)
            self._merge_rows(rows.where("_op IS NOT NULL").drop(ABSENT), definition, parts)
        finally:
            rows.unpersist()

    def _tell(self, work: Work, ignored: int, moved: int) -> None:
        if ignored:
            level = logging.WARNING if work.exact else logging.INFO
            log.log(level, "%s: updates of %d rows that the table does not hold were ignored", self.table, ignored)
        if moved and (work.midway or work.exact):
            self.lost = "a key was changed by a partial row image, and the table has no row at its old key"

    def _clear(self, bound: Seq) -> None:
        """Delete the rows whose ``_seq`` is below."""
        key = _key_of(self.delta.snapshot())
        done = self._upserts.clear(self.delta, bound, key) if self._upserts is not None else None
        if done is None:
            self._delete(f"_seq.epoch < {bound[0]}" if bound[1:] == _FIRST else f"_seq < {_seq_literal(bound)}")
        else:
            self._steps += done

    def _delete(self, condition: str) -> None:
        from delta.tables import DeltaTable

        self._steps += 1
        with commit_errors(self.delta.path):
            DeltaTable.forPath(self.delta.spark, self.delta.path).delete(condition)


def _key_of(table: Snapshot) -> tuple[str, ...]:
    """The key's columns, as the table's properties have them."""
    return tuple(json.loads(table.properties.get(KEY) or "[]"))


def own_columns(key: Sequence[str]) -> tuple[str, ...]:
    """The columns that headgate adds to a current table with this key."""
    return OWN if key else (*OWN, *ROW)


def _data(frame: DataFrame, parts: list[Part]) -> DataFrame:
    """The images of ``parts`` (of one table) in the carrier frame, as one binary column."""
    from pyspark.sql import functions

    kinds = sorted({part.kind for part in parts})
    mine = (functions.col(TABLE_COLUMN) == parts[0].table) & functions.col(KIND_COLUMN).isin(*kinds)
    return frame.where(mine).select(DATA_COLUMN)


def _seq_literal(seq: Seq) -> str:
    epoch, file, pos, ordinal = seq
    return f"named_struct('epoch', {epoch}L, 'file', {file}, 'pos', {pos}L, 'ordinal', {ordinal}L)"


def _apart(chunks: list[Part]) -> bool:
    """Whether there are rows, and no two record batches of them can hold the same key."""
    bounds = [(sortable(low), sortable(high)) for part in chunks for low, high in part.bounds]
    known = bool(bounds) and not any(part.unbounded for part in chunks)
    return known and all(before[1] < after[0] for before, after in pairwise(sorted(bounds)))


def _range(definition: Definition, parts: list[Part]) -> str:
    """A condition on the target that holds for every matching row and lets Delta skip files by their statistics."""
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    if not lows or any(part.unbounded for part in parts):
        return ""
    kind = definition.types[definition.key[0]]
    zone = "Z" if kind == "timestamp" else ""
    low, high = min(lows, key=sortable), max(highs, key=sortable)
    name = f"t.{quote_name(definition.key[0])}"
    return f" AND {name} >= CAST('{low}{zone}' AS {kind}) AND {name} <= CAST('{high}{zone}' AS {kind})"
