"""What, beside the log, determines the bytes in a buffer's files: rules for columns, event version, sources' ids.

A relay that starts with another *mark* cannot serve the files. Events made by other rules may hold what is hidden now.
Clients of one event version cannot read the other. An id that is gone, or has another table or name, would reach
consumers that may not read it, or no longer know it. A source that is added changes no event that is there. But one
that comes back was not followed for some time: a consumer that read it before would get what follows without its
changes.

The file is written before the state that includes the first window made so: a buffer never has events that its mark
does not cover, because later windows are dropped at a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from headgate.errors import ConfigError
from headgate.files import read_json, write_json

__all__ = ["BufferMark", "MarkFile"]


@dataclass(frozen=True)
class BufferMark:
    """What determines the bytes of events, beside the log."""

    rules: str
    """``headgate.columns.rules_mark``."""
    event_version: int
    sources: Mapping[str, tuple[str, str, int]]
    """Name, table and logical partition, by id."""
    gone: tuple[str, ...] = ()
    """Names of sources that were followed before, and no longer are."""

    @classmethod
    def load(cls, file: Path) -> Self | None:
        """Load the mark of an earlier relay; None: there is none.

        :raises ConfigError: the file is not readable.
        """
        value = read_json(file)
        if value is None:
            return None
        try:
            sources = {
                number: (str(name), str(table), int(partition))
                for number, (name, table, partition) in value["sources"].items()
            }
            return cls(str(value["rules"]), int(value["event_version"]), sources, tuple(map(str, value["gone"])))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ConfigError(f"{file} is not a mark of a relay's buffer") from None

    def change_since(self, earlier: Self | None) -> str | None:
        """Return what keeps a relay with this mark from serving events of an earlier one; None: nothing does."""
        if earlier is None:
            return "their mark is missing"
        if self.rules != earlier.rules:
            return "the rules in [columns] changed"
        if self.event_version != earlier.event_version:
            return "event_version changed"
        changed = [names for number, names in earlier.sources.items() if self.sources.get(number) != names]
        if changed:
            return f"the source {changed[0][0]} was removed or changed"
        back = sorted(self.names.intersection(earlier.gone))
        return f"the source {back[0]} was not followed for some time" if back else None

    @property
    def names(self) -> frozenset[str]:
        """Names of the sources."""
        return frozenset(name for name, _, _ in self.sources.values())

    def after(self, earlier: Self | None) -> Self:
        """Return this mark with the sources of an earlier one that are gone."""
        if earlier is None:
            return self
        return replace(self, gone=tuple(sorted(earlier.names.union(earlier.gone) - self.names)))


class MarkFile:
    """Saves the mark of a buffer's files whenever it has changed.

    :param file: None: the buffer has no files.
    :param mark: returns the mark of what is written now.
    :param reset: no consumer can continue from before, so an earlier mark does not count.
    :raises ConfigError: the file is not readable.
    """

    def __init__(self, file: Path | None, mark: Callable[[], BufferMark], *, reset: bool = False) -> None:
        self._file, self._mark = file, mark
        self._earlier = None if file is None or reset else BufferMark.load(file)
        self._saved: BufferMark | None = None

    def change(self) -> str | None:
        """Return why the present files cannot be served; None: they can."""
        return None if self._file is None else self._mark().change_since(self._earlier)

    def save(self) -> None:
        """Save the mark now, if it changed.

        :raises HeadgateError: the file cannot be written.
        """
        mark = self._mark().after(self._earlier)
        if self._file is not None and mark != self._saved:
            write_json(self._file, {"v": 1, **vars(mark)})
            self._saved = mark
