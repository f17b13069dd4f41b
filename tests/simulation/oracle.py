"""The oracle. It reads logs and data files as any reader of Delta would, and nothing of headgate judges.

After each batch: each new row of the ledger has a greater epoch, a GTID set that contains the one before, and for each
``live`` table exactly the rows that the source had at that set. At rest: that still holds for each row, the ledger has
everything, each table is ``live`` and equal to the source, the changelog has each change once, in the order of the
source's log, the versions of a history follow each other, and each is a change of the source. Kafka is judged as its
consumers see it (``messages``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.simulation.driver import Fault, Pipeline, counts_of
from tests.simulation.messages import judge_messages
from tests.simulation.source import UUIDS
from tests.simulation.tables import SHAPES, Rows
from tests.simulation.world import World

__all__ = ["Oracle"]

_BATCH, _EPOCH, _GTID, _TABLES = 0, 1, 2, 4
_LOGGED: Final = ("c", "b", "u", "d", "t")


class Oracle:
    """Judge of one pipeline."""

    def __init__(self, world: World, pipeline: Pipeline) -> None:
        self._world, self._pipeline = world, pipeline
        self._versions: dict[str, list[tuple[str, ...]]] = {}
        """Folder → files of each version."""
        self._rows: list[tuple[Any, ...]] = []
        """Rows of the ledger."""

    def _files(self, folder: str) -> list[tuple[str, ...]]:
        """Return the files of each version of a table."""
        versions, stored = self._versions.setdefault(folder, []), self._world.store.folders.get(folder, {})
        while (text := stored.get(f"_delta_log/{len(versions):020d}.json")) is not None:
            files = list(versions[-1]) if versions else []
            actions = [json.loads(line) for line in text.splitlines()]
            gone = {one["remove"]["path"] for one in actions if "remove" in one}
            files = [name for name in files if name not in gone]
            versions.append((*files, *(one["add"]["path"] for one in actions if "add" in one)))
        return versions

    def _content(self, folder: str, version: int) -> Iterator[Any]:
        versions = self._files(folder)
        if not 0 <= version < len(versions):
            raise Fault(f"the ledger names version {version} of {folder}, which does not exist")
        return (self._world.store.data[name] for name in versions[version])

    def table(self, name: str, version: int) -> Rows:
        """Return the rows of a current table, or the open ones of a history, as the source has them."""
        files = self._content(self._pipeline.lake.current(name, None), version)
        if not SHAPES[name].has_key:
            return dict(Counter(copy[0] for file in files for copy in file))
        rows: dict[int, Any] = {}
        for file in files:
            for row in _open_rows(file.to_pylist(), SHAPES[name].columns) if self._has_history else _current_rows(file):
                if row[0] in rows:
                    raise Fault(f"{name} has the key {row[0]} twice")
                rows[row[0]] = row
        return rows

    @property
    def _has_history(self) -> bool:
        return "history" in self._pipeline.modes

    # --- after each batch

    @property
    def has_rows(self) -> bool:
        """Whether the ledger had a row at the last look."""
        return bool(self._rows)

    def observe(self) -> None:
        """Judge the rows that the ledger got since the last look."""
        versions = self._files(self._pipeline.lake.ledger)
        if not versions:
            return
        names = versions[-1]
        rows = sorted((self._world.store.data[name] for name in names), key=lambda row: row[_EPOCH])
        if rows[: len(self._rows)] != self._rows:
            raise Fault("rows of the ledger are in another order than they were written, changed, or missing")
        for row in rows[len(self._rows) :]:
            self._judge(row, self._rows[-1] if self._rows else None)
            self._rows.append(row)

    def _judge_kept(self) -> None:
        """Read the tables as of each row of the ledger again, from the logs that are there now."""
        self._versions.clear()
        for row in self._rows:
            self._judge_tables(row)

    def _judge(self, row: tuple[Any, ...], before: tuple[Any, ...] | None) -> None:
        if before is not None and row[_EPOCH] <= before[_EPOCH]:
            raise Fault(f"epoch {row[_EPOCH]} is in the ledger twice")
        counts = counts_of(row[_GTID])
        earlier = counts if before is None or self._pipeline.has_gap else counts_of(before[_GTID])
        if before is not None and any(new < old for new, old in zip(counts, earlier, strict=True)):
            raise Fault(f"the ledger goes back from {before[_GTID]} to {row[_GTID]}")
        self._judge_tables(row)
        self._world.count("ledger row judged")

    def _judge_tables(self, row: tuple[Any, ...]) -> None:
        """Judge the ``live`` tables at the versions of a row."""
        counts = counts_of(row[_GTID])
        states = self._world.history.get(counts)
        if states is None:
            raise Fault(f"the source was never at {row[_GTID]}")
        for state in row[_TABLES]:
            name = state["table"]
            if state["state"] == "live":
                rows = self.table(name, state["version"])
                if not any(known.get(name, {}) == rows for known in states):
                    expected = states[-1].get(name)
                    raise Fault(f"epoch {row[_EPOCH]}, {row[_GTID]}: {name} is live with {rows}, not {expected}")

    # --- at rest

    def judge_end(self) -> list[str]:
        """Judge the lake at rest. Return the tables that are not ``live``."""
        self.observe()
        world, server = self._world, self._world.main
        if not self._rows:
            raise Fault("the ledger has no row at rest")
        self._judge_kept()
        last = self._rows[-1]
        if counts_of(last[_GTID]) != server.counts[-1]:
            raise Fault(f"at rest the ledger has {last[_GTID]}, the source {server.counts[-1]}")
        states = {state["table"]: state for state in last[_TABLES]}
        waiting = []
        for name, rows in server.states[-1].items():
            state = states.get(name)
            if state is None or state["state"] != "live":
                waiting.append(f"{name} is {state and state['state']}: {state and state['reason']}")
            elif self.table(name, state["version"]) != rows:
                raise Fault(f"at rest {name} is {self.table(name, state['version'])}, not {rows}")
        for name in world.tables:
            if "changelog" in self._pipeline.modes:
                self._judge_changelog(name, states.get(name))
            if self._has_history and name in states and states[name]["version"] is not None:
                self._judge_history(name, states[name]["version"])
            if "kafka" in self._pipeline.modes:
                judge_messages(world, self._pipeline, name, states.get(name))
        world.count("lake judged at rest")
        return waiting

    def _judge_changelog(self, name: str, state: dict[str, Any] | None) -> None:
        version = state["changelog_version"] if state is not None else None
        logged: list[tuple[Any, ...]] = []
        if version is not None:
            content = self._content(self._pipeline.lake.changelog(name, None), version)
            images = [image for file in content for image in file if image.op in _LOGGED]
            logged = [(one.gtid, one.op, one.row, one.absent) for one in sorted(images, key=lambda one: one.seq)]
        is_whole = SHAPES[name].has_key and not SHAPES[name].logs_parts  # else a transaction may have equal images
        if is_whole and len(set(logged)) < len(logged):
            raise Fault(f"the changelog of {name} has a change twice")
        if self._pipeline.has_gap:
            return
        expected: list[tuple[Any, ...]] = []
        for begin in {counts_of(text) for text in self._pipeline.begins}:
            expected = [
                (one.gtid, op, row, absent)
                for one in self._world.main.log
                if one.number > begin[one.origin]
                for table, op, row, absent in one.images
                if table == name
            ]
            if logged == expected:
                return
        if state is not None:
            wrong = next((at for at, pair in enumerate(zip(logged, expected, strict=False)) if pair[0] != pair[1]), -1)
            raise Fault(
                f"the changelog of {name} has {len(logged)} images, the source {len(expected)}; at {wrong}:"
                f" {logged[wrong : wrong + 3]}, not {expected[wrong : wrong + 3]}"
            )

    def _judge_history(self, name: str, version: int) -> None:
        """Judge the versions of each key: those of the log are changes of the source, each once, and in order."""
        columns, by_key = SHAPES[name].columns, dict[int, list[dict[str, Any]]]()
        for file in self._content(self._pipeline.lake.current(name, None), version):
            for one in file.to_pylist():
                by_key.setdefault(one["id"], []).append(one)
        log, made = self._world.main, set[tuple[Any, ...]]()
        for one in (one for versions in by_key.values() for one in versions if one["_gtid"] is not None):
            change = one["_gtid"], one["_seq"]["ordinal"], tuple(one[column] for column in columns)
            uuid, _, number = one["_gtid"].partition(":")
            index = log.places.get((UUIDS.index(uuid), int(number)))
            images = () if index is None else log.log[index].images
            is_known = self._pipeline.has_gap or any((name, change[2]) == (table, row) for table, _, row, _ in images)
            if change in made or not is_known:
                raise Fault(f"the history of {name} has {change} twice, or the source never had it")
            made.add(change)
        for versions in by_key.values():
            versions.sort(key=lambda one: tuple(one["_seq"].values()))
            for one, following in pairwise(versions):
                if one["_is_current"] or not one["_valid_from"] <= one["_valid_to"] <= following["_valid_from"]:
                    raise Fault(f"versions of {name} overlap: {one}, {following}")


def _current_rows(file: dict[int, Any]) -> Iterator[tuple[Any, ...]]:
    for key, (row, _) in file.items():
        if row[0] != key:
            raise Fault(f"the row {row} has the key {key}")
        yield row


def _open_rows(versions: list[dict[str, Any]], columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    for one in versions:
        if one["_is_current"] != (one["_valid_to"] is None):
            raise Fault(f"a version is open and has an end: {one}")
        if one["_is_current"]:
            yield tuple(one[column] for column in columns)
