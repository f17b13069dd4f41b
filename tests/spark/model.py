"""A source, a control folder and a sink in memory: enough for the planner to live through anything a test can think of.

The source has a log of whole transactions, one after another, and tables with one integer key. The sink does what a
lake does with a batch: appends or merges chunks, folds images, sweeps after a re-read, and tells the planner by way
of the control folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headgate.carrier import (
    DATA_COLUMN,
    ControlFile,
    End,
    Message,
    ReadingProgress,
    SinkTables,
    Trouble,
    Waiting,
    encode,
    sent_at,
)
from headgate.catalog import Column, TableDef, TablePatterns, TableStats, exact_patterns
from headgate.control import BatchFacts, Notification, OpenSnapshots, batch_notifications
from headgate.errors import (
    DefiniteServerError,
    HeadgateError,
    HistoryRewrittenError,
    ServerBehindError,
    ServerSettingError,
)
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Hint, SourceOffset
from headgate.positions import Position, parse_position
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, TransactionHeader, canonical_schema, seq_array
from headgate.spark import Options, Planner, ServerState, Task, Unread

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
Row = tuple[int, int]
Image = tuple[str, int, int, int]
"""Operation, key, value, transaction number."""


def gtids(last: int, first: int = 1) -> GtidSet:
    """Transactions ``first`` to ``last`` of the source."""
    return GtidSet.parse(f"{UUID}:{first}-{last}") if last >= first else GtidSet()


def numbers_of(part: Position) -> list[int]:
    """The transactions of a part of the log."""
    return [number for *_, first, last in part.intervals() for number in range(first, last + 1)]


@dataclass
class Clock:
    """Time that passes only in calls of sleep."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wall_us(self) -> int:
        return int(self.now * 1e6)


@dataclass
class FakeServer:
    """The planner's view of a server whose whole life is a list of transactions."""

    states: list[dict[str, dict[int, int]]] = field(default_factory=lambda: [{}])
    log: list[list[tuple[str, str, int, int]]] = field(default_factory=list)
    """Per transaction: (table, op, key, value)."""
    per_file: int = 5
    uuid: str = UUID
    purged_to: int = 0
    refuses: ServerSettingError | None = None
    """Raised for a setting that exactness rests on, wherever the planner must not go on without it."""
    commit_times: dict[int, int] = field(default_factory=dict)
    knows_original_times: bool = True
    replicates: bool = False
    probes: list[tuple[Position, Hint | None]] = field(default_factory=list)
    created_s: int = 0
    """Transactions whose headers were read, and where the read began."""
    key_type: str = "int"
    row_bytes: int = 0
    """What each row takes, by the server's statistics; 0: unknown."""
    connection_number: int = 0
    query_count: int = 0
    fails: list[Exception] = field(default_factory=list)
    position: Callable[..., Position] = gtids
    """The position after a transaction; from a first one on."""
    part_end: int = 0
    """Up to this transaction the log that is read is another server's."""
    hidden: set[str] = field(default_factory=set)
    """Tables that the account cannot see."""
    watermarks: list[tuple[str, str, int]] = field(default_factory=list)
    """Table and data of each, and how many transactions there were."""

    # --- life

    def create(self, table: str, keys: set[int] | None = None) -> None:
        """A table with rows that were always there."""
        for state in self.states:
            state[table] = dict.fromkeys(keys or (), 0)

    def commit(self, *changes: tuple[str, str, int, int]) -> None:
        """One transaction of (table, "put" | "del" | "move", key, value or new key)."""
        state = {table: dict(rows) for table, rows in self.states[-1].items()}
        number, images = len(self.log) + 1, []
        for table, op, key, value in changes:
            rows = state.setdefault(table, {})
            if op == "del":
                if key in rows:
                    images.append((table, "d", key, rows.pop(key)))
            elif op == "move":
                if key in rows and value not in rows:
                    images += [(table, "b", key, rows.pop(key)), (table, "u", value, number)]
                    rows[value] = number
            elif key in rows:
                images += [(table, "b", key, rows[key]), (table, "u", key, number)]
                rows[key] = number
            else:
                images.append((table, "c", key, number))
                rows[key] = number
        self.states.append(state)
        self.log.append(images)

    def rows(self, table: str, at: int | None = None) -> dict[int, int]:
        """The table after transaction ``at`` (default: now)."""
        return self.states[-1 if at is None else at].get(table, {})

    # --- the planner's questions

    def _ask(self) -> None:
        self.query_count += 1
        if self.fails:
            raise self.fails.pop(0)

    def executed(self) -> Position:
        self._ask()
        return self.position(len(self.log))

    def state(self, *, whole: bool = False) -> ServerState:
        executed = self.position(len(self.log))
        return ServerState(self.identity(), executed, self.position(self.purged_to))

    def identity(self) -> str:
        self._ask()
        if self.refuses is not None:
            raise self.refuses
        return self.uuid

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        names = [table for table in self.states[-1] if patterns.matches(*table.split(".")) and table not in self.hidden]
        counts = {table: len(self.rows(table)) for table in names}
        return {table: TableStats("InnoDB", count, count * self.row_bytes) for table, count in counts.items()}

    def definition(self, table: str) -> TableDef | None:
        return self.definitions(exact_patterns([table])).get(table)

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        return {table: definition(table, self.key_type) for table in self.tables(patterns)}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self._ask()
        if "STATISTICS" in sql:
            return [(int(b"id".hex() in sql.lower()),)]
        if "LIMIT 0" in sql:
            if "nonsense" in sql:
                raise DefiniteServerError("Unknown column 'nonsense' in 'where clause'", code=1054)
            return []
        db, name = re.findall(r"FROM `(\w+)`\.`(\w+)`", sql)[0]
        low, high = re.search(r"`id` > (-?\d+)", sql), re.search(r"`id` <= (-?\d+)", sql)
        offset = int(re.findall(r"OFFSET (\d+)", sql)[0])
        keys = [
            k for k in self.rows(f"{db}.{name}") if (not low or k > int(low[1])) and (not high or k <= int(high[1]))
        ]
        keys.sort(reverse="DESC" in sql)
        wanted = re.search(r"AND \(((?:(?!`id`).)*)\) ORDER", sql)
        if wanted:
            keys = [key for key in keys if _fulfils(wanted[1], self.rows(f"{db}.{name}")[key])]
        return [(str(keys[offset]),)] if offset < len(keys) else []

    def reach(self, had: Position, end: Position) -> Position:
        return self.position(min(end.count(), self.part_end)) if had.count() < self.part_end else end

    def reads_windows(self, end: Position) -> bool:
        return end.count() >= self.part_end

    def log_uuid(self, had: Position, end: Position) -> str | None:
        return OTHER if had.count() < self.part_end else None

    def log_file(self) -> str:
        return f"binlog.{len(self.log) // self.per_file + 1:06d}"

    def log_files(self) -> list[tuple[str, int]]:
        last = len(self.log) // self.per_file
        return [(f"binlog.{n + 1:06d}", 1000) for n in range(self.purged_to // self.per_file, last + 1)]

    def previous_gtids(self, file: str) -> Position:
        return self.position((int(file[-6:]) - 1) * self.per_file)

    def cut(self, had: Position, executed: Position, rows: int, hint: Hint | None) -> Position:
        last, changes = had.count(), 0
        while last < executed.count() and changes < rows:
            changes += len(self.log[last])
            last += 1
        return self.position(last)

    def start_position(self, start: str) -> Position:
        return parse_position(start)

    def headers(self, part: Position, hint: Hint | None) -> list[TransactionHeader]:
        self.probes.append((part, hint))
        numbers = numbers_of(part)
        if any(number <= self.purged_to for number in numbers):
            return []
        return [
            TransactionHeader(
                self.position(number, number),
                self.commit_times.get(number, number * 1000),
                self.knows_original_times,
                self.uuid,
                f"binlog.{(number - 1) // self.per_file + 1:06d}",
                4 + number,
                self.created_s,
            )
            for number in numbers
        ]

    def last_header(self, header: TransactionHeader, executed: Position, wanted: Position) -> TransactionHeader:
        self.probes.append((wanted, header.hint))
        assert wanted <= executed
        return header  # its log is in the order of the numbers

    def missing_error(self, missing: Position, *, server_uuid: str, had_them: bool, behind: str) -> HeadgateError:
        rewritten = had_them and not self.replicates
        return HistoryRewrittenError("lost") if rewritten else ServerBehindError(behind, missing=str(missing))

    def commit_watermark(self, table: str, data: str) -> None:
        self.watermarks.append((table, data, len(self.log)))

    def drop(self) -> None:
        self.connection_number += 1


def definition(table: str, key_type: str = "int") -> TableDef:
    """``id`` is the key, ``v`` the value."""
    db, _, name = table.partition(".")
    return TableDef(db, name, (Column("id", key_type), Column("v", "int")), key=(0,))


def as_json(message: Message) -> dict[str, Any]:
    """A message that is JSON on the wire."""
    value: dict[str, Any] = json.loads(encode(message)[DATA_COLUMN][0].as_py())
    return value


def readings_of(header: dict[str, Any]) -> dict[str, ReadingProgress]:
    return {table: ReadingProgress(**one) for table, one in header["readings"].items()}


@dataclass
class FakeControl:
    """The control folder in memory."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: list[tuple[int, int, bool]] = field(default_factory=list)
    waiting_until_us: int | None = None
    waits: bool = False
    """Whether the last report of the planner is still there."""

    def hint(self) -> End | None:
        return End(**self.files["hint"]) if "hint" in self.files else None

    def sink_tables(self) -> SinkTables:
        return SinkTables.of(self.files.get("finished", {}))

    def has_moved(self, epoch: int, planned_us: int) -> bool:
        return self.files.get("moved") == {"epoch": epoch, "planned_us": planned_us}

    def record_moved(self, epoch: int, planned_us: int) -> None:
        self.files["moved"] = {"epoch": epoch, "planned_us": planned_us}

    def signals(self) -> dict[str, Mapping[str, Any]]:
        files = sorted(self.files.items(), key=lambda one: (one[1].get("submitted_us", 0), one[0]))
        return {name[8:]: value for name, value in files if name.startswith("signals/")}

    def remove_signal(self, name: str) -> None:
        self.files.pop(f"signals/{name}", None)

    def record_state(self, what: Trouble | Waiting) -> None:
        if isinstance(what, Trouble):
            self.files["trouble"] = {"error": what.error, "since_us": what.since_us, "seconds": what.seconds}
        else:
            self.waiting.append((what.epoch, what.seen_us, what.paused))
            self.waiting_until_us, self.waits = what.until_us, True

    def forget(self, file: ControlFile) -> None:
        self.files.pop(file.removesuffix(".json"), None)
        self.waits = self.waits and file != ControlFile.WAITING


def partial_of(images: list[Image], absent: list[str | None]) -> ImageBatch:
    """A batch in which some images leave columns out."""
    whole = batch_of("d.t", images)
    column = pa.array(absent, pa.string()).dictionary_encode().cast(ABSENT_FIELD.type)
    return ImageBatch(whole.table, whole.batch.add_column(len(META_FIELDS), ABSENT_FIELD, column))


@dataclass
class FakeTopic:
    """A Kafka topic with one partition: messages are (key, what they say); ours have the key ``us``."""

    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    away: bool = False
    control: FakeControl = field(default_factory=FakeControl)

    def forward(self, *, wait: bool = False) -> None:
        del wait
        if self.away:
            return
        files, end = self.control.files, len(self.messages)
        for offset in range(files.get("forwarded", {"offset": end})["offset"], end):
            key, value = self.messages[offset]
            if key == "us":
                files[f"signals/kafka-t-{offset}"] = {**value, "submitted_us": 1 + offset}
        files["forwarded"] = {"offset": end}


def batch_of(table: str, images: list[Image], epoch: int = 1) -> ImageBatch:
    """Images as (op, key, value, transaction number)."""
    made = definition(table)
    fields = [pa.field("id", pa.int32()), pa.field("v", pa.int32())]
    places = pa.array([number for *_, number in images], pa.int64())
    arrays = [
        pa.array([op for op, *_ in images], pa.string()),
        seq_array(epoch, 1, places.to_numpy(), places.to_numpy()),
        pa.array([f"{UUID}:{number}" for *_, number in images], pa.string()).dictionary_encode(),
        places.cast(pa.timestamp("us", "UTC")),
        pa.array([key for _, key, _, _ in images], pa.int32()),
        pa.array([value for _, _, value, _ in images], pa.int32()),
    ]
    return ImageBatch(made, pa.RecordBatch.from_arrays(arrays, schema=canonical_schema(made, fields)))


def without_unread(log: list[Image], unread: Unread | None) -> list[Image]:
    """Images of keys that no later chunk brings; a row that moves to such a key is deleted here."""

    def is_read(key: int) -> bool:
        assert unread is not None
        return unread.started and (
            (unread.hi is not None and key <= unread.hi) or (unread.max is not None and key > unread.max)
        )

    if unread is None:
        return log
    left: list[Image] = []
    for at, (op, key, value, number) in enumerate(log):
        if is_read(key):
            left.append(("d" if op == "b" and not is_read(log[at + 1][1]) else op, key, value, number))
    return left


def _fulfils(condition: str, value: int) -> bool:
    """Conditions on v, joined by AND and OR; MySQL's spelling of them happens to be Python's but for case and =."""
    text = condition.replace(" OR ", " or ").replace(" AND ", " and ").replace(" = ", " == ")
    return bool(eval(text, {"v": value}))


@dataclass
class FakeTarget:
    """One table of the sink: key -> (value, epoch it was written in)."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    live: bool = False
    filtered: bool = False


@dataclass
class FakeSink:
    """Applies batches and hands back what rests on them."""

    server: FakeServer
    control: FakeControl
    targets: dict[str, FakeTarget] = field(default_factory=dict)
    last_epoch: int = 0
    stale: set[str] = field(default_factory=set)
    """Tables that wait to be read again: here only the planner hears of that."""
    read: dict[str, list[int]] = field(default_factory=dict)
    """Keys that chunks brought, by table."""
    open: OpenSnapshots = field(default_factory=OpenSnapshots)
    notifications: list[Notification] = field(default_factory=list)

    def apply(self, tasks: list[Task], redo: set[tuple[str, int]] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
        """Run the tasks and apply the batch. ``redo``: (table, chunk number) of chunks that give nothing."""
        (header,) = [as_json(task.header) for task in tasks if task.header is not None]
        if header["epoch"] <= self.last_epoch:
            return header
        assert header["start_epoch"] == self.last_epoch, "the ledger refuses it"
        images, chunks = self._read(tasks)
        retried: list[ChunkSpec] = []
        rows: dict[str, int] = {}
        for table in {*images, *header["tables"], *(chunk.table for chunk in chunks)}:
            info = header["tables"].get(table, {})
            target = self.targets.setdefault(table, FakeTarget())
            if info.get("first") and info["append"] and not info.get("partial"):
                assert not target.rows, "a first snapshot into a table that has rows"
            self._images(target, images.get(table, []), header["epoch"])
            mine = [chunk for chunk in chunks if chunk.table == table]
            again = [chunk for chunk in mine if (table, chunk.number) in redo]
            for chunk in mine:
                if chunk not in again:
                    count = self._chunk(target, chunk, header, append=bool(info.get("append")))
                    rows[table] = rows.get(table, 0) + count
            retried += again
            if info and not info.get("partial"):
                read = bool(info["last"]) and not again
                target.filtered = read and bool(info.get("filtered"))
                target.live = read and not target.filtered
                if read:
                    self.stale.discard(table)
                    since = info["since_epoch"]
                    target.rows = {key: row for key, row in target.rows.items() if row[1] >= since}
        for number, chunk in enumerate(retried):
            self.control.files[f"signals/redo-{header['epoch']}-{number}"] = {"type": "redo", "chunk": chunk.to_dict()}
        facts = BatchFacts(
            "p", header["epoch"], 0, header["actions"], readings_of(header), rows, {chunk.table for chunk in retried}
        )
        self.open, notifications = batch_notifications(self.open, facts)
        self.notifications += notifications
        for action in header["actions"]:
            name = action.get("file") or action["id"]
            if name in self.control.signals() and sent_at(self.control.signals()[name]) == action.get("sent_us"):
                self.control.remove_signal(name)
        self.last_epoch = header["epoch"]
        self.control.files["finished"] = {
            "tables": [name for name, target in self.targets.items() if target.live or target.filtered],
            "stale": sorted(self.stale),
        }
        self.control.files["hint"] = {
            "gtid": header["gtid"], "server_uuid": self.server.uuid, "file": self.server.log_file(), "pos": 4,
        }  # fmt: skip
        return header

    def _read(self, tasks: list[Task]) -> tuple[dict[str, list[Image]], list[ChunkSpec]]:
        images: dict[str, list[Image]] = {}
        seen: set[int] = set()
        for task in tasks:
            if task.log is None:
                continue
            unread = {item.table: item for item in task.log.unread}
            for number in numbers_of(parse_position(task.log.wanted)):
                assert number not in seen, "a transaction in two tasks"
                seen.add(number)
                for table in sorted({image[0] for image in self.server.log[number - 1]}):
                    log = [(op, k, v, number) for t, op, k, v in self.server.log[number - 1] if t == table]
                    images.setdefault(table, []).extend(without_unread(log, unread.get(table)))
        return images, [chunk for task in tasks for chunk in task.chunks]

    @staticmethod
    def _images(target: FakeTarget, images: list[Image], epoch: int) -> None:
        for op, key, value, _ in sorted(images, key=lambda image: image[3]):
            if op in ("b", "d"):
                target.rows.pop(key, None)
            else:
                target.rows[key] = (value, epoch)

    def _chunk(self, target: FakeTarget, chunk: ChunkSpec, header: dict[str, Any], *, append: bool) -> int:
        """:returns: how many rows it brought."""
        before = len(self.read.get(chunk.table, ()))
        at = parse_position(header["gtid"]).count()
        for key, value in self.server.rows(chunk.table, at).items():
            wanted = chunk.filter is None or _fulfils(chunk.filter, value)
            if not wanted:
                continue
            if (chunk.lo is None or key > int(chunk.lo[0])) and (chunk.hi is None or key <= int(chunk.hi[0])):
                self.read.setdefault(chunk.table, []).append(key)
                assert not (append and key in target.rows), f"row {key} would be appended twice"
                target.rows[key] = (value, header["epoch"])
        return len(self.read.get(chunk.table, ())) - before

    def check(self, gtid: str) -> None:
        """Every live table is the source as of ``gtid``."""
        at = parse_position(gtid).count()
        for name, target in self.targets.items():
            if target.live:
                assert {key: row[0] for key, row in target.rows.items()} == self.server.rows(name, at), name


@dataclass
class Stream:
    """Planner, tasks and sink together, with offsets passed on as JSON."""

    server: FakeServer
    control: FakeControl
    options: Options
    clock: Clock = field(default_factory=Clock)
    topic: FakeTopic | None = None

    def __post_init__(self) -> None:
        self.sink = FakeSink(self.server, self.control)
        self.restart()
        self.offset = self.reread(self.planner.initial())
        self.headers: list[dict[str, Any]] = []

    @staticmethod
    def reread(offset: SourceOffset) -> SourceOffset:
        """As it comes back from a checkpoint."""
        again = SourceOffset.from_json(offset.to_json())
        assert again.to_json() == offset.to_json()
        return again

    def restart(self) -> None:
        """Another planner, which knows nothing but the offset."""
        if self.topic is not None:
            self.topic.control = self.control
        self.planner = Planner(
            self.options, self.server, self.control,  # type: ignore[arg-type]
            forwarder=self.topic, clock=self.clock, wall_us=self.clock.wall_us, sleep=self.clock.sleep,
        )  # fmt: skip

    def tasks(self, end: SourceOffset) -> list[Task]:
        """Of the batch that ends at ``end``."""
        return self.planner.tasks(self.offset, end)

    def batch(self, redo: set[tuple[str, int]] | None = None, replay: bool = False) -> bool:
        """Plan and apply one batch; False: there was nothing to do."""
        end = self.planner.latest(self.offset, self.options.max_rows_per_batch)
        if end is self.offset:
            return False
        end = self.reread(end)
        assert end.position >= self.offset.position
        assert end.epoch > self.offset.epoch
        tasks = self.tasks(end)
        if replay:
            self.restart()
            assert self.tasks(end) == tasks
        header = self.sink.apply(tasks, redo or set())
        self.sink.check(header["gtid"])
        self.headers.append(header)
        self.offset = end
        return True

    def drain(self) -> None:
        """Until there is nothing to do."""
        for _ in range(200):
            if not self.batch():
                return
        raise AssertionError("the stream does not come to rest")
