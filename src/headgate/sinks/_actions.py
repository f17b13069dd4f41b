"""What is done to a table's Delta tables in one batch: values that ``_decide`` makes and the tables carry out.

``_decide`` lists the actions on a current table in this order, and each is one Delta commit or none:
``Create`` or ``AddColumns`` and ``Fill``, ``Truncate``, ``DropStrays``, the rows, ``Sweep``.

**Why a replay is safe.** A replay brings the same images under the same epoch. File and position may differ (another
server). Each action below says why carrying it out again is safe; so whichever of them were committed before a crash,
the replay ends in the same table. With one exception: a chunk may give rows first and, if its table was altered
meanwhile, none in the replay. Then rows of the first attempt stay. They are as of the batch's end, and the changes
after it are applied to them as to any others. If the table is held, so that changes are left out, ``DropStrays``
deletes them later.

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

__all__ = [
    "Action",
    "AddColumns",
    "Append",
    "AppendChanges",
    "Count",
    "Create",
    "DropStrays",
    "Fill",
    "Holds",
    "MergePartial",
    "Overwrite",
    "Sweep",
    "Truncate",
    "Upsert",
]


class Holds(Enum):
    """What the current table held before the batch."""

    ALL = auto()
    """Exactly the source's rows, and the batch brings all changes of them."""
    SOME = auto()
    """Some ranges or rows of a reading that is not over, or not exact yet."""
    UNKNOWN = auto()


@dataclass(frozen=True)
class Create:
    """Make the table, if there is none; replace it, if a reading begins and its columns do not fit.

    Replay: the target is compared again. It fits by now, so it is not made again.

    :param since: first epoch of the reading whose chunks are appended to the table; 0: it ended in its first batch.
    """

    definition: Definition
    since: int | None = None
    replace: bool = False


@dataclass(frozen=True)
class AddColumns:
    """Add columns, if a statement added them, or a reading of all rows shows them.

    Replay: ``names`` are those that the target lacks, perhaps none.
    """

    definition: Definition
    names: tuple[str, ...]


@dataclass(frozen=True)
class Fill:
    """Set added columns to their default in rows of earlier batches. Rows of this one bring their values.

    Replay: sets the same values again.

    :param values: by column, as text that casts to its type exactly.
    """

    definition: Definition
    values: Mapping[str, str]


@dataclass(frozen=True)
class Truncate:
    """Delete the rows whose ``_seq`` is below a TRUNCATE's.

    Replay: deletes rows of older epochs, or older ones of its own batch, which the batch's later actions bring back.
    """

    bound: Seq


@dataclass(frozen=True)
class DropStrays:
    """Delete the rows of epochs from ``first`` up to below ``end``, if a reading frees its table after its first batch.

    Nothing of these epochs has come to the table but for an attempt that was killed before its batch counted, and whose
    chunks, read again, gave nothing. Then the table stayed held, its changes were left out, and rows of that attempt
    are no longer what the source has.

    Replay: no row of these epochs comes back.
    """

    first: int
    end: int


@dataclass(frozen=True)
class Append:
    """Append the chunks of a first reading, in append mode: no earlier reading can have left rows in their ranges.

    Replay: skipped by Delta's transaction marker (application, epoch).
    """

    definition: Definition
    parts: Sequence[Part]


@dataclass(frozen=True)
class Upsert:
    """Write the last image of each key over the row that is there, if that row's ``_seq`` is below.

    By key index and deletion vectors where that can be (``headgate.lake.Upserts``), else by a MERGE. Chunks among the
    parts are appended first if the table has no row in the range of their keys, and the ranges of their record batches
    do not meet: then no key comes twice.

    Replay: a row of this epoch either stays or is set to the same image again, and a deleted row stays deleted. Chunks
    that were appended are found and upserted, each over itself, or skipped by their marker.

    :param bound: of images below it nothing is left (a TRUNCATE).
    :param fills: values of added columns in images from before they were added.
    """

    definition: Definition
    parts: Sequence[Part]
    bound: Seq | None = None
    fills: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MergePartial:
    """The same for parts some of whose images leave columns out; see ``_partial`` and ``_complete``.

    Chunks among the parts are completed and merged together with them, unless an ``Append`` has them.

    Replay: columns that are left out come from the table as it was before the batch, at the ledger's version.

    :param base: that version; None: the table was empty.
    :param holds: how much a key that the table does not have means.
    """

    definition: Definition
    parts: Sequence[Part]
    base: int | None
    holds: Holds
    bound: Seq | None = None
    fills: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Overwrite:
    """Replace all rows of a table without a key by a chunk, which is the whole table as of the batch's end.

    Replay: the same rows again.
    """

    definition: Definition
    parts: Sequence[Part]


@dataclass(frozen=True)
class Count:
    """Apply changes to a table without a key, by counting equal rows. Replay: see ``_keyless``.

    :param base: the version of the table before the batch; None: it was empty.
    :param bound: only images above it count (a TRUNCATE).
    :param exact: the table was equal to the source before the batch.
    """

    definition: Definition
    parts: Sequence[Part]
    base: int | None
    exact: bool
    bound: Seq | None = None


@dataclass(frozen=True)
class Sweep:
    """Delete the rows of epochs before ``epoch``, the first of a reading that ends, unless its chunks were appended.

    Each row that exists at the source was either read again or changed since the reading began, so its ``_seq.epoch``
    is at least that one.

    Replay: deletes the same rows.
    """

    epoch: int


Action: TypeAlias = (
    Create
    | AddColumns
    | Fill
    | Truncate
    | DropStrays
    | Append
    | Upsert
    | MergePartial
    | Overwrite
    | Count
    | Sweep
)  # fmt: skip
"""On a current table."""


@dataclass(frozen=True)
class AppendChanges:
    """Append a batch's changes to the changelog, whose columns only grow; make it if there is none.

    Replay: skipped by Delta's transaction marker (application, epoch).

    :param definition: every column of the parts.
    """

    definition: Definition
    parts: Sequence[Part]
