"""Choose the end of a batch in the log, and divide its part of the log between tasks. No Spark here."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import ServerBehindError
from headgate.offsets import Hint
from headgate.positions import Position
from headgate.spark._notes import Cut
from headgate.spark._server import Server, ServerState, newest_file

__all__ = ["BatchEnd", "EndChooser"]

_BYTES_A_ROW = 1
"""Least bytes of a change in a log without compression: the NULL bits of a row of NULLs, in a row event with many."""


@dataclass(frozen=True)
class BatchEnd:
    """A batch's end: its GTID set, and the file starts that divide the log before it."""

    gtid: Position
    cuts: tuple[Cut, ...] = ()


class EndChooser:
    """Chooses the ends of a stream's batches."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._current: tuple[str, str] | None = None
        """Server and binlog file of the last chosen end: a cache."""

    def choose(
        self,
        had: Position,
        state: ServerState,
        begin: Hint | None,
        slots: int,
        *,
        target: Position | None = None,
        max_rows: int | None = None,
    ) -> BatchEnd:
        """Choose the end of the batch that begins at ``had``.

        :param begin: binlog position of a reader whose set was ``had``, if known.
        :param slots: how many tasks read at the same time.
        :param target: where the stream ends; None: it does not end.
        :param max_rows: about how many changes the batch may hold; more if its first transaction alone has more.
        :raises ServerBehindError: the server lacks a part of the target.
        """
        end = state.executed if target is None else had | target
        if not end <= state.executed:
            raise ServerBehindError(
                "the server lacks transactions of the stream's end position", missing=str(end - state.executed)
            )
        end = self._server.reach(had, end)
        if end == had:
            return BatchEnd(end)
        current = self._server.log_file()
        files = self._backlog(had, state.uuid, current, begin)
        if max_rows is not None and self._may_exceed(files, begin, max_rows):
            end = self._server.cut(had, end, max_rows, begin) & end
        cuts = self._divide(files, had, end, slots) if len(files) > 1 and slots > 1 else ()
        if end == state.executed:
            self._current = state.uuid, current
        return BatchEnd(end, cuts)

    def _backlog(self, had: Position, uuid: str, current: str, begin: Hint | None) -> list[tuple[str, int]]:
        """Return the files with changes after ``had``, and their bytes (-1: not queried, only the current file)."""
        if self._current == (uuid, current) or (begin is not None and begin.file == current):
            return [(current, -1)]
        files = self._server.log_files()
        names = [name for name, _ in files]
        if begin is not None and begin.file in names:
            return files[names.index(begin.file) :]
        index, _ = newest_file(self._server, names, lambda logged: logged <= had)
        return files[index:]

    def _may_exceed(self, files: list[tuple[str, int]], begin: Hint | None, max_rows: int) -> bool:
        """Whether the backlog may have more than ``max_rows`` changes."""
        if any(size < 0 for _, size in files):
            sizes = dict(self._server.log_files())
            files = [(name, sizes.get(name, 0)) for name, _ in files]
        size = sum(size for _, size in files)
        if begin is not None and files and begin.file == files[0][0]:
            size -= begin.pos
        return size > max_rows * _BYTES_A_ROW

    def _divide(self, files: list[tuple[str, int]], had: Position, end: Position, slots: int) -> tuple[Cut, ...]:
        """Return at most ``slots - 1`` file starts that divide the backlog into parts of about equal size."""
        total = sum(size for _, size in files)
        cuts: list[Cut] = []
        before, previous = 0, had
        for index, (name, size) in enumerate(files):
            if index and len(cuts) < slots - 1 and before >= total * (len(cuts) + 1) / slots:
                logged = self._server.previous_gtids(name) & end
                if previous < previous | logged and not end <= logged:
                    cuts.append(Cut(name, str(logged)))
                    previous = previous | logged
            before += size
        return tuple(cuts)
