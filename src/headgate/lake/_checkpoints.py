"""Checkpoints of a relay's consumers in a Delta table, a row for each consumer and partition.

No Spark is needed for it: the table is written by delta-rs, whose MERGE of one row is one commit, so a checkpoint is
there whole or not at all, and the table can be read, joined and travelled in time by whatever reads Delta.

Who may write a row is settled in the row. Whoever begins to consume first *claims* it, by a commit that sets its
``generation``: the one it was given (a partition of a group), or one more than there was. Every later commit of that
consumer asks for no greater generation than its own. So of two programs under one name the one that began last goes
on, and the other ends with an error at its next checkpoint; what that one had delivered since its last is repeated.
Commits of others to the same table conflict by Delta's rules and are tried again.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.errors import CommitConflictError, TargetError

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["CheckpointTable", "TableCheckpoint"]

_SCHEMA: Final = pa.schema(
    [
        pa.field("consumer", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),
        pa.field("scn", pa.int64()),
        pa.field("checkpoint", pa.string()),
        pa.field("updated", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
_KEPT: Final = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
"""Each commit replaces a small file: a day of them is enough to look back at."""
_VACUUM_COMMITS: Final = 1000
_VACUUM_HOURS: Final = 24
_CONFLICT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


def _text(value: str) -> str:
    """As a literal in SQL."""
    return "'" + value.replace("'", "''") + "'"


class CheckpointTable:
    """The table.

    :param path: of a folder, or a URL that delta-rs knows; without ``%``.
    :raises TargetError: it has one.
    """

    def __init__(self, path: str) -> None:
        if "%" in path:  # delta-rs decodes it in some places and in others not
            raise TargetError(f"checkpoints cannot be kept in {path}: choose a path without %")
        self.path = path

    def of(self, consumer: str, partition: int = 0, generation: int | None = None) -> TableCheckpoint:
        """The row of a consumer, and of a partition if it has several.

        :param generation: in which the partition was given to it; None: the one after that of the row.
        """
        return TableCheckpoint(self, consumer, partition, generation)

    def open(self) -> DeltaTable:
        """The newest version of the table, which is made if it is not there.

        :raises TargetError: something else is there, or it cannot be reached.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            table = DeltaTable.create(
                self.path, _SCHEMA, mode="ignore", configuration=_KEPT, description="Checkpoints of relay consumers"
            )
            found = [field.name for field in table.schema().fields]
        except CommitFailedError:  # somebody else makes it
            raise
        except (DeltaError, OSError) as error:
            raise TargetError(f"checkpoints cannot be kept in {self.path}: {_first_line(error)}") from None
        if found != _SCHEMA.names:
            raise TargetError(f"{self.path} is a Delta table of something else than checkpoints")
        return table

    def commit(self, change: Callable[[DeltaTable], Any]) -> Any:
        """Make a change; again while others commit at the same time.

        :raises CommitConflictError: they never ceased to.
        :raises TargetError: it cannot be made.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        end = time.monotonic() + _CONFLICT_SECONDS
        while True:
            try:
                return change(self.open())
            except CommitFailedError as error:
                if time.monotonic() >= end:
                    raise CommitConflictError(f"{self.path}: others keep committing: {_first_line(error)}") from None
                time.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))
            except (DeltaError, OSError) as error:
                raise TargetError(f"a checkpoint cannot be kept in {self.path}: {_first_line(error)}") from None


class TableCheckpoint:
    """One row: a :class:`headgate.relay_client.CheckpointStore`."""

    def __init__(self, table: CheckpointTable, consumer: str, partition: int, generation: int | None) -> None:
        self._table, self._consumer, self._partition = table, consumer, partition
        self._generation = generation
        self._commits = 0

    def load(self) -> Mapping[str, Any] | None:
        """Claim the row, and what it holds; None: nothing yet.

        :raises TargetError: it is somebody's with a greater generation, or the table cannot be used.
        """
        claimed: Mapping[str, Any] | None = self._table.commit(self._claim)
        return claimed

    def _claim(self, table: DeltaTable) -> Mapping[str, Any] | None:
        rows = table.to_pyarrow_table(
            filters=[("consumer", "=", self._consumer), ("partition", "=", self._partition)]
        ).to_pylist()
        row: dict[str, Any] = rows[0] if rows else {"generation": 0, "checkpoint": None}
        generation = row["generation"] + 1 if self._generation is None else self._generation
        text = row["checkpoint"]
        self._merge(table, generation, text)
        self._generation = generation
        return None if text is None else json.loads(text)

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        """See :class:`headgate.relay_client.CheckpointStore`.

        :raises TargetError: the row has become somebody else's, or the table cannot be used.
        """
        generation = self._generation
        assert generation is not None, "load() comes first"
        self._table.commit(lambda table: self._merge(table, generation, json.dumps(dict(checkpoint))))
        self._commits += 1
        if self._commits % _VACUUM_COMMITS == 0:
            self._table.commit(
                lambda table: table.vacuum(_VACUUM_HOURS, dry_run=False, enforce_retention_duration=False)
            )

    def _merge(self, table: DeltaTable, generation: int, text: str | None) -> None:
        row = {
            "consumer": self._consumer,
            "partition": self._partition,
            "generation": generation,
            "scn": None if text is None else json.loads(text).get("windowScn"),
            "checkpoint": text,
            "updated": dt.datetime.now(dt.UTC),
        }
        place = f"t.consumer = {_text(self._consumer)} AND t.partition = {self._partition}"
        counts = (
            table.merge(
                pa.Table.from_pylist([row], _SCHEMA),
                f"{place} AND t.consumer = s.consumer AND t.partition = s.partition",
                source_alias="s",
                target_alias="t",
            )
            .when_matched_update_all("t.generation <= s.generation")
            .when_not_matched_insert_all()
            .execute()
        )
        if not counts["num_target_rows_inserted"] + counts["num_target_rows_updated"]:
            raise TargetError(
                f"{self._table.path}: the checkpoint of {self._consumer}, partition {self._partition}, is another "
                "program's, which began to consume it later"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
