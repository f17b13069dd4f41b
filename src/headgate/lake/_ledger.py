"""The ledger: one row per batch, written after everything else that the batch writes.

A batch commits to many Delta tables, one after the other, so "the newest of each" is not one state of the source. The
ledger row makes it one: it names, for every table, the version that holds exactly the state as of the row's GTID set. A
batch is committed when its row exists, never earlier:

* killed between table commits and the row: Spark runs the batch again, every sink repairs itself (upserts are guarded
  by ``_seq``, appends carry the batch's epoch), and then the row is written;
* killed after the row, before Spark recorded the batch as done: Spark runs it again, the ledger knows its epoch, and
  the batch is skipped.

**One writer.** The ledger's own Delta version is a fence. A pipeline remembers the version it last saw. Before a batch
and at its own append the version must be exactly the expected one, else the pipeline stops with an error. Of two
appends to one version one is refused (``headgate.delta``), so the program that commits first wins.

**Notifications** are in the row of the batch that they report, with the snapshots open after it. So they exist exactly
if the batch does, and delivery finds the outstanding ones here.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.delta import DataFile, TableLog
from headgate.errors import CommitConflictError, ConfigError, SecondDriverError, TargetError
from headgate.lake._append import append_rows
from headgate.lake._delta import DeltaPath, check_owner, followed_log, spark_schema
from headgate.lake._layout import Lake
from headgate.lake._ledger_row import LEDGER_DDL, LedgerRow, TableState
from headgate.lake._places import Place
from headgate.lake._properties import BEGUN, PIPELINE, TABLE
from headgate.lake._records import columns_of_record
from headgate.lake._session_access import delta_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame, SparkSession

    from headgate.control import Notification

__all__ = [
    "Ledger",
    "find_newest",
    "find_row",
    "ledger_files",
    "ledger_notifications",
    "newest_row",
    "newest_rows",
    "read_as_of",
]


_NAME: Final = "_headgate.ledger"
"""The ledger's name as a table of its pipeline."""


class Ledger:
    """Writer of the ledger, one per running pipeline. The first batch creates the table before it writes others
    (:meth:`begin`): a run that cannot begin leaves nothing behind, and a ledger without a row says that such a batch
    did not end.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: str) -> None:
        self._delta = DeltaPath(spark, lake.ledger)
        self._lake = lake
        self._pipeline = pipeline
        self._version = -1
        self.last: LedgerRow | None = None
        if self._delta.check_ours(pipeline, _NAME):
            self._version = self._delta.version()
            self.last = self._newest()

    def _newest(self) -> LedgerRow | None:
        return find_newest(self._lake)

    def tables(self) -> dict[str, TableState]:
        """Return the tables of the last row."""
        return dict(self.last.tables) if self.last else {}

    def table(self, table: str) -> TableState | None:
        """Return a table of the last row; None if it has none of this name."""
        return self.last.tables.get(table) if self.last else None

    def has(self, epoch: int, start_epoch: int) -> bool:
        """Return whether the batch of ``epoch`` is committed. If not, it has to be the next one.

        :param start_epoch: of the batch before it. Batches of chunks share one GTID set, so only this is exact.
        :raises TargetError: the batch before it is not the newest one of the ledger.
        """
        newest = self.last.epoch if self.last is not None else 0
        if newest not in (epoch, start_epoch):
            age = "older" if start_epoch < newest else "newer"
            raise TargetError(
                f"the checkpoint is {age} than the tables (batch {start_epoch}, in {self._delta.path} {newest}): remove"
                " the checkpoint folder; the next run resumes where the tables are"
            )
        return epoch == newest

    def entered_epoch(self) -> int | None:
        """Return the epoch of the newest row. All later batches that wrote tables were lost. Without a row: the last
        epoch before the ledger began. None: there is no ledger, so nothing is known of what tables have.
        """
        if self.last is not None:
            return self.last.epoch
        begun = self._delta.snapshot().properties.get(BEGUN) if self._version >= 0 else None
        return None if begun is None else int(begun) - 1

    def fence(self, epoch: int) -> None:
        """Raise an error if the ledger was written since we last did.

        :param epoch: of the batch that is to be written.
        :raises CommitConflictError: it has no other batch: a commit of an earlier attempt arrived late, such as this
            batch's row, or the fold of older ones.
        :raises TargetError: another program wrote it.
        """
        if self._delta.version() == self._version:
            return
        row = self._newest()
        if row is None or row.epoch == epoch or (self.last is not None and row.epoch == self.last.epoch):
            raise CommitConflictError(f"{self._delta.path}: a commit of an earlier attempt arrived late")
        self._expect(self._version)

    def begin(self, epoch: int) -> None:
        """Create the ledger, if there is none, before a batch writes tables.

        :raises CommitConflictError: another program creates it.
        """
        if self._version < 0:
            self._create(epoch)
            self._expect(0)
            self._version = 0

    def append(self, row: LedgerRow) -> None:
        """Commit the batch.

        :raises CommitConflictError: see :meth:`fence`; TargetError likewise.
        """
        try:
            append_rows(self._delta, [[*row.columns().values()]], LEDGER_DDL, at=self._version)
        except CommitConflictError:
            self.fence(row.epoch)  # its message says what to do
            raise
        self._version += 1
        self.last = row

    @property
    def version(self) -> int:
        """The ledger's Delta version that was last seen."""
        return self._version

    def fold(self, commit: Callable[[], int | None]) -> None:
        """Fold the ledger's small files in one commit, between those of its rows.

        :param commit: returns the version that it made, if it made one.
        """
        self._expect(self._version)
        if commit() is not None:
            self._expect(self._version + 1)
            self._version += 1

    def _expect(self, version: int) -> None:
        newest = self._delta.version()
        if newest != version:
            raise SecondDriverError(
                f"another program wrote the ledger at {self._delta.path} (version {newest}, expected {version}): two "
                "pipelines run on one target; stop one of them"
            )

    def _create(self, epoch: int) -> None:
        # A checkpoint of the log takes seconds on a busy machine; it saves readers the replay of small files.
        properties = {PIPELINE: self._pipeline, TABLE: _NAME, BEGUN: str(epoch), "delta.checkpointInterval": "100"}
        self._delta.create(spark_schema(LEDGER_DDL), properties)


def check_lake(lake: Lake, pipeline: str, tables: Mapping[str, Place | None]) -> None:
    """Check, without Spark, that a pipeline may write into a lake: neither its ledger nor a table is another one's.

    :param tables: those to write, and where they are.
    :raises TargetError: one is, or is a Delta table that headgate did not make.
    """
    folders = {folder: table for table, place in tables.items() for folder in lake.delta_tables(table, place).values()}
    for folder, table in {lake.ledger: _NAME, **folders}.items():
        snapshot = followed_log(folder).refresh(files=False)
        if snapshot.version >= 0:
            check_owner(folder, snapshot, pipeline, table)


def newest_row(lake: Lake) -> LedgerRow:
    """Return the newest ledger row, without Spark.

    :raises ConfigError: the lake has no ledger, or no row in it.
    :raises TargetError: it cannot be read.
    """
    try:
        version = TableLog(lake.ledger).refresh(files=False).version
    except (OSError, pa.ArrowException) as error:
        raise TargetError(f"{lake.ledger} cannot be read: {str(error).splitlines()[0]}") from None
    if version < 0:
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    row = find_newest(lake)
    if row is None:
        raise ConfigError(f"the ledger at {lake.path} has no batch yet")
    return row


def find_newest(lake: Lake) -> LedgerRow | None:
    """Return the ledger's newest row, if it has one.

    :raises TargetError: the ledger cannot be read.
    """
    return next(iter(newest_rows(lake, 1)), None)


def newest_rows(lake: Lake, limit: int) -> list[LedgerRow]:
    """Return the newest ``limit`` rows of the ledger, newest first. Spark would take seconds, to compile a query.

    :raises TargetError: the ledger cannot be read.
    """
    newest: list[dict[str, Any]] = []
    try:
        for file in ledger_files(lake):
            epoch = _newest_epoch(file)
            if epoch is not None and len(newest) == limit and newest[-1]["epoch"] > epoch:
                break  # the other files are older
            with file.open(lake.ledger) as opened:
                rows = opened.read([*columns_of_record(LedgerRow)])
            newest += rows.sort_by([("epoch", "descending")]).slice(0, limit).to_pylist()
            newest = sorted(newest, key=itemgetter("epoch"), reverse=True)[:limit]
    except OSError as error:
        raise TargetError(f"{lake.ledger} cannot be read: {str(error).splitlines()[0]}") from None
    return [LedgerRow.of(row) for row in newest]


def ledger_files(lake: Lake) -> list[DataFile]:
    """Return the ledger's files, those with the newest rows first; before them those without statistics."""

    def order(file: DataFile) -> tuple[bool, int]:
        epoch = _newest_epoch(file)
        return epoch is None, epoch or 0

    return sorted(TableLog(lake.ledger).refresh().files.values(), key=order, reverse=True)


def _newest_epoch(file: DataFile) -> int | None:
    epoch = file.statistics.greatest.get("epoch")
    return epoch if isinstance(epoch, int) else None


def ledger_notifications(
    spark: SparkSession, lake: Lake, *, after: int, limit: int
) -> list[tuple[int, tuple[Notification, ...]]]:
    """Return the notifications of the oldest ``limit`` batches that have some, by epoch, for epochs above ``after``."""
    delta = DeltaPath(spark, lake.ledger)
    if not delta.exists():
        return []
    frame = delta.read()
    rows = frame.where((frame["epoch"] > after) & frame["notifications"].isNotNull())
    rows = rows.select("epoch", "notifications").orderBy("epoch").limit(limit)
    read = columns_of_record(LedgerRow)["notifications"].read
    return [(int(row["epoch"]), read(row["notifications"])) for row in rows.collect()]


def find_row(spark: SparkSession, lake: Lake, *, gtid: str | None = None, batch: int | None = None) -> LedgerRow:
    """Return the ledger row of ``gtid`` (the oldest that contains it) or ``batch`` (its epoch); default: the newest."""
    from headgate.positions import parse_position

    delta = DeltaPath(spark, lake.ledger)
    if not delta.exists():
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    frame = delta.read()
    if batch is None and gtid is not None:
        wanted, sets = parse_position(gtid), frame.select("epoch", "gtid").orderBy("epoch").collect()
        batch = next((item["epoch"] for item in sets if parse_position(item["gtid"]) >= wanted), None)
        if batch is None:
            raise ConfigError(f"no batch of the lake at {lake.path} contains {gtid} yet")
    rows = frame if batch is None else frame.where(frame["epoch"] == batch)
    newest = rows.orderBy(frame["epoch"].desc()).first()
    if newest is None:
        raise ConfigError(f"the ledger at {lake.path} has no batch {'yet' if batch is None else batch}")
    return LedgerRow.of(newest.asDict(recursive=True))


def read_as_of(
    spark: SparkSession,
    path: str,
    *,
    gtid: str | None = None,
    batch: int | None = None,
    states: Collection[str] = ("live",),
) -> dict[str, DataFrame]:
    """Return all current tables of the lake at one point of the source's history: ``{"db.table": DataFrame}``.

    The names are those in the lake, if routes give tables others than the source's. A merged table is there if all its
    shards are, and if it shows them as of that batch: while their columns differ, it does not. Tables with
    ``deletes = "mark"`` have their deleted rows, too: filter by ``NOT _deleted``.

    :param gtid: read the oldest batch that contains this GTID set; default: the newest batch.
    :param batch: the epoch of a batch, instead.
    :param states: leave out tables in other states (:class:`TableState`). Only ``live`` tables hold exactly one state
        of the source; request ``inexact`` ones, by ``foreign_keys = "accept"`` or ``skip``, explicitly.
    :raises ConfigError: the lake has no such batch, or the session no Delta.

    >>> tables = headgate.read_as_of(spark, "/data/lake")
    >>> tables["shop.orders"].join(tables["shop.items"], "id").count()
    2
    """
    lake = Lake.at(path)
    with delta_needed():
        row = find_row(spark, lake, gtid=gtid, batch=batch)
    earlier = {one.name for one in row.merged if one.reason is not None}
    return {
        name: DeltaPath(spark, folder).read(version)
        for name, folder, version in row.delta_tables(lake, "version")
        if name not in earlier and all(state.state in states for state in row.named(name))
    }
