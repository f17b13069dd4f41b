"""Checkpoints of relay consumers in a Delta table, a row for each consumer and partition.

No Spark is needed: delta-rs writes the table. Its MERGE of one row is one commit, so a checkpoint is stored whole or
not at all. Any Delta reader can read, join and time-travel the table.

The row decides who may write it. A consumer *claims* its row when it starts, by a commit that sets ``generation``: the
one that it was given (for a partition of a group), or the row's plus one. Each later commit of that consumer requires
that the row's generation is not greater than its own. So if two programs use one name, the one that started last
continues. The other fails at its next checkpoint, and what it delivered since its last one is repeated. Commits to
other rows conflict by Delta's rules and are retried.
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
"""Each commit replaces a small file: a day of history is enough."""
_VACUUM_COMMITS: Final = 1000
_VACUUM_HOURS: Final = 24
_PAUSE_SECONDS: Final = 0.05


def _text(value: str) -> str:
    """Return a literal for SQL."""
    return "'" + value.replace("'", "''") + "'"


class CheckpointTable:
    """Consumer checkpoints in a Delta table.

    :param path: of a folder, or a URL that delta-rs supports; without ``%``.
    :param conflict_seconds: how long a commit is tried again if other programs commit first.
    :raises TargetError: the path contains ``%``.
    """

    def __init__(self, path: str, *, conflict_seconds: float = 30.0) -> None:
        if "%" in path:  # delta-rs decodes it only in some places
            raise TargetError(f"cannot store checkpoints in {path}: choose a path without %")
        self.path, self._conflict_seconds = path, conflict_seconds

    def of(self, consumer: str, partition: int = 0, generation: int | None = None) -> TableCheckpoint:
        """Return the row of a consumer, and of a partition if it has several.

        :param generation: in which the partition was assigned to the consumer; None: the row's generation plus one.
        """
        return TableCheckpoint(self, consumer, partition, generation)

    def open(self) -> DeltaTable:
        """Open the newest version of the table. Create the table if it does not exist.

        :raises TargetError: the path holds something else, or cannot be reached.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            table = DeltaTable.create(
                self.path, _SCHEMA, mode="ignore", configuration=_KEPT, description="Checkpoints of relay consumers"
            )
            names = [field.name for field in table.schema().fields]
        except CommitFailedError:  # another program creates it
            raise
        except (DeltaError, OSError) as error:
            raise TargetError(f"cannot store checkpoints in {self.path}: {_first_line(error)}") from None
        if names != _SCHEMA.names:
            raise TargetError(f"{self.path} is not a table of checkpoints; choose another path")
        return table

    def commit(self, change: Callable[[DeltaTable], Any]) -> Any:
        """Make a change. Retry while other programs commit at the same time.

        :raises CommitConflictError: they still did after 30 s.
        :raises TargetError: the change failed.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        end = time.monotonic() + self._conflict_seconds
        while True:
            try:
                return change(self.open())
            except CommitFailedError as error:
                if time.monotonic() >= end:
                    raise CommitConflictError(f"{self.path}: commits keep conflicting: {_first_line(error)}") from None
                time.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))
            except (DeltaError, OSError) as error:
                raise TargetError(f"cannot store a checkpoint in {self.path}: {_first_line(error)}") from None


class TableCheckpoint:
    """Checkpoint of one consumer, a row of the table: a :class:`headgate.relay_client.CheckpointStore`."""

    def __init__(self, table: CheckpointTable, consumer: str, partition: int, generation: int | None) -> None:
        self._table, self._consumer, self._partition = table, consumer, partition
        self._generation = generation
        self._commits = 0

    def load(self) -> Mapping[str, Any] | None:
        """Claim the row and return its checkpoint; None: it has none yet.

        :raises TargetError: another program has it with a greater generation, or the table cannot be used.
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

        :raises TargetError: another program has claimed the row, or the table cannot be used.
        """
        generation = self._generation
        assert generation is not None, "call load() first"
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
        row_condition = f"t.consumer = {_text(self._consumer)} AND t.partition = {self._partition}"
        counts = (
            table.merge(
                pa.Table.from_pylist([row], _SCHEMA),
                f"{row_condition} AND t.consumer = s.consumer AND t.partition = s.partition",
                source_alias="s",
                target_alias="t",
            )
            .when_matched_update_all("t.generation <= s.generation")
            .when_not_matched_insert_all()
            .execute()
        )
        if not counts["num_target_rows_inserted"] + counts["num_target_rows_updated"]:
            raise TargetError(
                f"{self._table.path}: the checkpoint of {self._consumer}, partition {self._partition}, was claimed "
                "by another program, which started later"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
