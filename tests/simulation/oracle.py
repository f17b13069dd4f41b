"""The oracle. It reads logs and data files as any reader of Delta would, and nothing of headgate judges.

After each batch: each new row of the ledger has a greater epoch, a GTID set that contains the one before, and for each
``live`` table exactly the rows that the source had at that set. At rest: the ledger has everything, each table is
``live`` and equal to the source, and the changelog has each change once, in the order of the source's log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.simulation.driver import Fault, Pipeline, counts_of
from tests.simulation.source import TABLES
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

    def table(self, name: str, version: int) -> dict[int, int]:
        """Return the rows of a current table."""
        rows: dict[int, int] = {}
        for file in self._content(self._pipeline.lake.current(name, None), version):
            for key, (value, _) in file.items():
                if key in rows:
                    raise Fault(f"{name} has the key {key} twice")
                rows[key] = value
        return rows

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
        if [row[_EPOCH] for row in rows[: len(self._rows)]] != [row[_EPOCH] for row in self._rows]:
            raise Fault("rows of the ledger are in another order than they were written, or missing")
        for row in rows[len(self._rows) :]:
            self._judge(row)
            self._rows.append(row)

    def _judge(self, row: tuple[Any, ...]) -> None:
        before = self._rows[-1] if self._rows else None
        if before is not None and row[_EPOCH] <= before[_EPOCH]:
            raise Fault(f"epoch {row[_EPOCH]} is in the ledger twice")
        counts = counts_of(row[_GTID])
        earlier = counts if before is None or self._pipeline.has_gap else counts_of(before[_GTID])
        if before is not None and any(new < old for new, old in zip(counts, earlier, strict=True)):
            raise Fault(f"the ledger goes back from {before[_GTID]} to {row[_GTID]}")
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
        self._world.count("ledger row judged")

    # --- at rest

    def judge_end(self) -> list[str]:
        """Judge the lake at rest. Return the tables that are not ``live``."""
        self.observe()
        world, server = self._world, self._world.main
        if not self._rows:
            raise Fault("the ledger has no row at rest")
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
        if "changelog" in self._pipeline.modes:
            for name in TABLES:
                self._judge_changelog(name, states.get(name))
        world.count("lake judged at rest")
        return waiting

    def _judge_changelog(self, name: str, state: dict[str, Any] | None) -> None:
        version = state["changelog_version"] if state is not None else None
        logged: list[tuple[Any, ...]] = []
        if version is not None:
            content = self._content(self._pipeline.lake.changelog(name, None), version)
            images = [image for file in content for image in file if image[0] in _LOGGED]
            logged = [(image[2], image[0], image[3], image[4]) for image in sorted(images, key=lambda one: one[1])]
        if len(set(logged)) < len(logged):
            raise Fault(f"the changelog of {name} has a change twice")
        if self._pipeline.has_gap:
            return
        expected: list[tuple[Any, ...]] = []
        for begin in {counts_of(text) for text in self._pipeline.begins}:
            expected = [
                (one.gtid, op, key, value)
                for one in self._world.main.log
                if one.number > begin[one.origin]
                for table, op, key, value in one.images
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
