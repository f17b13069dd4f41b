"""Draws the pictures of docs/architecture/: the rooms, two ways of a row, the life of a batch.

The rooms are the layers of import-linter in ``pyproject.toml``, with the first words of what the folder's README
says of each. In the other pictures a box may name modules; a picture with one that does not exist is not drawn.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.pictures import ROOT, Box, arrow, picture, text

FOLDER = ROOT / "docs" / "architecture"
SOURCE = ROOT / "src" / "headgate"
ROW, WIDTH = 34, 940


def pictures() -> dict[Path, str]:
    """What to write, and where."""
    return {
        FOLDER / "rooms.svg": rooms(),
        FOLDER / "to-delta.svg": chain("A row's way from MySQL to Delta", TO_DELTA),
        FOLDER / "to-consumers.svg": chain("A row's way from MySQL to a relay's consumer", TO_CONSUMERS),
        FOLDER / "batch.svg": chain("The life of a batch", BATCH),
    }


# --- the rooms


def rooms() -> str:
    about = dict(responsibilities())
    parts = [text(10, 22, "A room may import those below it", "title")]
    y = 40
    for layer in layers():
        named = [room for room in layer if not room.startswith("_")]
        if not named:
            continue
        step = (WIDTH - 20) / len(named)
        for number, room in enumerate(named):
            x, width = 10 + number * step, step - (6 if number + 1 < len(named) else 0)
            parts.append(f'<rect class="ours" x="{x:g}" y="{y}" width="{width:g}" height="{ROW - 6}" rx="6"/>')
            parts.append(text(x + 12, y + 19, room, "title"))
            if len(named) == 1:
                parts.append(text(x + 150, y + 19, about[room], "small"))
        y += ROW
    return picture(WIDTH, y + 6, "The rooms of headgate, from the commands down to the errors", parts)


def layers() -> list[list[str]]:
    """From the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["headgate"])
    return [layer.split(" | ") for layer in layers]


def responsibilities() -> Iterator[tuple[str, str]]:
    """Of each room the first clause of what it does, by the table of the README."""
    for line in (FOLDER / "README.md").read_text("utf-8").splitlines():
        if line.startswith("| `"):
            _, names, about, *_ = line.split(" | ".strip())
            clause = re.split(r"[;:(]", about.strip().replace("`", ""))[0].strip()
            for name in re.findall(r"`([\w.]+)/?`", names):
                yield name.removesuffix(".py"), clause


# --- what happens in which module

Step = tuple[str, str, str]
"""What happens; in words; in which modules, by their names under ``src/headgate``, behind commas."""

TO_DELTA: Sequence[Step] = [
    (
        "log or SELECT",
        "bytes of the server, read by a task",
        "mysql/_connection.py, replication/_readers.py, snapshot/_reader.py",
    ),
    (
        "events",
        "framed, transactions whole, row images found",
        "binlog/_scan.py, binlog/_walk.py, replication/resumable.py",
    ),
    ("columns", "cells of each column become Arrow", "columns/_table.py, replication/_decoder.py"),
    ("carrier", "a record batch and its summary, one row of the stream", "carrier/_wire.py"),
    ("decide", "the table's next state, and a list of actions", "decide/_decide.py, decide/_course.py"),
    ("apply", "Create, AddColumns, Append, Upsert, Sweep, …", "apply/_current.py, apply/_changelog.py"),
    ("write", "new files, then old rows looked up by key", "apply/_staged_rows.py, apply/_upsert.py, delta/_index.py"),
    ("commit", "files and deletion vectors, one Delta commit", "delta/_change.py, delta/_commit.py"),
]
TO_CONSUMERS: Sequence[Step] = [
    ("log", "one dump of a source, or the binlog archive", "relay/server/_feeder.py, relay/archive/_spool.py"),
    ("assemble", "transactions become windows with an SCN", "relay/server/_assemble.py, relay/server/_scn.py"),
    ("encode", "rows as Avro, by kernels", "relay/server/events, relay/databus/_binary.py"),
    ("buffer", "windows in files, as many bytes as configured", "relay/server/_buffer.py, relay/server/_segments.py"),
    ("answer", "those that a client chose, over HTTP", "relay/server/_http/_choices.py, relay/server/_http"),
    (
        "read",
        "windows, or rows first if they are no longer held",
        "relay/client/_reading.py, relay/client/_bootstrap.py",
    ),
    (
        "call",
        "each event to the consumer; then a checkpoint",
        "relay/client/_callbacks.py, relay/client/_checkpoints.py",
    ),
]
BATCH: Sequence[Step] = [
    (
        "plan",
        "requests → end → chunks → notes, in Spark's offset",
        "spark/_planner.py, spark/_end.py, spark/_snapshot_requests.py",
    ),
    ("read", "tasks: ranges of the log, groups of chunks", "spark/_tasks.py, spark/_read_task.py"),
    ("fetch", "all rows, by one job of Spark; large images stay in files", "sinks/_writer.py, carrier/_batch.py"),
    ("fence", "no other writer since the last ledger row", "sinks/_writer.py, lake/_ledger.py"),
    ("decide", "for all tables, before anything is written", "decide/_decide.py"),
    ("write", "each table one commit, several tables at once", "apply/_current.py"),
    ("ledger", "one row: versions of all tables at this GTID set", "lake/_ledger.py"),
    ("tell", "planner, page, notifications", "carrier/_folder.py, sinks/_writer.py"),
]


def chain(title: str, steps: Sequence[Step]) -> str:
    parts = [text(10, 22, title, "title")]
    for number, (name, about, modules) in enumerate(steps):
        missing = [one for one in modules.split(", ") if not (SOURCE / one).exists()]
        if missing:
            raise ValueError(f"{title}: there is no {', '.join(missing)}")
        y = 40 + 66 * number
        parts += Box(10, y, WIDTH - 20, 52, name, (modules,), ours=True).draw()
        parts.append(text(150, y + 24, about))
        if number:
            parts += arrow(f"M60 {y - 14}V{y - 2}")
    return picture(WIDTH, 40 + 66 * len(steps), title, parts)
