"""A stream of a database's tables whose planner, tasks and decisions are the real ones; a dict is the target.

Between planning a batch and reading its chunks anything can be done to the server, so each race is made, not hoped for.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.carrier import DATA_COLUMN, KIND_COLUMN, TABLE_COLUMN, Batch, ControlFolder, Seq, decode, open_images
from headgate.config import SchemaChangesConfig
from headgate.control import KafkaTopic, SignalForwarder
from headgate.decide import Arrival, Decision, Policy, TableBefore, decide
from headgate.decide.actions import (
    AddColumns,
    Append,
    Count,
    Create,
    FillColumns,
    NoteTypes,
    Overwrite,
    Reshape,
    RowAction,
    Sweep,
    Truncate,
    Upsert,
)
from headgate.errors import HeadgateError, Transient
from headgate.lake import TableState, Target
from headgate.offsets import SnapshotProgress, SourceOffset
from headgate.spark import Notes, Options, Planner, SourceServer, carrier_rows, server_of
from headgate_testing import MySQLServer
from tests.integration.databases import Database

ROWS = 12


def brought(action: object) -> set[str]:
    """Of which kind the images are that an action writes."""
    return {part.kind for part in action.parts} if isinstance(action, RowAction) else set()


def plain(row: tuple[Any, ...]) -> str:
    """A row, in which numbers of one value are equal, whatever their type."""
    return repr([f"{cell.normalize():f}" if isinstance(cell, Decimal) else str(cell) for cell in row])


def default_value(text: str, spark: str) -> Any:
    """A column's default as a value of its Spark type."""
    if spark.startswith("timestamp"):
        return datetime.fromisoformat(text)
    if spark.startswith("decimal"):
        return Decimal(text)
    kinds: dict[str, Any] = {"string": str, "date": date.fromisoformat, "float": float, "double": float}
    return kinds.get(spark, int)(text)


def chosen(action: RowAction, images: list[dict[str, Any]], bound: Seq | None) -> list[dict[str, Any]]:
    """The images that an action writes, in the order of the log."""
    kinds = brought(action)
    place = [
        (tuple(image["_seq"].values()), image["_op"] != "b", image)
        for image in images
        if ("chunk" if image["_op"] == "r" else "rows") in kinds
    ]
    place.sort(key=lambda entry: entry[:2])
    return [image for seq, _, image in place if bound is None or seq > tuple(bound)]


class Copy:
    """One table's target."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self.rows: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}  # key → epoch, row
        self._numbers = itertools.count()

    def apply(self, decision: Decision, images: list[dict[str, Any]], epoch: int) -> None:
        """Carry out what is decided; the images are those that it names."""
        for action in decision.actions:
            match action:
                case Create(target=target):
                    self.target, self.rows = replace(target, since_epoch=None), {}
                case Reshape():
                    self._reshape(action)
                case NoteTypes(target=target):
                    self._note(target, {})
                case AddColumns(definition=definition, target=target):
                    types = self._note(target, definition.types)
                    for key, (since, row) in self.rows.items():
                        self.rows[key] = (since, {name: row.get(name) for name in types})
                case FillColumns(definition=definition, values=values):
                    filled = {name: default_value(text, definition.types[name]) for name, text in values.items()}
                    for since, row in self.rows.values():
                        row.update(filled if since < epoch else {})
                case Truncate():
                    self.rows = {}
                case Append() | Upsert():
                    self._upsert(action, images, epoch)
                case Overwrite() | Count():
                    self._count(action, images, epoch)
                case Sweep(epoch=first):
                    self.rows = {key: held for key, held in self.rows.items() if held[0] >= first}

    def _note(self, target: Target, added: Mapping[str, str]) -> dict[str, str]:
        """Set the properties of a target. Return its columns, without those that it keeps."""
        assert self.target is not None
        types = {**self.target.types, **{name: column.spark for name, column in self.target.kept.items()}, **added}
        self.target = Target.of(types, target.properties)
        return self.target.types

    def _reshape(self, action: Reshape) -> None:
        assert self.target is not None
        new_names = {old: new for new, old in action.renamed.items()}
        names = {name: new_names.get(name, name) for name in self.target.types if name not in action.dropped}
        kinds = {**self.target.types, **action.definition.types}  # a column that an ignored DROP left stays as it was
        kept = {name: column.spark for name, column in self.target.kept.items()}
        self.target = Target.of({**{new: kinds[new] for new in names.values()}, **kept}, self.target.properties)
        for key, (since, row) in self.rows.items():
            self.rows[key] = (since, {new: row[name] for name, new in names.items()})

    def _count(self, action: Overwrite | Count, images: list[dict[str, Any]], epoch: int) -> None:
        """A table without a key: its rows have numbers in place of keys."""
        if isinstance(action, Overwrite):
            self.rows = {}
        for image in chosen(action, images, action.bound if isinstance(action, Count) else None):
            row = {name: image.get(name) for name in action.definition.types}
            if image["_op"] in "bd":
                equal = next((number for number, (_, held) in self.rows.items() if held == row), None)
                self.rows.pop(equal or (), None)
            else:
                self.rows[(next(self._numbers),)] = (epoch, row)

    def _upsert(self, action: Append | Upsert, images: list[dict[str, Any]], epoch: int) -> None:
        types, key_names, filled, bound = action.definition.types, action.definition.key, dict[str, Any](), None
        if isinstance(action, Upsert):
            filled = {name: default_value(text, types[name]) for name, text in action.fills.items()}
            bound = action.bound
        for image in chosen(action, images, bound):
            named = {action.names.get(name, name): value for name, value in image.items()}
            key = tuple(named[name] for name in key_names)
            self.rows.pop(key, None)
            if image["_op"] not in "bd":
                self.rows[key] = (epoch, {name: named.get(name, filled.get(name)) for name in types})


class Stream(Database):
    """A stream of tables, batch by batch."""

    def __init__(
        self,
        server: MySQLServer,
        db: str,
        folder: Path,
        *,
        is_nameless: bool = False,
        topic: KafkaTopic | None = None,
        **options: str,
    ) -> None:
        super().__init__(server, db)
        self.is_nameless, self._topic = is_nameless, topic
        (folder / "secret").write_text(server._password)
        self.options = Options.parse(
            {
                "url": server.url, "password_file": str(folder / "secret"), "tables": json.dumps([f"{db}.*"]),
                "control_path": str(folder / "inbox"), "chunk_rows": "4", "slots": "2", "poll_ms": "10",
                "append": "false", **options,
            }
        )  # fmt: skip
        self.inbox = ControlFolder(str(folder / "inbox"))
        self.strict: set[str] = set()
        self.schema_changes = SchemaChangesConfig()
        self.patience_seconds = 0.0
        """For so long a batch that could not be read is read again, as Spark does it: who reads gives up sooner."""
        self._open()
        self.offset = self.planner.initial()
        self.states: dict[str, TableState] = {}
        self.copies: dict[str, Copy] = {}
        self.redone: list[tuple[str, dict[str, Any], bool]] = []
        self.applied: list[Batch] = []

    def restart(self) -> None:
        """Another planner, which knows nothing but the offset and the inbox."""
        self.close()
        self._open()

    def _open(self) -> None:
        self.view: SourceServer = server_of(self.options)
        self.forwarder = None if self._topic is None else SignalForwarder(self._topic, self.inbox)
        self.planner = Planner(self.options, self.view, ControlFolder(self.inbox.path), forwarder=self.forwarder)

    def close(self) -> None:
        self.view.drop()
        if self.forwarder is not None:
            self.forwarder.close()

    def batch(self, *meanwhile: str, end: SourceOffset | None = None) -> bool:
        """One batch; ``meanwhile`` happens after it was planned. False: there is nothing to do.

        :param end: the batch as it was planned before.
        """
        end = end or self.planner.latest(self.offset)
        if end is self.offset:
            return False
        self.do(*meanwhile)
        rows = self._rows(end)
        batch = Batch.of(decode(pa.Table.from_batches(rows)))
        for name in batch.tables():
            if name in self.states or name in batch.parts or name in batch.header.tables:
                self._table(name, batch, rows)
        self.inbox.write(
            "finished.json", {"tables": [n for n, s in self.states.items() if s.state == "live" or s.is_suspended]}
        )
        for name in Notes.from_dict(end.signals).taken:
            self.inbox.remove_signal(name)
        self.offset = end
        self.applied.append(batch)
        return True

    def _rows(self, end: SourceOffset) -> list[pa.RecordBatch]:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return list(self._read(end))
            except HeadgateError as error:
                if not isinstance(error, Transient) or time.monotonic() > deadline:
                    raise

    def _read(self, end: SourceOffset) -> Iterator[pa.RecordBatch]:
        for task in self.planner.tasks(self.offset, end):
            yield from carrier_rows(self.options.settings(), task, images="keys", policies=self.options.policies)

    def _table(self, name: str, batch: Batch, rows: list[pa.RecordBatch]) -> None:
        copy, epoch = self.copies.setdefault(name, Copy()), batch.header.epoch
        known = TableBefore(self.states.get(name), copy.target)
        policy = Policy(changelog=False, strict=name in self.strict, schema_changes=self.schema_changes)
        work = decide(Arrival(name, batch), known, policy)
        kinds = {kind for action in work.actions for kind in brought(action)}
        blobs = [
            row[DATA_COLUMN][0]
            for row in rows
            if row[TABLE_COLUMN][0].as_py() == name and row[KIND_COLUMN][0].as_py() in kinds
        ]
        copy.apply(work, [image for part in open_images(blobs) for image in part.to_pylist()], epoch)
        self.states[name] = replace(work.state, version=None if copy.target is None else 0)
        for number, redo in enumerate(item for item in batch.redo if item.table == name):
            self.redone.append((name, redo.chunk.to_dict(), redo.whole_table))
            value = {"type": "redo", "chunk": redo.chunk.to_dict(), "whole_table": redo.whole_table}
            self.inbox.write(f"signals/redo-{epoch}-{name}-{number}.json", value)
        if work.reread_reason is not None:
            self.inbox.write(f"signals/ddl-{epoch}-{name}.json", {"type": "resnapshot", "tables": [name]})

    def finish(self) -> None:
        """All that is left to do; every table then is live and equal."""
        for _ in range(30):
            if not self.batch():
                break
        assert {state.state for state in self.states.values()} == {"live"}
        for name in self.copies:
            self.assert_equal(name)

    def assert_equal(self, name: str) -> None:
        """The copy has the rows of the source as they are now, in its columns."""
        copy, table = self.copies[name], name.partition(".")[2]
        ignored = self.states[name].ignored
        columns = [one for one in (copy.target.types if copy.target else ()) if one not in ignored.kept]
        sources = [ignored.source_names.get(one, one) for one in columns]
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(sources)} FROM {table}")
            held = [tuple(row[column] for column in columns) for _, row in copy.rows.values()]
            assert sorted(map(plain, cursor.fetchall())) == sorted(map(plain, held))

    def progress(self, table: str) -> SnapshotProgress | None:
        read = self.offset.snapshot.by_table.get(f"{self.db}.{table}")
        return None if read is None else read.progress

    def since(self, table: str) -> int:
        progress = self.progress(table)
        assert progress is not None
        return progress.since_epoch


def make_tables(server: MySQLServer, db: str) -> None:
    """Two tables of 12 rows, ``changes`` and ``sibling``."""
    made = "(id INT PRIMARY KEY, v VARCHAR(9))"
    with server.connect(database=db) as connection, connection.cursor() as cursor:
        for table in ("changes", "sibling"):
            cursor.execute(f"CREATE TABLE {table} {made}")
            cursor.execute(f"INSERT INTO {table} VALUES " + ",".join(f"({i}, 'v{i}')" for i in range(1, ROWS + 1)))
        connection.commit()


def begin(server: MySQLServer, db: str, folder: Path) -> Stream:
    """A stream of :func:`make_tables`, of which the first batch has read some."""
    make_tables(server, db)
    stream = Stream(server, db, folder)
    assert stream.batch()
    assert not stream.redone
    return stream
