"""SCNs: the 64-bit numbers by which Databus orders transactions, and how each kind is made.

Every kind guarantees: a transaction later in the binlog has a greater SCN, across restarts too, and reading a
transaction again gives the same SCN. Otherwise :class:`ScnOrderError` is raised, and nothing of that
transaction is published. All SCNs are positive in 64 signed bits.

``binlog-offset``
    ``file << 32 | offset``: where the transaction's last row event begins, as in Databus's MySQL relay
    (``ORListener.java``), but with the offset unsigned: Databus's own SCNs turn negative above 2 GiB. It is valid for
    one server only and restarts with RESET BINARY LOGS AND GTIDS: an SCN smaller than the last one is refused.
``gtid-generation`` (default)
    ``generation << 48 | number`` of the GTID. A generation belongs to one source (a server's UUID and the tag, if there
    is one). When another source begins to write, as after a failover, a generation is added to the *map*, a file that
    relays may share: entries ``{generation, source, first, ts_us}``, where ``first`` is the transaction's number and
    ``ts_us`` its commit time. A GTID belongs to the newest generation of its source that begins at or before its
    number. If all begin later, it belongs to the oldest one: the relay that added it began to read later in the log. So
    every relay with the map gives a GTID the same SCN, wherever it reads and whenever it started. If such an SCN would
    not grow, the transaction is refused, because another generation would contradict the other relays.

    An entry without a source is a *reset* (``--anew``): entries before it count no more. A relay that continues from an
    SCN before it is refused until it is reset, too; it then takes the same reset.
``relay-generated``
    Counts transactions, from a state that is saved with the position (so that both are of one moment). Two relays that
    begin with the same state at the same transaction stay equal while their sources do.
``application``
    The greatest value of a column in the transaction's rows: a number from the application, such as a Snowflake id.
``source-generated``
    ``generation << 48 | value`` of such a column, which the server made, such as the AUTO_INCREMENT key of a table that
    every transaction writes; generations as above. The last two are made before the commit, so their order may differ
    from the commit order: then the transaction is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.config import ScnKind
from headgate.errors import ConfigError, ScnOrderError
from headgate.files import lock_file, read_json, write_json

__all__ = ["GenerationMap", "Scn", "WholeTransactions", "scn_after_reset"]


_OFFSET_BITS: Final = 32
_NUMBER_BITS: Final = 48
"""2⁴⁸ transactions of one source last nine years at a million a second; 15 bits are left for generations."""
_LAST_GENERATION: Final = 2**15 - 1
_LAST_FILE: Final = 2**31 - 1
_GAP: Final = 2**32
"""More transactions than a relay can serve between two saves of its state."""

_REMEDIES: Final[Mapping[ScnKind, str]] = {
    "binlog-offset": "the binlog was reset, or is another server's; binlog-offset is valid for one server and one "
    "binlog only, gtid-generation across failovers",
    "application": "the application's numbers are not in commit order: use gtid-generation",
    "relay-generated": "all 64-bit numbers are used",
    "gtid-generation": "use relay-generated",
    "source-generated": "use relay-generated",
}
"""What to do if an SCN would not grow."""
_REGRESS: Final[Mapping[ScnKind, str]] = {
    "gtid-generation": "has a smaller number than one of the same source before it (Group Replication with several "
    "primaries, a GTID set by hand, or a reset binlog)",
    "source-generated": "was committed after one with a greater number",
}

_Numbers: TypeAlias = npt.NDArray[np.int64]


class WholeTransactions(NamedTuple):
    """Whole transactions in binlog order; each array is int64[transactions]."""

    gtids: Sequence[str]
    files: _Numbers
    positions: _Numbers
    """Where the last row event of each begins."""
    stamps_us: _Numbers
    """Commit times, µs since 1970."""
    values: _Numbers
    """The greatest value of the column that SCNs are made of; -1: none."""


@dataclass(frozen=True)
class _Generation:
    generation: int
    source: str
    first: int
    ts_us: int


class GenerationMap:
    """The generations of one timeline, in memory or in a file that several relays may share. Thread-safe.

    An entry is written before any of its SCNs is used, under a lock, after reading what other relays have written.
    Entries never change.

    :param file: None: in memory.
    :raises ConfigError: the file cannot be read or written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._lock = file, threading.Lock()
        self._entries: list[_Generation] = []
        self._load()

    def generation_of(self, source: str, number: int, ts_us: int, *, last: int) -> int:
        """Return the generation of a GTID that follows the SCN ``last``: a recorded one, or a new one.

        :param ts_us: its commit time.
        :raises ScnOrderError: the map contradicts this order, or no generation is left.
        :raises ConfigError: the file cannot be read or written.
        """
        with self._lock:
            generation = self._find(source, number, last)
            if not generation:
                with self._changing():
                    generation = self._find(source, number, last) or self._begin(source, number, ts_us, last)
            return generation

    def reset(self, last: int) -> int:
        """Return the generation of the reset for a relay that served up to the SCN ``last``: the newest reset if it is
        after that SCN, otherwise a new one, after every generation.

        :raises ScnOrderError: no generation is left.
        :raises ConfigError: the file cannot be read or written.
        """
        after = _generation_in(last)
        with self._lock, self._changing():
            newest = self._newest_reset()
            return newest if newest > after else self._add("", 0, 0, after)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with contextlib.nullcontext() if self._file is None else lock_file(self._file):
            self._load()
            yield

    def _newest_reset(self) -> int:
        return max((entry.generation for entry in self._entries if not entry.source), default=0)

    def _known(self, source: str) -> list[_Generation]:
        """Return the source's entries since the newest reset."""
        reset = self._newest_reset()
        return [entry for entry in self._entries if entry.source == source and entry.generation > reset]

    def _find(self, source: str, number: int, last: int) -> int:
        """Return the recorded generation; 0: none that makes the SCN grow."""
        if last >= 0 and self._newest_reset() > _generation_in(last):
            return 0
        known = self._known(source)
        begun = [entry for entry in known if entry.first <= number]
        entries = begun[-1:] or known[:1]
        return next((one.generation for one in entries if one.generation << _NUMBER_BITS | number > last), 0)

    def _begin(self, source: str, number: int, ts_us: int, last: int) -> int:
        """Return a new generation for a source that begins to write, now or again."""
        after, known = _generation_in(last), self._known(source)
        if last >= 0 and self._newest_reset() > after:
            raise ScnOrderError(
                "a relay with the same generations was started with --anew since: start this one with --anew, too"
            )
        if known and number < known[0].first:
            raise ScnOrderError(
                f"the generations of {source} begin with transaction {known[0].first}, and this earlier one follows "
                "another source's: start this relay later in the log (--from), or use other generations"
            )
        begun = [entry.generation for entry in known if entry.first <= number]
        if begun and begun[-1] == after:  # a smaller number than the last one's: its SCN does not grow
            return after
        return self._add(source, number, ts_us, after)

    def _add(self, source: str, first: int, ts_us: int, after: int) -> int:
        generation = max(after, 0, *[entry.generation for entry in self._entries]) + 1
        if generation > _LAST_GENERATION:
            raise ScnOrderError(
                f"all {_LAST_GENERATION} generations are used, because sources alternate: use relay-generated"
            )
        entries = [*self._entries, _Generation(generation, source, first, ts_us)]
        if self._file is not None:
            write_json(self._file, {"v": 1, "generations": [vars(entry) for entry in entries]})
        self._entries = entries
        return generation

    def _load(self) -> None:
        value = None if self._file is None else read_json(self._file)
        if value is None:
            return
        try:
            self._entries = [_Generation(**entry) for entry in value["generations"]]
        except (KeyError, TypeError):
            raise ConfigError(f"{self._file} is not a map of generations") from None


def _generation_in(scn: int) -> int:
    """Return an SCN's generation; 0: there is no SCN."""
    return max(scn, 0) >> _NUMBER_BITS


def scn_after_reset(kind: ScnKind, last: int, generations: GenerationMap) -> int:
    """Return the SCN after which a relay continues elsewhere in the log, above every SCN that it served before.

    A relay serves windows before it saves its state, so it may have served more than it knows. Therefore the result
    skips a generation, or 2³² numbers of ``relay-generated``. The numbers of ``binlog-offset`` and ``application`` are
    the transactions' own, so it skips one of them. Relays with one map of generations get the same result.

    :param last: the newest SCN that is known; -1: none.
    """
    if kind in ("gtid-generation", "source-generated"):
        return generations.reset(last) << _NUMBER_BITS
    return last + (_GAP if kind == "relay-generated" else 1)


class Scn:
    """Stateful numbering of whole transactions in binlog order, continued after ``last`` (-1: none yet).

    :param generations: for the kinds with generations.
    """

    def __init__(self, kind: ScnKind, generations: GenerationMap | None = None, last: int = -1) -> None:
        self.kind: ScnKind = kind
        self.last = last
        """The newest SCN. Who reads a part of the log again sets the one before it, and gets the same numbers."""
        self._generations = GenerationMap() if generations is None else generations

    def number(self, transactions: WholeTransactions) -> _Numbers:
        """Return the SCNs of the next transactions. After an error :attr:`last` is unchanged.

        :raises ScnOrderError: this kind cannot number them in order.
        """
        scns = self._numbers(transactions)
        before = np.concatenate((np.array([self.last], np.int64), scns[:-1]))
        wrong = np.flatnonzero(scns <= before[: len(scns)])
        if len(wrong):
            i = int(wrong[0])
            raise ScnOrderError(
                f"a transaction would get SCN {int(scns[i])} after {int(before[i])}: {_REMEDIES[self.kind]}",
                gtid=transactions.gtids[i],
                scn=int(scns[i]),
            )
        self.last = int(scns[-1]) if len(scns) else self.last
        return scns

    def _numbers(self, transactions: WholeTransactions) -> _Numbers:
        """Return the numbers; :meth:`number` checks that they grow."""
        match self.kind:
            case "binlog-offset":
                return _offsets(transactions)
            case "application":
                return _column_values(transactions)
            case "relay-generated":
                first = max(self.last, 0) + 1
                return np.arange(first, first + len(transactions.gtids), dtype=np.int64)
            case "source-generated":
                return self._in_generations(transactions, _column_values(transactions).tolist())
            case "gtid-generation":
                numbers = (int(gtid.rpartition(":")[2]) for gtid in transactions.gtids)
                return self._in_generations(transactions, numbers)

    def _in_generations(self, transactions: WholeTransactions, numbers: Iterable[int]) -> _Numbers:
        scns, last = np.empty(len(transactions.gtids), np.int64), self.last
        stamps = transactions.stamps_us.tolist()
        source_before, generation = "", 0
        for i, (gtid, number, stamp) in enumerate(zip(transactions.gtids, numbers, stamps, strict=True)):
            if number >> _NUMBER_BITS:
                raise ScnOrderError("a transaction's number does not fit an SCN: use relay-generated", gtid=gtid)
            source = gtid.rpartition(":")[0]
            if source != source_before:
                generation = self._generations.generation_of(source, number, stamp, last=last)
                source_before = source
            scn = generation << _NUMBER_BITS | number
            if scn <= last:
                raise ScnOrderError(f"a transaction {_REGRESS[self.kind]}: {_REMEDIES[self.kind]}", gtid=gtid, scn=scn)
            scns[i] = last = scn
        return scns


def _offsets(transactions: WholeTransactions) -> _Numbers:
    """:raises ScnOrderError: one does not fit."""
    gtids, files, positions = transactions[:3]
    far = np.flatnonzero((positions >= 1 << _OFFSET_BITS) | (files > _LAST_FILE))
    if len(far):
        raise ScnOrderError(
            f"a transaction at {int(positions[far[0]])} in binlog file {int(files[far[0]])} does not fit an SCN of "
            "file and offset: use gtid-generation",
            gtid=gtids[int(far[0])],
        )
    return (files << _OFFSET_BITS) | positions


def _column_values(transactions: WholeTransactions) -> _Numbers:
    """:raises ScnOrderError: a transaction has none."""
    missing = np.flatnonzero(transactions.values < 0)
    if len(missing):
        raise ScnOrderError(
            "a transaction has no row with a number in scn_column: write one with every transaction, or use "
            "gtid-generation",
            gtid=transactions.gtids[int(missing[0])],
        )
    return transactions.values
