"""Signals from the binlog: rows inserted into a signal table.

The table has Debezium's form: text columns ``id``, ``type`` and ``data`` (Debezium's documentation, "Sending signals to
a Debezium connector"). An INSERT is a signal. Updates and deletes are ignored, so rows may be removed at any time. Rows
from a snapshot of the table are ignored too.

Guarantees
==========

- **Each insert takes effect once.** The reader of the binlog range passes the rows on unchanged
  (:func:`inserted_rows`). Before the batch is committed, the sinks put a file for each row into the inbox
  (:func:`inbox_files`). The next batch is planned after that, and takes the file like any other. The file is named by
  the insert's transaction and its number in it (without GTIDs: by its binlog position, since the log then belongs to
  one server), so a repeated batch writes the same file. A batch is repeated only until the stream continues from it, so
  before any planning takes its signals.
- **None is lost.** A batch that the ledger has, so that its rows are not read again, has left its files, also if
  Spark's checkpoint is lost. If it is lost before the ledger has the batch, the next one takes the files, reads the
  rows, writes the files again and removes them.
- **In order of the log.** Signals of one planning are taken in order of ``submitted_us``, the commit time, increased
  where it would not grow from each to the next.

A row that is not a valid signal is passed on like the others, and the planner reports what is wrong.
``snapshot-window-open`` and ``snapshot-window-close`` are marks that watermarks leave in such a table, not signals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import signal_path
from headgate.control._signals import outside_signal, signal_file
from headgate.names import lower_name

__all__ = ["SIGNAL_COLUMNS", "inbox_files", "inserted_rows"]

SIGNAL_COLUMNS: Final = ("id", "type", "data")
"""In any letter case, at any position among other columns."""
_MARKS: Final = frozenset({"snapshot-window-open", "snapshot-window-close"})


def inserted_rows(images: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the inserts among row images of a signal table, in order, as plain JSON values.

    :param images: a canonical record batch.
    :return: ``{gtid, seq: [file, pos, ordinal], ts_us, id, type, data}``; ``problem`` instead of the last three, if
        they cannot be read. ``gtid`` is null in a log without GTIDs.
    """
    inserted = images.filter(pc.equal(images.column(0), "c"))
    names = {lower_name(name): index for index, name in enumerate(images.schema.names)}
    missing = [name for name in SIGNAL_COLUMNS if name not in names]
    rows = []
    positions = zip(inserted.column(1).to_pylist(), inserted.column(2).to_pylist(), strict=True)
    times = pc.cast(inserted.column(3), pa.int64()).to_pylist()
    for number, ((seq, gtid), ts_us) in enumerate(zip(positions, times, strict=True)):
        row: dict[str, Any] = {"gtid": gtid, "seq": [seq["file"], seq["pos"], seq["ordinal"]], "ts_us": ts_us}
        if missing:
            row["problem"] = f"the signal table has no column {missing[0]}"
        else:
            cells = {name: inserted.column(names[name])[number].as_py() for name in SIGNAL_COLUMNS}
            if cells["type"] in _MARKS:
                continue
            row |= _texts(cells)
        rows.append(row)
    return rows


def _texts(cells: dict[str, Any]) -> dict[str, Any]:
    texts: dict[str, Any] = {}
    for name, value in cells.items():
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            return {"problem": f"{name} is not UTF-8"}
        texts[name] = text if text is None or isinstance(text, str) else str(text)
    return texts


def inbox_files(rows: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return name and content of a file for each row. The rows of one batch may be in any order."""
    files, last_us = [], 0
    for row in sorted(rows, key=lambda one: one["seq"]):
        last_us = max(last_us + 1, row["ts_us"])
        file, pos, ordinal = row["seq"]
        name = signal_file(f"table-{row['gtid'] or f'{file}-{pos}'}-{ordinal}")
        if "problem" in row:
            value = {"problem": row["problem"]}
        else:
            value = dict(outside_signal({"id": row["id"], "type": row["type"], "data": row["data"]}))
        files.append((signal_path(name), {**value, "submitted_us": last_us}))
    return files
