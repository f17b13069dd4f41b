"""Actions of one batch on a table's Delta tables: values that ``_plan`` makes and the tables carry out.

The actions on a current table come in this order, each as one Delta commit or none: ``Create``, or ``Reshape``,
``AddColumns``, ``NoteTypes``, ``FillColumns`` and ``Describe``; ``Truncate``; ``DropStrays``; the rows; ``Sweep``;
``ProveKey``, which only reads; ``TakeOver``. (Of a history: the rows, then the removals.)

**Why a replay is safe.** A replay brings the same images under the same epoch. File and position may differ (another
server). Each action documents why repeating it is safe. So whichever of them were committed before a crash, the replay
ends in the same table. One exception: a chunk may give rows first and, if its table was altered meanwhile, none in the
replay. Then rows of the first attempt stay. They are as of the batch's end, and later changes are applied to them as to
any others. If the table is suspended, so that changes are left out, ``DropStrays`` deletes them later.

**Readers never see a table that is being made again.** A table whose columns do not fit what is read gets a successor
beside it (``headgate.delta``): ``Create`` makes it, the actions of this batch and of later ones are on it, and the
table stays as it was. ``TakeOver`` gives the table the successor's columns and rows in one commit, when these are
complete. The ledger names the successor. So a batch that is repeated writes to the same one, with the rules above. If
the batch began it, the ledger does not name it yet, and the replay makes another; if such a batch also ended it, the
table has it already, its columns fit, and the replay is on the table. If the table is suspended meanwhile, or must have
other columns again, the successor is given up and a new one is made when the table is read again.

**Tables that mark deleted rows** (``deletes = "mark"``) have the column ``_deleted``. There the last image of each key
is upserted, whatever it is: a deletion brings the row's last values and sets ``_deleted``. So a row that comes and goes
within a batch stays, too: the table does not depend on where batches end. ``Truncate``, ``DropStrays`` and
``Sweep`` mark rows of earlier epochs with the lowest ``_seq`` of this one: each image of the batch, at whatever
position a replay finds it, still counts, and a replay finds no row to mark again. Rows that changed in the batch before
its TRUNCATE are marked by ``Upsert``, with the values of their last image.

**Histories** get the batch's rows first, by ``AppendVersions``: it ends each open version that an image replaces. Then
``Truncate``, ``DropStrays`` and ``Sweep`` end open versions that were last seen (``_seen``) in earlier epochs. Versions
that the batch began or found are of its epoch, so a replay ends no other version than the first attempt.
``FillColumns`` sets added columns in open versions only: a version that has ended stays as it was.

**Why** ``Append`` **and** ``Upsert`` **do not disturb each other.** In a first snapshot the reader drops the images of
ranges that had not been read when the batch began: images and chunks of one batch have different keys. Otherwise an
image may have a key of a chunk of its batch. The chunk's row is written first, with the greater ``_seq``, so ``Upsert``
keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from headgate.carrier import Definition, Part, Seq
from headgate.lake import Target

# Used as a namespace: ``do.Upsert``.
__all__ = ["Action", "AppendChanges", "ColumnAction", "LogAction", "RowAction", "TableContent"]


class TableContent(Enum):
    """Content of the current table before the batch."""

    ALL = auto()  # exactly the source's rows, and the batch brings all changes of them
    SOME = auto()  # rows of a snapshot that is unfinished or not exact yet
    SOME_OF_ANY_KEY = auto()  # ... along a surrogate key: a row that is missing may be in a range that was read
    UNKNOWN = auto()


@dataclass(frozen=True)
class Create:
    """Create the table if there is none. Create its successor if a snapshot begins and its columns do not fit.

    Replay: the table exists already, so it is not created again; another successor is made.
    """

    definition: Definition
    target: Target  # ``since_epoch`` is 0 if chunks are appended and the snapshot ends in its first batch
    replace: bool = False


@dataclass(frozen=True)
class Reshape:
    """Drop, rename and widen columns, in all rows: those of earlier batches.

    Replay: the target has the columns already, so it is not planned again. Names are not used twice (``_columns``).
    """

    definition: Definition
    dropped: frozenset[str]
    renamed: Mapping[str, str]  # new name → name before
    widened: Mapping[str, str]  # new name → MySQL type
    kept: frozenset[str] = frozenset()  # dropped columns that stay, null in all rows: rows are written without them


@dataclass(frozen=True)
class AddColumns:
    """Add columns that a statement added, or that a full snapshot shows.

    Replay: ``names`` are those that the target lacks, perhaps none.
    """

    definition: Definition
    names: tuple[str, ...]
    target: Target  # after it


@dataclass(frozen=True)
class NoteTypes:
    """Store how the table's columns come from the source's: with their types and names a later ALTER is compared.

    Replay: stores the same.
    """

    target: Target


@dataclass(frozen=True)
class FillColumns:
    """Set added columns to their default in rows of earlier batches. Rows of this batch bring their values.

    Replay: sets the same values.
    """

    definition: Definition
    values: Mapping[str, str]  # as text that casts to the column's type exactly


@dataclass(frozen=True)
class Describe:
    """Give the table and its columns the comments of the source, if they differ. Also of a changelog.

    Replay: the table has them.
    """

    definition: Definition  # whose comments are known


@dataclass(frozen=True)
class Truncate:
    """Delete the rows whose ``_seq`` is below a TRUNCATE's. Marking, and ending versions: those of earlier epochs.

    Replay: deletes rows of older epochs, or older ones of its own batch, which the later actions write again.
    """

    bound: Seq
    gtid: str | None = None
    at_us: int | None = None  # its commit time, µs since 1970 UTC


@dataclass(frozen=True)
class DropStrays:
    """Delete the rows of epochs from ``first`` to below ``end``: the batches of the snapshot that ends a suspension.

    Only an attempt that was killed before its batch counted can have left such rows; its chunks, read again, gave none.
    The table then stayed suspended and its changes were left out, so these rows may differ from the source. Replay: no
    row of these epochs comes back.
    """

    first: int
    end: int


@dataclass(frozen=True)
class Sweep:
    """Delete the rows of epochs before the first of a snapshot that ends, unless its chunks were appended.

    Each row that exists at the source was read again or changed since the snapshot began, so its ``_seq.epoch`` is at
    least that one. Replay: deletes the same rows.
    """

    epoch: int


@dataclass(frozen=True)
class RowAction:
    """Images, and the columns that the table then has."""

    definition: Definition
    parts: Sequence[Part]
    # Where images have other names than the table: name in images → name in the table; None: the table has none.
    names: Mapping[str, str | None] = field(default_factory=dict, kw_only=True)


class Append(RowAction):
    """Append the chunks of a first snapshot, in append mode: no earlier snapshot can have left rows in their ranges.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """


@dataclass(frozen=True)
class Upsert(RowAction):
    """Write the last image of each key over the existing row, if that row's ``_seq`` is below.

    This uses key index and deletion vectors (``headgate.apply.Upserts``).

    Replay: a row of this epoch stays or is set to the same image again, and a deleted row stays deleted.
    """

    bound: Seq | None = None  # ignore images below this (a TRUNCATE); marking: their rows are deleted
    fills: Mapping[str, str] = field(default_factory=dict)  # values of added columns in older images


@dataclass(frozen=True)
class UpsertPartial(Upsert):
    """Upsert of images that leave columns out: they are completed from the table first (``apply._partial``,
    ``apply._complete``).

    So chunks are written together with them, unless an ``Append`` has them. Replay: completed from ``base``, the
    ledger's version, which is the table before the batch.
    """

    base: int | None = None  # None: the table was empty
    content: TableContent = TableContent.UNKNOWN  # decides what a key missing in the table means
    since: int = 0  # rows of earlier epochs count as missing: they lack changes that were left out


@dataclass(frozen=True)
class AppendVersions(RowAction):
    """Write the versions of each key that the images give, and end the open ones that they replace
    (``apply._versions``).

    Replay: skipped by Delta's transaction marker (application, epoch). So the images that count are those of the
    attempt that committed; another attempt's differ only in position.
    """

    fills: Mapping[str, str] = field(default_factory=dict)  # values of added columns in older images


class Overwrite(RowAction):
    """Replace all rows of a keyless table by a chunk, which is the whole table at the batch's end.

    Replay: the same rows again. If the chunk gives none then, ``Count`` finds the marker.
    """


@dataclass(frozen=True)
class Count(RowAction):
    """Apply changes to a keyless table by counting equal rows (``apply._keyless``); after a TRUNCATE, to an empty one.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """

    bound: Seq | None = None  # the ``_seq`` of the TRUNCATE: ignore images below this
    content: TableContent = TableContent.UNKNOWN


@dataclass(frozen=True)
class ProveKey(RowAction):
    """Prove by counting that a chosen key identifies the rows (``apply._proof``). Only ``TakeOver`` comes later.

    Replay: counts the same rows, because it begins with ``base``, too.
    """

    base: int | None = None  # the version before the batch; None: it was empty, or no row of it remains
    bound: Seq | None = None  # the images above this count (a TRUNCATE)


@dataclass(frozen=True)
class TakeOver:
    """Let the successor take the table's place: all rows were read, and they are what the state promises.

    Replay: commits the rows that differ now, if any.
    """


class AppendChanges(RowAction):
    """Append a batch's changes to the changelog, whose columns only grow. Create it if there is none.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """


LogAction: TypeAlias = AppendChanges | Describe
"""An action on a changelog."""


ColumnAction: TypeAlias = Create | Reshape | AddColumns | NoteTypes | FillColumns | Describe
"""An action on the columns of a current table."""
RemovalAction: TypeAlias = Truncate | DropStrays | Sweep
Action: TypeAlias = (
    ColumnAction | RemovalAction | Append | Upsert | AppendVersions | Overwrite | Count | ProveKey | TakeOver
)
"""An action on a current table."""
