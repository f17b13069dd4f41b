"""What is done to a table's Delta tables in one batch: values that ``_plan`` makes and the tables carry out.

The actions on a current table come in this order, each as one Delta commit or none: ``Create``, or ``AddColumns`` and
``Fill``; ``Truncate``; ``DropStrays``; the rows; ``Sweep``.

**Why a replay is safe.** A replay brings the same images under the same epoch. File and position may differ (another
server). Each action says why carrying it out again is safe; so whichever of them were committed before a crash, the
replay ends in the same table. With one exception: a chunk may give rows first and, if its table was altered meanwhile,
none in the replay. Then rows of the first attempt stay. They are as of the batch's end, and the changes after it are
applied to them as to any others. If the table is held, so that changes are left out, ``DropStrays`` deletes them later.

**Why** ``Append`` **and** ``Upsert`` **do not disturb each other.** In a first reading the reader drops the images of
ranges that had not been read when the batch began: images and chunks of one batch are of different keys. Elsewhere an
image may be of a key that a chunk of its batch has. The chunk's row is there first, with the greater ``_seq``, so
``Upsert`` leaves it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from headgate.carrier import Definition, Part, Seq

# Used as a namespace: ``do.Upsert``.
__all__ = ["Action", "AppendChanges", "Holds", "Rows"]


class Holds(Enum):
    """What the current table held before the batch."""

    ALL = auto()  # exactly the source's rows, and the batch brings all changes of them
    SOME = auto()  # rows of a reading that is not over, or not exact yet
    UNKNOWN = auto()


@dataclass(frozen=True)
class Create:
    """Make the table if there is none. Replace it if a reading begins and its columns do not fit.

    Replay: the table fits by now, so it is not made again.
    """

    definition: Definition
    since: int | None = None  # the first epoch of the reading whose chunks are appended; 0: it ends in its first batch
    replace: bool = False


@dataclass(frozen=True)
class AddColumns:
    """Add columns that a statement added, or that a reading of all rows shows.

    Replay: ``names`` are those that the target lacks, perhaps none.
    """

    definition: Definition
    names: tuple[str, ...]


@dataclass(frozen=True)
class Fill:
    """Set added columns to their default in rows of earlier batches. Rows of this one bring their values.

    Replay: sets the same values.
    """

    definition: Definition
    values: Mapping[str, str]  # as text that casts to the column's type exactly


@dataclass(frozen=True)
class Truncate:
    """Delete the rows whose ``_seq`` is below a TRUNCATE's.

    Replay: deletes rows of older epochs, or older ones of its own batch, which the actions after it bring back.
    """

    bound: Seq


@dataclass(frozen=True)
class DropStrays:
    """Delete the rows of epochs from ``first`` to below ``end``: the batches of the reading that now frees its table.

    Nothing of these has come to the table but for an attempt that was killed before its batch counted, and whose
    chunks, read again, gave nothing. Then the table stayed held, its changes were left out, and rows of that attempt
    are no longer what the source has. Replay: no row of these epochs comes back.
    """

    first: int
    end: int


@dataclass(frozen=True)
class Sweep:
    """Delete the rows of epochs before the first of a reading that ends, unless its chunks were appended.

    Each row that exists at the source was either read again or changed since the reading began, so its ``_seq.epoch``
    is at least that one. Replay: deletes the same rows.
    """

    epoch: int


@dataclass(frozen=True)
class Rows:
    """Images, and the columns that the table then has."""

    definition: Definition
    parts: Sequence[Part]


class Append(Rows):
    """Append the chunks of a first reading, in append mode: no earlier reading can have left rows in their ranges.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """


@dataclass(frozen=True)
class Upsert(Rows):
    """Write the last image of each key over the row that is there, if that row's ``_seq`` is below.

    By key index and deletion vectors where that can be (``headgate.lake.Upserts``), else by a MERGE. Chunks are
    appended first if the table has no row in the range of their keys and the ranges of their record batches do not
    meet: then no key comes twice.

    Replay: a row of this epoch either stays or is set to the same image again, and a deleted row stays deleted. Chunks
    that were appended are found and upserted, each over itself, or skipped by their marker.
    """

    bound: Seq | None = None  # ignore images below this (a TRUNCATE)
    fills: Mapping[str, str] = field(default_factory=dict)  # values of added columns in images from before


@dataclass(frozen=True)
class MergePartial(Upsert):
    """The same if images leave columns out: they are completed from the table first (``_partial``, ``_complete``).

    So chunks are merged together with them, unless an ``Append`` has them. Replay: completed from ``base``, the
    ledger's version, which is the table as it was before the batch.
    """

    base: int | None = None  # None: the table was empty
    holds: Holds = Holds.UNKNOWN  # which says what a key means that the table does not have


class Overwrite(Rows):
    """Replace all rows of a table without a key by a chunk, which is the whole table at the batch's end.

    Replay: the same rows again.
    """


@dataclass(frozen=True)
class Count(Rows):
    """Apply changes to a table without a key by counting equal rows. Why a replay is safe: ``_keyless``."""

    bound: Seq | None = None  # ignore images below this
    base: int | None = None  # the version before the batch; None: the table was empty
    holds: Holds = Holds.UNKNOWN


class AppendChanges(Rows):
    """Append a batch's changes to the changelog, whose columns only grow. Make it if there is none.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """


Action: TypeAlias = Create | AddColumns | Fill | Truncate | DropStrays | Append | Upsert | Overwrite | Count | Sweep
"""On a current table."""
