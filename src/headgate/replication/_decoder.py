"""From segments of events to Arrow: the decoder of one dump.

Guarantee: every change of every wanted transaction in a followed table comes out exactly once, in log order, or an
error is raised: unknown events, statements in place of rows, rows that do not fit their table. A transaction counts as
received only when its last event was seen.

Row images come out as soon as their segment is decoded, before their transaction has ended. A caller that needs whole
transactions waits for the end of the range (a Spark task), or for an item that proves it (``RangeEnd``, ``Idle``).
A transaction in the log is committed. The exception, XA, is held back until its last event shows its kind, and comes
out where it is committed (:mod:`headgate.replication._xa`).

What was received, and how much of which transaction was yielded, is written together, at each flush. Between flushes
the scanner is ahead: an error there (a lookup that fails, for example) leaves both as of what was yielded.

``ordinal`` counts the changes of a transaction over *all* tables, followed or not, so that a change keeps its ``_seq``
for every choice of tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.binlog import (
    EVENT_NAMES,
    R_POS,
    R_SLOT,
    R_TXN,
    GtidFilter,
    Query,
    RowEvents,
    Scanner,
    Segment,
    Stop,
    WalkedRows,
    assign_ordinals,
    codes,
    gtid_event,
    locate_rows,
    note_counts,
    parse_query,
)
from headgate.catalog import DdlEffect, Statement, TableDef, decode_statement
from headgate.columns import PASSES_FIELD, TableCodec, filter_images
from headgate.errors import DecodeError, HeadgateError, RowFilterError, UnreadableTableError, UnsupportedError
from headgate.gtid import Gtid
from headgate.names import lower_name
from headgate.offsets import Last
from headgate.positions import Position, file_number, mixed_log_error
from headgate.replication import _statements as statements
from headgate.replication._json_updates import with_whole_documents
from headgate.replication._meta import (
    ABSENT_FIELD,
    GTID_TYPE,
    META_FIELDS,
    canonical_schema,
    gtid_array,
    op_array,
    seq_array,
)
from headgate.replication._partial import REMEDY, PartialImages
from headgate.replication._received import ReceivedTransactions, uuid_bytes
from headgate.replication._requests import FIRST_EVENT
from headgate.replication._tables import DecodeOptions, Lookups, Slot, TableSlots
from headgate.replication._types import Ddl, ImageBatch, LogBlock, Stopped, stop_reason
from headgate.replication._xa import PendingImages, Point, PreparedTransactions, parse_prepare, parse_xa_statement

__all__ = ["LogDecoder"]

_HEADER: Final = codes.HEADER_SIZE
_ROLLBACK_TO: Final = re.compile(r"ROLLBACK\s+(WORK\s+)?TO\b", re.IGNORECASE)
_IGNORED_STATEMENTS: Final = ("SAVEPOINT", "RELEASE SAVEPOINT")


class LogDecoder:
    """Decoder of the segments of one dump.

    :param wanted: the part of the log to decode.
    :param inside: True: those in ``wanted``; False: all others.
    :param skip: key of a transaction and the number of its changes that were yielded before a reconnect.
    :param prepared: the prepared XA transactions, whose rows come out where they are committed. None: rows come out
        where they are logged, committed or not.
    """

    def __init__(
        self,
        wanted: Position,
        options: DecodeOptions,
        lookups: Lookups | None = None,
        *,
        inside: bool = True,
        skip: tuple[Gtid, int] | None = None,
        prepared: PreparedTransactions | None = None,
    ) -> None:
        # Where no transaction should have a GTID, one with a GTID is also wanted, so that it is not skipped silently.
        self._scanner = Scanner(GtidFilter.build(*wanted.as_arrays(), inside=inside and wanted.has_gtids))
        self._wanted, self._inside = wanted, inside
        self._options = options
        lookups = lookups or Lookups()
        self._tables = TableSlots(options, lookups.definition_of)
        self._file = ""
        self._first_file: str | None = None
        """The file of the first transaction received."""
        self._partial = PartialImages(lookups.defaults_of)
        self._lower_case = lookups.lower_case
        self._received = ReceivedTransactions(wanted)
        self._skip = skip
        self._continued = 0
        self._unfinished: tuple[Gtid, int] | None = None
        self._prepared = prepared
        self._pending: PendingImages | None = None
        self._stops: list[Stopped] = []
        self.changes = 0
        """Number of changes met so far in wanted transactions, of all tables."""
        self.end: tuple[str, int] | None = None
        """File and position behind the last transaction received."""
        self._reached: tuple[str, int] | None = None

    @property
    def received_count(self) -> int:
        """Number of transactions received whole."""
        return self._received.count

    @property
    def last(self) -> Last | None:
        """The last of them; None in a log without GTIDs."""
        return self._received.last if self._wanted.has_gtids else None

    @property
    def first(self) -> Last | None:
        """The first of them in a log without GTIDs, if the dump has met one file since; else None.

        A server keeps a file open while it sends it. So all of them are of that transaction's history, even if the log
        is reset meanwhile.
        """
        return self._received.first if self._first_file == self._file and not self._wanted.has_gtids else None

    def received(self) -> Position:
        """Return what was received whole."""
        ends = [self.end] if self._unfinished is not None else [self.end, self._reached]
        positions = [(file_number(end[0]), end[1]) for end in ends if end is not None]
        return self._wanted.received(self._received.gtids, max(positions, default=None))

    def advance_to(self, file: str, pos: int) -> None:
        """Note that the dump has reached this position."""
        self._reached = (file, pos)

    def unfinished(self) -> tuple[Gtid, int] | None:
        """Return the open transaction's key and how many of its changes were yielded, for ``skip``. Both are of the
        last flush, as :meth:`received`.
        """
        return self._unfinished

    def _note_yielded(self, count: int) -> None:
        """Record that so many changes of the open transaction were yielded, if not more before a reconnect."""
        self._unfinished = None
        if self._scanner.open:
            key = self._key()
            before = self._skip[1] if self._skip is not None and self._skip[0] == key else 0
            self._unfinished = key, max(count, before)

    def _key(self) -> Gtid:
        """Return the open transaction's key."""
        transactions, index = self._scanner.transactions(), self._scanner.current
        uuid = uuid_bytes(transactions.hi[index], transactions.lo[index])
        return Gtid(uuid, self._scanner.tags[int(transactions.tag[index])], int(transactions.number[index]))

    def decode(self, segment: Segment) -> Iterator[LogBlock | Ddl | Stopped]:
        """Yield everything in the segment. It must be decoded before the segment's buffer is used again."""
        if segment.file != self._file:
            self._file = segment.file
            if self._tables.nameless:
                self._scanner.forget_tables()
        first = 0
        while True:
            stop = self._scanner.scan(segment, first)
            if stop is None:
                break
            yield from self._settle(segment, stop)
            first = stop.event_index + 1 if stop.kind != codes.TABLE_MAP else stop.event_index
        yield from self._flush(segment)
        self.advance_to(segment.file, int(segment.next_pos[-1]))
        if self._tables.is_full and not self._scanner.open:
            self._scanner.forget_tables()
            self._tables.forget_ids()

    # --- row images -----------------------------------------------------------------------------------------------

    def _flush(self, segment: Segment) -> Iterator[LogBlock | Stopped]:
        """Yield what the scanner has gathered, as a block."""
        if not self._wanted.has_gtids and (self._scanner.transactions().tag == 0).any():
            raise mixed_log_error(with_gtid=True, file=segment.file)
        block = self._block(segment)
        block.whole = not self._scanner.open
        self._note_done(segment)
        yield from self._stops
        self._stops.clear()
        if block.images:
            if self._pending is not None:
                self._pending.add(block, self._continued)
            else:
                yield block

    def _block(self, segment: Segment) -> LogBlock:
        events = self._scanner.row_events()
        carried = self._continued
        if not events.events:
            self._continued = carried if self._scanner.current == 0 else 0
            return LogBlock([])
        numbers, txn = events.table[R_SLOT], events.table[R_TXN]
        used = [(self._tables.slots[s], np.flatnonzero(numbers == s)) for s in np.unique(numbers).tolist()]
        counts = np.zeros(events.events, np.int64)
        alone = len(used) == 1 and used[0][0].table is not None
        for slot, which in used:
            if slot.walker is not None and not alone:
                self._walking(segment, slot, events, which, counts)
        images = [
            image
            for slot, which in used
            if slot.codec
            for image in self._images(segment, slot, slot.codec.table, events, which, counts, carried)
        ]
        _, counted = assign_ordinals(txn, counts, carried)
        self.changes += int(counts.sum())
        current = self._scanner.current
        self._continued = counted if current == txn[-1] else carried if current == 0 else 0
        return LogBlock(images, segment.file)

    def _walking(self, segment: Segment, slot: Slot, events: RowEvents, which: Any, counts: Any) -> None:
        assert slot.walker is not None
        try:
            slot.walker.count(segment.buf, events, which, counts)
        except ValueError as error:
            raise _damaged(error, slot, segment, events.table[R_POS, which[0]]) from None

    def _images(
        self, segment: Segment, slot: Slot, table: TableDef, events: RowEvents, which: Any, counts: Any, carried: int
    ) -> Iterator[ImageBatch]:
        """Yield one table's batches. If one cannot be read, stop the table: yield only the batches before it."""
        try:
            for batch in self._batches(segment, slot, events, which, counts, carried):
                yield ImageBatch(table, batch)
        except UnreadableTableError as error:
            if self._options.ambiguous == "raise":
                raise
            slot.stop(stop_reason(error, slot.name))
            self._walking(segment, slot, events, which, counts)  # all of its changes count, decoded or not
            self._stops.append(
                Stopped(slot.name, str(slot.stopped), error.gtid or "", segment.file, int(error.fields["pos"]))
            )

    def _batches(
        self, segment: Segment, slot: Slot, events: RowEvents, which: Any, counts: Any, carried: int
    ) -> Iterator[pa.RecordBatch]:
        """Walk and decode one table's events; ``counts`` (int64): the changes of all events before those walked."""
        assert slot.walker is not None
        cursor = slot.walker.start()
        while cursor[0] < len(which):
            try:
                walked = slot.walker.walk(segment.buf, events, which, cursor)
            except ValueError as error:
                raise _damaged(error, slot, segment, events.table[R_POS, which[int(cursor[0])]]) from None
            note_counts(walked, counts)
            if walked.block.rows:
                starts, _ = assign_ordinals(events.table[R_TXN], counts, carried)
                batch = self._batch(segment, slot, events, walked, starts)
                if batch.num_rows:
                    yield batch

    def _batch(
        self, segment: Segment, slot: Slot, events: RowEvents, walked: WalkedRows, starts: Any
    ) -> pa.RecordBatch:
        assert slot.codec is not None
        transactions = self._scanner.transactions()
        txn, pos, ordinal, commit_us = locate_rows(walked, events, starts, transactions.commit_us)
        schema, absent = slot.schema, None
        try:
            if walked.differences.shape[1] and slot.table is not None:
                walked = with_whole_documents(walked, slot.table, slot.codec.places, pos)
            columns = slot.codec.from_log(walked.block)
            if walked.partial and slot.table is not None:
                columns, absent = self._partial.complete(slot.table, slot.codec, walked, columns, segment.file, pos)
            passes = self._passes(slot.codec, walked)
            slot.codec.check_key(columns, passes)
        except HeadgateError as error:
            row = error.fields.pop("row", 0)
            where: dict[str, Any] = {"table": slot.name, "file": segment.file, "pos": int(pos[row])}
            if self._wanted.has_gtids:
                where["gtid"] = self._gtids(txn)[row].as_py()
            error.fields = {**where, **error.fields}
            raise error from None
        gtid = self._gtids(txn)
        meta = [
            op_array(walked.op),
            seq_array(self._options.epoch, file_number(segment.file), pos, ordinal),
            gtid,
            pa.array(commit_us).view(META_FIELDS[3].type),
        ]
        if absent is not None and schema is not None:
            meta.append(absent)
            schema = schema.insert(len(META_FIELDS), ABSENT_FIELD)
        batch = pa.RecordBatch.from_arrays([*meta, *columns], schema=schema)
        if passes is None:
            return self._without_skipped(batch, txn, ordinal, transactions)
        marked = self._without_skipped(batch.append_column(PASSES_FIELD, passes), txn, ordinal, transactions)
        if self._options.rows == "mark":
            return marked
        last = marked.num_columns - 1
        return filter_images(marked.remove_column(last), marked.column(last))

    @staticmethod
    def _passes(codec: TableCodec, walked: WalkedRows) -> pa.BooleanArray | None:
        """Return which images pass the table's ``rows``; None: all do.

        :raises RowFilterError: an image leaves columns out.
        """
        if codec.row_codec is None:
            return None
        if walked.partial:
            raise RowFilterError(f"`rows` needs whole row images to tell which rows pass: {REMEDY}")
        return codec.row_codec.from_log(walked.block)

    def _gtids(self, txn: Any) -> pa.Array:
        """Return the GTIDs of transactions of this scan, by their indexes; null in a log without GTIDs."""
        if not self._wanted.has_gtids:
            return pa.nulls(len(txn), GTID_TYPE)
        return gtid_array(self._scanner.transactions(), self._scanner.tags, txn)

    def _without_skipped(self, batch: pa.RecordBatch, txn: Any, ordinal: Any, transactions: Any) -> pa.RecordBatch:
        """Leave out what was yielded before a reconnect."""
        if self._skip is None:
            return batch
        key, count = self._skip
        words = np.frombuffer(key.uuid, "<u8")
        same = (transactions.hi == words[0]) & (transactions.lo == words[1]) & (transactions.number == key.number)
        same &= np.array([self._scanner.tags[t] == key.tag for t in transactions.tag], bool)
        drop = same[txn] & (ordinal < count)
        return batch.filter(pa.array(~drop)) if drop.any() else batch

    def _note_done(self, segment: Segment) -> None:
        transactions = self._scanner.transactions()
        done = np.flatnonzero(transactions.done == 1)
        if len(done):
            self._received.add(transactions, done, self._scanner.tags)
            self._first_file = self._first_file or segment.file
            self.end = (segment.file, self._scanner.next_pos)
        self._scanner.clear()
        self._note_yielded(0 if self._pending is not None else self._continued)

    # --- events that the scanner does not settle ------------------------------------------------------------------

    def _settle(self, segment: Segment, stop: Stop) -> Iterator[LogBlock | Ddl | Stopped]:
        """Handle an event; an error in it has its file and position."""
        try:
            yield from self._event(segment, stop)
        except HeadgateError as error:
            error.fields.setdefault("file", segment.file)
            error.fields.setdefault("pos", int(segment.pos[stop.event_index]))
            raise

    def _event(self, segment: Segment, stop: Stop) -> Iterator[LogBlock | Ddl | Stopped]:
        body = segment.buf[
            int(segment.start[stop.event_index]) + _HEADER : int(segment.end[stop.event_index])
        ].tobytes()
        if stop.kind == codes.TABLE_MAP:
            yield from self._table_map(segment, stop, body)
        elif stop.kind in (codes.QUERY, codes.EXECUTE_LOAD_QUERY):
            query = parse_query(body, load_data=stop.kind == codes.EXECUTE_LOAD_QUERY)
            yield from self._query(segment, stop, query)
        elif stop.kind in (codes.ANONYMOUS_GTID, codes.GTID_TAGGED):
            self._begin(segment, stop)
        elif stop.kind == codes.XA_PREPARE:
            yield from self._xa_prepare(segment, stop, body)
        else:
            self._refuse(segment, stop)

    def _begin(self, segment: Segment, stop: Stop) -> None:
        """Begin a transaction with a tagged GTID, or one without a GTID."""
        event = gtid_event(segment, stop.event_index)
        key = self._wanted.key_of(event.gtid, file_number(segment.file), event.pos)
        self._scanner.begin(key, event.commit_us, wanted=(key in self._wanted) == self._inside)

    def _table_map(self, segment: Segment, stop: Stop, body: bytes) -> Iterator[Stopped]:
        pos = int(segment.pos[stop.event_index])
        table_id, rest, slot = self._tables.register(body, segment.file, pos)
        self._scanner.register_table(table_id, rest, slot)
        registered = self._tables.slots[slot]
        if registered.stopped is not None:
            gtid = self._gtid() or ""
            yield Stopped(registered.name, registered.stopped, gtid, segment.file, pos, registered.unknown)

    def _where(self, segment: Segment, stop: Stop) -> dict[str, Any]:
        return {"file": segment.file, "pos": int(segment.pos[stop.event_index]), "gtid": self._gtid()}

    def _gtid(self) -> str | None:
        if not self._scanner.open:
            return None
        gtid: str | None = self._gtids(np.array([self._scanner.current], np.int64))[0].as_py()
        return gtid

    def _refuse(self, segment: Segment, stop: Stop) -> None:
        """Raise for an event that must not be skipped, unless its own flag permits it."""
        where = self._where(segment, stop)
        if stop.kind == codes.INCIDENT:
            raise DecodeError(
                "the server reports an incident: changes are missing from its log; read the tables again", **where
            )
        if segment.flags(stop.event_index) & codes.FLAG_IGNORABLE:
            return
        name = EVENT_NAMES.get(stop.kind, "unknown")
        raise UnsupportedError(
            f"the log holds an event of type {stop.kind} ({name}), which headgate does not read", **where
        )

    # --- statements -----------------------------------------------------------------------------------------------

    def _query(self, segment: Segment, stop: Stop, query: Query) -> Iterator[LogBlock | Ddl | Stopped]:
        where = self._where(segment, stop)
        try:
            full_text = decode_statement(query.statement, query.collation)
        except UnsupportedError as error:
            error.fields.update(where)
            raise
        text = full_text.lstrip()
        if text.upper().startswith(_IGNORED_STATEMENTS):
            return
        statement = self._parse(full_text, query)
        if segment.flags(stop.event_index) & codes.FLAG_THREAD_SPECIFIC:
            statement = statements.without_temporary_tables(statement, query)
        if statement.kind == "xa":
            yield from self._xa_statement(segment, stop, text, where)
            return
        yield from self._flush(segment)
        ends = not self._scanner.has_explicit_begin and not statement.starts_transaction
        if statement.kind == "transaction" and text.upper().startswith("ROLLBACK"):
            statements.check_rollback(self._continued, where)
            ends = _ROLLBACK_TO.match(text) is None
        yield from self._statement(statement, query, full_text, where)
        if ends:
            self._scanner.end_transaction(int(segment.next_pos[stop.event_index]))
            yield from self._flush(segment)

    def _parse(self, text: str, query: Query) -> Statement:
        """Parse a statement, with names as the server stores them and table maps show them."""
        statement = statements.parse(text, query)
        names = {name for e in statement.effects for name in (e.db, e.table, e.new_db or "", e.new_table or "")}
        if all(name == lower_name(name) for name in names) or not self._lower_case():
            return statement
        return statements.parse(text, query, lower_case_names=True)

    def _statement(
        self, statement: Statement, query: Query, text: str, where: dict[str, Any]
    ) -> Iterator[LogBlock | Ddl]:
        tables = self._options.tables
        if statement.kind == "unknown":
            statements.check_unknown(query, self._shown(text), tables, where)
        if statement.kind == "dml":
            statements.check_change(query, self._shown(text), tables, where)
        if statement.copies_rows:
            statements.check_copy(statement, query, self._shown(text), tables, where)
        for number, effect in enumerate(statement.effects):
            yield from self._effect(number, effect, text, where)

    def _shown(self, text: str) -> str:
        """Return a statement for an error."""
        hides = self._options.policies.hides_values
        return "not shown, because [columns] has masks" if hides else statements.shorten(text)

    def _effect(self, number: int, effect: DdlEffect, text: str, where: dict[str, Any]) -> Iterator[LogBlock | Ddl]:
        tables = self._options.tables
        new_name = f"{effect.new_db}.{effect.new_table}" if effect.new_table else None
        if effect.action == "drop_database":
            if tables.may_match(effect.db):
                yield self._ddl("drop_database", text, effect.db, "*", where, number)
            return
        followed = tables.matches(effect.db, effect.table)
        if not followed and not (new_name and tables.matches(str(effect.new_db), str(effect.new_table))):
            return
        if any("\udc80" <= letter <= "\udcff" for letter in f"{effect.db}.{effect.table}.{new_name}"):
            raise DecodeError("a statement's name of a table is not UTF-8, as all names in the log are", **where)
        if effect.action == "truncate":
            yield LogBlock([self._truncate(effect.db, effect.table, where)], where["file"])
            return
        ddl = self._ddl(effect.action, text, effect.db, effect.table, where, number, new_name)
        yield replace(ddl, changes=effect.changes, renames=effect.renames)

    def _ddl(
        self,
        action: str,
        text: str,
        db: str,
        table: str,
        where: dict[str, Any],
        number: int,
        new_name: str | None = None,
    ) -> Ddl:
        return Ddl(
            statements.readable(text), action, db, table, where["gtid"], self._commit_us(), where["file"],
            file_number(where["file"]), where["pos"], number, new_name,
        )  # fmt: skip

    def _commit_us(self) -> int:
        return int(self._scanner.transactions().commit_us[self._scanner.current]) if self._scanner.open else 0

    def _truncate(self, db: str, table: str, where: dict[str, Any]) -> ImageBatch:
        """Return a ``t`` image: meta columns only."""
        definition = TableDef(db, table, (), ())
        one = np.array([0], np.int64)
        arrays = [
            pa.array(["t"]),
            seq_array(self._options.epoch, file_number(where["file"]), one + where["pos"], one),
            pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([where["gtid"]], pa.string())),
            pa.array([self._commit_us()], pa.int64()).cast(META_FIELDS[3].type),
        ]
        return ImageBatch(definition, pa.RecordBatch.from_arrays(arrays, schema=canonical_schema(definition, ())))

    # --- XA -------------------------------------------------------------------------------------------------------

    def _xa_statement(
        self, segment: Segment, stop: Stop, text: str, where: dict[str, Any]
    ) -> Iterator[LogBlock | Stopped]:
        """Handle an XA statement: START opens a transaction, COMMIT and ROLLBACK end an earlier one."""
        parsed = parse_xa_statement(text)
        if not self._wanted.requests_transactions:
            raise UnsupportedError("XA transactions need GTIDs: SET GLOBAL gtid_mode = ON, step by step", **where)
        if parsed is None:
            raise UnsupportedError(
                "the log holds an XA statement that headgate cannot read", statement=statements.shorten(text), **where
            )
        verb, xid = parsed
        if verb == "END":
            return
        yield from self._flush(segment)
        if verb in ("START", "BEGIN"):
            if self._prepared is not None:
                position = (
                    self.end if self.end is not None and self.end[0] == segment.file else (segment.file, FIRST_EVENT)
                )
                self._pending = self._prepared.buffer(position)
            self._scanner.note_explicit_begin()
            return
        if self._prepared is not None:
            if verb == "COMMIT":
                point = Point(where["gtid"], self._commit_us(), where["file"], where["pos"])
                yield from self._read_before(self._prepared.committed(xid, point))
            self._prepared.forget(xid)
        self._scanner.end_transaction(int(segment.next_pos[stop.event_index]))
        yield from self._flush(segment)

    def _xa_prepare(self, segment: Segment, stop: Stop, body: bytes) -> Iterator[LogBlock | Stopped]:
        """Handle the end of a transaction that began with XA START: prepared, or committed in one phase."""
        yield from self._flush(segment)
        pending, self._pending = self._pending, None
        if pending is not None and self._prepared is not None:
            gtid = self._gtid() or ""
            one_phase, xid = parse_prepare(body)
            if not one_phase:
                self._prepared.remember(xid, gtid, pending)
            elif pending.blocks is not None:
                yield from (block for block, _ in pending.blocks)
            else:
                yield from self._read_before(self._prepared.read_prepared(gtid, pending.position))
        self._scanner.end_transaction(int(segment.next_pos[stop.event_index]))
        yield from self._flush(segment)

    def _read_before(self, items: Iterator[tuple[LogBlock | Stopped, int]]) -> Iterator[LogBlock | Stopped]:
        """Yield the open transaction's images that were not read from this dump, except those yielded already."""
        first = 0 if self._unfinished is None else self._unfinished[1]
        for item, counted in items:
            self._note_yielded(counted)
            if isinstance(item, Stopped):
                yield item
                continue
            batches = [image.from_ordinal(first) for image in item.images]
            images = [image for image in batches if image.batch.num_rows]
            if images:
                yield LogBlock(images, item.file)


def _damaged(error: ValueError, slot: Slot, segment: Segment, pos: int) -> DecodeError:
    """Return the error for a row event with bytes that do not fit its table."""
    return DecodeError(str(error), table=slot.name, file=segment.file, pos=int(pos))
